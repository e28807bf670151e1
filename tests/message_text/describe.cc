#include "tests/message_text/describe.h"

#include <algorithm>
#include <concepts>
#include <sstream>
#include <type_traits>
#include <utility>

#include "common/wire/body_fields.h"

namespace foretoken::wire {
namespace {

constexpr std::size_t kMostElements = 8;  // of a list, in a log line
constexpr std::size_t kMostCharacters = 64;

class Printer {
 public:
  explicit Printer(std::ostringstream& out) : out_(out) {}

  template <Record T>
  void value(const T& record) {
    out_ << Listing<T>::kName << "{";
    bool first = true;
    Listing<T>::fields(record, [&](int, const char* name, const auto& field, const char*, int = 0) {
      out_ << (std::exchange(first, false) ? "" : " ") << name << "=";
      value(field);
    });
    out_ << "}";
  }
  void value(bool b) { out_ << (b ? "true" : "false"); }
  // Text may be a prompt, and prompts are not logged: only its size is shown.
  void value(const std::string& text) {
    if (text.size() > kMostCharacters)
      out_ << "<" << text.size() << " bytes>";
    else
      out_ << '"' << text << '"';
  }
  template <class T>
  requires std::is_arithmetic_v<T>
  void value(T number) { out_ << +number; }
  void value(ErrorCode code) { out_ << error_code_name(code); }
  template <class T>
  requires std::is_enum_v<T>
  void value(T e) { out_ << name_of(e); }
  template <class Tag, class Integer>
  void value(const Id<Tag, Integer>& id) {
    out_ << id.value;
  }
  void value(const std::pair<TokenId, float>& pair) { out_ << pair.first << ":" << pair.second; }
  template <class T>
  void value(const std::vector<T>& list) {
    out_ << "[";
    for (std::size_t i = 0; i < std::min(list.size(), kMostElements); ++i) {
      if (i > 0) out_ << " ";
      value(list[i]);
    }
    if (list.size() > kMostElements) out_ << " ... " << list.size() << " in all";
    out_ << "]";
  }

 private:
  std::ostringstream& out_;
};

// How a field's type is called in the protocol's tables; records met on the way are noted for
// tables of their own.
class Documenter {
 public:
  template <Record T>
  void table() {
    std::ostringstream rows;
    const T example{};
    Listing<T>::fields(example, [&](int number, const char* name, const auto& field,
                                    const char* sentence, int since = 0) {
      rows << "| " << number << " | `" << name << "` | " << type(field) << " | " << sentence;
      if (since > 0) rows << " (since " << int{kVersionMajor} << "." << since << ")";
      rows << " |\n";
    });
    out << "\n| # | field | type | meaning |\n|---|---|---|---|\n" << rows.str();
  }

  // Records used by messages, each once, deepest first.
  std::ostringstream out;
  std::vector<std::pair<std::string_view, std::string>> records;

 private:
  template <class T>
  std::string type(const T& field) {
    if constexpr (Record<T>)
      return note<T>();
    else if constexpr (std::same_as<T, bool>)
      return "bool";
    else if constexpr (std::same_as<T, std::string>)
      return "str";
    else if constexpr (std::floating_point<T>)
      return "f" + std::to_string(8 * sizeof(T));
    else if constexpr (std::same_as<T, ErrorCode>)
      return "u16, error code";
    else if constexpr (std::is_enum_v<T>)
      return "u8, closed list: " + values<T>();
    else if constexpr (std::integral<T>)
      return (std::is_signed_v<T> ? "i" : "u") + std::to_string(8 * sizeof(T));
    else if constexpr (requires { field.value; })
      return type(field.value);
    else
      return list_of(field);
  }
  template <class T>
  std::string list_of(const std::vector<T>&) {
    if constexpr (PlainNumber<T>)
      return "bin of " + type(T{});
    else
      return "array of " + type(T{});
  }
  std::string list_of(const std::pair<TokenId, float>&) { return "[i32, f32]"; }
  template <class T>
  std::string values() {
    std::string all;
    for (std::uint64_t i = 0; i < enum_count(T{}); ++i)
      all +=
          (i > 0 ? ", " : "") + std::to_string(i) + " " + std::string(name_of(static_cast<T>(i)));
    return all;
  }
  template <Record T>
  std::string note() {
    const auto known = [&](const auto& r) { return r.first == Listing<T>::kName; };
    if (std::none_of(records.begin(), records.end(), known)) {
      Documenter inner;
      inner.records = std::move(records);
      inner.table<T>();
      records = std::move(inner.records);
      records.emplace_back(Listing<T>::kName, inner.out.str());
    }
    return std::string(Listing<T>::kName);
  }
};

template <std::size_t... I>
std::string_view find_name(MessageType type, std::index_sequence<I...>) {
  std::string_view name = "unknown";
  (void)((std::variant_alternative_t<I, Message>::kType == type
              ? (name = std::variant_alternative_t<I, Message>::kName, true)
              : false) ||
         ...);
  return name;
}

template <std::size_t... I>
void document_messages(Documenter& documenter, std::index_sequence<I...>) {
  const auto one = [&]<class M>() {
    documenter.out << "\n### " << M::kName << " (" << static_cast<unsigned>(M::kType) << ")\n\n"
                   << M::kDuty << "\n";
    documenter.table<M>();
  };
  (one.template operator()<std::variant_alternative_t<I, Message>>(), ...);
}

}  // namespace

std::string_view name_of(const Message& message) {
  return std::visit([](const auto& m) { return m.kName; }, message);
}

std::string_view name_of(MessageType type) {
  return find_name(type, std::make_index_sequence<std::variant_size_v<Message>>{});
}

std::string print(const Message& message) {
  std::ostringstream out;
  Printer printer(out);
  std::visit([&](const auto& m) { printer.value(m); }, message);
  return out.str();
}

std::string document() {
  Documenter documenter;
  document_messages(documenter, std::make_index_sequence<std::variant_size_v<Message>>{});
  std::ostringstream out;
  out << "<!-- Generated from common/messages/messages.h; a test compares. Rewrite with "
         "FORETOKEN_UPDATE_GOLDEN=1. -->\n"
         "# Messages between services, version "
      << int{kVersionMajor} << "." << int{kVersionMinor} << "\n\nA message is two to " << kMaxParts
      << " parts: a header of " << kHeaderBytes
      << " bytes, a body that is one msgpack array, and raw blobs if the body says so. A part has "
         "at most "
      << kMaxInternalPartBytes
      << " bytes.\n\n## Header\n\n"
         "Little-endian.\n\n| bytes | field | meaning |\n|---|---|---|\n"
         "| 0–3 | magic | `FTKN` |\n| 4 | major | another major version is refused |\n| 5 | minor "
         "| fields were only appended |\n"
         "| 6–7 | type | number of the message |\n| 8–11 | flags | zero |\n| 12–15 | body bytes | "
         "size of the second part |\n"
         "| 16–31 | request id | two u64, high then low; zero where no single request is meant |\n"
         "| 32–39 | sender | worker id: the same after a restart |\n| 40–47 | incarnation | one "
         "run of the sender; random |\n"
         "| 48–55 | sequence | number of the frame in that run |\n"
         "\n## Messages\n\nNumbers that are not given again:";
  for (const char* comma = " "; const MessageType type : kRetiredTypes)
    out << std::exchange(comma, ", ") << static_cast<int>(type);
  out << ".\n" << documenter.out.str() << "\n## Records\n";
  for (const auto& [name, rows] : documenter.records) out << "\n### " << name << "\n" << rows;
  return out.str();
}

}  // namespace foretoken::wire
