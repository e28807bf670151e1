// PlanRunner: the device half of a step. A plan in, a token for every row that wants one out:
// copies blocks, runs the forward, chooses, judges what was proposed. All integers go up first and
// all results come down last, so that what lies between can be one recording; a chain's steps
// follow without the host. Every rank of a model has one and runs the same plans; where the
// vocabulary is spread over them, each describes its slice and all merge the same descriptions.
// Owns the cache's memory and the buffers of a pass; decides nothing. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "common/engine/recordings.h"
#include "common/engine/step_plan.h"
#include "common/model/batch_stage.h"
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
  std::span<const TokenId> chosen() const { return chosen_; }   // [n_choices]: their tokens
  std::span<const TopLogprob> top() const { return top_; }  // [n_choices, kMaxTopLogprobs] or empty
  std::span<const Choice> ahead() const { return ahead_; }  // [n_ahead, slices]
  // [slices]: proposals that stand
  std::span<const std::uint32_t> accepted() const { return accepted_; }
  const RecordingStats& recordings() const { return recordings_.stats(); }
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

    const void* address() const { return buffer_.as<void>(); }

   private:
    void* reserve(Backend& backend, std::size_t n_bytes);
    Buffer buffer_;
  };
  // Parts of different types side by side, as they go up.
  class Parcel {
   public:
    void clear() { bytes_.clear(); }
    template <class T>
    std::size_t add(const std::vector<T>& values) {  // its offset
      const std::size_t at = aligned(bytes_.size());
      bytes_.resize(at + values.size() * sizeof(T));
      if (!values.empty())
        std::memcpy(bytes_.data() + at, values.data(), values.size() * sizeof(T));
      return at;
    }
    const std::vector<std::byte>& bytes() const { return bytes_; }

   private:
    std::vector<std::byte> bytes_;
  };
  static constexpr std::size_t aligned(std::size_t offset) { return (offset + 15) / 16 * 16; }
  // Where things lie in what goes up and in what comes down. What the recording of a pass names
  // comes before what a chain adds to it, and does not depend on it.
  struct InputLayout {
    std::size_t rules, judged, judged_begin;
    std::size_t rows, tokens, positions, slots, n_left, end_begin, rules_ahead;
  };
  struct ResultLayout {
    std::size_t choices, verdicts, top, ahead, end;
  };
  struct Pass {               // device addresses
    StagedBatch batch, next;  // next: of a chain's steps, a row a sequence
    ChooseArgs choose;
    AcceptArgs accept;
    AdvanceArgs advance;
    std::int32_t n_ahead = 0;
    const RowRule* rules_ahead = nullptr;  // [n_ahead, sequences]
    Choice* ahead = nullptr;               // [n_ahead, sequences]
  };

  void copy_blocks(const StepPlan& plan);
  StagedBatch stage(const StepPlan& plan);
  float* logits_room(const StepPlan& plan);
  void run_recorded(const StepPlan& plan, const StagedBatch& batch);
  void put_inputs(const StepPlan& plan);
  void put_chain(const StepPlan& plan);
  void lay_out_results(const StepPlan& plan);
  Pass make_pass(const StepPlan& plan, const StagedBatch& batch);
  void add_chain(const StepPlan& plan, const std::byte* inputs, std::byte* results, Pass& pass);
  void forget_recordings_of_moved_memory();
  void run_chain(const Pass& pass);
  void fetch();
  void judge(const StepPlan& plan);
  void choose_with_ranks(const StepPlan& plan);
  ChooseArgs choose_args(const StepPlan& plan);
  void choose_of_slices(const StepPlan& plan, bool wants_top);
  void describe_slices(const StepPlan& plan, bool wants_top, std::int32_t n_candidates);
  void gather_slices(const StepPlan& plan, bool wants_top, std::int32_t n_candidates);

  Model& model_;
  Backend& backend_;
  Collective* ranks_;
  VocabularySlice slice_;     // what forward() gives logits of
  std::int32_t n_valid_ = 0;  // of the whole vocabulary
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
  Staging logits_, device_inputs_, device_results_, rules_, adjustments_, endings_;
  Staging device_slices_, device_candidates_, device_likeliest_;
  std::vector<SliceChoice> own_slices_;
  std::vector<SliceCandidate> own_candidates_, own_likeliest_;
  GatheredSlices gathered_;
  std::vector<Choice> choices_, ahead_;
  std::vector<TokenId> chosen_;
  std::vector<Verdict> verdicts_;  // of the slices that choose, in order; without ranks
  std::vector<std::uint32_t> accepted_;
  std::vector<TopLogprob> top_;
};

}  // namespace foretoken
