// A line of a batch: what it asks the router for.
#include "services/cli/batch_line.h"

#include <gtest/gtest.h>

#include <string>

namespace foretoken::cli {
namespace {

std::uint64_t seed_of_line(const std::string& members, const Json& flags) {
  const std::string line =
      R"({"url": "/v1/completions", "body": {"prompt": "hi", "n": 2)" + members + "}}";
  const BatchLine batch(line, RequestId{.high = 1, .low = 77}, flags);
  EXPECT_TRUE(batch.requests().ok());
  if (!batch.requests().ok()) return 0;
  EXPECT_EQ(batch.requests()->size(), 2U);
  EXPECT_EQ(batch.requests()->front().params.seed, batch.requests()->back().params.seed);
  return batch.requests()->front().params.seed;
}

// A batch that is run again asks for the same answers, also where its lines were written for
// another server.
TEST(BatchLine, WithoutASeedOrWithMinusOneItHasThatOfItsText) {
  EXPECT_EQ(seed_of_line("", Json::object()), 77U);
  EXPECT_EQ(seed_of_line(R"(, "seed": null)", Json::object()), 77U);
  EXPECT_EQ(seed_of_line(R"(, "seed": -1)", Json::object()), 77U);
  EXPECT_EQ(seed_of_line(R"(, "seed": -1)", {{"seed", 5}}), 5U);
  EXPECT_EQ(seed_of_line(R"(, "seed": 6)", {{"seed", 5}}), 6U);
  EXPECT_EQ(seed_of_line(R"(, "seed": -2)", Json::object()), static_cast<std::uint64_t>(-2));
}

// Tables that are written as JSON have nulls in their empty cells.
TEST(BatchLine, ANullLeavesTheFlagAndTheSeedOfTheText) {
  const RequestId id{.high = 1, .low = 77};
  const std::string line = R"({"prompt": "hi", "custom_id": null, "seed": null, "max_tokens": null,
                               "temperature": null, "top_k": null, "url": null, "body": null,
                               "stream": null, "op": null, "request_id": null})";
  const BatchLine batch(line, id, {{"max_tokens", 5}, {"temperature", 0.25}});
  ASSERT_TRUE(batch.requests().ok()) << batch.requests().error().message;
  const SamplingParams& params = batch.requests()->front().params;
  EXPECT_EQ(params.seed, 77U);
  EXPECT_EQ(params.max_tokens, 5U);
  EXPECT_EQ(params.temperature, 0.25F);
  EXPECT_TRUE(batch.requests()->front().given.contains("seed"));

  const BatchLine seeded(line, id, {{"seed", 5}});
  ASSERT_TRUE(seeded.requests().ok());
  EXPECT_EQ(seeded.requests()->front().params.seed, 5U);

  const BatchLine misspelt(R"({"prompt": "hi", "max_tokns": null})", id, Json::object());
  EXPECT_FALSE(misspelt.requests().ok());
}

}  // namespace
}  // namespace foretoken::cli
