#include "common/transport/memory_link.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "common/transport/memory_greeting.h"

namespace foretoken {
namespace {

constexpr std::size_t kMostIdleBells = 4096;  // rings without a message, in a row

std::string bell_failure() { return std::string("its socket: ") + std::strerror(errno); }

}  // namespace

MemoryLink::MemoryLink(const MemoryLinkOptions& options,
                       MemoryLinkCounters& counters,
                       Peer peer,
                       Origin origin,
                       Fd socket)
    : options_(options),
      counters_(counters),
      peer_(std::move(peer)),
      is_dialled_(origin == Origin::kDialled),
      socket_(std::move(socket)),
      since_(options.now()) {}

void MemoryLink::mark_failed(End end, std::string why) {
  end_ = end;
  why_ = std::move(why);
}

// ---- greetings

Result<void> MemoryLink::make_own() {
  auto made = SharedRegion::make("foretoken-link", kRingHeadBytes + options_.ring_bytes);
  if (!made.ok()) return made.error();
  own_ = std::move(made).value();
  new (own_.data()) RingHead;
  return {};
}

bool MemoryLink::hand_over_own() {
  return send_greeting(socket_.get(), options_.ring_bytes, own_.fd());
}

void MemoryLink::greet_first(const std::string& endpoint) {
  if (const Result<void> made = make_own(); !made.ok()) throw FatalError(made.error());
  if (!hand_over_own())
    throw FatalError(ErrorCode::kUnavailable,
                     "cannot greet " + endpoint + ": " + std::strerror(errno));
}

void MemoryLink::greet_back() {
  if (const Result<void> made = make_own(); !made.ok())
    return mark_failed(End::kBroken, made.error().message);
  if (!hand_over_own()) mark_failed(End::kLeft, "it left before our greeting");
}

void MemoryLink::on_readable() {
  if (is_open_) return listen_to_bell();
  MemoryGreeting greeting = receive_greeting(socket_.get());
  switch (greeting.kind) {
    case MemoryGreeting::Kind::kNotYet:
      return;
    case MemoryGreeting::Kind::kLeft:
      return mark_failed(End::kLeft, "it left before its greeting");
    case MemoryGreeting::Kind::kWrong:
      return mark_failed(End::kBroken, "its greeting is malformed");
    case MemoryGreeting::Kind::kSound:
      return open(std::move(greeting.region), greeting.ring_bytes);
  }
}

void MemoryLink::open(Fd region, std::uint32_t ring_bytes) {
  auto other = SharedRegion::adopt(std::move(region), kRingHeadBytes + ring_bytes);
  if (!other.ok()) return mark_failed(End::kBroken, other.error().message);
  other_ = std::move(other).value();
  if (!is_dialled_) greet_back();
  if (end_) return;
  own_.drop_fd();
  const std::size_t most = is_dialled_ ? kMostQuestions : kMostAnswers;
  writer_.emplace(own_.data() + kRingHeadBytes, options_.ring_bytes, own_head(), other_head(),
                  most);
  reader_.emplace(other_.data() + kRingHeadBytes, ring_bytes, own_head(), other_head());
  is_open_ = true;
  since_ = options_.now();
  ++counters_.opened;
}

RingHead& MemoryLink::own_head() const {
  return *std::launder(reinterpret_cast<RingHead*>(own_.data()));
}

const RingHead& MemoryLink::other_head() const {
  return *std::launder(reinterpret_cast<const RingHead*>(other_.data()));
}

// ---- messages

SendResult MemoryLink::send(const Frames& frames) {
  if (!is_open_) return SendResult::kBusy;
  switch (writer_->write(frames)) {
    case RingWriter::Outcome::kTooLarge:
      ++counters_.busy;
      return SendResult::kBusy;
    case RingWriter::Outcome::kFull:
      ++counters_.busy;
      was_full(options_.now());
      return SendResult::kBusy;
    case RingWriter::Outcome::kTorn:
      mark_failed(End::kBroken, "it claims to have read what was never written");
      return SendResult::kUnknown;
    case RingWriter::Outcome::kWritten:
      break;
  }
  ++counters_.sent;
  full_since_.reset();
  return !writer_->must_wake() || ring_bell() ? SendResult::kSent : SendResult::kUnknown;
}

std::optional<Frames> MemoryLink::receive() {
  if (!is_open_ || end_) return std::nullopt;
  Frames frames;
  const RingReader::Outcome outcome = reader_->read(frames);
  if (outcome == RingReader::Outcome::kNothing) return std::nullopt;
  if (outcome == RingReader::Outcome::kTorn) {
    mark_failed(End::kBroken, std::string("its ring is torn: it ") + reader_->why_torn());
    return std::nullopt;
  }
  ++counters_.received;
  has_spoken_ = true;
  idle_bells_ = 0;
  return frames;
}

// ---- patience

void MemoryLink::was_full(TimePoint now) {
  const std::uint64_t read_to = writer_->read_to();
  if (full_since_ && read_to == full_read_to_) return;
  full_since_ = now;
  full_read_to_ = read_to;
}

void MemoryLink::check_patience(TimePoint now) {
  if (now - since_ > options_.patience && !is_open_)
    mark_failed(End::kBroken, "its greeting did not come in time");
  else if (now - since_ > options_.patience && has_not_spoken())
    mark_failed(End::kBroken, "it connected and sent nothing");
  else if (full_since_ && writer_->read_to() != full_read_to_)
    full_since_.reset();  // it reads, though nothing was written since
  else if (full_since_ && now - *full_since_ > options_.patience)
    mark_failed(End::kBroken, "it does not read");
}

// ---- the bell

bool MemoryLink::ring_bell() {
  const char ring = 1;
  // A full socket holds bytes that the peer has not read yet: it will wake.
  if (::send(socket_.get(), &ring, 1, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno == EAGAIN ||
      errno == EINTR)
    return true;
  mark_failed(End::kLeft, bell_failure());
  return false;
}

void MemoryLink::listen_to_bell() {
  std::array<char, 256> rings{};
  // Without a place for them the kernel throws away what else may be attached.
  const ssize_t n = ::recv(socket_.get(), rings.data(), rings.size(), MSG_DONTWAIT);
  if (n == 0) return mark_failed(End::kLeft, "it closed the link or died");
  if (n < 0) {
    if (errno != EAGAIN && errno != EINTR) mark_failed(End::kLeft, bell_failure());
    return;
  }
  idle_bells_ += static_cast<std::size_t>(n);
  if (idle_bells_ > kMostIdleBells)
    mark_failed(End::kBroken,
                "it woke us " + std::to_string(kMostIdleBells) + " times without a message");
}

bool MemoryLink::fall_asleep(std::uint32_t sleeps) {
  if (!is_open_) return true;
  own_head().sleep.store(sleeps, std::memory_order_seq_cst);
  return !reader_->has_something();
}

void MemoryLink::wake_up(std::uint32_t sleeps) {
  if (is_open_) own_head().sleep.store(sleeps, std::memory_order_relaxed);
}

}  // namespace foretoken
