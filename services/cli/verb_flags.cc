#include "services/cli/verb_flags.h"

#include <algorithm>
#include <iterator>

#include "common/config/describe.h"
#include "services/cli/flag_checks.h"
#include "services/cli/request_flags.h"
#include "services/cli/voice.h"

namespace foretoken::cli {
namespace {

// Flags of `up` (and their names elsewhere) that are other words for a configuration key.
constexpr KeyFlag kKeyFlags[] = {
    {"--target,-m,--model", "model.target", "target: a Hugging Face folder, or demo"},
    {"--draft,--md,--model-draft", "model.draft",
     "draft: a folder, demo, self:int4 (the target in four bits), or \"\" for none"},
    {"--alias,--served-model-name", "model.alias", "name that clients use for the model"},
    {"--proposer", "speculation.proposer",
     "sources of proposals, separated by commas: draft, ngram, memory; or none"},
    {"--draft-len,-k,--num-speculative-tokens", "speculation.draft_len",
     "most tokens that a draft guesses per round, 0..32; ngram, memory: speculation.lookup_len"},
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

// Options and words of a line that name something, and what an empty one is refused as: it would
// count as not given. `--draft ""` and the texts of prompts have a meaning.
constexpr std::pair<std::string_view, std::string_view> kNeverEmpty[] = {
    {"--host", "the address"},   {"--url", "the address"},  {"--out", "the path"},
    {"--text", "the path"},      {"--config", "the path"},  {"--messages", "the path"},
    {"--prompts", "the path"},   {"--dataset", "the path"}, {"--plot", "the path"},
    {"--calibrate", "the path"}, {"--target", "the path"},  {"--tokenizer", "the path"},
    {"--python", "the path"},    {"--model", "the name"},   {"folder", "the path"},
    {"target", "the path"},      {"draft", "the path"},     {"out", "the path"},
    {"TARGET", "the path"},      {"CORPUS", "the path"},    {"files", "the path"},
    {"file", "the path"},
};

void refuse_empty(CLI::App& verb) {
  for (CLI::Option* option : verb.get_options())
    for (const auto& [name, what] : kNeverEmpty)
      if (option->check_name(std::string(name))) {
        option->check(not_empty(std::string(what)));
        break;
      }
}

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

}  // namespace

CLI::App* VerbFlags::verb(CLI::App* parent,
                          const std::string& name,
                          const std::string& does,
                          const std::string& examples) {
  CLI::App* sub = parent->add_subcommand(name, does);
  sub->set_help_flag("-h,--help", "show this help");
  sub->footer("Examples:\n" + examples);
  verbs_.push_back(sub);
  return sub;
}

void VerbFlags::json(CLI::App* sub) {
  sub->add_flag("--json", options_.output.json, "one JSON document on stdout");
}

CLI::Option* VerbFlags::interval(CLI::App* sub) {
  return sub->add_option("--interval", options_.watch.interval_s, "seconds between two looks")
      ->check(number(from_to(0.1, 3600)))
      ->capture_default_str();
}

void VerbFlags::quiet(CLI::App* sub) {
  sub->add_flag("-q,--quiet", options_.output.quiet, "no progress on stderr");
}

// How it speaks. What --color says is known before this parser reads the line (color_said_in).
void VerbFlags::messages(CLI::App* sub) {
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

void VerbFlags::bench_files(CLI::App* sub) {
  sub->add_option("files", options_.bench_files.files,
                  "files that serve, latency or acceptance of bench wrote with --out")
      ->required();
}

CLI::Option* VerbFlags::key_flag(CLI::App* sub, const KeyFlag& flag) {
  return sub
      ->add_option_function<std::string>(
          flag.flags,
          [this, &flag](const std::string& value) { key_values_.emplace_back(&flag, value); },
          std::string(flag.help) + " (" + flag.key + ")")
      ->check(offered(choices_of_key(flag.key)));
}

void VerbFlags::dtype_flag(CLI::App* sub) {
  key_flag(sub, *std::ranges::find(kKeyFlags, std::string_view("model.dtype"), &KeyFlag::key));
}

void VerbFlags::host(CLI::App* sub) {
  // --client as for `up`, whose --host is the address of HTTP.
  sub->add_option("--host,--client", options_.config.host,
                  "the system to ask, as ADDRESS, NAME, either with :PORT, or ipc://PATH "
                  "(bus.client); beyond this machine with the keys of bus.curve_secret and "
                  "bus.curve_peers, or bus.insecure")
      ->group("Configuration");
}

void VerbFlags::request(CLI::App* sub, const std::set<std::string_view>& without) {
  RequestOptions& r = options_.request;
  add_request_flags(sub, r.request, without);
  sub->add_flag("--no-spec", r.no_spec, "plain decoding; the text is the same")
      ->group("Speculation");
  sub->add_option("--timeout", r.timeout_s, "seconds until the request is given up")
      ->check(number(from_to(0.001, 3600)))
      ->capture_default_str();
  host(sub);
}

void VerbFlags::finish() {
  for (CLI::App* sub : verbs_) {
    sub->add_option("--config", options_.config.file, "configuration file")->group("Configuration");
    sub->add_option("--set", options_.config.sets,
                    "section.key=value, stronger than file and environment")
        ->group("Configuration")
        ->allow_extra_args(false);
    messages(sub);
    refuse_empty(*sub);
  }
}

void VerbFlags::key_flags(CLI::App* sub) {
  for (const KeyFlag& flag : kKeyFlags) key_flag(sub, flag)->group("Configuration");
  sub->add_flag_callback(
         kMemoryFlag.flags, [this] { key_values_.emplace_back(&kMemoryFlag, "true"); },
         std::string(kMemoryFlag.help) + " (" + kMemoryFlag.key + ")")
      ->group("Configuration");
}

void VerbFlags::apply_keys() {
  for (const auto& [flag, value] : key_values_) {
    options_.config.sets.push_back(std::string(flag->key) + "=" + value);
    options_.config.flags[flag->key] = name_of(*flag);
  }
}

}  // namespace foretoken::cli
