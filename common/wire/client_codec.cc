#include "common/wire/client_codec.h"

#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>

#include "common/messages/limits.h"
#include "common/wire/msgpack_reader.h"
#include "common/wire/msgpack_writer.h"
#include "common/wire/packed_reply.h"

namespace foretoken::wire {
namespace {

template <class T>
concept MapRecord = requires(T& m) {
  T::fields(m, [](const char*, auto&, const char*) {});
};

template <class T>
constexpr bool kIsOptionalRecord = false;
template <MapRecord T>
constexpr bool kIsOptionalRecord<std::optional<T>> = true;

template <class T>
concept NumbersByName = std::same_as<T, std::map<std::string, std::vector<std::uint32_t>>>;

// Records with their keys, as clients read them, or the fields alone in their order.
enum class Keys : std::uint8_t { kWritten, kLeftOut };

template <Keys kKeys = Keys::kWritten>
class MapWriter {
 public:
  explicit MapWriter(MsgpackWriter& out) : out_(out) {}

  template <class T>
  void value(const T& v) {
    if constexpr (MapRecord<T>) {
      std::size_t n = 0;
      T::fields(v, [&](const char*, const auto&, const char*) { ++n; });
      if constexpr (kKeys == Keys::kWritten)
        out_.map(n);
      else
        out_.array(n);
      T::fields(v, [&]([[maybe_unused]] const char* key, const auto& field, const char*) {
        if constexpr (kKeys == Keys::kWritten) out_.str(key);
        value(field);
      });
    } else if constexpr (std::same_as<T, bool>) {
      out_.boolean(v);
    } else if constexpr (std::unsigned_integral<T>) {
      out_.uint(v);
    } else if constexpr (std::signed_integral<T>) {
      out_.integer(v);
    } else if constexpr (std::floating_point<T>) {
      out_.float64(static_cast<double>(v));
    } else if constexpr (std::same_as<T, std::string>) {
      out_.str(v);
    } else if constexpr (std::same_as<T, std::vector<std::uint8_t>>) {
      out_.bin({reinterpret_cast<const char*>(v.data()), v.size()});
    } else if constexpr (NumbersByName<T>) {
      out_.map(v.size());
      for (const auto& [name, numbers] : v) {
        out_.str(name);
        value(numbers);
      }
    } else if constexpr (std::same_as<T, std::optional<double>>) {
      v ? out_.float64(*v) : out_.nil();
    } else if constexpr (kIsOptionalRecord<T>) {
      v ? value(*v) : out_.nil();
    } else if constexpr (std::same_as<T, StopReason>) {
      if (const auto* id = std::get_if<TokenId>(&v)) return out_.integer(*id);
      if (const auto* text = std::get_if<std::string>(&v)) return out_.str(*text);
      out_.nil();
    } else {
      out_.array(v.size());
      for (const auto& element : v) value(element);
    }
  }

 private:
  MsgpackWriter& out_;
};

template <Keys kKeys = Keys::kWritten>
class MapReader {
 public:
  // What this process wrote for itself has no limit but its bytes. A text of an answer is as large
  // as the part it comes in: the metrics of many services are.
  static constexpr std::size_t kMostBytes =
      kKeys == Keys::kWritten ? kMaxInternalPartBytes : SIZE_MAX;
  static constexpr std::size_t kMostElements = kKeys == Keys::kWritten ? kMaxTokenIds : SIZE_MAX;

  explicit MapReader(MsgpackReader& in) : in_(in) {}

  // Unknown keys are of a newer server and skipped, missing ones keep their defaults.
  template <class T>
  bool value(T& v) {
    if constexpr (MapRecord<T> && kKeys == Keys::kLeftOut) {
      std::size_t size = 0;
      if (!in_.array(size, kMostElements)) return false;
      bool good = true;
      T::fields(v, [&](const char*, auto& field, const char*) {
        good = good && size-- > 0 && value(field);
      });
      in_.leave();
      return good;
    } else if constexpr (MapRecord<T>) {
      std::size_t size = 0;
      if (!in_.map(size)) return false;
      for (std::size_t i = 0; i < size; ++i) {
        std::string_view name;
        if (!in_.str(name)) return false;
        bool known = false;
        bool good = true;
        T::fields(v, [&](const char* key, auto& field, const char*) {
          if (known || name != key) return;
          known = true;
          good = value(field);
        });
        if (!(known ? good : in_.skip())) return false;
      }
      in_.leave();
      return true;
    } else if constexpr (std::same_as<T, bool>) {
      return in_.boolean(v);
    } else if constexpr (std::unsigned_integral<T>) {
      std::uint64_t wide = 0;
      if (!in_.uint(wide, std::numeric_limits<T>::max())) return false;
      v = static_cast<T>(wide);
      return true;
    } else if constexpr (std::signed_integral<T>) {
      std::int64_t wide = 0;
      if (!in_.sint(wide, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()))
        return false;
      v = static_cast<T>(wide);
      return true;
    } else if constexpr (std::floating_point<T>) {
      double wide = 0;
      if (!in_.number(wide)) return false;
      v = static_cast<T>(wide);
      return true;
    } else if constexpr (std::same_as<T, std::string>) {
      std::string_view text;
      if (!in_.str(text, kMostBytes)) return false;
      v = text;
      return true;
    } else if constexpr (std::same_as<T, std::vector<std::uint8_t>>) {
      std::string_view bytes;
      if (!in_.bin(bytes, kMostBytes)) return false;
      v.assign(bytes.begin(), bytes.end());
      return true;
    } else if constexpr (NumbersByName<T>) {
      std::size_t size = 0;
      if (!in_.map(size)) return false;
      v.clear();
      for (std::size_t i = 0; i < size; ++i) {
        std::string_view name;
        if (!in_.str(name, kMostBytes) || !value(v[std::string(name)])) return false;
      }
      in_.leave();
      return true;
    } else if constexpr (std::same_as<T, std::optional<double>>) {
      if (in_.peek() == MsgpackKind::kNil) return v = std::nullopt, in_.nil();
      return in_.number(v.emplace());
    } else if constexpr (kIsOptionalRecord<T>) {
      if (in_.peek() == MsgpackKind::kNil) return v = std::nullopt, in_.nil();
      return value(v.emplace());
    } else if constexpr (std::same_as<T, StopReason>) {
      if (in_.peek() == MsgpackKind::kNil) return v = std::monostate{}, in_.nil();
      if (in_.peek() == MsgpackKind::kStr) return value(v.template emplace<std::string>());
      return value(v.template emplace<TokenId>());
    } else {
      std::size_t size = 0;
      if (!in_.array(size, kMostElements)) return false;
      v.clear();
      for (std::size_t i = 0; i < size; ++i)
        if (!value(v.emplace_back())) return false;
      in_.leave();
      return true;
    }
  }

 private:
  MsgpackReader& in_;
};

template <class T>
Result<ClientAnswer> read_answer(std::string_view bytes) {
  MsgpackReader in(bytes);
  T answer{};
  if (!MapReader(in).value(answer) || !in.at_end())
    return Error{
        ErrorCode::kMalformed,
        "the answer " + (in.failed() ? in.error() : std::string("is followed by more bytes"))};
  return ClientAnswer(std::move(answer));
}

}  // namespace

Bytes write_client_answer(const ClientAnswer& answer) {
  Bytes bytes;
  MsgpackWriter out(bytes);
  MapWriter writer(out);
  std::visit([&](const auto& a) { writer.value(a); }, answer);
  return bytes;
}

Result<ClientAnswer> read_client_answer(std::string_view bytes) {
  // Which kind it is shows in its keys.
  MsgpackReader in(bytes);
  std::size_t size = 0;
  if (!in.map(size)) return Error{ErrorCode::kMalformed, "the answer " + in.error()};
  for (std::size_t i = 0; i < size; ++i) {
    std::string_view key;
    if (!in.str(key)) return Error{ErrorCode::kMalformed, "a key of the answer " + in.error()};
    if (key == "error") return read_answer<ClientError>(bytes);
    if (key == "services") return read_answer<StatusReply>(bytes);
    if (key == "metrics_text") return read_answer<MetricsText>(bytes);
    if (key == "passes") return read_answer<PassesReply>(bytes);
    if (key == "n_tokens") return read_answer<TokensReply>(bytes);
    if (key == "usage") return read_answer<ClientReply>(bytes);
    if (!in.skip())
      return Error{ErrorCode::kMalformed, "the answer's " + std::string(key) + " " + in.error()};
  }
  return read_answer<ClientPiece>(bytes);
}

Bytes pack_reply(const ClientReply& reply) {
  Bytes bytes;
  MsgpackWriter out(bytes);
  MapWriter<Keys::kLeftOut>(out).value(reply);
  return bytes;
}

Result<ClientReply> unpack_reply(std::string_view bytes) {
  MsgpackReader in(bytes);
  ClientReply reply;
  if (!MapReader<Keys::kLeftOut>(in).value(reply) || !in.at_end())
    return Error{ErrorCode::kMalformed, "the packed reply " + in.error()};
  return reply;
}

ClientError client_error(RequestId id, const Error& error, std::uint32_t retry_after_ms) {
  const bool known = id != RequestId{};
  return {.id = known ? hex_of(id) : "",
          .error = {.code = std::string(error_code_name(error.code)),
                    .message = error.message,
                    .param = error.param,
                    .retry_after_ms = retry_after_ms}};
}

std::string hex_of(std::uint64_t value) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (int shift = 60; shift >= 0; shift -= 4) out += kDigits[(value >> shift) & 15];
  return out;
}

std::string hex_of(RequestId id) { return hex_of(id.high) + hex_of(id.low); }

std::optional<RequestId> request_id_from_hex(std::string_view hex) {
  RequestId id;
  std::size_t digits = 0;
  for (const char c : hex) {
    if (c == '-') continue;  // as UUIDs are written
    const int value = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (value < 0 || ++digits > 32) return std::nullopt;
    auto& half = digits <= 16 ? id.high : id.low;
    half = half << 4 | static_cast<std::uint64_t>(value);
  }
  if (digits != 32) return std::nullopt;
  return id;
}

}  // namespace foretoken::wire
