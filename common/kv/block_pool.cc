#include "common/kv/block_pool.h"

#include "common/base/check.h"

namespace foretoken {

Block::~Block() {
  if (pool_ != nullptr) pool_->release(index_);
}

Block Block::share() const {
  FORETOKEN_CHECK(pool_ != nullptr, "an empty block cannot be shared");
  return pool_->hold(index_);
}

bool Block::is_shared() const { return pool_ != nullptr && pool_->n_holders(index_) > 1; }

BlockPool::BlockPool(std::int32_t n_blocks) {
  FORETOKEN_CHECK(n_blocks >= 0);
  entries_.resize(static_cast<std::size_t>(n_blocks));
  free_.reserve(entries_.size());
  for (std::int32_t i = n_blocks - 1; i >= 0; --i) free_.push_back(i);
}

BlockPool::~BlockPool() { FORETOKEN_CHECK(n_used() == 0, "a block outlives its pool"); }

BlockPool::Entry& BlockPool::entry(std::int32_t index) {
  FORETOKEN_CHECK(index >= 0 && index < n_blocks());
  return entries_[static_cast<std::size_t>(index)];
}

Block BlockPool::allocate() {
  if (free_.empty()) return {};
  const std::int32_t index = free_.back();
  free_.pop_back();
  entry(index).n_holders = 1;
  return Block(*this, index);
}

Block BlockPool::hold(std::int32_t index) {
  Entry& held = entry(index);
  FORETOKEN_CHECK(held.n_holders > 0 || held.keep, "a free block has contents that are not known");
  if (held.n_holders == 0) unlink(index);
  ++held.n_holders;
  return Block(*this, index);
}

void BlockPool::release(std::int32_t index) {
  Entry& released = entry(index);
  FORETOKEN_CHECK(released.n_holders > 0);
  if (--released.n_holders > 0) return;
  if (released.keep) {
    link_newest(index);
  } else {
    free_.push_back(index);
  }
}

void BlockPool::keep(const Block& block) {
  FORETOKEN_CHECK(block.pool_ == this);
  entry(block.index_).keep = true;
}

void BlockPool::forget(std::int32_t index) {
  Entry& forgotten = entry(index);
  FORETOKEN_CHECK(forgotten.keep);
  forgotten.keep = false;
  if (forgotten.n_holders > 0) return;
  unlink(index);
  free_.push_back(index);
}

std::int32_t BlockPool::evict_oldest() {
  const std::int32_t index = oldest_;
  if (index >= 0) forget(index);
  return index;
}

std::int32_t BlockPool::n_holders(std::int32_t index) const {
  FORETOKEN_CHECK(index >= 0 && index < n_blocks());
  return entries_[static_cast<std::size_t>(index)].n_holders;
}

bool BlockPool::is_kept(std::int32_t index) const {
  FORETOKEN_CHECK(index >= 0 && index < n_blocks());
  return entries_[static_cast<std::size_t>(index)].keep;
}

std::vector<std::int32_t> BlockPool::cached_oldest_first() const {
  std::vector<std::int32_t> cached;
  cached.reserve(static_cast<std::size_t>(n_cached_));
  for (std::int32_t i = oldest_; i >= 0; i = entries_[static_cast<std::size_t>(i)].newer)
    cached.push_back(i);
  return cached;
}

void BlockPool::link_newest(std::int32_t index) {
  Entry& linked = entry(index);
  linked.older = newest_;
  linked.newer = -1;
  (newest_ >= 0 ? entry(newest_).newer : oldest_) = index;
  newest_ = index;
  ++n_cached_;
}

void BlockPool::unlink(std::int32_t index) {
  Entry& unlinked = entry(index);
  (unlinked.older >= 0 ? entry(unlinked.older).newer : oldest_) = unlinked.newer;
  (unlinked.newer >= 0 ? entry(unlinked.newer).older : newest_) = unlinked.older;
  unlinked.older = unlinked.newer = -1;
  --n_cached_;
}

}  // namespace foretoken
