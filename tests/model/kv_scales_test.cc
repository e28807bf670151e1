// Scales of a KV cache in eight bits as folders hold them: against the reference
// (tests/fixtures/kv_scales, make_kv_scales.py), in every spelling and shape, and as they should
// not be.
#include "common/model/kv_scales.h"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>

#include "common/base/result.h"
#include "common/model/families.h"
#include "common/model/init_random.h"
#include "common/model/load_model.h"
#include "common/model/pair.h"
#include "common/model/quantize.h"
#include "kernels/include/numerics.h"
#include "tests/model/cpu_backend.h"
#include "tests/model/edit_tensors.h"
#include "tests/model/golden.h"
#include "tests/model/runner.h"
#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;
using test::as_bytes;
using test::edit;
using test::Golden;
using test::golden_of;
using test::Runner;
using test::TempFolder;
using test::Tensor;
using test::Tensors;
using testing::AllOf;
using testing::HasSubstr;
using Rows = std::vector<std::vector<float>>;

// --- against the reference

struct Distance {
  double largest = 0;
  double rms_logit = 0;
};

Distance distance(const Rows& rows, const Golden& golden) {
  Distance d;
  std::size_t i = 0;
  for (const auto& row : rows)
    for (const float logit : row) {
      const auto expected = static_cast<double>(golden.logits[i++]);
      const double apart = std::fabs(static_cast<double>(logit) - expected);
      d.largest = std::max(d.largest, std::isnan(apart) ? 1e9 : apart);
      d.rms_logit += expected * expected;
    }
  EXPECT_EQ(i, golden.logits.size());
  d.rms_logit = std::sqrt(d.rms_logit / static_cast<double>(i));
  return d;
}

class KvScalesOfTheReference : public testing::TestWithParam<const char*> {
 protected:
  const fs::path folder_ = fs::path(FORETOKEN_SOURCE_DIR) / "tests/fixtures/kv_scales" / GetParam();
  const Golden golden_ = golden_of(folder_);
  const LoadOptions options_{.dtype = WeightDType::kF32, .kv_dtype = DType::kF8E4M3};
};

// Weights in float32 and the same codes in the cache (the fixture's tokens were chosen so that no
// key or value lies near the middle between two codes): what is left is float32's rounding.
TEST_P(KvScalesOfTheReference, GiveItsLogits) {
  for (const CpuIsa isa : test::kVectorPaths) {
    const auto backend = test::backend_for(isa);
    if (backend == nullptr) continue;
    SCOPED_TRACE(backend->description());
    const auto model = load_model(folder_, *backend, options_);
    const ModelConfig& c = model->config();
    const Rows one_by_one = Runner(*model, *backend).run(golden_.tokens, 1);
    for (const std::size_t chunk : {5u, 64u}) {
      const Rows rows = Runner(*model, *backend).run(golden_.tokens, chunk);
      EXPECT_EQ(rows, one_by_one) << "a row's bits are its own";
      const Distance d = distance(rows, golden_);
      const double epsilon =
          0x1p-24 * std::sqrt(static_cast<double>(std::max(c.n_ffn, c.n_hidden)));
      const double limit = 6 * 2 * epsilon * std::sqrt(10.0 * c.n_layers + 2) * d.rms_logit;
      EXPECT_LE(d.largest, limit) << "chunks of " << chunk;
      if (chunk == 64)
        std::cout << GetParam() << " " << backend->numerics() << ": largest error " << d.largest
                  << ", limit " << limit << ", rms logit " << d.rms_logit << "\n";
    }
  }
}

TEST_P(KvScalesOfTheReference, AreNotThoseOfACacheWithoutThem) {
  const auto backend = make_backend({.n_threads = 1});
  const auto run = [&](const fs::path& folder, DType kv) {
    LoadOptions options = options_;
    options.kv_dtype = kv;
    const auto model = load_model(folder, *backend, options);
    return distance(Runner(*model, *backend).run(golden_.tokens, 64), golden_).largest;
  };
  const double scaled = run(folder_, DType::kF8E4M3);
  const TempFolder bare;
  fs::copy(folder_, bare / "x");
  edit(bare / "x" / "model.safetensors", [](Tensors& tensors) {
    std::erase_if(tensors, [](const auto& tensor) {
      return tensor.first.ends_with(".k_scale") || tensor.first.ends_with(".v_scale");
    });
  });
  EXPECT_GT(run(bare / "x", DType::kF8E4M3), 100 * scaled) << "scales of one";
  EXPECT_GT(run(folder_, DType::kF32), 100 * scaled) << "no rounding";
}

INSTANTIATE_TEST_SUITE_P(Folders,
                         KvScalesOfTheReference,
                         testing::Values("by_layer", "by_head"),
                         [](const auto& folder) { return std::string(folder.param); });

// --- folders of our own: a llama of two layers with two KV heads. Scales a power of two apart give
// the same numbers: those here are not.

constexpr char kKeys[] = "self_attn.k_scale";
constexpr char kValues[] = "self_attn.v_scale";

Tensor one_number(float value, std::vector<std::int64_t> shape = {1}) {
  return {TensorType::kF32, std::move(shape), as_bytes(std::vector<float>{value})};
}
Tensor by_head(const std::vector<float>& values) {
  const auto n = static_cast<std::int64_t>(values.size());
  return {TensorType::kF32, {n, 1, 1}, as_bytes(values)};
}
Tensor in_bf16(float value) {
  return {TensorType::kBf16, {1}, as_bytes(std::vector<std::uint16_t>{f32_to_bf16(value)})};
}

class KvScaleFiles : public testing::Test {
 protected:
  KvScaleFiles() : backend_(make_backend({.n_threads = 1})) {
    write_random_model(folder_ / "bare", {.config = tiny_config(Family::kLlama), .seed = 4});
  }

  // The model with these tensors in every layer; a name is what follows the layer's.
  fs::path with(const std::map<std::string, Tensor>& of_each_layer) {
    fs::path path = folder_ / ("m" + std::to_string(++n_made_));
    fs::copy(folder_ / "bare", path);
    edit(path / "model.safetensors", [&](Tensors& tensors) {
      for (std::int32_t layer : {0, 1})
        for (const auto& [rest, tensor] : of_each_layer)
          tensors[names::layer(layer, rest)] = tensor;
    });
    return path;
  }
  fs::path edited(const fs::path& path, const std::function<void(Tensors&)>& change) {
    edit(path / "model.safetensors", change);
    return path;
  }
  std::unique_ptr<Model> load(const fs::path& path, DType kv = DType::kF8E4M3) {
    return load_model(path, *backend_, {.kv_dtype = kv});
  }
  Rows logits(const fs::path& path, DType kv = DType::kF8E4M3) {
    const auto model = load(path, kv);
    const std::vector<TokenId> tokens{5, 9, 17, 33, 4, 8, 12, 99, 100, 7};
    return Runner(*model, *backend_).run(tokens, 3);
  }
  // What load_model says of a cache in eight bits; what it says of another must be "accepted".
  std::string said(const fs::path& path) {
    load(path, DType::kBf16);
    const auto problems = inspect_model(path).kv_scale_problems;
    try {
      load(path);
      EXPECT_TRUE(problems.empty());
      return "accepted";
    } catch (const FatalError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMalformed);
      EXPECT_FALSE(problems.empty());
      EXPECT_THAT(error.what(), HasSubstr(problems.empty() ? "?" : problems.front()));
      return error.what();
    }
  }
  void set_scheme(const fs::path& path, const std::string& scheme) {
    const std::string text = [&] {
      std::ifstream in(path / "config.json");
      return std::string(std::istreambuf_iterator<char>(in), {});
    }();
    std::string other = text;
    other.insert(other.find('{') + 1,
                 "\"quantization_config\": {\"quant_method\": \"compressed-tensors\", "
                 "\"kv_cache_scheme\": " +
                     scheme + "},");
    std::ofstream(path / "config.json", std::ios::trunc) << other;
  }

  TempFolder folder_;
  std::unique_ptr<Backend> backend_;
  int n_made_ = 0;
};

TEST_F(KvScaleFiles, CountInEverySpellingShapeAndType) {
  const Rows expected =
      logits(with({{kKeys, one_number(0.0234375f)}, {kValues, one_number(0.109375f)}}));
  EXPECT_NE(expected, logits(folder_ / "bare"));
  EXPECT_NE(expected,
            logits(with({{kKeys, one_number(0.109375f)}, {kValues, one_number(0.0234375f)}})));
  const Tensor k = one_number(0.0234375f), v = one_number(0.109375f);
  EXPECT_EQ(expected,
            logits(with({{"self_attn.k_proj.k_scale", k}, {"self_attn.v_proj.v_scale", v}})));
  EXPECT_EQ(
      expected,
      logits(with({{"self_attn.k_proj.output_scale", k}, {"self_attn.v_proj.output_scale", v}})));
  EXPECT_EQ(expected,
            logits(with({{kKeys, one_number(0.0234375f, {})}, {kValues, in_bf16(0.109375f)}})));
  EXPECT_EQ(expected, logits(with({{kKeys, one_number(0.0234375f, {1, 1, 1})},
                                   {kValues, by_head({0.109375f, 0.109375f})}})));
  Tensor flat = by_head({0.109375f, 0.109375f});
  flat.shape = {2};
  EXPECT_EQ(expected, logits(with({{kKeys, k}, {kValues, flat}})));
  EXPECT_EQ(logits(with({{"self_attn.kv_scale", k}})), logits(with({{kKeys, k}, {kValues, k}})));
}

TEST_F(KvScaleFiles, AreOfTheHeadAndTheLayerTheyAreNamedFor) {
  const auto two = [&](Tensor keys, Tensor values) {
    return logits(with({{kKeys, std::move(keys)}, {kValues, std::move(values)}}));
  };
  const Tensor one = one_number(0.0625f);
  const Rows plain = two(one, one);
  EXPECT_EQ(two(by_head({0.0625f, 0.0625f}), one), plain);
  const Rows first = two(by_head({0.7f, 0.0625f}), one),
             second = two(by_head({0.0625f, 0.7f}), one);
  EXPECT_NE(first, plain);
  EXPECT_NE(second, plain);
  EXPECT_NE(first, second);
  const auto of_layer = [&](int layer) {
    return logits(edited(with({{kKeys, one}, {kValues, one}}), [&](Tensors& tensors) {
      tensors[names::layer(layer, kKeys)] = one_number(0.7f);
    }));
  };
  EXPECT_NE(of_layer(0), of_layer(1));
}

TEST_F(KvScaleFiles, TheNewestSpellingCounts) {
  const std::map<std::string, Tensor> newest{{kKeys, one_number(0.03f)},
                                             {kValues, one_number(0.1f)}};
  auto both = newest;
  both["self_attn.k_proj.output_scale"] = both["self_attn.v_proj.output_scale"] = one_number(0.7f);
  both["self_attn.kv_scale"] = one_number(0.9f);
  both["self_attn.q_scale"] = one_number(0.5f);
  both["self_attn.k_zero_point"] = {TensorType::kF8E4M3, {1}, {std::byte{0}}};
  EXPECT_EQ(logits(with(both)), logits(with(newest)));
}

TEST_F(KvScaleFiles, ChangeNothingInACacheOfAnotherType) {
  const auto path = with({{kKeys, one_number(0.03f)}, {kValues, one_number(0.1f)}});
  const auto damaged = with({{kKeys, one_number(-1.0f, {1, 1})}});
  for (DType kv : {DType::kF32, DType::kBf16, DType::kF16}) {
    EXPECT_EQ(logits(path, kv), logits(folder_ / "bare", kv));
    EXPECT_EQ(load(path, kv)->fingerprint(), load(folder_ / "bare", kv)->fingerprint());
    EXPECT_EQ(logits(damaged, kv), logits(folder_ / "bare", kv));
    EXPECT_EQ(load(path, kv)->config().kv_scales,
              std::string("not used: kv_cache.dtype is ") + dtype_name(kv) + ", not float8_e4m3");
    EXPECT_EQ(load(folder_ / "bare", kv)->config().kv_scales, "");
  }
}

TEST_F(KvScaleFiles, ArePartOfTheFingerprintWhereTheyAreUsed) {
  const auto bare = load(folder_ / "bare");
  EXPECT_EQ(bare->config().kv_scales, "all are 1");
  const auto scaled = with({{kKeys, one_number(0.03f)}, {kValues, one_number(0.1f)}});
  const auto same = with({{kKeys, one_number(0.03f)}, {kValues, one_number(0.1f)}});
  const auto other = with({{kKeys, one_number(0.03f)}, {kValues, one_number(0.1f)}});
  edit(other / "model.safetensors", [](Tensors& tensors) {
    tensors[names::layer(1, kValues)] = one_number(std::nextafter(0.1f, 1.0f));
  });
  const Fingerprint fingerprint = load(scaled)->fingerprint();
  EXPECT_EQ(load(scaled)->config().kv_scales, "the model's, by layer");
  EXPECT_EQ(load(same)->fingerprint(), fingerprint);
  EXPECT_NE(load(other)->fingerprint(), fingerprint);
  EXPECT_NE(bare->fingerprint(), fingerprint);
  const auto heads = with({{kKeys, by_head({0.03f, 0.04f})}, {kValues, one_number(0.1f)}});
  EXPECT_EQ(load(heads)->config().kv_scales, "the model's, by KV head");
}

TEST_F(KvScaleFiles, OfAnotherKindOfCacheAreNotUsed) {
  const auto bare = logits(folder_ / "bare");
  for (const auto& [scheme, finding] :
       {std::pair{R"({"type": "int", "num_bits": 8})", "kv_cache_scheme.type is \"int\""},
        {R"({"num_bits": 8})", "kv_cache_scheme.type is \"int\""},
        {R"({"type": "float", "num_bits": 4})", "kv_cache_scheme.num_bits is 4"},
        {R"({"type": "float", "strategy": "channel"})", "kv_cache_scheme.strategy is \"channel\""},
        {R"({"type": "float", "dynamic": true})", "kv_cache_scheme.dynamic is true"},
        {R"({"type": "float", "symmetric": false})", "kv_cache_scheme.symmetric is false"}}) {
    SCOPED_TRACE(scheme);
    const auto path = with({{kKeys, one_number(0.03f)}, {kValues, one_number(0.1f)}});
    set_scheme(path, scheme);
    EXPECT_EQ(said(path), "accepted");
    EXPECT_EQ(logits(path), bare);
    EXPECT_EQ(load(path)->config().kv_scales,
              std::string("not used, all are 1: quantization_config.") + finding);
  }
  const auto declared = with({});
  set_scheme(declared, R"({"type": "float", "num_bits": 8, "strategy": "tensor"})");
  EXPECT_EQ(logits(declared), bare);
  EXPECT_THAT(load(declared)->config().kv_scales, HasSubstr("the folder has none"));
}

TEST_F(KvScaleFiles, ThatAreNoScalesAreRefusedByNameAndLimit) {
  const auto limits = HasSubstr("a scale of keys or values is from 1e-30 to 1e+30");
  const std::string name = names::layer(1, kValues);
  const auto says = [&](Tensor tensor) {
    return said(edited(with({{kKeys, one_number(0.03f)}, {kValues, one_number(0.1f)}}),
                       [&](Tensors& tensors) { tensors[name] = std::move(tensor); }));
  };
  const auto places = AllOf(HasSubstr("model.safetensors: tensor " + name), limits,
                            HasSubstr("any other kv_cache.dtype does without"));
  EXPECT_THAT(says(one_number(0.0f)), AllOf(HasSubstr(" has 0 at [0]"), places));
  EXPECT_THAT(says(one_number(-0.5f)), AllOf(HasSubstr(" has -0.5 at [0]"), places));
  EXPECT_THAT(says(one_number(std::nanf(""))), AllOf(HasSubstr("nan at [0]"), places));
  EXPECT_THAT(says(one_number(std::numeric_limits<float>::infinity())),
              AllOf(HasSubstr(" has inf at [0]"), places));
  EXPECT_THAT(says(by_head({0.1f, 2e30f})), AllOf(HasSubstr(" has 2e+30 at [1]"), places));
  EXPECT_THAT(says(by_head({1e-31f, 0.1f})), AllOf(HasSubstr("1e-31 at [0]"), places));
  EXPECT_THAT(says(in_bf16(0.0f)), places);
  EXPECT_EQ(says(by_head({1e-30f, 1e30f})), "accepted");
  EXPECT_THAT(says(by_head({0.1f, 0.1f, 0.1f, 0.1f})),
              AllOf(HasSubstr(name + " has shape [4, 1, 1]"), HasSubstr("each of 2 KV heads")));
  EXPECT_THAT(says(by_head({})), HasSubstr(name + " has shape [0, 1, 1]"));
  EXPECT_THAT(says({TensorType::kF32, {2, 2}, as_bytes(std::vector<float>(4, 0.1f))}),
              HasSubstr(name + " has shape [2, 2]"));
  EXPECT_THAT(says({TensorType::kI32, {1}, std::vector<std::byte>(4)}),
              HasSubstr(name + " has dtype I32"));
  EXPECT_THAT(says({TensorType::kF8E4M3, {1}, std::vector<std::byte>(1)}),
              HasSubstr(name + " has dtype F8_E4M3"));
}

TEST_F(KvScaleFiles, ThatAreNotAllThereAreRefused) {
  const auto without = [&](const std::string& name) {
    return said(edited(with({{kKeys, one_number(0.03f)}, {kValues, one_number(0.1f)}}),
                       [&](Tensors& tensors) { ASSERT_EQ(tensors.erase(name), 1u) << name; }));
  };
  EXPECT_THAT(without(names::layer(1, kValues)),
              AllOf(HasSubstr(names::layer(1, kKeys) + " is there and"),
                    HasSubstr(names::layer(1, kValues) + " is not")));
  EXPECT_THAT(without(names::layer(0, kKeys)),
              AllOf(HasSubstr(names::layer(0, kValues) + " is there and"),
                    HasSubstr(names::layer(0, kKeys) + " is not")));
  EXPECT_THAT(
      said(edited(with({{"self_attn.kv_scale", one_number(0.03f)}}),
                  [](Tensors& tensors) { tensors.erase(names::layer(0, "self_attn.kv_scale")); })),
      HasSubstr("layer 0 has no such scale: all of 2 layers have one, or none"));
}

TEST_F(KvScaleFiles, WithZeroPointsOrUnderAStrangeNameAreRefused) {
  const Tensor k = one_number(0.03f), v = one_number(0.1f);
  EXPECT_THAT(
      said(with({{kKeys, k},
                 {kValues, v},
                 {"self_attn.v_zero_point", {TensorType::kI8, {1}, {std::byte{3}}}}})),
      AllOf(HasSubstr("layers.0.self_attn.v_zero_point is not zero"), HasSubstr("no zero points")));
  // Weights in eight bits: there any scale of activations is passed over, a cache's too.
  quantize_model(with({}), folder_ / "int8", {});
  edit(folder_ / "int8" / "model.safetensors",
       [&](Tensors& tensors) { tensors["model.layers.7.self_attn.k_scale"] = k; });
  EXPECT_THAT(said(folder_ / "int8"),
              AllOf(HasSubstr("model.layers.7.self_attn.k_scale"), HasSubstr("has none")));
}

TEST_F(KvScaleFiles, StayWithAModelThatIsQuantised) {
  for (const char* one : {"float", "int"}) {
    const std::string type = one;
    const auto path = with({{kKeys, one_number(0.03f)}, {kValues, one_number(0.1f)}});
    set_scheme(path, "{\"type\": \"" + type + "\"}");
    quantize_model(path, folder_ / type, {});
    EXPECT_EQ(load(folder_ / type)->config().kv_scales, load(path)->config().kv_scales);
    EXPECT_THAT(load(path)->config().kv_scales,
                HasSubstr(type == "float" ? "by layer" : "not used"));
  }
}

}  // namespace
}  // namespace foretoken
