// What each verb does: options in, exit code out. Data goes to stdout, everything else to stderr.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/config/load.h"
#include "common/messages/client.h"
#include "common/tokenizer/tokenizer.h"
#include "services/cli/options.h"

namespace foretoken::cli {

int run_up(const CliOptions& options);
int run_down(const CliOptions& options);
int run_ps(const CliOptions& options);
int run_top(const CliOptions& options);
int run_trace(const CliOptions& options);
int run_metrics(const CliOptions& options);
int run_generate(const CliOptions& options);
int run_chat(const CliOptions& options);
int run_run(const CliOptions& options);
int run_demo(const CliOptions& options);
int run_bench_serve(const CliOptions& options);
int run_bench_latency(const CliOptions& options);
int run_bench_acceptance(const CliOptions& options);
int run_bench_compare(const CliOptions& options);
int run_plot(const CliOptions& options);
int run_bench_micro(const CliOptions& options);
int run_bench_schedule(const CliOptions& options);
int run_bench_memory(const CliOptions& options);
int run_tokenize(const CliOptions& options);
int run_detokenize(const CliOptions& options);
int run_model_info(const CliOptions& options);
int run_model_check(const CliOptions& options);
int run_model_pair(const CliOptions& options);
int run_model_init_random(const CliOptions& options);
int run_model_quantize(const CliOptions& options);
int run_model_compare(const CliOptions& options);
int run_draft_distil(const CliOptions& options);
int run_config_show(const CliOptions& options);
int run_config_check(const CliOptions& options);
int run_config_new_key(const CliOptions& options);
int run_config_init(const CliOptions& options);
int run_config_schema(const CliOptions& options);
int run_import_triton(const CliOptions& options);
int run_doctor(const CliOptions& options);
int run_version(const CliOptions& options);
int run_completion(const CliOptions& options);

// --- what verbs share
// -------------------------------------------------------------------------------------------

// The configuration in force. Prints all errors and returns nothing if there are any.
std::optional<LoadedConfig> load_configuration(const ConfigOptions& options);

// The tokenizer of a folder, or of the only configured model where it is empty. Throws FatalError.
std::unique_ptr<Tokenizer> tokenizer_of(std::string folder, const ConfigOptions& config);

// On stderr: what is allowed and hardly does what was meant.
void print_warnings(const LoadedConfig& loaded);

// Every value in force, as a configuration file would hold it.
std::string config_without_origins(const LoadedConfig& loaded);

// Prints "error: ..." with its second and third line, and returns the exit code that belongs to the
// error.
int report_error(const Error& error);
int exit_code_of(ErrorCode code);

// A request as the flags say; the prompt is left to the verb. Refuses contradictions.
Result<wire::ClientRequest> request_from(const RequestOptions& options);
// [{"role": "system", ...}, {"role": "user", ...}] as JSON.
std::vector<wire::ChatMessage> chat_messages(const std::string& system, const std::string& user);

// Whether a draft fits a target, in sentences: what keeps them apart, and what should be known.
// Throws FatalError where a folder cannot be read, or the target's cannot be a target's.
struct PairReport {
  std::vector<std::string> refusals = {}, warnings = {};
  double cost = 0;  // bytes that a draft step reads, of those of a target step
};
PairReport report_on_pair(const std::string& draft_folder, const std::string& target_folder);

// Throws FatalError where the folder of model.target is here and has a head for some ids only, in
// the words of the service that would load it.
void refuse_draft_as_target(const ModelSection& model);

// "2 x Intel(R) Xeon(R) Processor", for reports.
std::string machine_description();

// Writes `text` into a file beside `path` and moves it there: afterwards the file is whole, or as
// it was before, a full disk included. kKeep: an existing one stays, and that is an error
// (kConfig). Errors blame --out.
enum class Existing { kReplace, kKeep };
Result<void> write_whole_file(const std::string& path,
                              std::string_view text,
                              Existing existing,
                              unsigned mode = 0666);

// What write_whole_file would say of a path that cannot be written, before there is a text: for
// verbs that measure or wait first. Nothing of it is left. An empty path is none. Errors blame
// `flag`.
Result<void> check_writable(const std::string& path, const std::string& flag);

bool stdout_is_terminal();
bool stderr_is_terminal();
std::string read_all_of_stdin();

}  // namespace foretoken::cli
