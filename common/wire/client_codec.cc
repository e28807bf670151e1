#include "common/wire/client_codec.h"

#include <concepts>
#include <cstdint>
#include <limits>
#include <sstream>
#include <type_traits>
#include <utility>

#include "common/wire/client_keys.h"
#include "common/wire/limits.h"
#include "common/wire/msgpack_reader.h"
#include "common/wire/msgpack_writer.h"
#include "common/wire/packed_reply.h"

namespace foretoken::wire {
namespace {

template <class T>
concept MapRecord = requires(T& m) {
  T::fields(m, [](const char*, auto&, const char*) {});
};

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
      T::fields(v, [&](const char* key, const auto& field, const char*) {
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
  // What this process wrote for itself has no limit but its bytes.
  static constexpr std::size_t kMostBytes = kKeys == Keys::kWritten ? kMaxStringBytes : SIZE_MAX;
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
      return in_.number(v);
    } else if constexpr (std::same_as<T, std::string>) {
      std::string_view text;
      if (!in_.str(text, kMostBytes)) return false;
      v = text;
      return true;
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

// What stands under "error".
struct ErrorMap {
  std::string code;
  std::string message;
  std::string param;
  std::uint32_t retry_after_ms = 0;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("code", m.code, "one of a closed list, see below");
    v("message", m.message, "what, which one and the limit");
    v("param", m.param, "the key to blame, or empty");
    v("retry_after_ms", m.retry_after_ms, "when it is worth asking again; 0 = not");
  }
};

struct ErrorAnswer {
  std::string id;
  bool done = true;
  ErrorMap error;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("id", m.id, "the request id, empty if it could not be read");
    v("done", m.done, "true: nothing follows");
    v("error", m.error, "why");
  }
};

template <class T>
Result<ClientAnswer> read_answer(std::string_view bytes) {
  MsgpackReader in(bytes);
  T answer{};
  if (!MapReader(in).value(answer) || !in.at_end())
    return Error{
        ErrorCode::kMalformed,
        "the answer " + (in.failed() ? in.error() : std::string("is followed by more bytes"))};
  if constexpr (std::same_as<T, ErrorAnswer>)
    return ClientAnswer(ClientError{answer.id, answer.done, answer.error.code, answer.error.message,
                                    answer.error.param, answer.error.retry_after_ms});
  else
    return ClientAnswer(std::move(answer));
}

bool nearly_default(float a, float b) { return !(a < b) && !(b < a); }

// Collects the pairs of a request before their number is known.
class PairWriter {
 public:
  MsgpackWriter& key(std::string_view name) {
    ++n_;
    out_.str(name);
    return out_;
  }
  void strings(std::string_view name, const std::vector<std::string>& list) {
    if (list.empty()) return;
    key(name).array(list.size());
    for (const auto& text : list) out_.str(text);
  }
  void tokens(std::string_view name, const std::vector<TokenId>& list) {
    if (list.empty()) return;
    key(name).array(list.size());
    for (const TokenId id : list) out_.integer(id);
  }
  void number(std::string_view name, float value, float standard) {
    if (!nearly_default(value, standard)) key(name).float64(static_cast<double>(value));
  }
  void flag(std::string_view name, bool value, bool standard) {
    if (value != standard) key(name).boolean(value);
  }
  Bytes finish() {
    Bytes all;
    MsgpackWriter(all).map(n_);
    return all + pairs_;
  }

 private:
  Bytes pairs_;
  MsgpackWriter out_{pairs_};
  std::size_t n_ = 0;
};

void write_prompt(const ClientRequest& r, PairWriter& out) {
  if (r.prompt_kind == PromptKind::kText) return out.key("prompt").str(r.prompt);
  if (r.prompt_kind == PromptKind::kTokens) return out.tokens("token_ids", r.token_ids);
  MsgpackWriter& list = out.key("messages");
  list.array(r.messages.size());
  for (const auto& [role, content] : r.messages) {
    list.map(2);
    list.str("role");
    list.str(role);
    list.str("content");
    list.str(content);
  }
}

void write_sampling(const ClientRequest& r, PairWriter& out) {
  const SamplingParams standard;
  const SamplingParams& p = r.params;
  if (r.has_max_tokens) out.key("max_tokens").uint(p.max_tokens);
  if (p.min_tokens != 0) out.key("min_tokens").uint(p.min_tokens);
  if (r.has_temperature) out.key("temperature").float64(static_cast<double>(p.temperature));
  if (r.has_top_k) out.key("top_k").uint(p.top_k);
  if (r.has_top_p) out.key("top_p").float64(static_cast<double>(p.top_p));
  if (r.has_min_p) out.key("min_p").float64(static_cast<double>(p.min_p));
  if (r.has_repetition_penalty)
    out.key("repetition_penalty").float64(static_cast<double>(p.repetition_penalty));
  out.number("presence_penalty", p.presence_penalty, standard.presence_penalty);
  out.number("frequency_penalty", p.frequency_penalty, standard.frequency_penalty);
  if (!p.logit_bias.empty()) {
    MsgpackWriter& map = out.key("logit_bias");
    map.map(p.logit_bias.size());
    for (const auto& [id, bias] : p.logit_bias) {
      map.integer(id);
      map.float64(static_cast<double>(bias));
    }
  }
  out.strings("bad_words", r.bad_words);
  out.strings("stop", r.stop);
  out.tokens("stop_token_ids", p.stop_token_ids);
  out.flag("include_stop_str_in_output", r.include_stop_str_in_output, false);
  out.flag("ignore_eos", p.ignore_eos, false);
  if (r.has_seed) out.key("seed").uint(p.seed);
  if (p.n_logprobs >= 0) out.key("logprobs").integer(p.n_logprobs);
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

Bytes write_client_request(const ClientRequest& r) {
  PairWriter out;
  if (r.request_id) out.key("request_id").str(hex_of(*r.request_id));
  if (r.op != ClientOp::kGenerate)
    out.key("op").str(r.op == ClientOp::kCancel     ? "cancel"
                      : r.op == ClientOp::kStatus   ? "status"
                      : r.op == ClientOp::kMetrics  ? "metrics"
                      : r.op == ClientOp::kTokenize ? "tokenize"
                                                    : "detokenize");
  if (r.op == ClientOp::kCancel || r.op == ClientOp::kStatus || r.op == ClientOp::kMetrics)
    return out.finish();
  write_prompt(r, out);
  if (!r.model.empty()) out.key("model").str(r.model);
  write_sampling(r, out);
  out.flag("stream", r.stream, false);
  if (r.num_draft_tokens >= 0) out.key("num_draft_tokens").integer(r.num_draft_tokens);
  if (r.proposer != ProposerKind::kDefault) out.key("proposer").str(name_of(r.proposer));
  out.flag("adaptive", r.adaptive, true);
  if (!r.prediction.empty()) out.key("prediction").str(r.prediction);
  if (r.timeout_ms != 0) out.key("timeout_ms").uint(r.timeout_ms);
  out.flag("skip_special_tokens", r.skip_special_tokens, true);
  out.flag("add_special_tokens", r.add_special_tokens, true);
  out.flag("add_generation_prompt", r.add_generation_prompt, true);
  if (!r.tenant.empty()) out.key("tenant").str(r.tenant);
  if (r.priority != 0) out.key("priority").uint(r.priority);
  return out.finish();
}

Bytes write_client_answer(const ClientAnswer& answer) {
  Bytes bytes;
  MsgpackWriter out(bytes);
  MapWriter writer(out);
  std::visit(
      [&](const auto& a) {
        if constexpr (std::same_as<std::decay_t<decltype(a)>, ClientError>)
          writer.value(ErrorAnswer{a.id, a.done, {a.code, a.message, a.param, a.retry_after_ms}});
        else
          writer.value(a);
      },
      answer);
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
    if (key == "error") return read_answer<ErrorAnswer>(bytes);
    if (key == "services") return read_answer<StatusReply>(bytes);
    if (key == "metrics_text") return read_answer<MetricsText>(bytes);
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
  return {known ? hex_of(id) : "", true,        std::string(error_code_name(error.code)),
          error.message,           error.param, retry_after_ms};
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

std::string client_document() {
  std::ostringstream out;
  out << "<!-- Generated from common/wire/client.h and client_request.cc; a test compares. Rewrite "
         "with FORETOKEN_UPDATE_GOLDEN=1. -->\n"
         "# What clients say and hear\n\n"
         "Connect a REQ or DEALER socket to `bus.client` (default `tcp://127.0.0.1:5555`). A "
         "request is one frame: a msgpack map "
         "with string keys, at most 1 MiB. A REQ socket gets one frame back. A DEALER may send the "
         "empty delimiter frame first, "
         "and then gets one before each answer; with `stream` it gets pieces, each a frame, the "
         "last of which has `done: true`. "
         "Any number of requests may be under way on one DEALER: answers carry `id`. A key that is "
         "nil counts as not given; an "
         "unknown key is an error.\n\n"
         "## Request\n\n| key | type | default | meaning |\n|---|---|---|---|\n";
  for (const auto& key : request_keys())
    out << "| `" << key.name << "` | " << key.type << " | "
        << (key.default_value.empty() ? "–" : key.default_value) << " | " << key.sentence << " |\n";
  out << "\n## Answers\n";
  write_table_of<ClientReply>(out, "The answer, or the last piece of a stream");
  write_table_of<ClientPiece>(out, "A piece of a stream");
  write_table_of<Usage>(out, "usage");
  write_table_of<ReplyMetrics>(out, "metrics");
  write_table_of<SpeculativeDecoding>(out, "metrics.speculative_decoding");
  write_table_of<LogprobEntry>(out, "an entry of logprobs");
  write_table_of<ErrorAnswer>(out, "When it could not be done");
  write_table_of<ErrorMap>(out, "error");
  write_table_of<StatusReply>(out, "Answer to op status");
  write_table_of<ServiceStatus>(out, "an entry of services");
  write_table_of<MetricsText>(out, "Answer to op metrics");
  write_table_of<TokensReply>(out, "Answer to op tokenize and op detokenize");
  out << "\n## Error codes\n\n";
  for (const auto& [code, name] : kErrorCodeNames) out << "- `" << name << "`\n";
  return out.str();
}

}  // namespace foretoken::wire
