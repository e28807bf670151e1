// What the linears of a model are given, for those who want to see it while a decoder runs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace foretoken {

// Borrowed for the call.
struct LinearInput {
  std::int32_t layer = 0;
  std::span<const std::string_view> linears;  // that share it: "self_attn.q_proj.weight", ...
  const float* x = nullptr;                   // device, [n_rows, n_in]
  const float* norm = nullptr;  // device, [n_in]: x is normed with it first; null: it is not
  std::int32_t n_rows = 0;
  std::int64_t n_in = 0;
};

class LinearInputObserver {
 public:
  virtual ~LinearInputObserver() = default;
  // On the model's thread, before the product.
  virtual void see(const LinearInput& input) = 0;
};

}  // namespace foretoken
