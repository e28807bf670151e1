#include "common/memory_log/log_folder.h"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <algorithm>
#include <csignal>
#include <fstream>
#include <vector>

#include "tests/memory_log/written_texts.h"
#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

using Records = std::vector<WrittenRecord>;

class LogFolderTest : public testing::Test {
 protected:
  LogFolderOptions options() const {
    return {.folder = folder_.path() / "memory",
            .vocabulary = 5,
            .n_ids = kWrittenIds,
            .max_tokens = 1 << 20,
            .max_tenant_tokens = 1 << 20};
  }
  LogFolder opened(const LogFolderOptions& options) {
    auto folder = LogFolder::open(options);
    EXPECT_TRUE(folder.ok()) << folder.error().message;
    return std::move(*folder);
  }
  LogReport read_back(LogFolder& log, Records* records = nullptr) {
    auto report = log.read_back([&](std::uint64_t salt, const LogRecord& record) {
      if (records != nullptr)
        records->push_back({salt, record.document, {record.tokens.begin(), record.tokens.end()}});
    });
    EXPECT_TRUE(report.ok()) << report.error().message;
    return *report;
  }
  static void append(LogFolder& log, const WrittenRecord& record) {
    const auto written = log.append(record.salt, {record.document, record.tokens});
    ASSERT_TRUE(written.ok()) << written.error().message;
  }
  static void append(LogFolder& log, std::uint64_t begin, std::uint64_t end, std::uint64_t salt) {
    for (std::uint64_t number = begin; number < end; ++number) {
      WrittenRecord record = written_record(number);
      record.salt = salt;
      append(log, record);
    }
  }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(folder_.path() / "memory"))
      if (entry.path().extension() == ".log") paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end(),
              [](const auto& a, const auto& b) { return a.filename() < b.filename(); });
    return paths;
  }

  test::TempFolder folder_;
};

TEST_F(LogFolderTest, ReadsBackWhatIsInTheFilesOfEachTenant) {
  Records written;
  {
    LogFolder log = opened(options());
    for (std::uint64_t number = 0; number < 300; ++number) {
      written.push_back(written_record(number));
      append(log, written.back());
    }
  }
  EXPECT_EQ(files().size(), 3u);
  LogFolder log = opened(options());
  Records found;
  const LogReport report = read_back(log, &found);
  EXPECT_EQ(report.n_files, 3u);
  EXPECT_EQ(report.n_torn + report.n_damaged, 0u);
  const auto by_salt = [](const auto& a, const auto& b) { return a.salt < b.salt; };
  std::stable_sort(written.begin(), written.end(), by_salt);
  std::stable_sort(found.begin(), found.end(), by_salt);
  EXPECT_EQ(found, written);
}

TEST_F(LogFolderTest, GoesOnInTheNewestFileOfATenant) {
  for (int run = 0; run < 3; ++run) {
    LogFolder log = opened(options());
    read_back(log);
    append(log, 0, 10, 1);
  }
  EXPECT_EQ(files().size(), 1u);
  LogFolder log = opened(options());
  Records found;
  read_back(log, &found);
  EXPECT_EQ(found.size(), 30u);
}

TEST_F(LogFolderTest, DeletesTheOldestFileOfATenantWithMoreThanItsLimit) {
  LogFolderOptions limited = options();
  limited.file_tokens = 100;
  limited.max_tenant_tokens = 300;
  LogFolder log = opened(limited);
  append(log, 0, 30, 2);
  append(log, 0, 2000, 1);
  EXPECT_LE(files().size(), 6u);
  LogFolder again = opened({.folder = folder_.path() / "other", .n_ids = 1});  // not the same lock
  EXPECT_GE(log.n_tokens(), 300u);
  EXPECT_LE(log.n_tokens(), 300u + 2 * 112 + 200);  // the other tenant's stay
}

TEST_F(LogFolderTest, DeletesTheOldestFileOfAllWithMoreThanTheLimit) {
  LogFolderOptions limited = options();
  limited.file_tokens = 100;
  limited.max_tokens = 500;
  Records found;
  {
    LogFolder log = opened(limited);
    append(log, 0, 20, 2);
    append(log, 0, 500, 1);
    EXPECT_LE(log.n_tokens(), 500u);
  }
  LogFolder log = opened(limited);
  read_back(log, &found);
  for (const WrittenRecord& record : found) EXPECT_EQ(record.salt, 1u);
  append(log, 0, 1, 2);  // begins anew
}

// With the shares of the shipped limits, a quarter for a tenant and an eighth of it for a file,
// four tenants that are above their own limits by a part of a file exceed the limit of all.
TEST_F(LogFolderTest, DeletesNothingOfATenantWithinItsLimitWhileOthersAreAboveTheirs) {
  LogFolderOptions limited = options();
  limited.max_tokens = 8 * 32'768;
  limited.max_tenant_tokens = 2 * 32'768;
  {
    LogFolder log = opened(limited);
    append(log, 0, 20, 9);
    for (std::uint64_t number = 0; number < 16'000; number += 100)
      for (std::uint64_t salt = 1; salt <= 4; ++salt) append(log, number, number + 100, salt);
    EXPECT_LE(log.n_tokens(), limited.max_tokens);
    EXPECT_GE(log.n_files(), 4 * 7u);
  }
  Records found;
  LogFolder log = opened(limited);
  read_back(log, &found);
  EXPECT_EQ(std::count_if(found.begin(), found.end(), [](const auto& r) { return r.salt == 9; }),
            20);
}

TEST_F(LogFolderTest, DeletesOnlyCutHeadersOfItsOwn) {
  std::filesystem::path tenant;
  {
    LogFolder log = opened(options());
    append(log, 0, 10, 1);
    tenant = files().at(0).parent_path();
  }
  const std::string header = log_header({.vocabulary = 5, .salt = 1});
  const auto put = [](const std::filesystem::path& path, std::string_view bytes) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  };
  const auto cut = put(tenant / "0002.log", header.substr(0, 31));
  const auto empty = put(tenant / "0003.log", "");
  const auto foreign = put(tenant / "0004.log", "20 bytes of a diary.");
  const auto other_vocabulary =
      put(tenant / "0005.log", log_header({.vocabulary = 6, .salt = 1}).substr(0, 20));
  const auto beside = put(tenant.parent_path() / "7.log", "");
  const auto elsewhere = put(tenant.parent_path() / "service" / "8.log", "started");
  const auto deeper = put(tenant / "old" / "9.log", "");
  LogFolder log = opened(options());
  const LogReport report = read_back(log);
  EXPECT_EQ(report.n_torn, 2u);
  EXPECT_EQ(report.foreign,
            (std::vector<std::string>{foreign.string(), other_vocabulary.string()}));
  for (const auto& path : {cut, empty}) EXPECT_FALSE(std::filesystem::exists(path)) << path;
  for (const auto& path : {foreign, other_vocabulary, beside, elsewhere, deeper})
    EXPECT_TRUE(std::filesystem::exists(path)) << path;
}

TEST_F(LogFolderTest, SetsTheModeOfFoldersThatItMakesOnly) {
  using std::filesystem::perms;
  const auto mode_of = [](const std::filesystem::path& path) {
    return std::filesystem::status(path).permissions();
  };
  LogFolderOptions shared = options();
  {
    LogFolder log = opened(shared);
    EXPECT_EQ(mode_of(shared.folder), perms::owner_all);
    EXPECT_FALSE(read_back(log).others_can_read);
  }
  std::filesystem::permissions(shared.folder, perms(0755));
  LogFolder log = opened(shared);
  EXPECT_TRUE(read_back(log).others_can_read);
  append(log, 0, 10, 1);
  EXPECT_EQ(mode_of(shared.folder), perms(0755));
  EXPECT_EQ(mode_of(files().at(0).parent_path()), perms::owner_all);
}

TEST_F(LogFolderTest, CutsATornTailAndADamagedFileAtTheFirstBadRecord) {
  {
    LogFolder log = opened(options());
    append(log, 0, 100, 1);
    append(log, 0, 100, 2);
  }
  const auto paths = files();
  ASSERT_EQ(paths.size(), 2u);
  std::filesystem::resize_file(paths[0], std::filesystem::file_size(paths[0]) - 1);
  const auto middle = static_cast<std::streamoff>(std::filesystem::file_size(paths[1]) / 2);
  std::fstream damaged(paths[1], std::ios::in | std::ios::out | std::ios::binary);
  damaged.seekp(middle);
  damaged.write("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8);
  damaged.close();
  Records found;
  {
    LogFolder log = opened(options());
    const LogReport report = read_back(log, &found);
    EXPECT_EQ(report.n_torn, 1u);
    EXPECT_EQ(report.n_damaged, 1u);
    EXPECT_EQ(report.cut, std::vector<std::string>{paths[1].string()});
    EXPECT_GT(found.size(), 120u);
    EXPECT_LT(found.size(), 199u);
    append(log, 0, 5, 1);
    append(log, 0, 5, 2);
  }
  LogFolder log = opened(options());
  Records again;
  const LogReport report = read_back(log, &again);
  EXPECT_EQ(report.n_torn + report.n_damaged, 0u);
  EXPECT_EQ(again.size(), found.size() + 10);
}

TEST_F(LogFolderTest, LeavesFilesOfAnotherVocabularyAndNamesThem) {
  {
    LogFolder log = opened(options());
    append(log, 0, 10, 1);
  }
  const auto paths = files();
  LogFolderOptions other = options();
  other.vocabulary = 6;
  {
    LogFolder log = opened(other);
    Records found;
    const LogReport report = read_back(log, &found);
    EXPECT_TRUE(found.empty());
    EXPECT_EQ(report.foreign, std::vector<std::string>{paths[0].string()});
    append(log, 0, 10, 1);
  }
  EXPECT_EQ(files().size(), 2u);
  LogFolder log = opened(options());
  EXPECT_EQ(read_back(log).n_files, 1u);
}

TEST_F(LogFolderTest, RefusesAFolderThatAnotherProcessHas) {
  LogFolder log = opened(options());
  const auto second = LogFolder::open(options());
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("another process has this log"), std::string::npos);
}

TEST_F(LogFolderTest, SaysWhyAFolderCannotBeMade) {
  std::ofstream(folder_.path() / "file") << "";
  const auto folder = folder_.path() / "file" / "memory";
  const auto log = LogFolder::open({.folder = folder});
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.error().message, folder.string() + " cannot be made: Not a directory");
}

TEST_F(LogFolderTest, SaysWhyAndLeavesTheFileWholeWhereTheDiskIsFull) {
  Records written;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  {
    LogFolder log = opened(options());
    rlimit limit = before;
    limit.rlim_cur = 5000;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (std::uint64_t number = 0;; ++number) {
      WrittenRecord record = written_record(number);
      record.salt = 1;
      const auto result = log.append(1, {record.document, record.tokens});
      if (!result.ok()) {
        EXPECT_NE(result.error().message.find(".log cannot be written: "), std::string::npos);
        break;
      }
      written.push_back(record);
      ASSERT_LT(number, 1000u);
    }
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  }
  std::signal(SIGXFSZ, old);
  LogFolder log = opened(options());
  Records found;
  EXPECT_EQ(read_back(log, &found).n_torn, 0u);
  EXPECT_EQ(found, written);
}

}  // namespace
}  // namespace foretoken
