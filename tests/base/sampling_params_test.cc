#include "common/base/sampling_params.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace foretoken {
namespace {

using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNaN = std::nanf("");

TEST(SamplingParams, DefaultsAreGood) { EXPECT_TRUE(validate({}, 100).ok()); }

struct Bound {
  const char* field;
  float SamplingParams::*member;
  std::vector<float> good, bad;
  const char* limit;  // as the message says it
};

const Bound kBounds[] = {
    {"temperature", &SamplingParams::temperature, {0, 1, 100}, {-0.001f, 100.1f}, "100"},
    {"top_p", &SamplingParams::top_p, {1e-6f, 1}, {0, -1, 1.001f}, "at most 1"},
    {"min_p", &SamplingParams::min_p, {0, 0.999f}, {-0.1f, 1}, "below 1"},
    {"repetition_penalty",
     &SamplingParams::repetition_penalty,
     {0.01f, 1, 100},
     {0, -0.0f, -1, 100.1f},
     "above 0 and at most 100"},
    {"presence_penalty", &SamplingParams::presence_penalty, {-2, 2}, {-2.1f, 2.1f}, "from -2 to 2"},
    {"frequency_penalty",
     &SamplingParams::frequency_penalty,
     {-2, 2},
     {-2.1f, 2.1f},
     "from -2 to 2"},
};

TEST(SamplingParams, EveryNumberHasBoundsThatItsRefusalNames) {
  for (const Bound& bound : kBounds) {
    SCOPED_TRACE(bound.field);
    SamplingParams params;
    for (const float value : bound.good) {
      params.*bound.member = value;
      EXPECT_TRUE(validate(params, 0).ok()) << value;
    }
    std::vector<float> bad = bound.bad;
    bad.insert(bad.end(), {kNaN, -kNaN, kInfinity, -kInfinity});
    for (const float value : bad) {
      params.*bound.member = value;
      const auto checked = validate(params, 0);
      ASSERT_FALSE(checked.ok()) << value;
      EXPECT_EQ(checked.error().code, ErrorCode::kInvalidValue);
      EXPECT_EQ(checked.error().param, bound.field);
      EXPECT_THAT(checked.error().message,
                  testing::AllOf(HasSubstr(bound.field), HasSubstr(bound.limit)));
    }
  }
}

TEST(SamplingParams, BiasesAreBoundedAndOfKnownTokens) {
  EXPECT_TRUE(validate({.logit_bias = {{0, -100.0f}, {99, 100.0f}}}, 100).ok());
  for (const float bias : {-100.1f, 100.1f, kNaN, kInfinity, -kInfinity})
    EXPECT_FALSE(validate({.logit_bias = {{0, bias}}}, 100).ok()) << bias;
  for (const TokenId id : {-1, 100})
    EXPECT_FALSE(validate({.logit_bias = {{id, 1.0f}}}, 100).ok()) << id;
}

TEST(SamplingParams, AnAnswerHasRoomForItsLeast) {
  EXPECT_TRUE(validate({.max_tokens = 5, .min_tokens = 5}, 0).ok());
  EXPECT_FALSE(validate({.max_tokens = 5, .min_tokens = 6}, 0).ok());
  EXPECT_FALSE(validate({.max_tokens = 0}, 0).ok());
  EXPECT_FALSE(validate({.max_tokens = 0, .n_logprobs = 2}, 0).ok());
  EXPECT_TRUE(validate({.max_tokens = 0, .n_prompt_logprobs = 0}, 0).ok());
}

TEST(SamplingParams, AConstraintHasALimitInBytes) {
  SamplingParams params;
  params.regex = std::string(kMaxConstraintBytes, 'a');
  EXPECT_TRUE(validate(params, 0).ok());
  params.regex += 'a';
  const auto checked = validate(params, 0);
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.error().param, "regex");
  EXPECT_EQ(checked.error().message, "regex is 65537 bytes; it must be at most 65536 bytes");
}

TEST(SamplingParams, AnAnswerIsHeldToOneConstraint) {
  for (const auto& [first, second] :
       {std::pair{&SamplingParams::json_schema, &SamplingParams::regex},
        std::pair{&SamplingParams::regex, &SamplingParams::gbnf},
        std::pair{&SamplingParams::json_schema, &SamplingParams::gbnf}}) {
    SamplingParams params;
    params.*first = "{}";
    EXPECT_TRUE(validate(params, 0).ok());
    params.*second = "x";
    const auto checked = validate(params, 0);
    ASSERT_FALSE(checked.ok());
    EXPECT_EQ(checked.error().param, second == &SamplingParams::regex ? "regex" : "gbnf");
    EXPECT_THAT(checked.error().message, HasSubstr("one of json_schema, regex and gbnf"));
    EXPECT_THAT(checked.error().message,
                HasSubstr(first == &SamplingParams::regex ? "regex" : "json_schema"));
  }
}

}  // namespace
}  // namespace foretoken
