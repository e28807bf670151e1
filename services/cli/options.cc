#include "services/cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "common/base/nearest.h"
#include "common/config/describe.h"
#include "services/cli/completion.h"
#include "services/cli/flag_checks.h"
#include "services/cli/manual.h"
#include "services/cli/request_flags.h"

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
    {"--draft,--md,--model-draft", "model.draft", "draft: a folder, demo, or \"\" for none"},
    {"--alias,--served-model-name", "model.alias", "name that clients use for the model"},
    {"--proposer", "speculation.proposer", "source of proposals: draft, ngram, none"},
    {"--draft-len,-k,--num-speculative-tokens", "speculation.draft_len",
     "most guessed tokens per round, 0..32"},
    {"--ctx-size,--max-model-len", "model.max_model_len",
     "longest prompt + answer in tokens; 0 = what the model allows"},
    {"--threads", "target.threads", "threads of the target; 0 = physical cores"},
    {"--dtype", "model.dtype", "weights in memory: auto, float32, bfloat16, float16, int8"},
    {"--client", "bus.client", "where ZeroMQ clients connect, e.g. tcp://127.0.0.1:5555"},
};

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
    others();
    // Last, so that help shows what is the verb's own first.
    for (CLI::App* sub : verbs_) {
      sub->add_option("--config", options_.config.file, "configuration file")
          ->group("Configuration");
      sub->add_option("--set", options_.config.sets,
                      "section.key=value, stronger than file and environment")
          ->group("Configuration")
          ->allow_extra_args(false);
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
    if (unknown_verb(words)) {
      *exit_code = kExitUsage;
      return std::nullopt;
    }
    try {
      std::reverse(words.begin(), words.end());  // the parser takes them from the back
      app_.parse(words);
    } catch (const CLI::CallForHelp&) {
      std::cout << app_.help() << std::flush;  // of the verb that was named
      if (!std::cout) {
        std::cerr << "error: could not write to standard output\n";
        *exit_code = kExitFailed;
      }
      return std::nullopt;
    } catch (const CLI::ParseError& error) {
      std::cerr << "error: " << error.what() << "\n  try: foretoken " << verb_of(&app_)
                << (verb_of(&app_).empty() ? "" : " ") << "--help\n";
      *exit_code = kExitUsage;
      return std::nullopt;
    }
    options_.verb = verb_of(&app_);
    for (const auto& [flag, value] : key_values_) {
      options_.config.sets.push_back(std::string(flag->key) + "=" + value);
      options_.config.flags[flag->key] = name_of(*flag);
    }
    return options_;
  }

 private:
  // "foretoken serv", "foretoken model inf": name the nearest verb instead of printing everything.
  bool unknown_verb(const std::vector<std::string>& words) {
    const CLI::App* parent = &app_;
    std::string path = "foretoken";
    for (const std::string& word : words) {
      const auto verbs = parent->get_subcommands([](const CLI::App*) { return true; });
      if (verbs.empty() || word.starts_with("-")) return false;
      std::vector<std::string> known;
      const CLI::App* found = nullptr;
      for (const CLI::App* verb : verbs) {
        known.push_back(verb->get_name());
        if (verb->get_name() == word) found = verb;
      }
      if (found == nullptr) {
        report_unknown(path, word, known);
        return true;
      }
      parent = found;
      path += " " + word;
    }
    return false;
  }

  static void report_unknown(const std::string& path,
                             const std::string& word,
                             const std::vector<std::string>& known) {
    std::cerr << "error: " << path << " has no verb `" << word << "`\n";
    const auto beginning = std::find_if(known.begin(), known.end(),
                                        [&](const auto& verb) { return verb.starts_with(word); });
    const auto near = beginning != known.end() ? std::optional(*beginning) : nearest(word, known);
    if (near)
      std::cerr << "  did you mean `" << path << " " << *near << "`?\n";
    else
      std::cerr << "  it has: " << joined(known) << "\n";
    std::cerr << "  try: " << path << " --help\n";
  }

  static std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
    return text;
  }

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
  void quiet(CLI::App* sub) {
    sub->add_flag("-q,--quiet", options_.output.quiet, "no progress on stderr");
  }

  void services() {
    CLI::App* up = verb(&app_, "up", "start router, tokenizer, draft and target on this machine",
                        "  foretoken up --detach\n  foretoken up --target models/big --draft "
                        "models/small --draft-len 6\n");
    up->add_flag("-d,--detach", options_.up.detach, "return when everything is ready");
    up->add_flag("--supervise", options_.up.supervise)->group("");
    up->add_option("--ready-fd", options_.up.ready_fd)->group("");
    up->add_option("--drafts", options_.up.n_drafts, "how many draft services")
        ->check(whole(0, 16))
        ->capture_default_str();
    up->add_option("--targets", options_.up.n_targets, "how many target services")
        ->check(whole(1, 16))
        ->capture_default_str();
    quiet(up);
    for (const KeyFlag& flag : kKeyFlags) {
      up->add_option_function<std::string>(
            flag.flags,
            [this, &flag](const std::string& value) { key_values_.emplace_back(&flag, value); },
            std::string(flag.help) + " (" + flag.key + ")")
          ->check(offered(choices_of_key(flag.key)))
          ->group("Configuration");
    }
    CLI::App* down = verb(&app_, "down", "stop what `up --detach` started", "  foretoken down\n");
    quiet(down);
    json(verb(&app_, "ps", "services: state, endpoint, model, load",
              "  foretoken ps\n  foretoken ps --json\n"));
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
  }

  // `without`: keys that the verb decides itself.
  void request(CLI::App* sub, const std::set<std::string_view>& without) {
    RequestOptions& r = options_.request;
    add_request_flags(sub, r.request, without);
    sub->add_flag("--no-spec", r.no_spec, "plain decoding; the text is the same")
        ->group("Speculation");
    sub->add_option("--timeout", r.timeout_s, "seconds until the request is given up")
        ->check(number(from_to(0.001, 3600)));
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
    generate->add_flag("--no-stream", options_.request.no_stream, "print when it is complete");
    request(generate, {});
    json(generate);
    quiet(generate);
    CLI::App* chat = verb(&app_, "chat", "talk in the terminal; /help shows what it understands",
                          "  foretoken chat\n  foretoken chat --system \"Answer briefly.\"\n");
    chat->add_option("--system", options_.request.system, "system message");
    request(chat, {"logprobs", "prompt_logprobs", "request_id", "add_special_tokens",
                   "add_generation_prompt"});
    quiet(chat);
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
    demo->add_option("-k,--draft-len", options_.demo.num_draft_tokens,
                     "most guessed tokens per round")
        ->check(whole(1, 32));
    json(demo);
    quiet(demo);
    CLI::App* bench = app_.add_subcommand("bench", "measure: serve, micro");
    bench->footer(
        "Examples:\n  foretoken bench serve --compare --concurrency 1\n  foretoken bench micro");
    bench->require_subcommand(1);
    CLI::App* serve =
        verb(bench, "serve", "load on a running system: throughput, latencies, acceptance",
             "  foretoken bench serve --concurrency 4 --num-prompts 32\n"
             "  foretoken bench serve --compare --concurrency 1\n");
    serve->add_flag("--compare", options_.bench_serve.compare,
                    "the same load plain, speculative, speculative, plain; the ratio, and whether "
                    "the texts are equal");
    serve->add_option("--concurrency", options_.bench_serve.concurrency, "requests at a time")
        ->check(whole(1, 256))
        ->capture_default_str();
    serve->add_option("--num-prompts", options_.bench_serve.n_prompts, "requests")
        ->check(whole(1, 100'000))
        ->capture_default_str();
    serve
        ->add_option("-n,--output-len,--max-tokens", options_.bench_serve.output_len,
                     "tokens per answer")
        ->check(whole(1, kMostTokens))
        ->capture_default_str();
    serve
        ->add_option("--request-rate", options_.bench_serve.request_rate,
                     "requests per second (Poisson); 0 = no pause")
        ->check(number(from_to(0, 10000)));
    serve->add_option("--dataset", options_.bench_serve.dataset,
                      "prompts.json; default: the demo prompts");
    serve->add_option("--out", options_.bench_serve.out, "also write the JSON here");
    request(serve, {"max_tokens", "ignore_eos", "logprobs", "prompt_logprobs", "request_id",
                    "add_special_tokens", "add_generation_prompt"});
    json(serve);
    quiet(serve);
    CLI::App* micro =
        verb(bench, "micro", "kernels against the machine: bandwidth, decode, verify, prefill",
             "  foretoken bench micro\n");
    micro->add_option("--rounds", options_.bench_micro.rounds, "repeats; medians are reported")
        ->check(whole(1, 100))
        ->capture_default_str();
    micro->add_option("--threads", options_.bench_micro.threads, "0 = physical cores")
        ->check(whole(0, 256));
    micro->add_option("--out", options_.bench_micro.out, "also write the JSON here");
    json(micro);
    quiet(micro);
  }

  void models() {
    CLI::App* model =
        app_.add_subcommand("model", "model folders: info, check, pair, init-random, quantize");
    model->footer(
        "Examples:\n  foretoken model check models/demo-target\n  foretoken model pair "
        "models/demo-draft models/demo-target");
    model->require_subcommand(1);
    ModelOptions& m = options_.model;
    CLI::App* info = verb(model, "info", "architecture, sizes, memory",
                          "  foretoken model info models/demo-target\n");
    info->add_option("folder", m.folder, "Hugging Face folder")->required();
    json(info);
    CLI::App* check = verb(model, "check", "can it be loaded, and why not",
                           "  foretoken model check models/demo-target\n");
    check->add_option("folder", m.folder, "Hugging Face folder")->required();
    json(check);
    CLI::App* pair = verb(model, "pair", "do a draft and a target belong together",
                          "  foretoken model pair models/demo-draft models/demo-target\n");
    pair->add_option("draft", m.folder, "draft folder")->required();
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
    CLI::App* quantize = verb(
        model, "quantize", "write a folder with the linears in eight bits, and compare the logits",
        "  foretoken model quantize models/demo-target target-int8 --to int8\n");
    quantize->add_option("folder", m.folder, "Hugging Face folder with float weights")->required();
    quantize->add_option("out", m.other, "where to write; must not exist")->required();
    quantize->add_option("--to", m.to, "int8 (for CPUs) or fp8 (for GPUs)")
        ->required()
        ->check(one_of({"int8", "fp8"}));
    quantize->add_flag("--lm-head", m.lm_head,
                       "an untied head too; other engines expect it in 16 bits");
    quantize->add_option("--text", m.text,
                         "text file to compare the logits on; default: a built-in page");
    quantize->add_flag_callback(
        "--no-compare", [&m] { m.compare = false; },
        "do not load both folders to compare their logits");
    json(quantize);
    quiet(quantize);
  }

  void others() {
    CLI::App* config =
        app_.add_subcommand("config", "the configuration: show, check, init, new-key");
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
    json(verb(&app_, "doctor", "is this machine fit: CPU, memory, limits, ports, environment",
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
