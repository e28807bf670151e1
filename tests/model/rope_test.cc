// Angles against tests/fixtures/models/rope.json, which the reference implementation made
// (make_goldens.py).
#include "common/model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/model/safetensors.h"

namespace foretoken {
namespace {

RopeSpec spec_of(const Json& p) {
  RopeSpec spec;
  for (RopeType type : {RopeType::kDefault, RopeType::kLinear, RopeType::kLlama3, RopeType::kYarn})
    if (rope_type_name(type) == p.at("rope_type").get<std::string>()) spec.type = type;
  spec.theta = p.at("rope_theta");
  spec.factor = p.value("factor", 1.0);
  spec.low_freq_factor = p.value("low_freq_factor", 1.0);
  spec.high_freq_factor = p.value("high_freq_factor", 4.0);
  spec.original_max_position_embeddings = p.value("original_max_position_embeddings", 0);
  spec.beta_fast = p.value("beta_fast", 32.0);
  spec.beta_slow = p.value("beta_slow", 1.0);
  if (p.contains("attention_factor")) spec.attention_factor = p["attention_factor"].get<double>();
  spec.mscale = p.value("mscale", 0.0);
  spec.mscale_all_dim = p.value("mscale_all_dim", 0.0);
  spec.truncate = p.value("truncate", true);
  return spec;
}

TEST(Rope, MatchesTheReferenceForEveryType) {
  const auto path = std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/fixtures/models/rope.json";
  const auto fixtures = parse_json(value_or_throw(read_text_file(path, 1 << 20)));
  ASSERT_TRUE(fixtures.ok());
  ASSERT_GE(fixtures->size(), 12u);
  for (const Json& fixture : *fixtures) {
    SCOPED_TRACE(to_text(fixture["rope_parameters"]));
    const RopeSpec spec = spec_of(fixture["rope_parameters"]);
    const auto frequencies = rope_inverse_frequencies(spec, fixture["head_dim"]);
    const auto expected = fixture["inv_freq"].get<std::vector<double>>();
    ASSERT_EQ(frequencies.size(), expected.size());
    // The reference computes in float32: a power, a division and a blend, each within an ulp or
    // two.
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(frequencies[i] / expected[i], 1.0, 8 * 0x1p-23) << i;
    EXPECT_NEAR(rope_attention_factor(spec), fixture["attention_factor"].get<double>(), 1e-12);
  }
}

TEST(Rope, TablesHoldCosineAndSineOfEachPosition) {
  const RopeSpec spec{.type = RopeType::kYarn, .factor = 4, .original_max_position_embeddings = 32};
  const RopeTables tables = make_rope_tables(spec, 16, 50);
  const auto frequencies = rope_inverse_frequencies(spec, 16);
  const double factor = rope_attention_factor(spec);
  EXPECT_GT(factor, 1.1);
  ASSERT_EQ(tables.cos.size(), 50u * 8u);
  for (std::size_t position : {0u, 1u, 17u, 49u}) {
    for (std::size_t i = 0; i < 8; ++i) {
      const double angle = static_cast<double>(position) * frequencies[i];
      EXPECT_FLOAT_EQ(tables.cos[position * 8 + i], static_cast<float>(factor * std::cos(angle)));
      EXPECT_FLOAT_EQ(tables.sin[position * 8 + i], static_cast<float>(factor * std::sin(angle)));
    }
  }
}

}  // namespace
}  // namespace foretoken
