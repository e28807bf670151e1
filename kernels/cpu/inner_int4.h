// Tiles of the product with weights of four bits: up to six rows against one panel of 64 outputs.
// A weight group is a line pair of 64 float16 scales, a line of their zero points where there are
// some, and then steps of eight values of k. Rows have a scale for each unit of kUnit values. An
// output is one chain: for each unit in order, the exact integer sum, converted, times (weight
// scale x row scale), added by one fma; so tiles, chunks and the order of integer additions change
// no bit. Included by isa_*.cc.
#pragma once

// What follows needs of a DotI4, which multiplies kOutputs outputs by kSteps steps of k:
// weights(p, values): of those steps, the first at p; mac(sum, weights, a): a is at the row's
// 8 * kSteps codes; begin(start); zeros(p) and begin(zeros, sum), the sum of a row's codes,
// negated; add_to(c, sum, scales, t, first). `values` is PlainCodes, or of a DotI4Table or a
// DotI4NonUniform, whose codes are looked up, values(table), and its begin_table(start) takes away
// what they have added. A DotI4NonUniform is for kNonUniformTable alone.
// With kShortColumns: half_step(p, half, values), multiply(w, four_codes(a)),
// add_products(products, w, a), add_pairs(sum, products), and kMostWeight, the largest weight,
// whose products of kSteps steps fit sums of 16 bits.

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

// Of a panel that takes turns with another, at most: 8 KiB of each.
inline constexpr int kPairSteps = 32;
// Whether a tile of so many rows takes two panels by turns: Product::pairs_panels.
template <int kRows>
inline constexpr bool kPairsPanels = Simd::kPairsPanels&& kRows == 1;

// Asks for n lines of each of the two streams that are ahead.
FT_INLINE void ask_for_pair(const std::byte*& ahead, std::int64_t pair_bytes, int n) {
  for (int i = 0; i < n; ++i, ahead += kLine) {
    Simd::prefetch_near(ahead);
    Simd::prefetch_near(ahead + pair_bytes);
  }
}

// Lines of the next chunk that a tile asks for in each unit.
template <Prefetch kPrefetch, int kUnitSteps>
inline constexpr int kInt4LinesAhead = kPrefetch == Prefetch::kOneLine    ? kUnitSteps
                                       : kPrefetch == Prefetch::kTwoLines ? 2 * kUnitSteps
                                                                          : 0;

struct NoZeros {};

// The zero points of a column of outputs, whose group begins at `header`.
template <class Dot, Int4Kind kKind>
FT_INLINE auto int4_zeros(const std::byte* header, int column) {
  if constexpr (kKind == Int4Kind::kZeroPoints)
    return Dot::zeros(header + kInt4ScaleBytes + column * Dot::kOutputs);
  else
    return NoZeros{};
}

// What codes are turned into weights with: once for each tile.
template <class Dot>
FT_INLINE auto int4_values(const TileArgs& args) {
  if constexpr (Dot::kHasTable)
    return Dot::values(args.table);
  else
    return PlainCodes{};
}

template <class Dot>
FT_INLINE typename Dot::Scales int4_scales(const std::byte* header, int column) {
  return Dot::scales(header + column * Dot::kOutputs * static_cast<int>(sizeof(std::uint16_t)));
}

// What a row's sum of a unit begins with: what 8, or the zero points, or the way in which a table
// is kept, add to it is taken away.
template <class Dot, class Zeros>
FT_INLINE typename Dot::Acc int4_begin(const Zeros& zeros, const RowGroup& group) {
  if constexpr (Dot::kHasTable)
    return Dot::begin_table(group.start);
  else if constexpr (std::is_same_v<Zeros, NoZeros>)
    return Dot::begin(group.start / kStartOverInt4);
  else
    return Dot::begin(zeros, group.start / kStartOverSum);
}

template <class Dot, int kRows, Prefetch kPrefetch, int kGroup, Int4Kind kKind>
void int4_tile(const TileArgs& given) {
  const TileArgs args = given;  // what is written to c cannot change it
  constexpr int kUnit = kInt4Unit<kGroup>, kUnitSteps = kUnit / kInt4StepValues;
  constexpr int kUnitLines = kUnitSteps * kStepBytes / static_cast<int>(kLine);
  constexpr int kColumns = kPanel / Dot::kOutputs;
  constexpr int kLinesAhead = kInt4LinesAhead<kPrefetch, kUnitSteps>;
  constexpr bool kAsksForPair = kPrefetch == Prefetch::kStream && kPairsPanels<kRows>;
  static_assert(!kAsksForPair || kUnitLines / kColumns % 2 == 0);
  const std::byte* w = args.w;
  const std::byte* a = args.a;
  const std::byte* groups = reinterpret_cast<const std::byte*>(args.groups);
  const std::byte* ahead = args.ahead;
  const std::byte* scales = w;
  const typename Dot::Values values = int4_values<Dot>(args);
  bool first = args.first;
  for (std::int64_t step = 0; step < args.n_steps; step += kUnitSteps) {
    if (step * kInt4StepValues % kGroup == 0) {
      scales = w;
      w += int4_header_bytes(kKind);
      if constexpr (kAsksForPair) ask_for_pair(ahead, args.pair_bytes, 1);
    }
    RowGroup group[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
      group[r] = *reinterpret_cast<const RowGroup*>(groups + r * args.a_stride);
    for (int column = 0; column < kColumns; ++column) {
      if constexpr (kAsksForPair)
        ask_for_pair(ahead, args.pair_bytes, kUnitLines / kColumns / 2);
      else if constexpr (kPrefetch == Prefetch::kStream)
        ask_for_part<true>(w + kInt4Ahead, column, kColumns, kUnitLines);
      if constexpr (kLinesAhead > 0) ask_for_part<false>(ahead, column, kColumns, kLinesAhead);
      typename Dot::Acc acc[kRows];
      const auto zeros = int4_zeros<Dot, kKind>(scales, column);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) acc[r] = int4_begin<Dot>(zeros, group[r]);
      const std::byte* at = w + column * (kStepBytes / kColumns);
#pragma GCC unroll 8
      for (int s = 0; s < kUnitSteps; s += Dot::kSteps) {
        const typename Dot::W weights = Dot::weights(at + s * kStepBytes, values);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
          acc[r] = Dot::mac(acc[r], weights, a + r * args.a_stride + s * kInt4StepValues);
      }
      const typename Dot::Scales s = int4_scales<Dot>(scales, column);
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

// As int4_tile, with the sums of 16 bits of kColumns columns in registers, which share the loads of
// a row's codes: where registers cannot hold the weights of several steps beside the sums.
template <class Dot, int kRows, int kColumns, Prefetch kPrefetch, int kGroup, Int4Kind kKind>
void short_int4_tile(const TileArgs& given) {
  static_assert(fits_i16(4 * Dot::kSteps, Dot::kMostWeight),
                "each sum has four products of a step");
  const TileArgs args = given;  // what is written to c cannot change it
  constexpr int kUnit = kInt4Unit<kGroup>, kUnitSteps = kUnit / kInt4StepValues;
  constexpr int kUnitLines = kUnitSteps * kStepBytes / static_cast<int>(kLine);
  constexpr int kTurnsOfPanel = kPanel / (kColumns * Dot::kOutputs);
  constexpr int kLinesAhead = kInt4LinesAhead<kPrefetch, kUnitSteps>;
  const std::byte* w = args.w;
  const std::byte* a = args.a;
  const std::byte* groups = reinterpret_cast<const std::byte*>(args.groups);
  const std::byte* ahead = args.ahead;
  const std::byte* scales = w;
  const typename Dot::Values values = int4_values<Dot>(args);
  if (args.first) __builtin_memset(args.c, 0, sizeof(float) * kRows * kPanel);
  for (std::int64_t step = 0; step < args.n_steps; step += kUnitSteps) {
    if (step * kInt4StepValues % kGroup == 0) {
      scales = w;
      w += int4_header_bytes(kKind);
    }
    RowGroup group[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
      group[r] = *reinterpret_cast<const RowGroup*>(groups + r * args.a_stride);
    for (int turn = 0; turn < kTurnsOfPanel; ++turn) {
      const int column = turn * kColumns;
      if constexpr (kPrefetch == Prefetch::kStream)
        ask_for_part<true>(w + kInt4Ahead, turn, kTurnsOfPanel, kUnitLines);
      if constexpr (kLinesAhead > 0) ask_for_part<false>(ahead, turn, kTurnsOfPanel, kLinesAhead);
      typename Dot::Acc sums[kRows][kColumns];
#pragma GCC unroll 8
      for (int s = 0; s < kUnitSteps; s += Dot::kSteps) {
        typename Dot::Acc products[kRows][kColumns];
#pragma GCC unroll 8
        for (int part = 0; part < 2 * Dot::kSteps; ++part) {
          const std::byte* at = w + (s + part / 2) * kStepBytes;
          typename Dot::Acc weights[kColumns];
#pragma GCC unroll 8
          for (int b = 0; b < kColumns; ++b)
            weights[b] = Dot::half_step(at + (column + b) * 4 * Dot::kOutputs, part % 2, values);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            const typename Dot::Acc four =
                Dot::four_codes(a + r * args.a_stride + s * kInt4StepValues + 4 * part);
#pragma GCC unroll 8
            for (int b = 0; b < kColumns; ++b)
              products[r][b] = part == 0 ? Dot::multiply(weights[b], four)
                                         : Dot::add_products(products[r][b], weights[b], four);
          }
        }
#pragma GCC unroll 8
        for (int b = 0; b < kColumns; ++b) {
          const auto zeros = int4_zeros<Dot, kKind>(scales, column + b);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r)
            sums[r][b] = Dot::add_pairs(s == 0 ? int4_begin<Dot>(zeros, group[r]) : sums[r][b],
                                        products[r][b]);
        }
      }
#pragma GCC unroll 8
      for (int b = 0; b < kColumns; ++b) {
        const typename Dot::Scales of_column = int4_scales<Dot>(scales, column + b);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
          Dot::add_to(args.c + r * kPanel + (column + b) * Dot::kOutputs, sums[r][b], of_column,
                      group[r].scale, false);
      }
    }
    w += kUnitSteps * kStepBytes;
    a += kUnit;
    groups += sizeof(RowGroup);
    ahead += kLinesAhead * kLine;
  }
}

// As kept_tile: some columns at a time, whose chains stay in registers; steps one by one, so that
// their weights do, too.
template <class Dot, int kRows, int kColumns, Prefetch kPrefetch, int kGroup, Int4Kind kKind>
void kept_int4_tile(const TileArgs& args) {
  constexpr int kUnit = kInt4Unit<kGroup>, kUnitSteps = kUnit / kInt4StepValues;
  constexpr int kTurnsOfPanel = kPanel / (kColumns * Dot::kOutputs);
  constexpr int kLinesAhead = kInt4LinesAhead<kPrefetch, kUnitSteps> / kTurnsOfPanel;
  const std::byte* ahead = args.ahead;
  const typename Dot::Values values = int4_values<Dot>(args);
  for (int turn = 0; turn < kTurnsOfPanel; ++turn) {
    const int column = turn * kColumns;
    const std::byte* w = args.w;
    const std::byte* a = args.a;
    const std::byte* groups = reinterpret_cast<const std::byte*>(args.groups);
    const std::byte* scales = w;
    float* c = args.c + column * Dot::kOutputs;
    Chains<Dot, kRows, kColumns> chain;
    load_chains<Dot>(chain, args.first ? nullptr : c);
    for (std::int64_t step = 0; step < args.n_steps; step += kUnitSteps) {
      if (step * kInt4StepValues % kGroup == 0) {
        scales = w;
        w += int4_header_bytes(kKind);
      }
      if constexpr (kLinesAhead > 0) ask_for_part<false>(ahead, 0, 1, kLinesAhead);
      ahead += kLinesAhead * kLine;
      const auto group = [&](int r) {
        return reinterpret_cast<const RowGroup*>(groups + r * args.a_stride);
      };
      typename Dot::Acc acc[kRows][kColumns];
#pragma GCC unroll 8
      for (int b = 0; b < kColumns; ++b) {
        const auto zeros = int4_zeros<Dot, kKind>(scales, column + b);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) acc[r][b] = int4_begin<Dot>(zeros, *group(r));
      }
      for (int s = 0; s < kUnitSteps; ++s, w += kStepBytes, a += kInt4StepValues) {
        typename Dot::Step weights[kColumns];
#pragma GCC unroll 8
        for (int b = 0; b < kColumns; ++b)
          weights[b] =
              Dot::step_weights(w + (column + b) * (kStepBytes / (kPanel / Dot::kOutputs)), values);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
          Dot::template add_step<kColumns>(acc[r], weights, a + r * args.a_stride);
      }
      typename Dot::Scales s[kColumns];
#pragma GCC unroll 8
      for (int b = 0; b < kColumns; ++b) s[b] = int4_scales<Dot>(scales, column + b);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
        for (int b = 0; b < kColumns; ++b)
          chain[r][b] = Dot::add_scaled(chain[r][b], acc[r][b], s[b], group(r)->scale);
      groups += sizeof(RowGroup);
    }
    store_chains<Dot>(chain, c);
  }
}

// Columns of short_int4_tile; 0: it is not for this Dot.
template <class Dot>
consteval int short_columns_for(int rows) {
  if constexpr (requires { Dot::kShortColumns; })
    return rows == 1 ? 0 : Dot::kShortColumns;
  else
    return 0;
}

template <class Dot, int kRows, Prefetch kPrefetch, int kGroup, Int4Kind kKind>
constexpr TileFunction int4_tile_of() {
  if constexpr (short_columns_for<Dot>(kRows) > 0)
    return short_int4_tile<Dot, kRows, short_columns_for<Dot>(kRows), kPrefetch, kGroup, kKind>;
  else if constexpr (Dot::kept_columns_for(kRows) > 0 && kPrefetch != Prefetch::kStream)
    return kept_int4_tile<Dot, kRows, Dot::kept_columns_for(kRows), kPrefetch, kGroup, kKind>;
  else
    return int4_tile<Dot, kRows, kPrefetch, kGroup, kKind>;
}

template <class Dot, int kGroup, Int4Kind kKind, int kRows>
void add_int4_tiles(Product& product) {
  auto& tile = product.tile[kRows - 1];
  tile[0] = int4_tile_of<Dot, kRows, Prefetch::kNone, kGroup, kKind>();
  tile[1] = int4_tile_of<Dot, kRows, asked<Prefetch::kStream>, kGroup, kKind>();
  tile[2] = int4_tile_of<Dot, kRows, asked<Prefetch::kOneLine>, kGroup, kKind>();
  tile[3] = int4_tile_of<Dot, kRows, asked<Prefetch::kTwoLines>, kGroup, kKind>();
  if constexpr (kRows > 1) add_int4_tiles<Dot, kGroup, kKind, kRows - 1>(product);
}

template <int kGroup, Int4Kind kKind>
Product make_int4_product() {
  Product product;
  product.activation = Activation::kI8;
  product.k_per_step = kInt4StepValues;
  product.k_multiple = kGroup;
  product.row_group = kInt4Unit<kGroup>;
  product.weight_group = kGroup;
  product.group_header_bytes = int4_header_bytes(kKind);
  // One tile takes a panel whole, because it reads line by line, but for one row's pairs.
  product.chunk_steps = Simd::kChunkSteps;
  product.pairs_panels = kPairsPanels<1>;
  if (product.pairs_panels) product.stream_steps[0] = kPairSteps;
  product.scale = scale_outputs;
  static_assert(Simd::kChunkSteps % kChunkMultiple == 0 && kPairSteps % kChunkMultiple == 0 &&
                    kChunkMultiple * kInt4StepValues % kGroup == 0,
                "chunks are whole groups");
  // Tiles look at a kind for its zero points alone: those of two tables may be the same functions.
  if (const auto* table = int4_table(kKind)) product.int4_table = table->data();
  if constexpr (kKind == Int4Kind::kE2m1) {
    add_int4_tiles<DotI4Table, kGroup, Int4Kind::kOffset, kTileRows>(product);
  } else if constexpr (kKind == Int4Kind::kNonUniform) {
    add_int4_tiles<DotI4NonUniform, kGroup, Int4Kind::kOffset, kTileRows>(product);
  } else {
    add_int4_tiles<DotI4, kGroup, kKind, kTileRows>(product);
  }
  return product;
}

template <Int4Kind kKind>
void make_int4_products(Product (&products)[3]) {
  products[0] = make_int4_product<32, kKind>();
  products[1] = make_int4_product<64, kKind>();
  products[2] = make_int4_product<128, kKind>();
}
