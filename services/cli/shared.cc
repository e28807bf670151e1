// What verbs share: configuration, errors, requests from flags, the machine.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <thread>

#include "common/base/json.h"
#include "common/config/check.h"
#include "common/config/describe.h"
#include "services/cli/verbs.h"
#include "services/cli/voice.h"

namespace foretoken::cli {

namespace {

// The configuration has no flags: what it says about "--set model.dtype" is about the --dtype
// that a user typed. And inproc:// is for tests, within one process.
std::string in_words_of_flags(std::string sentence, const ConfigOptions& options) {
  for (const auto& [key, flag] : options.flags)
    if (const std::string prefix = "--set " + key + ": "; sentence.starts_with(prefix))
      sentence = flag + ": " + sentence.substr(prefix.size());
  constexpr std::string_view kWithTests = "ipc://NAME, tcp://ADDRESS:PORT or inproc://NAME";
  if (const auto at = sentence.find(kWithTests); at != std::string::npos)
    sentence.replace(at, kWithTests.size(), "tcp://ADDRESS:PORT or ipc://NAME");
  return sentence;
}

// The file, and each value that is not the default, with where it comes from.
void say_configuration(const LoadedConfig& loaded) {
  say_detail("configuration: " + (loaded.file.empty() ? "no file" : loaded.file));
  std::istringstream lines(print_config(loaded));
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    const auto comment = line.rfind("# ");
    if (line.starts_with('['))
      section = line.substr(1, line.size() - 2);
    else if (comment != std::string::npos && comment > 0 && !line.ends_with("# default"))
      say_detail("  " + section + "." +
                 line.substr(0, line.find_last_not_of(' ', comment - 1) + 1) + "  (" +
                 line.substr(comment + 2) + ")");
  }
}

// An error of a value says what the value may be; an error of a name cannot list all names.
bool is_about_a_name(const std::string& sentence) {
  return sentence.find(": unknown ") != std::string::npos;
}

}  // namespace

std::optional<LoadedConfig> load_configuration(const ConfigOptions& options) {
  ConfigSources sources;
  if (!options.file.empty()) sources.file = options.file;
  sources.environment = process_environment();
  sources.settings = options.sets;
  LoadedConfig loaded = load_config(sources);
  for (const auto& error : loaded.errors)
    std::cerr << "error: " << in_words_of_flags(error, options) << "\n";
  if (std::ranges::any_of(loaded.errors, is_about_a_name))
    std::cerr << "  try: foretoken config init, which shows every key with its default\n";
  if (!loaded.errors.empty()) return std::nullopt;
  if (is_verbose()) say_configuration(loaded);
  return loaded;
}

void print_warnings(const LoadedConfig& loaded) {
  for (const std::string& sentence : warnings_about(loaded))
    std::cerr << "warning: " << sentence << "\n";
}

int exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUnavailable:
    case ErrorCode::kDraining:
      return kExitUnreachable;
    case ErrorCode::kModelNotFound:
    case ErrorCode::kNotFound:
    case ErrorCode::kMalformed:
    case ErrorCode::kUnsupportedModel:
    case ErrorCode::kIncompatible:
      return kExitModel;
    case ErrorCode::kDeadlineExceeded:
      return kExitDeadline;
    case ErrorCode::kOutOfMemory:
      return kExitEnvironment;
    case ErrorCode::kConfig:
    case ErrorCode::kInvalidRequest:
    case ErrorCode::kInvalidValue:
    case ErrorCode::kUnsupportedParameter:
    case ErrorCode::kContextLengthExceeded:
      return kExitUsage;
    case ErrorCode::kCancelled:
      return kExitInterrupted;
    default:
      return kExitFailed;
  }
}

int report_error(const Error& error) {
  std::cerr << "error: " << error.message << "\n";
  if (!error.param.empty()) std::cerr << "  in: " << error.param << "\n";
  if (error.code == ErrorCode::kUnavailable)
    std::cerr << "  try: foretoken up --detach, then foretoken ps\n";
  return exit_code_of(error.code);
}

Result<wire::ClientRequest> request_from(const RequestOptions& options) {
  wire::ClientRequest request = options.request;
  request.timeout_ms = static_cast<std::uint32_t>(options.timeout_s * 1000);
  if (options.no_spec) request.num_draft_tokens = 0;
  if (request.proposer.contains(ProposerKind::kPrediction) && request.prediction.empty())
    return Error{ErrorCode::kInvalidValue,
                 "the prediction proposer has nothing to guess from: give it the expected answer",
                 "--prediction"};
  // As a router reads it. The request itself leaves out what no flag sets.
  SamplingParams params = request.params;
  if (!request.given.contains("max_tokens"))
    params.max_tokens = std::max(kDefaultMaxTokens, params.min_tokens);
  if (auto valid = validate(params, 0); !valid.ok()) return valid.error();
  return request;
}

std::vector<wire::ChatMessage> chat_messages(const std::string& system, const std::string& user) {
  std::vector<wire::ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", system});
  messages.push_back({"user", user});
  return messages;
}

std::string machine_description() {
  std::ifstream info("/proc/cpuinfo");
  std::string model = "unknown CPU";
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    if (const auto colon = line.find(": "); colon != std::string::npos)
      model = line.substr(colon + 2);
    break;
  }
  return std::to_string(std::thread::hardware_concurrency()) + " x " + model;
}

bool stdout_is_terminal() { return ::isatty(1) != 0; }
bool stderr_is_terminal() { return ::isatty(2) != 0; }

std::string read_all_of_stdin() { return {std::istreambuf_iterator<char>(std::cin), {}}; }

}  // namespace foretoken::cli
