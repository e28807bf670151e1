#include "kernels/cpu/board.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "common/base/fd.h"
#include "common/base/shared_region.h"
#include "kernels/board_card.h"

namespace foretoken::cpu {
namespace {

constexpr BoardKind kKind{'F', 'T', 'K', 'N', ' ', 'c', 'p', 'u', ' ', '1'};

struct Card {
  BoardKind kind{};
  BoardNonce nonce{};
  std::int32_t pid = 0;
  std::int32_t fd = -1;
  std::int64_t n_entries = 0;
};
static_assert(sizeof(Card) == 48 && sizeof(Card) <= VerdictBoard::kMostCard);

BoardEntry* entries_of(const SharedRegion& region) {
  return reinterpret_cast<BoardEntry*>(region.data() + sizeof(BoardHead));
}

class CpuBoard final : public VerdictBoard {
 public:
  CpuBoard(SharedRegion region, const Card& card) : region_(std::move(region)), card_(card) {}
  BoardEntry* entries() const override { return entries_of(region_); }
  std::int32_t n_entries() const override { return static_cast<std::int32_t>(card_.n_entries); }
  std::span<const std::byte> card() const override { return std::as_bytes(std::span(&card_, 1)); }
  void mark() override {}

 private:
  SharedRegion region_;  // its file stays open as long as somebody may come with the card
  Card card_;
};

class CpuBoardView final : public BoardView {
 public:
  CpuBoardView(SharedRegion region, std::int32_t n_entries)
      : region_(std::move(region)), n_entries_(n_entries) {}
  const BoardEntry* entries() const override { return entries_of(region_); }
  std::int32_t n_entries() const override { return n_entries_; }
  void wait() override {}
  bool settled(std::chrono::nanoseconds) override { return true; }

 private:
  SharedRegion region_;
  std::int32_t n_entries_;
};

std::string cannot(const std::string& what) { return what + ": " + std::strerror(errno); }

// The owner's file, looked at before it is opened: opening some kinds of files does something.
Fd open_file(const Card& card, const std::string& place, std::string& why) {
  const Fd there(::open(place.c_str(), O_PATH | O_CLOEXEC));
  if (!there) {
    why = cannot("the board's owner, process " + std::to_string(card.pid) +
                 ", is gone or out of reach");
    return {};
  }
  struct stat status {};
  struct statfs where {};
  if (::fstat(there.get(), &status) != 0 || ::fstatfs(there.get(), &where) != 0 ||
      !S_ISREG(status.st_mode) || where.f_type != TMPFS_MAGIC) {
    why = place + " is not memory of the kind that boards are made of";
    return {};
  }
  const std::string same = "/proc/self/fd/" + std::to_string(there.get());
  Fd file(::open(same.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) why = cannot("opening " + place);
  return file;
}

}  // namespace

std::unique_ptr<VerdictBoard> make_board(std::int32_t n_entries, std::string& why) {
  auto region = SharedRegion::make("foretoken-board", board_bytes(n_entries));
  if (!region.ok()) {
    why = "memory for a board: " + region.error().message;
    return nullptr;
  }
  const auto nonce = new_board_nonce();
  if (!nonce) {
    why = cannot("random numbers for a board");
    return nullptr;
  }
  const BoardHead head{.kind = kKind, .nonce = *nonce, .n_entries = n_entries};
  std::memcpy(region->data(), &head, sizeof head);
  std::uninitialized_default_construct_n(entries_of(*region), n_entries);
  const Card card{.kind = kKind,
                  .nonce = *nonce,
                  .pid = static_cast<std::int32_t>(::getpid()),
                  .fd = region->fd(),
                  .n_entries = n_entries};
  return std::make_unique<CpuBoard>(std::move(*region), card);
}

std::unique_ptr<BoardView> open_board(std::span<const std::byte> bytes, std::string& why) {
  const auto card = read_card<Card>(bytes, kKind, why);
  if (!card) return nullptr;
  const std::string place =
      "/proc/" + std::to_string(card->pid) + "/fd/" + std::to_string(card->fd);
  Fd file = open_file(*card, place, why);
  if (!file) return nullptr;
  const auto n_entries = static_cast<std::int32_t>(card->n_entries);
  auto region = SharedRegion::adopt(std::move(file), board_bytes(n_entries));
  if (!region.ok()) {
    why = place + ": " + region.error().message;
    return nullptr;
  }
  BoardHead head;
  std::memcpy(&head, region->data(), sizeof head);
  if (!is_head_of(head, kKind, card->nonce, n_entries)) {
    why = "process " + std::to_string(card->pid) + " has other memory in the board's place";
    return nullptr;
  }
  return std::make_unique<CpuBoardView>(std::move(*region), n_entries);
}

}  // namespace foretoken::cpu
