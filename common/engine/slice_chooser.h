// Chooses tokens where the vocabulary is spread over ranks: each rank describes its slice of every
// row, the descriptions are exchanged, and all ranks merge the same ones to the same choices. Owns
// the buffers for that. One thread on each rank, all ranks in step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/collective/collective.h"
#include "common/engine/staging.h"
#include "common/engine/step_plan.h"
#include "common/model/model.h"
#include "common/spec/merge_choices.h"
#include "kernels/include/backend.h"

namespace foretoken {

class SliceChooser {
 public:
  // n_valid: ids from here on, of the whole vocabulary, are never chosen.
  SliceChooser(Backend& backend, Collective& ranks, VocabularySlice slice, std::int32_t n_valid)
      : backend_(backend), ranks_(ranks), slice_(slice), n_valid_(n_valid) {}

  // logits: [plan.rules, slice.n_ids], on the device. Gives choices [plan.rules] and, if a rule
  // wants any, top [plan.rules, kMaxTopLogprobs]; else top is empty.
  void choose(const StepPlan& plan,
              const float* logits,
              std::vector<Choice>& choices,
              std::vector<TopLogprob>& top);

 private:
  // A run of the plan's rows: from `begin`, without `end`.
  struct Rows {
    std::int32_t begin = 0;
    std::int32_t end = 0;
    std::int32_t n() const { return end - begin; }
  };
  void choose_by_maximum(std::vector<Choice>& choices);
  void merge(const StepPlan& plan,
             const ChooseArgs& all,
             std::vector<Choice>& choices,
             std::vector<TopLogprob>& top);
  std::vector<Rows> runs_of(std::span<const std::int32_t> rows, std::int32_t n_candidates) const;
  ChooseArgs upload(const StepPlan& plan, const float* logits);
  void describe(const ChooseArgs& all, Rows rows, bool wants_top, std::int32_t n_candidates);
  void gather(Rows rows, std::int32_t n_candidates);

  Backend& backend_;
  Collective& ranks_;
  VocabularySlice slice_;
  std::int32_t n_valid_;
  Staging rules_, adjustments_, masks_;
  Staging device_slices_, device_candidates_, device_likeliest_;
  std::vector<SliceChoice> own_slices_;
  std::vector<SliceCandidate> own_candidates_, own_likeliest_;
  GatheredSlices gathered_;
};

}  // namespace foretoken
