// Folders in four bits with zero points, and in the words of AutoGPTQ and AutoAWQ: as they are, and
// as they should not be. The goldens (quantized_test.cc) have the values.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "common/base/json.h"
#include "common/base/result.h"
#include "common/model/held_weights.h"
#include "common/model/load_model.h"
#include "common/model/logit_difference.h"
#include "common/model/pair.h"
#include "tests/model/edit_tensors.h"
#include "tests/model/int4_rows.h"
#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;
using test::as_bytes;
using test::edit;
using test::TempFolder;
using test::Tensor;
using test::Tensors;
using testing::AllOf;
using testing::HasSubstr;

const std::string kQueryModule = "model.layers.0.self_attn.q_proj";
const std::string kGateModule = "model.layers.0.mlp.gate_proj";
const std::vector<TokenId> kSomeTokens{5, 9, 17, 33, 4, 8, 12, 99};

class Int4Folders : public testing::Test {
 protected:
  Int4Folders() : backend_(make_backend({.n_threads = 1})) {}
  fs::path fixture(const char* name) {
    const fs::path path = folder_ / name;
    fs::copy(fs::path(FORETOKEN_SOURCE_DIR) / "tests/fixtures/quantized" / name, path);
    return path;
  }
  std::string load(const fs::path& path, WeightDType dtype = WeightDType::kAuto) {
    try {
      load_model(path, *backend_, {.dtype = dtype});
      return "accepted";
    } catch (const FatalError& error) {
      return error.what();
    }
  }
  static void edit_tensors(const fs::path& path, const std::function<void(Tensors&)>& change) {
    edit(path / "model.safetensors", change);
  }
  static void edit_config(const fs::path& path, const std::function<void(Json&)>& change) {
    std::ifstream in(path / "config.json", std::ios::binary);
    Json config = Json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
    in.close();
    change(config["quantization_config"]);
    std::ofstream(path / "config.json", std::ios::binary | std::ios::trunc) << to_text(config);
  }
  // With one key of quantization_config another.
  std::string load_with(const char* name, const char* key, const Json& value) {
    const fs::path path = fixture(name);
    edit_config(path, [&](Json& config) { config[key] = value; });
    std::string said = load(path);
    fs::remove_all(path);
    return said;
  }
  // Every entry is refused as stored and widened, and named by the check.
  void expect_refused(const fs::path& path, const std::string& sentence) {
    for (const WeightDType dtype : {WeightDType::kAuto, WeightDType::kF32, WeightDType::kI8})
      EXPECT_THAT(load(path, dtype), HasSubstr(sentence));
    EXPECT_THAT(weights_not_finite(path), testing::ElementsAre(HasSubstr(sentence)));
  }
  double largest_difference(const fs::path& one, const fs::path& other) {
    const auto first = load_model(one, *backend_), second = load_model(other, *backend_);
    const LogitDifference d = compare_logits(*first, *second, *backend_, kSomeTokens);
    EXPECT_GT(d.rms_reference, 0.1);
    return d.largest;
  }

  TempFolder folder_;
  std::unique_ptr<Backend> backend_;
};

void add_to_words(Tensor& tensor, std::uint32_t more) {
  for (std::size_t i = 0; i < tensor.bytes.size(); i += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, tensor.bytes.data() + i, sizeof word);
    word += more;
    std::memcpy(tensor.bytes.data() + i, &word, sizeof word);
  }
}

void set_word(Tensor& tensor, std::size_t i, std::uint32_t word) {
  std::memcpy(tensor.bytes.data() + 4 * i, &word, sizeof word);
}

// Zero points of 8 are the symmetric weights: the same sums, to the last bit.
TEST_F(Int4Folders, ZeroPointsOf8GiveTheBitsOfSymmetricWeights) {
  const fs::path symmetric = fixture("int4_group"), zeros = folder_ / "zeros";
  fs::copy(symmetric, zeros);
  edit_config(zeros, [](Json& config) {
    config["config_groups"]["group_0"]["weights"]["symmetric"] = false;
  });
  edit_tensors(zeros, [](Tensors& tensors) {
    std::vector<std::pair<std::string, std::vector<std::int64_t>>> scales;
    for (const auto& [name, tensor] : tensors)
      if (name.ends_with(".weight_scale")) scales.emplace_back(name, tensor.shape);
    for (const auto& [name, shape] : scales) {
      const std::int64_t n_words = (shape[0] + 7) / 8 * shape[1];
      tensors[name.substr(0, name.size() - 5) + "zero_point"] = {
          TensorType::kI32,
          {(shape[0] + 7) / 8, shape[1]},
          as_bytes(std::vector<std::uint32_t>(static_cast<std::size_t>(n_words), 0x88888888u))};
    }
  });
  EXPECT_EQ(largest_difference(symmetric, zeros), 0);
}

TEST_F(Int4Folders, ZeroPointsMayBeBytesAsOlderWritersHaveThem) {
  const fs::path words = fixture("int4_zeros"), bytes = folder_ / "bytes";
  fs::copy(words, bytes);
  edit_tensors(bytes, [](Tensors& tensors) {
    for (auto& [name, tensor] : tensors) {
      if (!name.ends_with("_zero_point")) continue;
      const std::int64_t n_groups = tensor.shape[1];
      const std::int64_t n_out = tensors.at(name.substr(0, name.size() - 10) + "scale").shape[0];
      std::vector<std::int8_t> zeros;
      for (std::int64_t row = 0; row < n_out; ++row)
        for (std::int64_t g = 0; g < n_groups; ++g) {
          const auto at = static_cast<std::size_t>(row / 8 * n_groups + g);
          std::uint32_t word = 0;
          std::memcpy(&word, tensor.bytes.data() + 4 * at, sizeof word);
          zeros.push_back(
              static_cast<std::int8_t>(static_cast<int>(word >> 4 * (row % 8) & 15u) - 8));
        }
      tensor = {TensorType::kI8, {n_out, n_groups}, as_bytes(zeros)};
    }
  });
  EXPECT_EQ(largest_difference(words, bytes), 0);
  edit_tensors(bytes, [](Tensors& tensors) {
    tensors.at(kQueryModule + ".weight_zero_point").bytes[7] = std::byte{8};
  });
  expect_refused(
      bytes, kQueryModule + ".weight_zero_point has a zero point of 16 for output 2 in group 1");
}

TEST_F(Int4Folders, TheSecondFormatOfGptqHasZeroPointsAsTheyAre) {
  const fs::path first = fixture("gptq"), second = folder_ / "second";
  fs::copy(first, second);
  edit_config(second, [](Json& config) { config["checkpoint_format"] = "gptq_v2"; });
  EXPECT_GT(largest_difference(first, second), 0.1) << "zero points are read as if they were so";
  edit_tensors(second, [](Tensors& tensors) {
    for (auto& [name, tensor] : tensors)
      if (name.ends_with(".qzeros")) add_to_words(tensor, 0x11111111u);
  });
  EXPECT_EQ(largest_difference(first, second), 0);
}

// Where GPTQ's sym is true, no line of zero points is read in every product.
TEST_F(Int4Folders, SymmetricGptqIsHeldWithoutZeroPoints) {
  const fs::path path = fixture("gptq");
  edit_config(path, [](Json& config) { config["sym"] = true; });
  edit_tensors(path, [](Tensors& tensors) {
    for (auto& [name, tensor] : tensors)
      if (name.ends_with(".qzeros"))
        for (std::size_t i = 0; i < tensor.bytes.size() / 4; ++i) set_word(tensor, i, 0x77777777u);
  });
  EXPECT_EQ(load_model(path, *backend_)->config().weight_types, "float16 2, int4/64 14");
  edit_tensors(path, [](Tensors& tensors) {
    set_word(tensors.at(kQueryModule + ".qzeros"), 1, 0x77777577u);  // outputs 8 to 15 of group 0
  });
  expect_refused(path, kQueryModule +
                           ".qzeros has a zero point of 6 for output 10 in group 0: "
                           "sym is true, and then all are 8");
}

TEST_F(Int4Folders, GroupsOfColumnsAreNumbersOfGroups) {
  const fs::path path = fixture("gptq_act_order");
  EXPECT_THAT(load(path, WeightDType::kI4), HasSubstr("groups whose columns do not follow"));
  EXPECT_THAT(inspect_model(path).not_held[WeightDType::kAuto],
              HasSubstr("groups whose columns do not follow one another"));
  EXPECT_EQ(load(path, WeightDType::kBf16), "accepted");
  edit_tensors(path, [](Tensors& tensors) { set_word(tensors.at(kQueryModule + ".g_idx"), 5, 2); });
  EXPECT_THAT(load(path, WeightDType::kBf16),
              HasSubstr(kQueryModule + ".g_idx has 2 at [5]: there are groups 0 to 1"));
  edit_tensors(path,
               [](Tensors& tensors) { set_word(tensors.at(kQueryModule + ".g_idx"), 5, ~0u); });
  EXPECT_THAT(weights_not_finite(path), testing::ElementsAre(HasSubstr(".g_idx has -1 at [5]")));
}

TEST_F(Int4Folders, GptqNeedsNoGroupsOfColumnsThatAreInOrder) {
  const fs::path with = fixture("gptq"), without = folder_ / "without";
  fs::copy(with, without);
  edit_tensors(without, [](Tensors& tensors) {
    std::erase_if(tensors, [](const auto& entry) { return entry.first.ends_with(".g_idx"); });
  });
  EXPECT_EQ(largest_difference(with, without), 0);
}

// AutoGPTQ makes a bias for every linear: of one without a bias it is zeros, else it would be lost.
TEST_F(Int4Folders, ABiasOfZerosChangesNothingAndAnotherIsRefused) {
  const fs::path path = fixture("gptq");
  edit_tensors(path, [](Tensors& tensors) {
    ASSERT_TRUE(tensors.contains(kGateModule + ".bias")) << "the fixture has them";
    tensors.at(kGateModule + ".bias").bytes[9] = std::byte{0x30};
  });
  EXPECT_THAT(load(path), AllOf(HasSubstr(kGateModule + ".bias"), HasSubstr("has no place")));
}

TEST_F(Int4Folders, BrokenTensorsAreNamedWithWhatIsExpected) {
  const auto with = [&](const char* name, const std::function<void(Tensors&)>& change) {
    const fs::path path = fixture(name);
    edit_tensors(path, change);
    std::string said = load(path);
    fs::remove_all(path);
    return said;
  };
  const auto without = [&](const char* name, const std::string& tensor) {
    return with(name, [&](Tensors& tensors) { tensors.erase(tensor); });
  };
  const auto of_type = [&](const char* name, const std::string& tensor, TensorType type) {
    return with(name, [&](Tensors& tensors) {
      Tensor& found = tensors.at(tensor);
      std::int64_t n = 1;
      for (const std::int64_t dimension : found.shape) n *= dimension;
      found = {type, found.shape,
               std::vector<std::byte>(static_cast<std::size_t>(n) * size_bytes(type))};
    });
  };
  const auto shorter = [&](const char* name, const std::string& tensor) {
    return with(name, [&](Tensors& tensors) {
      Tensor& found = tensors.at(tensor);
      const auto row = found.bytes.size() / static_cast<std::size_t>(found.shape[0]);
      --found.shape[0];
      found.bytes.resize(found.bytes.size() - row);
    });
  };
  for (const char* name : {"gptq", "awq"}) {
    SCOPED_TRACE(name);
    for (const char* part : {".qzeros", ".scales"}) {
      EXPECT_THAT(without(name, kQueryModule + part),
                  HasSubstr("no tensor " + kQueryModule + part + "; the"));
      EXPECT_THAT(shorter(name, kQueryModule + part),
                  AllOf(HasSubstr(kQueryModule + part + " has shape ["),
                        HasSubstr("the config implies [")));
    }
    EXPECT_THAT(without(name, kQueryModule + ".qweight"),
                HasSubstr("no tensor " + kQueryModule + ".qweight; the"));
    EXPECT_THAT(shorter(name, kQueryModule + ".qweight"), HasSubstr(".qweight has shape ["));
    EXPECT_THAT(of_type(name, kQueryModule + ".qzeros", TensorType::kI64),
                HasSubstr(kQueryModule + ".qzeros has dtype I64; supported here: I32"));
    EXPECT_THAT(of_type(name, kQueryModule + ".scales", TensorType::kI32),
                HasSubstr(kQueryModule + ".scales has dtype I32; supported here: F32, BF16, F16"));
  }
  EXPECT_THAT(shorter("gptq", kQueryModule + ".g_idx"), HasSubstr(".g_idx has shape [127]"));
  const std::string zeros = kQueryModule + ".weight_zero_point";
  EXPECT_THAT(without("int4_zeros", zeros),
              HasSubstr("no tensor " + zeros + "; the config implies"));
  EXPECT_THAT(shorter("int4_zeros", zeros), HasSubstr(zeros + " has shape [11, 3]"));
  EXPECT_THAT(of_type("int4_zeros", zeros, TensorType::kU8), HasSubstr(zeros + " has dtype U8"));
  EXPECT_THAT(of_type("int4_zeros", zeros, TensorType::kI8), HasSubstr("implies [96, 3]"));
  const std::string codes = kQueryModule + ".weight_packed",
                    exponents = kQueryModule + ".weight_scale";
  EXPECT_THAT(without("mxfp4", codes),
              HasSubstr("has " + exponents + ", and the folder has no tensor " + codes));
  EXPECT_THAT(without("int4_zeros", codes), HasSubstr("no tensor " + codes));
  EXPECT_THAT(without("mxfp4", exponents), HasSubstr("no tensor " + exponents + "; the"));
  EXPECT_THAT(shorter("mxfp4", codes), HasSubstr(codes + " has shape [95, 48]"));
  EXPECT_THAT(shorter("mxfp4", exponents), HasSubstr(exponents + " has shape [95, 3]"));
  EXPECT_THAT(of_type("mxfp4", exponents, TensorType::kI8),
              HasSubstr(exponents + " has dtype I8; supported here: U8"));
}

TEST_F(Int4Folders, ScalesThatAreNoNumbersAreFoundWhereTheyLie) {
  const fs::path path = fixture("awq");
  const auto at = [&](std::uint16_t half) {  // group 2, output 5
    edit_tensors(path, [&](Tensors& tensors) {
      Tensor& scales = tensors.at(kQueryModule + ".scales");
      std::memcpy(scales.bytes.data() + 2 * static_cast<std::size_t>(2 * scales.shape[1] + 5),
                  &half, 2);
    });
  };
  at(0x7e00);
  expect_refused(path, kQueryModule + ".scales has a NaN at [2, 5]");
  at(0xfc00);
  expect_refused(path, kQueryModule + ".scales has an infinity at [2, 5]");
  at(0);
  EXPECT_EQ(load(path), "accepted") << "a group of zeros";
}

// Of MXFP4 a byte for each 32 weights, 2^(byte - 127).
TEST_F(Int4Folders, ExponentsOfFloatsThatAreNoScalesAreFoundWhereTheyLie) {
  const fs::path path = fixture("mxfp4");
  const std::string exponents = kQueryModule + ".weight_scale";
  const auto at = [&](int exponent) {  // output 5, group 2
    edit_tensors(path, [&](Tensors& tensors) {
      Tensor& scales = tensors.at(exponents);
      scales.bytes[static_cast<std::size_t>(5 * scales.shape[1] + 2)] =
          static_cast<std::byte>(exponent);
    });
  };
  at(255);
  expect_refused(path, exponents + " has 255 at [5, 2], a NaN: exponents of 4-bit floats");
  at(244);
  expect_refused(path, exponents + " has 244 at [5, 2], the scale 2^117: exponents of 4-bit");
  for (const int exponent : {0, 243}) {
    at(exponent);
    EXPECT_EQ(load(path), "accepted") << exponent;
  }
}

// Weights as their definition has them: the float of the code times 2^(byte - 127).
TEST_F(Int4Folders, FloatsWidenToTheirValues) {
  const fs::path path = fixture("mxfp4"), widened = folder_ / "widened";
  fs::copy(path, widened);
  edit_config(widened, [](Json& config) { config = nullptr; });
  edit_tensors(widened, [](Tensors& tensors) {
    Tensors floats;
    for (const auto& [name, tensor] : tensors) {
      if (name.ends_with("_scale")) continue;
      if (!name.ends_with("_packed")) {
        floats[name] = tensor;
        continue;
      }
      const std::string weight = name.substr(0, name.size() - 7);
      const Tensor& exponents = tensors.at(weight + "_scale");
      std::vector<float> values;
      for (std::size_t i = 0; i < 2 * tensor.bytes.size(); ++i) {
        const int two = std::to_integer<int>(tensor.bytes[i / 2]);
        values.push_back(std::ldexp(static_cast<float>(test::twice_e2m1(two >> i % 2 * 4 & 15)),
                                    std::to_integer<int>(exponents.bytes[i / 32]) - 128));
      }
      floats[weight] = {TensorType::kF32, {tensor.shape[0], 2 * tensor.shape[1]}, as_bytes(values)};
    }
    tensors = std::move(floats);
  });
  const LoadOptions options{.dtype = WeightDType::kF32};
  const auto first = load_model(path, *backend_, options),
             second = load_model(widened, *backend_, options);
  EXPECT_EQ(compare_logits(*first, *second, *backend_, kSomeTokens).largest, 0);
}

TEST_F(Int4Folders, FloatsOfOtherKindsAreRefusedByName) {
  const auto with = [&](const char* key, const Json& value) {
    const fs::path path = fixture("mxfp4");
    edit_config(path,
                [&](Json& config) { config["config_groups"]["group_0"]["weights"][key] = value; });
    std::string said = load(path);
    fs::remove_all(path);
    return said;
  };
  EXPECT_THAT(with("strategy", "tensor_group"),
              HasSubstr("weights.strategy is \"tensor_group\"; supported for floats of 4 bits: "
                        "group (MXFP4)"));
  EXPECT_THAT(with("group_size", 16), HasSubstr("weights.group_size is 16; supported for floats"));
  EXPECT_THAT(with("group_size", nullptr), HasSubstr("weights.group_size must be a whole number"));
  EXPECT_THAT(with("symmetric", false), HasSubstr("weights.symmetric is false; supported for fl"));
  EXPECT_THAT(with("scale_dtype", "torch.float8_e4m3fn"),
              HasSubstr("weights.scale_dtype is \"torch.float8_e4m3fn\"; supported for floats"));
  EXPECT_THAT(with("type", "int"), HasSubstr("and its weights are no floats of 4 bits"));
  EXPECT_THAT(with("type", "complex"), HasSubstr("supported for 4 bits: int, float"));
  EXPECT_THAT(with("actorder", "group"), HasSubstr("weights.actorder is \"group\"; supported"));
  EXPECT_EQ(with("actorder", "static"), "accepted");
  EXPECT_THAT(load_with("mxfp4", "format", "nvfp4-pack-quantized"),
              HasSubstr("format is \"nvfp4-pack-quantized\"; supported"));
}

// Beside the format of the whole a group may have its own; null is none.
TEST_F(Int4Folders, TheFormatOfAGroupIsRead) {
  const auto with = [&](const char* name, const Json& format) {
    const fs::path path = fixture(name);
    edit_config(path, [&](Json& config) { config["config_groups"]["group_0"]["format"] = format; });
    std::string said = load(path);
    fs::remove_all(path);
    return said;
  };
  EXPECT_EQ(with("mxfp4", nullptr), "accepted");
  EXPECT_EQ(with("mxfp4", "mxfp4-pack-quantized"), "accepted");
  EXPECT_EQ(with("int4_zeros", "pack-quantized"), "accepted");
  EXPECT_THAT(with("mxfp4", "nvfp4-pack-quantized"),
              HasSubstr("config_groups.group_0.format is \"nvfp4-pack-quantized\"; supported"));
  EXPECT_THAT(with("mxfp4", "pack-quantized"),
              HasSubstr("group_0.format is \"pack-quantized\", and its weights are floats of 4"));
  EXPECT_THAT(with("int4_zeros", "mxfp4-pack-quantized"),
              HasSubstr("group_0.format is \"mxfp4-pack-quantized\", and its weights are no fl"));
  EXPECT_THAT(with("int4_zeros", "marlin-24"), HasSubstr("group_0.format is \"marlin-24\""));
}

// Beside floats of four bits, what is quantised while loading becomes such, too.
TEST_F(Int4Folders, MatricesLeftInSixteenBitsBecomeFloatsOfFourBitsIfInt4IsAskedFor) {
  const fs::path path = fixture("mxfp4");
  edit_tensors(path, [](Tensors& tensors) {
    const Tensor gone = tensors.at(kGateModule + ".weight_packed");
    tensors.erase(kGateModule + ".weight_packed");
    tensors.erase(kGateModule + ".weight_scale");
    const std::vector<std::uint16_t> ones(2 * gone.bytes.size(), 0x3c00);
    tensors[kGateModule + ".weight"] = {
        TensorType::kF16, {gone.shape[0], 2 * gone.shape[1]}, as_bytes(ones)};
  });
  EXPECT_THAT(load(path), HasSubstr("matrices that share their input must be quantised alike"));
  EXPECT_EQ(load_model(path, *backend_, {.dtype = WeightDType::kI4})->config().weight_types,
            "e2m1/32 14, int8 2");
}

// AutoGPTQ and AutoAWQ wrote no quantization_config at first.
TEST_F(Int4Folders, SettingsInAFileOfTheirOwnAreThoseOfTheConfig) {
  struct Case {
    const char *name, *file;
    std::map<std::string, std::string> own_names;
  };
  const Case cases[] = {
      {"gptq", "quantize_config.json", {}},
      {"awq", "quant_config.json", {{"bits", "w_bit"}, {"group_size", "q_group_size"}}},
      {"awq", "quantize_config.json", {{"bits", "w_bit"}, {"group_size", "q_group_size"}}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.name) + " " + c.file);
    const fs::path with = fixture(c.name), apart = folder_ / "apart";
    fs::copy(with, apart);
    Json settings;
    edit_config(apart, [&](Json& config) { settings = std::exchange(config, nullptr); });
    EXPECT_THAT(load(apart), AllOf(HasSubstr("self_attn.q_proj.qweight has packed codes"),
                                   HasSubstr("nor quantize_config.json or quant_config.json")));
    settings.erase("quant_method");
    for (const auto& [common, own] : c.own_names) {
      settings[own] = settings[common];
      settings.erase(common);
    }
    const auto write = [&] { std::ofstream(apart / c.file) << to_text(settings); };
    write();
    EXPECT_EQ(largest_difference(with, apart), 0);
    settings[c.own_names.empty() ? "group_size" : c.own_names.at("group_size")] = 48;
    write();
    EXPECT_THAT(load(apart), HasSubstr(std::string(c.file) + ": group_size is 48; supported"));
    std::ofstream(apart / c.file) << "[]";
    EXPECT_THAT(load(apart), HasSubstr(std::string(c.file) + ": must be a JSON object"));
    fs::remove_all(apart);
    fs::remove_all(with);
  }
}

// What AutoGPTQ's save_quantized() leaves: settings with all its fields, and a file named for them.
TEST_F(Int4Folders, AFolderOfAutoGptqLoadsAsItIsWritten) {
  const fs::path with = fixture("gptq"), apart = folder_ / "apart";
  fs::create_directory(apart);
  fs::copy_file(with / "config.json", apart / "config.json");
  fs::copy_file(with / "model.safetensors", apart / "gptq_model-4bit-64g.safetensors");
  edit_config(apart, [](Json& config) { config = nullptr; });
  std::ofstream(apart / "quantize_config.json")
      << R"({"bits": 4, "group_size": 64, "damp_percent": 0.01, "desc_act": false,
             "static_groups": false, "sym": false, "true_sequential": true,
             "model_name_or_path": null, "model_file_base_name": null})";
  EXPECT_EQ(largest_difference(with, apart), 0);
  fs::copy_file(with / "model.safetensors", apart / "second.safetensors");
  EXPECT_THAT(load(apart), HasSubstr("nor exactly one safetensors file of another name"));
}

TEST_F(Int4Folders, SettingsWithoutAProductAreRefusedByName) {
  EXPECT_THAT(load_with("gptq", "bits", 3),
              HasSubstr("quantization_config.bits is 3; supported: 4"));
  EXPECT_THAT(load_with("gptq", "bits", nullptr), HasSubstr("bits is missing"));
  EXPECT_THAT(load_with("gptq", "group_size", 48),
              HasSubstr("group_size is 48; supported: 32, 64"));
  EXPECT_THAT(load_with("gptq", "group_size", "all"), HasSubstr("group_size must be a whole"));
  EXPECT_THAT(load_with("gptq", "group_size", -1),
              AllOf(HasSubstr("qzeros has shape [2, 16]"), HasSubstr("implies [1, 16]")));
  EXPECT_THAT(load_with("gptq", "checkpoint_format", "marlin"),
              HasSubstr("checkpoint_format is \"marlin\"; supported: gptq, gptq_v2"));
  EXPECT_THAT(load_with("gptq", "is_marlin_format", true), HasSubstr("is_marlin_format is true"));
  EXPECT_THAT(load_with("gptq", "pack_dtype", "int16"), HasSubstr("pack_dtype is \"int16\""));
  EXPECT_THAT(load_with("gptq", "sym", 1), HasSubstr("sym must be true or false"));
  EXPECT_THAT(load_with("gptq", "dynamic", Json{{"+:.*down.*", {{"bits", 8}}}}),
              HasSubstr("dynamic gives \"+:.*down.*\" settings of its own"));
  EXPECT_THAT(load_with("gptq", "dynamic", "some"), HasSubstr("dynamic must be an object"));
  EXPECT_EQ(load_with("gptq", "dynamic", Json{{"-:lm_head", Json::object()}}), "accepted");
  EXPECT_EQ(load_with("gptq", "format", "gptq"), "accepted");
  EXPECT_THAT(load_with("awq", "version", "gemv"),
              HasSubstr("version is \"gemv\"; supported: gemm"));
  EXPECT_EQ(load_with("awq", "version", "GEMM"), "accepted");
  EXPECT_THAT(load_with("awq", "zero_point", false), HasSubstr("zero_point is false"));
  EXPECT_THAT(load_with("awq", "bits", 8), HasSubstr("bits is 8"));
  EXPECT_THAT(load_with("awq", "quant_method", "bitsandbytes"),
              HasSubstr("supported: compressed-tensors with weights of 8 or 4 bits, gptq and awq"));
  EXPECT_THAT(load_with("awq", "quant_method", "compressed-tensors"),
              HasSubstr("nothing says how they are packed"));
}

// What stays in 16 bits is quantised on request, with zero points as its neighbours have.
TEST_F(Int4Folders, ModulesThatWereLeftAloneLoadAsTheyAre) {
  const fs::path path = fixture("awq");
  edit_tensors(path, [](Tensors& tensors) {
    const std::int64_t n_in = tensors.at(kGateModule + ".qweight").shape[0],
                       n_out = tensors.at(kGateModule + ".scales").shape[1];
    for (const char* part : {".qweight", ".qzeros", ".scales"}) tensors.erase(kGateModule + part);
    const std::vector<std::uint16_t> halves(static_cast<std::size_t>(n_out * n_in), 0x2c00);
    tensors[kGateModule + ".weight"] = {TensorType::kF16, {n_out, n_in}, as_bytes(halves)};
  });
  EXPECT_THAT(load(path), AllOf(HasSubstr("mlp.gate_proj is stored as float16"),
                                HasSubstr("mlp.up_proj as int4")));
  EXPECT_EQ(load_model(path, *backend_, {.dtype = WeightDType::kI4})->config().weight_types,
            "int4z/32 14, int8 1");
  EXPECT_EQ(load(path, WeightDType::kBf16), "accepted");
}

// What is said without a load is what a load makes.
TEST_F(Int4Folders, TheTypesHeldAreKnownBeforeALoad) {
  for (const char* name : {"gptq", "awq", "int4_zeros", "int4_group", "int8_channel"})
    for (const WeightDType dtype : kWeightDTypes) {
      SCOPED_TRACE(std::string(name) + " " + std::string(weight_dtype_name(dtype)));
      const fs::path path = fixture(name);
      const ModelInfo info = inspect_model(path);
      EXPECT_THAT(info.not_held, testing::IsEmpty());
      EXPECT_EQ(held_types(info.config, info.stored, dtype, info.checkpoint_dtype),
                load_model(path, *backend_, {.dtype = dtype})->config().weight_types);
      fs::remove_all(path);
    }
}

// Of AutoGPTQ's desc_act: every dtype but those that keep the codes.
TEST_F(Int4Folders, GroupsOutOfOrderAreHeldWidenedOnly) {
  const fs::path path = fixture("gptq_act_order");
  const ModelInfo info = inspect_model(path);
  EXPECT_TRUE(info.has_groups_out_of_order);
  EXPECT_FALSE(inspect_model(fixture("gptq")).has_groups_out_of_order);
  for (const WeightDType dtype : kWeightDTypes) {
    SCOPED_TRACE(weight_dtype_name(dtype));
    const bool keeps_codes = dtype == WeightDType::kAuto || dtype == WeightDType::kI4;
    EXPECT_EQ(info.not_held.contains(dtype), keeps_codes);
    EXPECT_EQ(load(path, dtype), keeps_codes ? info.not_held.at(dtype) : "accepted");
  }
}

TEST_F(Int4Folders, TheEstimateCountsZeroPoints) {
  const ModelInfo zeros = inspect_model(fixture("int4_zeros")),
                  symmetric = inspect_model(fixture("int4_group"));
  std::uint64_t n_groups = 0;  // of the linears of llama3 in groups of 32
  for (const auto& [n_out, n_in] : {std::pair{96u, 96u},
                                    {48u, 96u},
                                    {48u, 96u},
                                    {96u, 96u},
                                    {224u, 96u},
                                    {224u, 96u},
                                    {96u, 224u}})
    n_groups += 2u * n_out * n_in / 32u;
  EXPECT_EQ(estimate_memory(zeros, {}).weight_bytes - estimate_memory(symmetric, {}).weight_bytes,
            n_groups);
}

}  // namespace
}  // namespace foretoken
