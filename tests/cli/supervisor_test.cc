// The supervisor with small scripts as services: what it restarts, what ends it, and what it leaves
// for `ps`.
#include "services/cli/supervisor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <thread>
#include <utility>

#include "common/base/result.h"
#include "services/cli/restart_backoff.h"
#include "services/cli/supervisor_folder.h"
#include "tests/support/temp_folder.h"

namespace foretoken::cli {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// As of a container whose first process waits for no child.
TEST(AwaitSupervisor, AProcessThatWasNotWaitedForHasEnded) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  EXPECT_TRUE(await_supervisor(child, std::chrono::seconds(60)));
  EXPECT_EQ(0, ::kill(child, 0)) << "it is still in the table of processes";
  EXPECT_EQ(child, ::waitpid(child, nullptr, 0));
}

// A process that runs `program`, until the end of this object.
class Running {
 public:
  explicit Running(const std::filesystem::path& program) {
    int fds[2];
    EXPECT_EQ(0, ::pipe2(fds, O_CLOEXEC));
    pid_ = ::fork();
    if (pid_ == 0) {
      ::execl(program.c_str(), program.c_str(), "600", nullptr);
      ::_exit(127);
    }
    ::close(fds[1]);
    char none;
    EXPECT_EQ(0, ::read(fds[0], &none, 1)) << "the end: the program has begun";
    ::close(fds[0]);
  }
  ~Running() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  int pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

TEST(RunsReplacedProgram, AServiceWhoseFileIsAnotherNowIsFound) {
  const test::TempFolder folder;
  const auto program = folder / "sleep", fresh = folder / "fresh";
  std::filesystem::copy_file("/bin/sleep", program);
  std::filesystem::copy_file("/bin/sleep", fresh);
  const int lock = open_lock(folder.path());
  const Running service(program);
  write_supervisor_state(folder.path(), {{{"name", "target-0"}, {"pid", service.pid()}},
                                         {{"name", "draft-0"}, {"pid", 0}}});
  EXPECT_FALSE(runs_replaced_program(folder.path()));
  std::filesystem::rename(fresh, program);
  EXPECT_TRUE(runs_replaced_program(folder.path()));
  ::close(lock);
}

TEST(RestartBackoff, WaitsTwiceAsLongEachTimeUpToItsLimit) {
  RestartBackoff backoff({.first = 200ms, .longest = 1000ms});
  const TimePoint t{};
  for (const auto expected : {200ms, 400ms, 800ms, 1000ms, 1000ms})
    EXPECT_EQ(*backoff.ended(t, t), t + expected);
  EXPECT_EQ(backoff.n_restarts(), 5u);
}

TEST(RestartBackoff, ForgetsAfterAGoodRun) {
  RestartBackoff backoff({.first = 200ms, .longest = 5000ms, .good_run = 30s, .most_restarts = 2});
  const TimePoint t{};
  EXPECT_TRUE(backoff.ended(t + 29s, t));
  EXPECT_EQ(*backoff.ended(t + 29s, t), t + 29s + 400ms);
  EXPECT_FALSE(backoff.ended(t + 29s, t));
  EXPECT_EQ(*backoff.ended(t + 60s, t + 30s), t + 60s + 200ms);
}

TEST(RestartBackoff, ARunThatWasNeverReadyIsNotGoodHoweverLong) {
  RestartBackoff backoff({.most_restarts = 1});
  const TimePoint t{};
  EXPECT_TRUE(backoff.ended(t, std::nullopt));
  EXPECT_FALSE(backoff.ended(t + 1h, std::nullopt));
}

TEST(RestartBackoff, WithoutALimitNeverEnds) {
  RestartBackoff backoff({.first = 1ms, .longest = 4ms});
  for (int i = 0; i < 10'000; ++i) ASSERT_TRUE(backoff.ended(TimePoint{}, std::nullopt));
}

// A service that says READY and does the rest of the script once the supervisor has seen all ready:
// one that ended before would have to start again first.
std::vector<std::string> script(const std::string& rest) {
  return {"/usr/bin/python3", "-S", "-c",
          "import os, socket, sys, signal, time\n"
          "def say(text): socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(text, "
          "os.environ['NOTIFY_SOCKET'])\n"
          "say(b'READY=1')\n"
          "while not os.path.exists(os.path.dirname(os.environ['NOTIFY_SOCKET']) + '/all-ready'): "
          "time.sleep(0.002)\n" +
              rest};
}
const std::string kStays = "signal.pause()";
const std::string kCrashes = "sys.exit(70)";

class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorOptions options() const {
    return {.runtime_folder = folder_.path(),
            .log_folder = folder_.path() / "log",
            .ready_timeout = 30s,
            .stop_timeout = 10s,
            .restarts = {.first = 1ms, .longest = 4ms, .most_restarts = 3},
            .optional_restarts = {.first = 1ms, .longest = 4ms}};
  }
  StartReport run(Supervisor& supervisor, const Progress& progress) {
    const std::ofstream made(folder_.path() / "all-ready");
    return supervisor.run(progress);
  }
  // Counts what is said; asks the supervisor to stop when `name` has said `words` so often.
  Progress stop_after(const std::string& name, const std::string& words, int times) {
    return [this, name, words, times](const std::string& service, const std::string& status) {
      said_ += service + ": " + status + "\n";
      if (service != name || status.find(words) == std::string::npos || ++n_said_ < times) return;
      state_ = supervisor_state(folder_.path());
      ::kill(::getpid(), SIGTERM);
    };
  }

  test::TempFolder folder_;
  std::string said_;
  std::vector<ServiceState> state_;
  int n_said_ = 0;
};

TEST_F(SupervisorTest, AServiceThatOthersNeedEndsEverythingAfterItsRestarts) {
  Supervisor supervisor(options(),
                        {{.name = "target-0", .argv = script(kCrashes), .role = "target"}});
  const Progress progress = [&](const std::string&, const std::string& status) {
    said_ += status + "\n";
  };
  ASSERT_TRUE(supervisor.start(progress).ready);
  const StartReport ending = run(supervisor, progress);
  EXPECT_FALSE(ending.ready);
  EXPECT_EQ(ending.kind, FailureKind::kCrash);
  EXPECT_THAT(ending.failure, HasSubstr("target-0 ended with exit code 70 after 3 restarts"));
  EXPECT_THAT(said_, HasSubstr("(restart 3)"));
}

TEST_F(SupervisorTest, ADraftThatKeepsDyingNeverEndsTheOthers) {
  Supervisor supervisor(
      options(),
      {{.name = "target-0", .argv = script(kStays), .role = "target"},
       {.name = "draft-0", .argv = script(kCrashes), .role = "draft", .optional = true}});
  // More often than a service may that others need.
  const Progress progress = stop_after("draft-0", "starts again", 8);
  ASSERT_TRUE(supervisor.start(progress).ready) << said_;
  EXPECT_TRUE(run(supervisor, progress).ready);
  EXPECT_EQ(n_said_, 8);
  ASSERT_EQ(state_.size(), 2u);
  EXPECT_EQ(state_[0].state, "ready");
  EXPECT_EQ(state_[0].note, "");
  EXPECT_THAT(state_[1].note, HasSubstr("ended with exit code 70"));
}

TEST_F(SupervisorTest, ADraftWithWrongSettingsIsLeftAloneAndTheOthersServeOn) {
  // Good the first time; afterwards it refuses its settings.
  const std::string once =
      "mark = os.environ['NOTIFY_SOCKET'] + '.mark'\n"
      "if os.path.exists(mark): sys.exit(78)\n"
      "open(mark, 'w').close()\n"
      "sys.exit(70)";
  Supervisor supervisor(
      options(), {{.name = "target-0", .argv = script(kStays), .role = "target"},
                  {.name = "draft-0", .argv = script(once), .role = "draft", .optional = true}});
  const Progress progress = stop_after("draft-0", "not started again", 1);
  ASSERT_TRUE(supervisor.start(progress).ready) << said_;
  EXPECT_TRUE(run(supervisor, progress).ready);
  EXPECT_THAT(said_, HasSubstr("draft-0: ended with exit code 78; it is not started again and the "
                               "others serve on without it"));
  const auto left = supervisor_state(folder_.path());
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[1].state, "given up");
}

TEST_F(SupervisorTest, ADraftThatHangsWhileItLoadsAgainIsEnded) {
  const std::string once =
      "import os, signal\n"
      "mark = os.environ['NOTIFY_SOCKET'] + '.mark'\n"
      "if os.path.exists(mark): signal.pause()\n"
      "open(mark, 'w').close()\n";
  auto argv = script(kCrashes);
  argv.back() = once + argv.back();
  SupervisorOptions impatient = options();
  impatient.ready_timeout = 2s;
  Supervisor supervisor(impatient,
                        {{.name = "draft-0", .argv = argv, .role = "draft", .optional = true}});
  const Progress progress =
      stop_after("draft-0", "was ended: not ready and no sign for 2 s; starts again", 1);
  ASSERT_TRUE(supervisor.start(progress).ready) << said_;
  EXPECT_TRUE(run(supervisor, progress).ready) << said_;
}

TEST_F(SupervisorTest, ADraftWhoseLogCannotBeOpenedIsTriedAgain) {
  // Its log is in the way of the second start, and gone before a later one.
  const auto log = folder_.path() / "log" / "draft-0.log";
  const std::string takes_its_log =
      "mark = os.environ['NOTIFY_SOCKET'] + '.mark'\n"
      "if os.path.exists(mark): signal.pause()\n"
      "open(mark, 'w').close()\n"
      "os.unlink('" +
      log.string() + "'); os.mkdir('" + log.string() +
      "')\n"
      "sys.exit(70)";
  Supervisor supervisor(
      options(),
      {{.name = "target-0", .argv = script(kStays), .role = "target"},
       {.name = "draft-0", .argv = script(takes_its_log), .role = "draft", .optional = true}});
  int n_failed = 0;
  bool cured = false;
  const Progress progress = [&](const std::string& service, const std::string& status) {
    said_ += service + ": " + status + "\n";
    if (service != "draft-0") return;
    if (status.find("could not be started: cannot open the log") != std::string::npos &&
        ++n_failed == 3) {
      std::filesystem::remove(log);
      cured = true;
    }
    if (cured && status == "ready") ::kill(::getpid(), SIGTERM);
  };
  ASSERT_TRUE(supervisor.start(progress).ready) << said_;
  EXPECT_TRUE(run(supervisor, progress).ready) << said_;
  EXPECT_EQ(3, n_failed);
}

TEST_F(SupervisorTest, OfTwoTargetsOneIsEnough) {
  Supervisor supervisor(options(),
                        {{.name = "target-0", .argv = script(kStays), .role = "target"},
                         {.name = "target-1", .argv = script(kCrashes), .role = "target"}});
  const Progress progress = stop_after("target-1", "not started again", 1);
  ASSERT_TRUE(supervisor.start(progress).ready) << said_;
  EXPECT_TRUE(run(supervisor, progress).ready);
}

TEST_F(SupervisorTest, IsWatchedWhileACheckIsNotDone) {
  Supervisor supervisor(
      options(),
      {{.name = "target-0", .argv = script(kStays), .role = "target"},
       {.name = "draft-0", .argv = script(kCrashes), .role = "draft", .optional = true}});
  int n_restarts = 0;
  const Progress progress = [&](const std::string&, const std::string& status) {
    n_restarts += status.find("starts again") != std::string::npos;
  };
  ASSERT_TRUE(supervisor.start(progress).ready);
  const std::ofstream made(folder_.path() / "all-ready");
  EXPECT_TRUE(supervisor.run_until([&] { return n_restarts >= 2; }, progress).ready);
  EXPECT_GE(n_restarts, 2);
}

TEST_F(SupervisorTest, ACheckEndsWithASignalOrAServiceThatIsMissing) {
  const Progress quiet = [](const std::string&, const std::string&) {};
  const auto never = [] { return false; };
  {
    Supervisor supervisor(options(),
                          {{.name = "target-0", .argv = script(kCrashes), .role = "target"}});
    ASSERT_TRUE(supervisor.start(quiet).ready);
    const std::ofstream made(folder_.path() / "all-ready");
    const StartReport report = supervisor.run_until(never, quiet);
    EXPECT_FALSE(report.ready);
    EXPECT_EQ(report.kind, FailureKind::kCrash);
    EXPECT_THAT(report.failure, HasSubstr("target-0 ended with exit code 70 after 3 restarts"));
  }
  Supervisor supervisor(options(),
                        {{.name = "target-0", .argv = script(kStays), .role = "target"}});
  ASSERT_TRUE(supervisor.start(quiet).ready);
  ::kill(::getpid(), SIGTERM);
  const StartReport report = supervisor.run_until(never, quiet);
  EXPECT_FALSE(report.ready);
  EXPECT_EQ(report.kind, FailureKind::kInterrupted);
}

TEST_F(SupervisorTest, AStartThatFailsSaysWhoAndWhy) {
  struct Case {
    int exit_code;
    FailureKind kind;
  };
  for (const auto& [exit_code, kind] :
       {Case{78, FailureKind::kConfiguration}, Case{64, FailureKind::kConfiguration},
        Case{75, FailureKind::kEnvironment}, Case{1, FailureKind::kCrash}}) {
    const std::string words = "echo no such thing >&2; exit " + std::to_string(exit_code);
    Supervisor supervisor(
        options(),
        {{.name = "draft-0", .argv = {"/bin/sh", "-c", words}, .role = "draft", .optional = true}});
    const StartReport report = supervisor.start([](const std::string&, const std::string&) {});
    EXPECT_FALSE(report.ready);
    EXPECT_EQ(report.kind, kind) << exit_code;
    EXPECT_THAT(report.failure,
                HasSubstr("draft-0 ended with exit code " + std::to_string(exit_code)));
    EXPECT_THAT(report.failure, HasSubstr("no such thing"));
  }
}

// Pings as often as WATCHDOG_USEC asks, under the pid that WATCHDOG_PID names.
const std::string kPings =
    "assert os.environ['WATCHDOG_PID'] == str(os.getpid())\n"
    "def ping():\n"
    "  say(b'WATCHDOG=1')\n"
    "  time.sleep(int(os.environ['WATCHDOG_USEC']) / 1e6 / 8)\n";

class WatchdogTest : public SupervisorTest, public testing::WithParamInterface<const char*> {};

TEST_P(WatchdogTest, AServiceWhosePingsStayAwayIsEndedAndStartedAgain) {
  const std::string hangs_once =
      "mark = os.environ['NOTIFY_SOCKET'] + '.mark'\n"
      "again = os.path.exists(mark)\n"
      "open(mark, 'w').close()\n"
      "ping()\n"
      "if not again: " +
      std::string(GetParam()) + "\n";
  SupervisorOptions watching = options();
  watching.watchdog = 1s;
  watching.abort_timeout = 1s;
  Supervisor supervisor(
      watching,
      {{.name = "target-0", .argv = script(kPings + "while True: ping()"), .role = "target"},
       {.name = "draft-0",
        .argv = script(kPings + hangs_once + "while True: ping()"),
        .role = "draft",
        .optional = true}});
  int n_ready = 0;
  const Progress progress = [&](const std::string& service, const std::string& status) {
    said_ += service + ": " + status + "\n";
    if (service != "draft-0" || status != "ready" || ++n_ready < 2) return;
    state_ = supervisor_state(folder_.path());
    ::kill(::getpid(), SIGTERM);
  };
  ASSERT_TRUE(supervisor.start(progress).ready) << said_;
  EXPECT_TRUE(run(supervisor, progress).ready) << said_;
  EXPECT_THAT(said_, HasSubstr("draft-0: watchdog: no sign of life for 1 s; starts again"));
  ASSERT_EQ(state_.size(), 2u);
  EXPECT_EQ(state_[0].note, "");
  EXPECT_EQ(state_[1].note, "restarted 1 time; watchdog: no sign of life for 1 s");
}

INSTANTIATE_TEST_SUITE_P(
    EachInItsOwnWay,
    WatchdogTest,
    testing::Values("os.kill(os.getpid(), signal.SIGSTOP)",
                    "signal.pause()",
                    "signal.signal(signal.SIGABRT, signal.SIG_IGN); time.sleep(1000)"));

TEST_F(SupervisorTest, WithoutAWatchdogNoServiceIsAskedForPings) {
  SupervisorOptions patient = options();
  patient.watchdog = 0ms;
  Supervisor supervisor(patient, {{.name = "target-0",
                                   .argv = script("sys.exit('WATCHDOG_USEC' in os.environ)"),
                                   .role = "target"}});
  const Progress progress = stop_after("target-0", "ended with exit code 0", 1);
  ASSERT_TRUE(supervisor.start(progress).ready);
  EXPECT_TRUE(run(supervisor, progress).ready) << said_;
}

// While it loads no ping is due; what counts is that it asks for more time.
TEST_F(SupervisorTest, LoadingTakesAsLongAsItIsExtended) {
  const std::string loads =
      "import os, socket, time\n"
      "for i in range(8):\n"
      "  socket.socket(socket.AF_UNIX, "
      "socket.SOCK_DGRAM).sendto(b'EXTEND_TIMEOUT_USEC=2000000\\nSTATUS=loading',"
      " os.environ['NOTIFY_SOCKET'])\n"
      "  time.sleep(0.5)\n";
  auto argv = script(kPings + "while True: ping()");
  argv.back() = loads + argv.back();
  SupervisorOptions impatient = options();
  impatient.ready_timeout = 2s;
  impatient.watchdog = 1s;
  Supervisor supervisor(impatient, {{.name = "target-0", .argv = argv, .role = "target"}});
  const StartReport report = supervisor.start([](const std::string&, const std::string&) {});
  EXPECT_TRUE(report.ready) << report.failure;
}

// Closes what is left of it at its end.
struct Pipe {
  Pipe() { EXPECT_EQ(0, ::pipe2(fds, O_CLOEXEC)); }
  ~Pipe() {
    close_reader();
    ::close(fds[1]);
  }
  void close_reader() { ::close(std::exchange(fds[0], -1)); }

  int fds[2] = {-1, -1};
};

TEST_F(SupervisorTest, AStartThatNothingWaitsForAnyMoreEndsAsInterrupted) {
  const std::string loads =
      "import os, signal, socket\n"
      "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'STATUS=loading', "
      "os.environ['NOTIFY_SOCKET'])\n"
      "signal.pause()";
  Pipe pipe;
  SupervisorOptions waited_for = options();
  waited_for.reader_fd = pipe.fds[1];
  {
    Supervisor supervisor(
        waited_for,
        {{.name = "target-0", .argv = {"/usr/bin/python3", "-S", "-c", loads}, .role = "target"}});
    const StartReport report =
        supervisor.start([&](const std::string&, const std::string&) { pipe.close_reader(); });
    EXPECT_FALSE(report.ready);
    EXPECT_EQ(report.kind, FailureKind::kInterrupted) << report.failure;
  }
  EXPECT_EQ(-1, ::waitpid(-1, nullptr, WNOHANG)) << "a service is left";
  EXPECT_EQ(ECHILD, errno);
}

TEST_F(SupervisorTest, ACheckThatNothingWaitsForAnyMoreEndsAsInterrupted) {
  const Progress quiet = [](const std::string&, const std::string&) {};
  Pipe pipe;
  SupervisorOptions waited_for = options();
  waited_for.reader_fd = pipe.fds[1];
  Supervisor supervisor(waited_for,
                        {{.name = "target-0", .argv = script(kStays), .role = "target"}});
  ASSERT_TRUE(supervisor.start(quiet).ready);
  int n_looks = 0;
  const auto looks_twice = [&] {
    if (++n_looks == 2) pipe.close_reader();
    return n_looks == 500;  // 10 s; at most the third look is due
  };
  const StartReport report = supervisor.run_until(looks_twice, quiet);
  EXPECT_FALSE(report.ready);
  EXPECT_EQ(report.kind, FailureKind::kInterrupted) << report.failure;
}

// A supervisor that ignores SIGPIPE, as `up` does.
TEST_F(SupervisorTest, AServiceHasTheDefaultActionOfSigpipe) {
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  Supervisor supervisor(
      options(),
      {{.name = "target-0", .argv = {"/bin/sh", "-c", "kill -PIPE $$; exit 7"}, .role = "target"}});
  const StartReport report = supervisor.start([](const std::string&, const std::string&) {});
  ::signal(SIGPIPE, before);
  EXPECT_THAT(report.failure, HasSubstr("target-0 was ended by signal 13"));
}

TEST_F(SupervisorTest, AStartThatHangsIsGivenUp) {
  SupervisorOptions impatient = options();
  impatient.ready_timeout = 1s;
  Supervisor supervisor(impatient, {{.name = "target-0",
                                     .argv = {"/bin/sh", "-c", "echo so far >&2; sleep 100"},
                                     .role = "target"}});
  const StartReport report = supervisor.start([](const std::string&, const std::string&) {});
  EXPECT_FALSE(report.ready);
  EXPECT_THAT(report.failure,
              HasSubstr("target-0 was ended: not ready and no sign for 1 s; the end of its log:"));
  EXPECT_THAT(report.failure, HasSubstr("so far"));
}

// Keeps a record of when it was asked to stop and ended, `seconds` later; asked again it ends at
// once.
std::string stops_in(const std::string& name, const std::string& seconds) {
  return "name, folder, asked = '" + name +
         "', os.path.dirname(os.environ['NOTIFY_SOCKET']), []\n"
         "def note(file, text):\n"
         "  with open(folder + '/' + file, 'a') as out: out.write(text + '\\n')\n"
         "def stop(*_):\n"
         "  asked.append(1)\n"
         "  say(b'STOPPING=1')\n"
         "  note('order', name + ' asked')\n"
         "  if len(asked) > 1: os._exit(0)\n"
         "  time.sleep(" +
         seconds +
         ")\n"
         "  note('order', name + ' ended')\n"
         "  os._exit(0)\n"
         "signal.signal(signal.SIGTERM, stop)\n"
         "signal.signal(signal.SIGINT, stop)\n"
         "note('pid-' + name, str(os.getpid()))\n"
         "while True: time.sleep(100)";
}

class StopTest : public SupervisorTest {
 protected:
  StopTest() { ::signal(SIGHUP, SIG_DFL); }  // under nohup it would be ignored
  static std::vector<ServiceSpec> services(const std::string& seconds) {
    std::vector<ServiceSpec> specs;
    for (const std::string role : {"draft", "target", "tokenizer", "router"})
      specs.push_back(
          {.name = role + "-0", .argv = script(stops_in(role + "-0", seconds)), .role = role});
    return specs;
  }
  // Until each would hear a signal.
  void start(Supervisor& supervisor) {
    ASSERT_TRUE(supervisor.start([](const std::string&, const std::string&) {}).ready);
    const std::ofstream made(folder_.path() / "all-ready");
    for (const std::string role : {"draft", "target", "tokenizer", "router"})
      while (lines_of("pid-" + role + "-0").empty()) ::usleep(2000);
  }
  std::vector<std::string> lines_of(const std::string& name) const {
    std::ifstream file(folder_.path() / name);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
};

TEST_F(StopTest, TheRouterEndsFirstAndDraftsAreAskedLast) {
  Supervisor supervisor(options(), services("0.1"));
  start(supervisor);
  supervisor.stop();
  auto order = lines_of("order");
  ASSERT_EQ(order.size(), 8u);
  EXPECT_EQ(order[0], "router-0 asked");
  EXPECT_EQ(order[1], "router-0 ended");
  EXPECT_EQ(order[6], "draft-0 asked");
  EXPECT_EQ(order[7], "draft-0 ended");
}

// What stops a group of processes signals the services beside their supervisor.
TEST_F(StopTest, OneThatStopsAlreadyIsNotAskedAgain) {
  Supervisor supervisor(options(), services("0.5"));
  start(supervisor);
  ::kill(std::stoi(lines_of("pid-router-0").at(0)), SIGTERM);
  while (lines_of("order").empty()) ::usleep(2000);
  supervisor.stop();
  const auto order = lines_of("order");
  EXPECT_EQ(1, std::count(order.begin(), order.end(), "router-0 asked"));
  EXPECT_EQ(1, std::count(order.begin(), order.end(), "router-0 ended"));
}

TEST_F(StopTest, ASecondSignalEndsAllAtOnce) {
  SupervisorOptions patient = options();
  patient.stop_timeout = 600s;
  Supervisor supervisor(patient, services("600"));
  start(supervisor);
  std::thread second([&] {
    while (lines_of("order").empty()) ::usleep(2000);
    ::kill(::getpid(), SIGTERM);
  });
  supervisor.stop();
  second.join();
  const auto order = lines_of("order");
  EXPECT_EQ(order.at(0), "router-0 asked");
  for (const std::string role : {"draft-0", "target-0", "tokenizer-0", "router-0"})
    EXPECT_EQ(0, std::count(order.begin(), order.end(), role + " ended")) << role;
}

// Of the end of a session and of a terminal: the second signal comes while the router drains.
class EndOfSessionTest : public StopTest,
                         public testing::WithParamInterface<std::pair<int, int>> {};

TEST_P(EndOfSessionTest, IsOneRequestAndServicesDrain) {
  Supervisor supervisor(options(), services("0.3"));
  start(supervisor);
  const Progress quiet = [](const std::string&, const std::string&) {};
  ::kill(::getpid(), GetParam().first);
  ASSERT_TRUE(supervisor.run(quiet).ready);
  std::thread second([&] {
    while (lines_of("order").empty()) ::usleep(2000);
    ::kill(::getpid(), GetParam().second);
  });
  supervisor.stop();
  second.join();
  const auto order = lines_of("order");
  for (const std::string role : {"draft-0", "target-0", "tokenizer-0", "router-0"}) {
    EXPECT_EQ(1, std::count(order.begin(), order.end(), role + " asked")) << role;
    EXPECT_EQ(1, std::count(order.begin(), order.end(), role + " ended")) << role;
  }
}

INSTANTIATE_TEST_SUITE_P(InEachOrder,
                         EndOfSessionTest,
                         testing::Values(std::pair(SIGTERM, SIGHUP),
                                         std::pair(SIGHUP, SIGTERM),
                                         std::pair(SIGHUP, SIGHUP)));

TEST_F(StopTest, TheSecondSignalAfterTheEndOfATerminalEndsAllAtOnce) {
  SupervisorOptions patient = options();
  patient.stop_timeout = 600s;
  Supervisor supervisor(patient, services("600"));
  start(supervisor);
  ::kill(::getpid(), SIGHUP);
  ASSERT_TRUE(supervisor.run([](const std::string&, const std::string&) {}).ready);
  std::thread others([&] {
    while (lines_of("order").empty()) ::usleep(2000);
    ::kill(::getpid(), SIGTERM);
    ::kill(::getpid(), SIGINT);
  });
  supervisor.stop();
  others.join();
  const auto order = lines_of("order");
  EXPECT_EQ(0, std::count(order.begin(), order.end(), "router-0 ended"));
}

TEST_F(StopTest, WhatDoesNotEndInTimeIsKilledAndTheOthersAreAskedAllTheSame) {
  SupervisorOptions impatient = options();
  impatient.stop_timeout = 1s;
  auto specs = services("0");
  specs.back() = {
      .name = "router-0", .argv = script(stops_in("router-0", "600")), .role = "router"};
  Supervisor supervisor(impatient, specs);
  start(supervisor);
  supervisor.stop();
  const auto order = lines_of("order");
  EXPECT_EQ(0, std::count(order.begin(), order.end(), "router-0 ended"));
  for (const std::string role : {"draft-0", "target-0", "tokenizer-0"})
    EXPECT_EQ(1, std::count(order.begin(), order.end(), role + " ended")) << role;
}

TEST_F(SupervisorTest, ASecondOneInTheSameFolderIsRefused) {
  Supervisor first(options(), {});
  EXPECT_THROW(Supervisor(options(), {}), FatalError);
}

TEST_F(SupervisorTest, LeavesNoStateBehind) {
  {
    Supervisor supervisor(options(),
                          {{.name = "target-0", .argv = script(kStays), .role = "target"}});
    ASSERT_TRUE(supervisor.start([](const std::string&, const std::string&) {}).ready);
    EXPECT_EQ(supervisor_state(folder_.path()).size(), 1u);
    EXPECT_EQ(supervisor_pid(folder_.path()), ::getpid());
  }
  EXPECT_TRUE(supervisor_state(folder_.path()).empty());
  EXPECT_EQ(supervisor_pid(folder_.path()), 0);
}

}  // namespace
}  // namespace foretoken::cli
