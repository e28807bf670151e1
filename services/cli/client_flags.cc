// Verbs that ask a model, or its tokenizer, for something.
#include <limits>

#include "services/cli/flag_checks.h"
#include "services/cli/request_flags.h"
#include "services/cli/verb_flags.h"

namespace foretoken::cli {
namespace {

void add_run(VerbFlags& flags) {
  CLI::App* run =
      flags.verb(&flags.app(), "run", "ask a file of requests, write a file of their answers",
                 "  foretoken run prompts.jsonl -o answers.jsonl -t 0 -n 256\n"
                 "  foretoken run batch.jsonl --concurrency 32   # again: goes on\n");
  run->add_option("file", flags.options().run.file,
                  "a request a line: {\"prompt\" or \"messages\": ...} with the keys of a "
                  "client, or OpenAI's batch form {\"custom_id\", \"url\", \"body\"}")
      ->required();
  run->add_option(
      "-o,--out", flags.options().run.out,
      "the answers, in the same order; default: the file's name, without a .jsonl at its "
      "end, and .answers.jsonl");
  run->add_option("--concurrency", flags.options().run.concurrency, "requests at a time")
      ->check(whole(1, 1024))
      ->capture_default_str();
  run->add_flag("--retry-failed", flags.options().run.retry_failed,
                "ask lines again that failed in an earlier run");
  run->add_flag("--metrics", flags.options().run.metrics,
                "times and speculation in the answers, which differ from run to run");
  flags.request(run, {"n", "request_id"});
  flags.json(run);
  flags.quiet(run);
}

}  // namespace

void add_client_flags(VerbFlags& flags) {
  CLI::App* generate =
      flags.verb(&flags.app(), "generate", "complete a prompt; reads stdin if there is none",
                 "  foretoken generate \"Once upon a time\" -n 64\n"
                 "  foretoken generate --json --seed 7 -t 0.8 \"Once\" | jq .metrics\n");
  generate->add_option("prompt", flags.options().request.prompt, "the prompt");
  generate->add_option("--system", flags.options().request.system,
                       "system message (implies the chat template)");
  generate->add_flag("--raw", flags.options().request.raw,
                     "the prompt as it is, without the chat template");
  generate->add_option("--messages", flags.options().request.messages_file,
                       "file with a conversation instead of a prompt, as JSON: [{\"role\", "
                       "\"content\"}, ...]; - is standard input");
  generate
      ->add_option("--token-ids", flags.options().request.request.token_ids,
                   "token ids instead of a prompt, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole(0, std::numeric_limits<TokenId>::max()))
      ->type_name("ID,ID,...");
  generate->add_flag("--no-stream", flags.options().request.no_stream, "print when it is complete");
  flags.request(generate, {});
  flags.json(generate);
  flags.quiet(generate);
  CLI::App* chat =
      flags.verb(&flags.app(), "chat", "talk in the terminal; /help shows what it understands",
                 "  foretoken chat\n  foretoken chat --system \"Answer briefly.\" -t 0\n");
  chat->add_option("--system", flags.options().request.system, "system message");
  chat->add_flag("--no-history", flags.options().no_history, "keep no file of what is typed");
  flags.request(chat, kNotInChat);
  flags.quiet(chat);
  add_run(flags);
  CLI::App* tokenize = flags.verb(&flags.app(), "tokenize", "text to token ids",
                                  "  foretoken tokenize \"Hello\" --model models/demo-target\n");
  tokenize->add_option("text", flags.options().tokenize.text, "the text; stdin if absent");
  tokenize->add_option("--model", flags.options().tokenize.model,
                       "model folder (default: the configured target)");
  tokenize->add_flag("--no-special", flags.options().tokenize.no_special,
                     "without BOS and the like");
  flags.json(tokenize);
  CLI::App* detokenize = flags.verb(&flags.app(), "detokenize", "token ids to text",
                                    "  foretoken detokenize 2630 --model models/demo-target\n");
  detokenize->add_option("ids", flags.options().tokenize.ids, "token ids")
      ->required()
      ->check(whole(0, 0x7fffffff));
  detokenize->add_option("--model", flags.options().tokenize.model,
                         "model folder (default: the configured target)");
  flags.json(detokenize);
}

}  // namespace foretoken::cli
