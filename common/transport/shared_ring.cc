#include "common/transport/shared_ring.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/base/check.h"

namespace foretoken {
namespace {

constexpr std::size_t padded(std::size_t n_bytes) { return (n_bytes + 7) & ~std::size_t{7}; }

std::uint32_t word_at(const Bytes& bytes, std::size_t at) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

}  // namespace

void RingWriter::put(std::uint64_t at, const void* from, std::size_t n_bytes) {
  const std::size_t begin = at & (capacity_ - 1);
  const std::size_t first = std::min(n_bytes, capacity_ - begin);
  if (first > 0) std::memcpy(bytes_ + begin, from, first);
  if (n_bytes > first)
    std::memcpy(bytes_, static_cast<const std::byte*>(from) + first, n_bytes - first);
}

RingWriter::Outcome RingWriter::write(const Frames& frames) {
  FORETOKEN_CHECK(!frames.empty() && frames.size() <= kMaxParts, "a message has 1 to 8 parts");
  std::array<std::uint32_t, kMaxParts + 3> head{};
  std::size_t payload = 4 + 4 * frames.size();
  for (const Bytes& part : frames) {
    if (part.size() > largest_record(capacity_)) return Outcome::kTooLarge;
    payload += part.size();
  }
  const std::size_t record = padded(kRecordHeadBytes + payload);
  if (record > largest_record(capacity_)) return Outcome::kTooLarge;

  const std::uint64_t consumed = other_.consumed.load(std::memory_order_acquire);
  const std::uint64_t unread = produced_ - consumed;
  if (unread > capacity_) return Outcome::kTorn;  // it has read what was never written
  while (!ends_.empty() && produced_ - ends_.front() >= unread) ends_.pop_front();
  if (ends_.size() >= most_unread_ || record > capacity_ - unread) return Outcome::kFull;

  head[0] = static_cast<std::uint32_t>(payload);
  head[1] = n_records_++;
  head[2] = static_cast<std::uint32_t>(frames.size());
  for (std::size_t i = 0; i < frames.size(); ++i)
    head[3 + i] = static_cast<std::uint32_t>(frames[i].size());
  std::uint64_t at = produced_;
  put(at, head.data(), 12 + 4 * frames.size());
  at += 12 + 4 * frames.size();
  for (const Bytes& part : frames) {
    put(at, part.data(), part.size());
    at += part.size();
  }
  produced_ += record;
  ends_.push_back(produced_);
  // Before we look whether the reader sleeps: it says so before it looks here.
  own_.produced.store(produced_, std::memory_order_seq_cst);
  return Outcome::kWritten;
}

bool RingWriter::must_wake() {
  const std::uint32_t sleep = other_.sleep.load(std::memory_order_seq_cst);
  if (sleep % 2 == 0 || sleep == woken_from_) return false;
  woken_from_ = sleep;
  return true;
}

void RingReader::copy(std::uint64_t at, void* into, std::size_t n_bytes) const {
  const std::size_t begin = at & (capacity_ - 1);
  const std::size_t first = std::min(n_bytes, capacity_ - begin);
  std::memcpy(into, bytes_ + begin, first);
  if (n_bytes > first) std::memcpy(static_cast<std::byte*>(into) + first, bytes_, n_bytes - first);
  // The writer may go on scribbling: from here on the compiler may not look there again.
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

RingReader::Outcome RingReader::read(Frames& frames) {
  const std::uint64_t unread = other_.produced.load(std::memory_order_seq_cst) - consumed_;
  if (unread == 0) return Outcome::kNothing;
  if (unread > capacity_) return torn("claims more bytes than the ring holds");
  if (unread < kRecordHeadBytes + 8) return torn("claims less than a record");

  std::array<std::uint32_t, 2> head{};
  copy(consumed_, head.data(), sizeof head);
  const std::size_t payload = head[0];
  if (payload < 8 || payload > largest_record(capacity_) - kRecordHeadBytes)
    return torn("a record's length is out of range");
  const std::size_t record = padded(kRecordHeadBytes + payload);
  if (record > unread) return torn("a record ends behind what was written");
  if (head[1] != n_records_) return torn("a record has another's number");

  record_.resize(payload);
  copy(consumed_ + kRecordHeadBytes, record_.data(), payload);
  const std::size_t n_parts = word_at(record_, 0);
  if (n_parts == 0 || n_parts > kMaxParts || payload < 4 + 4 * n_parts)
    return torn("a record's number of parts is out of range");
  std::uint64_t sum = 4 + 4 * n_parts;
  for (std::size_t i = 0; i < n_parts; ++i) sum += word_at(record_, 4 + 4 * i);
  if (sum != payload) return torn("a record's parts are not as long as the record");

  frames.clear();
  std::size_t at = 4 + 4 * n_parts;
  for (std::size_t i = 0; i < n_parts; ++i) {
    const std::size_t size = word_at(record_, 4 + 4 * i);
    frames.emplace_back(record_, at, size);
    at += size;
  }
  consumed_ += record;
  ++n_records_;
  own_.consumed.store(consumed_, std::memory_order_release);
  return Outcome::kMessage;
}

}  // namespace foretoken
