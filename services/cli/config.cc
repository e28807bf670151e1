// config show, check, init, schema, new-key.
#include <algorithm>
#include <iostream>

#include "common/config/describe.h"
#include "common/config/models.h"
#include "common/config/resolve.h"
#include "common/config/schema.h"
#include "common/transport/zmq_auth.h"
#include "services/cli/verbs.h"
#include "services/cli/voice.h"

namespace foretoken::cli {

// The origins are comments at the ends of lines; without them the text is what a file would hold.
std::string config_without_origins(const LoadedConfig& loaded) {
  const std::string text = print_config(loaded);
  std::string plain;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const auto comment = line.rfind("  # ");
    plain +=
        (comment == std::string::npos ? line
                                      : line.substr(0, line.find_last_not_of(' ', comment) + 1)) +
        "\n";
    at = end + 1;
  }
  return plain;
}

int run_config_show(const CliOptions& options) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  std::cout << (options.config_origin ? print_config(*loaded) : config_without_origins(*loaded));
  return kExitOk;
}

namespace {

// "model chat: chat, gpt-4o-mini; tokenizer-chat-0, target-chat-0, draft-chat-0".
void say_model(const std::string& name, const Config& config) {
  const ModelSection& model = config.model;
  std::cout << "model " << name << ": " << served_model_name(model);
  for (const auto& alias : model.alias) std::cout << ", " << alias;
  std::cout << "; tokenizer-" << name << "-0";
  for (std::uint32_t i = 0; i < model.targets; ++i) std::cout << ", target-" << name << "-" << i;
  for (std::uint32_t i = 0; i < model.drafts && !model.draft.empty(); ++i)
    std::cout << ", draft-" << name << "-" << i;
  if (config.memory.start) std::cout << ", draft-" << name << "-memory";
  std::cout << "\n";
}

// What a folder is good for is said of those that are here: services may run elsewhere.
int refuse_drafts_as_targets(const LoadedConfig& loaded) {
  int code = kExitOk;
  for (const ModelInstances& model : models_of(loaded)) {
    try {
      if (model.config.model.target != "demo") refuse_draft_as_target(model.config.model);
    } catch (const FatalError& error) {
      const std::string section = model.name.empty() ? "model" : "model." + model.name;
      code = report_error({error.code(), error.what(), section + ".target"});
    }
  }
  return code;
}

}  // namespace

int run_config_check(const CliOptions& options) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  print_warnings(*loaded);
  if (const int code = refuse_drafts_as_targets(*loaded); code != kExitOk) return code;
  const auto is_set = [](const auto& origin) {
    return origin.second == "flag" || origin.second == "environment";
  };
  const auto n_set = std::ranges::count_if(loaded->origin, is_set);
  std::cout << painted_out("ok:", Paint::kGood) << " "
            << (loaded->file.empty() ? "no file" : loaded->file)
            << (n_set > 0 ? ", " + std::to_string(n_set) + " set by flag or environment"
                          : std::string(loaded->file.empty() ? ", all defaults" : ""))
            << "\n";
  for (const auto& [name, config] : loaded->models) say_model(name, config);
  return kExitOk;
}

int run_config_new_key(const CliOptions& options) {
  const CurveKeys keys = new_curve_keys();
  // Never readable by others, not even for a moment; never over a key that may be in use.
  if (const auto written =
          write_whole_file(options.config_out, curve_key_file(keys), Existing::kKeep, 0600);
      !written.ok())
    return report_error(written.error());
  std::cout << keys.public_key << "\n";
  return kExitOk;
}

namespace {

// On standard output, or into --out.
int put_out(const std::string& text, const CliOptions& options, Existing existing) {
  if (options.config_out.empty()) {
    std::cout << text;
    return kExitOk;
  }
  if (const auto written = write_whole_file(options.config_out, text, existing); !written.ok())
    return report_error(written.error());
  std::cerr << "wrote " << options.config_out << "\n";
  return kExitOk;
}

}  // namespace

int run_config_init(const CliOptions& options) {
  return put_out(default_config_toml(), options, Existing::kKeep);
}

// Overwrites the file: a schema is generated, and has no changes of a user to lose.
int run_config_schema(const CliOptions& options) {
  return put_out(configuration_schema(), options, Existing::kReplace);
}

}  // namespace foretoken::cli
