// The table for processors with a matrix unit: products of bf16 and int8 run in tiles of sixteen
// rows by sixteen outputs, the rest is that of AVX-512 with BF16. The packed layout is the tile's
// own: sixteen steps of a panel are four tiles side by side. A row's sums depend on the row alone,
// however many share the tile. This file has its own flags.
#include "kernels/cpu/isa.h"

#include <immintrin.h>

namespace foretoken::cpu {
namespace {

constexpr int kStepsPerTile = 16;
constexpr int kChunkSteps = 256;  // 64 KiB: the second cache feeds a matrix unit well enough
static_assert(kChunkSteps % kChunkMultiple == 0 && kChunkMultiple % kStepsPerTile == 0,
              "chunks are whole tiles");

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
template <Prefetch kPrefetch>
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
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(6, w + 64, kStepBytes);
    if constexpr (kPrefetch == Prefetch::kStream) ask<kPrefetch>(w + kStreamAhead + kBlock / 4);
    if constexpr (kPrefetch == Prefetch::kTwoLines) ask<kPrefetch>(ahead + kBlock / 4);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(7, w + 128, kStepBytes);
    if constexpr (kPrefetch == Prefetch::kStream) ask<kPrefetch>(w + kStreamAhead + kBlock / 2);
    _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(5, w + 192, kStepBytes);
    if constexpr (kPrefetch == Prefetch::kStream) ask<kPrefetch>(w + kStreamAhead + kBlock / 4 * 3);
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
template <Prefetch kPrefetch>
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
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, a + second * args.a_stride, args.a_stride);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c0, kPanelStride);
    _tile_stored(1, c0 + 16, kPanelStride);
    _tile_stored(2, c1, kPanelStride);
    _tile_stored(3, c1 + 16, kPanelStride);
  }
}

template <Prefetch kPrefetch>
void tile(const TileArgs& args) {
  configure(args.n_rows);
  if (args.n_rows > kTileRow)
    wide_tile<kPrefetch>(args);
  else
    narrow_tile<kPrefetch>(args);
}

// A tile's sixteen steps are one group of int8.
static_assert(kGroupValues == 4 * kStepsPerTile);

// Integer sums of a group, [n_rows][kPanel], times its scale, to the chains in c.
void add_group(const TileArgs& args,
               const std::byte* groups,
               bool first,
               const std::int32_t* sums) {
  float* c = args.c;
  for (int r = 0; r < args.n_rows; ++r, groups += args.a_stride, sums += kPanel, c += kPanel) {
    const RowGroup group = *reinterpret_cast<const RowGroup*>(groups);
    const __m512 scale = _mm512_set1_ps(group.scale);
    const __m512i start = _mm512_set1_epi32(group.start);
#pragma GCC unroll 4
    for (int i = 0; i < kPanel; i += 16) {
      const __m512i sum = _mm512_add_epi32(_mm512_load_si512(sums + i), start);
      const __m512 chain = first ? _mm512_setzero_ps() : _mm512_loadu_ps(c + i);
      _mm512_storeu_ps(c + i, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, chain));
    }
  }
}

// Up to sixteen rows of int8 against the 64 outputs of a panel.
template <Prefetch kPrefetch>
void i8_tile(const TileArgs& args) {
  configure(args.n_rows);
  alignas(64) std::int32_t sums[kTileRow * kPanel];
  constexpr int kStreamAhead = 2 * kBlock;
  constexpr int kLines = kPrefetch == Prefetch::kOneLine    ? 1
                         : kPrefetch == Prefetch::kTwoLines ? 2
                                                            : 0;
  const std::byte* w = args.w;
  const std::byte* a = args.a;
  const std::byte* ahead = args.ahead;
  const std::byte* groups = reinterpret_cast<const std::byte*>(args.groups);
  for (std::int64_t step = 0; step < args.n_steps; step += kStepsPerTile) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, a, args.a_stride);
    _tile_loadd(5, w, kStepBytes);
    _tile_dpbsud(0, 4, 5);
    _tile_loadd(6, w + 64, kStepBytes);
    _tile_dpbsud(1, 4, 6);
    _tile_loadd(7, w + 128, kStepBytes);
    _tile_dpbsud(2, 4, 7);
    _tile_loadd(5, w + 192, kStepBytes);
    _tile_dpbsud(3, 4, 5);
    if constexpr (kPrefetch == Prefetch::kStream)
      for (int quarter = 0; quarter < 4; ++quarter)
        ask<kPrefetch>(w + kStreamAhead + quarter * (kBlock / 4));
    for (int i = 0; i < kLines; ++i, ahead += kBlock / 4) ask<kPrefetch>(ahead);
    _tile_stored(0, sums, kPanelStride);
    _tile_stored(1, sums + 16, kPanelStride);
    _tile_stored(2, sums + 32, kPanelStride);
    _tile_stored(3, sums + 48, kPanelStride);
    add_group(args, groups, args.first && step == 0, sums);
    w += kBlock;
    a += kGroupValues;
    groups += sizeof(RowGroup);
  }
}

Product tiled_product() {
  Product product;
  product.activation = Activation::kBf16;
  product.k_per_step = 2;
  product.k_multiple = kStepsPerTile * product.k_per_step;
  product.tile_rows = kMostTileRows;
  product.chunk_steps = kChunkSteps;
  for (auto& row : product.tile) {
    row[0] = tile<Prefetch::kNone>;
    row[1] = tile<Prefetch::kStream>;
    row[2] = tile<Prefetch::kOneLine>;
    row[3] = tile<Prefetch::kTwoLines>;
  }
  product.scale = isa_avx512_bf16()->bf16.scale;
  product.leave = leave_tiles;
  return product;
}

Product tiled_i8_product() {
  Product product = tiled_product();
  product.activation = Activation::kI8;
  product.k_per_step = 4;
  product.k_multiple = kGroupValues;
  product.tile_rows = kTileRow;
  for (auto& row : product.tile) {
    row[0] = i8_tile<Prefetch::kNone>;
    row[1] = i8_tile<Prefetch::kStream>;
    row[2] = i8_tile<Prefetch::kOneLine>;
    row[3] = i8_tile<Prefetch::kTwoLines>;
  }
  return product;
}

Isa make_table() {
  Isa table = *isa_avx512_bf16();
  table.isa = CpuIsa::kAmx;
  table.name = "amx";
  table.numerics = "amx";
  table.bf16 = tiled_product();
  table.i8 = tiled_i8_product();
  // Intel's processors multiply pairs of bf16 at half the rate of f32.
  const auto bf16 = static_cast<int>(DType::kBf16);
  table.attention[bf16] = isa_avx512()->attention[bf16];
  return table;
}

}  // namespace

const Isa* isa_amx() {
  static const Isa table = make_table();
  return &table;
}

}  // namespace foretoken::cpu
