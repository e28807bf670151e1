// A model over ranks against the same model whole: logits within the bound that rounding allows,
// every rank the same bits, a row's bits its own, one fingerprint, weights shared out.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/model/families.h"
#include "common/model/init_random.h"
#include "common/model/load_model.h"
#include "common/model/pair.h"
#include "common/model/quantize.h"
#include "tests/model/edit_tensors.h"
#include "tests/model/runner.h"
#include "tests/support/rounded_decoder.h"
#include "tests/support/temp_folder.h"
#include "tests/support/whole_view.h"
#if defined(FORETOKEN_EMU)
#include "kernels/cuda/emulated.h"
#endif

namespace foretoken {
namespace {

using test::Runner;
using Rows = std::vector<std::vector<float>>;

constexpr std::size_t kLength = 40;

// Family and what is spread: of 4 ranks, two or all may share a KV head, and with 6 heads and 150
// columns no two parts need be equal.
struct Shape {
  Family family = Family::kLlama;
  std::int32_t n_kv_heads = 4;
  std::int32_t n_heads = 8;
  std::int32_t n_ffn = 148;
};

ModelConfig config_of(const Shape& shape) {
  const Family family = shape.family;
  ModelConfig config = tiny_config(family);
  config.n_heads = shape.n_heads;
  config.n_kv_heads = shape.n_kv_heads;
  config.head_dim = 12;
  config.n_ffn = shape.n_ffn;
  config.vocab_size = 261;
  if (family == Family::kLlama) config.qkv_bias = config.o_bias = config.mlp_bias = true;
  config.tie_word_embeddings = family == Family::kQwen3;
  return config;
}

std::vector<TokenId> some_tokens(std::size_t n) {
  std::mt19937 random(31);
  std::vector<TokenId> tokens(n);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 261);
  return tokens;
}

using MakeBackend = std::function<std::unique_ptr<Backend>()>;
std::unique_ptr<Backend> on_the_cpu() { return make_backend({.device = "cpu", .n_threads = 1}); }

// Runs `body` on every rank of a model; 1: a process alone.
template <class Body>
void on_ranks(const std::filesystem::path& folder,
              int n_ranks,
              LoadOptions options,
              Body&& body,
              const MakeBackend& make = on_the_cpu) {
  auto ranks = make_thread_collectives(n_ranks);
  std::vector<std::thread> threads;
  for (auto& rank : ranks)
    threads.emplace_back([&, options]() mutable {
      rank->set_patience(std::chrono::minutes(1));
      const auto backend = make();
      options.ranks = n_ranks > 1 ? rank.get() : nullptr;
      const auto model = load_model(folder, *backend, options);
      body(*rank, *model, *backend);
    });
  for (std::thread& thread : threads) thread.join();
}

// Logits of every position, by chunks; each rank must see the same bits.
Rows logits_over(const std::filesystem::path& folder,
                 int n_ranks,
                 std::span<const TokenId> tokens,
                 std::size_t chunk,
                 const LoadOptions& options,
                 const MakeBackend& make = on_the_cpu) {
  std::vector<Rows> of(static_cast<std::size_t>(n_ranks));
  on_ranks(
      folder, n_ranks, options,
      [&](Collective& rank, Model& model, Backend& backend) {
        test::WholeView whole(model, backend);
        of[static_cast<std::size_t>(rank.rank())] = Runner(whole, backend).run(tokens, chunk);
      },
      make);
  for (const Rows& rows : of) EXPECT_EQ(rows, of[0]);
  return of[0];
}

std::string name_of(const Shape& shape) {
  return std::string(family_name(shape.family)) + "_" + std::to_string(shape.n_heads) + "_" +
         std::to_string(shape.n_kv_heads);
}

class ModelOverRanks : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    write_random_model(folder_.path(), {.config = config_of(GetParam()), .seed = 3});
  }
  test::TempFolder folder_;
  const LoadOptions options_{.max_rows = 64, .max_model_len = 128};
  const std::vector<TokenId> tokens_ = some_tokens(kLength);
};

// Two fp32 computations of a logit of standard deviation s each differ from the truth by a few s,
// from one another by a few times sqrt(2) s. Eight: never by chance.
TEST_P(ModelOverRanks, LogitsStayWithinWhatRoundingAllows) {
  std::map<int, Rows> by_ranks;
  for (const int n_ranks : {1, 2, 4})
    by_ranks[n_ranks] = logits_over(folder_.path(), n_ranks, tokens_, 16, options_);
  ModelConfig config = config_of(GetParam());
  {
    const auto backend = make_backend({.device = "cpu", .n_threads = 1});
    config = load_model(folder_.path(), *backend, options_)->config();
  }
  test::RoundedDecoder truth(folder_.path(), config);
  std::map<int, double> worst, largest;
  double widest = 0, size = 0;
  for (std::size_t t = 0; t < tokens_.size(); ++t) {
    const auto exact = truth.next(tokens_[t]);
    for (std::size_t id = 0; id < exact.size(); ++id) {
      const double deviation = std::sqrt(exact[id].variance);
      widest = std::max(widest, 8 * std::sqrt(2.0) * deviation);
      size = std::max(size, std::fabs(exact[id].value));
      for (const auto& [n_ranks, rows] : by_ranks) {
        const auto logit = static_cast<double>(rows[t][id]);
        ASSERT_LE(std::fabs(logit - exact[id].value), 8 * deviation)
            << n_ranks << " ranks, position " << t << ", id " << id;
        const double apart = std::fabs(logit - static_cast<double>(by_ranks[1][t][id]));
        ASSERT_LE(apart, 8 * std::sqrt(2.0) * deviation) << n_ranks << " ranks";
        worst[n_ranks] = std::max(worst[n_ranks], apart / deviation / std::sqrt(2.0));
        largest[n_ranks] = std::max(largest[n_ranks], apart);
      }
    }
  }
  EXPECT_LT(widest, 1e-4 * size) << "so wide a bound would say nothing";
  EXPECT_GT(largest[2], 0.0) << "ranks that add in the order of one process are not tested";
  std::printf(
      "%s: logits up to %.2f; bound %.2g; two ranks off by %.2g (%.1f deviations), four by %.2g "
      "(%.1f)\n",
      name_of(GetParam()).c_str(), size, widest, largest[2], worst[2], largest[4], worst[4]);
}

TEST_P(ModelOverRanks, ARowsBitsAreItsOwnAtEveryNumberOfRanks) {
  for (const int n_ranks : {2, 4}) {
    const Rows one_by_one = logits_over(folder_.path(), n_ranks, tokens_, 1, options_);
    for (const std::size_t chunk : {2u, 5u, 16u, 40u})
      EXPECT_EQ(logits_over(folder_.path(), n_ranks, tokens_, chunk, options_), one_by_one)
          << n_ranks << " ranks, " << chunk << " rows at once";
  }
}

TEST_P(ModelOverRanks, RanksShareTheWeightsAndAgreeOnTheFingerprint) {
  const auto backend = make_backend({.device = "cpu", .n_threads = 1});
  const auto whole = load_model(folder_.path(), *backend, options_);
  on_ranks(folder_.path(), 4, options_, [&](Collective&, Model& model, Backend&) {
    EXPECT_EQ(model.fingerprint(), whole->fingerprint());
    EXPECT_EQ(model.config(), whole->config());
    EXPECT_EQ(model.kv_geometry(16).n_kv_heads, std::max(1, GetParam().n_kv_heads / 4));
    EXPECT_EQ(model.ranks()->size(), 4);
  });
}

TEST_P(ModelOverRanks, EachRankReportsItsProgressUpToTheEnd) {
  std::mutex mutex;
  std::map<std::thread::id, std::pair<std::uint64_t, std::uint64_t>> last;
  LoadOptions options = options_;
  options.on_progress = [&](std::uint64_t done, std::uint64_t total) {
    const std::lock_guard lock(mutex);
    last[std::this_thread::get_id()] = {done, total};
  };
  on_ranks(folder_.path(), 2, options, [](Collective&, Model&, Backend&) {});
  EXPECT_EQ(last.size(), 2u);
  for (const auto& [rank, bytes] : last) EXPECT_EQ(bytes.first, bytes.second);
}

// Each rank has a file of its own; where one is lost, that rank alone packs again.
TEST_P(ModelOverRanks, PackedWeightsThatAreKeptAreThoseOfEachRank) {
  const test::TempFolder cache;
  LoadOptions options = options_;
  options.packed_cache = {.folder = cache.path(),
                          .build = "1",
                          .least_bytes = 0,
                          .least_age = std::chrono::milliseconds(0)};
  std::atomic<int> n_used{0}, n_written{0};
  options.on_packed_cache = [&](const PackedCacheReport& report) {
    n_used += report.outcome == PackedCacheReport::Outcome::kUsed;
    n_written += report.outcome == PackedCacheReport::Outcome::kWritten;
  };
  const Rows plain = logits_over(folder_.path(), 2, tokens_, 16, options_);
  EXPECT_EQ(logits_over(folder_.path(), 2, tokens_, 16, options), plain);
  EXPECT_EQ(2, n_written);
  EXPECT_EQ(logits_over(folder_.path(), 2, tokens_, 16, options), plain);
  EXPECT_EQ(2, n_used);
  std::filesystem::remove(std::filesystem::directory_iterator(cache.path())->path());
  const auto backend = make_backend({.device = "cpu", .n_threads = 1});
  const Fingerprint whole = load_model(folder_.path(), *backend, options_)->fingerprint();
  on_ranks(folder_.path(), 2, options,
           [&](Collective&, Model& model, Backend&) { EXPECT_EQ(model.fingerprint(), whole); });
  EXPECT_EQ(3, n_used);
  EXPECT_EQ(3, n_written);
}

TEST_P(ModelOverRanks, ATooLargeNumberOfRanksIsRefusedOnEachOfThem) {
  auto ranks = make_thread_collectives(9);
  const auto backend = make_backend({.device = "cpu", .n_threads = 1});
  LoadOptions options = options_;
  options.ranks = ranks[1].get();
  try {
    load_model(folder_.path(), *backend, options);
    FAIL();
  } catch (const FatalError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_NE(std::string(error.what()).find("tensor_parallel is 9"), std::string::npos);
  }
}

// With a vocabulary that counts beside the layers, whose head is a slice on each rank.
TEST(SharesOfAModel, TheEstimateOfEachRankIsCloseToWhatItLoads) {
  for (const bool is_tied : {false, true}) {
    const test::TempFolder folder;
    ModelConfig config = tiny_config(Family::kLlama);
    config.n_hidden = 256, config.n_heads = 8, config.n_kv_heads = 4, config.head_dim = 32;
    config.n_ffn = 512, config.vocab_size = 4096;
    config.tie_word_embeddings = is_tied;
    write_random_model(folder.path(), {.config = config, .seed = 3});
    const ModelInfo info = inspect_model(folder.path());
    for (const WeightDType dtype : {WeightDType::kBf16, WeightDType::kI8}) {
      const LoadOptions options{.dtype = dtype};
      for (const int n_ranks : {2, 4})
        on_ranks(folder.path(), n_ranks, options, [&](Collective& rank, Model& model, Backend&) {
          const auto estimate = estimate_memory(info, options, {rank.rank(), n_ranks});
          const double ratio = static_cast<double>(model.weight_bytes()) /
                               static_cast<double>(estimate.weight_bytes);
          EXPECT_GE(ratio, 0.99) << is_tied << ", " << n_ranks << " ranks";
          EXPECT_LE(ratio, 1.15) << is_tied << ", " << n_ranks << " ranks: packing pads little";
        });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families,
                         ModelOverRanks,
                         testing::Values(Shape{Family::kLlama},
                                         Shape{Family::kQwen2},
                                         Shape{Family::kQwen3},
                                         Shape{Family::kMistral},
                                         Shape{Family::kLlama, 2},
                                         Shape{Family::kLlama, 1},
                                         Shape{Family::kQwen3, 2},
                                         Shape{Family::kQwen3, 1},
                                         Shape{Family::kQwen2, 1, 6, 150}),
                         [](const auto& one) { return name_of(one.param); });

// Scales are cut with the rows they belong to: the same numbers whatever the ranks, so that only
// the order of additions is left (read: below 1e-5).
TEST(SharesOfAModel, AQuantisedFolderGivesEachRankItsRowsScales) {
  const test::TempFolder folder;
  write_random_model(folder / "float", {.config = config_of({}), .seed = 3});
  quantize_model(folder / "float", folder / "int8", {.to = DType::kI8});
  const auto tokens = some_tokens(20);
  const LoadOptions widened{.dtype = WeightDType::kF32, .max_rows = 64, .max_model_len = 128};
  const Rows one = logits_over(folder / "int8", 1, tokens, 8, widened);
  for (const int n_ranks : {2, 4}) {
    const Rows several = logits_over(folder / "int8", n_ranks, tokens, 8, widened);
    for (std::size_t t = 0; t < one.size(); ++t)
      for (std::size_t id = 0; id < one[t].size(); ++id)
        ASSERT_NEAR(several[t][id], one[t][id], 5e-5) << n_ranks << " ranks, position " << t;
  }
  // As int8 each rank rounds its own part of an activation, so no such bound holds; but rows stay
  // their own.
  const LoadOptions as_stored{.max_rows = 64, .max_model_len = 128};
  EXPECT_EQ(logits_over(folder / "int8", 2, tokens, 1, as_stored),
            logits_over(folder / "int8", 2, tokens, 7, as_stored));
}

// Zero points too, and codes that other layouts have across the rows.
TEST(SharesOfAModel, AFolderInFourBitsGivesEachRankItsRowsZeroPoints) {
  const auto tokens = some_tokens(20);
  const LoadOptions widened{.dtype = WeightDType::kF32, .max_rows = 64, .max_model_len = 128};
  const LoadOptions as_stored{.max_rows = 64, .max_model_len = 128};
  for (const char* name : {"int4_zeros", "mxfp4", "gptq", "awq"}) {
    SCOPED_TRACE(name);
    const auto folder =
        std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/fixtures/quantized" / name;
    const Rows one = logits_over(folder, 1, tokens, 8, widened),
               two = logits_over(folder, 2, tokens, 8, widened);
    for (std::size_t t = 0; t < one.size(); ++t)
      for (std::size_t id = 0; id < one[t].size(); ++id)
        ASSERT_NEAR(two[t][id], one[t][id], 5e-5) << "position " << t;
  }
  const auto awq = std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/fixtures/quantized/awq";
  EXPECT_EQ(logits_over(awq, 2, tokens, 1, as_stored), logits_over(awq, 2, tokens, 7, as_stored));
}

// Scales of the KV cache that differ by head, so that a rank with another's would round, or cut
// off, otherwise. One layer: every key and value is made before ranks have added anything, and has
// the same code everywhere.
constexpr float kKeyScales[] = {0.003f, 0.011f, 0.041f, 0.15f};
constexpr float kValueScales[] = {0.17f, 0.051f, 0.013f, 0.005f};

void write_with_kv_scales(const std::filesystem::path& folder, ModelConfig config, bool reversed) {
  config.n_layers = 1;
  write_random_model(folder, {.config = config, .seed = 3});
  const auto of = [&](const float(&all)[4]) {
    std::vector<float> scales(all, all + config.n_kv_heads);
    if (reversed) std::reverse(scales.begin(), scales.end());
    return test::Tensor{TensorType::kF32, {config.n_kv_heads, 1, 1}, test::as_bytes(scales)};
  };
  test::edit(folder / "model.safetensors", [&](test::Tensors& tensors) {
    tensors["model.layers.0.self_attn.k_scale"] = of(kKeyScales);
    tensors["model.layers.0.self_attn.v_scale"] = of(kValueScales);
  });
}

double largest_difference(const Rows& one, const Rows& other) {
  double largest = 0;
  for (std::size_t t = 0; t < one.size(); ++t)
    for (std::size_t id = 0; id < one[t].size(); ++id)
      largest = std::max(
          largest, std::fabs(static_cast<double>(one[t][id]) - static_cast<double>(other[t][id])));
  return largest;
}

TEST(SharesOfAModel, EachRankHasTheKvScalesOfItsHeads) {
  constexpr double kRounding = 5e-5;  // what the order of additions may do
  const auto tokens = some_tokens(20);
  const LoadOptions options{.kv_dtype = DType::kF8E4M3, .max_rows = 64, .max_model_len = 128};
  for (const std::int32_t n_kv_heads : {4, 2, 1}) {
    SCOPED_TRACE(n_kv_heads);
    const test::TempFolder folder;
    const ModelConfig config = config_of({Family::kLlama, n_kv_heads});
    write_with_kv_scales(folder / "a", config, false);
    write_with_kv_scales(folder / "b", config, true);
    const Rows one = logits_over(folder / "a", 1, tokens, 8, options);
    if (n_kv_heads > 1) {
      const Rows swapped = logits_over(folder / "b", 1, tokens, 8, options);
      EXPECT_GT(largest_difference(one, swapped), 100 * kRounding) << "else nothing is tested";
    }
    for (const int n_ranks : {2, 4})
      EXPECT_LT(largest_difference(logits_over(folder / "a", n_ranks, tokens, 8, options), one),
                kRounding)
          << n_ranks << " ranks";
    const auto backend = on_the_cpu();
    const auto whole = load_model(folder / "a", *backend, options);
    on_ranks(folder / "a", 4, options, [&](Collective&, Model& model, Backend&) {
      EXPECT_EQ(model.fingerprint(), whole->fingerprint());
      EXPECT_EQ(model.config(), whole->config());
    });
  }
}

// What is wrong with a scale every rank says, also those whose head it is not.
TEST(SharesOfAModel, ABadKvScaleIsNamedByEveryRank) {
  const test::TempFolder folder;
  write_with_kv_scales(folder / "a", config_of({}), false);
  test::edit(folder / "a" / "model.safetensors", [](test::Tensors& tensors) {
    tensors["model.layers.0.self_attn.v_scale"].bytes =
        test::as_bytes(std::vector<float>{1, 1, 1, 0});
  });
  auto ranks = make_thread_collectives(2);
  const auto backend = on_the_cpu();
  for (auto& rank : ranks) {
    try {
      load_model(folder / "a", *backend, {.kv_dtype = DType::kF8E4M3, .ranks = rank.get()});
      ADD_FAILURE() << "accepted on rank " << rank->rank();
    } catch (const FatalError& error) {
      EXPECT_NE(std::string(error.what()).find("self_attn.v_scale has 0 at [3]"), std::string::npos)
          << error.what();
    }
  }
}

#if defined(FORETOKEN_EMU)
// The same scales in the CUDA kernels, on an emulated device alone and on two.
TEST(RanksOnDevices, HaveTheKvScalesOfTheirHeads) {
  const test::TempFolder folder;
  ModelConfig config = config_of({Family::kLlama, 2, 4, 96});
  config.head_dim = 16;
  write_with_kv_scales(folder / "a", config, false);
  const auto tokens = some_tokens(9);
  const LoadOptions options{.kv_dtype = DType::kF8E4M3, .max_rows = 16, .max_model_len = 32};
  const Rows on_cpu = logits_over(folder / "a", 1, tokens, 9, options);
  for (const CudaPath path : {CudaPath::kSimple, CudaPath::kRing}) {
    const MakeBackend make = [path] { return emu::make_backend(9, path); };
    for (const int n_ranks : {1, 2})
      EXPECT_LT(
          largest_difference(logits_over(folder / "a", n_ranks, tokens, 4, options, make), on_cpu),
          5e-5)
          << n_ranks << " ranks";
  }
}

// The CUDA backend on emulated devices, one a rank, sums through the host: float32 within the
// bound, and at 16 bits a row's bits still its own.
TEST(RanksOnDevices, GiveTheLogitsOfOneWithinWhatRoundingAllows) {
  const test::TempFolder folder;
  ModelConfig config = config_of({Family::kLlama, 1, 4, 96});
  config.head_dim = 16;
  write_random_model(folder.path(), {.config = config, .seed = 3});
  const auto tokens = some_tokens(9);
  const LoadOptions options{.max_rows = 16, .max_model_len = 32};
  for (const CudaPath path : {CudaPath::kSimple, CudaPath::kRing}) {
    const MakeBackend make = [path] { return emu::make_backend(9, path); };
    {
      const auto backend = on_the_cpu();
      config = load_model(folder.path(), *backend, options)->config();
    }
    test::RoundedDecoder truth(folder.path(), config);
    const Rows two = logits_over(folder.path(), 2, tokens, 4, options, make);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const auto exact = truth.next(tokens[t]);
      for (std::size_t id = 0; id < exact.size(); ++id)
        ASSERT_LE(std::fabs(static_cast<double>(two[t][id]) - exact[id].value),
                  8 * std::sqrt(exact[id].variance))
            << "position " << t << ", id " << id;
    }
    LoadOptions narrow = options;
    narrow.dtype = WeightDType::kBf16;
    EXPECT_EQ(logits_over(folder.path(), 2, tokens, 1, narrow, make),
              logits_over(folder.path(), 2, tokens, 9, narrow, make));
  }
}

// The emulated device shares memory with no process: the first rank's reason is every rank's.
TEST(RanksOnDevices, SayOnEveryRankWhyTheyCannotAddThere) {
  const test::TempFolder folder;
  ModelConfig config = config_of({});
  config.head_dim = 16;
  write_random_model(folder.path(), {.config = config, .seed = 3});
  auto ranks = make_thread_collectives(2);
  std::vector<std::string> said(2);
  std::vector<std::thread> threads;
  for (auto& rank : ranks)
    threads.emplace_back([&] {
      const auto backend = emu::make_backend(9, CudaPath::kSimple);
      try {
        load_model(folder.path(), *backend,
                   {.max_rows = 8,
                    .max_model_len = 32,
                    .ranks = rank.get(),
                    .rank_tier = RankTier::kOneShot});
      } catch (const FatalError& error) {
        said[static_cast<std::size_t>(rank->rank())] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& one : said)
    EXPECT_EQ(one,
              "sums over ranks were to be taken by one shot, but rank 0: the driver does not share "
              "this device's memory");
}
#endif

// Of a layer's matrices each rank has its share; what is whole is small.
// One rank goes through a tensor for what is no number; the others, which need it too, must not end
// on it otherwise.
TEST(SharesOfAModel, AWeightThatIsNotANumberIsNamedByEveryRankThatRoundsIt) {
  test::TempFolder folder;
  RandomModelRecipe recipe;
  recipe.config = config_of({});
  write_random_model(folder / "model", recipe);
  const auto file = folder / "model" / "model.safetensors";
  const auto n_data = inspect_model(folder / "model").file_bytes;
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(static_cast<std::streamoff>(std::filesystem::file_size(file) - n_data));
  bytes.write("\x00\x00\xc0\x7f", 4);  // the first of all: of the embedding, whole on all ranks
  bytes.close();
  auto ranks = make_thread_collectives(2);
  const auto backend = make_backend({.device = "cpu", .n_threads = 1});
  for (auto& rank : ranks) {
    LoadOptions options{.dtype = WeightDType::kI8};
    options.ranks = rank.get();
    try {
      load_model(folder / "model", *backend, options);
      ADD_FAILURE() << "accepted on rank " << rank->rank();
    } catch (const FatalError& error) {
      EXPECT_NE(std::string(error.what()).find("embed_tokens.weight has a NaN at [0, 0]"),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(SharesOfAModel, WeightsOfARankAreItsShare) {
  const test::TempFolder folder;
  ModelConfig config = config_of({});
  config.n_ffn = 1024;
  config.n_layers = 4;
  write_random_model(folder.path(), {.config = config, .seed = 3});
  const LoadOptions options{.max_rows = 8, .max_model_len = 128};
  const auto backend = make_backend({.device = "cpu", .n_threads = 1});
  const auto whole =
      static_cast<double>(load_model(folder.path(), *backend, options)->weight_bytes());
  on_ranks(folder.path(), 4, options, [&](Collective&, Model& model, Backend&) {
    EXPECT_LT(static_cast<double>(model.weight_bytes()), 0.35 * whole);
  });
}

}  // namespace
}  // namespace foretoken
