// The ledger of a paged KV cache: which block holds which positions of which sequence. Integers
// only; the memory behind the blocks and the tokens of a sequence belong to the engine. Must not
// know why tokens exist or what a step is. One thread.
//
// A step is a transaction: reserve(seq, n) takes the blocks for n more positions, the engine copies
// what copies() lists and runs the forward, commit(m, text) keeps the first m <= n positions; the
// rest goes home, all of it if the reservation dies uncommitted. `length` counts positions whose
// keys and values are valid.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/kv/block_pool.h"
#include "common/kv/prefix_index.h"

namespace foretoken {

enum class PrefixCaching : std::uint8_t { kOff, kOn };
// Whether the full blocks of a sequence are found by others.
enum class Publishing : std::uint8_t { kOff, kOn };

struct KvCacheConfig {
  std::int32_t n_blocks = 0;
  std::int32_t block_tokens = 16;
  PrefixCaching prefix_cache = PrefixCaching::kOn;
};

// Device work owed before the forward: the whole block src is copied to dst.
struct BlockCopy {
  std::int32_t src_block = -1;
  std::int32_t dst_block = -1;
  bool operator==(const BlockCopy&) const = default;
};

// What is cached of a text's beginning: whole blocks. Those that no sequence holds are among
// free_blocks() until the text is opened.
struct PrefixHit {
  std::uint32_t n_tokens = 0;
  std::int32_t n_blocks = 0;
  std::int32_t n_idle_blocks = 0;
  std::int32_t n_held_blocks() const { return n_blocks - n_idle_blocks; }
};

struct KvStats {
  std::uint64_t n_hit_tokens = 0;  // found by open()
  std::uint64_t n_evicted_blocks = 0;
  std::int32_t n_used = 0;
  std::int32_t n_cached = 0;
  std::int32_t n_free = 0;
  double usage() const;  // used / all, 0 when there are none
};

class KvCache;

// Slots for positions first_position() .. first_position() + size() - 1 of one sequence. At most
// one per sequence.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { swap(other); }
  Reservation& operator=(Reservation&& other) noexcept {
    Reservation(std::move(other)).swap(*this);
    return *this;
  }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation();  // gives everything back unless committed

  // Keeps the first n <= size() positions. `text`: all tokens of the sequence, at least
  // first_position() + n; of them only blocks that are full now are read. Of a fork that publishes
  // nothing none is read, and it may be empty. Ends the reservation.
  void commit(std::uint32_t n, std::span<const TokenId> text);

  SeqId seq() const { return seq_; }
  Position first_position() const { return first_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(slots_.size()); }
  // [size()]: block * block_tokens + offset.
  std::span<const std::int32_t> slots() const { return slots_; }
  // To be done before the forward writes.
  std::span<const BlockCopy> copies() const { return copies_; }
  explicit operator bool() const { return cache_ != nullptr; }

 private:
  friend class KvCache;
  void swap(Reservation& other) noexcept;
  KvCache* cache_ = nullptr;
  SeqId seq_{};
  Position first_ = 0;
  std::vector<std::int32_t> slots_;
  std::vector<BlockCopy> copies_;
  // The shared block that copies_[0] replaces: its contents live until this ends.
  Block before_copy_;
};

// What the validator of invariants.h looks at: plain values.
struct KvSnapshot {
  struct BlockState {
    std::int32_t n_holders = 0;
    bool is_kept = false;
  };
  struct SequenceState {
    SeqId seq{};
    Position length = 0;
    Position reserved = 0;             // positions beyond length
    std::int32_t copy_source = -1;     // the block its reservation copies from, and holds
    std::vector<std::int32_t> blocks;  // the block table
  };
  std::int32_t block_tokens = 0;
  std::vector<BlockState> blocks;  // [n_blocks]
  std::vector<std::int32_t> free_list;
  std::vector<std::int32_t> cached;  // oldest first
  std::vector<SequenceState> sequences;
  std::vector<PrefixEntry> prefixes;
};

class KvCache {
 public:
  explicit KvCache(const KvCacheConfig& config);

  // What open() would find now.
  PrefixHit find_prefix(std::span<const TokenId> tokens, std::uint64_t salt) const;
  // Begins a sequence and returns how many of its tokens are there already: whole blocks, fewer
  // than all tokens (the last one must be fed to get logits). Salts separate tenants.
  // kInvalidRequest if the sequence is open.
  Result<std::uint32_t> open(SeqId seq, std::span<const TokenId> tokens, std::uint64_t salt);

  // n >= 1 more positions. kOutOfMemory when blocks lack; nothing has changed then. Evicts cached
  // blocks if it must.
  Result<Reservation> reserve(SeqId seq, std::uint32_t n);

  void truncate(SeqId seq, Position length);  // to any length <= length(seq); not while reserved
  // The child shares every block until one of them writes.
  Result<void> fork(SeqId parent, SeqId child, Publishing publishing = Publishing::kOn);
  void close(SeqId seq);  // not while reserved

  bool contains(SeqId seq) const { return sequences_.contains(seq); }
  Position length(SeqId seq) const;
  std::span<const std::int32_t> block_table(
      SeqId seq) const;  // reserved blocks included; valid until the next call
  std::int32_t blocks_needed(SeqId seq, std::uint32_t n) const;  // that reserve(seq, n) would take
  std::int32_t blocks_for(std::uint64_t n_tokens) const;         // of a sequence alone
  std::int32_t blocks_held_alone(SeqId seq) const;  // that close(seq) would make available
  // That a reserve could have.
  std::int32_t free_blocks() const { return pool_.n_free() + pool_.n_cached(); }
  const KvCacheConfig& config() const { return config_; }
  KvStats stats() const;
  KvSnapshot snapshot() const;

 private:
  friend class Reservation;
  struct CachedSequence {
    std::uint64_t salt = 0;
    Publishing publishing = Publishing::kOn;
    Position length = 0;
    std::vector<Block> blocks;
    std::vector<std::int32_t> table;  // the numbers of blocks
    std::vector<PrefixLink> links;    // of the full blocks published so far, in order
    std::uint32_t n_reserved = 0;
    std::int32_t copy_source = -1;
  };
  // Calls visit(const PrefixEntry&) for each block of the text that is cached, from its beginning.
  template <typename Visit>
  void walk_prefix(std::span<const TokenId> tokens, std::uint64_t salt, Visit visit) const;
  CachedSequence& find(SeqId seq);
  const CachedSequence& find(SeqId seq) const;
  Block take_block();
  bool last_block_needs_copy(const CachedSequence& sequence) const;
  void drop_blocks_above(CachedSequence& sequence, std::size_t n_blocks);
  void publish_full_blocks(CachedSequence& sequence, std::span<const TokenId> text);
  void finish(Reservation& reservation, std::uint32_t n, std::span<const TokenId> text);

  KvCacheConfig config_;
  BlockPool pool_;
  PrefixIndex index_;
  std::unordered_map<SeqId, CachedSequence> sequences_;  // destroyed before the pool
  KvStats totals_;
};

}  // namespace foretoken
