// Blocks of a paged KV cache as values: a holder of a Block holds the block, and the last holder
// to die gives it back. Knows numbers only: no memory, no tokens, no sequences. The pool must
// outlive its blocks. One thread.
//
// A block is in one of three places: used (it has a holder), cached (it has none, but keep()
// was called for it, its contents may still be wanted), or free. Cached blocks leave oldest first,
// and only when a block is asked for.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace foretoken {

class BlockPool;

// A holder of one block. Moving transfers, share() adds a holder, dying returns.
class Block {
 public:
  Block() = default;
  Block(Block&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), index_(std::exchange(other.index_, -1)) {}
  Block& operator=(Block&& other) noexcept {
    Block(std::move(other)).swap(*this);
    return *this;
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();

  Block share() const;
  bool is_shared() const;  // it has another holder
  std::int32_t index() const { return index_; }
  explicit operator bool() const { return pool_ != nullptr; }

 private:
  friend class BlockPool;
  Block(BlockPool& pool, std::int32_t index) : pool_(&pool), index_(index) {}
  void swap(Block& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(index_, other.index_);
  }
  BlockPool* pool_ = nullptr;
  std::int32_t index_ = -1;
};

class BlockPool {
 public:
  explicit BlockPool(std::int32_t n_blocks);
  ~BlockPool();  // checks that every block came home
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  Block allocate();  // a free block, or an empty Block when none is free (see evict_oldest)
  Block hold(std::int32_t index);   // one more holder of a used block, or the first of a cached one
  void keep(const Block& block);    // when its last holder dies it becomes cached instead of free
  void forget(std::int32_t index);  // undoes keep; a cached block becomes free
  std::int32_t evict_oldest();      // the block cached longest becomes free; -1 when none is cached

  std::int32_t n_blocks() const { return static_cast<std::int32_t>(entries_.size()); }
  std::int32_t n_free() const { return static_cast<std::int32_t>(free_.size()); }
  std::int32_t n_cached() const { return n_cached_; }
  std::int32_t n_used() const { return n_blocks() - n_free() - n_cached_; }
  std::int32_t n_holders(std::int32_t index) const;
  bool is_kept(std::int32_t index) const;
  std::vector<std::int32_t> free_list() const { return free_; }
  std::vector<std::int32_t> cached_oldest_first() const;

 private:
  friend class Block;
  struct Entry {
    std::int32_t n_holders = 0;
    bool keep = false;
    std::int32_t older = -1;  // neighbours in the list of cached blocks
    std::int32_t newer = -1;
  };
  Entry& entry(std::int32_t index);
  void release(std::int32_t index);
  void link_newest(std::int32_t index);
  void unlink(std::int32_t index);

  std::vector<Entry> entries_;
  std::vector<std::int32_t> free_;  // the last one goes first
  std::int32_t oldest_ = -1;
  std::int32_t newest_ = -1;
  std::int32_t n_cached_ = 0;
};

}  // namespace foretoken
