// Verbs on model folders, and those that make a draft.
#include <limits>
#include <string>

#include "services/cli/flag_checks.h"
#include "services/cli/verb_flags.h"

namespace foretoken::cli {

void add_model_flags(VerbFlags& flags) {
  CLI::App* model = flags.app().add_subcommand(
      "model", "model folders: info, check, pair, init-random, quantize, compare");
  model->footer(
      "Examples:\n  foretoken model check models/demo-target\n  foretoken model pair "
      "models/demo-draft models/demo-target");
  model->require_subcommand(1);
  ModelOptions& m = flags.options().model;
  CLI::App* info = flags.verb(model, "info", "architecture, sizes, memory",
                              "  foretoken model info models/demo-target\n");
  info->add_option("folder", m.folder, "Hugging Face folder")->required();
  flags.dtype_flag(info);
  flags.json(info);
  CLI::App* check = flags.verb(model, "check", "can it be loaded, and why not",
                               "  foretoken model check models/demo-target\n");
  check->add_option("folder", m.folder, "Hugging Face folder")->required();
  flags.dtype_flag(check);
  flags.json(check);
  CLI::App* pair = flags.verb(model, "pair", "do a draft and a target belong together",
                              "  foretoken model pair models/demo-draft models/demo-target\n");
  pair->add_option("draft", m.folder, "draft folder, or self:int4: the target in four bits")
      ->required();
  pair->add_option("target", m.other, "target folder")->required();
  flags.json(pair);
  CLI::App* random = flags.verb(
      model, "init-random", "write a folder of random weights, the same bytes every time",
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
  flags.json(random);
  CLI::App* quantize =
      flags.verb(model, "quantize",
                 "write a folder with the linears in eight or four bits, and compare the logits",
                 "  foretoken model quantize models/demo-target target-int8 --to int8\n");
  quantize->add_option("folder", m.folder, "Hugging Face folder with float weights")->required();
  quantize->add_option("out", m.other, "where to write; must not exist")->required();
  quantize->add_option("--to", m.to, "int8 or int4 (for CPUs), or fp8 (for GPUs)")
      ->required()
      ->check(one_of({"int8", "int4", "fp8"}));
  quantize
      ->add_option("--group", m.group,
                   "int4: weights that share a scale; default: 32, in models of more than 1e9 "
                   "parameters the largest of 128, 64 and 32 that divides their rows")
      ->check(one_of({"32", "64", "128"}));
  quantize->add_flag(
      "--down-proj", m.down_proj,
      "int4: the down projections in four bits too, not in eight: smaller, and more is lost");
  quantize->add_option("--calibrate", m.calibrate,
                       "int4: text file of at most 1 MiB, such as the model will read; scales are "
                       "then chosen for "
                       "what the model makes of it, 512 to 8192 tokens");
  quantize->add_flag("--lm-head", m.lm_head,
                     "an untied head too; other engines expect it in 16 bits");
  quantize->add_option("--text", m.text,
                       "text file to compare the logits on; default: a built-in page");
  quantize->add_flag_callback(
      "--no-compare", [&m] { m.compare = false; },
      "do not load both folders to compare their logits");
  flags.json(quantize);
  flags.quiet(quantize);
  CLI::App* compare = flags.verb(
      model, "compare", "what another type of weights in memory does to the logits of a folder",
      "  foretoken model compare models/demo-target --dtype int4\n");
  compare->add_option("folder", m.folder, "Hugging Face folder")->required();
  compare->add_option("--dtype", m.dtype, "float32, bfloat16, float16, int8 or int4")
      ->required()
      ->check(one_of({"float32", "bfloat16", "float16", "int8", "int4"}));
  compare->add_option("--text", m.text,
                      "text file to compare the logits on; default: a built-in page");
  flags.json(compare);
}

void add_draft_flags(VerbFlags& flags) {
  CLI::App* draft = flags.app().add_subcommand("draft", "drafts: distil");
  draft->footer("Examples:\n  foretoken draft distil models/big --out models/big-draft");
  draft->require_subcommand(1);
  DistilOptions& d = flags.options().distil;
  CLI::App* distil = flags.verb(
      draft, "distil",
      "train a small draft for a target on what the target writes: collect, train, check; again: "
      "goes on",
      "  foretoken draft distil models/big --out models/big-draft --prompts prompts.txt\n"
      "  foretoken draft distil models/big --out models/big-draft --hours 2 --python "
      "venv/bin/python\n");
  distil->add_option("TARGET", d.target, "Hugging Face folder of the target")->required();
  distil->add_option("-o,--out", d.out, "the draft's folder; what is unfinished is in its work/")
      ->required();
  distil->add_option("--prompts", d.prompts,
                     "a prompt a line, or a JSON object with prompt or messages; default: what "
                     "the target begins with by itself");
  distil->add_option("--tokens", d.tokens, "tokens of answers to collect")
      ->check(whole(1000, 1'000'000'000))
      ->capture_default_str();
  distil->add_option("--answer-tokens", d.answer_tokens, "longest answer")
      ->check(whole(8, 8192))
      ->capture_default_str();
  distil
      ->add_option("--top", d.top,
                   "likeliest tokens to learn from, of each that was written; 0: that one alone")
      ->check(whole(0, 20))
      ->capture_default_str();
  distil->add_option("--shape", d.shape, "hidden size x layers; a multiple of 32")
      ->capture_default_str();
  distil->add_option("--head", d.head, "ids that the draft can guess: the most frequent ones")
      ->check(whole(64, 1'000'000))
      ->capture_default_str();
  distil->add_option("--passes", d.passes, "times that training goes through the text")
      ->check(number(from_to(0.01, 1000)))
      ->capture_default_str();
  distil->add_option("--hours", d.hours, "end training after so long; 0: when the passes are over")
      ->check(number(from_to(0, 1000)))
      ->capture_default_str();
  distil->add_option("--context", d.context, "longest sequence of the draft")
      ->check(whole(64, kMostPositions))
      ->capture_default_str();
  distil->add_option("--dtype", d.dtype, "weights of the target while it writes, as model.dtype")
      ->check(one_of({"auto", "float32", "bfloat16", "float16", "int8", "int4"}))
      ->capture_default_str();
  distil->add_option("--concurrency", d.concurrency, "answers at a time")
      ->check(whole(1, 1024))
      ->capture_default_str();
  distil->add_option("--threads", d.threads, "training processes, four at most; 0 = cores")
      ->check(whole(0, 256))
      ->capture_default_str();
  distil->add_option("--seed", d.seed, "of texts and training")
      ->check(whole(0, 1'000'000'000))
      ->capture_default_str();
  distil->add_option("--python", d.python, "Python 3 with torch, numpy and safetensors")
      ->capture_default_str();
  flags.quiet(distil);
  flags.host(distil);
  distil->get_option("--host")->description(
      "a running system to ask, as for run, that serves the weights of TARGET; default: one is "
      "started");
}

}  // namespace foretoken::cli
