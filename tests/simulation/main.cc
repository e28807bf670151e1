// simulation_test --seed N [--trace]   one seed, exactly as ever; --trace prints every event
// simulation_test --seeds A..B         many, each in a process of its own; prints those that fail
// simulation_test [--gtest_...]        the tests
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/simulation/scenario.h"

namespace foretoken::test {
namespace {

constexpr unsigned kMostSeconds = 120;  // of a seed: one that hangs fails

int usage() {
  std::fprintf(stderr, "simulation_test --seed N [--trace] | --seeds A..B | --gtest_...\n");
  return 64;
}

int run_one(std::uint64_t seed, bool with_trace) {
  const Outcome outcome = run_seed(seed, with_trace ? stdout : nullptr);
  const Outcome::Counts& met = outcome.counts;
  std::printf(
      "seed %" PRIu64 ": trace %016" PRIx64 ", %" PRIu64 " requests, %" PRIu64 " asks, %" PRIu64
      " messages sent, %" PRIu64 " lost, %" PRIu64 " refused, %" PRIu64 " moves, %" PRIu64
      " replays, %" PRIu64 " joins, %" PRIu64 " guesses delivered, %.1f s simulated\n",
      seed, outcome.trace, met.requests, met.asks, met.sent, met.lost, met.busy + met.no_peer,
      met.migrated, met.replayed, met.joined, met.accepted, met.simulated_s);
  for (const std::string& violation : outcome.violations)
    std::printf("seed %" PRIu64 ": %s\n", seed, violation.c_str());
  return outcome.violations.empty() ? 0 : 1;
}

// What the child of this seed says, and how it ends.
bool holds(std::uint64_t seed) {
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kMostSeconds);
    ::close(ends[0]);
    ::dup2(ends[1], 1);
    ::dup2(ends[1], 2);
    const int result = run_one(seed, false);
    std::fflush(stdout);
    ::_exit(result);
  }
  ::close(ends[1]);
  std::string said;
  char part[4096];
  for (ssize_t n; (n = ::read(ends[0], part, sizeof part)) > 0;)
    said.append(part, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  std::printf(
      "FAILED seed %" PRIu64 "%s\n%s", seed,
      WIFSIGNALED(status) ? (": " + std::string(::strsignal(WTERMSIG(status)))).c_str() : "",
      said.c_str());
  std::printf("  again: simulation_test --seed %" PRIu64 " --trace\n", seed);
  std::fflush(stdout);
  return false;
}

int run_many(std::uint64_t from, std::uint64_t until) {
  std::uint64_t n_failed = 0;
  for (std::uint64_t seed = from; seed < until; ++seed) n_failed += holds(seed) ? 0 : 1;
  std::printf("%" PRIu64 " seeds, %" PRIu64 " failed\n", until - from, n_failed);
  return n_failed == 0 ? 0 : 1;
}

int main_of(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "--seed") {
    if (argc < 3 || argc > 4 || (argc == 4 && std::strcmp(argv[3], "--trace") != 0)) return usage();
    return run_one(std::strtoull(argv[2], nullptr, 10), argc == 4);
  }
  if (verb == "--seeds") {
    char* end = nullptr;
    const std::uint64_t from = argc == 3 ? std::strtoull(argv[2], &end, 10) : 0;
    if (end == nullptr || std::strncmp(end, "..", 2) != 0) return usage();
    return run_many(from, std::strtoull(end + 2, nullptr, 10));
  }
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) return usage();
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace foretoken::test

int main(int argc, char** argv) { return foretoken::test::main_of(argc, argv); }
