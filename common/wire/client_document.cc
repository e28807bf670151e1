// docs/reference/client.md, from the listings.
#include <concepts>
#include <sstream>
#include <type_traits>
#include <utility>

#include "common/wire/client_codec.h"

namespace foretoken::wire {
namespace {

// How the reference page calls the type of a key.
struct TypeName {
  static std::string_view of(bool, const Limit&) { return "boolean"; }
  static std::string_view of(float, const Limit&) { return "number"; }
  template <std::integral T>
  static std::string_view of(T, const Limit& limit) {
    return limit.takes_bool ? "integer or boolean" : "integer";
  }
  template <class E>
  requires std::is_enum_v<E>
  static std::string_view of(E, const Limit&) { return "string"; }
  static std::string_view of(ProposerSet, const Limit&) { return "string or list of strings"; }
  static std::string_view of(const std::string&, const Limit&) { return "string"; }
  static std::string_view of(const std::vector<std::string>&, const Limit&) {
    return "string or list of strings";
  }
  static std::string_view of(const std::vector<TokenId>&, const Limit&) {
    return "list of integers";
  }
  static std::string_view of(const std::vector<ChatMessage>&, const Limit&) {
    return "list of maps";
  }
  static std::string_view of(const JsonList&, const Limit&) { return "string: JSON"; }
  static std::string_view of(const JsonObject&, const Limit&) { return "string: JSON"; }
  static std::string_view of(const std::vector<std::pair<TokenId, float>>&, const Limit&) {
    return "map";
  }
  static std::string_view of(const std::optional<RequestId>&, const Limit&) {
    return "16 bytes or 32 hexadecimal digits";
  }
};

template <class T>
std::string default_text(const T& value) {
  if constexpr (std::same_as<T, bool>)
    return value ? "true" : "false";
  else if constexpr (std::is_arithmetic_v<T>)
    return number_text(static_cast<double>(value));
  else if constexpr (std::is_enum_v<T>)
    return std::string(name_of(value));
  else if constexpr (std::same_as<T, ProposerSet>)
    return names_in(value);
  else
    return "–";  // an empty text or list
}

bool is_model_default(std::string_view key) {
  bool found = false;
  static const SamplingDefaults defaults;
  SamplingDefaults::fields(
      defaults, [&](int, const char* name, const auto&, const char*) { found |= key == name; });
  return found;
}

// "from 0 to 100", "at most 16, of 256 bytes each", "default, draft or none"
template <class T>
std::string allowed_text(const T&, const Limit& limit) {
  std::string text = limit_text(limit);
  const auto listed = [&](const auto& names) {
    for (const auto name : names) text += (text.empty() ? "" : ", ") + std::string(name);
    return text;
  };
  if constexpr (std::is_enum_v<T>) return listed(names_of(T{}));
  if constexpr (std::same_as<T, ProposerSet>) return listed(kProposerNames);
  return text.empty() ? "–" : text;
}

void write_request_table(std::ostringstream& out) {
  out << "| key | type | allowed | default | meaning |\n|---|---|---|---|---|\n";
  static const ClientRequest standard;
  ClientRequest::fields(standard, [&](const char* key, const auto& value, const Limit& limit, Topic,
                                      const char* sentence) {
    out << "| `" << key << "` | " << TypeName::of(value, limit) << " | "
        << allowed_text(value, limit) << " | "
        << (limit.otherwise.empty() ? default_text(value) : std::string(limit.otherwise))
        << (is_model_default(key) ? ", or as the model says" : "") << " | " << sentence << " |\n";
  });
}

void write_table(std::ostringstream& out, const char* title, const auto& rows) {
  out << "\n### " << title << "\n\n| key | meaning |\n|---|---|\n";
  rows([&](const char* key, const auto&, const char* sentence) {
    out << "| `" << key << "` | " << sentence << " |\n";
  });
}

template <class T>
void write_table_of(std::ostringstream& out, const char* title) {
  const T example{};
  write_table(out, title, [&](const auto& row) { T::fields(example, row); });
}

}  // namespace

std::string client_document() {
  std::ostringstream out;
  out << "<!-- Generated from common/messages/client.h and common/base/sampling_params.h; a test "
         "compares. "
         "Rewrite with FORETOKEN_UPDATE_GOLDEN=1. -->\n"
         "# What clients send and receive\n\n"
         "Connect a REQ or DEALER socket to `bus.client` (default `tcp://127.0.0.1:5555`). A "
         "request is one frame: a msgpack map "
         "with string keys, at most 1 MiB. A REQ socket gets one frame back. A DEALER gets pieces "
         "with `stream`, each a frame, the last of which has `done: true`; if it sends the empty "
         "delimiter frame first, it gets one before each answer and each piece. "
         "Any number of requests may be under way on one DEALER: answers carry `id`. A key that is "
         "nil counts as not given; an "
         "unknown key is an error.\n\n"
         "## Request\n\n";
  write_request_table(out);
  out << "\n## Answers\n";
  write_table_of<ClientReply>(out, "The answer, or the last piece of a stream");
  write_table_of<ClientPiece>(out, "A piece of a stream");
  write_table_of<AnswerForm>(out, "form");
  write_table_of<Usage>(out, "usage");
  write_table_of<ReplyMetrics>(out, "metrics");
  write_table_of<SpeculativeDecoding>(out, "metrics.speculative_decoding");
  write_table_of<LogprobEntry>(out, "an entry of logprobs");
  write_table_of<ClientError>(out, "When it could not be done");
  write_table_of<ErrorDetail>(out, "error");
  write_table_of<StatusReply>(out, "Answer to op status");
  write_table_of<ServiceStatus>(out, "an entry of services");
  write_table_of<ModelStatus>(out, "an entry of model_states");
  write_table_of<MetricsText>(out, "Answer to op metrics");
  write_table_of<PassesReply>(out, "Answer to op passes");
  write_table_of<ServicePasses>(out, "an entry of passes");
  write_table_of<TokensReply>(out, "Answer to op tokenize and op detokenize");
  out << "\n## Error codes\n\n";
  for (const auto& [code, name] : kErrorCodeNames) out << "- `" << name << "`\n";
  return out.str();
}

}  // namespace foretoken::wire
