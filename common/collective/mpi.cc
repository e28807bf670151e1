// Ranks over OpenMPI, by messages between pairs: with a handful of ranks that is as fast as its
// collectives, and a wait that takes too long can say for whom. MPI sees nothing but bytes.
// Once a wait has failed, MPI is not called again; the process is expected to end. The same where
// an exception ends this rank: MPI_Finalize waits for all ranks, and the others may be in a call
// that waits for this one. What started the ranks ends those when this process has ended.
#include <mpi.h>
#include <sched.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <thread>

#include "common/base/check.h"
#include "common/base/result.h"
#include "common/collective/collective.h"

namespace foretoken {
namespace {

constexpr int kTag = 1;
// A waiting rank first spins, as an answer is microseconds away, then yields, as others may need
// the core, then sleeps.
constexpr auto kSpin = std::chrono::microseconds(20);
constexpr auto kYield = std::chrono::milliseconds(20);
constexpr auto kNap = std::chrono::microseconds(200);
constexpr auto kLull = std::chrono::milliseconds(200);  // nothing runs: longer naps
constexpr auto kLongNap = std::chrono::milliseconds(1);

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw FatalError(ErrorCode::kUnavailable,
                   std::string(what) + ": " + std::string(text, static_cast<std::size_t>(length)));
}

int count_of(std::size_t n_bytes) {
  FORETOKEN_CHECK(n_bytes <= static_cast<std::size_t>(std::numeric_limits<int>::max()),
                  "one message between ranks is at most 2 GiB");
  return static_cast<int>(n_bytes);
}

class MpiRanks final : public Collective {
 public:
  explicit MpiRanks(int n_expected) {
    // Its handlers print a stack, which allocates and takes the loader's lock: a rank that crashed
    // while it held either would hang there instead of ending.
    ::setenv("OMPI_MCA_opal_signal", "", 1);
    int provided = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init");
    check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI");
    check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
    if (size_ != n_expected)
      throw FatalError(ErrorCode::kConfig, "tensor_parallel is " + std::to_string(n_expected) +
                                               ", but " + std::to_string(size_) +
                                               (size_ == 1 ? " rank was" : " ranks were") +
                                               " started; the two must be equal");
  }
  ~MpiRanks() override {
    if (!has_failed_ && std::uncaught_exceptions() == n_exceptions_) MPI_Finalize();
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

 private:
  void do_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    const std::size_t n = mine.size();
    std::memmove(all.data() + static_cast<std::size_t>(rank_) * n, mine.data(), n);
    for (int r = 0; r < size_; ++r)
      if (r != rank_) receive(r, all.subspan(static_cast<std::size_t>(r) * n, n));
    for (int step = 1; step < size_; ++step) send((rank_ + step) % size_, mine);
    wait_for_all();
  }

  void do_broadcast(std::vector<std::byte>& bytes) override {
    std::uint64_t n = bytes.size();
    const auto size = std::as_writable_bytes(std::span(&n, 1));
    if (rank_ != 0) {
      receive(0, size);
      wait_for_all();
      bytes.resize(n);
      if (n > 0) receive(0, bytes);
      return wait_for_all();
    }
    for (int r = 1; r < size_; ++r) {
      send(r, size);
      if (n > 0) send(r, bytes);
    }
    wait_for_all();
  }

  void send(int to, std::span<const std::byte> bytes) {
    check(MPI_Isend(bytes.data(), count_of(bytes.size()), MPI_BYTE, to, kTag, MPI_COMM_WORLD,
                    open(to)),
          "MPI_Isend");
  }
  void receive(int from, std::span<std::byte> bytes) {
    check(MPI_Irecv(bytes.data(), count_of(bytes.size()), MPI_BYTE, from, kTag, MPI_COMM_WORLD,
                    open(from)),
          "MPI_Irecv");
  }
  MPI_Request* open(int peer) {
    peers_.push_back(peer);
    requests_.push_back(MPI_REQUEST_NULL);
    return &requests_.back();
  }
  void check(int code, const char* what) {
    has_failed_ = has_failed_ || code != MPI_SUCCESS;
    check_mpi(code, what);
  }

  void wait_for_all() {
    const TimePoint begin = steady_now();
    while (true) {
      int done = 0;
      check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done,
                        MPI_STATUSES_IGNORE),
            "a message between ranks");
      if (done != 0) break;
      const Duration waited = steady_now() - begin;
      if (patience() > Duration{} && waited > patience()) give_up(waited);
      if (waited > kYield)
        std::this_thread::sleep_for(waited > kLull ? Duration(kLongNap) : Duration(kNap));
      else if (waited > kSpin)
        ::sched_yield();
    }
    requests_.clear();
    peers_.clear();
  }

  [[noreturn]] void give_up(Duration waited) {
    has_failed_ = true;
    std::string silent;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      int done = 0;
      MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE);
      const std::string name = std::to_string(peers_[i]);
      if (done == 0 && silent.find(name) == std::string::npos)
        silent += (silent.empty() ? "" : ", ") + name;
    }
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(waited).count();
    throw FatalError(ErrorCode::kUnavailable, "rank " + std::to_string(rank_) + " has waited " +
                                                  std::to_string(ms) + " ms for rank " + silent);
  }

  int rank_ = 0;
  int size_ = 0;
  bool has_failed_ = false;
  const int n_exceptions_ = std::uncaught_exceptions();
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;  // beside requests_
};

}  // namespace

std::unique_ptr<Collective> make_mpi_collective(int n_expected) {
  return std::make_unique<MpiRanks>(n_expected);
}

}  // namespace foretoken
