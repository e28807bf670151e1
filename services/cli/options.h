// What the command line says, as plain data: one struct a verb. Only options.cc and the
// files of flags know the parser.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/messages/client.h"
#include "services/cli/schedule_conditions.h"

namespace foretoken::cli {

// Exit codes of the `foretoken` command; the services have their own (docs/operations.md).
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,
  kExitUsage = 2,
  kExitUnreachable = 3,  // no router answers
  kExitModel = 4,        // model missing, unsupported, or pair incompatible
  kExitDeadline = 5,
  kExitEnvironment = 6,  // port, memory or CPU unfit
  kExitDiffers = 7,      // results that must be equal differ
  kExitInterrupted = 130,
};

// Where the configuration comes from; every verb takes these.
struct ConfigOptions {
  std::string file;  // --config
  std::string host;  // --host: a system elsewhere; in `sets` as bus.client
  // --set section.key=value, and what other flags mean in those words.
  std::vector<std::string> sets;
  // "model.dtype" -> "--dtype": which of them came from such a flag.
  std::map<std::string, std::string> flags;
};

struct OutputOptions {
  bool json = false;
  bool quiet = false;
  bool verbose = false;
};

struct UpOptions {
  bool detach = false;
  bool supervise = false;  // internal: the detached half of --detach
  std::string ready_fd;    // internal: where --supervise reports
};

// What the flags say of a request; the server decides what they leave open.
struct RequestOptions {
  std::string prompt;
  std::string system;
  bool raw = false;           // generate: the prompt as it is, no chat template
  std::string messages_file;  // generate: a conversation
  wire::ClientRequest request;
  bool no_spec = false;
  bool no_stream = false;
  double timeout_s = 600;
};

struct RunOptions {
  std::string file;
  std::string out;
  int concurrency = 16;
  bool retry_failed = false;
  bool metrics = false;
};

struct DemoOptions {
  std::string model;  // "" = the default one
  std::uint32_t max_tokens = 192;
  int repeat = 3;
  std::optional<std::uint32_t> num_draft_tokens;
};

inline constexpr std::uint32_t kUsualInputLen = 512;

// bench serve, latency and acceptance.
struct BenchLoadOptions {
  // Several: one run with each. None: some, or with a rate as many as arrive.
  std::vector<int> concurrency;
  int n_prompts = 32;
  std::uint32_t output_len = 128;
  double request_rate = 0;                 // 0 = as fast as concurrency allows
  std::string dataset;                     // empty = the demo prompts; "random"
  std::optional<std::uint32_t> input_len;  // tokens, of random prompts; none: kUsualInputLen
  bool unique_prompts = false;
  std::string goodput;  // "ttft:500,tpot:50"
  std::string out;
  bool http = false;
  std::string url;       // empty = edge.host and edge.port
  bool compare = false;  // plain against speculative
};

// bench compare and plot.
struct BenchFilesOptions {
  std::vector<std::string> files;
  std::string kind = "latency";
  std::string out;
};

struct BenchMicroOptions {
  int rounds = 7;
  std::string model;
  std::vector<int> threads = {0};
  std::vector<int> contexts = {512, 4096};
  std::string out;
};

struct BenchScheduleOptions {
  ScheduleConditions conditions;
  int sequences = 1;
  std::uint32_t tokens = 256;
  int repeats = 6;
  bool kill_draft = false;
  bool sweep = false;
  std::string plot;  // of the sweep; empty = none
  std::string out;
};

struct BenchMemoryOptions {
  std::string corpus;  // a folder, or a file
  std::uint64_t tokens = 10'000'000;
  std::string model;  // whose tokenizer; empty = the configured one
  std::string out;
};

// draft distil. Numbers that are 0 are the package's to choose.
struct DistilOptions {
  std::string target;
  std::string out;
  std::string prompts;  // empty = the target's own beginnings
  std::uint64_t tokens = 2'000'000;
  std::uint32_t answer_tokens = 320;
  std::string shape = "192x3";
  std::uint32_t head = 8192;
  std::uint32_t top = 20;
  double passes = 4;
  double hours = 0;  // of training; 0 = as long as the passes take
  std::uint32_t context = 2048;
  std::string dtype = "auto";  // of the target while it writes
  int concurrency = 32;
  int threads = 0;
  std::uint64_t seed = 1;
  std::string python = "python3";
};

struct TokenizeOptions {
  std::string text;
  std::string model;
  std::vector<std::int64_t> ids;
  bool no_special = false;
};

struct ModelOptions {
  std::string folder;
  std::string other;  // pair: the target
  std::string family = "llama";
  std::uint64_t seed = 0;
  std::string shape = "tiny";
  int layers = 0, hidden = 0, heads = 0, kv_heads = 0, ffn = 0, vocab = 0, positions = 0;
  std::string dtype = "float32";
  std::string tokenizer;   // init-random: folder whose tokenizer files are copied
  std::string to;          // quantize: "int8", "int4" or "fp8"
  std::string group;       // quantize, with int4: "32", "64", "128"; empty: by the model's size
  bool lm_head = false;    // quantize: the head too
  bool down_proj = false;  // quantize to int4: the down projections in four bits too
  std::string calibrate;   // quantize to int4: file whose text scales are chosen for
  bool compare = true;     // quantize: both folders' logits
  std::string text;        // quantize, compare: file whose text they read
};

// Looks at a system that are repeated.
struct WatchOptions {
  bool watch = false;  // ps
  bool once = false;   // top
  double interval_s = 2;
};

struct TraceOptions {
  double seconds = 5;
  bool last = false;  // those that were, and not those to come
  std::string out = "foretoken-trace.json";
};

struct MetricsOptions {
  bool grafana = false;
  bool alerts = false;
};

struct CliOptions {
  std::string verb;  // "up", "bench serve", "model info", ...
  ConfigOptions config;
  OutputOptions output;
  UpOptions up;
  WatchOptions watch;
  TraceOptions trace;
  MetricsOptions metrics;
  RequestOptions request;
  bool no_history = false;  // chat
  RunOptions run;
  DemoOptions demo;
  BenchLoadOptions bench_load;
  BenchFilesOptions bench_files;
  BenchMicroOptions bench_micro;
  BenchScheduleOptions bench_schedule;
  BenchMemoryOptions bench_memory;
  DistilOptions distil;
  TokenizeOptions tokenize;
  ModelOptions model;
  std::string config_out;  // config init, schema, new-key
  bool config_origin = false;
  std::vector<std::string> files;  // import-triton
  std::string shell;               // completion: "bash", "zsh" or "fish"
};

// Parses argv. Returns nothing when all is said already (help, version, a usage error); *exit_code
// then says how to end.
std::optional<CliOptions> parse_options(int argc, char** argv, int* exit_code);

}  // namespace foretoken::cli
