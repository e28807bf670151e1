// One decoder step through the backend's ops with synthetic weights: what a model does, without a
// checkpoint; and a chain of steps without the host in between. Owns weights and cache on the
// device it was made for; other backends of the same device may run it, one after another.
#pragma once

#include <vector>

#include "bench/gpu/report.h"

namespace foretoken::bench {

// Random bits of a dtype, as a checkpoint would hold them.
class SyntheticMatrix {
 public:
  SyntheticMatrix(DType dtype, std::int64_t n_out, std::int64_t n_in, std::uint64_t seed);
  LinearSource source() const;

 private:
  DType dtype_;
  std::int64_t n_out_, n_in_;
  std::vector<std::uint64_t> bits_;
  std::vector<float> scales_;
};

// Packed from synthetic bits; `gate_up` has half of n_out each.
Linear synthetic_linear(Backend& backend, DType dtype, const Matrix& matrix, std::uint64_t seed);
// The same bytes at another address.
Linear copy_of(Backend& backend, const Linear& linear);

class Step {
 public:
  static constexpr int kMaxRows = 16;
  // What a step leaves behind: one download.
  struct Results {
    Choice choices[kMaxRows];  // of the rows
    Choice chained[kMaxRows];  // of a chain's step k, from 1 on
    Verdict verdict;
  };
  Step(Backend& backend, const Model& model, DType dtype, std::int32_t context);

  // Rows at positions first .. first + n - 1, for the calls below: one upload.
  void set_rows(Backend& backend,
                const std::vector<std::int32_t>& tokens,
                std::int32_t first_position);
  // Queues the step for n_rows rows; attention is laid out for a context of so many tokens, as an
  // engine's would be. 0: for the longest.
  void run(Backend& backend, std::int32_t n_rows, std::int32_t context = 0) const;
  // And judges the rows after the first as proposals.
  void verify(Backend& backend, std::int32_t n_rows, std::int32_t context) const;
  // The step for n_rows rows, then n_steps - 1 more, each fed what the one before chose.
  void chain(Backend& backend,
             std::int32_t n_rows,
             std::int32_t n_steps,
             std::int32_t context) const;
  Results results(Backend& backend) const;  // waits
  std::vector<float> logits(Backend& backend, std::int32_t n_rows) const;
  std::int64_t weight_bytes() const { return weight_bytes_; }

 private:
  struct Inputs {
    std::int32_t tokens[kMaxRows], positions[kMaxRows], slots[kMaxRows];
    std::int32_t row_begin[2], one_row[2];
    std::int32_t moving[4];  // a chain's row: token, position, slot, steps left
    RowRule rules[2 * kMaxRows];
  };
  struct Rows {  // device addresses
    std::int32_t n = 0;
    const std::int32_t *tokens, *positions, *slots, *row_begin;
    const RowRule* rules;
    Choice* choices;
  };
  void run_rows(Backend& backend, const Rows& rows, std::int32_t context) const;
  std::int32_t columns(std::int32_t context) const;  // of the block table

  Model model_;
  std::vector<Linear> qkv_, o_, gate_up_, down_;
  Linear table_;
  Buffer norm_, cos_, sin_, hidden_, squares_, q_, attended_, ffn_, logits_;
  Buffer inputs_, results_, rows_, table_of_blocks_, no_ends_, kv_;
  KvGeometry geometry_;
  std::int32_t n_blocks_ = 0;
  std::int64_t weight_bytes_ = 0;
};

}  // namespace foretoken::bench
