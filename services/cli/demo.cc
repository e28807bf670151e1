// demo: the same text twice, plain and speculative, through the running services; timed by this
// client and compared token by token. The baseline is the system's own plain path: same services,
// same kernels, same threads.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>

#include "common/client/answer_json.h"
#include "common/client/client.h"
#include "common/config/resolve.h"
#include "services/cli/ask.h"
#include "services/cli/bench_result.h"
#include "services/cli/prompts.h"
#include "services/cli/verbs.h"
#include "services/cli/voice.h"

namespace foretoken::cli {
namespace {

using namespace std::chrono_literals;
using SteadyClockTime = std::chrono::steady_clock;

// One request, as this client saw it.
struct Run {
  std::vector<TokenId> token_ids;
  std::string text;
  double seconds = 0;  // sending to the last byte
  wire::SpeculativeDecoding speculation;
};

// Sums over the runs of one kind, or of all.
struct Tally {
  std::uint64_t n_tokens = 0;
  std::uint64_t n_differing = 0;  // requests whose tokens were not the same twice
  double plain_seconds = 0;
  double spec_seconds = 0;
  std::uint64_t drafted = 0, accepted = 0, rounds = 0;

  double plain_rate() const {
    return plain_seconds > 0 ? static_cast<double>(n_tokens) / plain_seconds : 0;
  }
  double spec_rate() const {
    return spec_seconds > 0 ? static_cast<double>(n_tokens) / spec_seconds : 0;
  }
  double speedup() const { return spec_seconds > 0 ? plain_seconds / spec_seconds : 0; }
  double acceptance() const {
    return drafted > 0 ? static_cast<double>(accepted) / static_cast<double>(drafted) : 0;
  }
  double tokens_per_round() const {
    return rounds > 0 ? 1 + static_cast<double>(accepted) / static_cast<double>(rounds) : 1;
  }
};

struct Setting {
  const char* name;
  float temperature;
  float top_p;
};
constexpr Setting kSettings[] = {{"greedy", 0.0f, 1.0f}, {"seeded", 0.8f, 0.95f}};
constexpr std::uint64_t kSeed = 20260101;
constexpr std::size_t kPromptsPerKind = 2;

wire::ClientRequest request_for(const DemoPrompt& prompt,
                                const Setting& setting,
                                const CliOptions& options,
                                bool plain) {
  wire::ClientRequest request;
  request.model = options.demo.model;
  request.prompt_kind = wire::PromptKind::kMessages;
  request.messages = prompt.messages;
  request.params.temperature = setting.temperature;
  request.params.top_p = setting.top_p;
  request.params.seed = kSeed;
  request.params.max_tokens = options.demo.max_tokens;
  request.params.ignore_eos = true;  // the same number of tokens for every prompt
  request.given = {"temperature", "top_p", "seed", "max_tokens"};
  request.timeout_ms = 120'000;
  request.stream = true;
  if (plain)
    request.num_draft_tokens = 0;
  else if (options.demo.num_draft_tokens)
    request.num_draft_tokens = static_cast<std::int32_t>(*options.demo.num_draft_tokens);
  return request;
}

Result<Run> run_once(Client& client, wire::ClientRequest request, bool show) {
  Run run;
  const std::uint32_t max_tokens = request.params.max_tokens;
  const auto begun = SteadyClockTime::now();
  const auto take = [&](const std::vector<TokenId>& ids, const std::string& text) {
    run.token_ids.insert(run.token_ids.end(), ids.begin(), ids.end());
    run.text += text;
    if (show) std::cerr << text << std::flush;
  };
  const auto reply =
      client.generate(std::move(request), begun + 130s,
                      [&](const wire::ClientPiece& piece) { take(piece.token_ids, piece.text); });
  if (!reply.ok()) return reply.error();
  // Nothing is claimed from half an answer: neither a speed nor whether it is the same text.
  if (auto why = cut_off(*reply, max_tokens)) {
    if (why->code == ErrorCode::kDeadlineExceeded) why->message += "; -n asks for fewer";
    return std::move(*why);
  }
  take(reply->token_ids, reply->text);
  run.seconds = std::chrono::duration<double>(SteadyClockTime::now() - begun).count();
  run.speculation = reply->metrics.speculative_decoding;
  return run;
}

void add(Tally& tally, const Run& plain, const Run& spec) {
  tally.n_tokens += plain.token_ids.size();
  tally.n_differing += plain.token_ids != spec.token_ids || plain.text != spec.text;
  tally.plain_seconds += plain.seconds;
  tally.spec_seconds += spec.seconds;
  tally.drafted += spec.speculation.num_draft_tokens;
  tally.accepted += spec.speculation.num_accepted_draft_tokens;
  tally.rounds += spec.speculation.num_spec_steps;
}

struct DemoResult {
  std::map<std::string, Tally> by_kind;
  std::map<std::string, Tally> by_setting;
  Tally all;
  std::vector<double> pass_speedups;  // one per repeat
};

// The name of the model that was asked.
std::string model_shown(const wire::StatusReply& status, const std::string& asked) {
  if (!asked.empty()) return asked;
  for (const auto& model : status.model_states)
    if (model.is_default) return model.name;
  return {};
}

void bar(const char* label, double rate, double largest, const std::string& note, Paint paint) {
  constexpr double kWidth = 28;
  const int n = largest > 0 ? static_cast<int>(std::lround(kWidth * rate / largest)) : 0;
  std::string blocks;
  for (int i = 0; i < n; ++i) blocks += "█";
  std::printf("      %-14s %6.0f tok/s  %s  %s\n", label, rate, painted_out(blocks, paint).c_str(),
              note.c_str());
}

void print_result(const DemoResult& result) {
  const Tally& all = result.all;
  const double largest = std::max(all.plain_rate(), all.spec_rate());
  char note[64];
  std::snprintf(note, sizeof(note), "%.2f×", percentile(result.pass_speedups, 0.5));
  bar("plain", all.plain_rate(), largest, "", Paint::kFaint);
  bar("speculative", all.spec_rate(), largest, note, Paint::kGood);
  if (all.n_differing == 0)
    std::printf("      same text      yes, all %llu tokens, byte for byte (greedy and seeded)\n",
                static_cast<unsigned long long>(all.n_tokens));
  else
    std::printf("      same text      %s %llu requests differ\n",
                painted_out("NO:", Paint::kBad).c_str(),
                static_cast<unsigned long long>(all.n_differing));
  std::printf("      accepted       %.0f %% of %llu proposed   (%.2f tokens per round)\n",
              100 * all.acceptance(), static_cast<unsigned long long>(all.drafted),
              all.tokens_per_round());
  std::printf("\n      by kind of text        speed-up   accepted   tokens per round\n");
  for (const auto& [kind, tally] : result.by_kind)
    std::printf("      %-22s %6.2f×   %6.0f %%   %8.2f\n", kind.c_str(), tally.speedup(),
                100 * tally.acceptance(), tally.tokens_per_round());
  std::fflush(stdout);
}

OrderedJson tally_json(const Tally& tally) {
  return {{"speedup", tally.speedup()},
          {"acceptance_rate", tally.acceptance()},
          {"tokens_per_round", tally.tokens_per_round()},
          {"plain_tok_s", tally.plain_rate()},
          {"spec_tok_s", tally.spec_rate()},
          {"tokens", tally.n_tokens},
          {"identical", tally.n_differing == 0}};
}

OrderedJson result_json(const DemoResult& result, const std::string& model) {
  const Tally& all = result.all;
  OrderedJson document = {{"schema", "foretoken.demo/1"},
                          {"identical", all.n_differing == 0},
                          {"speedup", percentile(result.pass_speedups, 0.5)},
                          {"acceptance_rate", all.acceptance()},
                          {"tokens_per_round", all.tokens_per_round()},
                          {"plain_tok_s", all.plain_rate()},
                          {"spec_tok_s", all.spec_rate()},
                          {"tokens", all.n_tokens},
                          {"draft_tokens", all.drafted},
                          {"machine", machine_description()},
                          {"model", model},
                          {"passes", result.pass_speedups}};
  for (const auto& [kind, tally] : result.by_kind) document["by_kind"][kind] = tally_json(tally);
  for (const auto& [setting, tally] : result.by_setting)
    document["by_setting"][setting] = tally_json(tally);
  return document;
}

// Both ways of one request. Which goes first alternates, so that neither profits from what the
// other left warm.
Result<std::pair<Run, Run>> run_pair(Client& client,
                                     const DemoPrompt& prompt,
                                     const Setting& setting,
                                     const CliOptions& options,
                                     bool plain_first) {
  std::optional<Run> runs[2];
  for (int i = 0; i < 2; ++i) {
    const bool plain = (i == 0) == plain_first;
    auto run = run_once(client, request_for(prompt, setting, options, plain), false);
    if (!run.ok()) return run.error();
    runs[plain ? 0 : 1] = std::move(*run);
  }
  return std::pair{std::move(*runs[0]), std::move(*runs[1])};
}

// On a terminal, one text is shown as it comes, both ways, so that the difference can be seen and
// not only read.
Result<void> show_story(Client& client, const DemoPrompt& prompt, const CliOptions& options) {
  for (bool plain : {true, false}) {
    std::fprintf(stderr, "\n--- %s ---\n", plain ? "plain" : "speculative");
    const auto run = run_once(client, request_for(prompt, kSettings[0], options, plain), true);
    if (!run.ok()) return run.error();
    std::fprintf(stderr, "\n--- %.0f tok/s ---\n",
                 static_cast<double>(run->token_ids.size()) / run->seconds);
  }
  std::fprintf(stderr, "\n");
  return {};
}

}  // namespace

int run_demo(const CliOptions& options) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  const auto prompts = take_per_kind(load_prompts(""), kPromptsPerKind);
  Client client(loaded->config.bus, {.say = say_note});
  const auto status = client.status(SteadyClockTime::now() + 3s);
  if (!status.ok()) return report_error(client.unreachable(status.error()));
  if (!status->ready)
    return report_error({ErrorCode::kUnavailable, "the services are not ready to serve"});
  // Warm-up: pages, pools and the step-cost table. Not counted.
  if (const auto warm = run_pair(client, prompts.front(), kSettings[0], options, true); !warm.ok())
    return report_error(warm.error());
  if (!options.output.json && !options.output.quiet && stderr_is_terminal())
    if (const auto shown = show_story(client, prompts.front(), options); !shown.ok())
      return report_error(shown.error());

  DemoResult result;
  for (int pass = 0; pass < options.demo.repeat; ++pass) {
    Tally this_pass;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      for (const Setting& setting : kSettings) {
        const auto runs = run_pair(client, prompts[i], setting, options,
                                   (i + static_cast<std::size_t>(pass)) % 2 == 0);
        if (!runs.ok()) return report_error(runs.error());
        for (Tally* tally : {&this_pass, &result.all, &result.by_kind[prompts[i].kind],
                             &result.by_setting[setting.name]})
          add(*tally, runs->first, runs->second);
      }
    }
    result.pass_speedups.push_back(this_pass.speedup());
  }
  const std::string model = model_shown(*status, options.demo.model);
  if (options.output.json)
    std::cout << to_text(result_json(result, model), 2) << "\n";
  else
    print_result(result);
  return result.all.n_differing == 0 ? kExitOk : kExitDiffers;
}

}  // namespace foretoken::cli
