#include "common/model/load_model.h"

#include <gmock/gmock.h>

#include "common/base/json.h"
#include "common/base/result.h"
#include "common/model/init_random.h"
#include "common/model/pair.h"
#include "tests/model/edit_tensors.h"
#include "tests/model/runner.h"
#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

using test::TempFolder;
using testing::HasSubstr;

class LoadModel : public testing::Test {
 protected:
  LoadModel() : backend_(make_backend({.n_threads = 1})) {
    recipe_.config = tiny_config(Family::kLlama);
  }

  std::filesystem::path write(const char* name) {
    write_random_model(folder_ / name, recipe_);
    return folder_ / name;
  }
  std::string problem(const std::filesystem::path& path, const LoadOptions& options = {}) {
    try {
      load_model(path, *backend_, options);
      return "accepted";
    } catch (const FatalError& error) {
      return error.what();
    }
  }

  TempFolder folder_;
  RandomModelRecipe recipe_;
  std::unique_ptr<Backend> backend_;
};

TEST_F(LoadModel, FingerprintIsOfConfigAndContents) {
  const auto print = [&](const std::filesystem::path& path, const LoadOptions& options = {}) {
    return load_model(path, *backend_, options)->fingerprint();
  };
  const Fingerprint base = print(write("a"));
  EXPECT_EQ(print(write("b")), base);
  EXPECT_EQ(print(write("b"), {.max_rows = 7, .max_model_len = 100}), base)
      << "how it is run is no part of it";
  recipe_.n_shards = 3;
  EXPECT_EQ(print(write("c")), base) << "nor how it is cut";
  recipe_.seed = 2;
  EXPECT_NE(print(write("d")), base);
  recipe_.seed = 1;
  recipe_.config.rope.theta = 10001;
  EXPECT_NE(print(write("e")), base);
  recipe_.config.rope.theta = 10000;
  recipe_.config.rms_norm_eps = 2e-5f;
  EXPECT_NE(print(write("f")), base);
}

// config.json may say that the embedding is the head beside a file with another head: the file's
// counts, as in Transformers 5.
TEST_F(LoadModel, AHeadInTheFileCountsUnlessItIsTheEmbedding) {
  const std::vector<TokenId> tokens{3, 141, 59, 26, 53, 58, 97, 93};
  const auto logits = [&](const std::filesystem::path& path) {
    auto model = load_model(path, *backend_);
    return test::Runner(*model, *backend_).run(tokens, 8);
  };
  const auto say_tied = [](const std::filesystem::path& path) {
    std::ifstream in(path / "config.json");
    Json config = *parse_json(std::string(std::istreambuf_iterator<char>(in), {}));
    config["tie_word_embeddings"] = true;
    std::ofstream(path / "config.json") << to_text(config);
  };
  const auto own = write("own");
  const auto expected = logits(own);
  say_tied(own);
  EXPECT_EQ(logits(own), expected);
  EXPECT_FALSE(load_model(own, *backend_)->config().tie_word_embeddings);
  EXPECT_FALSE(inspect_model(own).config.tie_word_embeddings);

  recipe_.config.tie_word_embeddings = true;
  const auto tied = write("tied"), repeated = write("repeated");
  test::edit(repeated / "model.safetensors", [](test::Tensors& tensors) {
    tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight");
  });
  EXPECT_EQ(logits(repeated), logits(tied));
  EXPECT_TRUE(load_model(repeated, *backend_)->config().tie_word_embeddings);
  EXPECT_NE(logits(tied), expected);
}

TEST_F(LoadModel, EndTokensAreThoseOfTheFolderIfItHasAny) {
  const LoadOptions options{.end_tokens = {5, 7}};
  recipe_.config.eos_token_ids = {3};
  EXPECT_THAT(load_model(write("own"), *backend_, options)->config().eos_token_ids,
              testing::ElementsAre(3));
  recipe_.config.eos_token_ids = {};
  EXPECT_THAT(load_model(write("none"), *backend_, options)->config().eos_token_ids,
              testing::ElementsAre(5, 7));
}

TEST_F(LoadModel, ReportsProgressUpToTheEnd) {
  std::uint64_t last = 0, total = 0;
  int n_calls = 0;
  LoadOptions options;
  options.on_progress = [&](std::uint64_t done, std::uint64_t all) {
    EXPECT_GT(done, last);
    last = done;
    total = all;
    ++n_calls;
  };
  const auto path = write("a");
  load_model(path, *backend_, options);
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, inspect_model(path).file_bytes);
  EXPECT_GT(n_calls, 10);
}

TEST_F(LoadModel, ReportsProgressUpToTheEndWhereScalesAreReadToo) {
  for (const char* name : {"int8_channel", "int4_zeros", "gptq_act_order", "mxfp4"}) {
    std::uint64_t last = 0, total = 0;
    LoadOptions options{.dtype = WeightDType::kBf16};
    options.on_progress = [&](std::uint64_t done, std::uint64_t all) { last = done, total = all; };
    load_model(std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/fixtures/quantized" / name,
               *backend_, options);
    EXPECT_EQ(last, total) << name;
  }
}

TEST_F(LoadModel, KvFollowsTheWeightsUnlessTold) {
  const auto path = write("a");
  const auto kv = [&](const LoadOptions& options) {
    return load_model(path, *backend_, options)->kv_geometry(16).dtype;
  };
  EXPECT_EQ(kv({}), DType::kF32);
  EXPECT_EQ(kv({.dtype = WeightDType::kBf16}), DType::kBf16);
  EXPECT_EQ(kv({.dtype = WeightDType::kF16}), DType::kF16);
  EXPECT_EQ(kv({.dtype = WeightDType::kI8}), DType::kBf16);
  EXPECT_EQ(kv({.dtype = WeightDType::kI8, .kv_dtype = DType::kF32}), DType::kF32);
  EXPECT_EQ(kv({.kv_dtype = kv_dtype_from_name("float8_e4m3")}), DType::kF8E4M3);
  EXPECT_EQ(kv({.kv_dtype = kv_dtype_from_name("auto")}), DType::kF32);
}

TEST_F(LoadModel, RefusesOptionsThatCannotBe) {
  const auto path = write("a");
  EXPECT_THAT(problem(path, {.max_model_len = 4096}), HasSubstr("at most 2048 positions"));
  EXPECT_THAT(problem(path, {.max_rows = 0}), HasSubstr("max_rows"));
  EXPECT_THAT(problem(path, {.kv_dtype = DType::kI8}), HasSubstr("kv_dtype is int8"));
  EXPECT_EQ(problem(path, {.max_model_len = 5}), "accepted");
  const auto windowed = write("windowed");
  std::ofstream(windowed / "config.json")
      << R"({"model_type":"mistral","hidden_size":64,"num_attention_heads":4,"num_key_value_heads":2,
             "num_hidden_layers":2,"intermediate_size":160,"vocab_size":256,"head_dim":16,
             "max_position_embeddings":2048,"sliding_window":100})";
  EXPECT_THAT(
      problem(windowed, {.max_model_len = 101}),
      HasSubstr("has a sliding window, and beyond it is not supported: at most 100 positions"));
  EXPECT_EQ(problem(windowed), "accepted");
}

TEST_F(LoadModel, ServesNoMorePositionsThanAreWanted) {
  const auto path = write("a");
  const auto served = [&](const LoadOptions& options) {
    return load_model(path, *backend_, options)->config().max_model_len;
  };
  EXPECT_EQ(served({}), 2048);
  EXPECT_EQ(served({.max_model_len = 100}), 100);
  EXPECT_EQ(served({.most_model_len = 100}), 100);
  EXPECT_EQ(served({.most_model_len = 4096}), 2048) << "fewer will do";
  const auto scratch = [&](const LoadOptions& options) {
    return estimate_memory(inspect_model(path), options).scratch_bytes;
  };
  // cos and sin of every position: two floats for each of 8 pairs of dimensions
  EXPECT_EQ(scratch({}) - scratch({.most_model_len = 100}), (2048u - 100) * 2 * 8 * sizeof(float));
}

TEST_F(LoadModel, SaysWhatItNeedsWhereThatIsMoreThanThereIs) {
  constexpr std::uint64_t kMiB = 1 << 20;
  const MemoryEstimate estimate{.weight_bytes = 300 * kMiB, .scratch_bytes = 20 * kMiB};
  EXPECT_TRUE(fits(estimate, 320 * kMiB, "big").ok());
  const auto refused = fits(estimate, 320 * kMiB - 1, "big");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(refused.error().message,
              testing::AllOf(HasSubstr("big"), HasSubstr("300 MiB"), HasSubstr("20 MiB"),
                             HasSubstr("320 MiB"), HasSubstr("model.dtype")));
}

// Tables for many positions can need more than the weights: refused before anything is read.
TEST_F(LoadModel, RefusesWhatCannotFitBeforeItReadsAWeight) {
  recipe_.config.max_position_embeddings = 1 << 20;
  const auto path = write("a");
  const auto needed = estimate_memory(inspect_model(path), {});
  EXPECT_GE(needed.scratch_bytes, std::uint64_t{1} << 26);
  int n_read = 0;
  LoadOptions options{.most_bytes = std::uint64_t{1} << 26};
  options.on_progress = [&](std::uint64_t, std::uint64_t) { ++n_read; };
  EXPECT_THAT(problem(path, options), HasSubstr("64 MiB are free"));
  EXPECT_EQ(n_read, 0);
  options.most_model_len = 64;
  EXPECT_EQ(problem(path, options), "accepted");
  EXPECT_GT(n_read, 0);
}

TEST_F(LoadModel, RefusesATruncatedFile) {
  const auto path = write("a");
  std::filesystem::resize_file(path / "model.safetensors",
                               std::filesystem::file_size(path / "model.safetensors") - 1);
  EXPECT_THAT(problem(path), HasSubstr("cut short"));
}

TEST_F(LoadModel, RefusesAWeightThatIsNotANumber) {
  const auto path = write("a");
  std::fstream file(path / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-2, std::ios::end);
  file.write("\xc0\x7f", 2);  // the top half of a quiet NaN
  file.close();
  EXPECT_THAT(problem(path), testing::AllOf(HasSubstr("lm_head.weight"), HasSubstr("not finite"),
                                            HasSubstr("a NaN at [255, 63]")));
}

TEST_F(LoadModel, EveryTensorWithAValueThatIsNoNumberIsFound) {
  const auto path = write("a");
  EXPECT_TRUE(weights_not_finite(path).empty());
  const std::uint64_t n_bytes = std::filesystem::file_size(path / "model.safetensors");
  std::fstream file(path / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-4, std::ios::end);
  file.write("\x00\x00\x80\xff", 4);  // -infinity, the very last of all values
  const auto info = inspect_model(path);
  file.seekp(static_cast<std::streamoff>(n_bytes - info.file_bytes), std::ios::beg);
  file.write("\x01\x00\x80\x7f", 4);  // a signalling NaN, the very first
  file.close();
  const auto found = weights_not_finite(path);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_THAT(found[0],
              testing::AllOf(HasSubstr("model.embed_tokens.weight"), HasSubstr("a NaN at [0, 0]"),
                             HasSubstr("model.safetensors")));
  EXPECT_THAT(found[1],
              testing::AllOf(HasSubstr("lm_head.weight"), HasSubstr("an infinity at [255, 63]")));
  EXPECT_EQ(weights_not_finite(path, 1).size(), 1u);
}

TEST_F(LoadModel, Float16RefusesWhatDoesNotFit) {
  recipe_.weight_scale = 1e6f;
  EXPECT_THAT(problem(write("a"), {.dtype = WeightDType::kF16}),
              HasSubstr("beyond the range of float16"));
  EXPECT_EQ(problem(write("a"), {.dtype = WeightDType::kBf16}), "accepted");
}

TEST_F(LoadModel, EstimateIsCloseToWhatIsLoaded) {
  recipe_.config.n_hidden = 256;
  recipe_.config.n_heads = 8;
  recipe_.config.head_dim = 32;
  recipe_.config.n_ffn = 512;
  const auto path = write("a");
  for (WeightDType dtype :
       {WeightDType::kF32, WeightDType::kBf16, WeightDType::kI8, WeightDType::kI4}) {
    const LoadOptions options{.dtype = dtype};
    const auto estimate =
        static_cast<double>(estimate_memory(inspect_model(path), options).weight_bytes);
    const auto loaded = static_cast<double>(load_model(path, *backend_, options)->weight_bytes());
    EXPECT_GE(loaded, estimate * 0.99);
    EXPECT_LE(loaded, estimate * 1.15) << "packing pads little";
  }
}

TEST_F(LoadModel, DTypeNames) {
  EXPECT_EQ(weight_dtype_from_name("auto"), WeightDType::kAuto);
  EXPECT_EQ(weight_dtype_from_name("int8"), WeightDType::kI8);
  EXPECT_EQ(weight_dtype_from_name("int4"), WeightDType::kI4);
  EXPECT_EQ(weight_dtype_from_name("fp4"), std::nullopt);
}

TEST_F(LoadModel, APerturbedCopyAgreesOftenAndAStrangerDoesNot) {
  const auto path = write("a");
  write_perturbed_model(path, folder_ / "near", 0.03f, 7);
  recipe_.seed = 99;
  const auto stranger_path = write("stranger");
  std::vector<TokenId> tokens;
  for (int i = 0; i < 200; ++i) tokens.push_back((i * 37 + i * i) % 256);
  const auto tops = [&](const std::filesystem::path& from) {
    auto model = load_model(from, *backend_);
    std::vector<TokenId> top;
    for (const auto& row : test::Runner(*model, *backend_).run(tokens, 64))
      top.push_back(test::argmax(row));
    return top;
  };
  const auto target = tops(path), near = tops(folder_ / "near"), stranger = tops(stranger_path);
  int n_near = 0, n_stranger = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    n_near += target[i] == near[i];
    n_stranger += target[i] == stranger[i];
  }
  EXPECT_GT(n_near, 150);
  EXPECT_LT(n_near, 200) << "it does guess wrong at times";
  EXPECT_LT(n_stranger, 40);
}

}  // namespace
}  // namespace foretoken
