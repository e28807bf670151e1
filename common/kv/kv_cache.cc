#include "common/kv/kv_cache.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/check.h"

namespace foretoken {
namespace {

double ratio(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

double KvStats::usage() const {
  return ratio(static_cast<std::uint64_t>(n_used), static_cast<std::uint64_t>(n_used) +
                                                       static_cast<std::uint64_t>(n_cached) +
                                                       static_cast<std::uint64_t>(n_free));
}

Reservation::~Reservation() {
  if (cache_ != nullptr) cache_->finish(*this, 0, {});
}

void Reservation::commit(std::uint32_t n, std::span<const TokenId> text) {
  FORETOKEN_CHECK(cache_ != nullptr, "a reservation is committed once");
  FORETOKEN_CHECK(n <= slots_.size(), "more tokens than were reserved");
  const bool may_publish = cache_->find(seq_).publishing == Publishing::kOn;
  FORETOKEN_CHECK(!may_publish || text.size() >= std::size_t{first_} + n,
                  "tokens are kept that the text lacks");
  cache_->finish(*this, n, text);
}

void Reservation::swap(Reservation& other) noexcept {
  std::swap(cache_, other.cache_);
  std::swap(seq_, other.seq_);
  std::swap(first_, other.first_);
  std::swap(slots_, other.slots_);
  std::swap(copies_, other.copies_);
  std::swap(before_copy_, other.before_copy_);
}

KvCache::KvCache(const KvCacheConfig& config) : config_(config), pool_(config.n_blocks) {
  FORETOKEN_CHECK(config.block_tokens > 0);
}

KvCache::CachedSequence& KvCache::find(SeqId seq) {
  const auto found = sequences_.find(seq);
  FORETOKEN_CHECK(found != sequences_.end(), "no such sequence in the KV cache");
  return found->second;
}

const KvCache::CachedSequence& KvCache::find(SeqId seq) const {
  return const_cast<KvCache*>(this)->find(seq);
}

std::int32_t KvCache::blocks_for(std::uint64_t n_tokens) const {
  const auto block_tokens = static_cast<std::uint64_t>(config_.block_tokens);
  return static_cast<std::int32_t>((n_tokens + block_tokens - 1) / block_tokens);
}

template <typename Visit>
void KvCache::walk_prefix(std::span<const TokenId> tokens, std::uint64_t salt, Visit visit) const {
  if (config_.prefix_cache == PrefixCaching::kOff) return;
  const auto block_tokens = static_cast<std::size_t>(config_.block_tokens);
  PrefixLink parent = PrefixIndex::root(salt);
  // Strictly fewer than all: the last prompt token's logits must be computed.
  for (std::size_t at = 0; at + block_tokens < tokens.size(); at += block_tokens) {
    const PrefixEntry* entry = index_.find(parent, salt, tokens.subspan(at, block_tokens));
    if (entry == nullptr) return;
    parent = entry->link;
    visit(*entry);
  }
}

PrefixHit KvCache::find_prefix(std::span<const TokenId> tokens, std::uint64_t salt) const {
  PrefixHit hit;
  walk_prefix(tokens, salt, [&](const PrefixEntry& entry) {
    hit.n_tokens += static_cast<std::uint32_t>(config_.block_tokens);
    ++hit.n_blocks;
    if (pool_.n_holders(entry.block) == 0) ++hit.n_idle_blocks;
  });
  return hit;
}

Result<std::uint32_t> KvCache::open(SeqId seq,
                                    std::span<const TokenId> tokens,
                                    std::uint64_t salt) {
  if (contains(seq))
    return Error{ErrorCode::kInvalidRequest,
                 "sequence " + std::to_string(seq.value) + " is open already"};
  CachedSequence& sequence = sequences_[seq];
  sequence.salt = salt;
  walk_prefix(tokens, salt, [&](const PrefixEntry& entry) {
    sequence.blocks.push_back(pool_.hold(entry.block));
    sequence.table.push_back(entry.block);
    sequence.links.push_back(entry.link);
    sequence.length += static_cast<Position>(config_.block_tokens);
  });
  totals_.n_hit_tokens += sequence.length;
  return sequence.length;
}

// A block that is partly ours and partly about to be written must have no other holder.
bool KvCache::last_block_needs_copy(const CachedSequence& sequence) const {
  const bool is_partly_filled =
      sequence.length % static_cast<std::uint32_t>(config_.block_tokens) != 0;
  return is_partly_filled && sequence.blocks.back().is_shared();
}

std::int32_t KvCache::blocks_needed(SeqId seq, std::uint32_t n) const {
  const CachedSequence& sequence = find(seq);
  if (n == 0) return 0;
  return blocks_for(std::uint64_t{sequence.length} + n) -
         static_cast<std::int32_t>(sequence.blocks.size()) +
         (last_block_needs_copy(sequence) ? 1 : 0);
}

std::int32_t KvCache::blocks_held_alone(SeqId seq) const {
  const auto& blocks = find(seq).blocks;
  return static_cast<std::int32_t>(std::count_if(
      blocks.begin(), blocks.end(), [](const Block& block) { return !block.is_shared(); }));
}

Block KvCache::take_block() {
  if (pool_.n_free() == 0) {
    const std::int32_t evicted = pool_.evict_oldest();
    FORETOKEN_CHECK(evicted >= 0, "blocks were counted before they are taken");
    index_.erase(evicted);
    ++totals_.n_evicted_blocks;
  }
  return pool_.allocate();
}

Result<Reservation> KvCache::reserve(SeqId seq, std::uint32_t n) {
  CachedSequence& sequence = find(seq);
  FORETOKEN_CHECK(n > 0 && sequence.n_reserved == 0,
                  "one reservation of at least one token at a time");
  const std::int32_t needed = blocks_needed(seq, n);
  if (needed > free_blocks()) {
    return Error{ErrorCode::kOutOfMemory, "KV cache: " + std::to_string(n) + " more tokens need " +
                                              std::to_string(needed) + " blocks, and " +
                                              std::to_string(free_blocks()) + " of " +
                                              std::to_string(config_.n_blocks) + " are free"};
  }
  Reservation reservation;
  const std::size_t length = sequence.length;
  const auto block_tokens = static_cast<std::size_t>(config_.block_tokens);
  if (last_block_needs_copy(sequence)) {
    Block copy = take_block();
    reservation.copies_.push_back({sequence.table.back(), copy.index()});
    reservation.before_copy_ = std::exchange(sequence.blocks.back(), std::move(copy));
    sequence.copy_source = std::exchange(sequence.table.back(), sequence.blocks.back().index());
  } else if (length % block_tokens != 0 && index_.contains(sequence.table.back())) {
    // Cut back into a published block that is ours alone: its contents are about to change.
    index_.erase(sequence.table.back());
    pool_.forget(sequence.table.back());
  }
  while (sequence.blocks.size() * block_tokens < length + n) {
    sequence.blocks.push_back(take_block());
    sequence.table.push_back(sequence.blocks.back().index());
  }
  reservation.cache_ = this;
  reservation.seq_ = seq;
  reservation.first_ = sequence.length;
  reservation.slots_.reserve(n);
  for (std::size_t at = length; at < length + n; ++at)
    reservation.slots_.push_back(sequence.table[at / block_tokens] * config_.block_tokens +
                                 static_cast<std::int32_t>(at % block_tokens));
  sequence.n_reserved = n;
  return reservation;
}

void KvCache::finish(Reservation& reservation, std::uint32_t n, std::span<const TokenId> text) {
  CachedSequence& sequence = find(reservation.seq_);
  sequence.length += n;
  sequence.n_reserved = 0;
  sequence.copy_source = -1;
  drop_blocks_above(sequence, static_cast<std::size_t>(blocks_for(sequence.length)));
  // Nothing kept: it is not known that the copy was made, so the block goes back to the one that
  // surely holds the head.
  if (n == 0 && reservation.before_copy_) {
    sequence.blocks.back() = std::move(reservation.before_copy_);
    sequence.table.back() = sequence.blocks.back().index();
  }
  reservation.before_copy_ = Block();
  reservation.cache_ = nullptr;
  // Where nothing is kept the text is not given; what a fork has not published yet waits.
  const bool publishes =
      n > 0 && config_.prefix_cache == PrefixCaching::kOn && sequence.publishing == Publishing::kOn;
  if (publishes) publish_full_blocks(sequence, text);
}

void KvCache::publish_full_blocks(CachedSequence& sequence, std::span<const TokenId> text) {
  const auto block_tokens = static_cast<std::size_t>(config_.block_tokens);
  while ((sequence.links.size() + 1) * block_tokens <= sequence.length) {
    const std::size_t at = sequence.links.size();
    const PrefixLink parent = at == 0 ? PrefixIndex::root(sequence.salt) : sequence.links.back();
    const auto tokens = text.subspan(at * block_tokens, block_tokens);
    const auto published = index_.publish(parent, sequence.salt, tokens, sequence.table[at]);
    if (published.is_new) pool_.keep(sequence.blocks[at]);
    sequence.links.push_back(published.link);
  }
}

// From the tail, so that of a cached text the end is evicted before the beginning it depends on.
void KvCache::drop_blocks_above(CachedSequence& sequence, std::size_t n_blocks) {
  while (sequence.blocks.size() > n_blocks) {
    sequence.blocks.pop_back();
    sequence.table.pop_back();
  }
}

void KvCache::truncate(SeqId seq, Position length) {
  CachedSequence& sequence = find(seq);
  FORETOKEN_CHECK(sequence.n_reserved == 0, "a reserved sequence is not truncated");
  FORETOKEN_CHECK(length <= sequence.length);
  sequence.length = length;
  drop_blocks_above(sequence, static_cast<std::size_t>(blocks_for(length)));
  sequence.links.resize(
      std::min(sequence.links.size(), length / static_cast<std::size_t>(config_.block_tokens)));
}

Result<void> KvCache::fork(SeqId parent, SeqId child, Publishing publishing) {
  if (!contains(parent))
    return Error{ErrorCode::kNotFound, "no sequence " + std::to_string(parent.value) + " to fork"};
  if (contains(child))
    return Error{ErrorCode::kInvalidRequest,
                 "sequence " + std::to_string(child.value) + " is open already"};
  CachedSequence copy;
  {
    const CachedSequence& source = find(parent);
    FORETOKEN_CHECK(source.n_reserved == 0, "a reserved sequence is not forked");
    copy.salt = source.salt;
    copy.publishing = publishing;
    copy.length = source.length;
    copy.table = source.table;
    copy.links = source.links;
    for (const Block& block : source.blocks) copy.blocks.push_back(block.share());
  }
  sequences_.emplace(child, std::move(copy));
  return {};
}

void KvCache::close(SeqId seq) {
  CachedSequence& sequence = find(seq);
  FORETOKEN_CHECK(sequence.n_reserved == 0, "a reserved sequence is not closed");
  drop_blocks_above(sequence, 0);
  sequences_.erase(seq);
}

Position KvCache::length(SeqId seq) const { return find(seq).length; }

std::span<const std::int32_t> KvCache::block_table(SeqId seq) const { return find(seq).table; }

KvStats KvCache::stats() const {
  KvStats stats = totals_;
  stats.n_used = pool_.n_used();
  stats.n_cached = pool_.n_cached();
  stats.n_free = pool_.n_free();
  return stats;
}

KvSnapshot KvCache::snapshot() const {
  KvSnapshot snapshot;
  snapshot.block_tokens = config_.block_tokens;
  for (std::int32_t i = 0; i < pool_.n_blocks(); ++i)
    snapshot.blocks.push_back({pool_.n_holders(i), pool_.is_kept(i)});
  snapshot.free_list = pool_.free_list();
  snapshot.cached = pool_.cached_oldest_first();
  for (const auto& [seq, sequence] : sequences_) {
    KvSnapshot::SequenceState& out = snapshot.sequences.emplace_back();
    out.seq = seq;
    out.length = sequence.length;
    out.reserved = sequence.n_reserved;
    out.copy_source = sequence.copy_source;
    out.blocks = sequence.table;
  }
  std::sort(snapshot.sequences.begin(), snapshot.sequences.end(),
            [](const auto& a, const auto& b) { return a.seq < b.seq; });
  snapshot.prefixes = index_.entries();
  return snapshot;
}

}  // namespace foretoken
