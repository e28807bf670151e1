// The verbs of the command while they are declared to CLI11: what every verb has, and the flags
// that several of them share. The flags of one verb alone are in the functions below, one for each
// group of verbs, which help lists in the order of their calls. Must not know what a verb does, or
// how a line is read (options.cc). Lives while a line is parsed, as the options that it fills.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/cli/options.h"

namespace foretoken::cli {

inline constexpr std::uint64_t kMostTokens = 1'048'576;
// What a folder may say; a float counts no further.
inline constexpr std::uint64_t kMostPositions = 1u << 24;

// A flag that is another word for a configuration key.
struct KeyFlag {
  const char* flags;
  const char* key;
  const char* help;
};

class VerbFlags {
 public:
  explicit VerbFlags(CliOptions& options) : options_(options) {}

  CliOptions& options() { return options_; }
  CLI::App& app() { return app_; }

  CLI::App* verb(CLI::App* parent,
                 const std::string& name,
                 const std::string& does,
                 const std::string& examples);
  // After all verbs, so that help shows what is the verb's own first: the configuration's flags and
  // those of messages.
  void finish();

  void json(CLI::App* sub);
  void quiet(CLI::App* sub);
  CLI::Option* interval(CLI::App* sub);
  // Of a client of the router.
  void host(CLI::App* sub);
  // `without`: keys that the verb decides itself.
  void request(CLI::App* sub, const std::set<std::string_view>& without);
  void bench_files(CLI::App* sub);
  // Of a verb that looks at a folder as it would be loaded.
  void dtype_flag(CLI::App* sub);
  // All flags of `up` that are keys.
  void key_flags(CLI::App* sub);
  // After parsing: keys that the line's flags set become part of the options.
  void apply_keys();

 private:
  CLI::Option* key_flag(CLI::App* sub, const KeyFlag& flag);
  void messages(CLI::App* sub);

  CliOptions& options_;
  std::vector<CLI::App*> verbs_;
  std::vector<std::pair<const KeyFlag*, std::string>> key_values_;
  CLI::App app_{
      "Foretoken: the large model's words, sooner. Speculative decoding as separate services.",
      "foretoken"};
};

void add_service_flags(VerbFlags& flags);
void add_client_flags(VerbFlags& flags);
void add_bench_flags(VerbFlags& flags);
void add_model_flags(VerbFlags& flags);
void add_draft_flags(VerbFlags& flags);
void add_config_flags(VerbFlags& flags);

}  // namespace foretoken::cli
