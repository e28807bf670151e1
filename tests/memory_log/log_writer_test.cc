#include "common/memory_log/log_writer.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

LogFolderOptions options_in(const test::TempFolder& folder) {
  return {.folder = folder.path(),
          .vocabulary = 5,
          .n_ids = 10,
          .max_tokens = 1 << 20,
          .max_tenant_tokens = 1 << 20};
}

std::uint64_t tokens_in(const test::TempFolder& folder) {
  auto log = LogFolder::open(options_in(folder));
  EXPECT_TRUE(log.ok());
  const auto report = log->read_back([](std::uint64_t, const LogRecord&) {});
  EXPECT_TRUE(report.ok());
  return report->n_tokens;
}

TEST(LogWriter, WritesAllThatWaitsBeforeItEnds) {
  const test::TempFolder folder;
  {
    auto log = LogFolder::open(options_in(folder));
    ASSERT_TRUE(log.ok());
    LogWriter writer(std::move(*log));
    const std::vector<TokenId> tokens(100'000, 3);  // more than a record has
    writer.append(1, {.document = 1, .tokens = tokens});
    writer.append(1, {.document = 1, .tokens = {}});
    EXPECT_EQ(writer.why_off(), "");
  }
  EXPECT_EQ(tokens_in(folder), 100'000u);
}

TEST(LogWriter, StopsForGoodWhereMoreWaitsThanItsLimit) {
  const test::TempFolder folder;
  {
    auto log = LogFolder::open(options_in(folder));
    ASSERT_TRUE(log.ok());
    LogWriter writer(std::move(*log));
    const std::vector<TokenId> tokens(LogWriter::kMaxWaitingTokens + 1, 3);
    writer.append(1, {.document = 1, .tokens = tokens});
    EXPECT_EQ(writer.why_off(), "the disk is too slow: 4194304 tokens wait for it");
    writer.append(1, {.document = 2, .tokens = std::vector<TokenId>{1, 2}});
  }
  EXPECT_EQ(tokens_in(folder), 0u);
}

}  // namespace
}  // namespace foretoken
