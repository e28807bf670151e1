// A row's bits are its own, for whole models: one row at a time, K + 1 at once, any prefill chunk,
// any neighbours, any number of threads, any layout of blocks: the same logits to the last bit.
// Without this, speculation changes text.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "common/base/result.h"
#include "common/model/families.h"
#include "common/model/init_random.h"
#include "common/model/load_model.h"
#include "tests/model/cpu_backend.h"
#include "tests/model/runner.h"
#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

using test::Runner;

constexpr std::size_t kLength = 45;

struct Case {
  CpuIsa isa;
  WeightDType dtype;
  Family family;
  std::optional<DType> kv = {};
};

std::string name_of(const Case& c) {
  static constexpr const char* kIsa[] = {"auto", "scalar", "avx2", "avx512", "avx512_bf16"};
  static constexpr const char* kDType[] = {"auto",    "float32", "bfloat16",
                                           "float16", "int8",    "int4"};
  return std::string(kIsa[static_cast<int>(c.isa)]) + "_" + kDType[static_cast<int>(c.dtype)] +
         "_" + std::string(family_name(c.family)) +
         (c.kv ? std::string("_kv_") + dtype_name(*c.kv) : "");
}

std::vector<TokenId> random_tokens(unsigned seed, std::size_t n) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(n);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 256);
  return tokens;
}

// Sizes that are no multiple of any vector, and heads that share K and V unevenly.
ModelConfig awkward_config(Family family) {
  ModelConfig c = tiny_config(family);
  c.n_hidden = 72;
  c.n_ffn = 148;
  c.n_heads = 6;
  c.n_kv_heads = 2;
  c.head_dim = 12;
  c.vocab_size = 261;
  if (family == Family::kLlama) c.qkv_bias = c.o_bias = c.mlp_bias = true;
  c.tie_word_embeddings = family == Family::kQwen3;
  return c;
}

class Rows : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    RandomModelRecipe recipe;
    recipe.config = awkward_config(GetParam().family);
    write_random_model(folder_.path(), recipe);
    backend_ = test::backend_for(GetParam().isa);
    if (!backend_) GTEST_SKIP() << "this machine lacks the instructions";
    model_ = load(*backend_);
    tokens_ = random_tokens(5, kLength);
    expected_ = Runner(*model_, *backend_).run(tokens_, 1);  // plain decoding: one row at a time
  }

  std::unique_ptr<Model> load(Backend& backend) const {
    return load_model(folder_.path(), backend,
                      {.dtype = GetParam().dtype, .kv_dtype = GetParam().kv, .max_rows = 128});
  }

  void expect_same(const std::vector<std::vector<float>>& rows, std::size_t first = 0) const {
    for (std::size_t r = 0; r < rows.size(); ++r) {
      ASSERT_EQ(rows[r].size(), expected_[first + r].size());
      ASSERT_EQ(
          std::memcmp(rows[r].data(), expected_[first + r].data(), rows[r].size() * sizeof(float)),
          0)
          << "row " << first + r;
    }
  }

  test::TempFolder folder_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::vector<TokenId> tokens_;
  std::vector<std::vector<float>> expected_;
};

TEST_P(Rows, VerifyingKPlusOneGivesTheBitsOfSingleSteps) {
  for (std::size_t rows : {2u, 3u, 5u, 9u}) {
    SCOPED_TRACE(rows);
    expect_same(Runner(*model_, *backend_).run(tokens_, rows));
  }
}

TEST_P(Rows, PrefillChunksDoNotMatter) {
  for (std::size_t chunk : {7u, 16u, 17u, 64u}) {
    SCOPED_TRACE(chunk);
    expect_same(Runner(*model_, *backend_).run(tokens_, chunk));
  }
}

TEST_P(Rows, RollbackLeavesNoTrace) {
  Runner runner(*model_, *backend_);
  Runner::Sequence sequence;
  const auto wrong = random_tokens(99, 6);
  std::size_t at = 0;
  while (at < kLength) {
    Runner::Part guess{&sequence, wrong};
    runner.pass(std::span(&guess, 1));
    sequence.length -= static_cast<std::uint32_t>(wrong.size());  // none stood
    Runner::Part step{&sequence,
                      std::span(tokens_).subspan(at, std::min<std::size_t>(3, kLength - at))};
    const auto rows = runner.pass(std::span(&step, 1));
    expect_same(rows, at);
    at += rows.size();
  }
}

TEST_P(Rows, NeighboursDoNotMatter) {
  Runner runner(*model_, *backend_, {.n_blocks = 61, .stride = 7});
  Runner::Sequence ours, theirs, third;
  const auto other = random_tokens(6, 200);
  std::mt19937 random(17);
  std::size_t at = 0, other_at = 0, third_at = 0;
  while (at < kLength) {
    const std::size_t n = std::min<std::size_t>(1 + random() % 6, kLength - at);
    const std::size_t m = 1 + random() % 9;
    std::vector<Runner::Part> parts{{&theirs, std::span(other).subspan(other_at, m)}};
    parts.push_back({&ours, std::span(tokens_).subspan(at, n)});
    if (random() % 2 == 0) parts.push_back({&third, std::span(other).subspan(100 + third_at++, 1)});
    auto rows = runner.pass(parts);
    expect_same({rows.begin() + static_cast<std::ptrdiff_t>(m),
                 rows.begin() + static_cast<std::ptrdiff_t>(m + n)},
                at);
    at += n;
    other_at += m;
    if (other_at > 180) break;
  }
}

TEST_P(Rows, ThreadsDoNotMatter) {
  for (int n_threads : {2, 3}) {
    SCOPED_TRACE(n_threads);
    auto backend = test::backend_for(GetParam().isa, n_threads);
    auto model = load(*backend);
    expect_same(Runner(*model, *backend).run(tokens_, 1));
    expect_same(Runner(*model, *backend).run(tokens_, 16));
  }
}

TEST_P(Rows, BlockLayoutDoesNotMatter) {
  expect_same(Runner(*model_, *backend_, {.n_blocks = 61, .stride = 37}).run(tokens_, 5));
  expect_same(Runner(*model_, *backend_, {.n_blocks = 61, .stride = 60}).run(tokens_, 64));
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const Family kinds[] = {Family::kLlama, Family::kQwen3, Family::kQwen2, Family::kMistral};
  std::size_t next = 0;
  for (CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16}) {
    for (WeightDType dtype : {WeightDType::kF32, WeightDType::kBf16, WeightDType::kF16,
                              WeightDType::kI8, WeightDType::kI4}) {
      // Two families each, so that biases, head norms and a tied head all meet every path.
      all.push_back({isa, dtype, kinds[next % 2]});
      all.push_back({isa, dtype, kinds[2 + next % 2]});
      ++next;
    }
  }
  all.push_back({CpuIsa::kAuto, WeightDType::kF32, Family::kLlama, DType::kF8E4M3});
  all.push_back({CpuIsa::kScalar, WeightDType::kBf16, Family::kQwen3, DType::kF8E4M3});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Paths, Rows, testing::ValuesIn(cases()), [](const auto& c) {
  return name_of(c.param);
});

}  // namespace
}  // namespace foretoken
