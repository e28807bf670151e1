// Weights from a checkpoint's rows into panels. Done once at load, by the whole team; the member
// that packs a panel is the one that will read it, so its memory is near.
#include <cstring>

#include "common/base/result.h"
#include "kernels/cpu/backend.h"
#include "kernels/shared/unpacked.h"

namespace foretoken::cpu {
namespace {

// Where packed output `i` comes from: a source and its row; null for padding.
struct Origin {
  const LinearSource* source = nullptr;
  std::int64_t row = 0;
};

Origin origin_of(std::span<const LinearSource> sources, Stacking stacking, std::int64_t i) {
  if (stacking == Stacking::kGateUp) {  // panels of gate and up by turns
    const std::int64_t panel = i / kPanel;
    const LinearSource& source = sources[static_cast<std::size_t>(panel % 2)];
    const std::int64_t row = panel / 2 * kPanel + i % kPanel;
    return row < source.n_out ? Origin{&source, row} : Origin{};
  }
  for (const LinearSource& source : sources) {
    if (i < source.n_out) return {&source, i};
    i -= source.n_out;
  }
  return {};
}

// Byte of value (output column, k) inside a panel.
std::int64_t place_of(DType dtype, std::int64_t column, std::int64_t k) {
  switch (dtype) {
    case DType::kF32:
      return k * kStepBytes + column * 4;
    case DType::kBf16:
      return k / 2 * kStepBytes + column * 4 + k % 2 * 2;
    case DType::kF16:
      return k / 2 * kStepBytes + column / 16 * 64 + k % 2 * 32 + column % 16 * 2;
    default:
      return k / 4 * kStepBytes + column * 4 + k % 4;
  }
}

template <class Element>
void pack_column(
    DType dtype, const std::byte* from, std::int64_t n_in, std::int64_t column, std::byte* panel) {
  for (std::int64_t k = 0; k < n_in; ++k) {
    Element value;
    std::memcpy(&value, from + k * static_cast<std::int64_t>(sizeof value),
                sizeof value);  // may be unaligned
    if constexpr (sizeof(Element) == 1) value = static_cast<Element>(value ^ 0x80);  // w + 128
    std::memcpy(panel + place_of(dtype, column, k), &value, sizeof value);
  }
}

void pack_panel(std::span<const LinearSource> sources,
                const Linear& linear,
                std::int64_t panel,
                std::int64_t bytes) {
  std::byte* to = linear.weights.as<std::byte>() + panel * bytes;
  if (linear.dtype == DType::kI8)
    std::memset(to, 0x80, static_cast<std::size_t>(bytes));  // padding is zero
  for (std::int64_t column = 0; column < kPanel; ++column) {
    const std::int64_t i = panel * kPanel + column;
    const Origin origin = origin_of(sources, linear.stacking, i);
    if (origin.source == nullptr) continue;
    const LinearSource& source = *origin.source;
    const std::int64_t element = static_cast<std::int64_t>(size_bytes(source.dtype));
    const std::byte* from =
        static_cast<const std::byte*>(source.data) + origin.row * source.n_in * element;
    switch (source.dtype) {
      case DType::kF32:
        pack_column<std::uint32_t>(source.dtype, from, source.n_in, column, to);
        break;
      case DType::kBf16:
      case DType::kF16:
        pack_column<std::uint16_t>(source.dtype, from, source.n_in, column, to);
        break;
      default:
        pack_column<std::uint8_t>(source.dtype, from, source.n_in, column, to);
        break;
    }
    if (linear.scales) linear.scales.as<float>()[i] = source.scales[origin.row];
    if (linear.bias && source.bias != nullptr) linear.bias.as<float>()[i] = source.bias[origin.row];
  }
}

}  // namespace

Linear CpuBackend::do_pack(std::span<const LinearSource> sources, Stacking stacking) {
  FORETOKEN_CHECK(recorded_ == nullptr, "packing is not recorded");
  if (sources.front().dtype == DType::kF8E4M3)
    throw FatalError(ErrorCode::kUnsupportedModel,
                     "the CPU backend has no float8_e4m3 weights; use bfloat16 or int8");
  Linear linear = unpacked(sources, stacking);
  const PackedView shape(linear, isa_);  // sizes only; its pointers are still null
  const std::int64_t panel_bytes = shape.n_steps * kStepBytes;
  const auto n_padded = static_cast<std::size_t>(shape.n_panels * kPanel);
  linear.weights = allocate(static_cast<std::size_t>(shape.n_panels * panel_bytes));
  if (linear.dtype == DType::kI8) linear.scales = allocate(n_padded * sizeof(float));
  if (any_bias(sources)) linear.bias = allocate(n_padded * sizeof(float));
  const std::int64_t group = stacking == Stacking::kGateUp ? 2 : 1;
  team_.run([&](int member) {
    const Share share = share_of(shape.n_panels / group, member, team_.size());
    for (std::int64_t panel = share.begin * group; panel < share.end * group; ++panel)
      pack_panel(sources, linear, panel, panel_bytes);
  });
  return linear;
}

}  // namespace foretoken::cpu
