// Verbs that measure, and those that show what was measured.
#include <string>

#include "services/cli/flag_checks.h"
#include "services/cli/plot_script.h"
#include "services/cli/request_flags.h"
#include "services/cli/verb_flags.h"

namespace foretoken::cli {
namespace {

// What is asked, of whom, and where the result goes: of all that put load on a system.
void add_load(VerbFlags& flags, CLI::App* sub) {
  BenchLoadOptions& load = flags.options().bench_load;
  sub->add_option("--num-prompts", load.n_prompts, "requests")
      ->check(whole(1, 100'000))
      ->capture_default_str();
  sub->add_option("-n,--output-len,--max-tokens", load.output_len, "tokens per answer")
      ->check(whole(1, kMostTokens))
      ->capture_default_str();
  sub->add_option("--dataset", load.dataset,
                  "prompts.json, ShareGPT's JSON, OpenAI's JSONL, or random: words of the demo "
                  "prompts in any order (over ZeroMQ); default: the demo prompts");
  sub->add_option("--input-len", load.input_len, "tokens of each random prompt; default: 512")
      ->check(whole(1, kMostTokens));
  sub->add_flag("--unique-prompts", load.unique_prompts,
                "begin each prompt with the seed and a number of its own, so that none finds the "
                "beginning of another in the cache");
  sub->add_flag("--http", load.http,
                "over HTTP, at edge.host and edge.port, and not over ZeroMQ; "
                "$FORETOKEN_API_KEY is its key");
  sub->add_option("--url", load.url,
                  "over HTTP, at http://HOST:PORT: any server of OpenAI's chat completions; "
                  "$OPENAI_API_KEY is its key");
  sub->add_option("--out", load.out, "also write the JSON here");
  flags.request(sub, {"max_tokens", "ignore_eos", "logprobs", "prompt_logprobs", "request_id",
                      "add_special_tokens", "add_generation_prompt", "n"});
  flags.json(sub);
  flags.quiet(sub);
}
void add_compare(VerbFlags& flags, CLI::App* sub) {
  sub->add_flag("--compare", flags.options().bench_load.compare,
                "the same load plain, speculative, speculative, plain; the ratio, and whether "
                "the texts are equal");
}

void add_serve(VerbFlags& flags, CLI::App* bench) {
  CLI::App* serve =
      flags.verb(bench, "serve", "load on a running system: throughput, latencies, acceptance",
                 "  foretoken bench serve --concurrency 4 --num-prompts 32\n"
                 "  foretoken bench serve --compare --concurrency 1\n"
                 "  foretoken bench serve --concurrency 1,2,4,8 --goodput ttft:500,tpot:50\n"
                 "  foretoken bench serve --http --request-rate 2 --dataset sharegpt.json\n");
  add_compare(flags, serve);
  serve
      ->add_option("--concurrency", flags.options().bench_load.concurrency,
                   "requests at a time; default: 4, or no bound with --request-rate; several "
                   "numbers, by commas: a run with each")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole(1, 4096))
      ->type_name("INT,INT,...");
  serve
      ->add_option("--request-rate", flags.options().bench_load.request_rate,
                   "open loop: requests arrive so many a second (Poisson); 0 = the next one "
                   "when one ends")
      ->check(number(from_to(0, 10000)));
  serve
      ->add_option("--goodput", flags.options().bench_load.goodput,
                   "also count requests that keep these limits, in milliseconds: "
                   "ttft:500,tpot:50; ttft, tpot, e2el")
      ->type_name("NAME:MS,...");
  add_load(flags, serve);
}

void add_alone(VerbFlags& flags, CLI::App* bench) {
  CLI::App* latency =
      flags.verb(bench, "latency", "one request at a time: each of its times, and by kind of text",
                 "  foretoken bench latency\n"
                 "  foretoken bench latency --compare --http -n 64\n");
  add_compare(flags, latency);
  add_load(flags, latency);
  CLI::App* acceptance =
      flags.verb(bench, "acceptance",
                 "one request at a time: accepted guesses by kind of text and by position",
                 "  foretoken bench acceptance\n"
                 "  foretoken bench acceptance --fixed --draft-len 8 --num-prompts 100 -t 0.8\n");
  add_load(flags, acceptance);
}

void add_schedule(VerbFlags& flags, CLI::App* bench) {
  BenchScheduleOptions& chosen = flags.options().bench_schedule;
  CLI::App* schedule = flags.verb(
      bench, "schedule",
      "what guessing brings where only times count: real processes around timed mock models",
      "  foretoken bench schedule --target-ms 6 --cost 0.05 --acceptance 0.8 --rtt-ms 5\n"
      "  foretoken bench schedule --sweep --cost 0.1 --plot never_slower.svg\n");
  const auto a_number = [&](const char* name, double& value, const char* help, double most) {
    return schedule->add_option(name, value, help)
        ->check(number(from_to(0, most)))
        ->capture_default_str();
  };
  ScheduleConditions& conditions = chosen.conditions;
  schedule->add_option("--target-ms", conditions.target_ms, "T: a pass of the target over one row")
      ->check(number(from_to(0.1, 1000)))
      ->capture_default_str();
  a_number("--cost", conditions.cost, "c: a pass of the draft, of T", 10);
  CLI::Option* acceptance = a_number("--acceptance", conditions.acceptance,
                                     "a: share of the draft's tokens that are the target's", 1);
  a_number("--rtt-ms", conditions.rtt_ms,
           "delay of what target and draft say to each other, there and back; 0 = no relay", 1000);
  schedule->add_flag("--synchronous", conditions.synchronous,
                     "the draft answers questions alone (draft.run_ahead off), on cores of its "
                     "own too");
  schedule
      ->add_option("--branches", conditions.branches,
                   "texts that a draft which runs ahead goes on with beside its chain "
                   "(draft.branches)")
      ->check(whole(0, 16))
      ->capture_default_str();
  CLI::Option* sequences =
      schedule->add_option("--sequences", chosen.sequences, "B: answers at a time")
          ->check(whole(1, 64))
          ->capture_default_str();
  schedule->add_option("--tokens", chosen.tokens, "length of each answer")
      ->check(whole(2, 4096))
      ->capture_default_str();
  schedule
      ->add_option("--repeats", chosen.repeats,
                   "pairs of runs, each of other texts; medians are reported")
      ->check(whole(1, 100))
      ->capture_default_str();
  CLI::Option* same_cores = schedule->add_flag_callback(
      "--same-cores", [&conditions] { conditions.cores = Cores::kShared; },
      "a pass of the one waits for that of the other; the draft answers questions alone");
  CLI::Option* kill_draft =
      schedule->add_flag("--kill-draft", chosen.kill_draft,
                         "kill the draft before what is counted, and start none again");
  CLI::Option* sweep =
      schedule->add_flag("--sweep", chosen.sweep,
                         "1 to 64 answers at a time, acceptances from 0 to 1, own cores and same "
                         "cores: is it ever slower than plain?");
  for (CLI::Option* other : {acceptance, sequences, same_cores, kill_draft}) sweep->excludes(other);
  schedule
      ->add_option("--plot", chosen.plot,
                   "a picture of the sweep, drawn by gnuplot: FILE.svg or FILE.png")
      ->needs(sweep);
  schedule->add_option("--out", chosen.out, "also write the JSON here");
  flags.json(schedule);
  flags.quiet(schedule);
}

void add_memory(VerbFlags& flags, CLI::App* bench) {
  CLI::App* memory = flags.verb(
      bench, "memory",
      "a memory of texts against a corpus: tokens per second, bytes, look-ups, accepted guesses",
      "  foretoken bench memory FOLDER\n"
      "  foretoken bench memory FOLDER --tokens 1000000 --model FOLDER\n");
  memory
      ->add_option("CORPUS", flags.options().bench_memory.corpus,
                   "a folder, of which each file of text is a document; every twentieth is not "
                   "taken in, but looked up")
      ->required();
  memory
      ->add_option("--tokens", flags.options().bench_memory.tokens,
                   "read files until there are so many")
      ->check(whole(1000, 1'000'000'000))
      ->capture_default_str();
  memory->add_option("--model", flags.options().bench_memory.model,
                     "a folder with the tokenizer; default: model.target");
  memory->add_option("--out", flags.options().bench_memory.out, "also write the JSON here");
  flags.json(memory);
  flags.quiet(memory);
}

}  // namespace

void add_bench_flags(VerbFlags& flags) {
  CLI::App* demo = flags.verb(&flags.app(), "demo",
                              "the same text twice, plain and speculative, timed and compared",
                              "  foretoken demo\n  foretoken demo --json | jq .speedup\n");
  demo->add_option("-n,--max-tokens", flags.options().demo.max_tokens, "tokens per text")
      ->check(whole(1, kMostTokens))
      ->capture_default_str();
  demo->add_option("--repeat", flags.options().demo.repeat,
                   "passes over the prompts; medians are reported")
      ->check(whole(1, 100))
      ->capture_default_str();
  demo->add_option("--model", flags.options().demo.model,
                   "the model to ask, where several are served")
      ->type_name(kModelName);
  demo->add_option("-k,--draft-len", flags.options().demo.num_draft_tokens,
                   "most guessed tokens per round")
      ->check(whole(1, 32));
  flags.host(demo);
  flags.json(demo);
  flags.quiet(demo);
  CLI::App* bench = flags.app().add_subcommand(
      "bench", "measure: serve, latency, acceptance, compare, micro, schedule, memory");
  bench->footer(
      "Examples:\n  foretoken bench serve --compare --concurrency 1\n  foretoken bench "
      "acceptance");
  bench->require_subcommand(1);
  add_serve(flags, bench);
  add_alone(flags, bench);
  CLI::App* compare =
      flags.verb(bench, "compare", "two runs of bench: what the second gained, same answers or not",
                 "  foretoken bench compare plain.json speculative.json\n"
                 "  foretoken bench compare both.json      # of bench serve --compare --out\n");
  flags.bench_files(compare);
  flags.json(compare);
  CLI::App* plot =
      flags.verb(&flags.app(), "plot", "pictures of runs of bench, drawn by gnuplot",
                 "  foretoken plot --kind latency plain.json speculative.json\n"
                 "  foretoken plot --kind speedup -o speedup.svg k0.json k2.json k4.json\n");
  flags.bench_files(plot);
  plot->add_option("--kind", flags.options().bench_files.kind,
                   "speedup: over plain decoding, by the length of guesses; acceptance: by "
                   "position; latency: distributions of the first token and of gaps; timeline: "
                   "the requests of one run")
      ->check(one_of({std::begin(kPlotKinds), std::end(kPlotKinds)}))
      ->capture_default_str();
  plot->add_option("-o,--out", flags.options().bench_files.out,
                   "NAME: NAME.svg and NAME.png; or one of them by its ending; default: the kind");
  CLI::App* micro = flags.verb(
      bench, "micro", "kernels against the machine: bandwidth, decode, verify, prefill, attention",
      "  foretoken bench micro\n"
      "  foretoken bench micro --model FOLDER --threads 1,2\n");
  micro->add_option("--rounds", flags.options().bench_micro.rounds, "repeats; medians are reported")
      ->check(whole(1, 100))
      ->capture_default_str();
  micro->add_option(
      "--model", flags.options().bench_micro.model,
      "a folder: layers of its shape, at most as many as it has; default: a 1B Llama's");
  micro
      ->add_option("--threads", flags.options().bench_micro.threads,
                   "numbers of threads, by commas: everything with each; 0 = physical cores")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole(0, 256))
      ->capture_default_str();
  micro
      ->add_option("--contexts", flags.options().bench_micro.contexts,
                   "positions that attention sees, by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole(1, 131072))
      ->capture_default_str();
  micro->add_option("--out", flags.options().bench_micro.out, "also write the JSON here");
  flags.json(micro);
  flags.quiet(micro);
  add_schedule(flags, bench);
  add_memory(flags, bench);
}

}  // namespace foretoken::cli
