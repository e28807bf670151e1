// Tiles of the product with weights of four bits: up to six rows against one panel of 64 outputs.
// A weight group is a line pair of 64 float16 scales and then steps of eight values of k. Rows have
// a scale for each unit of kUnit values. An output is one chain: for each unit in order, the exact
// integer sum, converted, times (weight scale x row scale), added by one fma; so tiles, chunks and
// the order of integer additions change no bit. Included by isa_*.cc.
#pragma once

// What follows needs of a DotI4, which multiplies kOutputs outputs by kSteps steps of k:
// weights(p): of those steps, the first at p; mac(sum, weights, a): a is at the row's 8 * kSteps
// codes; begin(start); add_to(c, sum, scales, t, first).

// Unit and group of weights that share a scale, in values of k.
template <int kGroup>
inline constexpr int kInt4Unit = kGroup < kGroupValues ? kGroup : kGroupValues;

// As kStreamAhead, which is one unit here: a tile asks for a unit's lines in bursts, column by
// column.
inline constexpr std::int64_t kInt4Ahead = 2 * kStreamAhead;

// Lines that a tile asks for while it is at part `part` of `n_parts` of a unit, of `n_lines` in
// all.
template <bool kNear>
FT_INLINE void ask_for_part(const std::byte* from, int part, int n_parts, int n_lines) {
  const int n = n_lines / n_parts;
  for (int i = 0; i < n; ++i) {
    const std::byte* line = from + (part * n + i) * kLine;
    if constexpr (kNear)
      Simd::prefetch_near(line);
    else
      Simd::prefetch_far(line);
  }
}

template <class Dot, int kRows, Prefetch kPrefetch, int kGroup>
void int4_tile(const TileArgs& given) {
  const TileArgs args = given;  // what is written to c cannot change it
  constexpr int kUnit = kInt4Unit<kGroup>, kUnitSteps = kUnit / kInt4StepValues;
  constexpr int kUnitLines = kUnitSteps * kStepBytes / static_cast<int>(kLine);
  constexpr int kColumns = kPanel / Dot::kOutputs;
  constexpr int kLinesAhead = kPrefetch == Prefetch::kOneLine    ? kUnitSteps
                              : kPrefetch == Prefetch::kTwoLines ? 2 * kUnitSteps
                                                                 : 0;
  const std::byte* w = args.w;
  const std::byte* a = args.a;
  const std::byte* groups = reinterpret_cast<const std::byte*>(args.groups);
  const std::byte* ahead = args.ahead;
  const std::byte* scales = w;
  bool first = args.first;
  for (std::int64_t step = 0; step < args.n_steps; step += kUnitSteps) {
    if (step * kInt4StepValues % kGroup == 0) {
      scales = w;
      w += kInt4ScaleBytes;
    }
    RowGroup group[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
      group[r] = *reinterpret_cast<const RowGroup*>(groups + r * args.a_stride);
    for (int column = 0; column < kColumns; ++column) {
      if constexpr (kPrefetch == Prefetch::kStream)
        ask_for_part<true>(w + kInt4Ahead, column, kColumns, kUnitLines);
      if constexpr (kLinesAhead > 0) ask_for_part<false>(ahead, column, kColumns, kLinesAhead);
      typename Dot::Acc acc[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) acc[r] = Dot::begin(group[r].start / kStartOverInt4);
      const std::byte* at = w + column * (kStepBytes / kColumns);
#pragma GCC unroll 8
      for (int s = 0; s < kUnitSteps; s += Dot::kSteps) {
        const typename Dot::W weights = Dot::weights(at + s * kStepBytes);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
          acc[r] = Dot::mac(acc[r], weights, a + r * args.a_stride + s * kInt4StepValues);
      }
      const typename Dot::Scales s =
          Dot::scales(scales + column * Dot::kOutputs * static_cast<int>(sizeof(std::uint16_t)));
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r)
        Dot::add_to(args.c + r * kPanel + column * Dot::kOutputs, acc[r], s, group[r].scale, first);
    }
    first = false;
    w += kUnitSteps * kStepBytes;
    a += kUnit;
    groups += sizeof(RowGroup);
    ahead += kLinesAhead * kLine;
  }
}

template <class Dot, int kGroup, int kRows>
void add_int4_tiles(Product& product) {
  product.tile[kRows - 1][0] = int4_tile<Dot, kRows, Prefetch::kNone, kGroup>;
  product.tile[kRows - 1][1] = int4_tile<Dot, kRows, Prefetch::kStream, kGroup>;
  product.tile[kRows - 1][2] = int4_tile<Dot, kRows, Prefetch::kOneLine, kGroup>;
  product.tile[kRows - 1][3] = int4_tile<Dot, kRows, Prefetch::kTwoLines, kGroup>;
  if constexpr (kRows > 1) add_int4_tiles<Dot, kGroup, kRows - 1>(product);
}

template <int kGroup>
Product make_int4_product() {
  Product product;
  product.activation = Activation::kI8;
  product.k_per_step = kInt4StepValues;
  product.k_multiple = kGroup;
  product.row_group = kInt4Unit<kGroup>;
  product.weight_group = kGroup;
  product.chunk_steps = Simd::kChunkSteps;  // one tile takes a panel whole: it reads line by line
  static_assert(Simd::kChunkSteps * kInt4StepValues % kGroup == 0, "chunks are whole groups");
  add_int4_tiles<DotI4, kGroup, kTileRows>(product);
  return product;
}
