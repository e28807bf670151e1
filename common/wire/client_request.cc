// A client's request map -> ClientRequest: one function a type, the listing says the rest.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <limits>
#include <set>
#include <type_traits>
#include <utility>

#include "common/base/check.h"
#include "common/base/nearest.h"
#include "common/messages/limits.h"
#include "common/wire/client_codec.h"
#include "common/wire/msgpack_reader.h"
#include "common/wire/msgpack_writer.h"

namespace foretoken::wire {
namespace {

using In = MsgpackReader;

bool text(In& in, std::string& value, std::size_t most) {
  std::string_view view;
  if (!in.str(view)) return false;
  if (view.size() > most)
    return in.fail("has " + std::to_string(view.size()) + " bytes; the limit is " +
                   std::to_string(most));
  if (!is_utf8(view)) return in.fail("is not valid UTF-8");
  value = view;
  return true;
}

bool read(In& in, std::string& value, const Limit& limit) {
  return text(in, value, limit.most_each);
}

bool read(In& in, bool& value, const Limit&) { return in.boolean(value); }

// JSON text may have an integer of any length; its readers make a float of one beyond 64 bits.
bool is_beyond_64_bits(In ahead) {
  double wide = 0;
  return ahead.peek() == MsgpackKind::kFloat && ahead.number(wide) && std::abs(wide) >= 0x1p63;
}

bool beyond_64_bits(In& in, const std::string& range) {
  double wide = 0;
  return in.number(wide) && in.fail("is " + number_text(wide) + "; it must be an integer " + range);
}

// A signed seed counts as its 64 bits.
bool read(In& in, std::uint64_t& value, const Limit&) {
  if (is_beyond_64_bits(in))
    return beyond_64_bits(in, "from " + std::to_string(std::numeric_limits<std::int64_t>::min()) +
                                  " to " +
                                  std::to_string(std::numeric_limits<std::uint64_t>::max()));
  MsgpackInteger wide;
  if (!in.integer(wide)) return false;
  if (wide.negative && wide.magnitude > (std::uint64_t{1} << 63))
    return in.fail("does not fit 64 bits");
  value = wide.negative ? ~wide.magnitude + 1 : wide.magnitude;
  return true;
}

template <std::integral T>
bool read(In& in, T& value, const Limit& limit) {
  if (limit.takes_bool && in.peek() == MsgpackKind::kBool) {
    bool wanted = false;
    if (!in.boolean(wanted)) return false;
    value = static_cast<T>(wanted ? limit.low : limit.none.value_or(limit.low));
    return true;
  }
  if (is_beyond_64_bits(in)) return beyond_64_bits(in, range_text(limit));
  MsgpackInteger wide;
  if (!in.integer(wide)) return false;
  const double number = (wide.negative ? -1 : 1) * static_cast<double>(wide.magnitude);
  if (limit.is_off(number)) return value = static_cast<T>(limit.low), true;
  if (!limit.contains(number))
    return in.fail("is " + std::string(wide.negative ? "-" : "") + std::to_string(wide.magnitude) +
                   "; it must be " + range_text(limit));
  value = static_cast<T>(wide.magnitude);
  return true;
}

bool read(In& in, float& value, const Limit& limit) {
  double wide = 0;
  if (!in.number(wide)) return false;
  // The float itself may be out of the range: 1e-50 is 0.
  if (!limit.contains(wide) || !limit.contains(static_cast<float>(wide)))
    return in.fail("is " + number_text(wide) + "; it must be " + range_text(limit));
  value = static_cast<float>(wide);
  return true;
}

bool read(In& in, std::vector<TokenId>& list, const Limit& limit) {
  std::size_t size = 0;
  if (!in.array(size, limit.most)) return false;
  list.clear();
  for (std::size_t i = 0; i < size; ++i) {
    std::int64_t id = 0;
    if (!in.sint(id, 0, std::numeric_limits<TokenId>::max())) return false;
    list.push_back(static_cast<TokenId>(id));
  }
  in.leave();
  return true;
}

// One string or a list of them, none empty.
bool read(In& in, std::vector<std::string>& list, const Limit& limit) {
  list.clear();
  const bool single = in.peek() == MsgpackKind::kStr;
  std::size_t size = 1;
  if (!single && !in.array(size)) return false;
  if (size > limit.most)
    return in.fail("has " + std::to_string(size) + " strings; the limit is " +
                   std::to_string(limit.most));
  for (std::size_t i = 0; i < size; ++i) {
    if (!text(in, list.emplace_back(), limit.most_each)) return false;
    if (list.back().empty()) return in.fail("has an empty string");
  }
  if (!single) in.leave();
  return true;
}

template <class E>
requires std::is_enum_v<E>
bool read(In& in, E& value, const Limit&) {
  std::string name;
  if (!text(in, name, kMaxNameBytes)) return false;
  const auto named = value_named<E>(name);
  if (!named) return in.fail("is \"" + name + "\"; it must be " + alternatives(names_of(E{})));
  value = *named;
  return true;
}

// One name or a list of them.
bool read(In& in, ProposerSet& set, const Limit& limit) {
  set = {};
  const bool single = in.peek() == MsgpackKind::kStr;
  std::size_t size = 1;
  if (!single && !in.array(size)) return false;
  if (size == 0) return in.fail("is an empty list; leave it out for what is configured");
  if (size > kProposerKinds)
    return in.fail("has " + std::to_string(size) + " names; the limit is " +
                   std::to_string(kProposerKinds));
  for (std::size_t i = 0; i < size; ++i) {
    ProposerKind kind{};
    if (!read(in, kind, limit)) return false;
    set.add(kind);
  }
  if (!single) in.leave();
  if (set.size() > 1 && set != set.sources())
    return in.fail("has others beside default or none, which stand alone");
  return true;
}

// A string, or OpenAI's list of parts, of which only text is taken; joined.
bool content(In& in, std::string& value) {
  if (in.peek() == MsgpackKind::kStr) return text(in, value, kMaxStringBytes);
  if (in.peek() == MsgpackKind::kNil) return in.nil();
  std::size_t parts = 0;
  if (!in.array(parts)) return false;
  for (std::size_t i = 0; i < parts; ++i) {
    std::size_t keys = 0;
    std::string type;
    std::string part;
    if (!in.map(keys)) return false;
    for (std::size_t k = 0; k < keys; ++k) {
      std::string key;
      if (!text(in, key, kMaxNameBytes)) return false;
      if (!(key == "type"   ? text(in, type, kMaxNameBytes)
            : key == "text" ? text(in, part, kMaxStringBytes)
                            : in.skip()))
        return false;
    }
    in.leave();
    if (type != "text")
      return in.fail("has a content part " + std::to_string(i) + " of type \"" + type +
                     "\"; only text is read");
    value += part;
  }
  in.leave();
  return true;
}

template <class T>
requires std::same_as<T, JsonList> || std::same_as<T, JsonObject>
bool read(In& in, T& json, const Limit& limit) {
  if (!text(in, json.text, limit.most_each)) return false;
  const auto problem = problem_of(json);
  return !problem || in.fail(*problem);
}

bool message(In& in, ChatMessage& message) {
  static constexpr std::array<std::string_view, 5> kRoles{"system", "developer", "user",
                                                          "assistant", "tool"};
  std::size_t keys = 0;
  std::string role;
  std::string body;
  JsonObject extra;
  bool has_content = false;
  if (!in.map(keys)) return false;
  for (std::size_t k = 0; k < keys; ++k) {
    std::string key;
    if (!text(in, key, kMaxNameBytes)) return false;
    if (key == "role") {
      if (!text(in, role, kMaxNameBytes)) return false;
    } else if (key == "content") {
      has_content = true;
      if (!content(in, body)) return false;
    } else if (key == "extra") {
      if (!read(in, extra, bytes(kMaxStringBytes))) return false;
    } else {
      return in.fail("has a message with the key \"" + key +
                     "\"; a message has role, content and extra");
    }
  }
  in.leave();
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end())
    return in.fail("has a message with role \"" + role +
                   "\"; it must be system, developer, user, assistant or tool");
  if (!has_content) return in.fail("has a message without content");
  message = {.role = role == "developer" ? "system" : std::move(role),
             .content = std::move(body),
             .extra = std::move(extra)};
  return true;
}

bool read(In& in, std::vector<ChatMessage>& messages, const Limit& limit) {
  std::size_t size = 0;
  if (!in.array(size, limit.most)) return false;
  if (size == 0) return in.fail("is an empty list; it must have at least one message");
  std::size_t n_bytes = 0;
  for (std::size_t i = 0; i < size && n_bytes <= kMaxStringBytes; ++i) {
    if (!message(in, messages.emplace_back())) return false;
    n_bytes += messages.back().content.size() + messages.back().extra.text.size();
  }
  // Quoting makes six bytes of one: what travels on is the JSON text.
  if (n_bytes > kMaxStringBytes || messages_json(messages).size() > kMaxStringBytes)
    return in.fail("is more than " + std::to_string(kMaxStringBytes) + " bytes as JSON, the limit");
  in.leave();
  return true;
}

// Of a map whose keys are integers or, as in JSON, their digits.
bool token_id_key(In& in, TokenId& id) {
  std::int64_t wide = -1;
  if (in.peek() == MsgpackKind::kStr) {
    std::string_view digits;
    if (!in.str(digits)) return false;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), wide);
    if (error != std::errc{} || end != digits.data() + digits.size() || wide < 0 ||
        wide > std::numeric_limits<TokenId>::max())
      return in.fail("has a key that is not a token id");
  } else if (!in.sint(wide, 0, std::numeric_limits<TokenId>::max())) {
    return false;
  }
  id = static_cast<TokenId>(wide);
  return true;
}

bool read(In& in, std::vector<std::pair<TokenId, float>>& biases, const Limit& limit) {
  std::size_t size = 0;
  if (!in.map(size, limit.most)) return false;
  biases.clear();
  std::set<TokenId> seen;
  for (std::size_t i = 0; i < size; ++i) {
    auto& [id, bias] = biases.emplace_back();
    if (!token_id_key(in, id) || !read(in, bias, limit)) return false;
    if (!seen.insert(id).second) return in.fail("has token id " + std::to_string(id) + " twice");
  }
  in.leave();
  return true;
}

bool read(In& in, std::optional<RequestId>& id, const Limit&) {
  std::string_view bytes;
  if (in.peek() == MsgpackKind::kBin) {
    if (!in.bin(bytes)) return false;
    if (bytes.size() != 16)
      return in.fail("has " + std::to_string(bytes.size()) + " bytes; it must have 16");
    id.emplace();
    for (int i = 0; i < 16; ++i) {
      auto& half = i < 8 ? id->high : id->low;
      half = half << 8 | static_cast<std::uint8_t>(bytes[static_cast<std::size_t>(i)]);
    }
    return true;
  }
  if (!in.str(bytes)) return false;
  id = request_id_from_hex(bytes);
  return id.has_value() || in.fail("must be 16 bytes or 32 hexadecimal digits");
}

bool is_key(std::string_view name) {
  const auto& keys = request_keys();
  return std::find(keys.begin(), keys.end(), name) != keys.end();
}

bool read_key(In& in, ClientRequest& request, std::string_view name) {
  bool good = false;
  ClientRequest::fields(request,
                        [&](const char* key, auto& member, const Limit& limit, Topic, const char*) {
                          if (name == key) good = read(in, member, limit);
                        });
  return good;
}

// Of other protocols; and what to use in their place.
constexpr std::string_view kAnotherConstraint = "; use json_schema, regex or gbnf";
constexpr std::pair<std::string_view, std::string_view> kRefused[] = {
    {"echo", ""},
    {"functions", "; use tools"},
    {"best_of", ""},
    {"suffix", ""},
    {"response_format", kAnotherConstraint},
    {"structured_outputs", kAnotherConstraint},
    {"guided_json", kAnotherConstraint},
    {"grammar", kAnotherConstraint},
};

Error bad(ErrorCode code, std::string sentence, std::string param = {}) {
  return {code, std::move(sentence), std::move(param)};
}

Error unknown_key(const std::string& key) {
  for (const auto& [refused, instead] : kRefused)
    if (key == refused)
      return bad(ErrorCode::kUnsupportedParameter,
                 key + " is not supported by this release" + std::string(instead), key);
  if (key.empty())
    return bad(ErrorCode::kInvalidRequest, "unknown key \"\": a key of the request is empty");
  const auto near = nearest(key, request_keys());
  return bad(ErrorCode::kInvalidRequest,
             "unknown key \"" + key + "\"" + (near ? "; did you mean \"" + *near + "\"?" : ""),
             key);
}

// The three ways to give a prompt, seen in this request.
std::size_t prompts_in(const GivenKeys& given) {
  return std::size_t{given.contains("prompt")} + std::size_t{given.contains("messages")} +
         std::size_t{given.contains("token_ids")};
}

// What an operation needs and does not take.
std::optional<Error> check_prompt(const ClientRequest& r) {
  const std::size_t n_prompts = prompts_in(r.given);
  const bool has_ids = r.given.contains("token_ids");
  if (has_ids && r.token_ids.empty())
    return bad(ErrorCode::kInvalidValue,
               "token_ids is an empty list; it must have at least one token id", "token_ids");
  if (r.op == ClientOp::kDetokenize && (n_prompts != 1 || !has_ids))
    return bad(ErrorCode::kInvalidRequest, "detokenize needs token_ids and nothing else",
               "token_ids");
  if (r.op == ClientOp::kDetokenize && r.token_ids.size() > kMaxDetokenizeIds)
    return bad(ErrorCode::kInvalidValue,
               "token_ids has " + std::to_string(r.token_ids.size()) +
                   " tokens; detokenize takes at most " + std::to_string(kMaxDetokenizeIds),
               "token_ids");
  if (r.op == ClientOp::kTokenize && has_ids)
    return bad(ErrorCode::kInvalidRequest, "tokenize needs prompt or messages, not token_ids",
               "token_ids");
  if (n_prompts != 1)
    return bad(ErrorCode::kInvalidRequest,
               (n_prompts == 0 ? "one of " : "only one of ") +
                   std::string(r.op == ClientOp::kTokenize ? "prompt and messages"
                                                           : "prompt, messages and token_ids") +
                   (n_prompts == 0 ? " is required" : " may be given"),
               "prompt");
  return {};
}

// Only a chat template shows these to a model.
std::optional<Error> check_for_messages(const ClientRequest& r) {
  if (r.given.contains("messages")) return {};
  for (const char* key : {"tools", "chat_template_kwargs", "continue_final_message"})
    if (r.given.contains(key))
      return bad(ErrorCode::kInvalidRequest, std::string(key) + " needs messages", key);
  return {};
}

// What the listing knows and this release does not do.
std::optional<Error> check_supported(const ClientRequest& r) {
  if (r.acceptance != AcceptanceRule::kCoupled)
    return bad(
        ErrorCode::kUnsupportedParameter,
        "acceptance is \"" + std::string(name_of(r.acceptance)) + "\"; this release knows coupled",
        "acceptance");
  return {};
}

// A proposer without what it proposes would leave the request to plain decoding without a word.
std::optional<Error> check_prediction(const ClientRequest& r) {
  if (!r.proposer.contains(ProposerKind::kPrediction) || !r.prediction.empty()) return {};
  return bad(ErrorCode::kInvalidValue,
             "proposer names \"prediction\", which needs the expected answer under prediction",
             "prediction");
}

// An empty one would leave the answer free without a word.
std::optional<Error> check_constraint(const ClientRequest& r) {
  std::optional<Error> error;
  SamplingParams::fields(
      r.params, [&](int, const char* key, const auto& value, const auto&, const char*, int = 0) {
        if constexpr (std::same_as<std::decay_t<decltype(value)>, std::string>)
          if (!error && is_constraint_key(key) && value.empty() && r.given.contains(key))
            error = bad(ErrorCode::kInvalidValue,
                        std::string(key) + " is empty; leave it out for a free answer", key);
      });
  if (error || constraint_key(r.params).empty()) return error;
  // A call has a form of its own, which no constraint of ours describes.
  if (const ToolChoice choice = tool_choice_of(r); choice != ToolChoice::kNone)
    return bad(ErrorCode::kUnsupportedParameter,
               "tool_choice is \"" + std::string(name_of(choice)) +
                   "\" and the answer is constrained: calls of tools and a constraint do not go "
                   "together; tool_choice may be \"none\"",
               "tool_choice");
  return {};
}

Result<ClientRequest> checked(ClientRequest r) {
  if (auto error = check_supported(r)) return *error;
  if (r.op == ClientOp::kCancel && !r.request_id)
    return bad(ErrorCode::kInvalidRequest, "cancel needs request_id", "request_id");
  if (r.op == ClientOp::kStatus || r.op == ClientOp::kMetrics || r.op == ClientOp::kPasses ||
      r.op == ClientOp::kCancel)
    return r;
  if (auto error = check_prompt(r)) return *error;
  if (auto error = check_prediction(r)) return *error;
  if (auto error = check_for_messages(r)) return *error;
  if (auto error = check_constraint(r)) return *error;
  r.prompt_kind = r.given.contains("prompt")     ? PromptKind::kText
                  : r.given.contains("messages") ? PromptKind::kMessages
                                                 : PromptKind::kTokens;
  if (!r.given.contains("max_tokens"))
    r.params.max_tokens = std::max(kDefaultMaxTokens, r.params.min_tokens);
  if (auto valid = validate(r.params, 0); !valid.ok()) return valid.error();
  return r;
}

}  // namespace

// The id of a request that cannot be read otherwise, wherever in the map it stands: the client
// sorts answers by it.
static std::optional<RequestId> find_request_id(std::string_view bytes) {
  MsgpackReader in(bytes);
  std::size_t size = 0;
  if (in.peek() != MsgpackKind::kMap || !in.map(size, bytes.size())) return std::nullopt;
  for (std::size_t i = 0; i < size; ++i) {
    if (in.peek() != MsgpackKind::kStr) {  // no key of ours
      if (!in.skip() || !in.skip()) return std::nullopt;
      continue;
    }
    std::string_view key;
    if (!in.str(key)) return std::nullopt;
    if (key != "request_id") {
      if (!in.skip()) return std::nullopt;
      continue;
    }
    std::optional<RequestId> id;
    return read(in, id, any_value()) ? id : std::nullopt;
  }
  return std::nullopt;
}

ClientRequestOutcome read_client_request(std::string_view bytes) {
  MsgpackReader in(bytes);
  ClientRequest request;
  const auto failed = [&](Error error) {
    return ClientRequestOutcome{std::move(error), find_request_id(bytes)};
  };
  std::size_t size = 0;
  if (in.peek() != MsgpackKind::kMap)
    return failed(bad(ErrorCode::kMalformed, "a request is a msgpack map with string keys, found " +
                                                 std::string(name_of(in.peek()))));
  if (!in.map(size)) return failed(bad(ErrorCode::kMalformed, "the request " + in.error()));
  for (std::size_t i = 0; i < size; ++i) {
    std::string key;
    if (!text(in, key, kMaxNameBytes))
      return failed(bad(ErrorCode::kMalformed, "a key of the request " + in.error()));
    if (!is_key(key)) return failed(unknown_key(key));
    if (request.given.contains(key))
      return failed(bad(ErrorCode::kInvalidRequest, key + " is given twice", key));
    if (in.peek() == MsgpackKind::kNil) {  // nil = not given
      in.nil();
      continue;
    }
    request.given.insert(key);
    if (!read_key(in, request, key)) {
      const bool truncated = in.peek() == MsgpackKind::kEnd &&
                             in.error().find("the end of the data") != std::string::npos;
      return failed(bad(truncated ? ErrorCode::kMalformed : ErrorCode::kInvalidValue,
                        key + " " + in.error(), key));
    }
  }
  if (!in.at_end())
    return failed(
        bad(ErrorCode::kMalformed, std::to_string(in.remaining()) + " bytes follow the request"));
  const auto id = request.request_id;
  return {checked(std::move(request)), id};
}

}  // namespace foretoken::wire
