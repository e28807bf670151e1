#include <condition_variable>
#include <cstring>
#include <mutex>

#include "common/base/result.h"
#include "common/collective/collective.h"

namespace foretoken {
namespace {

// What the ranks share: a barrier that all must reach before any leaves, and a table
// where each shows what it brought.
class Meeting {
 public:
  explicit Meeting(int n_ranks) : n_ranks_(n_ranks), table_(static_cast<std::size_t>(n_ranks)) {}

  void show(int rank, std::span<const std::byte> bytes) {
    table_[static_cast<std::size_t>(rank)] = bytes;
  }
  std::span<const std::byte> shown(int rank) const {
    return table_[static_cast<std::size_t>(rank)];
  }
  int n_ranks() const { return n_ranks_; }

  void meet(Duration patience) {
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
      throw FatalError(ErrorCode::kUnavailable, "a rank did not come in time");
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
  ThreadRank(std::shared_ptr<Meeting> meeting, int rank)
      : meeting_(std::move(meeting)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return meeting_->n_ranks(); }

 private:
  void do_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    meeting_->show(rank_, mine);
    meeting_->meet(patience());
    for (int r = 0; r < size(); ++r)
      std::memcpy(all.data() + static_cast<std::size_t>(r) * mine.size(), meeting_->shown(r).data(),
                  mine.size());
    meeting_->meet(patience());
  }

  void do_broadcast(std::vector<std::byte>& bytes) override {
    if (rank_ == 0) meeting_->show(0, bytes);
    meeting_->meet(patience());
    if (rank_ != 0) bytes.assign(meeting_->shown(0).begin(), meeting_->shown(0).end());
    meeting_->meet(patience());
  }

  std::shared_ptr<Meeting> meeting_;  // shared: no rank knows who leaves last
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Collective>> make_thread_collectives(int n_ranks) {
  const auto meeting = std::make_shared<Meeting>(n_ranks);
  std::vector<std::unique_ptr<Collective>> ranks;
  for (int r = 0; r < n_ranks; ++r) ranks.push_back(std::make_unique<ThreadRank>(meeting, r));
  return ranks;
}

}  // namespace foretoken
