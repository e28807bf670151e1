#include "common/engine/prompt_budget.h"

#include <algorithm>
#include <chrono>

namespace foretoken {
namespace {

// Passes are not cut shorter than this for the sake of chains.
constexpr Duration kShortestPass = std::chrono::milliseconds(1);

}  // namespace

void PromptBudget::begin(const PassLoad& load) {
  planned_ = {};
  work_ = attention_rows_ = 0;
  if (max_step_ <= Duration::zero()) return;
  planned_ = std::max<Duration>(2 * load.plain, kShortestPass);
  if (load.n_chains == 0) planned_ = std::max(planned_, max_step_ * (load.n_sequences > 1 ? 1 : 2));
  most_work_ = cost_.rates().work_within(planned_);
}

std::uint32_t PromptBudget::rows_within(Position n_cached, std::uint32_t n_rows) const {
  if (planned_ == Duration::zero() || n_rows <= kLeastPrefillRows) return n_rows;
  const auto least = work_ == 0 ? static_cast<std::uint32_t>(kLeastPrefillRows) : 0u;
  const std::uint32_t in_time = cost_.rates().rows_within(most_work_ - work_, n_cached);
  return std::min(n_rows, std::max(least, in_time));
}

void PromptBudget::add(Position n_cached, std::uint32_t n_rows) {
  if (n_rows < kLeastPrefillRows) return;
  const double work = cost_.rates().work(n_cached, n_rows);
  work_ += work;
  attention_rows_ += work - n_rows;
}

}  // namespace foretoken
