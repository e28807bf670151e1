// Messages of control: who is there, what it can do, how it fares, who works with whom. Part of
// messages.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error_code.h"
#include "common/base/ids.h"
#include "common/base/sampling_params.h"
#include "common/messages/passes.h"
#include "common/messages/types.h"

namespace foretoken::wire {

// What must be equal for two services to work together without changing text. 0 = not applicable to
// this role.
struct Fingerprints {
  static constexpr std::string_view kName = "Fingerprints";
  Fingerprint vocabulary = 0;
  Fingerprint text = 0;
  Fingerprint model = 0;
  Fingerprint numerics = 0;
  bool operator==(const Fingerprints&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "vocabulary", m.vocabulary, "of the id -> token map, added tokens included");
    v(2, "text", m.text, "of the tokenizer with its chat template");
    v(3, "model", m.model, "of configuration and weights");
    v(4, "numerics", m.numerics, "of backend, dtype, kernel version, ranks and noise version");
  }
};

struct Hello {
  static constexpr MessageType kType = MessageType::kHello;
  static constexpr std::string_view kName = "Hello";
  static constexpr std::string_view kDuty =
      "worker -> router, target -> draft. First on every connection, again after silence. Answer: "
      "HelloReply.";
  Role role = Role::kTool;
  std::string name;
  std::string endpoint;
  Fingerprints fingerprints;
  std::uint8_t noise_version = 0;
  std::string model_name;
  std::vector<std::string> aliases;
  std::uint32_t vocab_size = 0;
  std::vector<TokenId> end_tokens;
  std::uint32_t max_model_len = 0;
  std::uint32_t max_sequences = 0;
  std::uint32_t max_waiting = 0;
  std::uint32_t block_tokens = 0;
  std::uint32_t kv_blocks_total = 0;
  std::string build;
  std::uint64_t pid = 0;
  SamplingDefaults sampling;
  std::string device;
  std::string dtype;
  ProposerKind proposer = ProposerKind::kNone;
  std::uint32_t draft_len = 0;
  std::string tool_format;
  std::string drafts_for;
  DraftSource source = DraftSource::kModel;
  std::uint32_t proposers = 0;
  bool operator==(const Hello&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "role", m.role, "router, tokenizer, draft, target, edge or tool");
    v(2, "name", m.name, "for people: draft-0");
    v(3, "endpoint", m.endpoint, "where this service takes connections, empty if it does not");
    v(4, "fingerprints", m.fingerprints, "what must match before it may work with another");
    v(5, "noise_version", m.noise_version, "of the counter-based noise; 0 = makes none");
    v(6, "model_name", m.model_name, "as clients ask for it; empty without a model");
    v(7, "aliases", m.aliases, "other names for the same model");
    v(8, "vocab_size", m.vocab_size, "token ids are below this; 0 = unknown");
    v(9, "end_tokens", m.end_tokens, "ids that end an answer");
    v(10, "max_model_len", m.max_model_len,
      "longest prompt + answer, in tokens; 0 = no limit of its own");
    v(11, "max_sequences", m.max_sequences, "sequences it runs at a time");
    v(12, "max_waiting", m.max_waiting, "requests it queues beyond those");
    v(13, "block_tokens", m.block_tokens, "tokens per KV block");
    v(14, "kv_blocks_total", m.kv_blocks_total, "KV blocks it owns");
    v(15, "build", m.build, "version, commit, instruction set: for people");
    v(16, "pid", m.pid, "process id on its host: for people");
    v(17, "sampling", m.sampling, "target: what a request gets that does not say");
    v(18, "device", m.device, "where its model runs, for people: cpu, cuda:0", 2);
    v(19, "dtype", m.dtype, "types of its weights in memory, for people: bfloat16, int8", 2);
    v(20, "proposer", m.proposer,
      "target: the proposer of requests that name none; of several the first", 2);
    v(21, "draft_len", m.draft_len,
      "target: most guessed tokens per round that a draft says, unless a request names a length",
      2);
    v(22, "tool_format", m.tool_format,
      "tokenizer: how the model writes calls of tools: none, hermes, llama or mistral", 3);
    v(23, "drafts_for", m.drafts_for,
      "draft: the model_name of the target that it is configured with; others of its vocabulary "
      "use it too",
      3);
    v(24, "source", m.source,
      "draft: what it guesses with: model, or memory (of texts); a target uses one of each", 6);
    v(25, "proposers", m.proposers,
      "target: the proposers of requests that name none, where there are several: bit k is number "
      "k of the list; 0 = proposer alone",
      6);
  }
};

struct HelloReply {
  static constexpr MessageType kType = MessageType::kHelloReply;
  static constexpr std::string_view kName = "HelloReply";
  static constexpr std::string_view kDuty =
      "Answer to Hello. It gives a refused peer the reason; that peer is not used.";
  bool accepted = false;
  ErrorCode code = ErrorCode::kIncompatible;
  std::string message;
  std::uint32_t heartbeat_ms = 250;
  bool operator==(const HelloReply&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "accepted", m.accepted, "false: code and message say why");
    v(2, "code", m.code, "reason of a refusal");
    v(3, "message", m.message, "the reason as a sentence naming what differs");
    v(4, "heartbeat_ms", m.heartbeat_ms, "how often a heartbeat is expected; eight missed = gone");
  }
};

// A draft that its target does not use for a while.
struct DraftSetAside {
  static constexpr std::string_view kName = "DraftSetAside";
  WorkerId draft;
  std::string reason;
  std::uint32_t again_in_s = 0;
  bool operator==(const DraftSetAside&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "draft", m.draft, "its worker id");
    v(2, "reason", m.reason,
      "what its guesses were worth, for people: 4 of 1000 proposals accepted");
    v(3, "again_in_s", m.again_in_s, "seconds until it is tried again");
  }
};

struct Heartbeat {
  static constexpr MessageType kType = MessageType::kHeartbeat;
  static constexpr std::string_view kName = "Heartbeat";
  static constexpr std::string_view kDuty =
      "worker -> router, every heartbeat_ms, from the thread of its sockets when the other one "
      "computes. Answer: HeartbeatReply.";
  std::uint64_t sent_us = 0;
  std::uint32_t active = 0;
  std::uint32_t queued = 0;
  std::uint64_t queued_tokens = 0;
  std::uint32_t kv_blocks_free = 0;
  bool draining = false;
  std::uint32_t step_us_p50 = 0;
  std::uint32_t step_us_p99 = 0;
  std::uint64_t tokens_total = 0;
  std::uint64_t drafted_total = 0;
  std::uint64_t accepted_total = 0;
  std::uint64_t dropped_total = 0;
  std::uint64_t rss_bytes = 0;
  std::uint64_t uptime_s = 0;
  std::string state;
  std::string links;
  std::uint64_t turn = 0;
  Activity activity = Activity::kWaiting;
  std::uint64_t busy_us = 0;
  std::uint64_t bound_us = 0;
  std::vector<DraftSetAside> set_aside;
  bool operator==(const Heartbeat&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "sent_us", m.sent_us,
      "sender's monotonic clock; only echoed, never compared between hosts");
    v(2, "active", m.active, "sequences or streams being worked on");
    v(3, "queued", m.queued, "requests waiting");
    v(4, "queued_tokens", m.queued_tokens, "prompt tokens waiting to be prefilled");
    v(5, "kv_blocks_free", m.kv_blocks_free, "KV blocks free or reclaimable");
    v(6, "draining", m.draining, "about to stop: send nothing new");
    v(7, "step_us_p50", m.step_us_p50, "median step, recent");
    v(8, "step_us_p99", m.step_us_p99, "99th percentile step, recent");
    v(9, "tokens_total", m.tokens_total,
      "target: tokens committed; draft: tokens drafted; tokenizer: tokens decoded");
    v(10, "drafted_total", m.drafted_total, "target: proposed tokens verified");
    v(11, "accepted_total", m.accepted_total, "target: of those, accepted");
    v(12, "dropped_total", m.dropped_total, "frames dropped: stale, malformed or without room");
    v(13, "rss_bytes", m.rss_bytes, "resident memory");
    v(14, "uptime_s", m.uptime_s, "seconds since start");
    v(15, "state", m.state, "one word for people: ready or draining");
    v(16, "links", m.links,
      "target: its drafts and how it reaches each, for people: draft-0 shared_memory");
    v(17, "turn", m.turn, "turns of work since start: how far it has come", 1);
    v(18, "activity", m.activity, "what this turn does: waiting, messages or step", 1);
    v(19, "busy_us", m.busy_us, "how long this turn has lasted; 0 = waiting", 1);
    v(20, "bound_us", m.bound_us, "a turn longer than this is stuck; 0 = not known", 1);
    v(21, "set_aside", m.set_aside, "target: drafts whose guesses were worth nothing", 1);
  }
};

struct HeartbeatReply {
  static constexpr MessageType kType = MessageType::kHeartbeatReply;
  static constexpr std::string_view kName = "HeartbeatReply";
  static constexpr std::string_view kDuty = "Answer to Heartbeat.";
  std::uint64_t echo_us = 0;
  bool known = true;
  bool needed = false;
  bool operator==(const HeartbeatReply&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "echo_us", m.echo_us, "sent_us of the heartbeat");
    v(2, "known", m.known,
      "false: say Hello again, this incarnation was never seen or has expired");
    v(3, "needed", m.needed,
      "false, to a worker that drains: no accepted request counts on it any more", 1);
  }
};

struct Goodbye {
  static constexpr MessageType kType = MessageType::kGoodbye;
  static constexpr std::string_view kName = "Goodbye";
  static constexpr std::string_view kDuty =
      "Any -> its peers, last before a planned end. No answer.";
  std::string reason;
  bool operator==(const Goodbye&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "reason", m.reason, "for the log");
  }
};

struct Assign {
  static constexpr MessageType kType = MessageType::kAssign;
  static constexpr std::string_view kName = "Assign";
  static constexpr std::string_view kDuty =
      "router -> target. Connect to this draft and use it as load allows; repeated freely. No "
      "answer.";
  WorkerId draft;
  Incarnation incarnation;
  std::string name;
  std::string endpoint;
  Fingerprints fingerprints;
  std::uint32_t max_sequences = 0;
  std::uint32_t order = 0;
  DraftSource source = DraftSource::kModel;
  bool operator==(const Assign&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "draft", m.draft, "the draft's worker id");
    v(2, "incarnation", m.incarnation, "the incarnation that is meant");
    v(3, "name", m.name, "for people");
    v(4, "endpoint", m.endpoint, "where to connect");
    v(5, "fingerprints", m.fingerprints, "of the draft");
    v(6, "max_sequences", m.max_sequences, "the draft's places, for all its targets");
    v(7, "order", m.order,
      "of drafts with as many of its sequences the target takes the lowest; another one for each "
      "target",
      2);
    v(8, "source", m.source, "of the draft: model or memory", 6);
  }
};

struct Unassign {
  static constexpr MessageType kType = MessageType::kUnassign;
  static constexpr std::string_view kName = "Unassign";
  static constexpr std::string_view kDuty = "router -> target. Stop using this draft. No answer.";
  WorkerId draft;
  Incarnation incarnation;
  std::string reason;
  bool operator==(const Unassign&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "draft", m.draft, "the draft's worker id");
    v(2, "incarnation", m.incarnation, "the incarnation that is meant; 0 = any");
    v(3, "reason", m.reason, "for the log");
  }
};

struct DraftLost {
  static constexpr MessageType kType = MessageType::kDraftLost;
  static constexpr std::string_view kName = "DraftLost";
  static constexpr std::string_view kDuty =
      "target -> router. This draft does not answer here. No answer.";
  WorkerId draft;
  Incarnation incarnation;
  std::string reason;
  bool operator==(const DraftLost&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "draft", m.draft, "the draft's worker id");
    v(2, "incarnation", m.incarnation, "the incarnation that is meant");
    v(3, "reason", m.reason, "for the log");
  }
};

struct MetricsRequest {
  static constexpr MessageType kType = MessageType::kMetricsRequest;
  static constexpr std::string_view kName = "MetricsRequest";
  static constexpr std::string_view kDuty =
      "router -> worker. Answer: MetricsReply under the same request id.";
  std::uint64_t sent_us = 0;
  bool passes = false;
  bool operator==(const MetricsRequest&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "sent_us", m.sent_us, "sender's monotonic clock, for its own use");
    v(2, "passes", m.passes, "the last passes instead of metrics", 3);
  }
};

struct MetricsReply {
  static constexpr MessageType kType = MessageType::kMetricsReply;
  static constexpr std::string_view kName = "MetricsReply";
  static constexpr std::string_view kDuty = "Answer to MetricsRequest.";
  std::string text;
  Passes passes;
  bool operator==(const MetricsReply&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "text", m.text, "Prometheus text exposition; empty if passes were asked for");
    v(2, "passes", m.passes, "of a target or draft, if they were asked for", 3);
  }
};

}  // namespace foretoken::wire
