// clients/python/foretoken/messages.py, from the listings: what a request may say and what answers
// hold, as types for Python's checkers.
#include <concepts>
#include <map>
#include <set>
#include <sstream>
#include <type_traits>
#include <utility>

#include "common/wire/client_codec.h"

namespace foretoken::wire {
namespace {

template <class T>
inline constexpr std::string_view kClassName = "";
template <>
inline constexpr std::string_view kClassName<Usage> = "Usage";
template <>
inline constexpr std::string_view kClassName<SpeculativeDecoding> = "SpeculativeDecoding";
template <>
inline constexpr std::string_view kClassName<ReplyMetrics> = "ReplyMetrics";
template <>
inline constexpr std::string_view kClassName<LogprobEntry> = "LogprobEntry";
template <>
inline constexpr std::string_view kClassName<ServiceStatus> = "ServiceStatus";
template <>
inline constexpr std::string_view kClassName<ModelStatus> = "ModelStatus";
template <>
inline constexpr std::string_view kClassName<StatusReply> = "StatusReply";

// The type of a key of an answer.
template <class T>
struct AnswerType {
  static std::string name() {
    if constexpr (std::same_as<T, bool>) {
      return "bool";
    } else if constexpr (std::is_floating_point_v<T>) {
      return "float";
    } else if constexpr (std::integral<T>) {
      return "int";
    } else {
      static_assert(!kClassName<T>.empty(), "a record within an answer needs a name in Python");
      return std::string(kClassName<T>);
    }
  }
};
template <>
struct AnswerType<std::string> {
  static std::string name() { return "str"; }
};
template <>
struct AnswerType<std::vector<std::uint8_t>> {
  static std::string name() { return "bytes"; }
};
template <class T>
struct AnswerType<std::vector<T>> {
  static std::string name() { return "list[" + AnswerType<T>::name() + "]"; }
};
template <class T>
struct AnswerType<std::optional<T>> {
  static std::string name() { return "Optional[" + AnswerType<T>::name() + "]"; }
};
template <class T>
struct AnswerType<std::map<std::string, T>> {
  static std::string name() { return "dict[str, " + AnswerType<T>::name() + "]"; }
};

std::string literal(const auto& names) {
  std::string text;
  for (const auto name : names) text += (text.empty() ? "\"" : ", \"") + std::string(name) + "\"";
  return "Literal[" + text + "]";
}

// The type of a keyword of a request. None is as good as not given.
struct KeywordType {
  static std::string of(bool, const Limit&) { return "Optional[bool]"; }
  static std::string of(float, const Limit&) { return "Optional[float]"; }
  template <std::integral T>
  static std::string of(T, const Limit& limit) {
    return limit.takes_bool ? "Union[bool, int, None]" : "Optional[int]";
  }
  template <class E>
  requires std::is_enum_v<E>
  static std::string of(E, const Limit&) { return "Optional[" + literal(names_of(E{})) + "]"; }
  static std::string of(ProposerSet, const Limit&) {
    const std::string one = literal(kProposerNames);
    return "Union[" + one + ", Sequence[" + one + "], None]";
  }
  static std::string of(const std::string&, const Limit&) { return "Optional[str]"; }
  static std::string of(const std::vector<std::string>&, const Limit&) {
    return "Union[str, Sequence[str], None]";
  }
  static std::string of(const std::vector<TokenId>&, const Limit&) {
    return "Optional[Sequence[int]]";
  }
  static std::string of(const std::vector<std::pair<TokenId, float>>&, const Limit&) {
    return "Optional[Mapping[int, float]]";
  }
  static std::string of(const JsonList&, const Limit&) { return "Optional[str]"; }
  static std::string of(const JsonObject&, const Limit&) { return "Optional[str]"; }
  static std::string of(const std::optional<RequestId>&, const Limit&) {
    return "Union[bytes, str, None]";
  }
};

// The client writes the JSON text of a mapping.
constexpr std::string_view kTypeOfSchema = "Union[str, Mapping[str, object], None]";

// Keys that the client sets by itself: of its methods and of their first argument.
bool is_set_by_client(std::string_view key) {
  static const std::set<std::string_view> keys{"op", "prompt", "messages", "token_ids", "stream"};
  return keys.contains(key);
}

void write_keyword(std::ostringstream& out,
                   std::string_view key,
                   const auto& value,
                   const Limit& limit,
                   std::string_view sentence) {
  const std::string range = range_text(limit);
  out << "\n    # " << sentence << (range.empty() ? "" : " (" + range + ")") << "\n    " << key
      << ": " << (key == "json_schema" ? std::string(kTypeOfSchema) : KeywordType::of(value, limit))
      << "\n";
}

void write_keywords(std::ostringstream& out) {
  out << "\n\nclass Parameters(TypedDict, total=False):\n"
         "    \"\"\"Keywords of generate() and stream(); None is as good as not given.\"\"\"\n";
  static const ClientRequest standard;
  ClientRequest::fields(standard, [&](const char* key, const auto& value, const Limit& limit, Topic,
                                      const char* sentence) {
    if constexpr (!std::same_as<std::remove_cvref_t<decltype(value)>, std::vector<ChatMessage>>)
      if (!is_set_by_client(key)) write_keyword(out, key, value, limit, sentence);
  });
}

template <class T>
void write_class(std::ostringstream& out, std::string_view what) {
  out << "\n\nclass " << kClassName<T> << "(TypedDict):\n    \"\"\"" << what << "\"\"\"\n";
  const T example{};
  T::fields(example, [&](const char* key, const auto& value, const char* sentence) {
    using Value = std::remove_cvref_t<decltype(value)>;
    out << "\n    # " << sentence << "\n    " << key << ": " << AnswerType<Value>::name() << "\n";
  });
}

}  // namespace

std::string python_types() {
  std::ostringstream out;
  out << "# Generated from common/messages/client.h and common/base/sampling_params.h; a test "
         "compares. Rewrite with FORETOKEN_UPDATE_GOLDEN=1.\n"
         "\"\"\"What a request may say and what answers hold: the keys of docs/reference/client.md "
         "as types.\"\"\"\n\n"
         "from __future__ import annotations\n\n"
         "from typing import Literal, Mapping, Optional, Sequence, TypedDict, Union\n";
  write_keywords(out);
  write_class<Usage>(out, "Token counts of an answer.");
  write_class<SpeculativeDecoding>(out, "What guessing ahead did for an answer.");
  write_class<ReplyMetrics>(out, "Times of an answer, and what guessing ahead did.");
  write_class<LogprobEntry>(out, "A token with its log-probability, and the likeliest ones.");
  write_class<ServiceStatus>(out, "One service, as `foretoken ps` shows it.");
  write_class<ModelStatus>(out, "One model, as clients may ask for it.");
  write_class<StatusReply>(out, "Every service, and what they serve.");
  return out.str();
}

}  // namespace foretoken::wire
