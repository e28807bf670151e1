#include "services/cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "common/config/describe.h"
#include "services/cli/completion.h"
#include "services/cli/flag_checks.h"
#include "services/cli/host.h"
#include "services/cli/manual.h"
#include "services/cli/plot_script.h"
#include "services/cli/request_flags.h"
#include "services/cli/suggestions.h"
#include "services/cli/verbs.h"
#include "services/cli/voice.h"

namespace foretoken::cli {
namespace {

// Flags of `up` (and their names elsewhere) that are other words for a configuration key.
struct KeyFlag {
  const char* flags;
  const char* key;
  const char* help;
};
constexpr KeyFlag kKeyFlags[] = {
    {"--target,-m,--model", "model.target", "target: a Hugging Face folder, or demo"},
    {"--draft,--md,--model-draft", "model.draft",
     "draft: a folder, demo, self:int4 (the target in four bits), or \"\" for none"},
    {"--alias,--served-model-name", "model.alias", "name that clients use for the model"},
    {"--proposer", "speculation.proposer",
     "sources of proposals, separated by commas: draft, ngram, memory; or none"},
    {"--draft-len,-k,--num-speculative-tokens", "speculation.draft_len",
     "most guessed tokens per round, 0..32"},
    {"--ctx-size,--max-model-len", "model.max_model_len",
     "longest prompt + answer in tokens; 0 = what the model allows"},
    {"--threads", "target.threads", "threads of the target; 0 = physical cores"},
    {"--dtype", "model.dtype", "weights in memory: auto, float32, bfloat16, float16, int8, int4"},
    {"--targets", "model.targets", "how many target services, of each model"},
    {"--drafts", "model.drafts", "how many draft services, of each model that has a draft"},
    {"--tensor-parallel-size,--tp", "target.tensor_parallel",
     "ranks that the target is spread over"},
    {"--client", "bus.client", "where ZeroMQ clients connect, e.g. tcp://127.0.0.1:5555"},
    {"--host", "edge.host", "address where HTTP clients connect, numeric or localhost"},
    {"--port", "edge.port", "port of HTTP; 0 = any free one, which the log names"},
};

// It has no value.
constexpr KeyFlag kMemoryFlag{
    "--memory", "memory.start",
    "a memory of texts for each model: it guesses what followed the same words before"};

std::vector<std::string> choices_of_key(std::string_view key) {
  for (auto& known : keys_with_choices())
    if (known.key == key) return std::move(known.choices);
  return {};
}

// The spelling that help shows first.
std::string name_of(const KeyFlag& flag) {
  const std::string_view flags = flag.flags;
  return std::string(flags.substr(0, flags.find(',')));
}

constexpr std::uint64_t kMostTokens = 1'048'576;
constexpr std::uint64_t kMostPositions = 1u
                                         << 24;  // what a folder may say; a float counts no further

class Parser {
 public:
  explicit Parser(CliOptions& options) : options_(options) {
    app_.require_subcommand(1);
    app_.set_help_flag("-h,--help", "show this help");
    app_.set_version_flag("--version", "", "show the version");  // taken before the parser sees it
    app_.footer(
        "Examples:\n  foretoken up --detach && foretoken demo\n  foretoken chat --temperature 0.8 "
        "--seed 7\n\n"
        "Exit codes: 0 ok, 1 failed, 2 usage, 3 not reachable, 4 model, 5 deadline, 6 "
        "environment,\n"
        "7 results differ, 130 interrupted.\nMore: foretoken help VERB, foretoken help --man VERB; "
        "docs/cli.md");
    services();
    clients();
    measuring();
    models();
    drafts();
    others();
    // Last, so that help shows what is the verb's own first.
    for (CLI::App* sub : verbs_) {
      sub->add_option("--config", options_.config.file, "configuration file")
          ->group("Configuration");
      sub->add_option("--set", options_.config.sets,
                      "section.key=value, stronger than file and environment")
          ->group("Configuration")
          ->allow_extra_args(false);
      messages(sub);
    }
  }

  std::optional<CliOptions> parse(int argc, char** argv, int* exit_code) {
    *exit_code = kExitOk;
    if (argc < 2) {
      std::cerr << app_.help();
      *exit_code = kExitUsage;
      return std::nullopt;
    }
    std::vector<std::string> words(argv + 1, argv + argc);
    if (words.front() == "--version") words.front() = "version";
    set_colors(color_said_in(words));
    // Tab: what the shell's script asks, with "--" before the words of the line.
    if (words.front() == "complete") {
      words.erase(words.begin(), words.begin() + (words.size() > 1 && words[1] == "--" ? 2 : 1));
      *exit_code = run_complete(app_, words);
      return std::nullopt;
    }
    if (words.front() == "help" && words.size() > 1 && words[1] == "--man") {
      *exit_code = print_manual(app_, {words.begin() + 2, words.end()});
      return std::nullopt;
    }
    // "help model pair" is "model pair --help".
    if (words.front() == "help")
      std::rotate(words.begin(), words.begin() + 1, words.end()), words.back() = "--help";
    if (report_unknown_verb(app_, words)) {
      *exit_code = kExitUsage;
      return std::nullopt;
    }
    try {
      // From the back, and the parser takes them out.
      std::vector<std::string> reversed(words.rbegin(), words.rend());
      app_.parse(reversed);
    } catch (const CLI::CallForHelp&) {
      std::cout << app_.help() << std::flush;  // of the verb that was named
      if (!std::cout) {
        std::cerr << "error: could not write to standard output\n";
        *exit_code = kExitFailed;
      }
      return std::nullopt;
    } catch (const CLI::ParseError& error) {
      *exit_code = kExitUsage;
      if (report_unknown_option(app_, words)) return std::nullopt;
      std::cerr << "error: " << error.what() << "\n  try: foretoken " << verb_of(&app_)
                << (verb_of(&app_).empty() ? "" : " ") << "--help\n";
      return std::nullopt;
    }
    options_.verb = verb_of(&app_);
    // The detached half of `up` repeats nothing that the other has said.
    if (options_.output.verbose && !options_.up.supervise) set_verbosity(Verbosity::kVerbose);
    if (!options_.config.host.empty()) {
      const auto endpoint = endpoint_of_host(options_.config.host);
      if (!endpoint.ok()) {
        *exit_code = report_error(endpoint.error());
        return std::nullopt;
      }
      options_.config.sets.push_back("bus.client=" + *endpoint);
      options_.config.flags["bus.client"] = "--host";
    }
    for (const auto& [flag, value] : key_values_) {
      options_.config.sets.push_back(std::string(flag->key) + "=" + value);
      options_.config.flags[flag->key] = name_of(*flag);
    }
    return options_;
  }

 private:
  static std::string verb_of(const CLI::App* app) {
    std::string verb;
    for (auto subs = app->get_subcommands(); !subs.empty(); subs = subs.front()->get_subcommands())
      verb += (verb.empty() ? "" : " ") + subs.front()->get_name();
    return verb;
  }
  CLI::App* verb(CLI::App* parent,
                 const std::string& name,
                 const std::string& does,
                 const std::string& examples) {
    CLI::App* sub = parent->add_subcommand(name, does);
    sub->set_help_flag("-h,--help", "show this help");
    sub->footer("Examples:\n" + examples);
    verbs_.push_back(sub);
    return sub;
  }
  void json(CLI::App* sub) {
    sub->add_flag("--json", options_.output.json, "one JSON document on stdout");
  }
  CLI::Option* interval(CLI::App* sub) {
    return sub->add_option("--interval", options_.watch.interval_s, "seconds between two looks")
        ->check(number(from_to(0.1, 3600)))
        ->capture_default_str();
  }
  void quiet(CLI::App* sub) {
    sub->add_flag("-q,--quiet", options_.output.quiet, "no progress on stderr");
  }

  // How it speaks. What --color says is known before this parser reads the line (color_said_in).
  void messages(CLI::App* sub) {
    CLI::Option* verbose =
        sub->add_flag("-v,--verbose", options_.output.verbose,
                      "say on stderr what it does: configuration, addresses, times")
            ->group("Messages");
    if (CLI::Option* quiet = sub->get_option_no_throw("--quiet")) verbose->excludes(quiet);
    sub->add_option_function<std::string>(
           "--color", [](const std::string&) {},
           "auto: at a terminal, unless NO_COLOR is set; always, never")
        ->check(one_of({std::begin(kColorWhenNames), std::end(kColorWhenNames)}))
        ->default_str(std::string(kColorWhenNames[0]))
        ->type_name("WHEN")
        ->group("Messages");
  }

  void bench_files(CLI::App* sub) {
    sub->add_option("files", options_.bench_files.files,
                    "files that serve, latency or acceptance of bench wrote with --out")
        ->required();
  }

  CLI::Option* key_flag(CLI::App* sub, const KeyFlag& flag) {
    return sub
        ->add_option_function<std::string>(
            flag.flags,
            [this, &flag](const std::string& value) { key_values_.emplace_back(&flag, value); },
            std::string(flag.help) + " (" + flag.key + ")")
        ->check(offered(choices_of_key(flag.key)));
  }
  // Of a verb that looks at a folder as it would be loaded.
  void dtype_flag(CLI::App* sub) {
    key_flag(sub, *std::ranges::find(kKeyFlags, std::string_view("model.dtype"), &KeyFlag::key));
  }

  void services() {
    CLI::App* up = verb(
        &app_, "up",
        "start router, tokenizer, draft, target and edge on this machine: ZeroMQ at "
        "bus.client, HTTP at edge.host and edge.port",
        "  foretoken up --detach\n  foretoken up --target models/big --draft models/small "
        "--draft-len 6\n  foretoken up --detach --port 8080\n  foretoken up --detach --memory\n");
    up->add_flag("-d,--detach", options_.up.detach, "return when everything is ready");
    up->add_flag("--supervise", options_.up.supervise)->group("");
    up->add_option("--ready-fd", options_.up.ready_fd)->group("");
    quiet(up);
    for (const KeyFlag& flag : kKeyFlags) key_flag(up, flag)->group("Configuration");
    up->add_flag_callback(
          kMemoryFlag.flags, [this] { key_values_.emplace_back(&kMemoryFlag, "true"); },
          std::string(kMemoryFlag.help) + " (" + kMemoryFlag.key + ")")
        ->group("Configuration");
    CLI::App* down = verb(&app_, "down", "stop what `up --detach` started", "  foretoken down\n");
    quiet(down);
    CLI::App* ps = verb(&app_, "ps", "services: state, model, device, type, proposer, load",
                        "  foretoken ps\n  foretoken ps --watch\n  foretoken ps --json\n");
    CLI::Option* watch = ps->add_flag("-w,--watch", options_.watch.watch,
                                      "look again and again, with tokens per second; Ctrl-C ends");
    interval(ps)->needs(watch);
    json(ps);
    host(ps);
    CLI::App* top =
        verb(&app_, "top", "what the services do now: speed, acceptance, parts of a round",
             "  foretoken top\n  foretoken top --once --json | jq .tokens_per_second\n");
    top->add_flag("--once", options_.watch.once, "one interval, then end");
    interval(top);
    json(top);
    host(top);
    top->get_option("--json")->description("a JSON document of every number an interval");
    CLI::App* trace = verb(
        &app_, "trace", "passes of targets and drafts for some seconds, as a file for Perfetto",
        "  foretoken trace --seconds 10 -o trace.json\n  foretoken trace --last --seconds 2\n");
    trace->add_option("--seconds", options_.trace.seconds, "for how long")
        ->check(number(from_to(0.1, 3600)))
        ->capture_default_str();
    trace->add_flag("--last", options_.trace.last,
                    "the last seconds, as far as services keep them, and not the next");
    trace
        ->add_option("-o,--out", options_.trace.out, "file to be written, in place of an older one")
        ->capture_default_str();
    quiet(trace);
    host(trace);
    CLI::App* metrics =
        verb(&app_, "metrics", "Prometheus text of all services; dashboard, alert rules",
             "  foretoken metrics | grep time_to_first_token\n"
             "  foretoken metrics --grafana > dashboard.json\n");
    CLI::Option* grafana =
        metrics->add_flag("--grafana", options_.metrics.grafana,
                          "a Grafana dashboard of them, as JSON; asks no service");
    metrics
        ->add_flag("--alerts", options_.metrics.alerts,
                   "Prometheus alert rules over them, as YAML; asks no service")
        ->excludes(grafana);
    host(metrics);
  }

  // Of a client of the router.
  void host(CLI::App* sub) {
    // --client as for `up`, whose --host is the address of HTTP.
    sub->add_option("--host,--client", options_.config.host,
                    "the system to ask, as ADDRESS, NAME, either with :PORT, or ipc://PATH "
                    "(bus.client); beyond this machine with the keys of bus.curve_secret and "
                    "bus.curve_peers, or bus.insecure")
        ->group("Configuration");
  }

  // `without`: keys that the verb decides itself.
  void request(CLI::App* sub, const std::set<std::string_view>& without) {
    RequestOptions& r = options_.request;
    add_request_flags(sub, r.request, without);
    sub->add_flag("--no-spec", r.no_spec, "plain decoding; the text is the same")
        ->group("Speculation");
    sub->add_option("--timeout", r.timeout_s, "seconds until the request is given up")
        ->check(number(from_to(0.001, 3600)))
        ->capture_default_str();
    host(sub);
  }

  void clients() {
    CLI::App* generate =
        verb(&app_, "generate", "complete a prompt; reads stdin if there is none",
             "  foretoken generate \"Once upon a time\" -n 64\n"
             "  foretoken generate --json --seed 7 -t 0.8 \"Once\" | jq .metrics\n");
    generate->add_option("prompt", options_.request.prompt, "the prompt");
    generate->add_option("--system", options_.request.system,
                         "system message (implies the chat template)");
    generate->add_flag("--raw", options_.request.raw,
                       "the prompt as it is, without the chat template");
    generate->add_option("--messages", options_.request.messages_file,
                         "file with a conversation instead of a prompt, as JSON: [{\"role\", "
                         "\"content\"}, ...]; - is standard input");
    generate
        ->add_option("--token-ids", options_.request.request.token_ids,
                     "token ids instead of a prompt, separated by commas")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(whole(0, std::numeric_limits<TokenId>::max()))
        ->type_name("ID,ID,...");
    generate->add_flag("--no-stream", options_.request.no_stream, "print when it is complete");
    request(generate, {});
    json(generate);
    quiet(generate);
    CLI::App* chat = verb(&app_, "chat", "talk in the terminal; /help shows what it understands",
                          "  foretoken chat\n  foretoken chat --system \"Answer briefly.\" -t 0\n");
    chat->add_option("--system", options_.request.system, "system message");
    chat->add_flag("--no-history", options_.no_history, "keep no file of what is typed");
    request(chat, kNotInChat);
    quiet(chat);
    run();
    CLI::App* tokenize = verb(&app_, "tokenize", "text to token ids",
                              "  foretoken tokenize \"Hello\" --model models/demo-target\n");
    tokenize->add_option("text", options_.tokenize.text, "the text; stdin if absent");
    tokenize->add_option("--model", options_.tokenize.model,
                         "model folder (default: the configured target)");
    tokenize->add_flag("--no-special", options_.tokenize.no_special, "without BOS and the like");
    json(tokenize);
    CLI::App* detokenize = verb(&app_, "detokenize", "token ids to text",
                                "  foretoken detokenize 2630 --model models/demo-target\n");
    detokenize->add_option("ids", options_.tokenize.ids, "token ids")
        ->required()
        ->check(whole(0, 0x7fffffff));
    detokenize->add_option("--model", options_.tokenize.model,
                           "model folder (default: the configured target)");
    json(detokenize);
  }

  void run() {
    CLI::App* run = verb(&app_, "run", "ask a file of requests, write a file of their answers",
                         "  foretoken run prompts.jsonl -o answers.jsonl -t 0 -n 256\n"
                         "  foretoken run batch.jsonl --concurrency 32   # again: goes on\n");
    run->add_option("file", options_.run.file,
                    "a request a line: {\"prompt\" or \"messages\": ...} with the keys of a "
                    "client, or OpenAI's batch form {\"custom_id\", \"url\", \"body\"}")
        ->required();
    run->add_option("-o,--out", options_.run.out,
                    "the answers, in the same order; default: FILE.answers.jsonl");
    run->add_option("--concurrency", options_.run.concurrency, "requests at a time")
        ->check(whole(1, 1024))
        ->capture_default_str();
    run->add_flag("--retry-failed", options_.run.retry_failed,
                  "ask lines again that failed in an earlier run");
    run->add_flag("--metrics", options_.run.metrics,
                  "times and speculation in the answers, which differ from run to run");
    request(run, {"n", "request_id"});
    json(run);
    quiet(run);
  }

  // What is asked, of whom, and where the result goes: of all that put load on a system.
  void bench_load(CLI::App* sub) {
    BenchLoadOptions& load = options_.bench_load;
    sub->add_option("--num-prompts", load.n_prompts, "requests")
        ->check(whole(1, 100'000))
        ->capture_default_str();
    sub->add_option("-n,--output-len,--max-tokens", load.output_len, "tokens per answer")
        ->check(whole(1, kMostTokens))
        ->capture_default_str();
    sub->add_option("--dataset", load.dataset,
                    "prompts.json, ShareGPT's JSON, OpenAI's JSONL, or random: words of the demo "
                    "prompts in any order (over ZeroMQ); default: the demo prompts");
    sub->add_option("--input-len", load.input_len, "tokens of each random prompt; default: 512")
        ->check(whole(1, kMostTokens));
    sub->add_flag("--unique-prompts", load.unique_prompts,
                  "begin each prompt with the seed and a number of its own, so that none finds the "
                  "beginning of another in the cache");
    sub->add_flag("--http", load.http,
                  "over HTTP, at edge.host and edge.port, and not over ZeroMQ; "
                  "$FORETOKEN_API_KEY is its key");
    sub->add_option("--url", load.url,
                    "over HTTP, at http://HOST:PORT: any server of OpenAI's chat completions; "
                    "$OPENAI_API_KEY is its key");
    sub->add_option("--out", load.out, "also write the JSON here");
    request(sub, {"max_tokens", "ignore_eos", "logprobs", "prompt_logprobs", "request_id",
                  "add_special_tokens", "add_generation_prompt", "n"});
    json(sub);
    quiet(sub);
  }
  void compare_both_ways(CLI::App* sub) {
    sub->add_flag("--compare", options_.bench_load.compare,
                  "the same load plain, speculative, speculative, plain; the ratio, and whether "
                  "the texts are equal");
  }

  void bench_serve(CLI::App* bench) {
    CLI::App* serve =
        verb(bench, "serve", "load on a running system: throughput, latencies, acceptance",
             "  foretoken bench serve --concurrency 4 --num-prompts 32\n"
             "  foretoken bench serve --compare --concurrency 1\n"
             "  foretoken bench serve --concurrency 1,2,4,8 --goodput ttft:500,tpot:50\n"
             "  foretoken bench serve --http --request-rate 2 --dataset sharegpt.json\n");
    compare_both_ways(serve);
    serve
        ->add_option("--concurrency", options_.bench_load.concurrency,
                     "requests at a time; default: 4, or no bound with --request-rate; several "
                     "numbers, by commas: a run with each")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(whole(1, 4096))
        ->type_name("INT,INT,...");
    serve
        ->add_option("--request-rate", options_.bench_load.request_rate,
                     "open loop: requests arrive so many a second (Poisson); 0 = the next one "
                     "when one ends")
        ->check(number(from_to(0, 10000)));
    serve
        ->add_option("--goodput", options_.bench_load.goodput,
                     "also count requests that keep these limits, in milliseconds: "
                     "ttft:500,tpot:50; ttft, tpot, e2el")
        ->type_name("NAME:MS,...");
    bench_load(serve);
  }

  void bench_alone(CLI::App* bench) {
    CLI::App* latency =
        verb(bench, "latency", "one request at a time: each of its times, and by kind of text",
             "  foretoken bench latency\n"
             "  foretoken bench latency --compare --http -n 64\n");
    compare_both_ways(latency);
    bench_load(latency);
    CLI::App* acceptance =
        verb(bench, "acceptance",
             "one request at a time: accepted guesses by kind of text and by position",
             "  foretoken bench acceptance\n"
             "  foretoken bench acceptance --fixed --draft-len 8 --num-prompts 100 -t 0.8\n");
    bench_load(acceptance);
  }

  void measuring() {
    CLI::App* demo =
        verb(&app_, "demo", "the same text twice, plain and speculative, timed and compared",
             "  foretoken demo\n  foretoken demo --json | jq .speedup\n");
    demo->add_option("-n,--max-tokens", options_.demo.max_tokens, "tokens per text")
        ->check(whole(1, kMostTokens))
        ->capture_default_str();
    demo->add_option("--repeat", options_.demo.repeat,
                     "passes over the prompts; medians are reported")
        ->check(whole(1, 100))
        ->capture_default_str();
    demo->add_option("--model", options_.demo.model, "the model to ask, where several are served")
        ->type_name(kModelName);
    demo->add_option("-k,--draft-len", options_.demo.num_draft_tokens,
                     "most guessed tokens per round")
        ->check(whole(1, 32));
    host(demo);
    json(demo);
    quiet(demo);
    CLI::App* bench = app_.add_subcommand(
        "bench", "measure: serve, latency, acceptance, compare, micro, schedule, memory");
    bench->footer(
        "Examples:\n  foretoken bench serve --compare --concurrency 1\n  foretoken bench "
        "acceptance");
    bench->require_subcommand(1);
    bench_serve(bench);
    bench_alone(bench);
    CLI::App* compare =
        verb(bench, "compare", "two runs of bench: what the second gained, same answers or not",
             "  foretoken bench compare plain.json speculative.json\n"
             "  foretoken bench compare both.json      # of bench serve --compare --out\n");
    bench_files(compare);
    json(compare);
    CLI::App* plot =
        verb(&app_, "plot", "pictures of runs of bench, drawn by gnuplot",
             "  foretoken plot --kind latency plain.json speculative.json\n"
             "  foretoken plot --kind speedup -o speedup.svg k0.json k2.json k4.json\n");
    bench_files(plot);
    plot->add_option("--kind", options_.bench_files.kind,
                     "speedup: over plain decoding, by the length of guesses; acceptance: by "
                     "position; latency: distributions of the first token and of gaps; timeline: "
                     "the requests of one run")
        ->check(one_of({std::begin(kPlotKinds), std::end(kPlotKinds)}))
        ->capture_default_str();
    plot->add_option(
        "-o,--out", options_.bench_files.out,
        "NAME: NAME.svg and NAME.png; or one of them by its ending; default: the kind");
    CLI::App* micro =
        verb(bench, "micro",
             "kernels against the machine: bandwidth, decode, verify, prefill, attention",
             "  foretoken bench micro\n"
             "  foretoken bench micro --model FOLDER --threads 1,2\n");
    micro->add_option("--rounds", options_.bench_micro.rounds, "repeats; medians are reported")
        ->check(whole(1, 100))
        ->capture_default_str();
    micro->add_option(
        "--model", options_.bench_micro.model,
        "a folder: layers of its shape, at most as many as it has; default: a 1B Llama's");
    micro
        ->add_option("--threads", options_.bench_micro.threads,
                     "numbers of threads, by commas: everything with each; 0 = physical cores")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(whole(0, 256))
        ->capture_default_str();
    micro
        ->add_option("--contexts", options_.bench_micro.contexts,
                     "positions that attention sees, by commas")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(whole(1, 131072))
        ->capture_default_str();
    micro->add_option("--out", options_.bench_micro.out, "also write the JSON here");
    json(micro);
    quiet(micro);
    bench_schedule(bench);
    bench_memory(bench);
  }

  void bench_schedule(CLI::App* bench) {
    BenchScheduleOptions& chosen = options_.bench_schedule;
    CLI::App* schedule =
        verb(bench, "schedule",
             "what guessing brings where only times count: real processes around timed mock models",
             "  foretoken bench schedule --target-ms 6 --cost 0.05 --acceptance 0.8 --rtt-ms 5\n"
             "  foretoken bench schedule --sweep --cost 0.1 --plot never_slower.svg\n");
    const auto a_number = [&](const char* name, double& value, const char* help, double most) {
      return schedule->add_option(name, value, help)
          ->check(number(from_to(0, most)))
          ->capture_default_str();
    };
    ScheduleConditions& conditions = chosen.conditions;
    schedule
        ->add_option("--target-ms", conditions.target_ms, "T: a pass of the target over one row")
        ->check(number(from_to(0.1, 1000)))
        ->capture_default_str();
    a_number("--cost", conditions.cost, "c: a pass of the draft, of T", 10);
    CLI::Option* acceptance = a_number("--acceptance", conditions.acceptance,
                                       "a: share of the draft's tokens that are the target's", 1);
    a_number("--rtt-ms", conditions.rtt_ms,
             "delay of what target and draft say to each other, there and back; 0 = no relay",
             1000);
    schedule->add_flag("--synchronous", conditions.synchronous,
                       "the draft answers questions alone (draft.run_ahead off), on cores of its "
                       "own too");
    schedule
        ->add_option("--branches", conditions.branches,
                     "texts that a draft which runs ahead goes on with beside its chain "
                     "(draft.branches)")
        ->check(whole(0, 16))
        ->capture_default_str();
    CLI::Option* sequences =
        schedule->add_option("--sequences", chosen.sequences, "B: answers at a time")
            ->check(whole(1, 64))
            ->capture_default_str();
    schedule->add_option("--tokens", chosen.tokens, "length of each answer")
        ->check(whole(2, 4096))
        ->capture_default_str();
    schedule
        ->add_option("--repeats", chosen.repeats,
                     "pairs of runs, each of other texts; medians are reported")
        ->check(whole(1, 100))
        ->capture_default_str();
    CLI::Option* same_cores = schedule->add_flag_callback(
        "--same-cores", [&conditions] { conditions.cores = Cores::kShared; },
        "a pass of the one waits for that of the other; the draft answers questions alone");
    CLI::Option* kill_draft =
        schedule->add_flag("--kill-draft", chosen.kill_draft,
                           "kill the draft before what is counted, and start none again");
    CLI::Option* sweep =
        schedule->add_flag("--sweep", chosen.sweep,
                           "1 to 64 answers at a time, acceptances from 0 to 1, own cores and same "
                           "cores: is it ever slower than plain?");
    for (CLI::Option* other : {acceptance, sequences, same_cores, kill_draft})
      sweep->excludes(other);
    schedule
        ->add_option("--plot", chosen.plot,
                     "a picture of the sweep, drawn by gnuplot: FILE.svg or FILE.png")
        ->needs(sweep);
    schedule->add_option("--out", chosen.out, "also write the JSON here");
    json(schedule);
    quiet(schedule);
  }

  void bench_memory(CLI::App* bench) {
    CLI::App* memory = verb(
        bench, "memory",
        "a memory of texts against a corpus: tokens per second, bytes, look-ups, accepted guesses",
        "  foretoken bench memory FOLDER\n"
        "  foretoken bench memory FOLDER --tokens 1000000 --model FOLDER\n");
    memory
        ->add_option("CORPUS", options_.bench_memory.corpus,
                     "a folder, of which each file of text is a document; every twentieth is not "
                     "taken in, but looked up")
        ->required();
    memory
        ->add_option("--tokens", options_.bench_memory.tokens, "read files until there are so many")
        ->check(whole(1000, 1'000'000'000))
        ->capture_default_str();
    memory->add_option("--model", options_.bench_memory.model,
                       "a folder with the tokenizer; default: model.target");
    memory->add_option("--out", options_.bench_memory.out, "also write the JSON here");
    json(memory);
    quiet(memory);
  }

  void models() {
    CLI::App* model = app_.add_subcommand(
        "model", "model folders: info, check, pair, init-random, quantize, compare");
    model->footer(
        "Examples:\n  foretoken model check models/demo-target\n  foretoken model pair "
        "models/demo-draft models/demo-target");
    model->require_subcommand(1);
    ModelOptions& m = options_.model;
    CLI::App* info = verb(model, "info", "architecture, sizes, memory",
                          "  foretoken model info models/demo-target\n");
    info->add_option("folder", m.folder, "Hugging Face folder")->required();
    dtype_flag(info);
    json(info);
    CLI::App* check = verb(model, "check", "can it be loaded, and why not",
                           "  foretoken model check models/demo-target\n");
    check->add_option("folder", m.folder, "Hugging Face folder")->required();
    dtype_flag(check);
    json(check);
    CLI::App* pair = verb(model, "pair", "do a draft and a target belong together",
                          "  foretoken model pair models/demo-draft models/demo-target\n");
    pair->add_option("draft", m.folder, "draft folder, or self:int4: the target in four bits")
        ->required();
    pair->add_option("target", m.other, "target folder")->required();
    json(pair);
    CLI::App* random =
        verb(model, "init-random", "write a folder of random weights, the same bytes every time",
             "  foretoken model init-random random-tiny --family qwen3 --layers 2\n"
             "  foretoken model init-random random-1b --shape 1b --dtype bfloat16 --tokenizer demo "
             "--positions 16384\n");
    random->add_option("folder", m.folder, "where to write; must not exist")->required();
    random->add_option("--family", m.family, "llama, qwen2, qwen3 or mistral")
        ->check(one_of({"llama", "qwen2", "qwen3", "mistral"}))
        ->capture_default_str();
    random->add_option("--shape", m.shape, "tiny, 1b or 3b, changed by the flags below")
        ->check(one_of({"tiny", "1b", "3b"}))
        ->capture_default_str();
    random->add_option("--layers", m.layers, "layers")->check(whole(1, 1'000'000));
    random->add_option("--hidden", m.hidden, "hidden size")->check(whole(1, 1'000'000));
    random->add_option("--heads", m.heads, "attention heads")->check(whole(1, 1'000'000));
    random->add_option("--kv-heads", m.kv_heads, "key/value heads")->check(whole(1, 1'000'000));
    random->add_option("--ffn", m.ffn, "feed-forward size")->check(whole(1, 1'000'000));
    random->add_option("--vocab", m.vocab, "vocabulary size")->check(whole(1, 1'000'000));
    random->add_option("--positions", m.positions, "longest sequence in tokens, 2048 if not given")
        ->check(whole(1, kMostPositions));
    random->add_option("--dtype", m.dtype, "float32, bfloat16 or float16")
        ->check(one_of({"float32", "bfloat16", "float16"}))
        ->capture_default_str();
    random->add_option("--seed", m.seed, "seed")
        ->check(whole(0, std::numeric_limits<std::uint64_t>::max()));
    random->add_option("--tokenizer", m.tokenizer, "folder whose tokenizer files are copied");
    json(random);
    CLI::App* quantize =
        verb(model, "quantize",
             "write a folder with the linears in eight or four bits, and compare the logits",
             "  foretoken model quantize models/demo-target target-int8 --to int8\n");
    quantize->add_option("folder", m.folder, "Hugging Face folder with float weights")->required();
    quantize->add_option("out", m.other, "where to write; must not exist")->required();
    quantize->add_option("--to", m.to, "int8 or int4 (for CPUs), or fp8 (for GPUs)")
        ->required()
        ->check(one_of({"int8", "int4", "fp8"}));
    quantize
        ->add_option("--group", m.group,
                     "int4: weights that share a scale; default: 32, in models of more than 1e9 "
                     "parameters 128")
        ->check(one_of({"32", "64", "128"}));
    quantize->add_flag(
        "--down-proj", m.down_proj,
        "int4: the down projections in four bits too, not in eight: smaller, and more is lost");
    quantize
        ->add_option("--calibrate", m.calibrate,
                     "int4: text file of at most 1 MiB, such as the model will read; scales are "
                     "then chosen for "
                     "what the model makes of it, 512 to 8192 tokens")
        ->check(CLI::Validator(
            [](const std::string& file) {
              return std::string(file.empty() ? "expected a file, got an empty name" : "");
            },
            ""));
    quantize->add_flag("--lm-head", m.lm_head,
                       "an untied head too; other engines expect it in 16 bits");
    quantize->add_option("--text", m.text,
                         "text file to compare the logits on; default: a built-in page");
    quantize->add_flag_callback(
        "--no-compare", [&m] { m.compare = false; },
        "do not load both folders to compare their logits");
    json(quantize);
    quiet(quantize);
    CLI::App* compare = verb(
        model, "compare", "what another type of weights in memory does to the logits of a folder",
        "  foretoken model compare models/demo-target --dtype int4\n");
    compare->add_option("folder", m.folder, "Hugging Face folder")->required();
    compare->add_option("--dtype", m.dtype, "float32, bfloat16, float16, int8 or int4")
        ->required()
        ->check(one_of({"float32", "bfloat16", "float16", "int8", "int4"}));
    compare->add_option("--text", m.text,
                        "text file to compare the logits on; default: a built-in page");
    json(compare);
  }

  void drafts() {
    CLI::App* draft = app_.add_subcommand("draft", "drafts: distil");
    draft->footer("Examples:\n  foretoken draft distil models/big --out models/big-draft");
    draft->require_subcommand(1);
    DistilOptions& d = options_.distil;
    CLI::App* distil = verb(
        draft, "distil",
        "train a small draft for a target on what the target writes: collect, train, check; again: "
        "goes on",
        "  foretoken draft distil models/big --out models/big-draft --prompts prompts.txt\n"
        "  foretoken draft distil models/big --out models/big-draft --hours 2 --python "
        "venv/bin/python\n");
    distil->add_option("TARGET", d.target, "Hugging Face folder of the target")->required();
    distil->add_option("-o,--out", d.out, "the draft's folder; what is unfinished is in its work/")
        ->required();
    distil->add_option("--prompts", d.prompts,
                       "a prompt a line, or a JSON object with prompt or messages; default: what "
                       "the target begins with by itself");
    distil->add_option("--tokens", d.tokens, "tokens of answers to collect")
        ->check(whole(1000, 1'000'000'000))
        ->capture_default_str();
    distil->add_option("--answer-tokens", d.answer_tokens, "longest answer")
        ->check(whole(8, 8192))
        ->capture_default_str();
    distil
        ->add_option("--top", d.top,
                     "likeliest tokens to learn from, of each that was written; 0: that one alone")
        ->check(whole(0, 20))
        ->capture_default_str();
    distil->add_option("--shape", d.shape, "hidden size x layers; a multiple of 32")
        ->capture_default_str();
    distil->add_option("--head", d.head, "ids that the draft can guess: the most frequent ones")
        ->check(whole(64, 1'000'000))
        ->capture_default_str();
    distil->add_option("--passes", d.passes, "times that training goes through the text")
        ->check(number(from_to(0.01, 1000)))
        ->capture_default_str();
    distil
        ->add_option("--hours", d.hours, "end training after so long; 0: when the passes are over")
        ->check(number(from_to(0, 1000)))
        ->capture_default_str();
    distil->add_option("--context", d.context, "longest sequence of the draft")
        ->check(whole(64, kMostPositions))
        ->capture_default_str();
    distil->add_option("--dtype", d.dtype, "weights of the target while it writes, as model.dtype")
        ->check(one_of({"auto", "float32", "bfloat16", "float16", "int8", "int4"}))
        ->capture_default_str();
    distil->add_option("--concurrency", d.concurrency, "answers at a time")
        ->check(whole(1, 1024))
        ->capture_default_str();
    distil->add_option("--threads", d.threads, "training processes, four at most; 0 = cores")
        ->check(whole(0, 256))
        ->capture_default_str();
    distil->add_option("--seed", d.seed, "of texts and training")
        ->check(whole(0, 1'000'000'000))
        ->capture_default_str();
    distil->add_option("--python", d.python, "Python 3 with torch, numpy and safetensors")
        ->capture_default_str();
    quiet(distil);
    host(distil);
    distil->get_option("--host")->description(
        "a running system to ask, as for run, that serves the weights of TARGET; default: one is "
        "started");
  }

  void others() {
    CLI::App* config =
        app_.add_subcommand("config", "the configuration: show, check, init, schema, new-key");
    config->footer(
        "Examples:\n  foretoken config show --origin\n  foretoken config init -o foretoken.toml");
    config->require_subcommand(1);
    CLI::App* show =
        verb(config, "show", "every value in force", "  foretoken config show --origin\n");
    show->add_flag("--origin", options_.config_origin, "where each value comes from");
    verb(config, "check", "report every error",
         "  foretoken config check --config foretoken.toml\n");
    CLI::App* new_key = verb(config, "new-key", "write a CURVE key pair; print the public half",
                             "  foretoken config new-key -o /etc/foretoken/draft-0.key\n");
    new_key
        ->add_option("-o,--out", options_.config_out,
                     "file for the pair, readable by its owner alone; must not exist")
        ->required();
    CLI::App* init = verb(config, "init", "print a file with every key and its default",
                          "  foretoken config init -o foretoken.toml\n");
    init->add_option("-o,--out", options_.config_out, "write it here; must not exist");
    CLI::App* schema = verb(
        config, "schema", "print a JSON Schema of the file, for editors of TOML",
        "  foretoken config schema -o foretoken.schema.json\n"
        "  sed -i '1i #:schema ./foretoken.schema.json' foretoken.toml   # Taplo finds it so\n");
    schema->add_option("-o,--out", options_.config_out, "write it here, in place of an older one");
    verb(
        &app_, "import-triton",
        "print the configuration that Triton's config.pbtxt files come to, and what they leave out",
        "  foretoken import-triton tensorrt_llm/config.pbtxt > foretoken.toml\n"
        "  foretoken import-triton repository/*/config.pbtxt\n")
        ->add_option("files", options_.files, "config.pbtxt of the models of one pipeline")
        ->required();
    json(verb(&app_, "doctor", "is this machine fit: CPU, memory, limits, ports, keys, models",
              "  foretoken doctor\n"));
    json(verb(&app_, "version", "version, compiler, libraries, instruction set",
              "  foretoken version --json\n"));
    verb(&app_, "completion", "what a shell reads to complete this command at Tab",
         "  source <(foretoken completion bash)\n"
         "  foretoken completion zsh > ~/.zfunc/_foretoken\n")
        ->add_option("shell", options_.shell, "bash, zsh or fish")
        ->required()
        ->check(one_of({"bash", "zsh", "fish"}));
  }

  CliOptions& options_;
  std::vector<CLI::App*> verbs_;
  std::vector<std::pair<const KeyFlag*, std::string>> key_values_;
  CLI::App app_{
      "Foretoken: the large model's words, sooner. Speculative decoding as separate services.",
      "foretoken"};
};

}  // namespace

std::optional<CliOptions> parse_options(int argc, char** argv, int* exit_code) {
  CliOptions options;
  Parser parser(options);
  return parser.parse(argc, argv, exit_code);
}

}  // namespace foretoken::cli
