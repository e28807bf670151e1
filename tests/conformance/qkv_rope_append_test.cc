#include "kernels/include/layout.h"
#include "tests/conformance/op_test.h"

namespace foretoken::test {
namespace {

constexpr float kEps = 1e-5f;
constexpr std::int32_t kPositions = 200;

// One layer's worth of data for any number of rows.
struct Layer {
  Layer(std::mt19937& rng,
        WeightType type,
        std::int32_t heads,
        KvGeometry geometry_in,
        std::int32_t n_rows,
        std::int32_t n_in,
        bool qk_norm)
      : n_heads(heads),
        geometry(geometry_in),
        weights(rng,
                type,
                std::int64_t{heads + 2 * geometry_in.n_kv_heads} * geometry_in.head_dim,
                n_in,
                n_in % 2 == 1),
        hidden(random_floats(rng, std::int64_t{n_rows} * n_in, 2)),
        norm(random_floats(rng, n_in)),
        q_norm(qk_norm ? random_floats(rng, geometry.head_dim) : std::vector<float>{}),
        k_norm(qk_norm ? random_floats(rng, geometry.head_dim) : std::vector<float>{}) {
    for (std::int32_t p = 0; p < kPositions; ++p)
      for (std::int32_t i = 0; i < geometry.head_dim / 2; ++i) {
        const double angle = p * std::pow(10000.0, -2.0 * i / geometry.head_dim);
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
    // Slots in no order at all, each row its own.
    for (std::int32_t r = 0; r < n_rows; ++r) {
      positions.push_back(static_cast<std::int32_t>(rng() % kPositions));
      slots.push_back(r * 7 % (n_blocks(n_rows) * geometry.block_tokens));
    }
    std::sort(slots.begin(), slots.end());
    slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
    for (std::int32_t s = 0; slots.size() < static_cast<std::size_t>(n_rows); ++s)
      if (std::find(slots.begin(), slots.end(), s) == slots.end()) slots.push_back(s);
    std::shuffle(slots.begin(), slots.end(), rng);
    if (geometry.dtype == DType::kF8E4M3) {
      std::uniform_real_distribution<float> some(0.004f, 0.1f);
      for (std::int32_t i = 0; i < 2 * 2 * geometry.n_kv_heads; ++i) kv_scales.push_back(some(rng));
    }
  }
  const float* host_scales() const { return kv_scales.empty() ? nullptr : kv_scales.data(); }

  std::int32_t n_blocks(std::int32_t n_rows) const { return n_rows / geometry.block_tokens + 2; }

  std::int32_t n_heads;
  KvGeometry geometry;
  Weights weights;
  std::vector<float> hidden, norm, q_norm, k_norm, cos, sin;
  std::vector<float> kv_scales;  // of two layers; fp8 alone
  std::vector<std::int32_t> positions, slots;
};

struct Result {
  std::vector<float> q, k, v;  // per row
};

class QkvRopeAppend : public OpTest {
 protected:
  static constexpr std::int32_t kLayer = 1;  // of two

  static Result run(Backend& backend,
                    const Linear& qkv,
                    const Layer& layer,
                    const std::vector<std::int32_t>& rows) {
    const auto n_in = static_cast<std::size_t>(qkv.n_in);
    const auto n_rows = static_cast<std::int32_t>(rows.size());
    const KvGeometry& g = layer.geometry;
    const std::int32_t n_blocks = layer.n_blocks(static_cast<std::int32_t>(layer.positions.size()));
    const OnDevice<float> hidden(backend, pick_rows(layer.hidden, n_in, rows)),
        norm(backend, layer.norm);
    const OnDevice<float> q_norm(backend, layer.q_norm), k_norm(backend, layer.k_norm);
    const OnDevice<float> cos(backend, layer.cos), sin(backend, layer.sin);
    const std::vector<std::int32_t> slots = pick_rows(layer.slots, 1, rows);
    const OnDevice<std::int32_t> positions(backend, pick_rows(layer.positions, 1, rows)),
        slots_device(backend, slots);
    const std::vector<std::byte> empty(static_cast<std::size_t>(n_blocks) * g.block_bytes(),
                                       std::byte{0x55});
    const OnDevice<std::byte> blocks(backend, empty);
    const OnDevice<float> scales(backend, layer.kv_scales);
    const OnDevice<float> q(
        backend,
        std::vector<float>(rows.size() * static_cast<std::size_t>(layer.n_heads * g.head_dim)));
    backend.qkv_rope_append({.hidden = hidden.get(),
                             .n_rows = n_rows,
                             .norm = norm.get(),
                             .norm_eps = kEps,
                             .qkv = &qkv,
                             .q_norm = q_norm.get(),
                             .k_norm = k_norm.get(),
                             .n_heads = layer.n_heads,
                             .rope_cos = cos.get(),
                             .rope_sin = sin.get(),
                             .n_positions = kPositions,
                             .positions = positions.get(),
                             .slots = slots_device.get(),
                             .kv = {g, blocks.get(), n_blocks, scales.get()},
                             .layer = kLayer,
                             .q = q.get()});
    std::vector<std::byte> host = blocks.host();
    Result result{q.host(), {}, {}};
    for (const std::int32_t slot : slots)
      for (std::int32_t h = 0; h < g.n_kv_heads; ++h) {
        const PagedKv kv{g, host.data(), n_blocks, layer.host_scales()};
        for (const KvHalf half : {KvHalf::kKeys, KvHalf::kValues}) {
          const std::size_t at = kv_offset_of_slot(g, slot, kLayer, half, h);
          const double scale = ref::kv_scale(kv, kLayer, half, h);
          std::vector<float>& to = half == KvHalf::kKeys ? result.k : result.v;
          for (std::int32_t d = 0; d < g.head_dim; ++d)
            to.push_back(static_cast<float>(ref::kv_element(kv, at, d) * scale));
          for (std::size_t i = 0; i < static_cast<std::size_t>(g.head_dim) * size_bytes(g.dtype);
               ++i)
            host[at + i] = std::byte{0x55};
        }
      }
    EXPECT_EQ(host, empty) << "something was written outside the slots";
    return result;
  }
};

struct Shape {
  std::int32_t n_rows, n_in, n_heads, n_kv_heads, head_dim, block_tokens;
  bool qk_norm;
};
constexpr Shape kShapes[] = {
    {1, 1, 1, 1, 2, 16, false},     {2, 31, 2, 1, 32, 16, false},   {5, 32, 4, 4, 34, 8, true},
    {33, 33, 6, 2, 16, 16, true},   {31, 127, 3, 3, 64, 16, false}, {7, 129, 4, 1, 128, 32, true},
    {128, 65, 1, 1, 10, 16, false},
};

TEST_P(QkvRopeAppend, MatchesReferenceOnEveryCase) {
  for (const WeightType& type : weight_types())
    for (const DType kv_dtype : cases::kv_dtypes())
      for (const Shape& s : kShapes) {
        SCOPED_TRACE(testing::Message()
                     << name_of(type) << " " << dtype_name(kv_dtype) << " rows " << s.n_rows);
        const KvGeometry geometry{kv_dtype, 2, s.n_kv_heads, s.head_dim, s.block_tokens};
        const Layer layer(rng, type, s.n_heads, geometry, s.n_rows, s.n_in, s.qk_norm);
        const LinearSource source = layer.weights.source();
        const ref::Qkv want =
            ref::qkv_rope_append({.hidden = layer.hidden.data(),
                                  .n_rows = s.n_rows,
                                  .norm = layer.norm.data(),
                                  .norm_eps = kEps,
                                  .q_norm = s.qk_norm ? layer.q_norm.data() : nullptr,
                                  .k_norm = s.qk_norm ? layer.k_norm.data() : nullptr,
                                  .n_heads = s.n_heads,
                                  .rope_cos = layer.cos.data(),
                                  .rope_sin = layer.sin.data(),
                                  .positions = layer.positions.data(),
                                  .kv = {geometry, nullptr, 0, layer.host_scales()},
                                  .layer = 1},
                                 ref::Matrix({&source, 1}), rounding(type));
        std::vector<std::int32_t> rows(static_cast<std::size_t>(s.n_rows));
        std::iota(rows.begin(), rows.end(), 0);
        const Result got = run(backend(), backend().pack({&source, 1}), layer, rows);
        ASSERT_TRUE(close(got.q, want.q));
        ASSERT_TRUE(close(got.k, want.k));
        ASSERT_TRUE(close(got.v, want.v));
      }
}

TEST_P(QkvRopeAppend, TheEmptyBatchWritesNothing) {
  const KvGeometry geometry{DType::kF32, 1, 1, 16, 16};
  const Layer layer(rng, DType::kF32, 2, geometry, 1, 33, false);
  const LinearSource source = layer.weights.source();
  const Linear packed = backend().pack({&source, 1});
  const OnDevice<float> hidden(backend(), layer.hidden), norm(backend(), layer.norm);
  const OnDevice<float> cos(backend(), layer.cos), sin(backend(), layer.sin);
  const OnDevice<std::int32_t> positions(backend(), layer.positions), slots(backend(), layer.slots);
  const Untouched q(backend(), 2 * 16);
  const Untouched blocks(backend(), static_cast<std::int64_t>(geometry.block_bytes() / 4));
  backend().qkv_rope_append({});
  backend().qkv_rope_append({.hidden = hidden.get(),
                             .n_rows = 0,
                             .norm = norm.get(),
                             .norm_eps = kEps,
                             .qkv = &packed,
                             .n_heads = 2,
                             .rope_cos = cos.get(),
                             .rope_sin = sin.get(),
                             .n_positions = kPositions,
                             .positions = positions.get(),
                             .slots = slots.get(),
                             .kv = {geometry, reinterpret_cast<std::byte*>(blocks.get()), 1},
                             .layer = 0,
                             .q = q.get()});
  EXPECT_TRUE(q.intact());
  EXPECT_TRUE(blocks.intact());
}

TEST_P(QkvRopeAppend, RowDoesNotDependOnItsNeighbours) {
  for (const WeightType& type : weight_types()) {
    const Layer layer(rng, type, 4, {DType::kBf16, 2, 2, 16, 16}, 64, 260, true);
    const LinearSource source = layer.weights.source();
    std::vector<Linear> packed;
    for (int t = 1; t <= 3; ++t) packed.push_back(backend(t).pack({&source, 1}));
    const RowRunner runner = [&](Backend& b, const std::vector<std::int32_t>& rows) {
      const std::size_t t = &b == &backend(1) ? 0 : &b == &backend(2) ? 1 : 2;
      const Result got = run(b, packed[t], layer, rows);
      auto all = split_rows(got.q, rows.size());
      const auto k = split_rows(got.k, rows.size()), v = split_rows(got.v, rows.size());
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i].insert(all[i].end(), k[i].begin(), k[i].end());
        all[i].insert(all[i].end(), v[i].begin(), v[i].end());
      }
      return all;
    };
    expect_rows_independent(
        runner, 64, [&](int t) -> Backend& { return backend(t); }, rng);
  }
}

TEST_P(QkvRopeAppend, GivesTheSameBitsTwice) {
  const Layer layer(rng, DType::kBf16, 4, {DType::kBf16, 2, 2, 16, 16}, 9, 260, false);
  const LinearSource source = layer.weights.source();
  const std::vector<std::int32_t> rows = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  const Result once = run(backend(3), backend(3).pack({&source, 1}), layer, rows);
  const Result again = run(backend(3), backend(3).pack({&source, 1}), layer, rows);
  EXPECT_TRUE(same_bits(once.q, again.q));
  EXPECT_TRUE(same_bits(once.k, again.k));
  EXPECT_TRUE(same_bits(once.v, again.v));
}

// The contract is checked before a device is asked; what lies in memory, where it can be read.
using QkvRopeAppendDeathTest = QkvRopeAppend;

TEST_P(QkvRopeAppendDeathTest, RejectsWhatTheContractForbids) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Layer layer(rng, DType::kF32, 2, {DType::kF32, 1, 1, 4, 16}, 1, 8, false);
  const LinearSource source = layer.weights.source();
  const Linear packed = backend().pack({&source, 1});
  const OnDevice<std::byte> blocks(backend(), std::vector<std::byte>(layer.geometry.block_bytes()));
  std::int32_t position = 3, slot = 15;
  float q[8];
  const QkvRopeAppendArgs good{.hidden = layer.hidden.data(),
                               .n_rows = 1,
                               .norm = layer.norm.data(),
                               .norm_eps = kEps,
                               .qkv = &packed,
                               .n_heads = 2,
                               .rope_cos = layer.cos.data(),
                               .rope_sin = layer.sin.data(),
                               .n_positions = kPositions,
                               .positions = &position,
                               .slots = &slot,
                               .kv = {layer.geometry, blocks.get(), 1},
                               .layer = 0,
                               .q = q};
  backend().qkv_rope_append(good);
  QkvRopeAppendArgs bad = good;
  bad.n_heads = 3;
  EXPECT_DEATH(backend().qkv_rope_append(bad), "n_out");
  bad = good;
  bad.layer = 1;
  EXPECT_DEATH(backend().qkv_rope_append(bad), "layer");
  bad = good;
  bad.kv.geometry.dtype = DType::kI8;
  EXPECT_DEATH(backend().qkv_rope_append(bad), "dtype");
  bad = good;
  bad.kv.geometry.head_dim = 3;
  EXPECT_DEATH(backend().qkv_rope_append(bad), "halves");
  slot = 16;
  EXPECT_DEATH(backend().qkv_rope_append(good), "slot outside");
  slot = 0;
  position = kPositions;
  EXPECT_DEATH(backend().qkv_rope_append(good), "RoPE tables");
}

FORETOKEN_EVERY_DEVICE(QkvRopeAppend);
FORETOKEN_EMULATED_RING(QkvRopeAppend);
FORETOKEN_EVERY_ISA(QkvRopeAppendDeathTest);

}  // namespace
}  // namespace foretoken::test
