// Every key of every section, once. One file serves a whole installation: each service reads the
// sections it needs and knows all keys. Sections go to rooms as they are. Read once at start, never
// changed afterwards. Which keys may differ from model to model: common/config/models.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/proposer_set.h"
#include "common/config/fields.h"

namespace foretoken {

struct ModelSection {
  std::string target = "demo";
  std::string draft = "demo";
  std::string name;
  std::vector<std::string> alias;
  std::uint32_t max_model_len = 0;
  std::string dtype = "auto";
  std::string generation_config = "auto";
  std::string patterns = "tested";
  std::string tool_format = "auto";
  std::string packed_cache = "auto";
  std::uint32_t targets = 1;
  std::uint32_t drafts = 1;

  template <class Self, class Visitor>
  static void fields(Self& s, Visitor&& v) {
    v("target", s.target, anything(), "the model that writes: \"demo\" or a Hugging Face folder");
    v("draft", s.draft, anything(),
      "the model that guesses ahead: \"demo\", a folder, \"self:int4\" (the target in four bits), "
      "or "
      "\"\" for none");
    v("name", s.name, anything(), "name of the target in requests; \"\" = the name of its folder");
    v("alias", s.alias, not_empty(),
      "other names clients may use; one that ends in * stands for all that begin so");
    v("max_model_len", s.max_model_len, in_range(0, 1'048'576),
      "longest prompt and answer in tokens; 0 = what the model allows");
    v("dtype", s.dtype, one_of({"auto", "float32", "bfloat16", "float16", "int8", "int4"}),
      "type of the weights in memory; auto = as stored");
    v("generation_config", s.generation_config, one_of({"auto", "none"}),
      "auto = a request that does not say samples as the model's generation_config.json does");
    v("patterns", s.patterns, one_of({"tested", "any"}),
      "regular expressions of tokenizer.json: tested = those compared with the reference; any = "
      "all that compile");
    v("tool_format", s.tool_format, one_of({"auto", "none", "hermes", "llama", "mistral"}),
      "how the model writes calls of tools; auto = as the text of its chat template says");
    v("packed_cache", s.packed_cache, anything(),
      "folder in which weights of 64 MiB and more are kept as the CPU's kernels read them, so that "
      "the next start need not make them, together at most a quarter of its disk: a full path; "
      "auto = foretoken in the user's cache folder; off = none");
    v("targets", s.targets, in_range(1, 16), "target services that `foretoken up` starts for it");
    v("drafts", s.drafts, in_range(0, 16),
      "draft services that `foretoken up` starts for it, if it has a draft");
  }
};

struct SpeculationSection {
  ProposerSet proposer{ProposerKind::kDraft, ProposerKind::kNgram, ProposerKind::kMemory};
  std::uint32_t draft_len = 8;
  std::uint32_t lookup_len = 16;
  bool adaptive = true;
  std::uint32_t draft_deadline_ms = 0;
  bool allow_prediction = true;
  std::uint32_t ngram_min = 1;
  std::uint32_t ngram_max = 32;

  template <class Self, class Visitor>
  static void fields(Self& s, Visitor&& v) {
    v("proposer", s.proposer, proposers({"draft", "ngram", "memory", "none"}),
      "the proposers of requests that name none: one, or a list; ngram is prompt lookup, memory "
      "counts where one runs; none alone: plain decoding");
    v("draft_len", s.draft_len, in_range(0, 32),
      "most tokens proposed per sequence and round; lookup_len can allow more; 0 = plain "
      "decoding");
    v("lookup_len", s.lookup_len, in_range(0, 32),
      "likewise of ngram, memory and a prediction, which take no steps of a draft; counts where it "
      "is more than draft_len, with adaptive, and for requests that say no length");
    v("adaptive", s.adaptive, anything(),
      "shorten guesses, or stop guessing, when it does not pay");
    v("draft_deadline_ms", s.draft_deadline_ms, in_range(0, 60'000),
      "a draft later than this counts as missing; 0 = 4 x its usual time or two steps of the "
      "target, whichever is more, at least 20 and at most 10000");
    v("allow_prediction", s.allow_prediction, anything(), "honour a request's \"prediction\"");
    v("ngram_min", s.ngram_min, in_range(1, 32),
      "shortest run of tokens the n-gram proposer matches");
    v("ngram_max", s.ngram_max, in_range(1, 32),
      "longest run of tokens the n-gram proposer matches; it proposes at most twice as many as it "
      "matched");
  }
};

struct LimitsSection {
  std::uint32_t max_running = 16;
  std::uint32_t max_waiting = 256;
  std::uint32_t request_timeout_s = 600;
  std::uint32_t max_batch_rows = 512;
  std::uint32_t prefill_chunk = 256;
  std::uint32_t max_step_ms = 250;
  std::string policy = "max_utilization";
  std::uint32_t drain_s = 30;
  std::uint32_t stuck_s = 30;
  std::uint32_t watchdog_s = 10;
  std::vector<std::string> tenant_weights;

  template <class Self, class Visitor>
  static void fields(Self& s, Visitor&& v) {
    v("max_running", s.max_running, in_range(1, 4096),
      "sequences a target works on at a time; an eighth more for tenants or connections that have "
      "few");
    v("max_waiting", s.max_waiting, in_range(0, 65536),
      "requests of a model that may queue beyond those; more are refused");
    v("request_timeout_s", s.request_timeout_s, in_range(1, 3600),
      "a request without timeout_ms ends after this");
    v("max_batch_rows", s.max_batch_rows, in_range(1, 65536),
      "most token rows in one pass of the target");
    v("prefill_chunk", s.prefill_chunk, in_range(1, 65536), "most prompt tokens in one pass");
    v("max_step_ms", s.max_step_ms, in_range(0, 60'000),
      "prompts are cut so that a pass beside running answers takes no longer, or twice the time of "
      "one without prompts if that is more; with no answer under way twice as long; 0 = no bound; "
      "prompts beside answers of another tenant or connection have less where these would lose "
      "pace");
    v("policy", s.policy, one_of({"max_utilization", "guaranteed_no_evict"}),
      "admit while blocks last and preempt, or admit only what can finish");
    v("drain_s", s.drain_s, in_range(0, 3600),
      "after SIGTERM, how long running requests may take to finish");
    v("stuck_s", s.stuck_s, in_range(1, 3600),
      "a service that makes no progress for this long, or for 8 times its longest recent step if "
      "that is longer, counts as stuck");
    v("watchdog_s", s.watchdog_s, in_range(0, 3600),
      "under `foretoken up`, how long a service may give no sign of life before it is ended and "
      "started again; 0 = no limit, as a debugger needs");
    v("tenant_weights", s.tenant_weights, weights(),
      "shares of the targets while requests of several tenants wait or run; 1 for tenants not "
      "named, and for each connection without one");
  }
};

struct KvCacheSection {
  std::uint32_t block_tokens = 16;
  std::string memory = "60%";
  std::string dtype = "auto";
  bool prefix_cache = true;

  template <class Self, class Visitor>
  static void fields(Self& s, Visitor&& v) {
    v("block_tokens", s.block_tokens, in_range(1, 256), "tokens per block");
    v("memory", s.memory, memory_amount(),
      "the target's cache: share of what its device has free once the weights are there, or an "
      "amount");
    v("dtype", s.dtype, one_of({"auto", "float32", "bfloat16", "float16", "float8_e4m3"}),
      "of keys and values, target's and draft's; auto = as the weights, bfloat16 for 8-bit ones");
    v("prefix_cache", s.prefix_cache, anything(),
      "keep the blocks of finished prompts for requests that begin alike");
  }
};

// Those of cpu_isa_from_name().
inline KeyLimit isa_name() {
  return one_of({"auto", "scalar", "avx2", "avx512", "avx512_bf16", "amx"});
}

// The keys that [target] and [draft] both have: where a model runs, and over how many ranks.
struct ComputeSection {
  std::string device = "cpu";
  std::uint32_t threads = 0;
  bool pin = false;
  std::string isa = "auto";
  std::uint32_t tensor_parallel = 1;
  std::string hostfile;
  std::uint32_t rank_deadline_ms = 5000;
  std::string rank_sums = "auto";
  std::string record = "auto";
};

struct TargetSection : ComputeSection {
  std::string draft_link = "auto";

  template <class Self, class Visitor>
  static void fields(Self& s, Visitor&& v) {
    v("device", s.device, device_list(),
      "where the target model runs; ranks of a host take the list's devices in turn, of cuda alone "
      "the first ones, or each the only one it is shown");
    v("threads", s.threads, in_range(0, 1024),
      "worker threads; 0 = one per physical core, within the CPU limit of a container");
    v("pin", s.pin, anything(),
      "bind each worker thread to a core; not where draft and target share them");
    v("isa", s.isa, isa_name(), "instruction set of the kernels");
    v("tensor_parallel", s.tensor_parallel, in_range(1, 64),
      "MPI ranks that the model is spread over; they must divide its KV heads or be a multiple of "
      "them");
    v("hostfile", s.hostfile, anything(),
      "mpirun's list of hosts for these ranks, this host first; \"\" = this host alone");
    v("rank_deadline_ms", s.rank_deadline_ms, in_range(2000, 600'000),
      "a rank that is silent for longer ends them all; longer than one pass takes");
    v("draft_link", s.draft_link, one_of({"auto", "shared_memory", "zeromq"}),
      "how guesses travel between a draft and this target; auto = the best that works, another "
      "pins it");
    v("rank_sums", s.rank_sums, one_of({"auto", "host", "one_shot", "nccl"}),
      "where ranks on GPUs add: auto = host memory; the others have not run on several GPUs yet");
    v("record", s.record, one_of({"auto", "on", "off"}),
      "record passes that come again and replay them, with equal bits; auto = on GPUs, not on "
      "CPUs; with several ranks never");
  }
};

struct DraftSection : ComputeSection {
  std::string memory = "20%";
  std::uint32_t max_sequences = 64;
  std::string run_ahead = "auto";
  std::uint32_t branches = 3;

  template <class Self, class Visitor>
  static void fields(Self& s, Visitor&& v) {
    v("device", s.device, device_list(),
      "where the draft model runs; ranks of a host take the list's devices in turn, of cuda alone "
      "the first ones, or each the only one it is shown");
    v("threads", s.threads, in_range(0, 1024),
      "worker threads; 0 = one per 16 MiB of weights, at most one per physical core, within the "
      "CPU limit of a container");
    v("pin", s.pin, anything(),
      "bind each worker thread to a core; not where draft and target share them");
    v("isa", s.isa, isa_name(), "instruction set of the kernels");
    v("memory", s.memory, memory_amount(),
      "the draft's cache: share of what its device has free once the weights are there, or an "
      "amount");
    v("max_sequences", s.max_sequences, in_range(1, 65536),
      "sequences a draft follows at a time, for all its targets");
    v("run_ahead", s.run_ahead, one_of({"auto", "on", "off"}),
      "send each guess as it is made, and go on guessing while the target verifies; auto = on "
      "CPUs, "
      "for targets that say (not with target.draft_link zeromq) that it has cores of its own");
    v("branches", s.branches, in_range(0, 16),
      "of a draft that runs ahead on a CPU: rows of a pass, of all sequences together, for texts "
      "in "
      "which a guess is wrong and the next likeliest token comes instead; fewer where a pass would "
      "take a fifth longer; 0 = none");
    v("tensor_parallel", s.tensor_parallel, in_range(1, 64),
      "MPI ranks that the model is spread over; they must divide its KV heads or be a multiple of "
      "them");
    v("hostfile", s.hostfile, anything(),
      "mpirun's list of hosts for these ranks, this host first; \"\" = this host alone");
    v("rank_deadline_ms", s.rank_deadline_ms, in_range(2000, 600'000),
      "a rank that is silent for longer ends them all; longer than one pass takes");
    v("rank_sums", s.rank_sums, one_of({"auto", "host", "one_shot", "nccl"}),
      "where ranks on GPUs add: auto = host memory; the others have not run on several GPUs yet");
    v("record", s.record, one_of({"auto", "on", "off"}),
      "record passes that come again and replay them, with equal bits; auto = on GPUs, not on "
      "CPUs; with several ranks never");
  }
};

struct MemorySection {
  bool start = false;
  std::uint32_t tokens = 8u << 20;
  double tenant_share = 0.25;
  std::string folder;
  std::string share = "tenant";
  std::uint32_t min_match = 2;
  std::uint32_t max_len = 16;
  double min_share = 0.1;

  template <class Self, class Visitor>
  static void fields(Self& s, Visitor&& v) {
    v("start", s.start, anything(), "`foretoken up` starts one beside the targets of a model");
    v("tokens", s.tokens, in_range(65'536, 1'073'741'824),
      "tokens remembered of all tenants, at 28 to 40 bytes each");
    v("tenant_share", s.tenant_share, in_range(0, 1),
      "the most of them that one tenant has, unless share is all");
    v("folder", s.folder, anything(),
      "folder in which texts are kept for the next start, readable for this user alone; \"\" = "
      "none");
    v("share", s.share, one_of({"tenant", "all", "off"}),
      "whose texts a sequence is continued with: tenant = those of its tenant (requests without "
      "one are one tenant), all = those of all tenants, off = its own");
    v("min_match", s.min_match, in_range(2, 32), "equal tokens that a place must have before it");
    v("max_len", s.max_len, in_range(1, 32), "most tokens guessed, and never more than 2 x match");
    v("min_share", s.min_share, in_range(0, 1),
      "guesses end where fewer of the places found go on so");
  }
};

struct BusSection {
  std::string router = "ipc://router";
  std::string client = "tcp://127.0.0.1:5555";
  std::vector<std::string> draft = {"ipc://draft-{id}"};
  std::string runtime_dir;
  std::uint32_t heartbeat_ms = 250;
  std::string curve_secret;
  std::string curve_peers;
  bool insecure = false;

  template <class Self, class Visitor>
  static void fields(Self& s, Visitor&& v) {
    v("router", s.router, endpoint(),
      "where the router takes workers; ipc names are files in runtime_dir");
    v("client", s.client, endpoint(), "where the router takes clients, REQ or DEALER");
    v("draft", s.draft, endpoint_list(),
      "where drafts take targets, by --id; the last entry also serves higher ids by {id}");
    v("runtime_dir", s.runtime_dir, anything(),
      "folder of ipc names, a full path; \"\" = $RUNTIME_DIRECTORY, $XDG_RUNTIME_DIR/foretoken or "
      "a folder of this user under /tmp");
    v("heartbeat_ms", s.heartbeat_ms, in_range(10, 60'000),
      "time between heartbeats; eight missed = gone");
    v("curve_secret", s.curve_secret, anything(),
      "file with this service's CURVE key pair; \"\" = no encryption");
    v("curve_peers", s.curve_peers, anything(),
      "file of public keys with roles; needed for tcp beyond loopback");
    v("insecure", s.insecure, anything(), "take connections on tcp beyond loopback without keys");
  }
};

struct RouterSection {
  std::string default_model;

  template <class Self, class Visitor>
  static void fields(Self& s, Visitor&& v) {
    v("default_model", s.default_model, anything(),
      "the model of requests that name none; \"\" = the only one there is, and with several an "
      "error");
  }
};

struct EdgeSection {
  std::string host = "127.0.0.1";
  std::uint32_t port = 8000;
  std::string key_file;
  std::vector<std::string> cors_origins = {"http://localhost:*", "http://127.0.0.1:*",
                                           "http://[::1]:*"};
  std::vector<std::string> allowed_hosts;
  bool strict = false;
  std::uint32_t ping_s = 15;
  std::uint32_t max_connections = 4096;
  std::uint32_t max_body_mib = 1;
  std::uint32_t max_bodies_mib = 64;
  std::uint32_t max_choices = 8;
  bool web_ui = true;
  bool triton_exclude_input = false;
  bool ollama = false;
  std::string traces_endpoint;

  template <class Self, class Visitor>
  static void fields(Self& s, Visitor&& v) {
    v("host", s.host, not_empty(),
      "numeric address where it takes HTTP, or localhost; one that other machines reach needs "
      "key_file");
    v("port", s.port, in_range(0, 65'535), "port of HTTP; 0 = any free one, which the log names");
    v("key_file", s.key_file, anything(),
      "clients' keys, a line NAME SHA256 each; NAME is the tenant of its requests; \"\" = any "
      "client on this machine may ask");
    v("cors_origins", s.cors_origins, anything(),
      "web pages of these origins may ask; * stands for any port, or for all origins; without "
      "key_file those of others, but for the page at /, are refused");
    v("allowed_hosts", s.allowed_hosts, anything(),
      "names that requests may be sent to without key_file, beside localhost and numeric "
      "addresses: "
      "those of a proxy in front, without port; * stands for all");
    v("strict", s.strict, anything(),
      "a field of a request that the endpoint does not have is an error, and not only named in "
      "x-foretoken-ignored");
    v("ping_s", s.ping_s, in_range(1, 3600),
      "a stream that has nothing to say sends an event without text this often");
    v("max_connections", s.max_connections, in_range(1, 65'536),
      "connections at a time; more are closed at once");
    v("max_body_mib", s.max_body_mib, in_range(1, 8),
      "largest body of a request; of one prompt or conversation the router takes 1 MiB");
    v("max_bodies_mib", s.max_bodies_mib, in_range(1, 65'536),
      "bodies of requests in work, or the requests made of them, and answers until they are sent, "
      "together; beyond it one of more than 16 KiB is 503");
    v("max_choices", s.max_choices, in_range(1, 16),
      "most answers to one prompt that a request may ask for: n, num_return_sequences");
    v("web_ui", s.web_ui, anything(), "the page for browsers at /; without it a line of text");
    v("triton_exclude_input", s.triton_exclude_input, anything(),
      "generate answers without the prompt, unless a request says otherwise");
    v("ollama", s.ollama, anything(),
      "answer Ollama's questions for the models too: /api/tags, /api/ps, /api/show, /api/version");
    v("traces_endpoint", s.traces_endpoint, anything(),
      "collector of OpenTelemetry that traces go to, as http://HOST:4318; \"\" = as "
      "OTEL_EXPORTER_OTLP_ENDPOINT says, none = no traces");
  }
};

struct LogSection {
  std::string level = "info";
  std::string format = "auto";

  template <class Self, class Visitor>
  static void fields(Self& s, Visitor&& v) {
    v("level", s.level, one_of({"debug", "info", "warning", "error"}),
      "lowest level that is written");
    v("format", s.format, one_of({"auto", "text", "json"}),
      "auto = text on a terminal, json otherwise");
  }
};

struct MetricsSection {
  std::string listen;
  std::vector<std::string> compat;

  template <class Self, class Visitor>
  static void fields(Self& s, Visitor&& v) {
    v("listen", s.listen, listen_address(),
      "a second address of the edge, for /metrics alone: on this machine it asks for no key; one "
      "that other machines reach needs edge.key_file and asks for a key; \"\" = none");
    v("compat", s.compat, one_of({"vllm"}),
      "whose names metrics have beside their own: vllm = those that vLLM has too, as vllm:NAME");
  }
};

struct Config {
  ModelSection model;
  SpeculationSection speculation;
  LimitsSection limits;
  KvCacheSection kv_cache;
  TargetSection target;
  DraftSection draft;
  MemorySection memory;
  BusSection bus;
  RouterSection router;
  EdgeSection edge;
  LogSection log;
  MetricsSection metrics;

  template <class Self, class Visitor>
  static void sections(Self& c, Visitor&& v) {
    v("model", c.model, "which models");
    v("speculation", c.speculation, "which proposers, and how many tokens they propose");
    v("limits", c.limits, "how much at a time");
    v("kv_cache", c.kv_cache, "the target's paged cache");
    v("target", c.target, "the service that writes the text");
    v("draft", c.draft, "the service that guesses ahead");
    v("memory", c.memory, "what `foretoken-draft --memory` remembers");
    v("bus", c.bus, "how services find one another");
    v("router", c.router, "the service that clients ask");
    v("edge", c.edge, "the service that speaks HTTP");
    v("log", c.log, "what is written to standard error");
    v("metrics", c.metrics, "what services count");
  }
};

}  // namespace foretoken
