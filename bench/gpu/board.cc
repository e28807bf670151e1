// usage: foretoken-gpu-board [--device cuda:N] [--rounds N]
// How long a verdict takes from one process to another on one device: from its existing on the
// target's device until the draft's has made a row of it and run a kernel behind that. Once by a
// board, where the draft has queued its work before the verdict exists; once by the hosts, with a
// download, a word in shared memory and an upload. Lines of JSON. Ends with status 3 without a
// device, with 4 where processes cannot share its memory. Forks before the device wakes up: a
// context does not survive it.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "kernels/include/backend.h"

namespace foretoken {
namespace {

constexpr int kCopies = 25;  // of 64 MiB: about a millisecond in which both hosts have queued
constexpr auto kPatience = std::chrono::seconds(10);

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// What both processes see.
struct Shared {
  std::atomic<int> turn{0};  // how many halves of rounds have come so far; negative: given up
  std::size_t n_card = 0;
  std::byte card[VerdictBoard::kMostCard];
  BoardEntry entry;     // by the hosts
  double answered = 0;  // when the draft was done
};

struct GivenUp {};
struct NotThere {
  std::string why;
};

void wait_for(const Shared& shared, int wanted) {
  const auto begin = std::chrono::steady_clock::now();
  for (unsigned spins = 1;; ++spins) {
    const int seen = shared.turn.load(std::memory_order_acquire);
    if (seen >= wanted) return;
    const bool is_late =
        spins % 65536 == 0 && std::chrono::steady_clock::now() - begin > 3 * kPatience;
    if (seen < 0 || is_late) throw GivenUp{};
  }
}

void say(Shared& shared, int turn) { shared.turn.store(turn, std::memory_order_release); }

template <class T>
Buffer put(Backend& backend, const std::vector<T>& values) {
  Buffer buffer = backend.allocate(values.size() * sizeof(T));
  backend.upload(buffer.as<T>(), values.data(), values.size() * sizeof(T));
  return buffer;
}

constexpr std::uint64_t tag_of(int round) { return static_cast<std::uint64_t>(round) + 1; }

void print(const char* what, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  std::printf("{\"what\": \"%s\", \"n\": %zu, \"us_median\": %.2f, \"us_p99\": %.2f}\n", what,
              times.size(), times[times.size() / 2], times[times.size() * 99 / 100]);
}

// Half the rounds by the board, half by the hosts.
void be_target(Backend& backend, Shared& shared, int n_rounds) {
  std::string why;
  const auto board = backend.make_board(1, why);
  if (board == nullptr) {
    throw NotThere{why};
  }
  shared.n_card = board->card().size();
  std::memcpy(shared.card, board->card().data(), shared.n_card);
  say(shared, 1);
  const std::size_t n_bytes = backend.numerics().starts_with("cuda") ? std::size_t{64} << 20 : 4096;
  const Buffer from = backend.allocate(n_bytes), to = backend.allocate(n_bytes);
  const Buffer verdict = put<Verdict>(backend, {{1, 2}}), zero = put<std::int32_t>(backend, {0}),
               tag = put<std::uint64_t>(backend, {0});
  std::vector<double> by_board, by_hosts;
  wait_for(shared, 2);
  for (int i = 0; i < 2 * n_rounds; ++i) {
    const bool uses_board = i % 2 == 0;
    const std::uint64_t expected = tag_of(i);
    backend.upload(tag.as<std::uint64_t>(), &expected, sizeof expected);
    for (int k = 0; k < kCopies; ++k)
      backend.copy(to.as<std::byte>(), from.as<std::byte>(), n_bytes);
    backend.post_verdicts({.verdicts = verdict.as<Verdict>(),
                           .n = 1,
                           .which = zero.as<std::int32_t>(),
                           .entries = zero.as<std::int32_t>(),
                           .tags = tag.as<std::uint64_t>(),
                           .board = board->entries(),
                           .n_entries = 1});
    if (uses_board) {
      board->mark();
      say(shared, 2 * i + 3);
    }
    backend.synchronize();
    const double begin = now_us();
    if (!uses_board) {
      backend.download(&shared.entry, board->entries(), sizeof shared.entry);
      say(shared, 2 * i + 3);
    }
    wait_for(shared, 2 * i + 4);
    (uses_board ? by_board : by_hosts).push_back(shared.answered - begin);
  }
  print("verdict by a board between two processes, one way", by_board);
  print("verdict by the hosts of two processes, one way", by_hosts);
}

void be_draft(Backend& backend, Shared& shared, int n_rounds) {
  std::string why;
  const auto view = backend.open_board({shared.card, shared.n_card}, why);
  if (view == nullptr) {
    throw NotThere{why};
  }
  const Buffer own = put<BoardEntry>(backend, {{}}), answer = put<BoardEntry>(backend, {{}}),
               zero = put<std::int32_t>(backend, {0}), tag = put<std::uint64_t>(backend, {0}),
               n_drafted = put<std::int32_t>(backend, {1}),
               row_begin = put<std::int32_t>(backend, {0, 2}),
               tokens = put<std::int32_t>(backend, {0, 0}), rules = put<RowRule>(backend, {{}}),
               logit_rows = put<std::int32_t>(backend, {0}), taken = put<Verdict>(backend, {{}});
  say(shared, 2);
  for (int i = 0; i < 2 * n_rounds; ++i) {
    const bool uses_board = i % 2 == 0;
    const std::uint64_t expected = tag_of(i);
    wait_for(shared, 2 * i + 3);
    backend.upload(tag.as<std::uint64_t>(), &expected, sizeof expected);
    if (uses_board)
      view->wait();
    else
      backend.upload(own.as<BoardEntry>(), &shared.entry, sizeof shared.entry);
    backend.take_verdicts({.board = uses_board ? view->entries() : own.as<BoardEntry>(),
                           .n_entries = 1,
                           .n_sequences = 1,
                           .entries = zero.as<std::int32_t>(),
                           .tags = tag.as<std::uint64_t>(),
                           .n_drafted = n_drafted.as<std::int32_t>(),
                           .n_ids = 3,
                           .row_begin = row_begin.as<std::int32_t>(),
                           .tokens = tokens.as<std::int32_t>(),
                           .logit_rows = logit_rows.as<std::int32_t>(),
                           .rules = rules.as<RowRule>(),
                           .taken = taken.as<Verdict>()});
    backend.post_verdicts({.verdicts = taken.as<Verdict>(),  // the kernel behind it
                           .n = 1,
                           .which = zero.as<std::int32_t>(),
                           .entries = zero.as<std::int32_t>(),
                           .tags = tag.as<std::uint64_t>(),
                           .board = answer.as<BoardEntry>(),
                           .n_entries = 1});
    if (!view->settled(kPatience)) throw GivenUp{};
    shared.answered = now_us();
    BoardEntry got;
    backend.download(&got, answer.as<BoardEntry>(), sizeof got);
    if (got.tag != expected || got.n_accepted != 1 || got.next_token != 2) {
      std::printf("{\"what\": \"verdicts by a board\", \"wrong\": \"round %d\"}\n", i);
      throw GivenUp{};
    }
    say(shared, 2 * i + 4);
  }
}

template <class Side>
// `begins_at`: the draft, when the target is there: what one says the other need not.
int run(const std::string& device, Shared& shared, int n_rounds, int begins_at, Side side) {
  int status = 0;
  try {
    wait_for(shared, begins_at);
    const auto backend = make_backend({.device = device, .n_threads = 1});
    side(*backend, shared, n_rounds);
  } catch (const FatalError& error) {
    std::fprintf(stderr, "foretoken-gpu-board: %s\n", error.what());
    status = error.code() == ErrorCode::kUnavailable ? 3 : 1;
  } catch (const NotThere& gone) {
    std::fprintf(stderr, "foretoken-gpu-board: %s\n", gone.why.c_str());
    status = 4;
  } catch (const GivenUp&) {
    status = 1;
  }
  if (status != 0) say(shared, -1);
  std::fflush(stdout);
  return status;
}

int measure(const std::string& device, int n_rounds) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto* shared = new (memory) Shared;
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return 1;
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) std::_Exit(1);
    std::_Exit(run(device, *shared, n_rounds, 1, be_draft));
  }
  const int status = run(device, *shared, n_rounds, 0, be_target);
  if (status != 0) kill(child, SIGKILL);  // what it has queued may never end
  int ended = 0;
  waitpid(child, &ended, 0);
  const int of_draft = WIFEXITED(ended) ? WEXITSTATUS(ended) : 1;
  return status != 0 && of_draft != 4 ? status : of_draft;
}

}  // namespace
}  // namespace foretoken

int main(int argc, char** argv) {
  std::string device = "cuda";
  int n_rounds = 400;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--device") == 0) device = argv[i + 1];
    if (std::strcmp(argv[i], "--rounds") == 0) n_rounds = std::max(1, std::atoi(argv[i + 1]));
  }
  return foretoken::measure(device, n_rounds);
}
