#include "kernels/cuda/rank_sums.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <functional>
#include <vector>

#include "common/base/result.h"
#include "kernels/cuda/nccl.h"
#include "kernels/cuda/sum_ranks.h"
#include "kernels/device/peer_memory.h"

namespace foretoken::cuda {
namespace {

template <class T>
std::vector<T> gather(const RankLinks& links, const T& mine) {
  const auto bytes = links.gather(std::as_bytes(std::span(&mine, 1)));
  std::vector<T> all(static_cast<std::size_t>(links.n_ranks));
  std::memcpy(all.data(), bytes.data(), sizeof(T) * all.size());
  return all;
}

// The sentence of the first rank that has one; empty if all are well.
std::string first_complaint(const RankLinks& links, const std::string& mine) {
  std::array<char, 200> text{};
  mine.copy(text.data(), text.size() - 1);
  const auto all = gather(links, text);
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r][0] != '\0') return "rank " + std::to_string(r) + ": " + all[r].data();
  return "";
}

// This boot of this host: containers of one host have the same.
std::array<char, 40> boot_id() {
  std::array<char, 40> id{};
  std::ifstream("/proc/sys/kernel/random/boot_id").read(id.data(), 36);
  return id;
}

// --- Each rank writes into the memory of the others.

class OneShot {
 public:
  explicit OneShot(Runtime& runtime) : runtime_(runtime) {}
  ~OneShot() {
    for (std::size_t r = 0; r < inboxes_.size(); ++r)
      if (inboxes_[r] != nullptr && inboxes_[r] != inbox_) close_peer(runtime_, inboxes_[r]);
    if (inbox_ != nullptr) runtime_.free(inbox_);
  }
  OneShot(const OneShot&) = delete;
  OneShot& operator=(const OneShot&) = delete;

  // Every rank calls it; empty on all of them, or a complaint on all.
  std::string join(const RankLinks& links) {
    struct Invitation {
      std::array<char, 40> boot;
      MemoryHandle handle;
    };
    if (links.n_ranks > kMostPeers)
      return "at most " + std::to_string(kMostPeers) + " ranks write to one another";
    args_.rank = links.rank;
    args_.n_ranks = links.n_ranks;
    const auto n = static_cast<std::size_t>(inbox_bytes(links.n_ranks));
    inbox_ = runtime_.allocate(n + 256);  // zeroed; table and counters lie behind the packets
    Invitation mine{boot_id(), {}};
    std::string complaint = inbox_ == nullptr ? "no memory for an inbox" : "";
    if (complaint.empty()) mine.handle = handle_of(runtime_, inbox_);
    if (complaint.empty() && mine.handle == MemoryHandle{})
      complaint = "the driver does not share this device's memory";
    const auto all = gather(links, mine);
    complaint = first_complaint(links, complaint);
    if (!complaint.empty()) return complaint;
    for (int r = 0; r < links.n_ranks && complaint.empty(); ++r) {
      const Invitation& theirs = all[static_cast<std::size_t>(r)];
      if (theirs.boot != mine.boot) {
        complaint = "rank " + std::to_string(r) + " is on another host";
      } else if (r == links.rank) {
        inboxes_.push_back(inbox_);
      } else {
        inboxes_.push_back(open_peer(runtime_, theirs.handle, complaint));
      }
    }
    auto* behind = static_cast<std::byte*>(inbox_) + n;
    runtime_.upload(behind, inboxes_.data(), inboxes_.size() * sizeof(void*));
    runtime_.synchronize();
    args_.inboxes = reinterpret_cast<Packet* const*>(behind);
    args_.turn = reinterpret_cast<std::uint32_t*>(behind + 128);
    args_.n_done = args_.turn + 1;
    return first_complaint(links, complaint);  // and no rank writes before all are here
  }

  void add(const float* part, float* residual, std::int64_t n) {
    SumRanksArgs args = args_;
    for (std::int64_t first = 0; first < n; first += kOneShotBytes / 4) {
      args.part = part + first;
      args.residual = residual + first;
      args.n = std::min(n - first, kOneShotBytes / 4);
      sum_ranks(Launch{.runtime = runtime_}, args);
    }
  }

 private:
  Runtime& runtime_;
  void* inbox_ = nullptr;
  std::vector<void*> inboxes_;  // of each rank, as this device sees them
  SumRanksArgs args_;
};

// --- NCCL gathers; its own sums would depend on how many rows travel together.

std::string complaint_of(const std::function<void()>& attempt) {
  try {
    attempt();
    return "";
  } catch (const FatalError& error) {
    return error.what();
  }
}

class Gathered {
 public:
  explicit Gathered(Runtime& runtime) : runtime_(runtime) {}
  ~Gathered() {
    if (parts_ != nullptr) runtime_.free(parts_);
  }
  Gathered(const Gathered&) = delete;
  Gathered& operator=(const Gathered&) = delete;

  std::string join(const RankLinks& links) {
    n_ranks_ = links.n_ranks;
    most_ = std::min(links.most_floats, kMostFloats);
    std::string complaint;
    nccl_ = load_nccl(complaint);
    parts_ = runtime_.allocate(sizeof(float) * static_cast<std::size_t>(most_ * n_ranks_));
    if (parts_ == nullptr) complaint = "no memory for the parts of all ranks";
    complaint = first_complaint(links, complaint);
    if (!complaint.empty()) return complaint;
    runtime_.bind();
    NcclId id{};
    complaint = complaint_of([&] {
      if (links.rank == 0) id = nccl_->make_id();
    });
    complaint = first_complaint(links, complaint);
    if (!complaint.empty()) return complaint;
    complaint =
        complaint_of([&] { nccl_->join(gather(links, id).front(), links.rank, links.n_ranks); });
    return first_complaint(links, complaint);
  }

  void add(const float* part, float* residual, std::int64_t n) {
    for (std::int64_t first = 0; first < n; first += most_) {
      const std::int64_t now = std::min(n - first, most_);
      runtime_.bind();
      nccl_->all_gather(part + first, static_cast<float*>(parts_), now, runtime_.stream());
      sum_gathered(Launch{.runtime = runtime_}, {.parts = static_cast<const float*>(parts_),
                                                 .residual = residual + first,
                                                 .n = now,
                                                 .n_ranks = n_ranks_});
    }
  }
  std::string description() const { return nccl_->description(); }

 private:
  static constexpr std::int64_t kMostFloats = std::int64_t{16} << 20;
  Runtime& runtime_;
  std::unique_ptr<Nccl> nccl_;
  void* parts_ = nullptr;
  std::int64_t most_ = 0;
  int n_ranks_ = 1;
};

class DeviceSums final : public RankSums {
 public:
  DeviceSums(std::unique_ptr<OneShot> one_shot, std::unique_ptr<Gathered> gathered)
      : one_shot_(std::move(one_shot)), gathered_(std::move(gathered)) {}

  void add(const float* part, float* residual, std::int64_t n) override {
    const bool is_small = n * std::int64_t{sizeof(float)} <= kOneShotBytes;
    if (one_shot_ != nullptr && (is_small || gathered_ == nullptr))
      return one_shot_->add(part, residual, n);
    gathered_->add(part, residual, n);
  }
  std::string description() const override {
    std::string above = gathered_ != nullptr ? gathered_->description() : "";
    if (one_shot_ == nullptr) return above;
    return "one-shot through peers' memory" +
           (above.empty() ? "" : ", " + above + " above 512 KiB");
  }

 private:
  std::unique_ptr<OneShot> one_shot_;
  std::unique_ptr<Gathered> gathered_;
};

[[noreturn]] void cannot(const char* tier, const std::string& why) {
  throw FatalError(ErrorCode::kUnavailable,
                   std::string("sums over ranks were to be taken by ") + tier + ", but " + why);
}

}  // namespace

std::unique_ptr<RankSums> join_ranks(Runtime& runtime, const RankLinks& links) {
  // Until these have run on several cards, the host serves.
  if (links.tier == RankTier::kAuto || links.tier == RankTier::kHost) return nullptr;
  auto gathered = std::make_unique<Gathered>(runtime);
  if (links.tier == RankTier::kNccl) {
    if (const auto why = gathered->join(links); !why.empty()) cannot("NCCL", why);
    return std::make_unique<DeviceSums>(nullptr, std::move(gathered));
  }
  auto one_shot = std::make_unique<OneShot>(runtime);
  if (const auto why = one_shot->join(links); !why.empty()) cannot("one shot", why);
  if (!gathered->join(links).empty()) gathered.reset();
  return std::make_unique<DeviceSums>(std::move(one_shot), std::move(gathered));
}

}  // namespace foretoken::cuda
