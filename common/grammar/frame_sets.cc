#include "common/grammar/frame_sets.h"

#include <algorithm>

namespace foretoken {
namespace {

constexpr std::size_t kFewFrames = 16;

std::uint64_t frame_key(Frame frame) { return (std::uint64_t{frame.node} << 32) | frame.below; }

std::uint64_t hash_of(std::span<const Frame> frames) {
  std::uint64_t hash = frames.size();
  for (const Frame& frame : frames) {
    hash = (hash ^ frame_key(frame)) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

std::size_t FrameSets::slot_of(std::span<const Frame> frames) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash_of(frames) & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask)
    if (std::ranges::equal((*this)[slots_[slot] - 1], frames)) break;
  return slot;
}

void FrameSets::grow() {
  slots_.assign(2 * slots_.size(), 0);
  for (std::uint32_t id = 0; id < size(); ++id) slots_[slot_of((*this)[id])] = id + 1;
}

std::uint32_t FrameSets::id_of(std::span<const Frame> frames) {
  if (2 * std::size_t{size()} >= slots_.size()) grow();
  std::uint32_t& slot = slots_[slot_of(frames)];
  if (slot != 0) return slot - 1;
  frames_.insert(frames_.end(), frames.begin(), frames.end());
  first_.push_back(frames_.size());
  slot = size();
  return slot - 1;
}

void FrameList::clear() {
  frames_.clear();
  if (!seen_.empty()) seen_.clear();
}

void FrameList::add(Frame frame) {
  if (frames_.size() < kFewFrames) {
    if (std::ranges::find(frames_, frame) == frames_.end()) frames_.push_back(frame);
    return;
  }
  if (seen_.empty())
    for (const Frame& earlier : frames_) seen_.insert(frame_key(earlier));
  if (seen_.insert(frame_key(frame)).second) frames_.push_back(frame);
}

}  // namespace foretoken
