// PlanRunner: the device half of a step. A plan in, a token for every row that wants one out:
// copies blocks, runs the forward, chooses, judges what was proposed. All integers go up first and
// all results come down last, so that what lies between can be one recording; a chain's steps
// follow without the host. Every rank of a model has one and runs the same plans; there a
// SliceChooser chooses. Owns the cache's memory and the buffers of a pass; decides nothing. One
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/engine/recordings.h"
#include "common/engine/slice_chooser.h"
#include "common/engine/staging.h"
#include "common/engine/step_plan.h"
#include "common/model/batch_stage.h"
#include "common/model/model.h"
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
  // Forced choices and others, as plan.rules.
  std::span<const Choice> choices() const { return choices_; }
  std::span<const TokenId> chosen() const { return chosen_; }  // their tokens
  std::span<const TopLogprob> top() const { return top_; }  // [choices, kMaxTopLogprobs] or empty
  std::span<const Choice> ahead() const { return ahead_; }  // [n_ahead, slices]
  // [slices]: proposals that stand
  std::span<const std::uint32_t> accepted() const { return accepted_; }
  const RecordingStats& recordings() const { return recordings_.stats(); }
  std::int32_t n_valid() const { return n_valid_; }

 private:
  // Where things lie in what goes up and in what comes down. What the recording of a pass names
  // comes before what a chain adds to it, and does not depend on it.
  struct InputLayout {
    std::size_t rules, judged, judged_begin;
    std::size_t rows, tokens, positions, slots, n_left, end_begin, rules_ahead;
  };
  struct ResultLayout {
    std::size_t choices, verdicts, top, ahead, end;
  };
  struct PassAddresses {      // device addresses
    StagedBatch batch, next;  // next: of a chain's steps, a row a sequence
    ChooseArgs choose;
    AcceptArgs accept;
    AdvanceArgs advance;
    std::int32_t n_ahead = 0;
    const RowRule* rules_ahead = nullptr;  // [n_ahead, sequences]
    Choice* ahead = nullptr;               // [n_ahead, sequences]
  };

  void check_masks(const StepPlan& plan) const;
  void copy_blocks(const StepPlan& plan);
  StagedBatch stage(const StepPlan& plan);
  float* logits_room(const StepPlan& plan);
  void run_recorded(const StepPlan& plan, const StagedBatch& batch);
  void put_inputs(const StepPlan& plan);
  void put_chain(const StepPlan& plan);
  void lay_out_results(const StepPlan& plan);
  PassAddresses make_pass(const StepPlan& plan, const StagedBatch& batch);
  void add_chain(const StepPlan& plan,
                 const std::byte* inputs,
                 std::byte* results,
                 PassAddresses& pass);
  void forget_recordings_of_moved_memory();
  void run_chain(const PassAddresses& pass);
  void fetch();
  void judge(const StepPlan& plan);

  Model& model_;
  Backend& backend_;
  VocabularySlice slice_;               // what forward() gives logits of
  std::optional<SliceChooser> slices_;  // with ranks
  std::int32_t n_valid_ = 0;            // of the whole vocabulary
  Buffer memory_;
  PagedKv paged_;
  ForwardBatch batch_;
  BatchStage stage_;
  Recordings recordings_;
  std::vector<const void*> addresses_;  // of what passes use: recordings hold while these do
  Parcel inputs_;
  InputLayout in_{};
  ResultLayout out_{};
  std::vector<std::byte> results_;
  Staging logits_, device_inputs_, device_results_, adjustments_, masks_, endings_;
  std::vector<Choice> choices_, ahead_;
  std::vector<TokenId> chosen_;
  // Of the slices' forced choices and their others, where they have any, in order; without ranks.
  std::vector<Verdict> verdicts_;
  std::vector<std::uint32_t> accepted_;
  std::vector<TopLogprob> top_;
};

}  // namespace foretoken
