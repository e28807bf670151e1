// foretoken: the command. Parses, picks the verb, turns what goes wrong into a sentence and an exit
// code.
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>

#include "services/cli/options.h"
#include "services/cli/verbs.h"
#include "services/cli/voice.h"

namespace {

using namespace foretoken::cli;

constexpr std::pair<std::string_view, int (*)(const CliOptions&)> kVerbs[] = {
    {"up", run_up},
    {"down", run_down},
    {"ps", run_ps},
    {"top", run_top},
    {"trace", run_trace},
    {"metrics", run_metrics},
    {"generate", run_generate},
    {"chat", run_chat},
    {"run", run_run},
    {"demo", run_demo},
    {"bench serve", run_bench_serve},
    {"bench latency", run_bench_latency},
    {"bench acceptance", run_bench_acceptance},
    {"bench compare", run_bench_compare},
    {"bench micro", run_bench_micro},
    {"bench schedule", run_bench_schedule},
    {"bench memory", run_bench_memory},
    {"plot", run_plot},
    {"tokenize", run_tokenize},
    {"detokenize", run_detokenize},
    {"model info", run_model_info},
    {"model check", run_model_check},
    {"model pair", run_model_pair},
    {"model init-random", run_model_init_random},
    {"model quantize", run_model_quantize},
    {"model compare", run_model_compare},
    {"draft distil", run_draft_distil},
    {"config show", run_config_show},
    {"config check", run_config_check},
    {"config init", run_config_init},
    {"config schema", run_config_schema},
    {"config new-key", run_config_new_key},
    {"import-triton", run_import_triton},
    {"doctor", run_doctor},
    {"version", run_version},
    {"completion", run_completion},
};

// The verbs whose only folder is a model's, here.
bool reads_a_model(std::string_view verb) {
  return verb == "model info" || verb == "model check" || verb == "model pair" ||
         verb == "tokenize" || verb == "detokenize" || verb == "draft distil";
}

// A full disk or a closed pipe must not look like success.
int checked_output(int exit_code) {
  if (std::cout.flush() || exit_code != kExitOk) return exit_code;
  std::cerr << "error: could not write to standard output\n";
  return kExitFailed;
}

}  // namespace

int main(int argc, char** argv) {
  const PaintedErrors painted(std::cerr);
  std::string verb;
  try {
    int exit_code = kExitOk;
    const auto options = parse_options(argc, argv, &exit_code);
    if (!options) return exit_code;
    verb = options->verb;
    for (const auto& [name, run] : kVerbs)
      if (name == options->verb) return checked_output(run(*options));
    std::cerr << "error: no verb " << options->verb << "\n";
    return kExitUsage;
  } catch (const foretoken::FatalError& error) {
    const int code = report_error({error.code(), error.what()});
    if (error.code() != foretoken::ErrorCode::kIo) return code;
    // A folder that cannot be read is, for these verbs, a model that is missing; for the others it
    // is the runtime folder.
    return reads_a_model(verb) ? kExitModel : kExitEnvironment;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return kExitFailed;
  }
}
