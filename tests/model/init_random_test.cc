#include "common/model/init_random.h"

#include <gmock/gmock.h>

#include <cmath>

#include "common/base/file.h"
#include "common/base/result.h"
#include "common/model/convert.h"
#include "common/model/decoder.h"
#include "common/model/digest.h"
#include "common/model/families.h"
#include "common/model/hf_folder.h"
#include "common/model/pair.h"
#include "common/model/safetensors.h"
#include "common/model/tensor_set.h"
#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

using test::TempFolder;
using testing::HasSubstr;

std::uint64_t digest_of(const std::filesystem::path& file) {
  const std::string text = value_or_throw(read_text_file(file, 64u << 20));
  return digest_bytes(std::as_bytes(std::span(text)));
}

RandomModelRecipe recipe_for(Family family) {
  RandomModelRecipe recipe;
  recipe.config = tiny_config(family);
  return recipe;
}

TEST(InitRandom, WritesEveryFamilyTiedAndUntiedSoThatItReadsBackTheSame) {
  for (const FamilyRow& row : families()) {
    for (bool tied : {false, true}) {
      for (DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
        TempFolder folder;
        RandomModelRecipe recipe = recipe_for(row.family);
        recipe.config.tie_word_embeddings = tied;
        recipe.config.checkpoint_dtype = dtype;
        recipe.config.generation.temperature = 0.7f;
        recipe.dtype = dtype;
        write_random_model(folder.path(), recipe);
        EXPECT_EQ(read_model_config(folder.path()), recipe.config) << row.model_type;
        EXPECT_NO_THROW(inspect_model(folder.path()));
      }
    }
  }
}

TEST(InitRandom, RopeVariantsAndBiasesReadBackTheSame) {
  TempFolder folder;
  RandomModelRecipe recipe = recipe_for(Family::kLlama);
  recipe.config.qkv_bias = recipe.config.o_bias = recipe.config.mlp_bias = true;
  for (const RopeSpec& rope : {RopeSpec{.type = RopeType::kLinear, .factor = 2},
                               RopeSpec{.type = RopeType::kLlama3,
                               .theta = 5e5,
                               .factor = 8,
                               .original_max_position_embeddings = 32},
                               RopeSpec{.type = RopeType::kYarn,
                               .factor = 4,
                               .original_max_position_embeddings = 32,
                               .attention_factor = 1.5,
                               .truncate = false},
                               RopeSpec{.type = RopeType::kYarn,
                               .factor = 4,
                               .original_max_position_embeddings = 32,
                               .mscale = 0.5,
                               .mscale_all_dim = 0.25}}) {
    recipe.config.rope = rope;
    recipe.config.max_model_len = context_length(recipe.config);
    write_random_model(folder.path(), recipe);
    EXPECT_EQ(read_model_config(folder.path()), recipe.config) << rope_type_name(rope.type);
  }
}

TEST(InitRandom, SameRecipeSameBytesOtherSeedOtherBytes) {
  TempFolder a, b;
  RandomModelRecipe recipe = recipe_for(Family::kQwen3);
  write_random_model(a.path(), recipe);
  write_random_model(b.path(), recipe);
  EXPECT_EQ(digest_of(a / "model.safetensors"), digest_of(b / "model.safetensors"));
  recipe.seed = 2;
  write_random_model(b.path(), recipe);
  EXPECT_NE(digest_of(a / "model.safetensors"), digest_of(b / "model.safetensors"));
}

TEST(InitRandom, ShardsHoldTheSameTensors) {
  TempFolder whole, cut;
  RandomModelRecipe recipe = recipe_for(Family::kLlama);
  write_random_model(whole.path(), recipe);
  recipe.n_shards = 4;
  write_random_model(cut.path(), recipe);
  const Checkpoint a(whole.path()), b(cut.path());
  EXPECT_EQ(b.n_files(), 4u);
  ASSERT_EQ(a.names(), b.names());
  for (const std::string& name : a.names())
    EXPECT_EQ(digest_bytes(a.at(name).bytes), digest_bytes(b.at(name).bytes)) << name;
  recipe.n_shards = 1000;
  EXPECT_THROW(write_random_model(cut.path(), recipe), FatalError);
  recipe.n_shards = static_cast<std::int32_t>(a.names().size());
  TempFolder each;
  write_random_model(each.path(), recipe);
  EXPECT_EQ(Checkpoint(each.path()).n_files(), a.names().size());
}

TEST(InitRandom, NoiseHasMeanZeroAndUnitDeviation) {
  TempFolder folder;
  RandomModelRecipe recipe = recipe_for(Family::kLlama);
  write_random_model(folder.path(), recipe);
  const Checkpoint checkpoint(folder.path());
  const auto tensor = checkpoint.at("model.layers.1.mlp.down_proj.weight");
  std::vector<float> values(tensor.info->n_elements());
  widen(DType::kF32, tensor.bytes, values);
  double sum = 0, squares = 0;
  for (float value : values) {
    sum += static_cast<double>(value);
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  const double n = static_cast<double>(values.size()), unit = 1 / std::sqrt(160.0);
  // Four standard errors of mean and variance of n = 10240 draws.
  EXPECT_NEAR(sum / n / unit, 0, 4 / std::sqrt(n));
  EXPECT_NEAR(squares / n / (unit * unit), 1, 4 * std::sqrt(2 / n));
}

TEST(InitRandom, RefusesAConfigThatItsFamilyCannotHave) {
  TempFolder folder;
  RandomModelRecipe recipe = recipe_for(Family::kMistral);
  recipe.config.qkv_bias = true;
  EXPECT_THROW(write_random_model(folder.path(), recipe), FatalError);
  recipe = recipe_for(Family::kLlama);
  recipe.config.n_kv_heads = 3;
  try {
    write_random_model(folder.path(), recipe);
    FAIL();
  } catch (const FatalError& error) {
    EXPECT_EQ(error.what(), folder.path().string() +
                                " is not written, as it could not be read: config.json: "
                                "num_key_value_heads must be a divisor of num_attention_heads, 4; "
                                "found 3");
  }
}

TEST(Perturb, MovesEveryWeightByAboutItsAmplitude) {
  TempFolder source, same, near;
  RandomModelRecipe recipe = recipe_for(Family::kQwen2);
  recipe.n_shards = 2;
  write_random_model(source.path(), recipe);
  write_perturbed_model(source.path(), same.path(), 0, 1);
  write_perturbed_model(source.path(), near.path(), 0.1f, 1);
  const Checkpoint a(source.path()), b(same.path()), c(near.path());
  for (const std::string& name : a.names()) {
    EXPECT_EQ(digest_bytes(a.at(name).bytes), digest_bytes(b.at(name).bytes)) << name;
    std::vector<float> before(a.at(name).info->n_elements()), after(before.size());
    widen(DType::kF32, a.at(name).bytes, before);
    widen(DType::kF32, c.at(name).bytes, after);
    double moved = 0, size = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
      moved += std::pow(static_cast<double>(after[i]) - static_cast<double>(before[i]), 2);
      size += std::pow(static_cast<double>(before[i]), 2);
    }
    EXPECT_NEAR(std::sqrt(moved / size), 0.1, 0.05) << name;
  }
  EXPECT_THROW(write_perturbed_model(source.path(), source.path(), 0.1f, 1), FatalError);
}

TEST(Perturb, TakesTheWholeTokenizerAlong) {
  TempFolder source, made;
  write_random_model(source.path(), recipe_for(Family::kLlama));
  const std::vector<std::string> files{"tokenizer.json",          "tokenizer.model",
                                       "added_tokens.json",       "tokenizer_config.json",
                                       "special_tokens_map.json", "chat_template.jinja"};
  for (const std::string& file : files) source.write(file, "{}");
  write_perturbed_model(source.path(), made.path(), 0, 1);
  for (const std::string& file : files) EXPECT_TRUE(std::filesystem::exists(made / file)) << file;
}

// --- what the config implies
// ----------------------------------------------------------------------------------------

TEST(TensorSet, NamesWhatIsMissingAndWhatHasNoPlace) {
  const auto problem = [](const auto& edit) -> std::string {
    TempFolder folder;
    RandomModelRecipe recipe = recipe_for(Family::kLlama);
    write_random_model(folder.path(), recipe);
    ModelConfig config = read_model_config(folder.path());
    edit(config);
    try {
      check_tensor_set(config, Checkpoint(folder.path()), folder.path());
    } catch (const FatalError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(problem([](ModelConfig&) {}), "accepted");
  EXPECT_EQ(problem([](ModelConfig& c) { c.tie_word_embeddings = true; }), "accepted")
      << "the head is its own";
  EXPECT_THAT(problem([](ModelConfig& c) { c.qk_norm = true; }),
              HasSubstr("no tensor model.layers.0.self_attn.q_norm"));
  EXPECT_THAT(problem([](ModelConfig& c) { c.n_ffn = 161; }),
              HasSubstr("the config implies [161, 64]"));
  EXPECT_THAT(problem([](ModelConfig& c) { c.n_layers = 1; }), HasSubstr("model.layers.1."));
  EXPECT_THAT(problem([](ModelConfig& c) { c.n_layers = 3; }),
              HasSubstr("no tensor model.layers.2."));
  EXPECT_THAT(problem([](ModelConfig& c) { c.vocab_size = 255; }),
              HasSubstr("model.embed_tokens.weight"));
}

TEST(TensorSet, AnUntiedModelNeedsItsHead) {
  TempFolder folder;
  RandomModelRecipe recipe = recipe_for(Family::kLlama);
  recipe.config.tie_word_embeddings = true;
  write_random_model(folder.path(), recipe);
  ModelConfig config = read_model_config(folder.path());
  config.tie_word_embeddings = false;
  try {
    check_tensor_set(config, Checkpoint(folder.path()), folder.path());
    FAIL();
  } catch (const FatalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("tie_word_embeddings"));
  }
}

// --- pair
// -----------------------------------------------------------------------------------------------------------

TEST(Pair, InfoCountsParametersAndBytes) {
  TempFolder folder;
  RandomModelRecipe recipe = recipe_for(Family::kLlama);
  recipe.dtype = DType::kBf16;
  recipe.n_shards = 3;
  write_random_model(folder.path(), recipe);
  const ModelInfo info = inspect_model(folder.path());
  // embedding and head 2 * 256 * 64, final norm 64, per layer 64*64*2 + 64*32*2 + 3*64*160 + 2*64
  EXPECT_EQ(info.n_parameters,
            2u * 256 * 64 + 64 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 160 + 2 * 64));
  EXPECT_EQ(info.file_bytes, 2 * info.n_parameters);
  EXPECT_EQ(info.n_files, 3u);
  LoadOptions options;
  options.max_rows = 16;
  MemoryEstimate estimate = estimate_memory(info, options);
  EXPECT_EQ(estimate.kv_bytes_per_token, 2u * 2 * 2 * 2 * 16);
  EXPECT_GE(estimate.weight_bytes, info.file_bytes);
  options.dtype = WeightDType::kI8;
  EXPECT_LT(estimate_memory(info, options).weight_bytes, estimate.weight_bytes * 6 / 10);
}

// Above 10^9 parameters, so that int4 has groups of 128, and a rank's share is below.
TEST(Pair, TheEstimatesOfRanksAddUpToTheWholeAndWhatEachHasForItself) {
  ModelInfo info;
  ModelConfig& c = info.config;
  c = tiny_config(Family::kLlama);
  c.n_layers = 16, c.n_hidden = 2048, c.n_heads = 32, c.n_kv_heads = 8, c.head_dim = 64;
  c.n_ffn = 8192, c.vocab_size = 32000;
  info.checkpoint_dtype = DType::kBf16;
  for (const bool is_tied : {false, true}) {
    c.tie_word_embeddings = is_tied;
    info.stored.assign(expected_tensors(c).size(), DType::kBf16);
    const LoadOptions options{.dtype = WeightDType::kI4, .max_rows = 16, .max_model_len = 64};
    const MemoryEstimate whole = estimate_memory(info, options);
    const MemoryEstimate first = estimate_memory(info, options, {0, 2}),
                         second = estimate_memory(info, options, {1, 2});
    constexpr std::uint64_t kEmbedding = 32000 * (2048 + sizeof(float));  // in int8
    constexpr std::uint64_t kNorms = (2 * 16 + 1) * 2048 * sizeof(float);
    constexpr std::uint64_t kScales =
        16 * 2 * 2048 * sizeof(float);  // of o and down, cut by columns
    EXPECT_EQ(first.weight_bytes + second.weight_bytes - whole.weight_bytes,
              kEmbedding + kNorms + kScales + (is_tied ? kEmbedding : 0));
    EXPECT_EQ(whole.kv_bytes_per_token, 2 * first.kv_bytes_per_token);
  }
  // Of a rank its sum, and stream and sum on the host; without ranks the squares.
  EXPECT_EQ(decoder_scratch_bytes(c, 16, 2) + 16 * squares_per_row(2048) * sizeof(float),
            decoder_scratch_bytes(c, 16, 1) + 3 * 16 * 2048 * sizeof(float));
}

TEST(Pair, WarnsOfAShortContextAndAnExpensiveDraft) {
  ModelInfo target, draft;
  target.config = tiny_config(Family::kLlama);
  draft.config = tiny_config(Family::kLlama);
  target.n_parameters = 1000;
  draft.n_parameters = 100;
  EXPECT_TRUE(check_pair(draft, target).empty());
  draft.config.max_position_embeddings = 512;
  ASSERT_EQ(check_pair(draft, target).size(), 1u);
  EXPECT_THAT(check_pair(draft, target)[0].sentence, HasSubstr("512 positions"));
  draft.n_parameters = 500;
  EXPECT_THAT(check_pair(draft, target)[1].sentence, HasSubstr("50 %"));
  draft.config.eos_token_ids = {3};
  EXPECT_EQ(check_pair(draft, target).size(), 3u);
}

}  // namespace
}  // namespace foretoken
