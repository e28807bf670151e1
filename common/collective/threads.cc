#include <condition_variable>
#include <cstring>
#include <mutex>

#include "common/base/result.h"
#include "common/collective/collective.h"

namespace foretoken {
namespace {

// What the ranks share: a barrier that all must reach before any leaves, and a table in which each
// puts its bytes.
class Barrier {
 public:
  explicit Barrier(int n_ranks) : n_ranks_(n_ranks), table_(static_cast<std::size_t>(n_ranks)) {}

  void put(int rank, std::span<const std::byte> bytes) {
    table_[static_cast<std::size_t>(rank)] = bytes;
  }
  std::span<const std::byte> at(int rank) const { return table_[static_cast<std::size_t>(rank)]; }
  int n_ranks() const { return n_ranks_; }

  void wait_for_all(Duration patience) {
    std::unique_lock lock(mutex_);
    const std::uint64_t turn = turn_;
    if (++n_here_ == n_ranks_) {
      n_here_ = 0;
      ++turn_;
      all_here_.notify_all();
      return;
    }
    const auto has_turned = [&] { return turn_ != turn; };
    if (patience == Duration{}) return all_here_.wait(lock, has_turned);
    if (!all_here_.wait_for(lock, patience, has_turned))
      throw FatalError(ErrorCode::kUnavailable, "a rank did not arrive in time");
  }

 private:
  const int n_ranks_;
  std::vector<std::span<const std::byte>> table_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  int n_here_ = 0;
  std::uint64_t turn_ = 0;
};

class ThreadRank final : public Collective {
 public:
  ThreadRank(std::shared_ptr<Barrier> barrier, int rank)
      : barrier_(std::move(barrier)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return barrier_->n_ranks(); }

 private:
  void do_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    barrier_->put(rank_, mine);
    barrier_->wait_for_all(patience());
    for (int r = 0; r < size(); ++r)
      std::memcpy(all.data() + static_cast<std::size_t>(r) * mine.size(), barrier_->at(r).data(),
                  mine.size());
    barrier_->wait_for_all(patience());
  }

  void do_broadcast(std::vector<std::byte>& bytes) override {
    if (rank_ == 0) barrier_->put(0, bytes);
    barrier_->wait_for_all(patience());
    if (rank_ != 0) bytes.assign(barrier_->at(0).begin(), barrier_->at(0).end());
    barrier_->wait_for_all(patience());
  }

  std::shared_ptr<Barrier> barrier_;  // shared: no rank knows who leaves last
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Collective>> make_thread_collectives(int n_ranks) {
  const auto barrier = std::make_shared<Barrier>(n_ranks);
  std::vector<std::unique_ptr<Collective>> ranks;
  for (int r = 0; r < n_ranks; ++r) ranks.push_back(std::make_unique<ThreadRank>(barrier, r));
  return ranks;
}

}  // namespace foretoken
