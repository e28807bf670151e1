#include "kernels/include/layout.h"
#include "tests/conformance/op_test.h"

namespace foretoken::test {
namespace {

// Sequences as plain [position][head][dim] keys and values; laid out in blocks on demand.
struct Sequences {
  Sequences(std::mt19937& rng, const cases::Attention& c_in, DType dtype_in)
      : c(c_in), dtype(dtype_in) {
    const std::int64_t width = std::int64_t{c.n_kv_heads} * c.head_dim;
    for (std::int32_t s = 0; s < c.n_sequences; ++s) {
      n_tokens.push_back(c.n_before + 5 * s + c.n_rows);  // lengths differ
      keys.push_back(random_floats(rng, n_tokens.back() * width));
      values.push_back(random_floats(rng, n_tokens.back() * width));
      queries.push_back(random_floats(rng, std::int64_t{c.n_rows} * c.n_heads * c.head_dim, 2));
    }
    scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    if (dtype == DType::kF8E4M3) {
      std::uniform_real_distribution<float> some(0.004f, 0.1f);
      for (std::int32_t i = 0; i < 2 * 2 * c.n_kv_heads; ++i) kv_scales.push_back(some(rng));
    }
  }
  const float* host_scales() const { return kv_scales.empty() ? nullptr : kv_scales.data(); }

  cases::Attention c;
  DType dtype;
  float scale = 1;
  std::vector<std::int32_t> n_tokens;
  std::vector<std::vector<float>> keys, values, queries;
  std::vector<float> kv_scales;  // of two layers; fp8 alone
};

// Some rows of some sequences in blocks: everything an AttnPagedArgs points to, on the host.
struct Batch {
  struct Part {
    std::int32_t sequence;
    std::vector<std::int32_t> rows;  // of that sequence, ascending
  };

  // Blocks are dealt in random order; what no token uses is NaN, so that reading it would show.
  Batch(std::mt19937& rng,
        const Sequences& data,
        const std::vector<Part>& parts,
        std::int32_t block_tokens) {
    const cases::Attention& c = data.c;
    geometry = {data.dtype, 2, c.n_kv_heads, c.head_dim, block_tokens};
    for (const Part& part : parts)
      max_blocks = std::max(
          max_blocks, (data.n_tokens[static_cast<std::size_t>(part.sequence)] + block_tokens - 1) /
                          block_tokens);
    max_blocks += 1;
    n_blocks = max_blocks * static_cast<std::int32_t>(parts.size()) + 3;
    blocks.assign(static_cast<std::size_t>(n_blocks) * geometry.block_bytes(), std::byte{0xff});
    std::vector<std::int32_t> free(static_cast<std::size_t>(n_blocks));
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), rng);
    row_begin.push_back(0);
    for (const Part& part : parts) {
      const auto s = static_cast<std::size_t>(part.sequence);
      std::vector<std::int32_t> table;
      for (std::int32_t b = 0; b < max_blocks; ++b) {
        const bool needed = b * block_tokens < data.n_tokens[s];
        table.push_back(needed ? free.back() : -1);
        if (needed) free.pop_back();
      }
      for (std::int32_t t = 0; t < data.n_tokens[s]; ++t)
        write_token(data, s, t, table[static_cast<std::size_t>(t / block_tokens)]);
      tables.insert(tables.end(), table.begin(), table.end());
      for (const std::int32_t r : part.rows) {
        const auto width = static_cast<std::ptrdiff_t>(c.n_heads * c.head_dim);
        q.insert(q.end(), data.queries[s].begin() + r * width,
                 data.queries[s].begin() + (r + 1) * width);
        positions.push_back(data.n_tokens[s] - c.n_rows + r);
      }
      row_begin.push_back(static_cast<std::int32_t>(positions.size()));
    }
    n_heads = c.n_heads;
    scale = data.scale;
    kv_scales = data.kv_scales;
  }

  void write_token(const Sequences& data, std::size_t s, std::int32_t t, std::int32_t block) {
    const std::int32_t n_kv = geometry.n_kv_heads, d = geometry.head_dim;
    for (std::int32_t h = 0; h < n_kv; ++h)
      for (const KvHalf half : {KvHalf::kKeys, KvHalf::kValues})
        for (std::int32_t i = 0; i < d; ++i) {
          const std::vector<float>& from = half == KvHalf::kKeys ? data.keys[s] : data.values[s];
          const float x = from[static_cast<std::size_t>((t * n_kv + h) * d + i)];
          std::byte* at = blocks.data() +
                          kv_offset(geometry, block, t % geometry.block_tokens, 1, half, h) +
                          static_cast<std::size_t>(i) * size_bytes(geometry.dtype);
          const std::uint16_t narrow =
              geometry.dtype == DType::kBf16 ? f32_to_bf16(x) : f32_to_f16(x);
          if (geometry.dtype == DType::kF8E4M3)
            *at = static_cast<std::byte>(
                f32_to_e4m3(x / data.kv_scales[static_cast<std::size_t>(
                                    kv_scale_index(geometry, 1, half == KvHalf::kValues, h))]));
          else if (geometry.dtype == DType::kF32)
            std::memcpy(at, &x, sizeof x);
          else
            std::memcpy(at, &narrow, sizeof narrow);
        }
  }

  AttnPagedArgs args(const float* q_at,
                     const std::int32_t* positions_at,
                     const std::int32_t* begin_at,
                     const std::int32_t* tables_at,
                     std::byte* blocks_at,
                     float* out,
                     const float* scales_at = nullptr) const {
    return {.q = q_at,
            .n_rows = static_cast<std::int32_t>(positions.size()),
            .n_heads = n_heads,
            .positions = positions_at,
            .n_sequences = static_cast<std::int32_t>(row_begin.size()) - 1,
            .row_begin = begin_at,
            .block_tables = tables_at,
            .max_blocks = max_blocks,
            .kv = {geometry, blocks_at, n_blocks, scales_at},
            .layer = 1,
            .scale = scale,
            .out = out};
  }

  std::vector<float> run(Backend& backend) const {
    const OnDevice<float> q_device(backend, q), out(backend, std::vector<float>(q.size(), -7.0f));
    const OnDevice<std::int32_t> p(backend, positions), b(backend, row_begin), t(backend, tables);
    const OnDevice<std::byte> kv(backend, blocks);
    const OnDevice<float> scales(backend, kv_scales);
    backend.attn_paged(
        args(q_device.get(), p.get(), b.get(), t.get(), kv.get(), out.get(), scales.get()));
    return out.host();
  }

  KvGeometry geometry;
  std::int32_t max_blocks = 0, n_blocks = 0, n_heads = 0;
  float scale = 1;
  std::vector<std::byte> blocks;
  std::vector<float> q, kv_scales;
  std::vector<std::int32_t> positions, row_begin, tables;
};

std::vector<Batch::Part> everything(const cases::Attention& c) {
  std::vector<Batch::Part> parts;
  std::vector<std::int32_t> rows(static_cast<std::size_t>(c.n_rows));
  std::iota(rows.begin(), rows.end(), 0);
  for (std::int32_t s = 0; s < c.n_sequences; ++s) parts.push_back({s, rows});
  return parts;
}

class AttnPaged : public OpTest {
 protected:
  static ref::AttentionOperands operands() {
    return GetParam().isa == CpuIsa::kAvx512Bf16 ? ref::AttentionOperands::kBf16Pairs
                                                 : ref::AttentionOperands::kF32;
  }
};

TEST_P(AttnPaged, MatchesReferenceOnEveryCase) {
  for (const DType dtype : cases::kv_dtypes())
    for (const cases::Attention& c : cases::attentions()) {
      SCOPED_TRACE(testing::Message()
                   << dtype_name(dtype) << " rows " << c.n_rows << " before " << c.n_before
                   << " heads " << c.n_heads << "/" << c.n_kv_heads << " x " << c.head_dim);
      const Sequences data(rng, c, dtype);
      Batch batch(rng, data, everything(c), c.block_tokens);
      const auto want = ref::attn_paged(
          batch.args(batch.q.data(), batch.positions.data(), batch.row_begin.data(),
                     batch.tables.data(), batch.blocks.data(), nullptr, data.host_scales()),
          operands());
      ASSERT_TRUE(close(batch.run(backend()), want));
    }
}

TEST_P(AttnPaged, TheEmptyBatchWritesNothing) {
  const cases::Attention c = cases::attentions().front();
  const Sequences data(rng, c, DType::kF32);
  const Batch batch(rng, data, everything(c), c.block_tokens);
  const OnDevice<float> q(backend(), batch.q);
  const OnDevice<std::int32_t> positions(backend(), batch.positions),
      begin(backend(), batch.row_begin), tables(backend(), batch.tables);
  const OnDevice<std::byte> blocks(backend(), batch.blocks);
  const Untouched out(backend(), static_cast<std::int64_t>(batch.q.size()));
  AttnPagedArgs args =
      batch.args(q.get(), positions.get(), begin.get(), tables.get(), blocks.get(), out.get());
  args.n_rows = args.n_sequences = 0;
  backend().attn_paged({});
  backend().attn_paged(args);
  EXPECT_TRUE(out.intact());
  EXPECT_TRUE(blocks.host() == batch.blocks);
}

TEST_P(AttnPaged, GivesTheSameBitsTwice) {
  const cases::Attention c{3, 20, 100, 8, 2, 64, 16};
  const Sequences data(rng, c, DType::kBf16);
  const Batch batch(rng, data, everything(c), 16);
  const auto once = batch.run(backend(1));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(same_bits(batch.run(backend(3)), once));
}

// A row alone, a row among others of its sequence, among other sequences, with blocks of other
// sizes in another order.
TEST_P(AttnPaged, RowDoesNotDependOnItsNeighbours) {
  for (const DType dtype : cases::kv_dtypes()) {
    SCOPED_TRACE(dtype_name(dtype));
    // bf16: heads that the matrix unit takes; the others: heads that nothing likes.
    const cases::Attention c{
        3, 21, 70, 6, 2, dtype == DType::kBf16 || dtype == DType::kF8E4M3 ? 64 : 40, 16};
    const Sequences data(rng, c, dtype);
    const std::size_t width = static_cast<std::size_t>(c.n_heads * c.head_dim);
    std::vector<std::vector<std::vector<float>>> alone(3);
    for (std::int32_t s = 0; s < 3; ++s)
      for (std::int32_t r = 0; r < c.n_rows; ++r)
        alone[static_cast<std::size_t>(s)].push_back(
            Batch(rng, data, {{s, {r}}}, 16).run(backend(1)));
    for (int round = 0; round < 40; ++round) {
      std::vector<std::int32_t> order = {0, 1, 2};
      std::shuffle(order.begin(), order.end(), rng);
      order.resize(1 + rng() % 3);
      std::vector<Batch::Part> parts;
      for (const std::int32_t s : order) {
        const std::int32_t first = static_cast<std::int32_t>(rng() % 21),
                           n = 1 + static_cast<std::int32_t>(rng() % 21);
        Batch::Part part{s, {}};
        for (std::int32_t r = first; r < std::min(first + n, c.n_rows); ++r) part.rows.push_back(r);
        parts.push_back(part);
      }
      const std::int32_t block_tokens[] = {16, 8, 1, 24, 64};
      const Batch batch(rng, data, parts, block_tokens[round % 5]);
      const auto rows = split_rows(batch.run(backend(1 + round % 3)), batch.positions.size());
      ASSERT_EQ(rows.front().size(), width);
      std::size_t i = 0;
      for (const Batch::Part& part : parts)
        for (const std::int32_t r : part.rows)
          ASSERT_TRUE(same_bits(
              rows[i++],
              alone[static_cast<std::size_t>(part.sequence)][static_cast<std::size_t>(r)]))
              << "sequence " << part.sequence << " row " << r << " in round " << round;
    }
  }
}

// What a device does to use its 16-bit units must not cost the low bits of what is f32. Differences
// of large things show them: with two bf16 terms for three, the first score is 0 and the second
// result 6e-4 off.
TEST_P(AttnPaged, LowBitsOfQueriesAndWeightsCount) {
  const cases::Attention c{1, 1, 31, 1, 1, 64, 16};
  Sequences data(rng, c, DType::kBf16);
  const auto run = [&] { return Batch(rng, data, everything(c), 16).run(backend()); };
  if (operands() == ref::AttentionOperands::kBf16Pairs) {  // queries are the sum of two bf16
    const auto want = run();
    for (float& q : data.queries[0]) {
      const float high = bf16_to_f32(f32_to_bf16(q));
      q = high + bf16_to_f32(f32_to_bf16(q - high));
    }
    EXPECT_TRUE(same_bits(run(), want));
    for (float& q : data.queries[0]) q = bf16_to_f32(f32_to_bf16(q));
    EXPECT_FALSE(same_bits(run(), want));
    return;
  }
  const auto clear = [&] {
    for (auto* all : {&data.keys[0], &data.values[0], &data.queries[0]})
      std::fill(all->begin(), all->end(), 0.0f);
  };
  clear();
  data.scale = 0x1p18f;
  data.queries[0][0] = 1 + 0x1p-9f + 0x1p-18f;
  data.queries[0][1] = -1 - 0x1p-9f;
  data.keys[0][0] = data.keys[0][1] = 1;  // a score of 1, all others 0
  data.values[0][0] = 1;
  EXPECT_NEAR(run()[0], std::exp(1.0) / (std::exp(1.0) + 31), 1e-6);

  clear();
  data.scale = 1;
  data.queries[0][0] = 1;
  for (std::size_t t = 2; t < 32; ++t) data.keys[0][t * 64] = -200;
  const double distance = 161 * 0x1p-15;
  data.keys[0][64] = static_cast<float>(-distance);
  data.values[0][0] = -1;
  data.values[0][64] = 1;
  const double want = -std::tanh(distance / 2);
  EXPECT_NEAR(run()[0], want, 1e-4 * -want);
}

// Keys after a row's position are not its business, even when they are NaN: not where a span ends
// with the row, and not where a later row of its block has the span whole.
TEST_P(AttnPaged, LaterTokensDoNotReachEarlierRows) {
  struct Poisoned {
    cases::Attention c;
    DType dtype;
    std::int32_t from;  // position
  };
  for (const Poisoned& poisoned : {Poisoned{{1, 6, 20, 4, 2, 32, 16}, DType::kF32, 25},
                                   Poisoned{{1, 30, 40, 4, 2, 64, 16}, DType::kBf16, 60}}) {
    const cases::Attention& c = poisoned.c;
    Sequences data(rng, c, poisoned.dtype);
    const auto before = Batch(rng, data, everything(c), 16).run(backend());
    const std::ptrdiff_t first = std::ptrdiff_t{poisoned.from} * c.n_kv_heads * c.head_dim;
    std::fill(data.values[0].begin() + first, data.values[0].end(), std::nanf(""));
    std::fill(data.keys[0].begin() + first, data.keys[0].end(), std::nanf(""));
    const auto after = Batch(rng, data, everything(c), 16).run(backend());
    const auto clean =
        static_cast<std::size_t>((poisoned.from - c.n_before) * c.n_heads * c.head_dim);
    EXPECT_TRUE(same_bits({after.data(), clean}, {before.data(), clean}));
    for (std::size_t i = clean; i < after.size(); ++i) EXPECT_TRUE(std::isnan(after[i]));
  }
}

// The contract is checked before a device is asked; what lies in memory, where it can be read.
using AttnPagedDeathTest = AttnPaged;

TEST_P(AttnPagedDeathTest, RejectsWhatTheContractForbids) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const cases::Attention c{2, 2, 20, 4, 2, 8, 16};
  const Sequences data(rng, c, DType::kF32);
  Batch batch(rng, data, everything(c), 16);
  std::vector<float> out(batch.q.size());
  const auto args = [&] {
    return batch.args(batch.q.data(), batch.positions.data(), batch.row_begin.data(),
                      batch.tables.data(), batch.blocks.data(), out.data());
  };
  backend().attn_paged(args());
  AttnPagedArgs bad = args();
  bad.n_heads = 3;
  EXPECT_DEATH(backend().attn_paged(bad), "n_kv_heads");
  bad = args();
  bad.n_sequences = 5;
  EXPECT_DEATH(backend().attn_paged(bad), "n_sequences");
  bad = args();
  bad.scale = INFINITY;
  EXPECT_DEATH(backend().attn_paged(bad), "scale");
  batch.positions[1] = batch.max_blocks * 16;
  EXPECT_DEATH(backend().attn_paged(args()), "beyond the block table");
  batch.positions[1] = 21;
  batch.tables[0] = batch.n_blocks;
  EXPECT_DEATH(backend().attn_paged(args()), "block outside");
  batch.tables[0] = 0;
  batch.row_begin[1] = 0;
  EXPECT_DEATH(backend().attn_paged(args()), "without rows");
}

FORETOKEN_EVERY_DEVICE(AttnPaged);
FORETOKEN_EVERY_ISA(AttnPagedDeathTest);

}  // namespace
}  // namespace foretoken::test
