// Folders in eight and four bits: those of compressed-tensors against the reference's logits
// (tests/fixtures/quantized, make_quantized.py), and our own.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>

#include "common/base/result.h"
#include "common/model/convert.h"
#include "common/model/hf_folder.h"
#include "common/model/init_random.h"
#include "common/model/int4.h"
#include "common/model/load_model.h"
#include "common/model/logit_difference.h"
#include "common/model/pair.h"
#include "common/model/quantization.h"
#include "common/model/quantize.h"
#include "common/model/safetensors.h"
#include "tests/model/cpu_backend.h"
#include "tests/model/edit_tensors.h"
#include "tests/model/golden.h"
#include "tests/model/int4_rows.h"
#include "tests/model/runner.h"
#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

using test::argmax;
using test::Golden;
using test::golden_of;
using test::Runner;
using test::TempFolder;
using testing::HasSubstr;

std::filesystem::path fixtures() {
  return std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/fixtures";
}

struct Error {
  double largest = 0;
  double rms_logit = 0;
  int n_same_top = 0;
};

Error against(const Golden& golden, Model& model, Backend& backend) {
  const auto logits = Runner(model, backend).run(golden.tokens, 64);
  const auto vocab = static_cast<std::size_t>(model.config().vocab_size);
  Error e;
  for (std::size_t row = 0; row < golden.tokens.size(); ++row) {
    const std::vector<float> expected(
        golden.logits.begin() + static_cast<std::ptrdiff_t>(row * vocab),
        golden.logits.begin() + static_cast<std::ptrdiff_t>((row + 1) * vocab));
    for (std::size_t v = 0; v < vocab; ++v) {
      const double difference =
          std::abs(static_cast<double>(logits[row][v]) - static_cast<double>(expected[v]));
      e.largest = std::max(e.largest, std::isnan(difference) ? 1e9 : difference);
      e.rms_logit += static_cast<double>(expected[v]) * static_cast<double>(expected[v]);
    }
    e.n_same_top += argmax(logits[row]) == argmax(expected);
  }
  e.rms_logit = std::sqrt(e.rms_logit / static_cast<double>(golden.logits.size()));
  return e;
}

// As in golden_test.cc: independent roundings of relative size epsilon, six deviations.
double bound(const ModelConfig& config, const Error& e, double epsilon) {
  return 6 * 2 * epsilon * std::sqrt(10.0 * config.n_layers + 2) * e.rms_logit;
}

class QuantisedFolder : public testing::TestWithParam<const char*> {};

TEST_P(QuantisedFolder, WidenedToFloat32HasTheReferencesLogits) {
  const auto folder = fixtures() / "quantized" / GetParam();
  const Golden golden = golden_of(folder);
  auto backend = make_backend({.n_threads = 1});
  auto model = load_model(folder, *backend, {.dtype = WeightDType::kF32});
  const Error e = against(golden, *model, *backend);
  const double limit =
      bound(model->config(), e, 0x1p-24 * std::sqrt(static_cast<double>(model->config().n_ffn)));
  std::cout << GetParam() << ": largest error " << e.largest << ", limit " << limit
            << ", rms logit " << e.rms_logit << "\n";
  EXPECT_LE(e.largest, limit);
}

// Weights are exact; what is rounded is the input of each product, as in every int8 model here, and
// embedding and head in 16 bits.
TEST_P(QuantisedFolder, AsItIsStaysWithinWhatRoundedInputsAllow) {
  const auto folder = fixtures() / "quantized" / GetParam();
  const Golden golden = golden_of(folder);
  for (const CpuIsa isa : test::kVectorPaths) {
    const auto backend = test::backend_for(isa);
    if (backend == nullptr) continue;
    SCOPED_TRACE(backend->description());
    if (std::string_view(GetParam()).starts_with("fp8")) {
      try {
        load_model(folder, *backend);
        ADD_FAILURE() << "no CPU path multiplies fp8";
      } catch (const FatalError& error) {
        EXPECT_THAT(error.what(), HasSubstr("is float8_e4m3, which cpu"));
        EXPECT_THAT(error.what(), HasSubstr("model.dtype = \"bfloat16\" widens it"));
      }
      continue;
    }
    if (std::string_view(GetParam()) == "gptq_act_order") {
      try {
        load_model(folder, *backend);
        ADD_FAILURE() << "no product follows groups whose columns lie apart";
      } catch (const FatalError& error) {
        EXPECT_THAT(error.what(), HasSubstr("self_attn.q_proj.g_idx has groups whose columns do "
                                            "not follow one another (desc_act: true)"));
        EXPECT_THAT(error.what(), HasSubstr("model.dtype = \"bfloat16\" or \"int8\""));
      }
      continue;
    }
    auto model = load_model(folder, *backend);
    static const std::map<std::string_view, std::string> kTypes{
        {"int4_group", "bfloat16 2, int4/32 14"}, {"int4_zeros", "bfloat16 2, int4z/32 14"},
        {"mxfp4", "bfloat16 2, e2m1/32 14"},      {"int4_channel", "bfloat16 1, int4/128 14"},
        {"gptq", "float16 2, int4z/64 14"},       {"awq", "float16 1, int4z/32 14"}};
    const auto types = kTypes.find(GetParam());
    EXPECT_EQ(model->config().weight_types,
              types == kTypes.end() ? "bfloat16 2, int8 14" : types->second);
    const Error e = against(golden, *model, *backend);
    EXPECT_LE(e.largest, bound(model->config(), e, 3.5 / 254));
    EXPECT_GE(e.n_same_top, 0.8 * static_cast<double>(golden.tokens.size()));
  }
}

INSTANTIATE_TEST_SUITE_P(Folders,
                         QuantisedFolder,
                         testing::Values("int8_channel",
                                         "int8_w8a8",
                                         "fp8_channel",
                                         "fp8_tensor",
                                         "int4_group",
                                         "int4_channel",
                                         "int4_zeros",
                                         "mxfp4",
                                         "gptq",
                                         "gptq_act_order",
                                         "awq"),
                         [](const auto& folder) { return std::string(folder.param); });

class Quantize : public testing::Test {
 protected:
  std::filesystem::path source(const char* name) { return fixtures() / "models" / name; }
  std::string problem(const std::filesystem::path& from, const std::filesystem::path& to) {
    try {
      quantize_model(from, to, {});
      return "accepted";
    } catch (const FatalError& error) {
      return error.what();
    }
  }
  TempFolder folder_;
};

// Of float32, where the scales of a folder are those of weights in memory: of 16 bits they are
// rounded to the source's type.
TEST_F(Quantize, WritesWhatLoadingWithInt8Computes) {
  auto backend = make_backend({.n_threads = 1});
  for (const char* name : {"llama2", "qwen2", "qwen3_yarn", "llama_yarn", "llama_biased"}) {
    SCOPED_TRACE(name);
    const auto out = folder_ / name;
    const auto result = quantize_model(source(name), out, {.with_lm_head = true});
    EXPECT_GE(result.n_quantised, 14u);
    EXPECT_LT(result.bytes_after, result.bytes_before);
    // Asked for int8, both have every matrix in int8: here rounded now, there when it was written.
    auto written = load_model(out, *backend, {.dtype = WeightDType::kI8});
    auto loaded = load_model(source(name), *backend, {.dtype = WeightDType::kI8});
    EXPECT_EQ(written->config().weight_types, loaded->config().weight_types);
    const std::vector<TokenId> tokens{5, 9, 17, 33, 4, 8, 12, 99, 100, 7};
    const LogitDifference d = compare_logits(*loaded, *written, *backend, tokens);
    EXPECT_EQ(d.n_positions, tokens.size());
    EXPECT_EQ(d.largest, 0) << "the same codes and scales, the same bits";
    EXPECT_NE(written->fingerprint(), loaded->fingerprint()) << "files of another content";
  }
}

// A weight as a model loaded with dtype int4 has it.
std::vector<float> held_with_int4(const std::string& name, const std::vector<float>& row) {
  const auto n = static_cast<std::int64_t>(row.size());
  std::vector<float> held(row.size());
  if (is_held_in_int4(name, Int4Kind::kNonUniform)) {
    std::vector<std::byte> packed(static_cast<std::size_t>(row_bytes(DType::kI4, n, 32)));
    const float scale = quantise_row_to_int4(row, 32, Int4Kind::kNonUniform, packed.data()).value();
    const auto values = test::decoded(packed, n, 32, scale, Int4Kind::kNonUniform).values;
    std::ranges::transform(values, held.begin(), [](double x) { return static_cast<float>(x); });
  } else {
    std::vector<std::byte> codes(row.size());
    const float scale = quantise_row(row, DType::kI8, codes.data()).value();
    dequantise_rows(DType::kI8, codes, std::span(&scale, 1), n, held);
  }
  return held;
}

// Every matrix replaced by what its codes and scales stand for, in float32.
void round_weights(const std::filesystem::path& folder) {
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".safetensors") continue;
    test::edit(file.path(), [](test::Tensors& tensors) {
      for (auto& [name, tensor] : tensors) {
        if (tensor.shape.size() != 2) continue;
        std::vector<float> values(static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]));
        widen(*dtype_of(tensor.type), tensor.bytes, values);
        std::vector<float> rounded;
        const auto n = static_cast<std::ptrdiff_t>(tensor.shape[1]);
        for (auto at = values.begin(); at != values.end(); at += n)
          std::ranges::copy(held_with_int4(name, {at, at + n}), std::back_inserter(rounded));
        tensor = {TensorType::kF32, tensor.shape, test::as_bytes(rounded)};
      }
    });
  }
}

// Against the same weights in float32, whose logits the reference confirms (golden_test.cc): what
// is left is the rounding of the products' inputs.
TEST_F(Quantize, FourBitsComputeWhatTheirCodesStandFor) {
  for (const char* name : {"llama3", "qwen2", "qwen3", "mistral", "llama_biased"}) {
    const auto rounded = folder_ / name;
    std::filesystem::copy(source(name), rounded);
    round_weights(rounded);
    for (const CpuIsa isa : test::kVectorPaths) {
      const auto backend = test::backend_for(isa);
      if (backend == nullptr) continue;
      SCOPED_TRACE(std::string(name) + " " + backend->description());
      auto loaded = load_model(source(name), *backend, {.dtype = WeightDType::kI4});
      auto expected = load_model(rounded, *backend, {.dtype = WeightDType::kF32});
      const std::vector<TokenId> tokens{5, 9, 17, 33, 4, 8, 12, 99, 100, 7};
      const LogitDifference d = compare_logits(*expected, *loaded, *backend, tokens);
      EXPECT_LE(d.largest, bound(loaded->config(), Error{.rms_logit = d.rms_reference}, 3.5 / 254));
      EXPECT_GT(d.largest, 0) << "inputs are rounded";
      EXPECT_THAT(loaded->config().weight_types, HasSubstr("int4n/32 "));
      EXPECT_THAT(loaded->config().weight_types, HasSubstr("int8 "));
    }
  }
}

// A folder in four bits computes what its codes stand for, and is as near to its source as one that
// is quantised while loading.
TEST_F(Quantize, WritesFourBitsAsItHoldsThem) {
  auto backend = make_backend({.n_threads = 1});
  for (const char* name : {"llama2", "llama3", "qwen3", "mistral"}) {
    SCOPED_TRACE(name);
    const auto out = folder_ / name;
    const auto result = quantize_model(source(name), out, {.to = DType::kI4});
    EXPECT_EQ(result.n_in_8_bits, 2u);  // the down projections
    EXPECT_GE(result.n_quantised, 14u);
    auto held = load_model(out, *backend),
         widened = load_model(out, *backend, {.dtype = WeightDType::kF32}),
         loaded = load_model(source(name), *backend, {.dtype = WeightDType::kI4}),
         exact = load_model(source(name), *backend, {.dtype = WeightDType::kF32});
    EXPECT_THAT(held->config().weight_types, HasSubstr("int4/32 12, int8 2"));
    const std::vector<TokenId> tokens{5, 9, 17, 33, 4, 8, 12, 99, 100, 7};
    const LogitDifference d = compare_logits(*widened, *held, *backend, tokens);
    EXPECT_LE(d.largest, bound(held->config(), Error{.rms_logit = d.rms_reference}, 3.5 / 254));
    EXPECT_GT(d.largest, 0) << "inputs are rounded";
    const double written = compare_logits(*exact, *held, *backend, tokens).rms,
                 in_memory = compare_logits(*exact, *loaded, *backend, tokens).rms;
    EXPECT_LT(written, 1.5 * in_memory);
    EXPECT_GT(written, 0);
    // Asked for int4, what is stored so stays as it is, and the rest is held in int8.
    EXPECT_THAT(load_model(out, *backend, {.dtype = WeightDType::kI4})->config().weight_types,
                HasSubstr("int4/32 12, int8 "));
  }
}

TEST_F(Quantize, WritesTheGroupsThatAreAskedForIfRowsAreWholeOnes) {
  auto backend = make_backend({.n_threads = 1});
  quantize_model(source("qwen3"), folder_ / "64", {.to = DType::kI4, .group = 64});
  EXPECT_THAT(load_model(folder_ / "64", *backend)->config().weight_types, HasSubstr("int4/64 12"));
  try {
    quantize_model(source("qwen3"), folder_ / "128", {.to = DType::kI4, .group = 128});
    ADD_FAILURE() << "rows of 64 are no groups of 128";
  } catch (const FatalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no whole groups of 128: use smaller groups, or int8"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "128"));
  try {
    quantize_model(source("llama_linear"), folder_ / "down",
                   {.to = DType::kI4, .group = 64, .with_down_projections = true});
    ADD_FAILURE() << "rows of 160 are no groups of 64";
  } catch (const FatalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("groups of 64: leave down projections in eight bits"));
  }
}

TEST_F(Quantize, LeavesTheHeadAloneUnlessAsked) {
  auto backend = make_backend({.n_threads = 1});
  quantize_model(source("llama3"), folder_ / "a", {});
  quantize_model(source("llama3"), folder_ / "b", {.with_lm_head = true});
  EXPECT_EQ(load_model(folder_ / "a", *backend)->config().weight_types, "bfloat16 2, int8 14");
  EXPECT_EQ(load_model(folder_ / "b", *backend)->config().weight_types, "bfloat16 1, int8 15");
  const auto estimate = estimate_memory(inspect_model(folder_ / "b"), {});
  EXPECT_EQ(load_model(folder_ / "b", *backend)->config().quantized.in_8_bits, DType::kI8);
  EXPECT_GE(estimate.weight_bytes, inspect_model(folder_ / "b").file_bytes);
}

// config.json of the source says tie_word_embeddings: true, and the head in the file counts.
TEST_F(Quantize, KeepsAHeadBesideTiedEmbeddings) {
  const auto tied = folder_ / "tied";
  std::filesystem::copy(source("llama32_tied"), tied);
  test::edit(tied / "model.safetensors", [](test::Tensors& tensors) {
    test::Tensor head = tensors.at("model.embed_tokens.weight");
    std::ranges::rotate(head.bytes, head.bytes.begin() + 2 * head.shape[1]);  // by a row
    tensors["lm_head.weight"] = std::move(head);
  });
  ASSERT_FALSE(inspect_model(tied).config.tie_word_embeddings);
  for (const DType to : {DType::kI4, DType::kI8})
    for (const bool with_lm_head : {false, true}) {
      const auto out = folder_ / (std::string(dtype_name(to)) + (with_lm_head ? " head" : ""));
      quantize_model(tied, out, {.to = to, .with_lm_head = with_lm_head});
      EXPECT_FALSE(inspect_model(out).config.tie_word_embeddings) << out;
      EXPECT_FALSE(read_model_config(out).tie_word_embeddings) << "what other readers go by";
    }
}

TEST_F(Quantize, Fp8ErrorIsWithinItsThreeBits) {
  auto backend = make_backend({.n_threads = 1});
  for (const char* name : {"llama2", "qwen3_yarn"}) {
    quantize_model(source(name), folder_ / name, {.to = DType::kF8E4M3});
    auto reference = load_model(source(name), *backend, {.dtype = WeightDType::kF32});
    auto widened = load_model(folder_ / name, *backend, {.dtype = WeightDType::kF32});
    std::vector<TokenId> tokens(60);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<TokenId>(4 + (i * 37) % 190);
    const LogitDifference d = compare_logits(*reference, *widened, *backend, tokens);
    std::cout << name << " fp8: rms " << d.rms << " beside " << d.rms_reference << ", KL "
              << d.mean_kl << "\n";
    const double limit = 6 * 2 * 0x1p-4 * std::sqrt(10.0 * 2 + 2) * d.rms_reference;
    EXPECT_GT(d.rms, 0);
    EXPECT_LE(d.largest, limit);
    EXPECT_GE(d.mean_kl, 0);
  }
}

TEST_F(Quantize, ComparesAModelWithItselfAsEqual) {
  auto backend = make_backend({.n_threads = 1});
  auto one = load_model(source("qwen2"), *backend), two = load_model(source("qwen2"), *backend);
  const std::vector<TokenId> tokens{4, 5, 6, 7, 8};
  const LogitDifference d = compare_logits(*one, *two, *backend, tokens);
  EXPECT_EQ(d.n_same_top, 5u);
  EXPECT_EQ(d.rms, 0);
  EXPECT_EQ(d.mean_kl, 0);
  EXPECT_GT(d.rms_reference, 0.5);
}

TEST_F(Quantize, RefusesWhatItCannotDo) {
  quantize_model(source("qwen2"), folder_ / "once", {});
  EXPECT_THAT(problem(folder_ / "once", folder_ / "twice"),
              HasSubstr("is quantised already, to int8; give a folder with float weights"));
  quantize_model(source("qwen3"), folder_ / "mixed", {.to = DType::kI4});
  EXPECT_THAT(problem(folder_ / "mixed", folder_ / "twice"),
              HasSubstr("is quantised already, to int4 and int8;"));
  EXPECT_THAT(problem(source("qwen2"), folder_ / "once"), HasSubstr("exists already"));
  EXPECT_THAT(problem(folder_ / "nowhere", folder_ / "x"), HasSubstr("is not a folder"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "x")) << "nothing is left of a refused run";
}

// A folder with one tensor renamed in its header; the length must stay.
void rename(const std::filesystem::path& file, const std::string& from, const std::string& to) {
  ASSERT_EQ(from.size(), to.size());
  std::ifstream in(file, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const auto at = bytes.find("\"" + from + "\"");
  ASSERT_NE(at, std::string::npos) << from;
  bytes.replace(at + 1, to.size(), to);
  std::ofstream(file, std::ios::binary) << bytes;
}

TEST_F(Quantize, AFolderWithoutAScaleOrWithHalfAStackIsRefusedByName) {
  auto backend = make_backend({.n_threads = 1});
  const auto load = [&](const std::filesystem::path& path) {
    try {
      load_model(path, *backend);
      return std::string("accepted");
    } catch (const FatalError& error) {
      return std::string(error.what());
    }
  };
  quantize_model(source("llama2"), folder_ / "a", {});
  rename(folder_ / "a" / "model.safetensors", "model.layers.0.mlp.up_proj.weight_scale",
         "model.layers.0.mlp.up_proj.weight_scalf");
  EXPECT_THAT(load(folder_ / "a"), HasSubstr("model.layers.0.mlp.up_proj.weight_scale"));
  std::filesystem::copy(fixtures() / "quantized/fp8_tensor", folder_ / "b");
  // Its first feed-forward is in 16 bits, its second in eight: change their gates' places.
  const auto file = folder_ / "b" / "model.safetensors";
  rename(file, "model.layers.0.mlp.gate_proj.weight", "model.layers.X.mlp.gate_proj.weight");
  rename(file, "model.layers.1.mlp.gate_proj.weight", "model.layers.0.mlp.gate_proj.weight");
  rename(file, "model.layers.X.mlp.gate_proj.weight", "model.layers.1.mlp.gate_proj.weight");
  rename(file, "model.layers.1.mlp.gate_proj.weight_scale",
         "model.layers.0.mlp.gate_proj.weight_scale");
  EXPECT_THAT(load(folder_ / "b"), HasSubstr("must be quantised alike"));
}

}  // namespace
}  // namespace foretoken
