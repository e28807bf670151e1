#include "services/cli/service_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "common/base/fd.h"
#include "tests/support/temp_folder.h"

namespace foretoken::cli {
namespace {

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// As logrotate does with copytruncate, between two lines of a service.
TEST(ServiceProcess, WritesAtTheEndOfALogThatWasMadeShorter) {
  const test::TempFolder folder;
  const auto log = folder.path() / "a.log", go_on = folder.path() / "go-on";
  ASSERT_EQ(::mkfifo(go_on.c_str(), 0600), 0);
  const pid_t pid = start_process(
      {.argv = {"/bin/sh", "-c", "echo first; read word < " + go_on.string() + "; echo second"},
       .log = log});
  const Fd word(::open(go_on.c_str(), O_WRONLY | O_CLOEXEC));  // once the first line is written
  ASSERT_TRUE(word);
  EXPECT_EQ(text_of(log), "first\n");
  std::filesystem::resize_file(log, 0);
  ASSERT_EQ(::write(word.get(), "\n", 1), 1);
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
  EXPECT_EQ(text_of(log), "second\n");
}

TEST(ServiceProcess, BeginsItsLogOrGoesOnWithIt) {
  const test::TempFolder folder;
  const auto log = folder.path() / "a.log";
  const auto run = [&](ProcessSetup::Log how) {
    const pid_t pid =
        start_process({.argv = {"/bin/sh", "-c", "echo line"}, .log = log, .how = how});
    EXPECT_EQ(::waitpid(pid, nullptr, 0), pid);
    return text_of(log);
  };
  std::ofstream(log) << "of an earlier run\n";
  EXPECT_EQ(run(ProcessSetup::Log::kBegin), "line\n");
  EXPECT_EQ(run(ProcessSetup::Log::kGoOn), "line\nline\n");
}

}  // namespace
}  // namespace foretoken::cli
