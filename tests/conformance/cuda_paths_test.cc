// What the CUDA kernels promise one another: every path gives the same bits, and no bit depends on
// the order in which threads run, on how attention is cut, or on being replayed. Runs on the
// emulated device and, where there is one, on a real one.
#include <algorithm>
#include <set>

#include "kernels/include/fragment.h"
#include "kernels/include/layout.h"
#include "tests/conformance/op_test.h"
#if defined(FORETOKEN_EMU)
#include "kernels/emu/machine.h"
#endif

namespace foretoken::test {
namespace {

// --- Maps

TEST(Fragment, WhoHoldsAValueIsTheInverseOfWhatALaneHolds) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < fragment::kAValues; ++i) {
      const int row = fragment::a_row(lane, i), k = fragment::a_k(lane, i);
      EXPECT_EQ(fragment::a_lane(row, k), lane);
      EXPECT_EQ(fragment::a_value(row, k), i);
    }
    for (int i = 0; i < fragment::kBValues; ++i) {
      const int k = fragment::b_k(lane, i), token = fragment::b_token(lane);
      EXPECT_EQ(fragment::b_lane(k, token), lane);
      EXPECT_EQ(fragment::b_value(k), i);
    }
  }
}

TEST(Fragment, PackedWeightsFillTheirBlocksOnce) {
  for (const int element : {1, 2}) {
    std::set<std::int64_t> offsets;
    for (std::int64_t row = 0; row < 256; ++row)
      for (std::int64_t k = 0; k < 192; ++k)
        offsets.insert(fragment::weight_offset(element, 3, row, k));
    EXPECT_EQ(offsets.size(), 256u * 192);
    EXPECT_EQ(*offsets.rbegin(), 256 * 192 * element - element);
  }
}

TEST(Fragment, PackedRowsFillTheirGroupsOnce) {
  std::set<std::int64_t> offsets;
  for (std::int64_t token = 0; token < 24; ++token)
    for (std::int64_t k = 0; k < 192; ++k) offsets.insert(fragment::x_offset(3, token, k));
  EXPECT_EQ(offsets.size(), 24u * 192);
  EXPECT_EQ(*offsets.rbegin(), 24 * 192 * 2 - 2);
}

TEST(Fragment, PartsAndRunsCoverEverythingOnce) {
  for (const std::int64_t rows : {1, 16, 24, 64, 80, 119, 120, 448})
    for (const std::int64_t k : {1, 7, 8, 15, 16, 63, 64, 448}) {
      const int parts = fragment::k_parts(rows, k);
      EXPECT_EQ(fragment::part_begin(k, parts, 0), 0);
      EXPECT_EQ(fragment::part_begin(k, parts, parts), k);
      for (int part = 0; part < parts; ++part)
        EXPECT_LT(fragment::part_begin(k, parts, part), fragment::part_begin(k, parts, part + 1));
    }
  for (std::int32_t run = 0; run < 80; ++run) {
    EXPECT_LT(fragment::run_begin(run), fragment::run_begin(run + 1));
    EXPECT_EQ(fragment::runs_of(fragment::run_begin(run)), run);
    EXPECT_EQ(fragment::runs_of(fragment::run_begin(run) + 1), run + 1);
    EXPECT_EQ(fragment::run_begin(run) % 32, 0) << "spans must not cross runs";
  }
}

TEST(Narrow, EveryCodeKeepsItsValue) {
  for (unsigned code = 0; code < 256; ++code) {
    const int exponent = static_cast<int>(code >> 3 & 15), mantissa = static_cast<int>(code & 7);
    const double size =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    const double value = code & 0x80u ? -size : size;
    const auto byte = static_cast<std::uint8_t>(code);
    std::uint32_t low, high;
    i8_to_large_halves(code * 0x01010101u, low, high);
    for (const std::uint32_t pair : {low, high})
      for (const int shift : {0, 16})
        EXPECT_EQ(f16_to_f32(static_cast<std::uint16_t>(pair >> shift)) - 1152.0f,
                  static_cast<float>(static_cast<std::int8_t>(byte)));
    if (exponent == 15 && mantissa == 7) {
      EXPECT_TRUE(e4m3_is_nan(byte) && std::isnan(e4m3_to_f32(byte)));
      continue;
    }
    EXPECT_EQ(static_cast<double>(e4m3_to_f32(byte)), value) << code;
    e4m3_to_small_halves(code * 0x01010101u, low, high);
    for (const std::uint32_t pair : {low, high})
      for (const int shift : {0, 16})
        EXPECT_EQ(static_cast<double>(f16_to_f32(static_cast<std::uint16_t>(pair >> shift))) * 256,
                  value);
  }
  std::uint32_t low, high;
  e4m3_to_small_halves(0x03020100u, low, high);  // which code goes where
  EXPECT_EQ(low, 0x00800000u);
  EXPECT_EQ(high, 0x01800100u);
  i8_to_large_halves(0x03020100u, low, high);
  EXPECT_EQ(low, 0x64816480u);
  EXPECT_EQ(high, 0x64836482u);
}

// --- Paths

class CudaPaths : public OpTest {
 protected:
  // The simple kernels on the same kind of device.
  static std::unique_ptr<Backend> oracle() {
#if defined(FORETOKEN_EMU)
    if (GetParam().kind == Device::kEmulated) return emu::make_backend(9, CudaPath::kSimple);
#endif
    return make_backend({.device = "cuda", .cuda_path = CudaPath::kSimple});
  }
};

struct Shape {
  std::int64_t n_out, n_in;
};
// One part and one block; several parts with a ring that turns; more row blocks than one cluster.
constexpr Shape kShapes[] = {{100, 60}, {130, 1100}, {40, 8200}, {700, 1030}};

std::vector<float> all_products(Backend& b,
                                const Weights& weights,
                                const Weights& up,
                                const std::vector<float>& x,
                                const std::vector<float>& norm,
                                std::int32_t n_rows) {
  const LinearSource source = weights.source(), pair[] = {weights.source(), up.source()};
  const Linear rows = b.pack({&source, 1}), gate_up = b.pack(pair, Stacking::kGateUp);
  const auto n_out = static_cast<std::size_t>(n_rows * weights.n_out);
  const OnDevice<float> in(b, x), gain(b, norm);
  const OnDevice<float> sum(b, std::vector<float>(n_out, 1.5f)), part(b, std::vector<float>(n_out)),
      ffn(b, std::vector<float>(n_out));
  b.matmul_residual({.x = in.get(), .n_rows = n_rows, .weight = &rows, .residual = sum.get()});
  b.matmul_residual({.x = in.get(), .n_rows = n_rows, .weight = &rows, .partial = part.get()});
  b.gate_up_swiglu({.hidden = in.get(),
                    .n_rows = n_rows,
                    .norm = gain.get(),
                    .norm_eps = 1e-5f,
                    .gate_up = &gate_up,
                    .out = ffn.get()});
  std::vector<float> all = sum.host();
  for (const auto& more : {part.host(), ffn.host()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST_P(CudaPaths, EveryPathGivesTheBitsOfTheSimpleKernels) {
  const auto simple = oracle();
  for (const DType dtype : {DType::kBf16, DType::kF16, DType::kI8, DType::kF8E4M3})
    for (const Shape& shape : kShapes)
      for (const std::int32_t n_rows : {1, 2, 3, 11, 16}) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << n_rows << "x" << shape.n_out
                                        << "x" << shape.n_in);
        if (shape.n_in > 2000 && n_rows != 2 && n_rows != 11) continue;
        const Weights weights(rng, dtype, shape.n_out, shape.n_in, true),
            up(rng, dtype, shape.n_out, shape.n_in);
        const std::vector<float> x = random_floats(rng, n_rows * shape.n_in),
                                 norm = random_floats(rng, shape.n_in);
        ASSERT_TRUE(same_bits(all_products(backend(), weights, up, x, norm, n_rows),
                              all_products(*simple, weights, up, x, norm, n_rows)));
      }
}

// What the projection leaves: q, and the cache as bytes.
struct Heads {
  std::int32_t n_heads, n_kv_heads, head_dim;
  std::int64_t n_in;
  bool norms;
};
std::vector<float> projected(
    Backend& b, std::mt19937& rng, DType dtype, DType kv_dtype, const Heads& h, std::int32_t n) {
  const std::int64_t n_out = std::int64_t{h.n_heads + 2 * h.n_kv_heads} * h.head_dim;
  const Weights weights(rng, dtype, n_out, h.n_in, true);
  const LinearSource source = weights.source();
  const Linear qkv = b.pack({&source, 1});
  const OnDevice<float> hidden(b, random_floats(rng, n * h.n_in, 3)),
      norm(b, random_floats(rng, h.n_in)), q_norm(b, random_floats(rng, h.head_dim)),
      k_norm(b, random_floats(rng, h.head_dim)), cos(b, random_floats(rng, 40 * h.head_dim / 2)),
      sin(b, random_floats(rng, 40 * h.head_dim / 2)),
      q(b, std::vector<float>(static_cast<std::size_t>(n * h.n_heads * h.head_dim)));
  std::vector<std::int32_t> at, to;
  for (std::int32_t r = 0; r < n; ++r) {
    at.push_back((r * 7 + 3) % 40);
    to.push_back((r * 5 + 1) % 32);
  }
  const OnDevice<std::int32_t> positions(b, at), slots(b, to);
  const KvGeometry geometry{kv_dtype, 2, h.n_kv_heads, h.head_dim, 16};
  const OnDevice<std::byte> blocks(
      b, std::vector<std::byte>(2 * geometry.block_bytes(), std::byte{0x55}));
  b.qkv_rope_append({.hidden = hidden.get(),
                     .n_rows = n,
                     .norm = norm.get(),
                     .norm_eps = 1e-5f,
                     .qkv = &qkv,
                     .q_norm = h.norms ? q_norm.get() : nullptr,
                     .k_norm = h.norms ? k_norm.get() : nullptr,
                     .n_heads = h.n_heads,
                     .rope_cos = cos.get(),
                     .rope_sin = sin.get(),
                     .n_positions = 40,
                     .positions = positions.get(),
                     .slots = slots.get(),
                     .kv = {geometry, blocks.get(), 2},
                     .layer = 1,
                     .q = q.get()});
  std::vector<float> all = q.host();
  for (const std::byte x : blocks.host()) all.push_back(static_cast<float>(x));
  return all;
}

TEST_P(CudaPaths, HeadsFinishedByTheProductHaveTheBitsOfHeadsFinishedApart) {
  const auto simple = oracle();
  // Heads that fill a row block, that share one, that end in the middle of one, that do not fit.
  for (const Heads& h :
       {Heads{2, 1, 128, 70, true}, Heads{6, 2, 64, 1100, false}, Heads{3, 3, 16, 130, true},
        Heads{4, 2, 34, 60, true}, Heads{2, 2, 2, 64, false}})
    for (const DType dtype : {DType::kBf16, DType::kF8E4M3})
      for (const std::int32_t n : {1, 3, 16}) {
        SCOPED_TRACE(testing::Message()
                     << dtype_name(dtype) << " " << n << " rows, heads of " << h.head_dim);
        const DType kv_dtype = n == 1 ? DType::kF32 : n == 3 ? DType::kBf16 : DType::kF16;
        std::mt19937 one(kSeed), other(kSeed);
        ASSERT_TRUE(same_bits(projected(backend(), one, dtype, kv_dtype, h, n),
                              projected(*simple, other, dtype, kv_dtype, h, n)));
      }
}

// embed and matmul_residual leave squares; who normalises with them gives the bits of who takes the
// sum himself. On 20 rows, too many for the ring, and a few of them afterwards.
TEST_P(CudaPaths, SquaresLeftBehindAreThoseOfTheRows) {
  const auto simple = oracle();
  Backend& b = backend();
  constexpr std::int32_t kIn = 300, kMid = 1030;
  const Weights table(rng, DType::kBf16, 50, kIn), out(rng, DType::kF8E4M3, kIn, kMid),
      up(rng, DType::kF8E4M3, 130, kIn);
  const LinearSource sources[] = {table.source(), out.source(), up.source()};
  const std::vector<float> norm = random_floats(rng, kIn);
  for (const std::int32_t n : {1, 2, 5, 16, 20}) {
    SCOPED_TRACE(n);
    const std::vector<float> x = random_floats(rng, n * kMid);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 3);
    const auto run = [&](Backend& d, bool with_squares) {
      const Linear embedding = d.pack({&sources[0], 1}), weight = d.pack({&sources[1], 1}),
                   head = d.pack({&sources[2], 1});
      const std::vector<std::int32_t> picked = {n - 1, 0, n / 2};
      const OnDevice<std::int32_t> ids(d, tokens), rows(d, picked);
      const OnDevice<float> in(d, x), gain(d, norm),
          hidden(d, std::vector<float>(static_cast<std::size_t>(n * kIn))),
          squares(d, std::vector<float>(static_cast<std::size_t>(n * squares_per_row(kIn)), 1e9f)),
          logits(d, std::vector<float>(3 * 130));
      float* left = with_squares ? squares.get() : nullptr;
      std::vector<float> all;
      const auto look = [&] {
        d.lm_head({.hidden = hidden.get(),
                   .rows = rows.get(),
                   .n_rows = 3,
                   .norm = gain.get(),
                   .norm_eps = 1e-5f,
                   .head = &head,
                   .logits = logits.get(),
                   .squares = left});
        const std::vector<float> now = logits.host();
        all.insert(all.end(), now.begin(), now.end());
      };
      d.embed({.table = &embedding,
               .tokens = ids.get(),
               .n_rows = n,
               .scale = 3.0f,
               .hidden = hidden.get(),
               .squares = left});
      look();
      d.matmul_residual({.x = in.get(),
                         .n_rows = n,
                         .weight = &weight,
                         .residual = hidden.get(),
                         .squares = left});
      look();
      return all;
    };
    const std::vector<float> want = run(*simple, false);
    EXPECT_TRUE(same_bits(run(b, true), want));
    EXPECT_TRUE(same_bits(run(b, false), want));
  }
}

// Few rows: runs apart, then merged. Many: one block walks them all.
TEST_P(CudaPaths, AttentionGivesTheSameBitsCutOrWhole) {
  constexpr std::int32_t kRows = 66, kBefore = 1250, kHeads = 4, kDim = 64, kBlock = 16;
  const KvGeometry geometry{DType::kBf16, 1, 2, kDim, kBlock};
  const std::int32_t n_blocks = (kBefore + kRows) / kBlock + 1;
  std::vector<std::uint16_t> kv(static_cast<std::size_t>(n_blocks) * geometry.block_bytes() / 2);
  std::normal_distribution<float> normal(0, 1);
  for (std::uint16_t& x : kv) x = f32_to_bf16(normal(rng));
  std::vector<std::int32_t> table(static_cast<std::size_t>(n_blocks));
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), rng);
  const std::vector<float> q = random_floats(rng, kRows * kHeads * kDim, 2);
  Backend& b = backend();
  const OnDevice<std::uint16_t> blocks(b, kv);
  const OnDevice<std::int32_t> tables(b, table);
  const auto run = [&](std::int32_t first, std::int32_t n) {
    const auto width = std::size_t{kHeads * kDim};
    const auto begin = q.begin() + static_cast<std::ptrdiff_t>(first) * kHeads * kDim;
    const OnDevice<float> in(b, {begin, begin + n * kHeads * kDim}),
        out(b, std::vector<float>(static_cast<std::size_t>(n) * width));
    std::vector<std::int32_t> at(static_cast<std::size_t>(n));
    std::iota(at.begin(), at.end(), kBefore + first);
    const OnDevice<std::int32_t> positions(b, at), row_begin(b, std::vector<std::int32_t>{0, n});
    b.attn_paged({.q = in.get(),
                  .n_rows = n,
                  .n_heads = kHeads,
                  .positions = positions.get(),
                  .n_sequences = 1,
                  .row_begin = row_begin.get(),
                  .block_tables = tables.get(),
                  .max_blocks = n_blocks,
                  .kv = {geometry, reinterpret_cast<std::byte*>(blocks.get()), n_blocks},
                  .scale = 0.2f,
                  .out = out.get()});
    return out.host();
  };
  const auto together = split_rows(run(0, kRows), kRows);
  for (const std::int32_t r : {0, 1, 29, 30, 65})
    EXPECT_TRUE(same_bits(together[static_cast<std::size_t>(r)], run(r, 1))) << "row " << r;
}

// What no half can hold becomes the largest one; infinity stays what it is.
TEST_P(CudaPaths, InputsBeyondTheLargestHalfAreTheLargestHalf) {
  const Weights weights(rng, DType::kF8E4M3, 40, 70);
  const LinearSource source = weights.source();
  Backend& b = backend();
  const Linear packed = b.pack({&source, 1});
  std::vector<float> x = random_floats(rng, 2 * 70);
  x[3] = 1e6f;
  x[30] = -65519.0f;
  x[31] = -7e4f;
  x[70 + 5] = -INFINITY;
  const std::vector<float> before(2 * 40, 0.0f);
  const OnDevice<float> in(b, x), sum(b, before);
  b.matmul_residual({.x = in.get(), .n_rows = 2, .weight = &packed, .residual = sum.get()});
  const auto rows = split_rows(sum.host(), 2);
  const auto want = ref::matmul_residual({.x = x.data(), .n_rows = 1}, ref::Matrix({&source, 1}),
                                         before.data(), ref::InputRounding::kF16);
  EXPECT_TRUE(close(rows[0], want));
  for (std::size_t i = 0; i < 40; ++i)
    if (weights.raw[1 + i * 70 + 5] != std::byte{0} &&
        weights.raw[1 + i * 70 + 5] != std::byte{0x80}) {
      EXPECT_TRUE(std::isinf(rows[1][i])) << i;
    }
}

// A step recorded once and replayed with other contents does what the calls do.
TEST_P(CudaPaths, ARecordingDoesWhatItsCallsDo) {
  Backend& b = backend();
  const Weights table(rng, DType::kBf16, 50, 130), out(rng, DType::kF8E4M3, 130, 130);
  const LinearSource table_source = table.source(), out_source = out.source();
  const Linear tokens_of = b.pack({&table_source, 1}), weight = b.pack({&out_source, 1});
  const OnDevice<std::int32_t> ids(b, {0, 0, 0});
  const OnDevice<float> hidden(b, std::vector<float>(3 * 130)),
      kept(b, std::vector<float>(3 * 130));
  const auto calls = [&] {
    b.embed({.table = &tokens_of, .tokens = ids.get(), .n_rows = 3, .hidden = hidden.get()});
    b.matmul_residual(
        {.x = hidden.get(), .n_rows = 3, .weight = &weight, .residual = hidden.get()});
    b.copy(kept.get(), hidden.get(), 3 * 130 * 4);
  };
  const auto recording = b.record(calls);
  EXPECT_TRUE(same_bits(kept.host(), std::vector<float>(3 * 130))) << "recording does nothing yet";
  for (int round = 0; round < 3; ++round) {
    const std::int32_t now[] = {round, 49 - round, 7};
    b.upload(ids.get(), now, sizeof now);
    b.replay(*recording);
    const std::vector<float> replayed = kept.host();
    calls();
    EXPECT_TRUE(same_bits(replayed, kept.host())) << "round " << round;
  }
}

// What is uploaded is what the source held at the call, however many uploads wait for the device
// and whatever way their sizes take.
TEST_P(CudaPaths, ASourceMayChangeAsSoonAsItsUploadReturns) {
  Backend& b = backend();
  const Weights weights(rng, DType::kBf16, 300, 300);
  const LinearSource source = weights.source();
  const Linear weight = b.pack({&source, 1});
  const OnDevice<float> rows(b, random_floats(rng, 3 * 300));
  const std::size_t sizes[] = {64, 4000, 300'000, 1'048'576, 1'100'000};
  constexpr int kUploads = 60;
  std::vector<Buffer> rooms;
  for (int i = 0; i < kUploads; ++i) rooms.push_back(b.allocate(sizes[i % 5]));
  std::vector<unsigned char> staged;
  for (int i = 0; i < kUploads; ++i) {
    b.matmul_residual({.x = rows.get(), .n_rows = 3, .weight = &weight, .residual = rows.get()});
    staged.assign(sizes[i % 5], static_cast<unsigned char>(i + 1));
    b.upload(rooms[static_cast<std::size_t>(i)].as<void>(), staged.data(), staged.size());
    std::fill(staged.begin(), staged.end(), static_cast<unsigned char>(0));
  }
  for (int i = 0; i < kUploads; ++i) {
    staged.assign(sizes[i % 5], 0);
    b.download(staged.data(), rooms[static_cast<std::size_t>(i)].as<void>(), staged.size());
    const auto expected = static_cast<unsigned char>(i + 1);
    EXPECT_EQ(std::count(staged.begin(), staged.end(), expected),
              static_cast<std::ptrdiff_t>(staged.size()))
        << "upload " << i;
  }
}

// A product may be added to its own rows.
TEST_P(CudaPaths, RowsMayBeAddedToThemselves) {
  const auto simple = oracle();
  const Weights weights(rng, DType::kBf16, 300, 300);
  const LinearSource source = weights.source();
  const std::vector<float> x = random_floats(rng, 3 * 300);
  const auto run = [&](Backend& b) {
    const Linear weight = b.pack({&source, 1});
    const OnDevice<float> rows(b, x);
    b.matmul_residual({.x = rows.get(), .n_rows = 3, .weight = &weight, .residual = rows.get()});
    return rows.host();
  };
  EXPECT_TRUE(same_bits(run(backend()), run(*simple)));
}

TEST_P(CudaPaths, RefusesWhatItCannotHold) {
  std::vector<std::uint8_t> codes(32 * 32, 0x38);
  codes[5 * 32 + 7] = 0xff;
  const std::vector<float> scales(32, 1.0f);
  const LinearSource source{DType::kF8E4M3, codes.data(), 32, 32, scales.data(), nullptr};
  try {
    backend().pack({&source, 1});
    FAIL() << "a NaN weight was packed";
  } catch (const FatalError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupportedModel);
    EXPECT_NE(std::string(error.what()).find("NaN"), std::string::npos) << error.what();
  }
  try {
    backend().allocate(std::size_t{1} << 60);
    FAIL() << "an allocation of 2^60 bytes succeeded";
  } catch (const FatalError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_NE(std::string(error.what()).find("1152921504606846976"), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaPaths, ::testing::ValuesIn(kCudaDevices), device_name);
#if defined(FORETOKEN_EMU)
FORETOKEN_EMULATED_RING(CudaPaths);

// Every op on few rows: the bits of all results, one after the other.
std::vector<float> all_ops(Backend& b) {
  std::mt19937 rng(kSeed);
  const Weights weights(rng, DType::kF8E4M3, 300, 1100, true), up(rng, DType::kF8E4M3, 300, 1100);
  std::vector<float> all;
  for (const std::int32_t n_rows : {2, 11}) {
    const std::vector<float> some = all_products(b, weights, up, random_floats(rng, n_rows * 1100),
                                                 random_floats(rng, 1100), n_rows);
    all.insert(all.end(), some.begin(), some.end());
  }
  for (const std::int32_t n_rows : {2, 11}) {
    const std::vector<float> heads =
        projected(b, rng, DType::kBf16, DType::kBf16, {2, 1, 64, 1100, true}, n_rows);
    all.insert(all.end(), heads.begin(), heads.end());
  }
  constexpr std::int32_t kTokens = 150, kHeads = 4, kBlock = 16, kRows = 3;
  for (const auto& [dtype, head_dim] : {std::pair{DType::kF32, 24}, std::pair{DType::kBf16, 64}}) {
    const KvGeometry geometry{dtype, 1, 2, head_dim, kBlock};
    std::vector<std::uint16_t> bits(10 * geometry.block_bytes() / 2);
    for (std::uint16_t& x : bits) x = static_cast<std::uint16_t>(rng() & 0xbfffu);  // finite
    const OnDevice<std::uint16_t> kv(b, bits);
    const OnDevice<float> q(b, random_floats(rng, kRows * kHeads * head_dim)),
        out(b, std::vector<float>(static_cast<std::size_t>(kRows * kHeads * head_dim)));
    const OnDevice<std::int32_t> at(b, {kTokens - 3, kTokens - 2, kTokens - 1}),
        begin(b, {0, kRows}), table(b, {3, 0, 4, 1, 2, 9, 5, 8, 6, 7});
    b.attn_paged({.q = q.get(),
                  .n_rows = kRows,
                  .n_heads = kHeads,
                  .positions = at.get(),
                  .n_sequences = 1,
                  .row_begin = begin.get(),
                  .block_tables = table.get(),
                  .max_blocks = 10,
                  .kv = {geometry, reinterpret_cast<std::byte*>(kv.get()), 10},
                  .scale = 0.2f,
                  .out = out.get()});
    const std::vector<float> attended = out.host();
    all.insert(all.end(), attended.begin(), attended.end());
  }
  constexpr std::int32_t kVocab = 5000;
  const OnDevice<float> logits(b, random_floats(rng, 3 * kVocab, 2));
  std::vector<RowRule> rules(3);
  rules[0].temperature = rules[1].temperature = 1;
  rules[1].top_k = 40;
  rules[1].top_p = 0.9f;
  for (RowRule& rule : rules) rule.n_top_logprobs = 5;
  const OnDevice<RowRule> rules_device(b, rules);
  const OnDevice<Choice> choices(b, std::vector<Choice>(3));
  const OnDevice<TopLogprob> top(b, std::vector<TopLogprob>(3 * kMaxTopLogprobs));
  b.choose({.logits = logits.get(),
            .n_rows = 3,
            .vocab = kVocab,
            .n_valid = kVocab,
            .rules = rules_device.get(),
            .choices = choices.get(),
            .top = top.get()});
  for (const Choice& c : choices.host())
    for (const float x : {static_cast<float>(c.token), static_cast<float>(c.score), c.logprob})
      all.push_back(x);
  for (const TopLogprob& t : top.host()) all.push_back(t.logprob);
  return all;
}

// Threads in order, in reverse, rotated, some warps far ahead of others: a barrier that is missing
// shows as other bits. Where launches overlap, a wait that is missing ends the program.
TEST(Schedule, NoBitDependsOnWhichThreadRunsFirst) {
  for (const CudaPath path : {CudaPath::kSimple, CudaPath::kRing, CudaPath::kRingOverlap}) {
    std::vector<float> first;
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      emu::set_schedule(seed);
      const std::vector<float> got = all_ops(*emu::make_backend(9, path));
      if (seed == 0) first = got;
      EXPECT_TRUE(same_bits(got, first)) << "schedule " << seed;
    }
  }
  emu::set_schedule(1);
}

TEST(Schedule, TheRingNeedsADeviceThatHasIt) {
  EXPECT_NO_THROW(emu::make_backend(8, CudaPath::kSimple));
  EXPECT_THROW(emu::make_backend(8, CudaPath::kRing), FatalError);
}
#endif

}  // namespace
}  // namespace foretoken::test
