// Sets of frames, each kept once and named by a number: equal sets have equal numbers for as long
// as the FrameSets lives. Pure; one thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

namespace foretoken {

// A node of a grammar, and the set of what is under way below it.
struct Frame {
  std::uint32_t node = 0;
  std::uint32_t below = 0;
  auto operator<=>(const Frame&) const = default;
};

class FrameSets {
 public:
  // `frames` must be sorted, without repetition.
  std::uint32_t id_of(std::span<const Frame> frames);
  // True until the next id_of.
  std::span<const Frame> operator[](std::uint32_t id) const {
    return {frames_.data() + first_[id], frames_.data() + first_[id + 1]};
  }
  std::uint32_t size() const { return static_cast<std::uint32_t>(first_.size() - 1); }
  std::size_t size_bytes() const {
    return frames_.size() * sizeof(Frame) + first_.size() * sizeof(std::size_t) +
           slots_.size() * sizeof(std::uint32_t);
  }

 private:
  std::size_t slot_of(std::span<const Frame> frames) const;
  void grow();

  std::vector<Frame> frames_;
  std::vector<std::size_t> first_{0};                                  // by id, and the end
  std::vector<std::uint32_t> slots_ = std::vector<std::uint32_t>(16);  // id + 1; 0: free
};

// Frames in the order they came, each once.
class FrameList {
 public:
  void clear();
  void add(Frame frame);
  std::size_t size() const { return frames_.size(); }
  Frame operator[](std::size_t index) const { return frames_[index]; }
  std::span<const Frame> frames() const { return frames_; }

 private:
  std::vector<Frame> frames_;
  std::unordered_set<std::uint64_t> seen_;  // once there are many
};

}  // namespace foretoken
