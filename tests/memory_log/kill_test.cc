// A process that appends to a log is killed at any moment: what it said to have written is there,
// and a memory that reads it back answers as one that was given the same texts.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/memory/tenant_memories.h"
#include "common/memory_log/log_folder.h"
#include "tests/memory_log/written_texts.h"
#include "tests/support/temp_folder.h"

extern char** environ;

namespace foretoken {
namespace {

// Texts by tenant and document, into one memory.
class Memory {
 public:
  Memory() : memories_(TenantMemoriesOptions{.n_places = 1 << 22, .tenant_share = 0.25}) {}

  void add(const WrittenRecord& record) {
    const auto key = std::pair(record.salt, record.document);
    auto open = open_.find(key);
    if (open == open_.end()) open = open_.emplace(key, memories_.open(record.salt)).first;
    memories_.append(open->second, record.tokens);
    if (!record.tokens.empty()) return;
    memories_.close(open->second);
    open_.erase(open);
  }
  std::vector<TokenId> answer(std::uint64_t salt, const std::vector<TokenId>& query) {
    memories_.recall(salt, query, {}, found_);
    return found_.tokens;
  }

 private:
  TenantMemories memories_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, TenantMemories::Document> open_;
  Recollection found_;
};

// Runs the appender until it has said so many times that a hundred records are written.
void append_and_kill(const std::string& folder, std::uint64_t first, int n_said) {
  const std::string program =
      (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "memory_log_appender")
          .string();
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::string number = std::to_string(first), path = folder, name = program;
  std::array<char*, 4> arguments{name.data(), path.data(), number.data(), nullptr};
  pid_t pid = 0;
  ASSERT_EQ(::posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  char said = 0;
  for (int i = 0; i < n_said; ++i) ASSERT_EQ(::read(ends[0], &said, 1), 1);
  ::kill(pid, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status));
  ::close(ends[0]);
}

TEST(MemoryLog, AnswersTheSameAfterItsWriterWasKilled) {
  const test::TempFolder folder;
  std::uint64_t n_written = 0;
  for (int kill = 1; kill <= 12; ++kill) {
    SCOPED_TRACE(kill);
    append_and_kill(folder.path().string(), n_written, kill);
    if (HasFatalFailure()) return;
    auto log = LogFolder::open({.folder = folder.path(),
                                .vocabulary = 5,
                                .n_ids = kWrittenIds,
                                .max_tokens = 1 << 30,
                                .max_tenant_tokens = 1 << 30});
    ASSERT_TRUE(log.ok()) << log.error().message;
    Memory restored, expected;
    std::uint64_t n_found = 0;
    const auto report = log->read_back([&](std::uint64_t salt, const LogRecord& record) {
      restored.add({salt, record.document, {record.tokens.begin(), record.tokens.end()}});
      ++n_found;
    });
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_EQ(report->n_damaged, 0u);
    EXPECT_LE(report->n_torn, 1u);
    // One writer, one order: what is there is what it wrote first, of all tenants.
    ASSERT_GE(n_found, n_written / 100 * 100 + 100 * static_cast<std::uint64_t>(kill - 1));
    for (std::uint64_t number = 0; number < n_found; ++number) expected.add(written_record(number));
    for (std::uint64_t number = 0; number < n_found; number += 7) {
      const WrittenRecord record = written_record(number);
      ASSERT_EQ(restored.answer(record.salt, record.tokens),
                expected.answer(record.salt, record.tokens));
    }
    n_written = n_found;
  }
  EXPECT_GT(n_written, 5000u);
}

}  // namespace
}  // namespace foretoken
