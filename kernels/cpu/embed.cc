#include <bit>
#include <cstring>

#include "kernels/cpu/backend.h"
#include "kernels/include/numerics.h"
#include "kernels/shared/contract.h"

namespace foretoken::cpu {
namespace {

float widened(DType dtype, const std::byte* at) {
  std::uint16_t half = 0;
  float full = 0;
  if (dtype == DType::kF32) {
    std::memcpy(&full, at, sizeof full);
    return full;
  }
  std::memcpy(&half, at, sizeof half);
  return dtype == DType::kBf16 ? bf16_to_f32(half) : f16_to_f32(half);
}

float of_i8(std::byte at, std::uint32_t flip) {
  return std::bit_cast<std::int8_t>(at ^ static_cast<std::byte>(flip & 0xffu));
}

constexpr std::int64_t kHalfBytes = kOutputBytes / 2;

// One column of a panel, widened and scaled.
void gather_row(const PackedView& view, DType dtype, std::int64_t id, float scale, float* out) {
  const std::int64_t n = view.product->halves_of, n_strip = view.product->strip_outputs;
  const std::int64_t column = id % n_strip;
  const std::int64_t first =
      n == 0 ? column * kOutputBytes : column / n * n * kOutputBytes + column % n * kHalfBytes;
  const std::int64_t second = n == 0 ? first + kHalfBytes : first + n * kHalfBytes;
  const float weight_scale = view.scales != nullptr ? view.scales[id] : 1.0f;
  const auto size = static_cast<std::int64_t>(size_bytes(dtype));
  const std::uint32_t flip = i8_flip(view.product->activation);
  const std::byte* step = view.weights + id / kPanel * view.panel_bytes() +
                          id % kPanel / n_strip * view.strip_bytes_of(view.n_steps);
  for (std::int64_t k = 0; k < view.n_in; step += n_strip * kOutputBytes)
    for (std::int64_t i = 0; i < kOutputBytes && k < view.n_in; i += size) {
      const std::byte* at = step + (i < kHalfBytes ? first + i : second + i - kHalfBytes);
      out[k++] = (dtype == DType::kI8 ? of_i8(*at, flip >> 8 * i) : widened(dtype, at)) *
                 weight_scale * scale;
    }
}

}  // namespace

void CpuBackend::embed_now(const EmbedArgs& args) {
  contract::check_contents(args);
  const PackedView view(*args.table, isa_);
  begin_pass(args.n_rows);
  team_.run([&](int member) {
    const Share share = share_of(args.n_rows, member, team_.size());
    for (std::int64_t r = share.begin; r < share.end; ++r)
      gather_row(view, args.table->dtype, args.tokens[r], args.scale, args.hidden + r * view.n_in);
  });
}

}  // namespace foretoken::cpu
