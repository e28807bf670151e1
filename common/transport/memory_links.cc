#include "common/transport/memory_links.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "common/base/check.h"
#include "common/transport/file_lock.h"
#include "common/transport/shared_region.h"
#include "common/transport/shared_ring.h"

namespace foretoken {
namespace {

// What each side sends once, with the descriptor of its region.
struct Greeting {
  std::array<char, 8> magic{'F', 'T', 'K', 'N', 'S', 'H', 'M', '1'};
  std::uint32_t ring_bytes = 0;
  std::uint32_t unused = 0;
};
static_assert(sizeof(Greeting) == 16);

constexpr std::uint32_t kLeastRing = 4096;
constexpr std::uint32_t kLargestRing = 1 << 20;  // a peer's counts as ours once we touch it
constexpr int kBacklog = 64;
constexpr int kAcceptsAtOnce = 16;
constexpr std::size_t kMostIdleBells = 4096;                    // rings without a message, in a row
constexpr Duration kLookEvery = std::chrono::milliseconds(20);  // at the sockets, however busy

std::string failure(const std::string& what) { return what + ": " + std::strerror(errno); }

sockaddr_un address_of(const std::string& endpoint) {
  const std::string path = endpoint.substr(MemoryLinks::kScheme.size());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.front() != '/' || path.size() >= sizeof address.sun_path)
    throw FatalError(ErrorCode::kConfig, "\"" + endpoint + "\" must be shm:///PATH with at most " +
                                             std::to_string(sizeof address.sun_path - 1) +
                                             " characters of path");
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

int new_socket() {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) throw FatalError(ErrorCode::kIo, failure("a Unix socket"));
  return fd;
}

bool send_greeting(int socket, std::uint32_t ring_bytes, int region) {
  Greeting greeting;
  greeting.ring_bytes = ring_bytes;
  iovec data{&greeting, sizeof greeting};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* attached = CMSG_FIRSTHDR(&message);
  attached->cmsg_level = SOL_SOCKET;
  attached->cmsg_type = SCM_RIGHTS;
  attached->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(attached), &region, sizeof region);
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof greeting);
}

// Every descriptor that came with a message, for there may be more than were asked for.
std::vector<int> descriptors_of(msghdr& message) {
  std::vector<int> found;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t n = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < n; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      found.push_back(fd);
    }
  }
  return found;
}

struct Received {
  ssize_t n_bytes = -1;
  Greeting greeting;
  int region = -1;  // the caller's to close
};

Received receive_greeting(int socket) {
  Received received;
  iovec data{&received.greeting, sizeof received.greeting};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  received.n_bytes = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (received.n_bytes < 0) return received;
  const std::vector<int> came = descriptors_of(message);
  if (came.size() == 1) {
    received.region = came.front();
  } else {
    for (const int fd : came) ::close(fd);
  }
  return received;
}

}  // namespace

struct MemoryLinks::Door {
  SocketId id = 0;
  int fd = -1;
  std::string path;
  FileLock lock;  // nobody else's door is taken away, and nobody takes ours
  ~Door() {
    if (fd >= 0) ::close(fd);
    if (!path.empty()) ::unlink(path.c_str());
  }
};

struct MemoryLinks::Link {
  Peer peer;
  int fd = -1;
  bool dialled = false;
  bool is_open = false;
  bool has_spoken = false;
  TimePoint since{};                    // it is connected, or open
  std::optional<TimePoint> full_since;  // the ring was full, and nothing of it has been read since
  std::uint64_t full_read_to = 0;       // what had been read then
  std::size_t idle_bells = 0;
  SharedRegion own;
  SharedRegion other;
  std::optional<RingWriter> writer;
  std::optional<RingReader> reader;
  std::optional<End> end;  // doomed
  std::string why;

  ~Link() {
    if (fd >= 0) ::close(fd);
  }
  void was_full(TimePoint now) {
    const std::uint64_t read_to = writer->read_to();
    if (full_since && read_to == full_read_to) return;
    full_since = now;
    full_read_to = read_to;
  }
  // One that is open and has said nothing may only be unheard: we had no time for its ring.
  bool is_silent() const { return !has_spoken && !(is_open && reader->has_something()); }
  RingHead& own_head() const { return *std::launder(reinterpret_cast<RingHead*>(own.data())); }
  const RingHead& other_head() const {
    return *std::launder(reinterpret_cast<const RingHead*>(other.data()));
  }
};

MemoryLinks::MemoryLinks(MemoryLinkOptions options) : options_(std::move(options)) {
  FORETOKEN_CHECK(std::has_single_bit(options_.ring_bytes) && options_.ring_bytes >= kLeastRing &&
                      options_.ring_bytes <= kLargestRing,
                  "a ring has a power of two of bytes");
}

MemoryLinks::~MemoryLinks() {
  for (const auto& link : links_) unmap(*link);
}

std::string MemoryLinks::why_unavailable() {
  auto made = SharedRegion::make(kRingHeadBytes);
  if (!made.ok()) return made.error().message;
  const auto seen = SharedRegion::adopt(::dup(made->fd()), made->size());
  return seen.ok() ? "" : seen.error().message;
}

// ---- doors and connections

SocketId MemoryLinks::bind(const std::string& endpoint) {
  const sockaddr_un address = address_of(endpoint);
  auto door = std::make_unique<Door>();
  door->fd = new_socket();
  door->lock = FileLock(std::string(address.sun_path) + ".lock");
  // Nobody serves it: a file of a former life is in the way.
  ::unlink(address.sun_path);
  // Before binding: the file is never open to others, whatever the umask.
  ::fchmod(door->fd, 0600);
  if (::bind(door->fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw FatalError(ErrorCode::kIo, failure("cannot bind " + endpoint));
  door->path = address.sun_path;
  if (::listen(door->fd, kBacklog) != 0)
    throw FatalError(ErrorCode::kIo, failure("cannot listen at " + endpoint));
  door->id = ++last_id_;
  doors_.push_back(std::move(door));
  return last_id_;
}

SocketId MemoryLinks::connect(const std::string& endpoint) {
  const sockaddr_un address = address_of(endpoint);
  auto link = std::make_unique<Link>();
  link->fd = new_socket();
  link->dialled = true;
  if (::connect(link->fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw FatalError(ErrorCode::kUnavailable, failure("cannot connect to " + endpoint));
  link->own = value_or_throw(SharedRegion::make(kRingHeadBytes + options_.ring_bytes));
  new (link->own.data()) RingHead;
  if (!send_greeting(link->fd, static_cast<std::uint32_t>(options_.ring_bytes), link->own.fd()))
    throw FatalError(ErrorCode::kUnavailable, failure("cannot greet " + endpoint));
  link->since = clock_now();
  link->peer = {.socket = ++last_id_, .routing = {}};
  links_.push_back(std::move(link));
  return last_id_;
}

void MemoryLinks::close(SocketId socket) {
  for (const auto& link : links_)
    if (link->peer.socket == socket) unmap(*link);
  std::erase_if(links_, [&](const auto& link) { return link->peer.socket == socket; });
  std::erase_if(doors_, [&](const auto& door) { return door->id == socket; });
  std::erase_if(closed_, [&](const Delivery& event) { return event.peer.socket == socket; });
}

void MemoryLinks::hang_up(const Peer& peer) {
  for (const auto& link : links_)
    if (link->peer == peer) unmap(*link);
  std::erase_if(links_, [&](const auto& link) { return link->peer == peer; });
  std::erase_if(closed_, [&](const Delivery& event) { return event.peer == peer; });
}

MemoryLinks::Link* MemoryLinks::find(const Peer& peer) {
  const auto found = std::find_if(links_.begin(), links_.end(),
                                  [&](const auto& link) { return link->peer == peer; });
  return found == links_.end() || (*found)->end ? nullptr : found->get();
}

void MemoryLinks::accept_from(const Door& door, TimePoint now) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    const int fd = ::accept4(door.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    if (links_.size() >= kMaxLinks && !make_room()) {
      ::close(fd);
      ++counters_->refused;
      continue;
    }
    auto link = std::make_unique<Link>();
    link->fd = fd;
    link->since = now;
    link->peer = {.socket = door.id, .routing = std::to_string(++last_routing_)};
    links_.push_back(std::move(link));
  }
}

// Whoever has been silent for longest goes: people who only stand there shut nobody out.
bool MemoryLinks::make_room() {
  Link* longest = nullptr;
  for (const auto& link : links_)
    if (!link->dialled && !link->end && link->is_silent() &&
        (longest == nullptr || link->since < longest->since))
      longest = link.get();
  if (longest == nullptr) return false;
  doom(*longest, End::kBroken, "others waited for its place, and it said nothing");
  bury();
  return true;
}

void MemoryLinks::on_readable(Link& link) {
  if (link.is_open) return listen_to_bell(link);
  const Received received = receive_greeting(link.fd);
  if (received.n_bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const Greeting& greeting = received.greeting;
  const bool is_sound = received.n_bytes == static_cast<ssize_t>(sizeof greeting) &&
                        greeting.magic == Greeting{}.magic &&
                        std::has_single_bit(greeting.ring_bytes) &&
                        greeting.ring_bytes >= kLeastRing && greeting.ring_bytes <= kLargestRing;
  if (received.region < 0 || !is_sound) {
    if (received.region >= 0) ::close(received.region);
    return doom(link, received.n_bytes == 0 ? End::kLeft : End::kBroken,
                received.n_bytes == 0 ? "it left before greeting" : "it greeted in another way");
  }
  open(link, received.region, greeting.ring_bytes);
}

void MemoryLinks::open(Link& link, int fd, std::uint32_t ring_bytes) {
  auto other = SharedRegion::adopt(fd, kRingHeadBytes + ring_bytes);
  if (!other.ok()) return doom(link, End::kBroken, other.error().message);
  link.other = std::move(other).value();
  if (!link.dialled) greet_back(link);
  if (link.end) return;
  link.own.drop_fd();
  const std::size_t most = link.dialled ? kMostQuestions : kMostAnswers;
  link.writer.emplace(link.own.data() + kRingHeadBytes, options_.ring_bytes, link.own_head(),
                      link.other_head(), most);
  link.reader.emplace(link.other.data() + kRingHeadBytes, ring_bytes, link.own_head(),
                      link.other_head());
  link.is_open = true;
  link.since = clock_now();
  ++counters_->opened;
  if (options_.on_mapped)
    options_.on_mapped(link.own.data(), link.other.data(), link.own.size(), link.other.size());
}

void MemoryLinks::greet_back(Link& link) {
  auto own = SharedRegion::make(kRingHeadBytes + options_.ring_bytes);
  if (!own.ok()) return doom(link, End::kBroken, own.error().message);
  link.own = std::move(own).value();
  new (link.own.data()) RingHead;
  if (!send_greeting(link.fd, static_cast<std::uint32_t>(options_.ring_bytes), link.own.fd()))
    doom(link, End::kLeft, "it left before it was greeted");
}

void MemoryLinks::listen_to_bell(Link& link) {
  std::array<char, 256> rings{};
  // Without a place for them the kernel throws away what else may be attached.
  const ssize_t n = ::recv(link.fd, rings.data(), rings.size(), MSG_DONTWAIT);
  if (n == 0) return doom(link, End::kLeft, "it closed the link or died");
  if (n < 0) {
    if (errno != EAGAIN && errno != EINTR) doom(link, End::kLeft, failure("its bell"));
    return;
  }
  link.idle_bells += static_cast<std::size_t>(n);
  if (link.idle_bells > kMostIdleBells) doom(link, End::kBroken, "it rings without a message");
}

// ---- looking after them

void MemoryLinks::look(TimePoint now) {
  look_soon_ = false;
  look_at_ = now + kLookEvery;
  std::vector<pollfd> waiting;
  add_to(waiting);
  if (waiting.empty()) return;
  const bool any = ::poll(waiting.data(), waiting.size(), 0) > 0;
  const std::size_t n_doors = doors_.size();
  const std::size_t n_links = links_.size();
  for (std::size_t i = 0; any && i < n_links; ++i)
    if (waiting[n_doors + i].revents != 0 && !links_[i]->end) on_readable(*links_[i]);
  for (std::size_t i = 0; any && i < n_doors; ++i)
    if (waiting[i].revents != 0) accept_from(*doors_[i], now);
  for (const auto& link : links_)
    if (!link->end) check_patience(*link, now);
  bury();
}

void MemoryLinks::check_patience(Link& link, TimePoint now) const {
  if (now - link.since > options_.patience && !link.is_open)
    doom(link, End::kBroken, "it did not greet in time");
  else if (now - link.since > options_.patience && !link.dialled && link.is_silent())
    doom(link, End::kBroken, "it connected and said nothing");
  else if (link.full_since && link.writer->read_to() != link.full_read_to)
    link.full_since.reset();  // it reads, though nobody has written since
  else if (link.full_since && now - *link.full_since > options_.patience)
    doom(link, End::kBroken, "it does not read");
}

void MemoryLinks::doom(Link& link, End end, std::string why) {
  link.end = end;
  link.why = std::move(why);
}

void MemoryLinks::unmap(Link& link) {
  if (link.is_open && options_.on_unmapping)
    options_.on_unmapping(link.own.data(), link.other.data(), link.own.size(), link.other.size());
  link.is_open = false;
}

// A link that a service knows of ends with an event; nobody knows of one that never opened at a
// door.
void MemoryLinks::bury() {
  for (const auto& link : links_) {
    if (!link->end) continue;
    if (!link->is_open)
      ++counters_->refused;
    else
      ++(*link->end == End::kLeft ? counters_->ended : counters_->broken);
    if (link->dialled || link->has_spoken) {
      Delivery event;
      event.kind = DeliveryKind::kClosed;
      event.peer = link->peer;
      event.frames = {link->why};
      closed_.push_back(std::move(event));
    }
    unmap(*link);
  }
  std::erase_if(links_, [](const auto& link) { return link->end.has_value(); });
}

// ---- messages

SendResult MemoryLinks::send(const Peer& to, const Frames& frames) {
  Link* link = find(to);
  if (link == nullptr) return SendResult::kUnknown;
  if (!link->is_open) return SendResult::kBusy;
  switch (link->writer->write(frames)) {
    case RingWriter::Outcome::kTooLarge:
      ++counters_->busy;
      return SendResult::kBusy;
    case RingWriter::Outcome::kFull:
      ++counters_->busy;
      link->was_full(clock_now());
      return SendResult::kBusy;
    case RingWriter::Outcome::kTorn:
      doom(*link, End::kBroken, "it claims to have read what was never written");
      bury();
      return SendResult::kUnknown;
    case RingWriter::Outcome::kWritten:
      break;
  }
  ++counters_->sent;
  link->full_since.reset();
  if (!link->writer->must_wake()) return SendResult::kSent;
  const char ring = 1;
  // A full socket has rings in it that the peer has not heard yet: it will wake.
  if (::send(link->fd, &ring, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN &&
      errno != EINTR) {
    doom(*link, End::kLeft, failure("its bell"));
    bury();
    return SendResult::kUnknown;
  }
  return SendResult::kSent;
}

std::optional<Delivery> MemoryLinks::read_rings() {
  const std::size_t n = links_.size();
  for (std::size_t i = 0; i < n; ++i) {
    Link& link = *links_[(turn_ + i) % n];
    if (!link.is_open || link.end) continue;
    Delivery delivery;
    const RingReader::Outcome outcome = link.reader->read(delivery.frames);
    if (outcome == RingReader::Outcome::kNothing) continue;
    if (outcome == RingReader::Outcome::kTorn) {
      doom(link, End::kBroken, std::string("its ring is torn: it ") + link.reader->why_torn());
      continue;
    }
    turn_ = (turn_ + i + 1) % n;
    ++counters_->received;
    link.has_spoken = true;
    link.idle_bells = 0;
    delivery.peer = link.peer;
    return delivery;
  }
  bury();
  return std::nullopt;
}

std::optional<Delivery> MemoryLinks::receive() {
  if (is_idle()) return std::nullopt;
  const TimePoint now = clock_now();
  if (now >= look_at_) look(now);
  std::optional<Delivery> delivery = read_rings();
  if (!delivery && look_soon_) {
    look(now);
    delivery = read_rings();
  }
  if (delivery || closed_.empty()) return delivery;
  delivery = std::move(closed_.front());
  closed_.pop_front();
  return delivery;
}

// ---- sleeping

bool MemoryLinks::fall_asleep() {
  if (sleeps_ % 2 == 0) ++sleeps_;
  bool quiet = closed_.empty();
  for (const auto& link : links_) {
    if (!link->is_open) continue;
    link->own_head().sleep.store(sleeps_, std::memory_order_seq_cst);
    quiet = quiet && !link->reader->has_something();
  }
  return quiet;
}

void MemoryLinks::add_to(std::vector<pollfd>& waiting) const {
  for (const auto& door : doors_) waiting.push_back({door->fd, POLLIN, 0});
  for (const auto& link : links_) waiting.push_back({link->fd, POLLIN, 0});
}

void MemoryLinks::wake_up() {
  if (sleeps_ % 2 == 1) ++sleeps_;
  for (const auto& link : links_)
    if (link->is_open) link->own_head().sleep.store(sleeps_, std::memory_order_relaxed);
  look_soon_ = !is_idle();
}

}  // namespace foretoken
