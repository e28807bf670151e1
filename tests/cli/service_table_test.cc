#include "services/cli/service_table.h"

#include <gmock/gmock.h>

#include "services/cli/text_width.h"

namespace foretoken::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

wire::StatusReply a_system() {
  wire::StatusReply status{.ready = true, .requests_active = 1, .requests_total = 20};
  status.services.push_back({.role = "router", .name = "router-0", .state = "ready", .pid = 7});
  status.services.push_back({.role = "target",
                             .name = "target-0",
                             .state = "ready",
                             .model = "demo",
                             .pid = 9,
                             .uptime_s = 3725,
                             .rss_bytes = std::uint64_t{3} << 20,
                             .kv_blocks_total = 4,
                             .kv_blocks_free = 3,
                             .tokens_total = 1000,
                             .drafted_total = 100,
                             .accepted_total = 85,
                             .note = "given up",
                             .links = "draft-0 shared_memory",
                             .device = "cuda:0",
                             .dtype = "bfloat16",
                             .proposer = "draft",
                             .draft_len = 8});
  return status;
}

TEST(ServiceTable, CellsOfAColumnBeginBelowOneAnother) {
  const auto lines = service_table(a_system(), {}, Rates::kLeftOut);
  ASSERT_EQ(3u, lines.size());
  for (const auto& [heading, cell] : {std::pair("DEVICE", "cuda:0"), std::pair("TYPE", "bfloat16"),
                                      std::pair("PROPOSER", "draft "), std::pair("KV FREE", "75 %"),
                                      std::pair("ACCEPTED", "85 %"), std::pair("UPTIME", "1h 2m"),
                                      std::pair("NOTE", "given up; draft-0 shared_memory")})
    EXPECT_EQ(lines[0].find(heading), lines[2].find(cell)) << heading;
  EXPECT_EQ('8', lines[2][lines[0].find(" K ") + 1]);
  EXPECT_THAT(lines[0], Not(HasSubstr("TOK/S")));
}

TEST(ServiceTable, ColumnsAreAsWideAsTheyAreShown) {
  auto status = a_system();
  status.services[0].model = "plain";
  status.services[1].model = "déjà-漢字";  // 9 columns, 15 bytes
  const auto lines = service_table(status, {}, Rates::kLeftOut);
  const auto before = [](const std::string& line, const std::string& what) {
    return width_of(line.substr(0, line.find(what)));
  };
  EXPECT_EQ(before(lines[0], "DEVICE"), before(lines[0], "MODEL") + 9 + 2);
  EXPECT_EQ(before(lines[0], "DEVICE"), before(lines[2], "cuda:0"));
  EXPECT_EQ(lines[0].find("DEVICE"), lines[1].find("- ", lines[1].find("plain")));
}

TEST(ServiceTable, AServiceWithoutAModelHasDashes) {
  const auto lines = service_table(a_system(), {}, Rates::kShown);
  for (const char* heading : {"MODEL", "DEVICE", "TYPE", "PROPOSER", "TOK/S"})
    EXPECT_EQ('-', lines[1][lines[0].find(heading)]) << heading;
}

TEST(ServiceTable, ATargetThatDoesNotGuessHasNoK) {
  auto status = a_system();
  status.services[1].proposer = "none";
  const auto lines = service_table(status, {}, Rates::kLeftOut);
  EXPECT_EQ('-', lines[2][lines[0].find(" K ") + 1]);
}

TEST(ServiceTable, RatesAreTokensBetweenTwoLooksByTheirTime) {
  auto now = a_system();
  now.services[1].tokens_total = 1450;
  const auto rates = token_rates(a_system(), now, 1.5);
  EXPECT_EQ((TokenRates{{"router-0", 0}, {"target-0", 300}}), rates);
  const auto lines = service_table(now, rates, Rates::kShown);
  EXPECT_THAT(lines[2].substr(lines[0].find("TOK/S")), StartsWith("300 "));
}

TEST(ServiceTable, AServiceThatWasStartedAgainHasNoRateYet) {
  auto again = a_system();
  again.services[1].pid = 10;
  EXPECT_FALSE(token_rates(a_system(), again, 1).contains("target-0"));
  auto reset = a_system();
  reset.services[1].tokens_total = 3;
  EXPECT_FALSE(token_rates(a_system(), reset, 1).contains("target-0"));
  EXPECT_TRUE(token_rates(a_system(), a_system(), 0).empty());
}

TEST(ServiceTable, ASummaryCountsRequests) {
  EXPECT_EQ("ready, 1 active of 20 requests", summary_of(a_system()));
}

}  // namespace
}  // namespace foretoken::cli
