#include "bench/gpu/iterate.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>

namespace foretoken::bench {
namespace {

double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

}  // namespace

double Iteration::tokens_per_second() const {
  double tokens = 1, chance = 1;
  for (int k = 0; k < n_drafted; ++k) tokens += chance *= acceptance;
  return milliseconds > 0 ? 1e3 * tokens / milliseconds : 0;
}

std::vector<std::int32_t> plain_text(Backend& b,
                                     Step& target,
                                     std::int32_t context,
                                     std::int32_t n_tokens) {
  const auto recording = b.record([&] { target.run(b, 1, context); });
  std::vector<std::int32_t> kept = {1};
  for (std::int32_t i = 0; i < n_tokens; ++i) {
    target.set_rows(b, {kept.back()}, context + i);
    b.replay(*recording);
    kept.push_back(target.results(b).choices[0].token);
  }
  return kept;
}

// kept[i] lies at position context + i. A round begins with kept[at] known and everything before it
// in both caches; the draft lacks one more where all its guesses stood.
Iteration measure_rounds(Backend& b,
                         Step& target,
                         Step& draft,
                         const std::vector<std::int32_t>& kept,
                         const RoundOptions& options,
                         bool& same_text) {
  const std::int32_t k = options.n_drafted;
  const std::unique_ptr<Recording> chains[] = {
      b.record([&] { draft.chain(b, 1, k, options.context); }),
      b.record([&] { draft.chain(b, 2, k, options.context); })};
  const auto verify = b.record([&] { target.verify(b, k + 1, options.context); });
  std::mt19937_64 dice(static_cast<std::uint64_t>(1000 * options.acceptance) + 17);
  const auto stands = [&] {
    return static_cast<double>(dice() >> 11) * 0x1p-53 < options.acceptance;
  };
  std::vector<double> total, draft_time, handoff, verify_time, accept, host;
  std::size_t at = 0;
  std::int32_t n_lacking = 1;
  same_text = true;
  while (at + static_cast<std::size_t>(k) + 1 < kept.size()) {
    const double begin = now_ms();
    const std::size_t first = at + 1 - static_cast<std::size_t>(n_lacking);
    draft.set_rows(b,
                   {kept.begin() + static_cast<std::ptrdiff_t>(first),
                    kept.begin() + static_cast<std::ptrdiff_t>(at + 1)},
                   options.context + static_cast<std::int32_t>(first));
    b.replay(*chains[n_lacking - 1]);
    b.synchronize();
    const double drafted = now_ms();
    const Step::Results guessed = draft.results(b);
    std::vector<std::int32_t> rows = {kept[at]};
    for (std::size_t i = 1; i <= static_cast<std::size_t>(k); ++i) {
      const std::int32_t right = kept[at + i];
      const std::int32_t own =
          i == 1 ? guessed.choices[n_lacking - 1].token : guessed.chained[i - 1].token;
      rows.push_back(stands()                   ? right
                     : own != right && own >= 0 ? own
                     : right == 0               ? 1
                                                : right - 1);
    }
    target.set_rows(b, rows, options.context + static_cast<std::int32_t>(at));
    b.synchronize();
    const double handed = now_ms();
    b.replay(*verify);
    b.synchronize();
    const double verified = now_ms();
    const Step::Results chosen = target.results(b);
    const double fetched = now_ms();
    const auto n = static_cast<std::size_t>(chosen.verdict.n_accepted);
    for (std::size_t i = 0; i <= n; ++i)
      same_text = same_text && chosen.choices[i].token == kept[at + 1 + i];
    at += n + 1;
    n_lacking = n == static_cast<std::size_t>(k) ? 2 : 1;
    const double end = now_ms();
    total.push_back(end - begin);
    draft_time.push_back(drafted - begin);
    handoff.push_back(handed - drafted);
    verify_time.push_back(verified - handed);
    accept.push_back(fetched - verified);
    host.push_back(end - fetched);
    if (!same_text) break;
  }
  if (total.empty()) return {};
  return {.n_drafted = k,
          .acceptance = options.acceptance,
          .n_rounds = static_cast<int>(total.size()),
          .milliseconds = median(total),
          .draft = median(draft_time),
          .handoff = median(handoff),
          .verify = median(verify_time),
          .accept = median(accept),
          .host = median(host),
          .tokens_per_round = static_cast<double>(at) / static_cast<double>(total.size())};
}

}  // namespace foretoken::bench
