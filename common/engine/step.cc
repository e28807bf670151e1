#include "common/engine/step.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace foretoken {
namespace {

// Above every logit, and finite: with minus infinity it must not make a number that is none.
constexpr float kForced = 1e30f;

}  // namespace

Step::Step(Model& model, Backend& backend, KvCache& kv, std::int32_t n_valid_ids)
    : kv_(kv),
      leader_(model.ranks(), {kv.config().n_blocks, kv.config().block_tokens, n_valid_ids}),
      runner_(model, backend, {kv.config().n_blocks, kv.config().block_tokens, n_valid_ids}) {}

void Step::begin(std::uint32_t n_ahead) {
  reservations_.clear();
  plan_.clear();
  plan_.n_ahead = n_ahead;
}

Result<std::size_t> Step::add(const SliceRequest& request) {
  FORETOKEN_CHECK(!request.known.empty() && (request.proposed.empty() || request.guessed.empty()));
  const auto n_known = static_cast<std::uint32_t>(request.known.size());
  const auto n_proposed = static_cast<std::uint32_t>(request.proposed.size());
  FORETOKEN_CHECK(
      request.first_forced + request.forced.size() + (request.rules != nullptr ? 1 : 0) <= n_known);
  FORETOKEN_CHECK(plan_.n_ahead == 0 ||
                  (n_proposed == 0 && request.rules != nullptr && request.forced.empty() &&
                   !request.rules->depends_on_history()));
  auto reserved = kv_.reserve(request.seq, n_known + n_proposed + plan_.n_ahead);
  if (!reserved.ok()) return reserved.error();

  PlanSlice slice{.seq = request.seq,
                  .start = reserved->first_position(),
                  .n_known = n_known,
                  .n_proposed = n_proposed};
  slice.first_row = static_cast<std::uint32_t>(plan_.tokens.size());
  plan_.tokens.insert(plan_.tokens.end(), request.known.begin(), request.known.end());
  plan_.tokens.insert(plan_.tokens.end(), request.proposed.begin(), request.proposed.end());
  const auto table = kv_.block_table(request.seq);
  slice.first_block = static_cast<std::uint32_t>(plan_.block_tables.size());
  slice.n_blocks = static_cast<std::uint32_t>(table.size());
  plan_.block_tables.insert(plan_.block_tables.end(), table.begin(), table.end());
  const auto copies = reserved->copies();
  plan_.copies.insert(plan_.copies.end(), copies.begin(), copies.end());
  slice.n_forced = static_cast<std::uint32_t>(request.forced.size());
  append_forced(request, slice.first_row);
  slice.first_choice = static_cast<std::uint32_t>(plan_.rules.size());
  if (request.rules != nullptr) {
    slice.n_choices = n_proposed + 1;
    append_rules(request);
    for (std::size_t rule = slice.first_choice; rule < plan_.rules.size(); ++rule)
      plan_.rules[rule].n_top_logprobs = std::max(plan_.rules[rule].n_top_logprobs, request.n_top);
    const std::uint32_t first_wanted = slice.first_row + n_known - 1;
    for (std::uint32_t row = first_wanted; row <= first_wanted + n_proposed; ++row)
      plan_.logit_rows.push_back(static_cast<std::int32_t>(row));
  }
  plan_.slices.push_back(slice);
  reservations_.push_back(std::move(*reserved));
  return plan_.slices.size() - 1;
}

// A greedy choice under a bias that nothing reaches. Its log-probability is of the raw logits, as
// every choice's.
void Step::append_forced(const SliceRequest& request, std::uint32_t first_row) {
  for (std::uint32_t i = 0; i < request.forced.size(); ++i) {
    const auto at = static_cast<std::int32_t>(plan_.adjustments.size());
    plan_.adjustments.push_back({.id = request.forced[i], .add = kForced});
    plan_.rules.push_back(
        {.adjust_begin = at, .adjust_end = at + 1, .n_top_logprobs = request.n_forced_top});
    plan_.logit_rows.push_back(static_cast<std::int32_t>(first_row + request.first_forced + i));
  }
}

// Where the sequence's rules lag behind its guesses, the row after all of these is wanted. A
// chain's rules do not depend on tokens, so any will do for those to come.
void Step::append_rules(const SliceRequest& request) {
  if (request.guessed.empty() && plan_.n_ahead == 0)
    return request.rules->append_rows(request.proposed, 0,
                                      {plan_.rules, plan_.adjustments, plan_.masks});
  std::vector<TokenId> tokens(request.guessed.begin(), request.guessed.end());
  tokens.resize(tokens.size() + plan_.n_ahead);
  std::vector<RowRule> rows;
  request.rules->append_rows(tokens, request.guessed.size(),
                             {rows, plan_.adjustments, plan_.masks});
  plan_.rules.push_back(rows.front());
  if (plan_.n_ahead == 0) return;
  plan_.rules_ahead.insert(plan_.rules_ahead.end(), rows.begin() + 1, rows.end());
  plan_.n_endings.push_back(static_cast<std::uint32_t>(request.endings.size()));
  plan_.endings.insert(plan_.endings.end(), request.endings.begin(), request.endings.end());
}

void Step::run() {
  leader_.send(plan_);
  runner_.run(plan_);
}

std::span<const Choice> Step::choices(std::size_t slice) const {
  const PlanSlice& s = plan_.slices[slice];
  return runner_.choices().subspan(s.first_choice, s.n_choices);
}

std::span<const TokenId> Step::chosen(std::size_t slice) const {
  const PlanSlice& s = plan_.slices[slice];
  return runner_.chosen().subspan(s.first_choice, s.n_choices);
}

std::span<const TopLogprob> Step::top(std::size_t slice, std::size_t choice) const {
  return top_of_row(plan_.slices[slice].first_choice + choice);
}

std::span<const Choice> Step::forced(std::size_t slice) const {
  const PlanSlice& s = plan_.slices[slice];
  return runner_.choices().subspan(s.first_choice - s.n_forced, s.n_forced);
}

std::span<const TopLogprob> Step::forced_top(std::size_t slice, std::size_t choice) const {
  const PlanSlice& s = plan_.slices[slice];
  return top_of_row(s.first_choice - s.n_forced + choice);
}

std::span<const TopLogprob> Step::top_of_row(std::size_t row) const {
  const std::int32_t n = plan_.rules[row].n_top_logprobs;
  if (n <= 0) return {};
  return runner_.top().subspan(
      row * kMaxTopLogprobs,
      static_cast<std::size_t>(std::min({n, kMaxTopLogprobs, runner_.n_valid()})));
}

const Choice& Step::chained(std::size_t slice, std::uint32_t k) const {
  FORETOKEN_CHECK(k <= plan_.n_ahead);
  return k == 0 ? choices(slice).back() : runner_.ahead()[(k - 1) * n_slices() + slice];
}

void Step::commit(std::size_t slice, std::uint32_t n, std::span<const TokenId> text) {
  reservations_[slice].commit(n, text);
}

}  // namespace foretoken
