#include "common/memory/token_memory.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/base/check.h"
#include "common/base/hash.h"
#include "common/memory/key.h"

namespace foretoken {
namespace {

std::uint32_t whole_chunks(std::uint32_t n_places) {
  FORETOKEN_CHECK(n_places >= TokenMemory::kLeastPlaces && n_places <= TokenMemory::kMostPlaces);
  return n_places / TokenMemory::kChunk;
}

}  // namespace

TokenMemory::TokenMemory(std::uint32_t n_places, std::uint32_t n_heads)
    : n_chunks_(whole_chunks(n_places)) {
  n_numbers_ = kNumbers / n_chunks_ * n_chunks_;
  chunks_.resize(n_chunks_);
  ring_.resize(this->n_places(), kBoundary);
  size_heads(std::max(this->n_places(), n_heads));
  for (auto& earlier : earlier_) earlier.resize(this->n_places(), kNowhere);
}

std::uint64_t TokenMemory::size_bytes() const {
  std::uint64_t n_words = ring_.size();
  for (const auto& heads : heads_) n_words += heads.size();
  for (const auto& earlier : earlier_) n_words += earlier.size();
  return n_words * sizeof(std::uint32_t) + chunks_.size() * sizeof(Chunk);
}

// A bucket is named by the upper bits of a key, so that one of a smaller table becomes neighbours
// in a larger one, which both begin with its chain.
void TokenMemory::size_heads(std::uint32_t n_heads) {
  const auto n_bits = static_cast<std::uint32_t>(std::bit_width(n_heads - 1));
  head_shift_ = 64 - n_bits;
  for (auto& heads : heads_) {
    std::vector<std::uint32_t> larger(std::size_t{1} << n_bits, kNowhere);
    const std::size_t times = heads.empty() ? 0 : larger.size() / heads.size();
    for (std::size_t at = 0; at < heads.size(); ++at)
      std::fill_n(larger.begin() + static_cast<std::ptrdiff_t>(at * times), times, heads[at]);
    heads = std::move(larger);
  }
}

// ---- chunks

std::uint32_t TokenMemory::n_live() const {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(n_chunks_, n_taken_ - first_));
}

std::uint32_t TokenMemory::number_of(std::uint64_t serial) const {
  return static_cast<std::uint32_t>((serial - first_) % n_numbers_);
}

bool TokenMemory::is_live(std::uint32_t number) const {
  if (n_taken_ == first_) return false;
  const std::uint32_t newest = number_of(n_taken_ - 1);
  return (newest >= number ? newest - number : newest + n_numbers_ - number) < n_live();
}

bool TokenMemory::is_young(std::uint64_t serial) const {
  return serial != kNoSerial && serial >= first_ && n_taken_ - 1 - serial < n_chunks_ / 2;
}

void TokenMemory::take_chunk(Document& document) {
  const bool goes_on = document.chunk_ != kNoSerial;
  if (!goes_on && is_young(spare_)) {
    document.chunk_ = std::exchange(spare_, kNoSerial);
    const std::uint32_t number = number_of(document.chunk_);
    ring_[index_of({number, chunk(number).n_used++})] = kBoundary;
    if (chunk(number).n_used < kChunk) return;
    document.chunk_ = kNoSerial;
  }
  if (n_live() == n_chunks_) {
    const std::uint32_t oldest = number_of(n_taken_ - n_chunks_);
    const auto begin = ring_.begin() + static_cast<std::ptrdiff_t>(index_of({oldest, 0}));
    const auto n_lost = static_cast<std::uint64_t>(
        std::count_if(begin, begin + chunk(oldest).n_used, [](TokenId t) { return t >= 0; }));
    n_tokens_ -= n_lost;
    n_evicted_ += n_lost;
  }
  const std::uint64_t before = document.chunk_;
  const std::uint64_t serial = document.chunk_ = n_taken_++;
  const std::uint32_t number = number_of(serial);
  chunk(number) = {};
  if (!goes_on || before == kNoSerial || before < first_ || n_taken_ - before > n_chunks_) return;
  chunk(number).before = number_of(before);
  chunk(number_of(before)).after = number;
}

// ---- writing

void TokenMemory::append(Document& document, std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) push(document, token);
}

void TokenMemory::push(Document& document, TokenId token) {
  FORETOKEN_CHECK(token >= 0);
  if (!is_young(document.chunk_) || chunk(number_of(document.chunk_)).n_used == kChunk)
    take_chunk(document);
  const std::uint32_t number = number_of(document.chunk_);
  const Cursor at{number, chunk(number).n_used++};
  const std::size_t index = index_of(at);
  const std::uint32_t place = at.number * kChunk + at.offset;
  std::uint64_t key = 0;
  std::uint32_t n_in_key = 0;
  for (std::size_t o = 0; o < kOrders.size(); ++o) {
    earlier_[o][index] = kNowhere;
    if (document.n_tokens_ < kOrders[o]) continue;
    for (; n_in_key < kOrders[o]; ++n_in_key)
      key = longer_key(key, document.recent_[(document.n_tokens_ - 1 - n_in_key) % 8]);
    std::uint32_t& head = heads_[o][bucket_of(mix64(key))];
    earlier_[o][index] = std::exchange(head, place);
  }
  ring_[index] = token;
  ++n_tokens_;
  document.recent_[document.n_tokens_ % 8] = token;
  document.n_tokens_ = document.n_tokens_ < 15 ? document.n_tokens_ + 1 : 8;
}

void TokenMemory::close(Document& document) {
  const std::uint64_t left = std::exchange(document, {}).chunk_;
  if (!is_young(left)) return;
  const std::uint32_t n_used = chunk(number_of(left)).n_used;
  if (n_used < kChunk && (!is_young(spare_) || chunk(number_of(spare_)).n_used > n_used))
    spare_ = left;
}

// Numbers begin anew with the oldest chunk that is left, so that its slot in the larger ring is
// its number; links are renumbered in place.
void TokenMemory::grow(std::uint32_t n_places) {
  const std::uint32_t n_larger = whole_chunks(n_places);
  FORETOKEN_CHECK(n_larger >= n_chunks_);
  const std::uint32_t n_kept = n_live();
  const std::uint64_t oldest = n_taken_ - n_kept;
  const std::uint32_t oldest_number = number_of(oldest);
  const auto renumbered = [&](std::uint32_t number) {
    return number >= oldest_number ? number - oldest_number : number + n_numbers_ - oldest_number;
  };
  const auto move_place = [&](std::uint32_t& place) {
    if (place == kNowhere) return;
    const std::uint32_t number = renumbered(place / kChunk);
    place = number < n_kept ? number * kChunk + place % kChunk : kNowhere;
  };
  const auto move_chunk = [&](std::uint32_t& number) {
    if (number == kNowhere) return;
    number = renumbered(number);
    if (number >= n_kept) number = kNowhere;
  };
  for (auto& heads : heads_) std::for_each(heads.begin(), heads.end(), move_place);
  for (auto& earlier : earlier_) std::for_each(earlier.begin(), earlier.end(), move_place);
  for (Chunk& each : chunks_) {
    move_chunk(each.before);
    move_chunk(each.after);
  }
  const auto turn = [&](auto& values, std::size_t each) {
    std::rotate(values.begin(),
                values.begin() + static_cast<std::ptrdiff_t>(slot_of(oldest_number) * each),
                values.end());
    values.resize(n_larger * each);
  };
  turn(chunks_, 1);
  turn(ring_, kChunk);
  for (auto& earlier : earlier_) turn(earlier, kChunk);
  n_chunks_ = n_larger;
  n_numbers_ = kNumbers / n_chunks_ * n_chunks_;
  first_ = oldest;
  if (heads_[0].size() < this->n_places()) size_heads(this->n_places());
}

}  // namespace foretoken
