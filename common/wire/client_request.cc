// A client's request map -> ClientRequest, key by key from one table; the same table documents
// them.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "common/base/nearest.h"
#include "common/wire/client_codec.h"
#include "common/wire/client_keys.h"
#include "common/wire/limits.h"
#include "common/wire/msgpack_reader.h"
#include "common/wire/msgpack_writer.h"

namespace foretoken::wire {
namespace {

using In = MsgpackReader;
using Request = ClientRequest;

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

template <class T>
bool unsigned_number(In& in,
                     T& value,
                     std::uint64_t least = 0,
                     std::uint64_t most = std::numeric_limits<T>::max()) {
  MsgpackInteger wide;
  if (!in.integer(wide)) return false;
  if (wide.negative || wide.magnitude < least || wide.magnitude > most)
    return in.fail("is " + std::string(wide.negative ? "-" : "") + std::to_string(wide.magnitude) +
                   "; it must be from " + std::to_string(least) + " to " + std::to_string(most));
  value = static_cast<T>(wide.magnitude);
  return true;
}

bool fraction(In& in, float& value) {
  double wide = 0;
  if (!in.number(wide)) return false;
  if (std::abs(wide) > std::numeric_limits<float>::max()) return in.fail("is too large a number");
  value = static_cast<float>(wide);
  return true;
}

bool token_list(In& in, std::vector<TokenId>& list, std::size_t most) {
  std::size_t size = 0;
  if (!in.array(size, most)) return false;
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
bool strings(In& in, std::vector<std::string>& list, std::size_t most, std::size_t most_bytes) {
  list.clear();
  const bool single = in.peek() == MsgpackKind::kStr;
  std::size_t size = 1;
  if (!single && !in.array(size)) return false;
  if (size > most)
    return in.fail("has " + std::to_string(size) + " strings; the limit is " +
                   std::to_string(most));
  for (std::size_t i = 0; i < size; ++i) {
    if (!text(in, list.emplace_back(), most_bytes)) return false;
    if (list.back().empty()) return in.fail("has an empty string");
  }
  if (!single) in.leave();
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

bool message(In& in, ChatMessage& message) {
  static constexpr std::array<std::string_view, 5> kRoles{"system", "developer", "user",
                                                          "assistant", "tool"};
  std::size_t keys = 0;
  std::string role;
  std::string body;
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
    } else {
      return in.fail("has a message with the key \"" + key + "\"; a message has role and content");
    }
  }
  in.leave();
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end())
    return in.fail("has a message with role \"" + role +
                   "\"; it must be system, developer, user, assistant or tool");
  if (!has_content) return in.fail("has a message without content");
  message = {.role = role == "developer" ? "system" : std::move(role), .content = std::move(body)};
  return true;
}

bool messages(In& in, Request& r) {
  std::size_t size = 0;
  if (!in.array(size, kMaxChatMessages)) return false;
  if (size == 0) return in.fail("is an empty list");
  r.prompt_kind = PromptKind::kMessages;
  std::size_t n_bytes = 0;
  for (std::size_t i = 0; i < size && n_bytes <= kMaxStringBytes; ++i) {
    if (!message(in, r.messages.emplace_back())) return false;
    n_bytes += r.messages.back().content.size();
  }
  // Quoting makes six bytes of one: what travels on is the JSON text.
  if (n_bytes > kMaxStringBytes || messages_json(r.messages).size() > kMaxStringBytes)
    return in.fail("is more than " + std::to_string(kMaxStringBytes) + " bytes as JSON, the limit");
  in.leave();
  return true;
}

// Keys may be integers or, as in JSON, their digits.
bool logit_bias(In& in, Request& r) {
  std::size_t size = 0;
  if (!in.map(size, kMaxLogitBias)) return false;
  std::set<TokenId> seen;
  for (std::size_t i = 0; i < size; ++i) {
    std::int64_t id = -1;
    if (in.peek() == MsgpackKind::kStr) {
      std::string_view digits;
      if (!in.str(digits)) return false;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
      if (error != std::errc{} || end != digits.data() + digits.size() || id < 0 ||
          id > std::numeric_limits<TokenId>::max())
        return in.fail("has a key that is not a token id");
    } else if (!in.sint(id, 0, std::numeric_limits<TokenId>::max())) {
      return false;
    }
    float bias = 0;
    if (!fraction(in, bias)) return false;
    if (!seen.insert(static_cast<TokenId>(id)).second)
      return in.fail("has token id " + std::to_string(id) + " twice");
    r.params.logit_bias.emplace_back(static_cast<TokenId>(id), bias);
  }
  in.leave();
  return true;
}

bool logprobs(In& in, Request& r) {
  if (in.peek() == MsgpackKind::kBool) {
    bool wanted = false;
    if (!in.boolean(wanted)) return false;
    r.params.n_logprobs = wanted ? 0 : -1;
    return true;
  }
  return unsigned_number(in, r.params.n_logprobs, 0, 20);
}

bool seed(In& in, Request& r) {
  MsgpackInteger value;
  if (!in.integer(value)) return false;
  if (value.negative && value.magnitude > (std::uint64_t{1} << 63))
    return in.fail("does not fit 64 bits");
  r.params.seed =
      value.negative ? ~value.magnitude + 1 : value.magnitude;  // a signed seed as its 64 bits
  r.has_seed = true;
  return true;
}

bool proposer(In& in, Request& r) {
  std::string name;
  if (!text(in, name, kMaxNameBytes)) return false;
  for (std::uint64_t i = 0; i < enum_count(ProposerKind{}); ++i) {
    if (name_of(static_cast<ProposerKind>(i)) != name) continue;
    r.proposer = static_cast<ProposerKind>(i);
    return true;
  }
  return in.fail("is \"" + name + "\"; it must be default, draft, ngram, prediction or none");
}

bool operation(In& in, Request& r) {
  std::string name;
  if (!text(in, name, kMaxNameBytes)) return false;
  static constexpr std::array<std::string_view, 6> kOps{"generate", "cancel",   "status",
                                                        "metrics",  "tokenize", "detokenize"};
  const auto found = std::find(kOps.begin(), kOps.end(), name);
  if (found == kOps.end())
    return in.fail("is \"" + name +
                   "\"; it must be generate, cancel, status, metrics, tokenize or "
                   "detokenize");
  r.op = static_cast<ClientOp>(found - kOps.begin());
  return true;
}

bool request_id(In& in, Request& r) {
  std::string_view bytes;
  if (in.peek() == MsgpackKind::kBin) {
    if (!in.bin(bytes)) return false;
    if (bytes.size() != 16)
      return in.fail("has " + std::to_string(bytes.size()) + " bytes; it must have 16");
    RequestId id;
    for (int i = 0; i < 16; ++i) {
      auto& half = i < 8 ? id.high : id.low;
      half = half << 8 | static_cast<std::uint8_t>(bytes[static_cast<std::size_t>(i)]);
    }
    r.request_id = id;
    return true;
  }
  if (!in.str(bytes)) return false;
  r.request_id = request_id_from_hex(bytes);
  return r.request_id.has_value() || in.fail("must be 16 bytes or 32 hexadecimal digits");
}

bool one_choice(In& in, Request&) {
  MsgpackInteger n;
  if (!in.integer(n)) return false;
  return (!n.negative && n.magnitude == kMaxChoices) ||
         in.fail("is " + std::string(n.negative ? "-" : "") + std::to_string(n.magnitude) +
                 "; this release gives 1 answer per request");
}

bool acceptance(In& in, Request&) {
  std::string name;
  if (!text(in, name, kMaxNameBytes)) return false;
  return name == "coupled" || in.fail("is \"" + name + "\"; this release knows coupled");
}

const std::vector<RequestKey>& table() {
  static const std::vector<RequestKey> keys{
      {"op", "string", "generate",
       "generate, cancel (needs request_id), status, metrics, tokenize (prompt or messages) or "
       "detokenize (token_ids)",
       operation},
      {"prompt", "string", "",
       "text to continue; one of prompt, messages and token_ids is required",
       [](In& in, Request& r) {
         return text(in, r.prompt, kMaxStringBytes) && (r.prompt_kind = PromptKind::kText, true);
       }},
      {"messages", "list of maps", "",
       "a conversation: {role, content} each; the model's chat template is applied", messages},
      {"token_ids", "list of integers", "", "the prompt as token ids",
       [](In& in, Request& r) {
         r.prompt_kind = PromptKind::kTokens;
         return token_list(in, r.token_ids, kMaxTokenIds) &&
                (!r.token_ids.empty() || in.fail("is an empty list"));
       }},
      {"model", "string", "the one served", "which model; an unknown name is refused",
       [](In& in, Request& r) { return text(in, r.model, kMaxNameBytes); }},
      {"max_tokens", "integer", "128", "longest answer in tokens, from 1",
       [](In& in, Request& r) {
         return r.has_max_tokens = true, unsigned_number(in, r.params.max_tokens, 1);
       }},
      {"min_tokens", "integer", "0",
       "end and stop tokens are masked before so many; a stop string they complete is text",
       [](In& in, Request& r) { return unsigned_number(in, r.params.min_tokens); }},
      {"temperature", "number", "1, or as the model says", "0 … 100; 0 = greedy",
       [](In& in, Request& r) {
         return r.has_temperature = true, fraction(in, r.params.temperature);
       }},
      {"top_k", "integer", "0, or as the model says", "only the k likeliest tokens; 0 = off",
       [](In& in, Request& r) {
         return r.has_top_k = true, unsigned_number(in, r.params.top_k, 0, 0x7fffffff);
       }},
      {"top_p", "number", "1, or as the model says",
       "the likeliest tokens that together have this probability; above 0, at most 1",
       [](In& in, Request& r) { return r.has_top_p = true, fraction(in, r.params.top_p); }},
      {"min_p", "number", "0, or as the model says",
       "only tokens at least this likely, relative to the likeliest; from 0, below 1",
       [](In& in, Request& r) { return r.has_min_p = true, fraction(in, r.params.min_p); }},
      {"repetition_penalty", "number", "1, or as the model says",
       "above 0, at most 100; over prompt and answer",
       [](In& in, Request& r) {
         return r.has_repetition_penalty = true, fraction(in, r.params.repetition_penalty);
       }},
      {"presence_penalty", "number", "0", "-2 … 2; for tokens the answer has",
       [](In& in, Request& r) { return fraction(in, r.params.presence_penalty); }},
      {"frequency_penalty", "number", "0", "-2 … 2; for each time the answer has them",
       [](In& in, Request& r) { return fraction(in, r.params.frequency_penalty); }},
      {"logit_bias", "map", "{}", "token id -> -100 … 100, added to its logit; at most 300",
       logit_bias},
      {"bad_words", "string or list", "[]", "texts that must not appear; at most 64",
       [](In& in, Request& r) {
         return strings(in, r.bad_words, kMaxBadWords, kMaxStopStringBytes);
       }},
      {"stop", "string or list", "[]", "texts that end the answer; at most 16 of 256 bytes",
       [](In& in, Request& r) {
         return strings(in, r.stop, kMaxStopStrings, kMaxStopStringBytes);
       }},
      {"stop_token_ids", "list of integers", "[]", "token ids that end the answer; at most 64",
       [](In& in, Request& r) { return token_list(in, r.params.stop_token_ids, kMaxStopTokens); }},
      {"include_stop_str_in_output", "boolean", "false", "the stop text belongs to the answer",
       [](In& in, Request& r) { return in.boolean(r.include_stop_str_in_output); }},
      {"ignore_eos", "boolean", "false", "the model's end tokens do not end the answer",
       [](In& in, Request& r) { return in.boolean(r.params.ignore_eos); }},
      {"seed", "integer", "from the request id",
       "same seed and request, same answer, with any draft", seed},
      {"n", "integer", "1", "number of answers: 1 in this release", one_choice},
      {"logprobs", "integer or boolean", "none",
       "0 … 20: log-probability of each token, and of so many likeliest; true = 0", logprobs},
      {"stream", "boolean", "false", "answer in pieces; needs a DEALER socket",
       [](In& in, Request& r) { return in.boolean(r.stream); }},
      {"num_draft_tokens", "integer", "as configured",
       "0 … 32 guesses per round; 0 = plain decoding",
       [](In& in, Request& r) {
         return unsigned_number(in, r.num_draft_tokens, 0, kMaxDraftTokens);
       }},
      {"proposer", "string", "default", "who guesses: default, draft, ngram, prediction or none",
       proposer},
      {"adaptive", "boolean", "true", "guess less when it does not pay",
       [](In& in, Request& r) { return in.boolean(r.adaptive); }},
      {"acceptance", "string", "coupled", "how guesses are judged: coupled in this release",
       acceptance},
      {"prediction", "string", "", "text the answer is expected to resemble, used as guesses",
       [](In& in, Request& r) { return text(in, r.prediction, kMaxStringBytes); }},
      {"timeout_ms", "integer", "as configured", "the request ends after this, 1 … 3600000",
       [](In& in, Request& r) { return unsigned_number(in, r.timeout_ms, 1, kMaxTimeoutMs); }},
      {"request_id", "16 bytes or 32 hexadecimal digits", "chosen by the router",
       "asking again under the same id is harmless", request_id},
      {"skip_special_tokens", "boolean", "true", "special tokens give no text",
       [](In& in, Request& r) { return in.boolean(r.skip_special_tokens); }},
      {"add_special_tokens", "boolean", "true",
       "prompt only: begin as the tokenizer does by default",
       [](In& in, Request& r) { return in.boolean(r.add_special_tokens); }},
      {"add_generation_prompt", "boolean", "true", "messages only: open the assistant's turn",
       [](In& in, Request& r) { return in.boolean(r.add_generation_prompt); }},
      {"tenant", "string", "",
       "whose request it is: tenants take turns by limits.tenant_weights and share no prefix cache",
       [](In& in, Request& r) { return text(in, r.tenant, kMaxNameBytes); }},
      {"priority", "integer", "0",
       "0 … 255; higher goes first among the waiting requests of its tenant, or of its connection",
       [](In& in, Request& r) { return unsigned_number(in, r.priority); }},
  };
  return keys;
}

constexpr std::array<std::string_view, 8> kRefused{
    "echo",    "tools",  "tool_choice",     "functions",
    "best_of", "suffix", "response_format", "guided_json"};

Error bad(ErrorCode code, std::string sentence, std::string param = {}) {
  return {code, std::move(sentence), std::move(param)};
}

Error unknown_key(const std::string& key) {
  if (std::find(kRefused.begin(), kRefused.end(), key) != kRefused.end())
    return bad(ErrorCode::kUnsupportedParameter, key + " is not supported by this release", key);
  if (key.empty())
    return bad(ErrorCode::kInvalidRequest, "unknown key \"\": a key of the request is empty");
  std::vector<std::string> names;
  for (const auto& known : table()) names.emplace_back(known.name);
  const auto near = nearest(key, names);
  return bad(ErrorCode::kInvalidRequest,
             "unknown key \"" + key + "\"" + (near ? "; did you mean \"" + *near + "\"?" : ""),
             key);
}

// The three ways to give a prompt, seen in this request.
std::size_t prompts_in(const std::set<std::string>& seen) {
  return seen.count("prompt") + seen.count("messages") + seen.count("token_ids");
}

Result<ClientRequest> checked(ClientRequest r, const std::set<std::string>& seen) {
  if (r.op == ClientOp::kCancel && !r.request_id)
    return bad(ErrorCode::kInvalidRequest, "cancel needs request_id", "request_id");
  if (r.op == ClientOp::kStatus || r.op == ClientOp::kMetrics || r.op == ClientOp::kCancel)
    return r;
  if (r.op == ClientOp::kDetokenize && (prompts_in(seen) != 1 || !seen.contains("token_ids")))
    return bad(ErrorCode::kInvalidRequest, "detokenize needs token_ids and nothing else",
               "token_ids");
  if (r.op == ClientOp::kDetokenize && r.token_ids.size() > kMaxDetokenizeIds)
    return bad(ErrorCode::kInvalidValue,
               "token_ids has " + std::to_string(r.token_ids.size()) +
                   " tokens; detokenize takes at most " + std::to_string(kMaxDetokenizeIds),
               "token_ids");
  if (r.op == ClientOp::kTokenize && seen.contains("token_ids"))
    return bad(ErrorCode::kInvalidRequest, "tokenize needs prompt or messages, not token_ids",
               "token_ids");
  if (prompts_in(seen) != 1)
    return bad(ErrorCode::kInvalidRequest,
               prompts_in(seen) == 0 ? "one of prompt, messages and token_ids is required"
                                     : "only one of prompt, messages and token_ids may be given",
               "prompt");
  if (!r.has_max_tokens) r.params.max_tokens = std::max(kDefaultMaxTokens, r.params.min_tokens);
  if (auto valid = validate(r.params, 0); !valid.ok()) return valid.error();
  return r;
}

}  // namespace

const std::vector<RequestKey>& request_keys() { return table(); }

// The id of a request that cannot be read otherwise, wherever in the map it stands: the client
// sorts answers by it.
static std::optional<RequestId> find_request_id(std::string_view bytes) {
  MsgpackReader in(bytes);
  const auto reader = std::find_if(table().begin(), table().end(),
                                   [](const RequestKey& k) { return k.name == "request_id"; });
  std::size_t size = 0;
  if (in.peek() != MsgpackKind::kMap || !in.map(size, bytes.size())) return std::nullopt;
  for (std::size_t i = 0; i < size; ++i) {
    if (in.peek() != MsgpackKind::kStr) {  // no key of ours
      if (!in.skip() || !in.skip()) return std::nullopt;
      continue;
    }
    std::string_view key;
    if (!in.str(key)) return std::nullopt;
    if (key != reader->name) {
      if (!in.skip()) return std::nullopt;
      continue;
    }
    ClientRequest found;
    return reader->read(in, found) ? found.request_id : std::nullopt;
  }
  return std::nullopt;
}

ClientRequestOutcome read_client_request(std::string_view bytes) {
  MsgpackReader in(bytes);
  ClientRequest request;
  std::set<std::string> seen;
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
    if (!seen.insert(key).second)
      return failed(bad(ErrorCode::kInvalidRequest, key + " is given twice", key));
    const auto known = std::find_if(table().begin(), table().end(),
                                    [&](const RequestKey& k) { return k.name == key; });
    if (known == table().end()) return failed(unknown_key(key));
    if (in.peek() == MsgpackKind::kNil) {  // nil = not given
      in.nil();
      seen.erase(key);
      continue;
    }
    if (!known->read(in, request)) {
      const bool truncated = in.peek() == MsgpackKind::kEnd &&
                             in.error().find("the end of the data") != std::string::npos;
      const bool unsupported = key == "n" || key == "acceptance";
      return failed(bad(truncated     ? ErrorCode::kMalformed
                        : unsupported ? ErrorCode::kUnsupportedParameter
                                      : ErrorCode::kInvalidValue,
                        key + " " + in.error(), key));
    }
  }
  if (!in.at_end())
    return failed(
        bad(ErrorCode::kMalformed, std::to_string(in.remaining()) + " bytes follow the request"));
  const auto id = request.request_id;
  return {checked(std::move(request), seen), id};
}

}  // namespace foretoken::wire
