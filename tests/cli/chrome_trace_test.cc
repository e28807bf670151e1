// Passes of services, said once or twice, as a trace.
#include "services/cli/chrome_trace.h"

#include <gmock/gmock.h>

#include <utility>

#include "common/base/json.h"

namespace foretoken::cli {
namespace {

// Passes `first` to `first + n - 1`, one each 100 us until `now_us`, each of 50 us.
wire::ServicePasses passes(const std::string& role,
                           std::uint64_t now_us,
                           std::uint64_t first,
                           std::uint32_t n) {
  wire::Passes all{.now_us = now_us, .first = first};
  for (std::uint32_t i = 0; i < n; ++i) {
    all.ago_us.push_back((n - i) * 100);
    all.wait_us.push_back(i % 2 == 0 ? 0 : 20);
    all.compute_us.push_back(50);
    all.commit_us.push_back(5);
    all.sequences.push_back(1);
    all.rows.push_back(4);
    all.drafted.push_back(i % 2 == 0 ? 0 : 3);
    all.accepted.push_back(0);
    all.tokens.push_back(static_cast<std::uint32_t>(first) + i);
  }
  return {.role = role, .name = role + "-0", .model = "m", .passes = std::move(all)};
}

constexpr std::uint64_t kAll = 60'000'000;  // of the record: longer ago than any pass

std::vector<std::uint32_t> numbers(const PassRecord& record) {
  std::vector<std::uint32_t> tokens;
  for (const auto& pass : record.services().at("target-0").passes) tokens.push_back(pass.tokens);
  return tokens;
}

TEST(PassRecords, HaveEachPassOnce) {
  PassRecord record;
  record.add({passes("target", 1'000'000, 10, 3)}, kAll);
  record.add({passes("target", 1'000'200, 11, 4)}, kAll);
  EXPECT_EQ((std::vector<std::uint32_t>{10, 11, 12, 13, 14}), numbers(record));
  EXPECT_EQ(0u, record.services().at("target-0").n_lost);
}

TEST(PassRecords, CountWhatWasForgottenInBetween) {
  PassRecord record;
  record.add({passes("target", 1'000'000, 10, 3)}, kAll);
  record.add({passes("target", 1'001'000, 20, 2)}, kAll);
  EXPECT_EQ((std::vector<std::uint32_t>{10, 11, 12, 20, 21}), numbers(record));
  EXPECT_EQ(7u, record.services().at("target-0").n_lost);
}

TEST(PassRecords, BeginWhenTheyAreTold) {
  PassRecord record;
  const auto first = passes("target", 1'000'000, 10, 3);
  record.add({first}, 150);  // the last of them is 100 us old, the one before 200
  EXPECT_EQ((std::vector<std::uint32_t>{12}), numbers(record));
  record.add({passes("target", 1'000'200, 12, 3)}, 350);
  EXPECT_EQ((std::vector<std::uint32_t>{12, 13, 14}), numbers(record));
}

TEST(PassRecords, LeaveOutWhatAServiceDidBeforeThatComesLater) {
  PassRecord record;
  record.add({passes("draft", 1'000'000, 0, 3)}, 0);
  // By the clock of a host of its own; the record is 250 us old, and so are the last two passes.
  record.add({passes("draft", 1'000'250, 2, 3), passes("target", 77'000'000, 5, 4)}, 250);
  EXPECT_EQ((std::vector<std::uint32_t>{7, 8}), numbers(record));
}

TEST(PassRecords, GoOnWithAServiceThatWasStartedAgain) {
  PassRecord record;
  record.add({passes("target", 1'000'000, 10, 3)}, kAll);
  record.add({passes("target", 2'000'000, 0, 2)}, kAll);
  EXPECT_EQ((std::vector<std::uint32_t>{10, 11, 12, 0, 1}), numbers(record));
}

TEST(PassRecords, TakeOfUnequalListsWhatAllHave) {
  PassRecord record;
  auto broken = passes("target", 1'000'000, 0, 3);
  broken.passes.rows.pop_back();
  record.add({broken}, kAll);
  EXPECT_EQ(2u, numbers(record).size());
}

TEST(ChromeTraces, AreSlicesOfEachService) {
  PassRecord record;
  record.add({passes("target", 1'000'000, 0, 2), passes("draft", 1'000'000, 0, 2)}, kAll);
  const auto json = parse_json(chrome_trace(record));
  ASSERT_TRUE(json.ok());
  std::vector<std::string> slices;
  for (const Json& event : (*json)["traceEvents"]) {
    if (event["ph"] != "X") continue;
    slices.push_back(
        event["name"].get<std::string>() + " " + std::to_string(event["pid"].get<int>()) + " " +
        std::to_string(event["ts"].get<int>()) + "+" + std::to_string(event["dur"].get<int>()));
  }
  EXPECT_EQ((std::vector<std::string>{"prefill 1 0+50", "propose 1 100+50",  //
                                      "prefill 2 0+50", "commit 2 50+5", "wait 2 80+20",
                                      "verify 2 100+50", "commit 2 150+5"}),
            slices);
  EXPECT_EQ("draft-0 (m)", (*json)["traceEvents"][0]["args"]["name"].get<std::string>());
}

TEST(ChromeTraces, WithoutPassesAreEmptyAndValid) {
  const auto json = parse_json(chrome_trace(PassRecord()));
  ASSERT_TRUE(json.ok());
  EXPECT_TRUE((*json)["traceEvents"].empty());
}

}  // namespace
}  // namespace foretoken::cli
