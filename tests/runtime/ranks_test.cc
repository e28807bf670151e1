// What the launcher of ranks decides by itself: when time is up, who is stopped, which words
// and variables go to other hosts. With a clock that stands still until the test moves it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "common/runtime/rank_clock.h"
#include "common/runtime/rank_group.h"
#include "common/runtime/rank_host.h"
#include "common/runtime/rank_launcher.h"

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kInstant = Duration(1);
constexpr auto kAges = std::chrono::hours(1000);

class RankClockTest : public testing::Test {
 protected:
  std::string overdue(std::size_t n_here = 4) const {
    return clock_.overdue(time_.now(), n_here).value_or("");
  }
  void say(std::string_view line) { clock_.rank0_says(line, time_.now()); }

  ManualClock time_;
  RankClock clock_{4, seconds(5), time_.now()};
};

TEST_F(RankClockTest, RanksHaveFiftySecondsToMeet) {
  time_.advance(seconds(50));
  EXPECT_EQ(overdue(1), "");
  time_.advance(kInstant);
  EXPECT_EQ(
      overdue(1),
      "the ranks have not connected within 50 s of the start; on this host connected: 1 of 4");
}

TEST_F(RankClockTest, RanksThatHaveMetMayLoadForAsLongAsTheyLike) {
  time_.advance(seconds(50));
  say("STATUS=all ranks are connected");
  EXPECT_FALSE(clock_.is_serving());
  time_.advance(kAges);
  EXPECT_EQ(overdue(), "");
}

TEST_F(RankClockTest, RankZeroIsMissedOnceItServes) {
  say("STATUS=loading");
  time_.advance(kAges);
  say("READY=1");
  EXPECT_TRUE(clock_.is_serving());
  time_.advance(milliseconds(6500));  // 1.25 times the deadline and 250 ms
  EXPECT_EQ(overdue(), "");
  time_.advance(kInstant);
  EXPECT_EQ(overdue(), "rank 0 is silent");
}

TEST_F(RankClockTest, OnlyTheTurnsOfItsLoopCountAsSignsOfLife) {
  say("READY=1");
  time_.advance(seconds(6));
  say("WATCHDOG=1");
  time_.advance(seconds(6));
  EXPECT_EQ(overdue(), "");
  say("STATUS=draining");
  time_.advance(seconds(6));
  EXPECT_EQ(overdue(), "rank 0 is silent");
}

TEST_F(RankClockTest, RanksLeaveTogetherOrAreMadeTo) {
  say("READY=1");
  time_.advance(seconds(6));
  clock_.rank_left_well(time_.now());
  time_.advance(kGoodbye - seconds(1));  // longer than rank 0 may be silent, but it has gone
  EXPECT_EQ(overdue(), "");
  clock_.rank_left_well(time_.now());  // the first one counts
  time_.advance(seconds(1));
  EXPECT_EQ(overdue(), "");
  time_.advance(kInstant);
  EXPECT_EQ(overdue(), "not all ranks have ended");
}

// A child that only waits, and ends with this process.
class Child {
 public:
  Child() {
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (::getppid() == parent) ::pause();
    ::_exit(1);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  void send(int signal, int awaited) const {
    ::kill(pid_, signal);
    int status = 0;
    ASSERT_EQ(::waitpid(pid_, &status, awaited), pid_);
  }

 private:
  pid_t pid_ = -1;
};

TEST(WatchedProcess, IsStoppedForAsLongAsItIsSeenStoppedWithoutABreak) {
  const Child child;
  ASSERT_GT(child.pid(), 0);
  WatchedProcess watched(child.pid());
  ManualClock time;
  time.set(TimePoint(seconds(1000)));
  EXPECT_EQ(watched.stopped_for(time.now()), Duration{});
  child.send(SIGSTOP, WUNTRACED);
  EXPECT_EQ(watched.stopped_for(time.now()), Duration{});
  time.advance(seconds(5));
  EXPECT_EQ(watched.stopped_for(time.now()), seconds(5));
  child.send(SIGCONT, WCONTINUED);
  EXPECT_EQ(watched.stopped_for(time.now()), Duration{});
  child.send(SIGSTOP, WUNTRACED);
  time.advance(seconds(5));
  EXPECT_EQ(watched.stopped_for(time.now()), Duration{});
  time.advance(seconds(1));
  EXPECT_EQ(watched.stopped_for(time.now()), seconds(1));
  EXPECT_FALSE(watched.has_ended());
}

// What orte_launch_agent goes through before ssh has it: taken apart at spaces, joined again.
std::string through_mpirun(const std::string& agent) {
  std::istringstream in(agent);
  std::string joined;
  for (std::string word; std::getline(in, word, ' ');)
    if (!word.empty()) joined += (joined.empty() ? "" : " ") + word;
  return joined;
}

std::vector<std::string> words_of_a_shell(const std::string& line) {
  const std::unique_ptr<FILE, int (*)(FILE*)> shell(
      ::popen(("printf '%s\\n' " + line).c_str(), "r"), ::pclose);
  std::string text;
  for (int c = 0; shell != nullptr && (c = std::fgetc(shell.get())) != EOF;)
    text += static_cast<char>(c);
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; std::getline(in, word);) words.push_back(word);
  return words;
}

TEST(LaunchAgent, ReachesTheOtherHostWordForWordWhateverThePath) {
  for (const std::string program :
       {"/usr/bin/foretoken-target", "/opt/a place/foretoken-target", "/opt/two  spaces /t",
        "/opt/$HOME `x` \"q\" 'p' \\ ~ * ? (a) [b] {c,d} #e;f&g|h<i>j!k^l=m/t",
        "/home/bj\303\266rn/t"}) {
    const std::string line = launch_agent(
        program, {.folder = "/dev/shm/a b", .deadline = seconds(5), .command = {"orted"}});
    const auto words = words_of_a_shell(through_mpirun(line));
    EXPECT_EQ(words,
              (std::vector<std::string>{program, "--rank-host", "/dev/shm/a b", "5000", "orted"}))
        << line;
    // mpirun finds its daemon by this very word.
    EXPECT_TRUE(line.ends_with(" orted")) << line;
  }
}

TEST(PassedVariables, AreThoseOfTheConfigurationWithoutTheKeyOfAClient) {
  EXPECT_EQ(passed_variables({{"FORETOKEN_API_KEY", "secret"},
                              {"FORETOKEN_MODEL_DTYPE", "int8"},
                              {"FORETOKEN_TARGET_TENSOR_PARALLEL", "4"},
                              {"HOME", "/root"},
                              {"MY_FORETOKEN_X", "1"}}),
            (std::vector<std::string>{"-x", "FORETOKEN_MODEL_DTYPE", "-x",
                                      "FORETOKEN_TARGET_TENSOR_PARALLEL"}));
}

TEST(LaunchAgent, SaysWhatTheHostReads) {
  std::vector<std::string> words = words_of_a_shell(
      launch_agent("/t", {.folder = "/f o", .deadline = milliseconds(2500), .command = {"orted"}}));
  words.insert(words.end(), {"-mca", "ess", "env"});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  const RankHosting read = rank_hosting(static_cast<int>(argv.size()), argv.data());
  EXPECT_EQ(read.folder, "/f o");
  EXPECT_EQ(read.deadline, milliseconds(2500));
  EXPECT_EQ(read.command, (std::vector<std::string>{"orted", "-mca", "ess", "env"}));
}

}  // namespace
}  // namespace foretoken
