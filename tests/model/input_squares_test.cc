// What the linears of a model are given, against the reference's own (make_input_squares.py).
#include "common/model/input_squares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "common/model/hf_folder.h"
#include "common/model/safetensors.h"
#include "kernels/include/backend.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;

const fs::path kFixtures = fs::path(FORETOKEN_SOURCE_DIR) / "tests/fixtures";

template <class T>
std::vector<T> values_of(const SafetensorsFile& file, const TensorInfo& info) {
  std::vector<T> values(info.n_elements());
  std::memcpy(values.data(), file.bytes(info).data(), values.size() * sizeof(T));
  return values;
}

// As golden_test.cc has it for logits, of inputs in float32: six deviations of the roundings on the
// way, twice that in a square; unit of size is the largest of the columns.
double bound(const ModelConfig& config, float largest) {
  const double epsilon =
      0x1p-24 * std::sqrt(static_cast<double>(std::max(config.n_hidden, config.n_ffn)));
  return 2 * 6 * 2 * epsilon * std::sqrt(10.0 * config.n_layers + 2) * static_cast<double>(largest);
}

class InputSquaresOf : public testing::TestWithParam<const char*> {};

TEST_P(InputSquaresOf, AreThoseOfTheReference) {
  const SafetensorsFile golden(kFixtures / "input_squares" /
                               (GetParam() + std::string(".safetensors")));
  std::vector<TokenId> tokens;
  for (const TensorInfo& info : golden.tensors())
    if (info.name == "tokens") tokens = values_of<TokenId>(golden, info);
  const ModelConfig config = read_model_config(kFixtures / "models" / GetParam());
  const auto backend = make_backend({.n_threads = 1});
  const InputSquares got = mean_squared_inputs(kFixtures / "models" / GetParam(), *backend, tokens);
  EXPECT_EQ(got.size() + 1, golden.tensors().size());
  for (const TensorInfo& info : golden.tensors()) {
    if (info.name == "tokens") continue;
    SCOPED_TRACE(info.name);
    const auto expected = values_of<float>(golden, info);
    const auto found = got.find(info.name);
    ASSERT_NE(found, got.end());
    ASSERT_EQ(found->second.size(), expected.size());
    const double limit = bound(config, *std::ranges::max_element(expected));
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(static_cast<double>(found->second[i]), static_cast<double>(expected[i]), limit)
          << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, InputSquaresOf, testing::Values("qwen2", "qwen3_yarn"));

}  // namespace
}  // namespace foretoken
