// The table for processors with a matrix unit: products of bf16 and int8 run in tiles of sixteen
// rows by sixteen outputs, the rest is that of AVX-512 with BF16. The packed layout is the tile's
// own: sixteen steps of a panel are four tiles side by side. A row's sums depend on the row alone,
// however many share the tile. This file has its own flags.
#include "kernels/cpu/isa.h"

#include <immintrin.h>

namespace foretoken::cpu {
namespace {

constexpr int kStepsPerTile = 16;

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

thread_local int configured_rows = 0;  // 0: tiles are not in use by this thread

constexpr int kTileRow = 16;  // rows of a tile

// Up to 16 rows: tiles 0..3 are the sums of 64 outputs, 4 the rows, 5..7 weights. More: 0, 1 and 2,
// 3 are the sums of 32 outputs for the first and second half of the rows, 4 and 5 the rows, 6 and 7
// weights.
void configure(int n_rows) {
  if (configured_rows == n_rows) return;
  TileConfig config;
  const bool two = n_rows > kTileRow;
  const int low = two ? (n_rows + 1) / 2 : n_rows, high = two ? n_rows / 2 : n_rows;
  const int rows[8] = {low, low, high, high, low, two ? high : kTileRow, kTileRow, kTileRow};
  for (int i = 0; i < 8; ++i) {
    config.row_bytes[i] = 64;
    config.rows[i] = static_cast<std::uint8_t>(rows[i]);
  }
  _tile_loadconfig(&config);
  configured_rows = n_rows;
}

void leave_tiles() {
  if (configured_rows == 0) return;
  _tile_release();
  configured_rows = 0;
}

// Sixteen lines at p, p + stride, ...
template <Prefetch kPrefetch>
__attribute__((always_inline)) inline void ask(const std::byte* p) {
  if constexpr (kPrefetch == Prefetch::kNone) return;
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i)
    _mm_prefetch(reinterpret_cast<const char*>(p + i * 64),
                 kPrefetch == Prefetch::kStream ? _MM_HINT_T0 : _MM_HINT_T1);
}

constexpr std::int64_t kPanelStride = kPanel * 4;            // bytes of a row of c
constexpr std::int64_t kBlock = kStepsPerTile * kStepBytes;  // sixteen steps of a panel

// The four tiles of sums: from zero, or from where the last chunk left them.
[[gnu::always_inline]] inline void begin_sums(
    bool first, const float* c0, const float* c1, const float* c2, const float* c3) {
  if (first) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, c0, kPanelStride);
    _tile_loadd(1, c1, kPanelStride);
    _tile_loadd(2, c2, kPanelStride);
    _tile_loadd(3, c3, kPanelStride);
  }
}

// Up to sixteen rows against the 64 outputs of a panel.
template <bool kI8, Prefetch kPrefetch>
void narrow_tile(const TileArgs& args) {
  begin_sums(args.first, args.c, args.c + 16, args.c + 32, args.c + 48);
  constexpr int kStreamAhead = 2 * kBlock;
  const std::byte* w = args.w;
  const std::byte* a = args.a;
  const std::byte* ahead = args.ahead;
  for (std::int64_t step = 0; step < args.n_steps; step += kStepsPerTile, w += kBlock, a += 64) {
    _tile_loadd(4, a, args.a_stride);
    _tile_loadd(5, w, kStepBytes);
    if constexpr (kPrefetch == Prefetch::kStream) ask<kPrefetch>(w + kStreamAhead);
    if constexpr (kPrefetch == Prefetch::kOneLine || kPrefetch == Prefetch::kTwoLines)
      ask<kPrefetch>(ahead);
    if constexpr (kI8)
      _tile_dpbsud(0, 4, 5);
    else
      _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(6, w + 64, kStepBytes);
    if constexpr (kPrefetch == Prefetch::kStream) ask<kPrefetch>(w + kStreamAhead + kBlock / 4);
    if constexpr (kPrefetch == Prefetch::kTwoLines) ask<kPrefetch>(ahead + kBlock / 4);
    if constexpr (kI8)
      _tile_dpbsud(1, 4, 6);
    else
      _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(7, w + 128, kStepBytes);
    if constexpr (kPrefetch == Prefetch::kStream) ask<kPrefetch>(w + kStreamAhead + kBlock / 2);
    if constexpr (kI8)
      _tile_dpbsud(2, 4, 7);
    else
      _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(5, w + 192, kStepBytes);
    if constexpr (kPrefetch == Prefetch::kStream) ask<kPrefetch>(w + kStreamAhead + kBlock / 4 * 3);
    if constexpr (kI8)
      _tile_dpbsud(3, 4, 5);
    else
      _tile_dpbf16ps(3, 4, 5);
    if constexpr (kPrefetch == Prefetch::kOneLine) ahead += kBlock / 4;
    if constexpr (kPrefetch == Prefetch::kTwoLines) ahead += kBlock / 2;
  }
  _tile_stored(0, args.c, kPanelStride);
  _tile_stored(1, args.c + 16, kPanelStride);
  _tile_stored(2, args.c + 32, kPanelStride);
  _tile_stored(3, args.c + 48, kPanelStride);
}

// More than sixteen rows: each weight tile serves two row tiles. Two passes over the panel, 32
// outputs each.
template <bool kI8, Prefetch kPrefetch>
void wide_tile(const TileArgs& args) {
  const std::int64_t second = (args.n_rows + 1) / 2;
  const std::byte* ahead = args.ahead;
  for (int half = 0; half < 2; ++half) {
    float* c0 = args.c + 32 * half;
    float* c1 = c0 + second * kPanel;
    begin_sums(args.first, c0, c0 + 16, c1, c1 + 16);
    const std::byte* w = args.w + 128 * half;
    const std::byte* a = args.a;
    for (std::int64_t step = 0; step < args.n_steps; step += kStepsPerTile, w += kBlock, a += 64) {
      _tile_loadd(6, w, kStepBytes);
      _tile_loadd(4, a, args.a_stride);
      if constexpr (kI8)
        _tile_dpbsud(0, 4, 6);
      else
        _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, w + 64, kStepBytes);
      if constexpr (kPrefetch == Prefetch::kTwoLines) {
        ask<kPrefetch>(ahead);
        ahead += kBlock / 4;
      }
      if constexpr (kPrefetch == Prefetch::kOneLine) {
        if (half == 0) ask<kPrefetch>(ahead);
        ahead += half == 0 ? kBlock / 4 : 0;
      }
      if constexpr (kPrefetch == Prefetch::kStream) {
        if (half == 0) {
          ask<kPrefetch>(w + 2 * kBlock);
          ask<kPrefetch>(w + 2 * kBlock + kBlock / 4);
          ask<kPrefetch>(w + 2 * kBlock + kBlock / 2);
          ask<kPrefetch>(w + 2 * kBlock + kBlock / 4 * 3);
        }
      }
      if constexpr (kI8)
        _tile_dpbsud(1, 4, 7);
      else
        _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, a + second * args.a_stride, args.a_stride);
      if constexpr (kI8) {
        _tile_dpbsud(2, 5, 6);
        _tile_dpbsud(3, 5, 7);
      } else {
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
    _tile_stored(0, c0, kPanelStride);
    _tile_stored(1, c0 + 16, kPanelStride);
    _tile_stored(2, c1, kPanelStride);
    _tile_stored(3, c1 + 16, kPanelStride);
  }
}

template <bool kI8, Prefetch kPrefetch>
void tile(const TileArgs& args) {
  configure(args.n_rows);
  if (args.n_rows > kTileRow)
    wide_tile<kI8, kPrefetch>(args);
  else
    narrow_tile<kI8, kPrefetch>(args);
}

template <bool kI8>
Product tiled_product() {
  Product product;
  product.activation = kI8 ? Activation::kI8 : Activation::kBf16;
  product.k_per_step = kI8 ? 4 : 2;
  product.k_multiple = kStepsPerTile * product.k_per_step;
  product.tile_rows = kMostTileRows;
  product.chunk_steps = 256;  // 64 KiB: the second cache feeds a matrix unit well enough
  for (auto& row : product.tile) {
    row[0] = tile<kI8, Prefetch::kNone>;
    row[1] = tile<kI8, Prefetch::kStream>;
    row[2] = tile<kI8, Prefetch::kOneLine>;
    row[3] = tile<kI8, Prefetch::kTwoLines>;
  }
  product.leave = leave_tiles;
  return product;
}

Isa make_table() {
  Isa table = *isa_avx512_bf16();
  table.isa = CpuIsa::kAmx;
  table.name = "amx";
  table.numerics = "amx";
  table.bf16 = tiled_product<false>();
  table.i8 = tiled_product<true>();
  return table;
}

}  // namespace

const Isa* isa_amx() {
  static const Isa table = make_table();
  return &table;
}

}  // namespace foretoken::cpu
