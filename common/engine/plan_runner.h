// PlanRunner: the device half of a step. A plan in, a token for every row that wants one out: copies
// blocks, runs the forward, chooses. Every rank of a model has one and runs the same plans; where
// the vocabulary is spread over them, each describes its slice and all merge the same descriptions.
// Owns the cache's memory and the buffers of a pass; decides nothing. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/engine/step_plan.h"
#include "common/model/model.h"
#include "common/spec/merge_choices.h"
#include "kernels/include/backend.h"

namespace foretoken {

// What must be equal on all ranks besides the plans.
struct CacheShape {
  std::int32_t n_blocks = 0;
  std::int32_t block_tokens = 0;
  std::int32_t n_valid_ids = 0;  // ids from here on are never chosen; 0 = all of the model's
};

class PlanRunner {
 public:
  PlanRunner(Model& model, Backend& backend, const CacheShape& shape);

  void run(const StepPlan& plan);
  std::span<const Choice> choices() const { return choices_; }  // [n_choices]
  std::span<const TopLogprob> top() const { return top_; }      // [n_choices, kMaxTopLogprobs] or empty
  std::int32_t n_valid() const { return n_valid_; }

 private:
  // A device buffer that grows and is filled from a vector.
  class Staging {
   public:
    template <class T>
    T* room(Backend& backend, std::size_t n) {
      return static_cast<T*>(reserve(backend, n * sizeof(T)));
    }
    template <class T>
    const T* fill(Backend& backend, const std::vector<T>& values) {
      T* to = room<T>(backend, values.size());
      if (!values.empty()) backend.upload(to, values.data(), values.size() * sizeof(T));
      return to;
    }

   private:
    void* reserve(Backend& backend, std::size_t n_bytes);
    Buffer buffer_;
  };

  void copy_blocks(const StepPlan& plan);
  void forward(const StepPlan& plan);
  void choose(const StepPlan& plan);
  ChooseArgs choose_args(const StepPlan& plan);
  void choose_whole(const StepPlan& plan, bool wants_top);
  void choose_of_slices(const StepPlan& plan, bool wants_top);
  void describe_slices(const StepPlan& plan, bool wants_top, std::int32_t n_candidates);
  void gather_slices(const StepPlan& plan, bool wants_top, std::int32_t n_candidates);

  Model& model_;
  Backend& backend_;
  Collective* ranks_;
  VocabularySlice slice_;      // what forward() gives logits of
  std::int32_t n_valid_ = 0;   // of the whole vocabulary
  Buffer memory_;
  PagedKv paged_;
  ForwardBatch batch_;
  Staging logits_, rules_, adjustments_, device_choices_, device_top_;
  Staging device_slices_, device_candidates_, device_likeliest_;
  std::vector<SliceChoice> own_slices_;
  std::vector<SliceCandidate> own_candidates_, own_likeliest_;
  GatheredSlices gathered_;
  std::vector<Choice> choices_;
  std::vector<TopLogprob> top_;
};

}  // namespace foretoken
