// A grammar read byte by byte: its states, made as they are met. A state is a set of frames: the
// nodes where the text may be, each above the calls that are under way. What a state allows is a
// function of the bytes read, never of what else the automaton has met; only the numbers of states
// depend on that. Knows no tokens. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <queue>
#include <unordered_map>
#include <vector>

#include "common/grammar/frame_sets.h"
#include "common/grammar/grammar.h"

namespace foretoken {

class Automaton {
 public:
  using State = std::uint32_t;
  static constexpr State kDead = 0;  // no text that is allowed begins so
  // A byte is not allowed after which a state had more frames, those below it included where they
  // are new. A grammar written by a person has a few.
  static constexpr std::size_t kMaxFrames = 16'384;
  static constexpr std::size_t kMaxFrameEdges = 16 * kMaxFrames;  // that lead on from a state

  explicit Automaton(std::shared_ptr<const Grammar> grammar);

  State start() const { return start_; }
  State step(State state, unsigned char byte) {
    const std::uint32_t row = states_[state].row;
    const std::uint32_t byte_class = grammar_->byte_class(byte);
    if (row != kNoRow) {
      const State next = rows_[std::size_t{row} * n_classes_ + byte_class];
      if (next != kUnknown) return next;
    }
    return make_step(state, byte_class);
  }
  bool may_end(State state) const;  // the text is allowed as a whole
  bool is_complete(State state);    // and no byte may follow

  // The same place of another automaton of the grammar.
  State adopt(const Automaton& other, State state);

  // What a state and all steps from it cost, about, in steps of an edge or a frame.
  std::size_t cost(State state) const {
    const StateFacts& facts = states_[state];
    return facts.n_frames + std::size_t{facts.n_edges} * n_classes_ / 8 + n_classes_;
  }
  // Once for each state between two calls of start_visits().
  void start_visits() { ++visits_; }
  bool is_first_visit(State state) {
    if (states_[state].visited == visits_) return false;
    states_[state].visited = visits_;
    return true;
  }

  std::size_t size_bytes() const;

 private:
  static constexpr std::uint32_t kNoRow = 0xFFFFFFFFu;
  static constexpr State kUnknown = 0xFFFFFFFFu;

  struct StateFacts {
    std::uint32_t first_reader = 0;  // frames that read a byte, in readers_
    std::uint32_t n_readers = 0;
    std::uint32_t n_edges = 0;   // of its readers
    std::uint32_t n_frames = 0;  // all that were made for it
    std::uint32_t row = kNoRow;
    std::uint64_t visited = 0;
    bool is_too_wide = false;
  };

  State make_step(State state, std::uint32_t byte_class);
  State state_of(std::vector<Frame> kernel);
  bool read(State state, std::uint32_t byte_class);
  bool end_rules();
  bool expand(State state);
  void add_reader(Frame frame);
  void add_calls(Frame frame);
  void add_call(const Grammar::Call& call, std::uint32_t below);
  std::uint32_t below_of(std::vector<Frame> frames);
  std::uint32_t adopt_below(const Automaton& other,
                            std::uint32_t below,
                            std::unordered_map<std::uint32_t, std::uint32_t>& adopted);
  bool can_end(std::uint32_t below, std::uint32_t needs) const;

  std::shared_ptr<const Grammar> grammar_;
  std::uint32_t n_classes_;
  FrameSets kernels_;  // by state: where the text may be after its last byte
  FrameSets belows_;   // 0: nothing is under way
  std::vector<StateFacts> states_;
  std::vector<std::uint32_t> depths_;  // by set below: calls under way
  std::vector<Frame> readers_;
  std::vector<State> rows_;  // [row, class]
  std::uint64_t visits_ = 0;
  State start_ = kDead;

  // While a state is made.
  FrameList reached_;
  std::size_t n_frames_ = 0;
  std::vector<std::vector<Frame>> callers_;  // by rule
  std::priority_queue<std::pair<std::uint32_t, std::uint32_t>,
                      std::vector<std::pair<std::uint32_t, std::uint32_t>>,
                      std::greater<>>
      called_;  // place and rule
};

}  // namespace foretoken
