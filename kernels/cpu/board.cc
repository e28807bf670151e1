#include "kernels/cpu/board.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "common/base/fd.h"
#include "kernels/board_card.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010  // Linux 5.1
#endif

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

std::string cannot(const std::string& what) { return what + ": " + std::strerror(errno); }

class Mapping {
 public:
  Mapping() = default;
  Mapping(int fd, std::size_t n_bytes, int how, int flags) : size_(n_bytes) {
    void* at = ::mmap(nullptr, n_bytes, how, MAP_SHARED | flags, fd, 0);
    if (at != MAP_FAILED) data_ = static_cast<std::byte*>(at);
  }
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }
  explicit operator bool() const { return data_ != nullptr; }
  std::byte* data() const { return data_; }
  BoardEntry* entries() const { return reinterpret_cast<BoardEntry*>(data_ + sizeof(BoardHead)); }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

class CpuBoard final : public VerdictBoard {
 public:
  CpuBoard(Fd file, Mapping memory, const Card& card)
      : file_(std::move(file)), memory_(std::move(memory)), card_(card) {}
  BoardEntry* entries() const override { return memory_.entries(); }
  std::int32_t n_entries() const override { return static_cast<std::int32_t>(card_.n_entries); }
  std::span<const std::byte> card() const override { return std::as_bytes(std::span(&card_, 1)); }
  void mark() override {}

 private:
  Fd file_;  // open as long as somebody may come with the card
  Mapping memory_;
  Card card_;
};

class CpuBoardView final : public BoardView {
 public:
  CpuBoardView(Mapping memory, std::int32_t n_entries)
      : memory_(std::move(memory)), n_entries_(n_entries) {}
  const BoardEntry* entries() const override { return memory_.entries(); }
  std::int32_t n_entries() const override { return n_entries_; }
  void wait() override {}
  bool settled(std::chrono::nanoseconds) override { return true; }

 private:
  Mapping memory_;
  std::int32_t n_entries_;
};

Fd new_file(std::size_t n_bytes) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  // Some systems allow files without the right to execute alone, older ones do not know of it.
  int made = ::memfd_create("foretoken-board", kFlags | MFD_NOEXEC_SEAL);
  if (made < 0 && errno == EINVAL) made = ::memfd_create("foretoken-board", kFlags);
  Fd file(made);
  if (file && ::ftruncate(file.get(), static_cast<off_t>(n_bytes)) != 0) return Fd();
  return file;
}

// The owner's file, looked at before it is opened: opening some kinds of files does something.
Fd open_file(const Card& card, std::size_t n_bytes, std::string& why) {
  const std::string place = "/proc/" + std::to_string(card.pid) + "/fd/" + std::to_string(card.fd);
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
  if (!file) {
    why = cannot("opening " + place);
    return {};
  }
  // Nobody may cut it short under our feet.
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    why = place + " is not sealed memory";
    return {};
  }
  if (::fstat(file.get(), &status) != 0 || status.st_size != static_cast<off_t>(n_bytes)) {
    why = place + " has another size than the board's card says";
    return {};
  }
  return file;
}

}  // namespace

std::unique_ptr<VerdictBoard> make_board(std::int32_t n_entries, std::string& why) {
  const std::size_t n_bytes = board_bytes(n_entries);
  Fd file = new_file(n_bytes);
  if (!file) {
    why = cannot("memory for a board");
    return nullptr;
  }
  Mapping memory(file.get(), n_bytes, PROT_READ | PROT_WRITE, MAP_POPULATE);
  const auto nonce = new_board_nonce();
  if (!memory || !nonce) {
    why = cannot("memory for a board");
    return nullptr;
  }
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    why = cannot("sealing a board's memory");
    return nullptr;
  }
  // Nobody but us needs to write; a kernel without this seal leaves it to their manners.
  (void)::fcntl(file.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  (void)::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SEAL);
  const BoardHead head{.kind = kKind, .nonce = *nonce, .n_entries = n_entries};
  std::memcpy(memory.data(), &head, sizeof head);
  std::uninitialized_default_construct_n(memory.entries(), n_entries);
  const Card card{.kind = kKind,
                  .nonce = *nonce,
                  .pid = static_cast<std::int32_t>(::getpid()),
                  .fd = file.get(),
                  .n_entries = n_entries};
  return std::make_unique<CpuBoard>(std::move(file), std::move(memory), card);
}

std::unique_ptr<BoardView> open_board(std::span<const std::byte> bytes, std::string& why) {
  const auto card = read_card<Card>(bytes, kKind, why);
  if (!card) return nullptr;
  const auto n_entries = static_cast<std::int32_t>(card->n_entries);
  const std::size_t n_bytes = board_bytes(n_entries);
  const Fd file = open_file(*card, n_bytes, why);
  if (!file) return nullptr;
  Mapping memory(file.get(), n_bytes, PROT_READ, 0);
  if (!memory) {
    why = cannot("mapping a board's memory");
    return nullptr;
  }
  BoardHead head;
  std::memcpy(&head, memory.data(), sizeof head);
  if (!is_head_of(head, kKind, card->nonce, n_entries)) {
    why = "process " + std::to_string(card->pid) + " has other memory in the board's place";
    return nullptr;
  }
  return std::make_unique<CpuBoardView>(std::move(memory), n_entries);
}

}  // namespace foretoken::cpu
