// Tiles of the matrix product: up to six rows against one panel of 64 outputs. Every output is one
// chain of additions along k: of products, or of integer sums of groups, which are exact, times the
// group's scale. The chain is cut into chunks by passing it through c, which changes no bit.
// Included by isa_*.cc.
#pragma once

// A Dot multiplies one column, kOutputs outputs side by side, by one step of k. Where kParts is 2,
// by one half of the step's values of k at a time, so that only its weights are unpacked; with
// kHalves, the first halves of the column's outputs are stored before their second halves.
// columns_for(rows): how many columns' sums a tile keeps in registers. Sums of a chain begin with
// start() and go back with finish(); those of a group begin with begin() and are added to the chain
// with add_to(), after the first group.
struct DotF32 {
  static constexpr Activation kActivation = Activation::kF32;
  static constexpr int kOutputs = 16, kParts = 1;
  static constexpr int kStripOutputs = Simd::kStripOutputs;
  static constexpr bool kHalves = false;
  static constexpr int columns_for(int rows) { return Simd::columns_for(rows); }
  using Acc = Simd::V;
  using W = Simd::V;
  using A = Simd::V;
  FT_INLINE W weights(const std::byte* p, int) {
    return Simd::load(reinterpret_cast<const float*>(p));
  }
  FT_INLINE A activation(const std::byte* p, int) {
    return Simd::set1(*reinterpret_cast<const float*>(p));
  }
  FT_INLINE Acc mac(const Acc& c, const W& w, const A& a) { return Simd::fma(w, a, c); }
  FT_INLINE Acc start(const float* c) { return Simd::load(c); }
  FT_INLINE void finish(float* c, const Acc& acc) { Simd::store(c, acc); }
  FT_INLINE Acc zero() { return Simd::zero(); }
};

// Two values of k per 64 bytes: sixteen outputs of the first, then of the second.
struct DotF16 : DotF32 {
  static constexpr int kParts = 2;
  static constexpr bool kHalves = true;
  FT_INLINE W weights(const std::byte* p, int part) {
    return Simd::load_f16(reinterpret_cast<const std::uint16_t*>(p) + 16 * part);
  }
  FT_INLINE A activation(const std::byte* p, int part) {
    return Simd::set1(reinterpret_cast<const float*>(p)[part]);
  }
};

// Bytes; far enough for memory, near enough for the first cache.
inline constexpr std::int64_t kStreamAhead = 2048;
inline constexpr std::int64_t kLine = 64;
// Of a panel that one tile takes in chunks. Whole: 8 KiB, the chunk in work and the one that is
// asked for share the first cache. In strips: fewer turns to begin and end weigh more than that.
inline constexpr int kStreamSteps = 32, kStripSteps = 128, kIntegerStripSteps = 64;

// Where nothing is asked for ahead of time, one function is the tile of every kind of asking: four
// of each would take a compiler minutes.
template <Prefetch kWanted>
inline constexpr Prefetch asked = Simd::kAsksAhead ? kWanted : Prefetch::kNone;

// Product::strip_outputs.
template <class Dot>
consteval int strip_outputs() {
  if constexpr (requires { Dot::kStripOutputs; })
    return Dot::kStripOutputs;
  else
    return kPanel;
}

// How many turns a tile takes over its panel, each for kColumns columns, whose sums stay in
// registers.
template <class Dot, int kColumns>
inline constexpr int kTurns = kPanel / (kColumns * Dot::kOutputs);

// Of a panel, which are read side by side: as many streams.
template <class Dot>
inline constexpr int kStrips = kPanel / strip_outputs<Dot>();
template <class Dot>
inline constexpr bool kHasStrips = strip_outputs<Dot>() < kPanel;

// Where a turn of a tile is: it reads steps at w and a, and asks for what is ahead.
struct Turn {
  const std::byte* w;
  const std::byte* a;
  const std::byte* ahead;
};
template <class Dot, int kRows, int kColumns>
using Sums = typename Dot::Acc[kRows][kColumns];

template <class Dot>
inline constexpr std::int64_t kColumnBytes = Dot::kOutputs* std::int64_t{kStepBytes} / kPanel;
template <class Dot>
inline constexpr std::int64_t kStripStepBytes =
    strip_outputs<Dot>() * std::int64_t{kStepBytes} / kPanel;
template <class Dot>
inline constexpr int kStripColumns = strip_outputs<Dot>() / Dot::kOutputs;

// Where column `column` of a panel begins.
template <class Dot>
FT_INLINE std::int64_t column_at(int column, std::int64_t strip_bytes) {
  return column / kStripColumns<Dot> * strip_bytes +
         column % kStripColumns<Dot> * kColumnBytes<Dot>;
}

// From `column` on.
template <class Dot>
FT_INLINE void begin_turn(const TileArgs& args, int column, Turn& turn) {
  turn.w = args.w + column_at<Dot>(column, args.strip_bytes);
  turn.a = args.a;
}

// Steps after which what a tile asks for repeats itself.
template <class Dot, Prefetch kPrefetch>
inline constexpr int kAskSteps = kHasStrips<Dot>&& kPrefetch != Prefetch::kNone ? kStrips<Dot> : 1;

// What a tile asks for beside step `step` of kAskSteps: lines of as many strips as there are, of
// half of them or of one, by turns. Memory gives several streams at a time faster than one.
template <class Dot, int kColumns, Prefetch kPrefetch>
FT_INLINE void ask_for_strips(Turn& turn, int step, std::int64_t strip_bytes) {
  static_assert(kStrips<Dot> == 4);  // a quarter of a chunk is a strip
  constexpr int kLines = static_cast<int>(kColumns * kColumnBytes<Dot> / kLine);  // of a step
  static_assert(kLines > 0);
#pragma GCC unroll 4
  for (int i = 0; i < kLines; ++i) {
    if constexpr (kPrefetch == Prefetch::kStream) {
      const int line = step * kLines + i;
      Simd::prefetch_near(turn.ahead + line % kStrips<Dot> * strip_bytes +
                          line / kStrips<Dot> * kLine);
    } else if constexpr (kPrefetch == Prefetch::kTwoLines) {
      if (step % 2 == 0) Simd::prefetch_far(turn.ahead + step / 2 * strip_bytes + i * kLine);
    } else {
      if (step == 0) Simd::prefetch_far(turn.ahead + i * kLine);
    }
  }
  if (step == kStrips<Dot> - 1) turn.ahead += kLines * kLine;
}

// The same of a whole panel: its own stream, or lines as memory lies.
template <class Dot, int kColumns, Prefetch kPrefetch>
FT_INLINE void ask_for_panel(Turn& turn, std::int64_t step) {
  if constexpr (kPrefetch == Prefetch::kStream) {
    static_assert(kTurns<Dot, kColumns> == 1, "several turns would ask for the same lines");
#pragma GCC unroll 4
    for (int i = 0; i < kStepBytes / kLine; ++i)
      Simd::prefetch_near(turn.w + i * kLine + kStreamAhead);
  } else {
    constexpr int kLines = kPrefetch == Prefetch::kTwoLines ? 2 : 1;
    if (step % kTurns<Dot, kColumns> == 0) {  // each turn asks for its share
      for (int i = 0; i < kLines; ++i) Simd::prefetch_far(turn.ahead + i * kLine);
      turn.ahead += kLines * kLine;
    }
  }
}

// Adds n_steps steps of products to the sums; whole kAskSteps.
template <class Dot, int kRows, int kColumns, Prefetch kPrefetch, int kKPerStep>
FT_INLINE void add_steps(Turn& turn,
                         std::int64_t a_stride,
                         std::int64_t strip_bytes,
                         std::int64_t n_steps,
                         Sums<Dot, kRows, kColumns>& acc) {
  constexpr std::int64_t kActivationStep = kKPerStep * activation_bytes(Dot::kActivation);
  constexpr int kAtOnce = kAskSteps<Dot, kPrefetch>;
  for (std::int64_t first = 0; first < n_steps; first += kAtOnce) {
#pragma GCC unroll 4
    for (int step = 0; step < kAtOnce; ++step) {
      if constexpr (kAtOnce > 1)
        ask_for_strips<Dot, kColumns, kPrefetch>(turn, step, strip_bytes);
      else if constexpr (kPrefetch != Prefetch::kNone)
        ask_for_panel<Dot, kColumns, kPrefetch>(turn, first);
#pragma GCC unroll 2
      for (int part = 0; part < Dot::kParts; ++part) {
        typename Dot::W weights[kColumns];
#pragma GCC unroll 8
        for (int b = 0; b < kColumns; ++b)
          weights[b] = Dot::weights(turn.w + column_at<Dot>(b, strip_bytes), part);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const typename Dot::A x = Dot::activation(turn.a + r * a_stride, part);
#pragma GCC unroll 8
          for (int b = 0; b < kColumns; ++b) acc[r][b] = Dot::mac(acc[r][b], weights[b], x);
        }
      }
      turn.w += kStripStepBytes<Dot>;
      turn.a += kActivationStep;
    }
  }
}

template <class Dot, int kRows, Prefetch kPrefetch, int kKPerStep>
void tile(const TileArgs& args) {
  constexpr int kColumns = Dot::columns_for(kRows);
  Turn turn{args.w, args.a, args.ahead};
  for (int column = 0; column < kPanel / Dot::kOutputs; column += kColumns) {
    Sums<Dot, kRows, kColumns> acc;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int b = 0; b < kColumns; ++b)
        acc[r][b] = args.first ? Dot::zero()
                               : Dot::start(args.c + r * kPanel + (column + b) * Dot::kOutputs);
    begin_turn<Dot>(args, column, turn);
    add_steps<Dot, kRows, kColumns, kPrefetch, kKPerStep>(turn, args.a_stride, args.strip_bytes,
                                                          args.n_steps, acc);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int b = 0; b < kColumns; ++b)
        Dot::finish(args.c + r * kPanel + (column + b) * Dot::kOutputs, acc[r][b]);
  }
}

template <class Dot, int kRows, Prefetch kPrefetch, int kKPerStep>
void grouped_tile(const TileArgs& given) {
  const TileArgs args = given;  // what is written to c cannot change it
  constexpr int kColumns = Dot::columns_for(kRows);
  constexpr int kGroupSteps = kGroupValues / kKPerStep;
  Turn turn{args.w, args.a, args.ahead};
  for (int column = 0; column < kPanel / Dot::kOutputs; column += kColumns) {
    begin_turn<Dot>(args, column, turn);
    const std::byte* groups = reinterpret_cast<const std::byte*>(args.groups);
    bool first = args.first;
    for (std::int64_t step = 0; step < args.n_steps;
         step += kGroupSteps, groups += sizeof(RowGroup), first = false) {
      RowGroup group[kRows];
      Sums<Dot, kRows, kColumns> acc;
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        group[r] = *reinterpret_cast<const RowGroup*>(groups + r * args.a_stride);
#pragma GCC unroll 8
        for (int b = 0; b < kColumns; ++b) acc[r][b] = Dot::begin(group[r].start);
      }
      add_steps<Dot, kRows, kColumns, kPrefetch, kKPerStep>(turn, args.a_stride, args.strip_bytes,
                                                            kGroupSteps, acc);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
        for (int b = 0; b < kColumns; ++b)
          Dot::add_to(args.c + r * kPanel + (column + b) * Dot::kOutputs, acc[r][b], group[r].scale,
                      first);
    }
  }
}

template <class Dot, int kRows, int kColumns>
using Chains = typename Dot::Chain[kRows][kColumns];

// c: the first of their columns in a panel; null: they start from zero.
template <class Dot, int kRows, int kColumns>
FT_INLINE void load_chains(typename Dot::Chain (&chain)[kRows][kColumns], const float* c) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int b = 0; b < kColumns; ++b)
      chain[r][b] = c == nullptr ? Simd::zero() : Simd::load(c + r * kPanel + b * Dot::kOutputs);
}

template <class Dot, int kRows, int kColumns>
FT_INLINE void store_chains(const typename Dot::Chain (&chain)[kRows][kColumns], float* c) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int b = 0; b < kColumns; ++b) Simd::store(c + r * kPanel + b * Dot::kOutputs, chain[r][b]);
}

// As grouped_tile, with the chains of fewer columns in registers beside the sums of a group: stores
// of 64 bytes take two cycles each on some processors, and 24 of them after each group a fifth of
// the tile. Where tiles share a panel, which is near then; one that reads its panel from memory
// reads it as it lies.
template <class Dot, int kRows, int kColumns, Prefetch kPrefetch, int kKPerStep>
void kept_tile(const TileArgs& args) {
  constexpr int kGroupSteps = kGroupValues / kKPerStep;
  Turn turn{args.w, args.a, args.ahead};
  for (int column = 0; column < kPanel / Dot::kOutputs; column += kColumns) {
    begin_turn<Dot>(args, column, turn);
    const std::byte* groups = reinterpret_cast<const std::byte*>(args.groups);
    float* c = args.c + column * Dot::kOutputs;
    Chains<Dot, kRows, kColumns> chain;
    load_chains<Dot>(chain, args.first ? nullptr : c);
    for (std::int64_t step = 0; step < args.n_steps;
         step += kGroupSteps, groups += sizeof(RowGroup)) {
      const auto group = [&](int r) {
        return reinterpret_cast<const RowGroup*>(groups + r * args.a_stride);
      };
      Sums<Dot, kRows, kColumns> acc;
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
        for (int b = 0; b < kColumns; ++b) acc[r][b] = Dot::begin(group(r)->start);
      add_steps<Dot, kRows, kColumns, kPrefetch, kKPerStep>(turn, args.a_stride, args.strip_bytes,
                                                            kGroupSteps, acc);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
        for (int b = 0; b < kColumns; ++b)
          chain[r][b] = Dot::add_scaled(chain[r][b], acc[r][b], group(r)->scale);
    }
    store_chains<Dot>(chain, c);
  }
}

template <class Dot, int kRows, Prefetch kPrefetch, int kKPerStep>
constexpr TileFunction tile_of() {
  if constexpr (!is_integer(Dot::kActivation))
    return tile<Dot, kRows, kPrefetch, kKPerStep>;
  else if constexpr (Dot::kept_columns_for(kRows) > 0 && kPrefetch != Prefetch::kStream)
    return kept_tile<Dot, kRows, Dot::kept_columns_for(kRows), kPrefetch, kKPerStep>;
  else
    return grouped_tile<Dot, kRows, kPrefetch, kKPerStep>;
}

[[maybe_unused]] void scale_outputs(const float* scales,
                                    const float* bias,
                                    std::int32_t n_rows,
                                    float* c) {
  constexpr int kLanes = 16;
  for (std::int32_t r = 0; r < n_rows; ++r)
    for (int i = 0; i < kPanel; i += kLanes, c += kLanes) {
      Simd::V y = Simd::load(c);
      if (scales != nullptr) y = Simd::mul(y, Simd::load(scales + i));
      if (bias != nullptr) y = Simd::add(y, Simd::load(bias + i));
      Simd::store(c, y);
    }
}

// Product::stream_steps.
template <class Dot>
consteval int stream_steps(int n_rows) {
  if (kHasStrips<Dot>) return is_integer(Dot::kActivation) ? kIntegerStripSteps : kStripSteps;
  return Dot::columns_for(n_rows) * Dot::kOutputs == kPanel ? 0 : kStreamSteps;
}

template <class Dot, int kKPerStep, int kRows>
void add_tiles(Product& product) {
  product.stream_steps[kRows - 1] = stream_steps<Dot>(kRows);
  product.tile[kRows - 1][0] = tile_of<Dot, kRows, Prefetch::kNone, kKPerStep>();
  product.tile[kRows - 1][1] = tile_of<Dot, kRows, asked<Prefetch::kStream>, kKPerStep>();
  product.tile[kRows - 1][2] = tile_of<Dot, kRows, asked<Prefetch::kOneLine>, kKPerStep>();
  product.tile[kRows - 1][3] = tile_of<Dot, kRows, asked<Prefetch::kTwoLines>, kKPerStep>();
  if constexpr (kRows > 1) add_tiles<Dot, kKPerStep, kRows - 1>(product);
}

template <class Dot, int kKPerStep>
Product make_product() {
  Product product;
  product.activation = Dot::kActivation;
  product.k_per_step = kKPerStep;
  product.strip_outputs = strip_outputs<Dot>();
  if (kHasStrips<Dot>) product.k_multiple = kStrips<Dot> * kKPerStep;
  product.halves_of = Dot::kHalves ? Dot::kOutputs : 0;
  static_assert(!Dot::kHalves || strip_outputs<Dot>() % Dot::kOutputs == 0);
  static_assert(Simd::kChunkSteps % kChunkMultiple == 0 && kStreamSteps % kChunkMultiple == 0 &&
                kStripSteps % kChunkMultiple == 0 && kIntegerStripSteps % kChunkMultiple == 0);
  if constexpr (is_integer(Dot::kActivation)) {
    constexpr int kGroupSteps = kGroupValues / kKPerStep;
    static_assert(kChunkMultiple % kGroupSteps == 0, "chunks are whole groups");
    product.k_multiple = kGroupValues;
  }
  product.chunk_steps = Simd::kChunkSteps;
  product.scale = scale_outputs;
  add_tiles<Dot, kKPerStep, kTileRows>(product);
  return product;
}
