#include "kernels/cuda/boards.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/base/hash.h"
#include "common/base/result.h"
#include "kernels/board_card.h"
#include "kernels/cuda/board_place.h"

namespace foretoken::cuda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr BoardKind kKind{'F', 'T', 'K', 'N', ' ', 'c', 'u', 'd', 'a', ' ', '1'};
// A host that waits for a step asks without a break for as long as steps take, then seldom.
constexpr std::chrono::milliseconds kEager{50};
constexpr std::chrono::microseconds kBreak{50};
// What a view gives what it has queued before it leaves the memory mapped.
constexpr std::chrono::seconds kLastWait{1};

struct Card {
  BoardKind kind{};
  BoardNonce nonce{};
  std::array<char, 32> device{};
  PlaceHandles handles;
  std::int32_t pid = 0;
  std::int32_t n_entries = 0;
  std::uint64_t sum = 0;  // of all before: the driver is not asked to open what was damaged
};
static_assert(sizeof(Card) == 208 && sizeof(Card) <= VerdictBoard::kMostCard);

std::uint64_t sum_of(const Card& card) {
  return fnv1a({reinterpret_cast<const char*>(&card), offsetof(Card, sum)});
}

std::array<char, 32> device_name(Runtime& runtime) {
  std::array<char, 32> name{};
  device_of(runtime).copy(name.data(), name.size());
  return name;
}

// The boards of this process: CUDA does not open a process's own handles.
class OwnBoards {
 public:
  void add(const BoardNonce& nonce, std::weak_ptr<BoardPlace> place) {
    const std::lock_guard lock(mutex_);
    places_[nonce] = std::move(place);
  }
  void remove(const BoardNonce& nonce) {
    const std::lock_guard lock(mutex_);
    places_.erase(nonce);
  }
  std::shared_ptr<BoardPlace> find(const BoardNonce& nonce) {
    const std::lock_guard lock(mutex_);
    const auto at = places_.find(nonce);
    return at == places_.end() ? nullptr : at->second.lock();
  }

 private:
  std::mutex mutex_;
  std::map<BoardNonce, std::weak_ptr<BoardPlace>> places_;
};

OwnBoards& own_boards() {
  static auto& boards = *new OwnBoards;  // outlives every backend
  return boards;
}

BoardEntry* entries_of(const BoardPlace& place) {
  return reinterpret_cast<BoardEntry*>(static_cast<std::byte*>(place.memory()) + sizeof(BoardHead));
}

class CudaBoard final : public VerdictBoard {
 public:
  CudaBoard(Runtime& runtime,
            const bool& is_recording,
            std::shared_ptr<BoardPlace> place,
            const Card& card)
      : runtime_(runtime), is_recording_(is_recording), place_(std::move(place)), card_(card) {
    own_boards().add(card_.nonce, place_);
  }
  ~CudaBoard() override { own_boards().remove(card_.nonce); }
  BoardEntry* entries() const override { return entries_of(*place_); }
  std::int32_t n_entries() const override { return card_.n_entries; }
  std::span<const std::byte> card() const override { return std::as_bytes(std::span(&card_, 1)); }
  void mark() override {
    FORETOKEN_CHECK(!is_recording_, "marks are not recorded");
    place_->mark(runtime_);
  }

 private:
  Runtime& runtime_;
  const bool& is_recording_;
  std::shared_ptr<BoardPlace> place_;
  Card card_;
};

class CudaBoardView final : public BoardView {
 public:
  CudaBoardView(Runtime& runtime,
                const bool& is_recording,
                std::shared_ptr<BoardPlace> place,
                std::int32_t n_entries)
      : runtime_(runtime),
        is_recording_(is_recording),
        place_(std::move(place)),
        n_entries_(n_entries) {}
  ~CudaBoardView() override {
    bool is_unused = false;
    try {
      is_unused = is_idle_within(kLastWait);
    } catch (const FatalError&) {  // the device has failed: nothing is certain
    }
    // Something may still read there, if its wait ever ends: then the memory stays to the end.
    if (!is_unused) new std::shared_ptr<BoardPlace>(std::move(place_));
  }
  const BoardEntry* entries() const override { return entries_of(*place_); }
  std::int32_t n_entries() const override { return n_entries_; }
  void wait() override {
    FORETOKEN_CHECK(!is_recording_, "waits are not recorded");
    place_->wait(runtime_);
  }
  bool settled(std::chrono::nanoseconds limit) override {
    if (is_idle_within(limit)) return true;
    runtime_.abandon();
    return false;
  }

 private:
  bool is_idle_within(std::chrono::nanoseconds limit) {
    for (const auto begin = Clock::now(); !is_idle(runtime_);) {
      const auto spent = Clock::now() - begin;
      if (spent >= limit) return false;
      if (spent < kEager)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(kBreak);
    }
    return true;
  }

  Runtime& runtime_;
  const bool& is_recording_;
  std::shared_ptr<BoardPlace> place_;
  std::int32_t n_entries_;
};

std::optional<Card> read(Runtime& runtime, std::span<const std::byte> bytes, std::string& why) {
  auto card = read_card<Card>(bytes, kKind, why);
  if (!card) return std::nullopt;
  if (card->sum != sum_of(*card)) {
    why = "the board's card was damaged";
    return std::nullopt;
  }
  if (card->device != device_name(runtime)) {
    why = "the board is on another device than this one";
    return std::nullopt;
  }
  return card;
}

std::unique_ptr<BoardView> open_board_of(Runtime& runtime,
                                         const bool& is_recording,
                                         const Card& card,
                                         std::string& why) {
  std::shared_ptr<BoardPlace> place = own_boards().find(card.nonce);
  if (place == nullptr) place = open_place(runtime, card.handles, why);
  if (place == nullptr) {
    why = "the board of process " + std::to_string(card.pid) + " is out of reach: " + why;
    return nullptr;
  }
  BoardHead head;
  runtime.download(&head, place->memory(), sizeof head);
  if (!is_head_of(head, kKind, card.nonce, card.n_entries)) {
    why = "process " + std::to_string(card.pid) + " has other memory in the board's place";
    return nullptr;
  }
  return std::make_unique<CudaBoardView>(runtime, is_recording, std::move(place), card.n_entries);
}

}  // namespace

std::unique_ptr<VerdictBoard> make_board(Runtime& runtime,
                                         const bool& is_recording,
                                         std::int32_t n_entries,
                                         std::string& why) {
  const auto nonce = new_board_nonce();
  if (!nonce) {
    why = "the system has no random numbers";
    return nullptr;
  }
  Card card{.kind = kKind,
            .nonce = *nonce,
            .pid = static_cast<std::int32_t>(::getpid()),
            .n_entries = n_entries};
  try {
    card.device = device_name(runtime);
    auto place = make_place(runtime, board_bytes(n_entries), card.handles, why);
    if (place == nullptr) return nullptr;
    card.sum = sum_of(card);
    std::vector<std::byte> bytes(board_bytes(n_entries));
    const BoardHead head{.kind = kKind, .nonce = *nonce, .n_entries = n_entries};
    std::memcpy(bytes.data(), &head, sizeof head);
    std::uninitialized_default_construct_n(
        reinterpret_cast<BoardEntry*>(bytes.data() + sizeof head), n_entries);
    runtime.upload(place->memory(), bytes.data(), bytes.size());
    runtime.synchronize();
    return std::make_unique<CudaBoard>(runtime, is_recording, std::move(place), card);
  } catch (const FatalError& error) {
    why = error.what();
    return nullptr;
  }
}

std::unique_ptr<BoardView> open_board(Runtime& runtime,
                                      const bool& is_recording,
                                      std::span<const std::byte> bytes,
                                      std::string& why) {
  try {
    const auto card = read(runtime, bytes, why);
    return card ? open_board_of(runtime, is_recording, *card, why) : nullptr;
  } catch (const FatalError& error) {
    why = error.what();
    return nullptr;
  }
}

}  // namespace foretoken::cuda
