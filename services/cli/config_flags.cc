// Verbs on the configuration and on this machine.
#include "services/cli/flag_checks.h"
#include "services/cli/verb_flags.h"

namespace foretoken::cli {

void add_config_flags(VerbFlags& flags) {
  CLI::App* config =
      flags.app().add_subcommand("config", "the configuration: show, check, init, schema, new-key");
  config->footer(
      "Examples:\n  foretoken config show --origin\n  foretoken config init -o foretoken.toml");
  config->require_subcommand(1);
  CLI::App* show =
      flags.verb(config, "show", "every value in force", "  foretoken config show --origin\n");
  show->add_flag("--origin", flags.options().config_origin, "where each value comes from");
  flags.verb(config, "check", "report every error",
             "  foretoken config check --config foretoken.toml\n");
  CLI::App* new_key = flags.verb(config, "new-key", "write a CURVE key pair; print the public half",
                                 "  foretoken config new-key -o /etc/foretoken/draft-0.key\n");
  new_key
      ->add_option("-o,--out", flags.options().config_out,
                   "file for the pair, readable by its owner alone; must not exist")
      ->required();
  CLI::App* init = flags.verb(config, "init", "print a file with every key and its default",
                              "  foretoken config init -o foretoken.toml\n");
  init->add_option("-o,--out", flags.options().config_out, "write it here; must not exist");
  CLI::App* schema = flags.verb(
      config, "schema", "print a JSON Schema of the file, for editors of TOML",
      "  foretoken config schema -o foretoken.schema.json\n"
      "  sed -i '1i #:schema ./foretoken.schema.json' foretoken.toml   # Taplo finds it so\n");
  schema->add_option("-o,--out", flags.options().config_out,
                     "write it here, in place of an older one");
  flags
      .verb(&flags.app(), "import-triton",
            "print the configuration that Triton's config.pbtxt files come to, and what they leave "
            "out",
            "  foretoken import-triton tensorrt_llm/config.pbtxt > foretoken.toml\n"
            "  foretoken import-triton repository/*/config.pbtxt\n")
      ->add_option("files", flags.options().files, "config.pbtxt of the models of one pipeline")
      ->required();
  flags.json(flags.verb(&flags.app(), "doctor",
                        "is this machine fit: CPU, memory, limits, ports, keys, models",
                        "  foretoken doctor\n"));
  flags.json(flags.verb(&flags.app(), "version", "version, compiler, libraries, instruction set",
                        "  foretoken version --json\n"));
  flags
      .verb(&flags.app(), "completion", "what a shell reads to complete this command at Tab",
            "  source <(foretoken completion bash)\n"
            "  foretoken completion zsh > ~/.zfunc/_foretoken\n")
      ->add_option("shell", flags.options().shell, "bash, zsh or fish")
      ->required()
      ->check(one_of({"bash", "zsh", "fish"}));
}

}  // namespace foretoken::cli
