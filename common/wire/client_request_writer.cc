// A ClientRequest -> its map: what was given, or differs from what holds without it.
#include <concepts>
#include <cstdint>
#include <map>
#include <type_traits>
#include <utility>

#include "common/wire/client_codec.h"
#include "common/wire/msgpack_writer.h"

namespace foretoken::wire {
namespace {

// Writes one value of a request; by type, as the listing has them.
struct ValueWriter {
  MsgpackWriter& out;

  void write(bool value) { out.boolean(value); }
  void write(float value) { out.float64(static_cast<double>(value)); }
  void write(const std::string& value) { out.str(value); }
  void write(RequestId value) { out.str(hex_of(value)); }
  template <std::integral T>
  void write(T value) {
    if constexpr (std::unsigned_integral<T>)
      out.uint(value);
    else
      out.integer(value);
  }
  template <class E>
  requires std::is_enum_v<E>
  void write(E value) { out.str(name_of(value)); }
  void write(ProposerSet set) {
    if (set.size() != 1) out.array(static_cast<std::size_t>(set.size()));
    set.for_each([&](ProposerKind kind) { write(kind); });
  }
  void write(const JsonList& list) { out.str(list.text); }
  void write(const JsonObject& object) { out.str(object.text); }
  void write(const ChatMessage& message) {
    const bool has_extra = !message.extra.text.empty();
    out.map(has_extra ? 3 : 2);
    out.str("role");
    out.str(message.role);
    out.str("content");
    out.str(message.content);
    if (!has_extra) return;
    out.str("extra");
    out.str(message.extra.text);
  }
  template <class T>
  void write(const std::optional<T>& value) {
    if (value) return write(*value);
    out.nil();
  }
  template <class T>
  void write(const std::vector<T>& list) {
    out.array(list.size());
    for (const T& entry : list) write(entry);
  }
  void write(const std::vector<std::pair<TokenId, float>>& biases) {
    out.map(biases.size());
    for (const auto& [id, bias] : biases) {
      out.integer(id);
      write(bias);
    }
  }
};

bool is_key_of(PromptKind kind, std::string_view key) {
  return key == (kind == PromptKind::kText       ? "prompt"
                 : kind == PromptKind::kMessages ? "messages"
                                                 : "token_ids");
}

// Whether the map needs this key: it was given, or says something else than its absence.
bool is_written(const ClientRequest& r, std::string_view key, bool is_default) {
  if (key == "op" || key == "request_id") return !is_default;
  if (r.op == ClientOp::kCancel || r.op == ClientOp::kStatus || r.op == ClientOp::kMetrics ||
      r.op == ClientOp::kPasses)
    return false;
  if (key == "prompt" || key == "messages" || key == "token_ids")
    return is_key_of(r.prompt_kind, key);
  return !is_default || r.given.contains(key);
}

template <class T>
Bytes value_bytes(const T& value) {
  Bytes bytes;
  MsgpackWriter out(bytes);
  ValueWriter{out}.write(value);
  return bytes;
}

// What each key is worth in a request that gives nothing.
const std::map<std::string_view, Bytes>& default_values() {
  static const auto values = [] {
    std::map<std::string_view, Bytes> all;
    const ClientRequest standard;
    ClientRequest::fields(standard, [&](const char* key, const auto& value, const Limit&, Topic,
                                        const char*) { all[key] = value_bytes(value); });
    return all;
  }();
  return values;
}

}  // namespace

Bytes write_client_request(const ClientRequest& r) {
  Bytes pairs;
  MsgpackWriter out(pairs);
  std::size_t n = 0;
  ClientRequest::fields(r,
                        [&](const char* key, const auto& value, const Limit&, Topic, const char*) {
                          const Bytes bytes = value_bytes(value);
                          if (!is_written(r, key, bytes == default_values().at(key))) return;
                          ++n;
                          out.str(key);
                          pairs += bytes;
                        });
  Bytes all;
  MsgpackWriter(all).map(n);
  return all + pairs;
}

}  // namespace foretoken::wire
