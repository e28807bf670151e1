// Quantised folders as they should not be, and layouts that our own writer never makes: what is
// wrong is refused by a sentence, whatever is asked of it.
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <random>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/result.h"
#include "common/model/convert.h"
#include "common/model/init_random.h"
#include "common/model/load_model.h"
#include "common/model/logit_difference.h"
#include "common/model/pair.h"
#include "common/model/quantization.h"
#include "common/model/quantize.h"
#include "common/model/safetensors.h"
#include "tests/model/edit_tensors.h"
#include "tests/model/runner.h"
#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;
using test::as_bytes;
using test::edit;
using test::Runner;
using test::TempFolder;
using test::Tensor;
using test::Tensors;
using testing::AllOf;
using testing::HasSubstr;

constexpr char kGate[] = "model.layers.0.mlp.gate_proj.weight";
constexpr char kDown[] = "model.layers.0.mlp.down_proj.weight";

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_text(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
}

// The layout of compressed-tensors' pack-quantized: code + 128, four to a word, the first in the
// lowest byte, rows padded (here with what must not be read as codes).
void pack(Tensors& tensors, const std::string& name) {
  const Tensor codes = tensors.at(name);
  const auto rows = static_cast<std::size_t>(codes.shape[0]);
  const auto columns = static_cast<std::size_t>(codes.shape[1]);
  std::vector<std::uint32_t> words;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; c += 4) {
      std::uint32_t word = 0;
      for (std::size_t i = 0; i < 4; ++i) {
        const std::size_t at = r * columns + c + i;
        const int code = c + i < columns ? static_cast<std::int8_t>(codes.bytes[at]) : 77;
        word |= static_cast<std::uint32_t>(code + 128) << (8 * i);
      }
      words.push_back(word);
    }
  }
  tensors.erase(name);
  tensors[name + "_packed"] = {
      TensorType::kI32, {codes.shape[0], (codes.shape[1] + 3) / 4}, as_bytes(words)};
  tensors[name + "_shape"] = {TensorType::kI64, {2}, as_bytes(codes.shape)};
}

// The reverse, with scales in float32.
void unpack(Tensors& tensors, const std::string& name) {
  const Tensor shape = tensors.at(name + "_shape");
  std::array<std::int64_t, 2> n{};
  std::memcpy(n.data(), shape.bytes.data(), sizeof n);
  tensors[name] = {
      TensorType::kI8, {n[0], n[1]}, unpack_int8(tensors.at(name + "_packed").bytes, n[0], n[1])};
  tensors.erase(name + "_packed");
  tensors.erase(name + "_shape");
  Tensor& scales = tensors.at(name + "_scale");
  std::vector<float> values(static_cast<std::size_t>(n[0]));
  widen(*dtype_of(scales.type), scales.bytes, values);
  scales = {TensorType::kF32, scales.shape, as_bytes(values)};
}

// A folder in int8 as earlier versions wrote it: int-quantized, with codes under the names of their
// tensors and scales in float32.
void make_int_quantized(const fs::path& folder) {
  edit(folder / "model.safetensors", [](Tensors& tensors) {
    constexpr std::string_view kPacked = "_packed";
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors)
      if (name.ends_with(kPacked)) names.push_back(name.substr(0, name.size() - kPacked.size()));
    for (const std::string& name : names) unpack(tensors, name);
  });
  Json config = Json::parse(text_of(folder / "config.json"));
  Json& quantization = config["quantization_config"];
  quantization["format"] = quantization["config_groups"]["group_0"]["format"] = "int-quantized";
  write_text(folder / "config.json", to_text(config));
}

class QuantisedFiles : public testing::Test {
 protected:
  QuantisedFiles() : backend_(make_backend({.n_threads = 1})) {
    recipe_.config = tiny_config(Family::kLlama);
    recipe_.dtype = DType::kBf16;
  }
  fs::path random(const char* name) {
    write_random_model(folder_ / name, recipe_);
    return folder_ / name;
  }
  fs::path quantised(const char* name, DType to, bool with_lm_head = false) {
    const auto source = random((std::string(name) + "-source").c_str());
    quantize_model(source, folder_ / name, {.to = to, .with_lm_head = with_lm_head});
    return folder_ / name;
  }
  static std::string said(const std::function<void()>& call) {
    try {
      call();
      return "accepted";
    } catch (const FatalError& error) {
      return error.what();
    }
  }
  std::string load(const fs::path& path, WeightDType dtype = WeightDType::kAuto) {
    return said([&] { load_model(path, *backend_, {.dtype = dtype}); });
  }
  std::string quantise(const fs::path& from, const fs::path& to, DType dtype = DType::kI8) {
    return said([&] { quantize_model(from, to, {.to = dtype}); });
  }

  TempFolder folder_;
  RandomModelRecipe recipe_;
  std::unique_ptr<Backend> backend_;
};

TEST_F(QuantisedFiles, PackedRowsThatEndWithinAWordHaveTheCodesOfTheUnpacked) {
  for (std::int32_t n_ffn : {65, 66, 67, 68}) {
    SCOPED_TRACE(n_ffn);
    recipe_.config.n_ffn = n_ffn;
    const auto name = std::to_string(n_ffn);
    const auto own = quantised(name.c_str(), DType::kI8, true);
    const auto plain = folder_ / (name + "-plain"), packed = folder_ / (name + "-packed");
    fs::copy(own, plain);
    make_int_quantized(plain);
    fs::copy(plain, packed);
    edit(packed / "model.safetensors", [](Tensors& tensors) {
      std::vector<std::string> names;
      for (const auto& [n, tensor] : tensors)
        if (tensor.type == TensorType::kI8) names.push_back(n);
      for (const std::string& n : names) pack(tensors, n);
      Tensor& shape = tensors.at(std::string(kDown) + "_shape");  // others write 32 bits
      shape = {TensorType::kI32,
               {2},
               as_bytes(std::vector<std::int32_t>{64, [&] {
                                                    std::int64_t n = 0;
                                                    std::memcpy(&n, shape.bytes.data() + 8, 8);
                                                    return static_cast<std::int32_t>(n);
                                                  }()})};
      ASSERT_TRUE(tensors.contains("lm_head.weight_packed")) << "the head too";
    });
    auto one = load_model(plain, *backend_);
    const std::vector<TokenId> tokens{5, 9, 17, 33, 4, 8, 12, 99};
    for (const fs::path& path : {packed, own}) {
      auto two = load_model(path, *backend_);
      EXPECT_EQ(one->config().weight_types, two->config().weight_types);
      const LogitDifference d = compare_logits(*one, *two, *backend_, tokens);
      EXPECT_EQ(d.largest, 0);
      EXPECT_GT(d.rms_reference, 0.1);
      EXPECT_TRUE(weights_not_finite(path).empty());
    }
  }
}

// Transformers has a module lm_head also where the head is the embedding.
TEST_F(QuantisedFiles, ATiedHeadIsNotNamedAsQuantised) {
  recipe_.config.tie_word_embeddings = true;
  for (const DType to : {DType::kI8, DType::kI4}) {
    SCOPED_TRACE(dtype_name(to));
    const auto path = quantised(dtype_name(to), to, true);
    const Json config = Json::parse(text_of(path / "config.json"))["quantization_config"];
    EXPECT_EQ(config["ignore"], Json::array({"lm_head"}));
    for (const Json& group : config["config_groups"])
      EXPECT_THAT(group["targets"], testing::Not(testing::Contains("lm_head")));
    EXPECT_EQ(load(path), "accepted");
  }
}

// Other programs take them in that type: they compute with the same weights.
TEST_F(QuantisedFiles, ScalesAreOfTheSourcesTypeAndThoseOfFp8InFloat32) {
  for (const DType source : {DType::kF32, DType::kBf16, DType::kF16})
    for (const DType to : {DType::kI8, DType::kI4, DType::kF8E4M3}) {
      recipe_.dtype = source;
      const auto name = std::string(dtype_name(source)) + "-" + dtype_name(to);
      SCOPED_TRACE(name);
      const SafetensorsFile file(quantised(name.c_str(), to, true) / "model.safetensors");
      int n_scales = 0;
      for (const TensorInfo& info : file.tensors()) {
        if (!info.name.ends_with("_scale")) continue;
        ++n_scales;
        EXPECT_EQ(info.type, tensor_type(to == DType::kF8E4M3 ? DType::kF32 : source)) << info.name;
      }
      EXPECT_GE(n_scales, 8) << "of each linear";
    }
}

TEST_F(QuantisedFiles, PackedCodesOfAnotherShapeAreRefused) {
  recipe_.config.n_ffn = 66;
  const auto path = quantised("a", DType::kI8);
  const auto file = path / "model.safetensors";
  const std::string down = kDown, shape = down + "_shape";
  ASSERT_EQ(load(path), "accepted");
  const auto says = [&](std::vector<std::int64_t> numbers) {
    edit(file, [&](Tensors& tensors) { tensors.at(shape).bytes = as_bytes(numbers); });
    return load(path);
  };
  EXPECT_THAT(says({64, 65}), AllOf(HasSubstr(shape + " says [64, 65]"), HasSubstr("[64, 66]")));
  EXPECT_THAT(says({66, 64}), HasSubstr("says [66, 64]"));
  EXPECT_THAT(says({-64, 66}), HasSubstr("says [-64, 66]"));
  EXPECT_EQ(says({64, 66}), "accepted");
  edit(file, [&](Tensors& tensors) {
    tensors.at(shape) = {TensorType::kI64, {3}, as_bytes(std::vector<std::int64_t>{64, 66, 1})};
  });
  EXPECT_THAT(load(path), HasSubstr(shape + " has shape [3]"));
  edit(file, [&](Tensors& tensors) {
    tensors.erase(shape);
    Tensor& packed = tensors.at(down + "_packed");
    packed.shape[1] = 16;
    packed.bytes.resize(64 * 16 * 4);
  });
  EXPECT_THAT(load(path),
              AllOf(HasSubstr(down + "_packed has shape [64, 16]"), HasSubstr("implies [64, 17]")));
}

TEST_F(QuantisedFiles, ScalesAreOnePerRowOrOne) {
  const auto path = quantised("a", DType::kI8);
  const std::string scale = std::string(kDown) + "_scale";
  const auto with = [&](std::vector<std::int64_t> shape, std::size_t n, TensorType type) {
    edit(path / "model.safetensors", [&](Tensors& tensors) {
      tensors.at(scale) = {type, shape, std::vector<std::byte>(n * size_bytes(type))};
    });
    return load(path);
  };
  EXPECT_EQ(with({64}, 64, TensorType::kF32), "accepted");
  EXPECT_EQ(with({64, 1}, 64, TensorType::kBf16), "accepted");
  EXPECT_EQ(with({1}, 1, TensorType::kF16), "accepted");
  EXPECT_EQ(with({}, 1, TensorType::kF32), "accepted");
  EXPECT_THAT(with({64, 2}, 128, TensorType::kF32), HasSubstr(scale + " has shape [64, 2]"));
  EXPECT_THAT(with({63}, 63, TensorType::kF32), HasSubstr(scale + " has shape [63]"));
  EXPECT_THAT(with({1, 64}, 64, TensorType::kF32), HasSubstr(scale + " has shape [1, 64]"));
  EXPECT_THAT(with({64}, 64, TensorType::kI32), HasSubstr(scale + " has dtype I32"));
}

// Row 5 gets a scale of `value`, and one of its codes is the largest there is.
TEST_F(QuantisedFiles, ScalesThatMakeNoWeightsAreRefusedAndFoundByTheCheck) {
  for (DType to : {DType::kI8, DType::kF8E4M3}) {
    SCOPED_TRACE(dtype_name(to));
    const auto path = quantised(dtype_name(to), to);
    if (to == DType::kI8) make_int_quantized(path);
    const std::string scale = std::string(kDown) + "_scale";
    const auto row_5 = [&](float value) {
      edit(path / "model.safetensors", [&](Tensors& tensors) {
        std::memcpy(tensors.at(scale).bytes.data() + 5 * sizeof value, &value, sizeof value);
        const int largest = to == DType::kI8 ? 0x7f : 0xfe;
        tensors.at(kDown).bytes[5 * 160 + 7] = static_cast<std::byte>(largest);
      });
    };
    const auto expect = [&](const std::string& sentence) {
      std::vector<WeightDType> asked{WeightDType::kF32, WeightDType::kBf16, WeightDType::kF16,
                                     WeightDType::kI8};
      if (to == DType::kI8) asked.push_back(WeightDType::kAuto);
      for (WeightDType dtype : asked) EXPECT_THAT(load(path, dtype), HasSubstr(sentence));
      EXPECT_THAT(weights_not_finite(path), testing::ElementsAre(HasSubstr(sentence)));
    };
    row_5(std::nanf(""));
    expect(scale + " has a NaN at [5, 0]");
    row_5(std::numeric_limits<float>::infinity());
    expect(scale + " has an infinity at [5, 0]");
    row_5(-0.01f);
    expect(scale + " has a negative number at [5]");
    row_5(1e37f);  // 127 or 448 times it is beyond 3.4e38
    expect(std::string(kDown) + " is infinite in row 5");
    row_5(0.0f);
    EXPECT_EQ(load(path, WeightDType::kF32), "accepted") << "a row of zeros";
    EXPECT_TRUE(weights_not_finite(path).empty());
    row_5(7e35f);  // 3.1e38 is a float
    EXPECT_EQ(load(path, WeightDType::kF32), "accepted");
    EXPECT_TRUE(weights_not_finite(path).empty());
    EXPECT_THAT(load(path, WeightDType::kF16), HasSubstr("beyond the range of float16"));
  }
}

constexpr char kQuery[] = "model.layers.0.self_attn.q_proj.weight";

TEST_F(QuantisedFiles, ScalesOfFourBitsAreOnePerGroupAndNumbers) {
  const auto path = quantised("a", DType::kI4);
  const std::string scale = std::string(kQuery) + "_scale";
  const auto file = path / "model.safetensors";
  const auto groups = [&](std::int64_t n, TensorType type) {
    edit(file, [&](Tensors& tensors) {
      const std::int64_t n_out = tensors.at(scale).shape[0];
      tensors.at(scale) = {
          type,
          {n_out, n},
          std::vector<std::byte>(static_cast<std::size_t>(n_out * n) * size_bytes(type))};
    });
    return load(path);
  };
  EXPECT_THAT(groups(1, TensorType::kBf16),
              AllOf(HasSubstr(scale + " has shape"), HasSubstr(", 2]")));
  EXPECT_THAT(groups(2, TensorType::kI32), HasSubstr(scale + " has dtype I32"));
  EXPECT_EQ(groups(2, TensorType::kF16), "accepted");
  EXPECT_EQ(groups(2, TensorType::kF32), "accepted") << "groups of zeros";
  const auto at_5_1 = [&](float value) {
    edit(file, [&](Tensors& tensors) {
      std::memcpy(tensors.at(scale).bytes.data() + (5 * 2 + 1) * sizeof value, &value,
                  sizeof value);
    });
  };
  const auto expect = [&](const std::string& sentence) {
    for (WeightDType dtype :
         {WeightDType::kAuto, WeightDType::kF32, WeightDType::kI8, WeightDType::kI4})
      EXPECT_THAT(load(path, dtype), HasSubstr(sentence));
    EXPECT_THAT(weights_not_finite(path), testing::ElementsAre(HasSubstr(sentence)));
  };
  at_5_1(std::nanf(""));
  expect(scale + " has a NaN at [5, 1]");
  at_5_1(-1e36f);
  expect("has -1e+36 at [5, 1]: scales of 4-bit weights may be at most 1e35");
  at_5_1(-0.01f);
  EXPECT_EQ(load(path), "accepted") << "the largest of a group may be -8 times it";
}

TEST_F(QuantisedFiles, WhatFourBitsHaveBeyondOursIsRefusedByName) {
  const auto path = quantised("a", DType::kI4);
  const Json config = Json::parse(text_of(path / "config.json"));
  const auto with = [&](const char* key, const Json& value) {
    Json other = config;
    other["quantization_config"]["config_groups"]["group_0"]["weights"][key] = value;
    write_text(path / "config.json", to_text(other));
    return load(path);
  };
  EXPECT_THAT(with("group_size", 48), HasSubstr("weights.group_size is 48; supported: 32, 64 and"));
  EXPECT_THAT(with("group_size", -1), HasSubstr("weights.group_size is -1"));
  EXPECT_THAT(with("group_size", nullptr), HasSubstr("weights.group_size must be a whole number"));
  EXPECT_THAT(with("group_size", 64), HasSubstr("has shape"));
  EXPECT_THAT(with("symmetric", false),
              HasSubstr("no tensor model.layers.0.self_attn.q_proj.weight_zero_point; the config "
                        "implies one of shape"));
  EXPECT_THAT(with("symmetric", "no"), HasSubstr("weights.symmetric must be true or false"));
  EXPECT_THAT(with("actorder", "group"), HasSubstr("weights.actorder is \"group\""));
  EXPECT_THAT(with("type", "bool"), HasSubstr("weights.type is \"bool\"; supported for 4 bits"));
  EXPECT_THAT(with("type", "float"), HasSubstr("and its weights are floats of 4 bits"));
  EXPECT_THAT(with("strategy", "tensor_group"), HasSubstr("weights.strategy is \"tensor_group\""));
  EXPECT_THAT(with("num_bits", 3), HasSubstr("weights.num_bits is 3; supported: 4, 8"));
  EXPECT_EQ(with("actorder", "weight"), "accepted");
  write_text(path / "config.json", to_text(config));
  // What an order of columns would need: a place for each column.
  edit(path / "model.safetensors", [](Tensors& tensors) {
    tensors[std::string("model.layers.0.self_attn.q_proj.weight_g_idx")] = {
        TensorType::kI32, {64}, std::vector<std::byte>(256)};
  });
  EXPECT_THAT(load(path), AllOf(HasSubstr("weight_g_idx"), HasSubstr("has no place")));
}

TEST_F(QuantisedFiles, AStackOfFourAndEightBitsLoadsInOneType) {
  const auto path = quantised("a", DType::kI4);
  const auto other = quantised("b", DType::kI8);
  Tensors eight;
  edit(other / "model.safetensors", [&](Tensors& tensors) { eight = tensors; });
  edit(path / "model.safetensors", [&](Tensors& tensors) {
    for (const char* part : {"_packed", "_shape", "_scale"})
      tensors[std::string(kGate) + part] = eight.at(std::string(kGate) + part);
  });
  EXPECT_THAT(load(path), AllOf(HasSubstr("mlp.gate_proj is stored as int8"),
                                HasSubstr("mlp.up_proj as int4"), HasSubstr("model.dtype")));
  for (WeightDType dtype :
       {WeightDType::kF32, WeightDType::kBf16, WeightDType::kI8, WeightDType::kI4})
    EXPECT_EQ(load(path, dtype), "accepted");
}

TEST_F(QuantisedFiles, ALargeScaleOfPackedCodesIsJudgedByTheCodesNotByThePadding) {
  recipe_.config.n_ffn = 66;
  const auto path = quantised("a", DType::kI8);
  make_int_quantized(path);
  edit(path / "model.safetensors", [&](Tensors& tensors) {
    std::ranges::fill(tensors.at(kDown).bytes, std::byte{1});
    pack(tensors, kDown);
    const float large = 1e37f;  // times 1 it is a float, times the 77 of the padding it is not
    auto& scales = tensors.at(std::string(kDown) + "_scale").bytes;
    std::memcpy(scales.data() + sizeof large, &large, sizeof large);  // row 1
  });
  EXPECT_TRUE(weights_not_finite(path).empty());
  EXPECT_EQ(load(path, WeightDType::kF32), "accepted");
}

// 32-bit sums of products end at rows of 65536.
TEST_F(QuantisedFiles, RowsTooLongForInt8AreRefusedByName) {
  auto& c = recipe_.config;
  c.n_layers = 1, c.n_hidden = 16, c.n_heads = 2, c.n_kv_heads = 1, c.head_dim = 8;
  c.n_ffn = 70000;
  const auto too_long = AllOf(HasSubstr(std::string(kDown) + " has rows of 70000 elements"),
                              HasSubstr("at most 65536"), HasSubstr("model.safetensors"));
  const auto source = random("a");
  EXPECT_THAT(load(source, WeightDType::kI8), too_long);
  EXPECT_EQ(load(source), "accepted");
  EXPECT_THAT(quantise(source, folder_ / "int8"), too_long);
  EXPECT_FALSE(fs::exists(folder_ / "int8"));
  EXPECT_FALSE(fs::exists(folder_ / "int8.partial"));
  ASSERT_EQ(quantise(source, folder_ / "fp8", DType::kF8E4M3), "accepted");
  // The same bytes as int8, as another's quantiser could write them.
  edit(folder_ / "fp8" / "model.safetensors", [](Tensors& tensors) {
    for (auto& [name, tensor] : tensors)
      if (tensor.type == TensorType::kF8E4M3) tensor.type = TensorType::kI8;
  });
  std::string config = text_of(folder_ / "fp8" / "config.json");
  config.replace(config.find("\"float\""), 7, "\"int\"");
  write_text(folder_ / "fp8" / "config.json", config);
  EXPECT_THAT(load(folder_ / "fp8"), too_long);
  EXPECT_THAT(inspect_model(folder_ / "fp8").not_held[WeightDType::kAuto], too_long);
  EXPECT_EQ(load(folder_ / "fp8", WeightDType::kBf16), "accepted");
}

TEST_F(QuantisedFiles, AStackOfWhichHalfIsQuantisedLoadsInOneType) {
  const auto path = quantised("a", DType::kI8);
  make_int_quantized(path);
  edit(path / "model.safetensors", [](Tensors& tensors) {
    tensors.erase(std::string(kGate) + "_scale");
    tensors.at(kGate) = {TensorType::kBf16, {160, 64}, std::vector<std::byte>(160 * 64 * 2)};
  });
  const auto refused =
      AllOf(HasSubstr("mlp.gate_proj is stored as bfloat16"), HasSubstr("mlp.up_proj as int8"),
            HasSubstr("model.dtype"), HasSubstr("model.safetensors"));
  EXPECT_THAT(load(path), refused);
  EXPECT_THAT(inspect_model(path).not_held[WeightDType::kAuto], refused);
  for (WeightDType dtype : {WeightDType::kF32, WeightDType::kBf16, WeightDType::kI8})
    EXPECT_EQ(load(path, dtype), "accepted");
}

TEST_F(QuantisedFiles, ASingleShardBehindAnIndexKeepsItsIndex) {
  const auto source = random("a");
  fs::rename(source / "model.safetensors", source / "model-00001-of-00001.safetensors");
  std::map<std::string, std::string> places;
  {
    const SafetensorsFile file(source / "model-00001-of-00001.safetensors");
    for (const TensorInfo& info : file.tensors())
      places[info.name] = "model-00001-of-00001.safetensors";
  }
  write_safetensors_index(source, places, 0);
  ASSERT_EQ(load(source), "accepted");
  ASSERT_EQ(quantise(source, folder_ / "b"), "accepted");
  EXPECT_EQ(load(folder_ / "b"), "accepted");
  ASSERT_EQ(quantise(random("one"), folder_ / "c"), "accepted");
  EXPECT_FALSE(fs::exists(folder_ / "c" / "model.safetensors.index.json"));
}

TEST_F(QuantisedFiles, WhatFailsMidwayLeavesNothingAndCanBeTriedAgain) {
  recipe_.n_shards = 2;
  const auto source = random("a");
  const auto shard = source / "model-00002-of-00002.safetensors";
  const std::string good = text_of(shard);
  std::string bad = good;
  bad[bad.size() - 1] = '\x7f', bad[bad.size() - 2] = '\xc0';
  write_text(shard, bad);  // a NaN in what the second shard ends with: the head
  const auto with_head = [&] {
    return said([&] {
      quantize_model(source, folder_ / "b" / "", {.with_lm_head = true});  // "b/" is "b"
    });
  };
  EXPECT_THAT(with_head(), AllOf(HasSubstr("lm_head.weight"), HasSubstr("a NaN")));
  EXPECT_FALSE(fs::exists(folder_ / "b"));
  EXPECT_FALSE(fs::exists(folder_ / "b.partial"));
  write_text(shard, good);
  EXPECT_EQ(with_head(), "accepted");
  EXPECT_EQ(load(folder_ / "b"), "accepted");
  EXPECT_FALSE(fs::exists(folder_ / "b.partial"));
}

TEST_F(QuantisedFiles, APartialFolderThatWasThereIsNotTouched) {
  const auto source = random("a");
  fs::create_directory(folder_ / "b.partial");
  write_text(folder_ / "b.partial" / "notes", "mine");
  EXPECT_THAT(quantise(source, folder_ / "b"), HasSubstr("b.partial exists"));
  EXPECT_EQ(text_of(folder_ / "b.partial" / "notes"), "mine");
  EXPECT_FALSE(fs::exists(folder_ / "b"));
}

// Values a hand or a faulty writer could have put there.
Json another(const Json& value, std::mt19937& random) {
  const Json pool[] = {nullptr,
                       true,
                       false,
                       0,
                       1,
                       -1,
                       2,
                       3,
                       64,
                       65537,
                       2147483648LL,
                       -2147483649LL,
                       1LL << 62,
                       0.5,
                       -1e308,
                       1e308,
                       "",
                       "int",
                       "float",
                       "group",
                       "I8",
                       "F8_E4M3",
                       "BF16",
                       "F32",
                       "I64",
                       Json::array(),
                       Json::object(),
                       Json::array({1}),
                       Json::array({64, 64}),
                       Json::array({0, 1LL << 40}),
                       Json::array({-8, 8})};
  switch (random() % 4) {
    case 0:
      if (value.is_number_integer()) return value.get<std::int64_t>() + 1;
      break;
    case 1:
      if (value.is_number_integer()) return value.get<std::int64_t>() * 2;
      break;
    case 2:
      if (value.is_array() && !value.empty()) {
        Json shorter = value;
        shorter.erase(shorter.begin());
        return shorter;
      }
      break;
    default:
      break;
  }
  return pool[random() % std::size(pool)];
}

// One value, anywhere in the tree, is replaced, removed or given another's name.
void mutate(Json& root, std::mt19937& random) {
  Json* at = &root;
  while (at->is_structured() && !at->empty()) {
    auto child = at->begin();
    std::advance(child, static_cast<std::ptrdiff_t>(random() % at->size()));
    if (child->is_structured() && !child->empty() && random() % 5 != 0) {
      at = &*child;
      continue;
    }
    if (at->is_object() && random() % 4 == 0) {
      // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): erase() ends what it refers to
      const std::string key = child.key();
      const Json value = *child;
      at->erase(key);
      if (random() % 2 == 0) {
        const char* ends[] = {"_packed", "_shape", "_scale", "x"};
        (*at)[key + ends[random() % 4]] = value;
      }
      return;
    }
    *child = another(*child, random);
    return;
  }
}

std::string mutated(const std::string& text, std::mt19937& random) {
  if (random() % 4 == 0) {  // its letters
    std::string other = text;
    for (std::uint32_t i = 0; i <= random() % 3; ++i)
      other[random() % other.size()] = static_cast<char>(random() % 256);
    return other;
  }
  Json tree = Json::parse(text);
  for (std::uint32_t i = 0; i <= random() % 2; ++i) mutate(tree, random);
  return to_text(tree);
}

// Anything may be wrong with a folder from outside; nothing of it may end the process.
TEST_F(QuantisedFiles, MutatedHeadersAndConfigsLoadOrAreRefused) {
  constexpr unsigned kSeed = 20;
  constexpr int kMutations = 130;  // of each of thirteen folders
  std::mt19937 random(kSeed);
  int n_loaded = 0, n_refused = 0;
  const fs::path fixtures = fs::path(FORETOKEN_SOURCE_DIR) / "tests/fixtures";
  for (const char* name :
       {"quantized/int8_channel", "quantized/int8_w8a8", "quantized/fp8_channel",
        "quantized/fp8_tensor", "quantized/int4_group", "quantized/int4_channel",
        "quantized/int4_zeros", "quantized/gptq", "quantized/gptq_act_order", "quantized/awq",
        "quantized/mxfp4", "kv_scales/by_layer", "kv_scales/by_head"}) {
    const auto path = folder_ / fs::path(name).filename().string();
    fs::copy(fixtures / name, path);
    const std::string config = text_of(path / "config.json");
    const std::string weights = text_of(path / "model.safetensors");
    std::uint64_t n_header = 0;
    std::memcpy(&n_header, weights.data(), 8);
    for (int i = 0; i < kMutations; ++i) {
      SCOPED_TRACE(std::string(name) + ", seed " + std::to_string(kSeed) + ", mutation " +
                   std::to_string(i));
      if (i % 2 == 0) {
        write_text(path / "config.json", mutated(config, random));
      } else {
        write_text(path / "config.json", config);
        std::string header = mutated(weights.substr(8, n_header), random);
        header.resize((header.size() + 7) / 8 * 8, ' ');
        const std::uint64_t n = header.size();
        std::string file(8, '\0');
        std::memcpy(file.data(), &n, 8);
        write_text(path / "model.safetensors", file + header + weights.substr(8 + n_header));
      }
      const WeightDType asked[] = {WeightDType::kAuto, WeightDType::kF32, WeightDType::kBf16,
                                   WeightDType::kF16,  WeightDType::kI8,  WeightDType::kI4};
      const std::optional<DType> kv[] = {std::nullopt, DType::kF8E4M3};
      const LoadOptions options{.dtype = asked[random() % 6],
                                .kv_dtype = kv[random() % 2],
                                .max_rows = 8,
                                .most_model_len = 64,
                                .most_bytes = std::uint64_t{1} << 28};
      try {
        auto model = load_model(path, *backend_, options);
        std::vector<TokenId> tokens{0, 1};
        if (model->config().max_model_len < 2) tokens.pop_back();
        Runner(*model, *backend_, {.n_blocks = 4}).run(tokens, 8);
        ++n_loaded;
      } catch (const FatalError& error) {
        EXPECT_GT(std::strlen(error.what()), 20u);
        ++n_refused;
      }
      if (i % 2 == 1) write_text(path / "model.safetensors", weights);
    }
  }
  std::cout << n_loaded << " loaded, " << n_refused << " refused\n";
  EXPECT_GT(n_loaded, 50) << "most mutations should not be of the coarsest kind";
  EXPECT_GT(n_refused, 200);
}

}  // namespace
}  // namespace foretoken
