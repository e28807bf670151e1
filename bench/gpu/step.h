// One decoder step through the backend's ops with synthetic weights: what a model does, without a
// checkpoint. Owns weights and cache on the device it was made for; other backends of the same
// device may run it.
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
  Step(Backend& backend, const Model& model, DType dtype, std::int32_t context);
  // Queues the step for rows at positions first .. first + n_rows - 1 on `backend`.
  void run(Backend& backend, std::int32_t n_rows) const;
  void set_rows(const std::vector<std::int32_t>& tokens, std::int32_t first_position);
  std::vector<std::int32_t> tokens(std::int32_t n_rows) const;  // chosen
  std::vector<float> logits(std::int32_t n_rows) const;
  std::int64_t weight_bytes() const { return weight_bytes_; }

 private:
  Backend& owner_;
  Model model_;
  std::vector<Linear> qkv_, o_, gate_up_, down_;
  Linear table_;
  Buffer norm_, cos_, sin_, hidden_, squares_, q_, attended_, ffn_, logits_, choices_, rules_;
  Buffer token_ids_, positions_, slots_, rows_, row_begin_, table_of_blocks_, kv_;
  KvGeometry geometry_;
  std::int32_t n_blocks_ = 0;
  std::int64_t weight_bytes_ = 0;
};

}  // namespace foretoken::bench
