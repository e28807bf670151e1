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

std::uint32_t bits_for(std::uint32_t n_heads) {
  return static_cast<std::uint32_t>(std::bit_width(n_heads - 1));
}

}  // namespace

TokenMemory::TokenMemory(std::uint32_t n_places, std::uint32_t n_heads)
    : n_chunks_(whole_chunks(n_places)),
      newest_slot_(n_chunks_ - 1),
      chunks_(n_chunks_),
      heads_{Heads(std::max(this->n_places(), n_heads)), Heads(std::max(this->n_places(), n_heads)),
             Heads(std::max(this->n_places(), n_heads))} {}

std::uint64_t TokenMemory::size_bytes() const {
  const auto n_used = static_cast<std::uint64_t>(std::count_if(
      chunks_.begin(), chunks_.end(), [](const auto& chunk) { return chunk != nullptr; }));
  std::uint64_t n_bytes = n_used * sizeof(Chunk) + chunks_.size() * sizeof(chunks_[0]);
  for (const Heads& heads : heads_) n_bytes += heads.size_bytes();
  return n_bytes;
}

// ---- heads of chains

TokenMemory::Heads::Heads(std::uint32_t n_heads)
    : now_(new std::uint32_t[std::size_t{1} << bits_for(n_heads)]), n_bits_(bits_for(n_heads)) {
  std::fill_n(now_.get(), std::size_t{1} << n_bits_, kNowhere);
}

std::uint32_t& TokenMemory::Heads::of(std::uint64_t key) {
  if (smaller_)
    if (const std::uint64_t at = key >> (64 - n_smaller_bits_); at >= n_moved_) return smaller_[at];
  return now_[key >> (64 - n_bits_)];
}

void TokenMemory::Heads::grow(std::uint32_t n_heads) {
  if (n_heads <= std::uint64_t{1} << n_bits_) return;
  move(1u << n_smaller_bits_);  // what is left: nothing where as many tokens came as it had places
  smaller_ = std::move(now_);
  n_smaller_bits_ = std::exchange(n_bits_, bits_for(n_heads));
  now_.reset(new std::uint32_t[std::size_t{1} << n_bits_]);
  n_moved_ = 0;
}

void TokenMemory::Heads::move(std::uint32_t n_heads) {
  if (!smaller_) return;
  const std::uint32_t n = std::min(n_heads, (1u << n_smaller_bits_) - n_moved_);
  const std::size_t times = std::size_t{1} << (n_bits_ - n_smaller_bits_);
  for (const std::uint32_t end = n_moved_ + n; n_moved_ < end; ++n_moved_)
    std::fill_n(now_.get() + n_moved_ * times, times, smaller_[n_moved_]);
  n_moved_ever_ += n;
  if (n_moved_ >> n_smaller_bits_ != 0) smaller_.reset();
}

std::uint64_t TokenMemory::Heads::size_bytes() const {
  const std::uint64_t n =
      (std::uint64_t{1} << n_bits_) + (smaller_ ? std::uint64_t{1} << n_smaller_bits_ : 0);
  return n * sizeof(std::uint32_t);
}

std::uint64_t TokenMemory::n_moved() const {
  std::uint64_t n = 0;
  for (const Heads& heads : heads_) n += heads.n_moved();
  return n;
}

// ---- chunks

std::uint32_t TokenMemory::number_of(std::uint64_t serial) const {
  return static_cast<std::uint32_t>(serial % kNumbers);
}

bool TokenMemory::is_young(std::uint64_t serial) const {
  return serial != kNoSerial && serial >= first_ && n_taken_ - 1 - serial < n_chunks_ / 2;
}

void TokenMemory::take_chunk(Document& document) {
  const bool goes_on = document.chunk_ != kNoSerial;
  if (!goes_on && is_young(spare_)) {
    document.chunk_ = std::exchange(spare_, kNoSerial);
    const std::uint32_t number = number_of(document.chunk_);
    Chunk& shared = chunk(number);
    shared.tokens[shared.n_used++] = kBoundary;
    if (shared.n_used < kChunk) return;
    document.chunk_ = kNoSerial;
  }
  const std::uint64_t before = document.chunk_;
  const std::uint64_t serial = document.chunk_ = n_taken_;
  ++n_taken_;
  const std::uint32_t number = newest_ = number_of(serial);
  newest_slot_ = newest_slot_ + 1 < n_chunks_ ? newest_slot_ + 1 : 0;
  n_live_ = std::min(n_live_ + 1, n_chunks_);
  empty_slot(chunks_[newest_slot_]);
  if (!goes_on || n_taken_ - before > n_live_) return;
  chunk(number).before = number_of(before);
  chunk(number_of(before)).after = number;
}

// For the next chunk. Where all slots have been used the oldest one is in it.
void TokenMemory::empty_slot(std::unique_ptr<Chunk>& slot) {
  if (!slot) {
    slot.reset(new Chunk);  // without values for its places
    return;
  }
  const auto n_lost = static_cast<std::uint64_t>(
      std::count_if(slot->tokens.begin(), slot->tokens.begin() + slot->n_used,
                    [](TokenId token) { return token >= 0; }));
  n_tokens_ -= n_lost;
  n_evicted_ += n_lost;
  slot->before = slot->after = kNowhere;
  slot->n_used = 0;
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
  Chunk& written = chunk(number);
  const std::uint32_t offset = written.n_used++;
  const std::uint32_t place = number * kChunk + offset;
  std::uint64_t key = 0;
  std::uint32_t n_in_key = 0;
  for (std::size_t o = 0; o < kOrders.size(); ++o) {
    written.earlier[o][offset] = kNowhere;
    if (document.n_tokens_ < kOrders[o]) continue;
    for (; n_in_key < kOrders[o]; ++n_in_key)
      key = longer_key(key, document.recent_[(document.n_tokens_ - 1 - n_in_key) % 8]);
    std::uint32_t& head = heads_[o].of(mix64(key));
    written.earlier[o][offset] = std::exchange(head, place);
  }
  written.tokens[offset] = token;
  ++n_tokens_;
  document.recent_[document.n_tokens_ % 8] = token;
  document.n_tokens_ = document.n_tokens_ < 15 ? document.n_tokens_ + 1 : 8;
  for (Heads& heads : heads_) heads.move(kMovedAtOnce);
}

void TokenMemory::close(Document& document) {
  const std::uint64_t left = std::exchange(document, {}).chunk_;
  if (!is_young(left)) return;
  const std::uint32_t n_used = chunk(number_of(left)).n_used;
  if (n_used < kChunk && (!is_young(spare_) || chunk(number_of(spare_)).n_used > n_used))
    spare_ = left;
}

// The oldest chunk must have the first slot, so that each keeps its own in the larger ring.
bool TokenMemory::can_grow() const { return n_live_ == 0 || newest_slot_ == n_live_ - 1; }

void TokenMemory::grow(std::uint32_t n_places) {
  const std::uint32_t n_larger = whole_chunks(n_places);
  FORETOKEN_CHECK(n_larger >= n_chunks_ && can_grow());
  first_ = n_taken_ - n_live_;
  n_chunks_ = n_larger;
  chunks_.resize(n_chunks_);
  for (Heads& heads : heads_) heads.grow(this->n_places());
}

}  // namespace foretoken
