// draft distil: the work is done by a Python package of the recipe (models/recipe/distil), which
// has PyTorch; here are its words, checked, and where it lies. Nothing of it is needed for serving.
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/client/client.h"
#include "common/config/resolve.h"
#include "common/model/fingerprint.h"
#include "common/model/head_ids.h"
#include "common/model/pair.h"
#include "common/wire/client_codec.h"
#include "services/cli/verbs.h"
#include "services/cli/voice.h"

namespace foretoken::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kWidthGrain = 32;  // a head's dimension
constexpr auto kStatusTime = std::chrono::seconds(5);

// Of the system that it starts; with the flag that says it, where there is one.
constexpr std::pair<std::string_view, std::string_view> kOwnKeys[] = {
    {"model.target", "TARGET"},
    {"model.draft", ""},
    {"model.dtype", "--dtype"},
    {"model.max_model_len", ""},
    {"limits.max_running", "--concurrency"},
    {"limits.request_timeout_s", ""},
    {"bus.client", ""},
    {"bus.runtime_dir", ""},
    {"edge.port", ""},
    {"speculation.proposer", ""},
    {"speculation.adaptive", ""},
    {"speculation.draft_deadline_ms", ""}};

// Of an installation, or of the sources of a build.
std::string package_folder() {
  const fs::path self = program_folder();
  const fs::path places[] = {self / "../share/foretoken/recipe/distil",
                             self / "../../../models/recipe/distil"};
  std::error_code error;
  for (const fs::path& place : places)
    if (fs::exists(place / "__main__.py", error))
      return fs::weakly_canonical(place, error).string();
  throw FatalError(ErrorCode::kConfig,
                   "draft distil needs its Python files, which are neither in " +
                       places[0].lexically_normal().string() + " nor in " +
                       places[1].lexically_normal().string());
}

// "192x3": 192 wide, three layers.
void check_shape(const std::string& shape) {
  int hidden = 0, layers = 0;
  const char* end = shape.data() + shape.size();
  const auto [cross, wrong] = std::from_chars(shape.data(), end, hidden);
  bool is_shape = wrong == std::errc() && cross != end && *cross == 'x';
  if (is_shape) {
    const auto [last, error] = std::from_chars(cross + 1, end, layers);
    is_shape = error == std::errc() && last == end;
  }
  if (!is_shape || hidden < kWidthGrain || hidden > 4096 || hidden % kWidthGrain != 0 ||
      layers < 1 || layers > 64)
    throw FatalError(ErrorCode::kConfig, "--shape is \"" + shape +
                                             "\"; it must be a width, x and layers, as 192x3: a "
                                             "multiple of 32 from 32 to 4096, and 1 to 64 layers");
}

// What would be overruled in silence. With --host no system is started but for the last check.
void refuse_own_keys(const CliOptions& options, const LoadedConfig& loaded) {
  if (!options.config.host.empty()) return;
  if (!options.config.file.empty())
    throw FatalError(ErrorCode::kConfig,
                     "--config: the system that draft distil starts reads no configuration file; "
                     "--set section.key=value sets single keys of it");
  for (const auto& [key, flag] : kOwnKeys) {
    const auto found = loaded.origin.find(std::string(key));
    if (found == loaded.origin.end() || found->second != "flag") continue;
    throw FatalError(ErrorCode::kConfig, "--set " + std::string(key) +
                                             ": draft distil sets it for the system that it "
                                             "starts" +
                                             (flag.empty() ? "" : "; see " + std::string(flag)));
  }
}

std::string with_fingerprint(const std::string& name, const std::string& fingerprint) {
  return name + " (fingerprint " + fingerprint + ")";
}

// The name under which the system at --host serves the model in `folder`: a draft for it learns
// from its text, and from no other's.
Result<std::string> name_of_served(const BusSection& bus, const std::string& folder) {
  Client client(bus);
  const auto status = client.status(steady_now() + kStatusTime);
  if (!status.ok()) return client.unreachable(status.error());
  say_detail("reads the weights of " + folder + ", to compare them with those served");
  const std::vector<Fingerprint> wanted = fingerprints_of_folder(folder);
  std::string served;
  for (const auto& service : status->services) {
    if (service.role != "target" || service.state != "ready") continue;
    for (const Fingerprint fingerprint : wanted)
      if (service.fingerprint == wire::hex_of(fingerprint)) return service.model;
    const std::string one = with_fingerprint(service.model, service.fingerprint);
    if (served.find(one) == std::string::npos) served += (served.empty() ? "" : ", ") + one;
  }
  if (served.empty())
    return Error{ErrorCode::kUnavailable,
                 "the system at " + client.endpoint() + " has no target that is ready", "--host"};
  return Error{ErrorCode::kIncompatible,
               "the system at " + client.endpoint() + " serves " + served + ", and TARGET is " +
                   with_fingerprint(folder, wire::hex_of(wanted.front())) +
                   ": a draft learns from its own target's text only",
               "--host"};
}

std::vector<std::string> words_of(const CliOptions& options,
                                  const std::string& served,
                                  std::int64_t target_context) {
  const DistilOptions& d = options.distil;
  std::vector<std::string> words{d.python, package_folder() + "/__main__.py"};
  const auto add = [&](const char* flag, const std::string& value) {
    words.insert(words.end(), {flag, value});
  };
  add("--target", fs::absolute(model_folder(d.target, "target")).lexically_normal().string());
  add("--out", fs::absolute(d.out).lexically_normal().string());
  add("--target-context", std::to_string(target_context));
  add("--program", program_folder() + "/foretoken");
  if (!d.prompts.empty()) add("--prompts", fs::absolute(d.prompts).string());
  if (!options.config.host.empty()) {
    add("--host", options.config.host);
    add("--model", served);
  }
  if (!options.config.file.empty()) add("--config", fs::absolute(options.config.file).string());
  for (const std::string& setting : options.config.sets) add("--set", setting);
  add("--tokens", std::to_string(d.tokens));
  add("--answer-tokens", std::to_string(d.answer_tokens));
  add("--top", std::to_string(d.top));
  add("--shape", d.shape);
  add("--head", std::to_string(d.head));
  add("--passes", std::to_string(d.passes));
  add("--hours", std::to_string(d.hours));
  add("--context", std::to_string(d.context));
  add("--dtype", d.dtype);
  add("--concurrency", std::to_string(d.concurrency));
  add("--threads", std::to_string(d.threads));
  add("--seed", std::to_string(d.seed));
  if (options.output.quiet) words.emplace_back("--quiet");
  return words;
}

}  // namespace

int run_draft_distil(const CliOptions& options) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  check_shape(options.distil.shape);
  refuse_own_keys(options, *loaded);
  const std::string folder = model_folder(options.distil.target, "target");
  const ModelConfig config = inspect_model(folder).config;
  refuse_trimmed_head(config, folder, "a target");
  std::string served;
  if (!options.config.host.empty()) {
    auto found = name_of_served(loaded->config.bus, folder);
    if (!found.ok()) return report_error(found.error());
    served = std::move(*found);
  }
  std::vector<std::string> words = words_of(options, served, context_length(config));
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
  ::execvp(arguments.front(), arguments.data());
  const int cause = errno;  // writing may change it
  std::cerr << "error: --python: " << words.front() << " cannot be run: " << std::strerror(cause)
            << "\n";
  return kExitEnvironment;
}

}  // namespace foretoken::cli
