// Messages on the path of a request: text to tokens, a sequence at a target, tokens back to text.
// The request id stands in the header; one request is one sequence. Part of messages.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error_code.h"
#include "common/base/ids.h"
#include "common/base/sampling_params.h"
#include "common/base/token_logprobs.h"
#include "common/messages/types.h"

namespace foretoken::wire {

struct Encode {
  static constexpr MessageType kType = MessageType::kEncode;
  static constexpr std::string_view kName = "Encode";
  static constexpr std::string_view kDuty =
      "router -> tokenizer. Answer: Encoded or Failed, at once or after Opened (it waits its turn "
      "there); or Busy.";
  PromptKind kind = PromptKind::kText;
  std::string text;
  std::vector<TokenId> tokens;
  bool add_special_tokens = true;
  bool add_generation_prompt = true;
  std::vector<std::string> bad_words;
  std::string prediction;
  std::uint64_t flow = 0;
  std::string variables;
  ToolChoice tool_choice = ToolChoice::kNone;
  std::string tool_name;
  bool continue_final_message = false;
  bool without_thinking = false;
  bool operator==(const Encode&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "kind", m.kind, "what the prompt is: tokens, text or messages");
    v(2, "text", m.text, "text: the prompt; messages: a JSON array of {role, content}");
    v(3, "tokens", m.tokens, "kind tokens: the prompt, to be checked and passed through");
    v(4, "add_special_tokens", m.add_special_tokens,
      "text only: as the tokenizer does by default (BOS and the like)");
    v(5, "add_generation_prompt", m.add_generation_prompt,
      "messages only: open the assistant's turn");
    v(6, "bad_words", m.bad_words,
      "texts that must not appear, to be encoded without special tokens");
    v(7, "prediction", m.prediction,
      "expected answer, to be encoded without special tokens; may be empty");
    v(8, "flow", m.flow, "whose it is, a tenant's or a connection's number: flows take turns", 1);
    v(9, "variables", m.variables,
      "messages only: a JSON object of what the template sees beside them, tools among it", 3);
    v(10, "tool_choice", m.tool_choice,
      "with auto or required a model without a tool format is refused; required: the prompt ends "
      "with the beginning of a call",
      3);
    v(11, "tool_name", m.tool_name, "with required: the tool that is called; empty = any", 3);
    v(12, "continue_final_message", m.continue_final_message,
      "messages only: the prompt ends with the text of the last one", 3);
    v(13, "without_thinking", m.without_thinking,
      "messages only: the answer begins without a thought, as with required: its text is "
      "constrained",
      4);
  }
};

struct Encoded {
  static constexpr MessageType kType = MessageType::kEncoded;
  static constexpr std::string_view kName = "Encoded";
  static constexpr std::string_view kDuty = "Answer to Encode.";
  std::vector<TokenId> tokens;
  std::vector<std::vector<TokenId>> bad_word_tokens;
  std::vector<TokenId> prediction_tokens;
  std::string tool_format;
  std::vector<std::string> marker_tokens;
  bool reasons = false;
  std::string begun;
  bool operator==(const Encoded&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "tokens", m.tokens, "the prompt");
    v(2, "bad_word_tokens", m.bad_word_tokens,
      "sequences for every bad word; a word may give several");
    v(3, "prediction_tokens", m.prediction_tokens, "the prediction");
    v(4, "tool_format", m.tool_format,
      "messages only: how the model writes calls of tools; empty = not said", 3);
    v(5, "marker_tokens", m.marker_tokens,
      "messages only: texts that mark calls and thoughts, of those that are one token", 3);
    v(6, "reasons", m.reasons, "messages only: the model writes what it thinks", 3);
    v(7, "begun", m.begun,
      "messages only: what the end of the prompt has of the answer: the marker of a thought, or "
      "the beginning of a call",
      3);
  }
};

struct Open {
  static constexpr MessageType kType = MessageType::kOpen;
  static constexpr std::string_view kName = "Open";
  static constexpr std::string_view kDuty =
      "router -> target. Answer: Opened, Busy or Failed; then Tokens, and in the end one Done or "
      "one Failed.";
  std::vector<TokenId> tokens;
  std::uint32_t n_prompt = 0;
  SamplingParams params;
  std::vector<TokenId> end_tokens;
  ProposerKind proposer = ProposerKind::kDefault;
  std::int32_t draft_len = -1;
  bool adaptive = true;
  std::vector<TokenId> prediction;
  std::uint64_t deadline_us = 0;
  std::uint8_t priority = 0;
  std::uint64_t tenant_salt = 0;
  std::uint64_t flow = 0;
  float flow_weight = 0;
  Position prompt_logprobs_from = 0;
  std::uint32_t tokens_interval_us = 0;
  std::uint32_t proposers = 0;
  bool operator==(const Open&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "tokens", m.tokens, "the prompt, then tokens delivered before a migration");
    v(2, "n_prompt", m.n_prompt,
      "how many of tokens are the prompt; the rest count towards max_tokens");
    v(3, "params", m.params, "how tokens are chosen and when the answer ends");
    v(4, "end_tokens", m.end_tokens, "ids that end the answer; empty = the model's own");
    v(5, "proposer", m.proposer,
      "the proposer: default, draft, ngram, prediction, none or memory; of several the first");
    v(6, "draft_len", m.draft_len,
      "most guessed tokens per round; 0 = plain decoding, -1 = as configured");
    v(7, "adaptive", m.adaptive, "draft_len may be shortened when it does not pay");
    v(8, "prediction", m.prediction, "tokens of the expected answer, for the prediction proposer");
    v(9, "deadline_us", m.deadline_us, "time left when sent; 0 = none");
    v(10, "priority", m.priority,
      "higher goes first; 0 = normal; this router sends 0, for it orders by priority within a "
      "tenant itself");
    v(11, "tenant_salt", m.tenant_salt, "separates prefix caches of tenants");
    v(12, "flow", m.flow,
      "whose it is, a tenant's or a connection's number: flows share the passes", 1);
    v(13, "flow_weight", m.flow_weight, "of the flow, its share against the others'; 0 = 1", 1);
    v(14, "prompt_logprobs_from", m.prompt_logprobs_from,
      "with params.prompt_logprobs: the sender has those of the prompt before this position", 2);
    v(15, "tokens_interval_us", m.tokens_interval_us,
      "least time between two Tokens: passes that end sooner send theirs with a later one, or with "
      "Done; 0 = every pass sends its tokens",
      5);
    v(16, "proposers", m.proposers,
      "the proposers, where there are several: bit k is number k of the list; bits that a target "
      "does not know are passed over; 0 = proposer alone",
      6);
  }
};

struct Opened {
  static constexpr MessageType kType = MessageType::kOpened;
  static constexpr std::string_view kName = "Opened";
  static constexpr std::string_view kDuty =
      "target -> router: the request was accepted. tokenizer -> router: the prompt waits its turn. "
      "No answer.";
  std::uint32_t n_waiting = 0;
  bool operator==(const Opened&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "n_waiting", m.n_waiting, "requests before it");
  }
};

struct Busy {
  static constexpr MessageType kType = MessageType::kBusy;
  static constexpr std::string_view kName = "Busy";
  static constexpr std::string_view kDuty =
      "target or tokenizer -> router. Not accepted, nothing was kept; try another or later.";
  ErrorCode code = ErrorCode::kQueueFull;
  std::string message;
  std::uint32_t retry_after_ms = 0;
  bool operator==(const Busy&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "code", m.code, "queue_full, out_of_memory or draining");
    v(2, "message", m.message, "which limit");
    v(3, "retry_after_ms", m.retry_after_ms, "when it is worth trying again; 0 = unknown");
  }
};

struct Tokens {
  static constexpr MessageType kType = MessageType::kTokens;
  static constexpr std::string_view kName = "Tokens";
  static constexpr std::string_view kDuty =
      "target -> router, after each commit; and with params.prompt_logprobs of the prompt, before "
      "the first token of the answer. Each position once per target; a receiver drops positions it "
      "has. No answer.";
  Position position = 0;
  std::vector<TokenId> ids;
  std::vector<std::uint8_t> accepted;
  std::vector<TokenLogprobs> logprobs;
  bool operator==(const Tokens&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "position", m.position, "absolute position of the first id; the first prompt token is 0");
    v(2, "ids", m.ids, "committed tokens, or tokens of the prompt: never both");
    v(3, "accepted", m.accepted, "one byte per id: 1 = had been guessed; empty = none");
    v(4, "logprobs", m.logprobs, "one per id if asked for, else empty");
  }
};

// What one proposer did for one request.
struct ProposerStats {
  static constexpr std::string_view kName = "ProposerStats";
  ProposerKind proposer = ProposerKind::kNone;
  std::uint32_t rounds = 0;
  std::uint32_t drafted = 0;
  std::uint32_t accepted = 0;
  bool operator==(const ProposerStats&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "proposer", m.proposer, "the proposer");
    v(2, "rounds", m.rounds, "rounds that verified at least one of its tokens");
    v(3, "drafted", m.drafted, "its tokens verified");
    v(4, "accepted", m.accepted, "of those, accepted and delivered");
  }
};

// The rounds of one request that verified so many tokens.
struct RoundsOfLength {
  static constexpr std::string_view kName = "RoundsOfLength";
  std::uint32_t n_verified = 0;
  std::vector<std::uint32_t> histogram;
  bool operator==(const RoundsOfLength&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "n_verified", m.n_verified, "guessed tokens that each of them verified");
    v(2, "histogram", m.histogram, "of these rounds, those that accepted 0, 1 ... n_verified");
  }
};

struct Done {
  static constexpr MessageType kType = MessageType::kDone;
  static constexpr std::string_view kName = "Done";
  static constexpr std::string_view kDuty =
      "target -> router, last of a request that ended well. No answer.";
  FinishReason reason = FinishReason::kStop;
  TokenId stop_token = -1;
  std::uint32_t n_generated = 0;
  std::uint32_t n_cached = 0;
  std::vector<ProposerStats> proposers;
  std::vector<std::uint32_t> acceptance_histogram;
  std::uint32_t queue_us = 0;
  std::uint64_t decode_us = 0;
  std::string fallback_reason;
  std::int32_t draft_len = -1;
  std::vector<RoundsOfLength> rounds_by_length;
  Position prompt_logprobs_until = 0;
  bool operator==(const Done&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "reason", m.reason, "stop, length, cancelled or deadline");
    v(2, "stop_token", m.stop_token, "the id that ended it; -1 if none did");
    v(3, "n_generated", m.n_generated, "tokens of the answer, those before a migration included");
    v(4, "n_cached", m.n_cached, "prompt tokens found in the prefix cache");
    v(5, "proposers", m.proposers, "per proposer that was used");
    v(6, "acceptance_histogram", m.acceptance_histogram, "rounds that accepted 0, 1, 2 ... tokens");
    v(7, "queue_us", m.queue_us, "waiting before the first prefill");
    v(8, "decode_us", m.decode_us, "end of the pass of the first token to that of the last");
    v(9, "fallback_reason", m.fallback_reason,
      "why speculation was not or no longer used; empty = it was");
    v(10, "draft_len", m.draft_len,
      "most guessed tokens per round that it was allowed; -1 = the sender does not say", 2);
    v(11, "rounds_by_length", m.rounds_by_length,
      "acceptance_histogram by the guessed tokens that rounds verified", 2);
    v(12, "prompt_logprobs_until", m.prompt_logprobs_until,
      "the position of the prompt up to which log-probabilities were given; 0 = none were", 2);
  }
};

struct Close {
  static constexpr MessageType kType = MessageType::kClose;
  static constexpr std::string_view kName = "Close";
  static constexpr std::string_view kDuty =
      "router -> target. End this sequence. Answer: Done, if the sequence is known; repeated "
      "freely.";
  CloseReason reason = CloseReason::kCancelled;
  bool operator==(const Close&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "reason", m.reason,
      "stop (a stop string was found), cancelled, deadline, migrated, draining, finished");
  }
};

struct Failed {
  static constexpr MessageType kType = MessageType::kFailed;
  static constexpr std::string_view kName = "Failed";
  static constexpr std::string_view kDuty =
      "Any service -> the sender of the request, last of one that failed. No answer.";
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string param;
  std::uint32_t retry_after_ms = 0;
  bool operator==(const Failed&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "code", m.code, "from the closed list");
    v(2, "message", m.message, "what, which one and the limit");
    v(3, "param", m.param, "the request field to blame, or empty");
    v(4, "retry_after_ms", m.retry_after_ms, "when it is worth trying again; 0 = not");
  }
};

struct StreamOpen {
  static constexpr MessageType kType = MessageType::kStreamOpen;
  static constexpr std::string_view kName = "StreamOpen";
  static constexpr std::string_view kDuty =
      "router -> tokenizer. Starts decoding for this request id. No answer.";
  std::vector<std::string> stop;
  bool include_stop = false;
  bool skip_special_tokens = true;
  Position position = 0;
  std::uint32_t min_tokens = 0;
  bool token_ends = false;
  std::vector<TokenId> end_tokens;
  bool continues = false;
  bool operator==(const StreamOpen&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "stop", m.stop, "strings that end the answer");
    v(2, "include_stop", m.include_stop, "the stop string belongs to the text");
    v(3, "skip_special_tokens", m.skip_special_tokens, "special tokens give no text");
    v(4, "position", m.position, "absolute position of the first token that will come");
    v(5, "min_tokens", m.min_tokens,
      "a stop string that one of the first so many completes is text");
    v(6, "token_ends", m.token_ends,
      "TEXT says where the text of each token ends, and the markers of calls and thoughts leave "
      "their text, special or not",
      3);
    v(7, "end_tokens", m.end_tokens,
      "ids that end the answer: counted, and without text unless include_stop; a marker that "
      "token_ends keeps has its text",
      6);
    v(8, "continues", m.continues,
      "the text continues another or is constrained: a space that it begins with is part of it", 6);
  }
};

struct Decode {
  static constexpr MessageType kType = MessageType::kDecode;
  static constexpr std::string_view kName = "Decode";
  static constexpr std::string_view kDuty =
      "router -> tokenizer. Answer: Text, or Failed(not_found) without a stream.";
  Position position = 0;
  std::vector<TokenId> ids;
  bool final = false;
  std::vector<TokenId> bytes_of;
  bool operator==(const Decode&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "position", m.position, "absolute position of the first id; must follow the one before");
    v(2, "ids", m.ids, "tokens to decode");
    v(3, "final", m.final, "nothing follows: release what is held back and forget the stream");
    v(4, "bytes_of", m.bytes_of, "ids whose own bytes are wanted, for log probabilities", 2);
  }
};

struct Text {
  static constexpr MessageType kType = MessageType::kText;
  static constexpr std::string_view kName = "Text";
  static constexpr std::string_view kDuty = "Answer to Decode.";
  Position next = 0;
  std::string text;
  bool stopped = false;
  std::string stop_string;
  std::uint32_t n_tokens = 0;
  bool final = false;
  std::uint32_t offset = 0;
  std::vector<TokenId> bytes_of;
  std::vector<std::uint32_t> n_bytes;
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint32_t> ends;
  bool operator==(const Text&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "next", m.next, "absolute position after the last token consumed");
    v(2, "text", m.text, "new text: whole code points, no byte of a stop string");
    v(3, "stopped", m.stopped, "a stop string was completed");
    v(4, "stop_string", m.stop_string, "which one");
    v(5, "n_tokens", m.n_tokens,
      "tokens of the answer so far, the one that completed the stop string included");
    v(6, "final", m.final, "the stream is forgotten");
    v(7, "offset", m.offset,
      "bytes of the answer's text before this: what a receiver has already is skipped");
    v(8, "bytes_of", m.bytes_of, "ids whose own bytes follow, as DECODE wanted", 2);
    v(9, "n_bytes", m.n_bytes, "how many bytes each of them has", 2);
    v(10, "bytes", m.bytes, "their bytes, one after the other", 2);
    v(11, "ends", m.ends,
      "as STREAM_OPEN wanted: bytes of the answer's text, stop strings included, up to the end of "
      "each of the last tokens before next",
      3);
  }
};

struct StreamClose {
  static constexpr MessageType kType = MessageType::kStreamClose;
  static constexpr std::string_view kName = "StreamClose";
  static constexpr std::string_view kDuty =
      "router -> tokenizer. Forget this stream, and a prompt that waits; unknown ones too. No "
      "answer.";
  CloseReason reason = CloseReason::kFinished;
  bool operator==(const StreamClose&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "reason", m.reason, "for the log");
  }
};

}  // namespace foretoken::wire
