// What clients send and receive: a request is one map with string keys, an answer is one map.
// Structs with one listing each (key, member, sentence); common/wire/client_codec.h reads and
// writes them, docs/reference/client.md is generated from them.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/ids.h"
#include "common/base/limit.h"
#include "common/base/proposer_set.h"
#include "common/base/result.h"
#include "common/base/sampling_params.h"
#include "common/messages/limits.h"
#include "common/messages/passes.h"
#include "common/messages/types.h"

namespace foretoken::wire {

enum class ClientOp : std::uint8_t {
  kGenerate,
  kCancel,
  kStatus,
  kMetrics,
  kTokenize,
  kDetokenize,
  kPasses
};
inline constexpr std::array<std::string_view, 7> kClientOpNames{
    "generate", "cancel", "status", "metrics", "tokenize", "detokenize", "passes"};
constexpr const auto& names_of(ClientOp) { return kClientOpNames; }

// A list and an object as JSON text: a template shows a model the keys in the order that they have.
struct JsonList {
  std::string text;
  bool operator==(const JsonList&) const = default;
};
struct JsonObject {
  std::string text;
  bool operator==(const JsonObject&) const = default;
};

// A message of a conversation, for the model's chat template.
struct ChatMessage {
  std::string role;  // system, user, assistant or tool
  std::string content;
  JsonObject extra = {};  // what else the template sees of it; empty = nothing
  bool operator==(const ChatMessage&) const = default;
};

// What a key of a request is about: the order of the flags in help.
enum class Topic : std::uint8_t { kRequest, kSampling, kSpeculation };

// The keys that a request gave, where "given" and "equal to the default" differ. A word that is no
// key of a request is our own mistake and aborts.
class GivenKeys {
 public:
  GivenKeys() = default;
  GivenKeys(std::initializer_list<std::string_view> keys) {
    for (const auto key : keys) insert(key);
  }
  bool contains(std::string_view key) const;
  void insert(std::string_view key);
  bool operator==(const GivenKeys&) const = default;

 private:
  std::set<std::string_view> keys_;  // the listing's own literals
};

// A request, read and checked; what needs the model (vocabulary, context length) is still to be
// checked.
struct ClientRequest {
  ClientOp op = ClientOp::kGenerate;
  std::string prompt;
  std::vector<ChatMessage> messages;
  std::vector<TokenId> token_ids;
  PromptKind prompt_kind = PromptKind::kText;  // which of the three is meant
  std::string model;
  SamplingParams params;  // without bad_words, which are text until encoded
  std::vector<std::string> bad_words;
  std::vector<std::string> stop;
  bool include_stop_str_in_output = false;
  std::uint32_t n = 1;
  bool stream = false;
  bool fit_max_tokens = false;
  std::int32_t num_draft_tokens = -1;
  ProposerSet proposer = ProposerKind::kDefault;
  bool adaptive = true;
  AcceptanceRule acceptance = AcceptanceRule::kCoupled;
  std::string prediction;
  std::uint32_t timeout_ms = 0;
  std::optional<RequestId> request_id;
  bool skip_special_tokens = true;
  bool add_special_tokens = true;
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  JsonList tools;
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string tool_name;
  JsonObject chat_template_kwargs;
  bool token_ends = false;
  bool return_prompt_token_ids = false;
  std::string tenant;
  std::uint8_t priority = 0;
  GivenKeys given;

  // v(key, member, Limit, topic, sentence). A parameter of sampling is a line of SamplingParams.
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    using enum Topic;
    v("op", m.op, any_value(), kRequest,
      "what to do; cancel needs request_id, tokenize prompt or messages, detokenize token_ids");
    v("prompt", m.prompt, bytes(kMaxStringBytes), kRequest,
      "text to continue; one of prompt, messages and token_ids is required");
    v("messages", m.messages, entries(kMaxChatMessages), kRequest,
      "a conversation: {role, content} each, and what else the model's chat template shall see, "
      "as the JSON text of an object under extra; the template is applied");
    v("token_ids", m.token_ids, entries(kMaxTokenIds), kRequest, "the prompt as token ids");
    v("model", m.model, bytes(kMaxNameBytes).unless_given("the one served"), kRequest,
      "which model; an unknown name is refused");
    SamplingParams::fields(m.params, [&](int, const char* key, auto& member, const auto& limit,
                                         const char* sentence, int = 0) {
      if constexpr (!kIsInternal<decltype(limit)>) v(key, member, limit, kSampling, sentence);
    });
    v("bad_words", m.bad_words, entries(kMaxBadWords, kMaxStopStringBytes), kSampling,
      "texts that must not appear");
    v("stop", m.stop, entries(kMaxStopStrings, kMaxStopStringBytes), kSampling,
      "texts that end the answer");
    v("include_stop_str_in_output", m.include_stop_str_in_output, any_value(), kSampling,
      "the stop text belongs to the answer, and so does the text of the token that ended it");
    v("n", m.n, from_to(1, kMaxAnswersPerRequest), kSampling,
      "number of answers to one request; for several, send requests with one seed and choice 0, 1, "
      "2 ...");
    v("stream", m.stream, any_value(), kRequest, "answer in pieces; needs a DEALER socket");
    v("fit_max_tokens", m.fit_max_tokens, any_value(), kRequest,
      "max_tokens beyond what the context has room for is cut to that, not refused");
    v("num_draft_tokens", m.num_draft_tokens,
      from_to(0, kMaxDraftTokens).unless_given(-1, "as configured"), kSpeculation,
      "most guessed tokens per round; 0 = plain decoding");
    v("proposer", m.proposer, any_value(), kSpeculation,
      "sources of proposals, one or a list: draft, ngram (prompt lookup), prediction, memory (of "
      "texts); default = as configured, and prediction where one is given; "
      "none = plain decoding");
    v("adaptive", m.adaptive, any_value(), kSpeculation, "guess less when it does not pay");
    v("acceptance", m.acceptance, any_value(), kSpeculation,
      "how guesses are judged: coupled in this release");
    v("prediction", m.prediction, bytes(kMaxStringBytes), kSpeculation,
      "text the answer is expected to resemble, used as guesses");
    v("timeout_ms", m.timeout_ms, from_to(1, kMaxTimeoutMs).unless_given(0, "as configured"),
      kRequest,
      "after this the request ends with what there is (finish_reason deadline), or with "
      "deadline_exceeded without a token; a pass of the target under way is finished first");
    v("request_id", m.request_id, any_value().unless_given("chosen by the router"), kRequest,
      "asking again under the same id is harmless");
    v("skip_special_tokens", m.skip_special_tokens, any_value(), kRequest,
      "special tokens give no text");
    v("add_special_tokens", m.add_special_tokens, any_value(), kRequest,
      "prompt only: begin as the tokenizer does by default");
    v("add_generation_prompt", m.add_generation_prompt, any_value(), kRequest,
      "messages only: open the assistant's turn");
    v("continue_final_message", m.continue_final_message, any_value(), kRequest,
      "messages only: the answer continues the last one");
    v("tools", m.tools, bytes(kMaxStringBytes), kRequest,
      "messages only: JSON text of a list of tools, for the model's chat template");
    v("tool_choice", m.tool_choice, any_value(), kRequest,
      "with tools: whether the answer may, may not or must begin with a call");
    v("tool_name", m.tool_name, bytes(kMaxNameBytes), kRequest,
      "with tool_choice required: the tool that is called; empty = any");
    v("chat_template_kwargs", m.chat_template_kwargs, bytes(kMaxStringBytes), kRequest,
      "messages only: JSON text of an object of variables for the model's chat template");
    v("token_ends", m.token_ends, any_value(), kRequest,
      "answers say where the text of each token ends, and how calls of tools and thoughts are "
      "marked; those markers leave their text");
    v("return_prompt_token_ids", m.return_prompt_token_ids, any_value(), kRequest,
      "the answer has the token ids of the prompt");
    v("tenant", m.tenant, bytes(kMaxNameBytes), kRequest,
      "whose request it is: tenants take turns by limits.tenant_weights and share no prefix cache");
    v("priority", m.priority, from_to(0, 255), kRequest,
      "higher goes first among the waiting requests of its tenant, or of its connection");
  }
};

// Every key of a request, in the order of the listing.
const std::vector<std::string>& request_keys();

struct Usage {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t completion_tokens = 0;
  std::uint32_t total_tokens = 0;
  std::uint32_t cached_tokens = 0;
  bool operator==(const Usage&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("prompt_tokens", m.prompt_tokens, "tokens of the prompt");
    v("completion_tokens", m.completion_tokens, "tokens delivered");
    v("total_tokens", m.total_tokens, "both");
    v("cached_tokens", m.cached_tokens, "prompt tokens found in the prefix cache");
  }
};

struct SpeculativeDecoding {
  double mean_acceptance_length = 0;
  double draft_acceptance_rate = 0;
  std::vector<std::uint32_t> acceptance_histogram;
  std::map<std::string, std::vector<std::uint32_t>> acceptance_histogram_by_draft_length;
  std::uint32_t num_spec_steps = 0;
  std::uint32_t num_accepted_draft_tokens = 0;
  std::uint32_t num_draft_tokens = 0;
  std::uint32_t num_spec_tokens = 0;
  std::uint32_t num_accepted_prediction_tokens = 0;
  std::uint32_t num_prediction_tokens = 0;
  std::string proposer = "none";
  std::string fallback_reason;
  bool operator==(const SpeculativeDecoding&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("mean_acceptance_length", m.mean_acceptance_length,
      "1 + accepted / rounds; tokens per round");
    v("draft_acceptance_rate", m.draft_acceptance_rate,
      "accepted / drafted; 0 if nothing was drafted");
    v("acceptance_histogram", m.acceptance_histogram,
      "rounds that accepted 0, 1, 2 ... num_spec_tokens tokens; zeros without rounds");
    v("acceptance_histogram_by_draft_length", m.acceptance_histogram_by_draft_length,
      "a map: by the guesses that rounds verified (1, 2 ...), those rounds that accepted 0, 1, 2 "
      "... of them; together acceptance_histogram");
    v("num_spec_steps", m.num_spec_steps,
      "rounds that verified at least one guess: the sum of acceptance_histogram");
    v("num_accepted_draft_tokens", m.num_accepted_draft_tokens, "guesses that were delivered");
    v("num_draft_tokens", m.num_draft_tokens, "guesses verified");
    v("num_spec_tokens", m.num_spec_tokens, "most guesses per round this request allowed");
    v("num_accepted_prediction_tokens", m.num_accepted_prediction_tokens,
      "of the guesses delivered, those that the request's prediction was surest of");
    v("num_prediction_tokens", m.num_prediction_tokens, "likewise, of the guesses verified");
    v("proposer", m.proposer,
      "who guessed: draft, ngram, prediction, memory or none; several joined by +");
    v("fallback_reason", m.fallback_reason,
      "why speculation was not or no longer used; empty = it was");
  }
};

struct ReplyMetrics {
  double time_to_first_token_ms = 0;
  double generation_time_ms = 0;
  double queue_time_ms = 0;
  double tokens_per_second = 0;
  SpeculativeDecoding speculative_decoding;
  double tokenize_time_ms = 0;
  bool operator==(const ReplyMetrics&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("time_to_first_token_ms", m.time_to_first_token_ms, "arrival at the router to first token");
    v("generation_time_ms", m.generation_time_ms,
      "first token to last, at the target; at the router where the answer moved to another");
    v("queue_time_ms", m.queue_time_ms,
      "waiting for a place at a target, in the router and then in the target");
    v("tokens_per_second", m.tokens_per_second,
      "completion tokens after the first / generation time");
    v("speculative_decoding", m.speculative_decoding, "what guessing ahead did");
    v("tokenize_time_ms", m.tokenize_time_ms,
      "arrival at the router to the prompt's tokens there, waiting for a tokenizer included");
  }
};

struct LogprobEntry {
  TokenId token_id = 0;
  std::optional<double> logprob;
  std::vector<TokenId> top_ids;
  std::vector<double> top_logprobs;
  std::string token;
  std::vector<std::uint8_t> bytes;
  std::vector<std::string> top_tokens;
  std::vector<std::vector<std::uint8_t>> top_bytes;
  bool operator==(const LogprobEntry&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("token_id", m.token_id, "the token, of the answer or the prompt");
    v("logprob", m.logprob,
      "its natural log-probability, from the target's raw logits; nil for a prompt's first token");
    v("top_ids", m.top_ids, "the likeliest ids, best first");
    v("top_logprobs", m.top_logprobs, "theirs, same order");
    v("token", m.token, "the delivered token's own text; bytes that are no UTF-8 become U+FFFD");
    v("bytes", m.bytes,
      "its bytes as they are, part of a character too (msgpack bin); empty from a tokenizer of "
      "protocol 1.1");
    v("top_tokens", m.top_tokens, "texts of the likeliest, same order");
    v("top_bytes", m.top_bytes, "bytes of the likeliest, same order");
  }
};

// Of an answer that does not say where it begins: it is of a router that did not know of positions.
inline constexpr std::uint32_t kNoPosition = 0xffffffff;

// How an answer is to be read, where token_ends was asked for.
struct AnswerForm {
  std::string tool_format;
  std::vector<std::string> marker_tokens;
  bool reasons = false;
  std::string begun;
  bool operator==(const AnswerForm&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("tool_format", m.tool_format,
      "how the model writes calls of tools: none, hermes, llama or mistral");
    v("marker_tokens", m.marker_tokens,
      "the texts that mark calls and thoughts, of those that are one token: spelled in several "
      "they are text");
    v("reasons", m.reasons, "the model writes what it thinks, between <think> and </think>");
    v("begun", m.begun, "what the end of the prompt has of the answer, before its first token");
  }
};

// A matched stop string, a stop token's id, or nothing (end token, length).
using StopReason = std::variant<std::monostate, TokenId, std::string>;

// The answer; with `stream`, the last map, whose text and token_ids are what no piece has carried
// yet.
struct ClientReply {
  std::string id;
  std::string model;
  bool done = true;
  std::uint32_t index = 0;
  std::string text;
  std::vector<TokenId> token_ids;
  std::string finish_reason;
  StopReason stop_reason;
  Usage usage;
  ReplyMetrics metrics;
  std::vector<LogprobEntry> logprobs;
  std::string system_fingerprint;
  std::uint32_t position = kNoPosition;
  std::uint32_t offset = kNoPosition;
  std::vector<LogprobEntry> prompt_logprobs;
  std::vector<std::uint32_t> token_ends;
  std::optional<AnswerForm> form;
  std::vector<TokenId> prompt_token_ids;
  bool operator==(const ClientReply&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("id", m.id, "the request id, 32 hexadecimal digits");
    v("model", m.model, "the model that answered");
    v("done", m.done, "true: nothing follows");
    v("index", m.index, "which of several answers: the choice of the request");
    v("text", m.text, "the answer; streamed: its last part");
    v("token_ids", m.token_ids, "its tokens; streamed: those of the last part");
    v("finish_reason", m.finish_reason, "stop, length, cancelled or deadline");
    v("stop_reason", m.stop_reason, "the stop string or stop token id that ended it, else nil");
    v("usage", m.usage, "token counts");
    v("metrics", m.metrics, "times and speculation");
    v("logprobs", m.logprobs, "one per token if asked for, else empty");
    v("system_fingerprint", m.system_fingerprint, "equal = same model, numerics and build");
    v("position", m.position, "tokens of the answer before token_ids; 0 unless streamed");
    v("offset", m.offset, "bytes of the answer before text, as UTF-8; 0 unless streamed");
    v("prompt_logprobs", m.prompt_logprobs,
      "one per token of the prompt if asked for, else empty; streamed: if no piece came before");
    v("token_ends", m.token_ends,
      "one per token of token_ids if asked for, else empty: bytes of the answer up to its end, a "
      "stop string's too");
    v("form", m.form, "if token_ends was asked for, else nil; streamed: if no piece came before");
    v("prompt_token_ids", m.prompt_token_ids,
      "the prompt's tokens if asked for, else empty; streamed: if no piece came before");
  }
};

struct ClientPiece {
  std::string id;
  bool done = false;
  std::uint32_t index = 0;
  std::string text;
  std::vector<TokenId> token_ids;
  std::uint32_t accepted = 0;
  std::vector<LogprobEntry> logprobs;
  std::uint32_t position = kNoPosition;
  std::uint32_t offset = kNoPosition;
  std::vector<LogprobEntry> prompt_logprobs;
  std::vector<std::uint32_t> token_ends;
  std::optional<AnswerForm> form;
  std::uint32_t prompt_tokens = 0;
  std::vector<TokenId> prompt_token_ids;
  std::string model;
  std::string system_fingerprint;
  bool operator==(const ClientPiece&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("id", m.id, "the request id");
    v("done", m.done, "false: more follows");
    v("index", m.index, "which of several answers: the choice of the request");
    v("text", m.text, "new text, whole characters");
    v("token_ids", m.token_ids, "tokens decoded into it, or held back in it");
    v("accepted", m.accepted, "how many of them had been guessed");
    v("logprobs", m.logprobs, "one per token if asked for, else empty");
    v("position", m.position, "tokens of the answer before these");
    v("offset", m.offset, "bytes of the answer before this text, as UTF-8");
    v("prompt_logprobs", m.prompt_logprobs,
      "in the first piece: one per token of the prompt if asked for, else empty");
    v("token_ends", m.token_ends,
      "one per token of token_ids if asked for, else empty: bytes of the answer up to its end, "
      "a stop string's too");
    v("form", m.form, "in the first piece, if token_ends was asked for, else nil");
    v("prompt_tokens", m.prompt_tokens, "tokens of the prompt");
    v("prompt_token_ids", m.prompt_token_ids,
      "in the first piece: the prompt's tokens if asked for, else empty");
    v("model", m.model, "in the first piece: the model that answers, else empty");
    v("system_fingerprint", m.system_fingerprint, "in the first piece, else empty");
  }
};

// What stands under "error".
struct ErrorDetail {
  std::string code;
  std::string message;
  std::string param;
  std::uint32_t retry_after_ms = 0;
  bool operator==(const ErrorDetail&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("code", m.code, "one of a closed list, see below");
    v("message", m.message, "what, which one and the limit");
    v("param", m.param, "the key to blame, or empty");
    v("retry_after_ms", m.retry_after_ms, "when it is worth asking again; 0 = not");
  }
};

struct ClientError {
  std::string id;
  bool done = true;
  ErrorDetail error;
  bool operator==(const ClientError&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("id", m.id, "the request id, empty if it could not be read");
    v("done", m.done, "true: nothing follows");
    v("error", m.error, "why");
  }
};

// One service, as `foretoken ps` shows it.
struct ServiceStatus {
  std::string role;
  std::string name;
  std::string state;
  std::string endpoint;
  std::string model;
  std::string build;
  std::uint64_t pid = 0;
  std::uint64_t uptime_s = 0;
  std::uint64_t rss_bytes = 0;
  std::uint32_t active = 0;
  std::uint32_t queued = 0;
  std::uint32_t kv_blocks_total = 0;
  std::uint32_t kv_blocks_free = 0;
  std::uint64_t tokens_total = 0;
  std::uint64_t drafted_total = 0;
  std::uint64_t accepted_total = 0;
  std::string note;
  std::string links;
  std::string device;
  std::string dtype;
  std::string proposer;
  std::uint32_t draft_len = 0;
  std::string tool_format;
  std::uint32_t max_model_len = 0;
  std::string fingerprint;
  bool operator==(const ServiceStatus&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("role", m.role, "router, tokenizer, draft, target or edge");
    v("name", m.name, "such as draft-0");
    v("state", m.state, "ready, draining, refused or gone");
    v("endpoint", m.endpoint, "where it takes connections, if it does");
    v("model", m.model, "the model it runs, if any");
    v("build", m.build, "version, commit, instruction set");
    v("pid", m.pid, "process id on its host");
    v("uptime_s", m.uptime_s, "seconds since it started");
    v("rss_bytes", m.rss_bytes, "resident memory");
    v("active", m.active, "sequences or streams being worked on");
    v("queued", m.queued, "requests waiting");
    v("kv_blocks_total", m.kv_blocks_total, "KV blocks");
    v("kv_blocks_free", m.kv_blocks_free, "of those, free");
    v("tokens_total", m.tokens_total, "tokens committed, drafted or decoded");
    v("drafted_total", m.drafted_total, "target: guesses verified");
    v("accepted_total", m.accepted_total, "target: guesses accepted");
    v("note", m.note, "why it is not used, if it is not");
    v("links", m.links, "target: its drafts and how it reaches each: draft-0 shared_memory");
    v("device", m.device, "where its model runs, if it has one: cpu, cuda:0");
    v("dtype", m.dtype, "types of its weights in memory: bfloat16, int8");
    v("proposer", m.proposer,
      "target: the proposers of requests that name none; several joined by +");
    v("draft_len", m.draft_len,
      "target: most guessed tokens per round that a draft says, unless a request names a length");
    v("tool_format", m.tool_format,
      "tokenizer: how its model writes calls of tools: none, hermes, llama or mistral");
    v("max_model_len", m.max_model_len, "target: longest prompt and answer in tokens");
    v("fingerprint", m.fingerprint, "of its model: equal = same weights, vocabulary and template");
  }
};

// One model, as clients may ask for it.
struct ModelStatus {
  std::string name;
  std::vector<std::string> aliases;
  std::uint32_t max_model_len = 0;
  std::uint32_t n_targets = 0;
  bool ready = false;
  bool is_default = false;
  SamplingDefaults sampling;
  bool operator==(const ModelStatus&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("name", m.name, "its name");
    v("aliases", m.aliases, "other names for it");
    v("max_model_len", m.max_model_len, "longest prompt and answer in tokens");
    v("n_targets", m.n_targets, "targets that take requests for it now");
    v("ready", m.ready, "one of them has a tokenizer, too");
    v("is_default", m.is_default, "requests that name no model, or \"default\", mean this one");
    v("temperature", m.sampling.temperature, "of a request that gives none; 0 = greedy");
    v("top_k", m.sampling.top_k, "of a request that gives none; 0 = off");
    v("top_p", m.sampling.top_p, "of a request that gives none; 1 = off");
    v("min_p", m.sampling.min_p, "of a request that gives none; 0 = off");
    v("repetition_penalty", m.sampling.repetition_penalty, "of a request that gives none; 1 = off");
  }
};

struct StatusReply {
  std::string id;
  bool done = true;
  bool ready = false;
  std::vector<std::string> models;
  std::vector<ServiceStatus> services;
  std::uint32_t requests_active = 0;
  std::uint64_t requests_total = 0;
  std::vector<ModelStatus> model_states;
  bool operator==(const StatusReply&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("id", m.id, "the request id");
    v("done", m.done, "true: nothing follows");
    v("ready", m.ready, "a request could be served now");
    v("models", m.models, "names a request may ask for");
    v("services", m.services, "every service, the router first");
    v("requests_active", m.requests_active, "requests in work");
    v("requests_total", m.requests_total, "requests accepted since the router started");
    v("model_states", m.model_states, "every model that has a target, by name");
  }
};

struct MetricsText {
  std::string id;
  bool done = true;
  std::string metrics_text;
  bool operator==(const MetricsText&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("id", m.id, "the request id");
    v("done", m.done, "true: nothing follows");
    v("metrics_text", m.metrics_text, "Prometheus text of all services");
  }
};

struct TokensReply {
  std::string id;
  bool done = true;
  std::string text;
  std::vector<TokenId> token_ids;
  std::uint32_t n_tokens = 0;
  bool operator==(const TokensReply&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("id", m.id, "the request id");
    v("done", m.done, "true: nothing follows");
    v("text", m.text, "detokenize: the text; tokenize: empty");
    v("token_ids", m.token_ids,
      "tokenize: the prompt's tokens, as generate would use them; detokenize: empty");
    v("n_tokens", m.n_tokens, "how many tokens that is, or was");
  }
};

struct ServicePasses {
  std::string role;
  std::string name;
  std::string model;
  Passes passes;  // its fields stand beside the others, not in a map of their own
  bool operator==(const ServicePasses&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("role", m.role, "draft or target");
    v("name", m.name, "such as draft-0");
    v("model", m.model, "the model it runs");
    Passes::fields(m.passes, [&](int, const char* key, auto& member, const char* sentence) {
      v(key, member, sentence);
    });
  }
};

struct PassesReply {
  std::string id;
  bool done = true;
  std::vector<ServicePasses> passes;
  bool operator==(const PassesReply&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("id", m.id, "the request id");
    v("done", m.done, "true: nothing follows");
    v("passes", m.passes, "the last passes of every target and draft, at most 2048 each");
  }
};

using ClientAnswer = std::variant<ClientPiece,
                                  ClientReply,
                                  ClientError,
                                  StatusReply,
                                  MetricsText,
                                  TokensReply,
                                  PassesReply>;

}  // namespace foretoken::wire
