#include "common/engine/plan_runner.h"

#include <algorithm>
#include <limits>

#include "common/base/check.h"
#include "common/collective/collective.h"
#include "common/model/config.h"

namespace foretoken {

void* PlanRunner::Staging::reserve(Backend& backend, std::size_t n_bytes) {
  if (n_bytes > buffer_.size_bytes()) {
    buffer_ = Buffer();  // first, so that old and new need not fit side by side
    buffer_ = backend.allocate(std::max(n_bytes + n_bytes / 2, std::size_t{4096}));
  }
  return buffer_.as<void>();
}

PlanRunner::PlanRunner(Model& model, Backend& backend, const CacheShape& shape)
    : model_(model), backend_(backend), ranks_(model.ranks()) {
  const std::int32_t vocab = model.config().vocab_size;
  FORETOKEN_CHECK(shape.n_valid_ids >= 0 && shape.n_valid_ids <= vocab);
  n_valid_ = shape.n_valid_ids > 0 ? shape.n_valid_ids : vocab;
  slice_ = ranks_ == nullptr ? VocabularySlice{0, vocab} : model.vocabulary_slice();
  paged_.geometry = model.kv_geometry(shape.block_tokens);
  paged_.n_blocks = shape.n_blocks;
  memory_ =
      backend.allocate(paged_.geometry.block_bytes() * static_cast<std::size_t>(paged_.n_blocks));
  paged_.blocks = memory_.as<std::byte>();
}

void PlanRunner::run(const StepPlan& plan) {
  copy_blocks(plan);
  forward(plan);
  choose(plan);
}

void PlanRunner::copy_blocks(const StepPlan& plan) {
  const std::size_t n_bytes = paged_.geometry.block_bytes();
  for (const BlockCopy& copy : plan.copies)
    backend_.copy(paged_.blocks + static_cast<std::size_t>(copy.dst_block) * n_bytes,
                  paged_.blocks + static_cast<std::size_t>(copy.src_block) * n_bytes, n_bytes);
}

void PlanRunner::forward(const StepPlan& plan) {
  batch_.tokens.assign(plan.tokens.begin(), plan.tokens.end());
  batch_.logit_rows.assign(plan.logit_rows.begin(), plan.logit_rows.end());
  batch_.slices.clear();
  const std::span<const std::int32_t> tables(plan.block_tables);
  for (const PlanSlice& slice : plan.slices)
    batch_.slices.push_back({.first_row = slice.first_row,
                             .n_rows = slice.n_known + slice.n_proposed,
                             .start = slice.start,
                             .block_table = tables.subspan(slice.first_block, slice.n_blocks)});
  float* logits = logits_.room<float>(
      backend_, plan.logit_rows.size() * static_cast<std::size_t>(slice_.n_ids));
  model_.forward(batch_, paged_, logits);
}

void PlanRunner::choose(const StepPlan& plan) {
  const std::size_t n = plan.rules.size();
  choices_.resize(n);
  top_.clear();
  if (n == 0) return;
  const bool wants_top = std::any_of(plan.rules.begin(), plan.rules.end(),
                                     [](const RowRule& rule) { return rule.n_top_logprobs > 0; });
  if (wants_top) top_.resize(n * kMaxTopLogprobs);
  if (ranks_ == nullptr) return choose_whole(plan, wants_top);
  choose_of_slices(plan, wants_top);
}

ChooseArgs PlanRunner::choose_args(const StepPlan& plan) {
  return {.logits = logits_.room<float>(
              backend_, plan.rules.size() * static_cast<std::size_t>(slice_.n_ids)),
          .n_rows = static_cast<std::int32_t>(plan.rules.size()),
          .vocab = slice_.n_ids,
          .n_valid = std::clamp(n_valid_ - slice_.first_id, 0, slice_.n_ids),
          .rules = rules_.fill(backend_, plan.rules),
          .adjustments = adjustments_.fill(backend_, plan.adjustments)};
}

void PlanRunner::choose_whole(const StepPlan& plan, bool wants_top) {
  ChooseArgs args = choose_args(plan);
  args.choices = device_choices_.room<Choice>(backend_, choices_.size());
  args.top = wants_top ? device_top_.room<TopLogprob>(backend_, top_.size()) : nullptr;
  backend_.choose(args);
  backend_.download(choices_.data(), args.choices, choices_.size() * sizeof(Choice));
  if (wants_top) backend_.download(top_.data(), args.top, top_.size() * sizeof(TopLogprob));
}

// Plain rows are a maximum over 16 bytes of each rank. Others mostly take one exchange as well; a
// wide nucleus asks again, for more.
void PlanRunner::choose_of_slices(const StepPlan& plan, bool wants_top) {
  std::int32_t n_candidates = first_candidate_count(plan.rules, n_valid_);
  const bool wants_logprobs =
      std::any_of(plan.rules.begin(), plan.rules.end(),
                  [](const RowRule& rule) { return rule.n_top_logprobs >= 0; });
  if (n_candidates == 0 && !wants_logprobs) {
    describe_slices(plan, wants_top, 0);
    std::vector<ScoredId> best;
    for (const SliceChoice& slice : own_slices_) best.push_back({slice.score, slice.token});
    ranks_->max_rows(best);
    for (std::size_t row = 0; row < best.size(); ++row)
      choices_[row] = {.score = best[row].score, .token = best[row].id};
    return;
  }
  std::vector<bool> is_decided(plan.rules.size(), false);
  for (bool all_are = false; !all_are; n_candidates = std::min(8 * n_candidates, n_valid_ + 1)) {
    gather_slices(plan, wants_top, n_candidates);
    all_are = true;
    for (std::size_t row = 0; row < plan.rules.size(); ++row) {
      TopLogprob* top = wants_top ? top_.data() + row * kMaxTopLogprobs : nullptr;
      if (!is_decided[row])
        is_decided[row] = merge_row(gathered_, static_cast<std::int32_t>(row), plan.rules[row],
                                    n_valid_, choices_[row], top);
      all_are = all_are && is_decided[row];
    }
  }
}

void PlanRunner::gather_slices(const StepPlan& plan, bool wants_top, std::int32_t n_candidates) {
  describe_slices(plan, wants_top, n_candidates);
  gathered_.n_ranks = ranks_->size();
  gathered_.n_rows = static_cast<std::int32_t>(plan.rules.size());
  gathered_.n_candidates = n_candidates;
  gathered_.slices = ranks_->gather(std::span<const SliceChoice>(own_slices_));
  gathered_.candidates = ranks_->gather(std::span<const SliceCandidate>(own_candidates_));
  gathered_.likeliest = ranks_->gather(std::span<const SliceCandidate>(own_likeliest_));
}

// What this rank has to tell.
void PlanRunner::describe_slices(const StepPlan& plan, bool wants_top, std::int32_t n_candidates) {
  const std::size_t n = plan.rules.size();
  const float least = -std::numeric_limits<float>::infinity();
  own_slices_.assign(n, {.highest = least, .adjusted_highest = least});
  own_candidates_.assign(n * static_cast<std::size_t>(n_candidates), {});
  own_likeliest_.assign(wants_top ? n * kMaxTopLogprobs : 0, {});
  ChooseArgs args = choose_args(plan);
  if (args.n_valid == 0) return;  // nothing but padding here
  args.first_id = slice_.first_id;
  args.n_candidates = n_candidates;
  args.slices = device_slices_.room<SliceChoice>(backend_, n);
  if (n_candidates > 0)
    args.candidates = device_candidates_.room<SliceCandidate>(backend_, own_candidates_.size());
  if (wants_top)
    args.likeliest = device_likeliest_.room<SliceCandidate>(backend_, own_likeliest_.size());
  backend_.choose(args);
  backend_.download(own_slices_.data(), args.slices, n * sizeof(SliceChoice));
  if (n_candidates > 0)
    backend_.download(own_candidates_.data(), args.candidates,
                      own_candidates_.size() * sizeof(SliceCandidate));
  if (wants_top)
    backend_.download(own_likeliest_.data(), args.likeliest,
                      own_likeliest_.size() * sizeof(SliceCandidate));
}

}  // namespace foretoken
