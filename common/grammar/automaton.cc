#include "common/grammar/automaton.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace foretoken {
namespace {

// The frame below all others: the whole has ended.
constexpr std::uint32_t kWholeEnded = 0xFFFFFFFFu;
constexpr Frame kBottomFrame{kWholeEnded, 0};

void sort_frames(std::vector<Frame>& frames) {
  std::ranges::sort(frames);
  frames.erase(std::unique(frames.begin(), frames.end()), frames.end());
}

}  // namespace

Automaton::Automaton(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)),
      n_classes_(grammar_->n_classes()),
      callers_(grammar_->n_rules()) {
  const std::uint32_t nothing_below = below_of({kBottomFrame});
  state_of({});
  std::vector<Frame> kernel{{grammar_->whole().start, nothing_below}};
  if (grammar_->whole().may_be_empty) kernel.push_back(kBottomFrame);
  start_ = state_of(std::move(kernel));
}

bool Automaton::may_end(State state) const {
  const auto kernel = kernels_[state];
  return !kernel.empty() && kernel.back() == kBottomFrame;  // its node is above all others
}

bool Automaton::is_complete(State state) {
  if (!may_end(state)) return false;
  for (std::uint32_t byte_class = 0; byte_class < n_classes_; ++byte_class)
    if (make_step(state, byte_class) != kDead) return false;
  return true;
}

std::size_t Automaton::size_bytes() const {
  return kernels_.size_bytes() + belows_.size_bytes() + states_.size() * sizeof(StateFacts) +
         depths_.size() * sizeof(std::uint32_t) + readers_.size() * sizeof(Frame) +
         rows_.size() * sizeof(State);
}

// Whether `needs` more calls may be under way.
bool Automaton::can_end(std::uint32_t below, std::uint32_t needs) const {
  return needs <= Grammar::kMaxDepth && depths_[below] + needs <= Grammar::kMaxDepth;
}

std::uint32_t Automaton::below_of(std::vector<Frame> frames) {
  sort_frames(frames);
  const std::uint32_t id = belows_.id_of(frames);
  if (id < depths_.size()) return id;
  std::uint32_t depth = 0;
  for (const Frame& frame : frames)
    if (frame != kBottomFrame) depth = std::max(depth, depths_[frame.below] + 1);
  depths_.push_back(depth);
  return id;
}

Automaton::State Automaton::state_of(std::vector<Frame> kernel) {
  sort_frames(kernel);
  const State state = kernels_.id_of(kernel);
  if (state == states_.size()) {
    states_.emplace_back();
    states_[state].is_too_wide = !expand(state);
  }
  return states_[state].is_too_wide ? kDead : state;
}

Automaton::State Automaton::make_step(State state, std::uint32_t byte_class) {
  if (states_[state].row == kNoRow) {
    states_[state].row = static_cast<std::uint32_t>(rows_.size() / n_classes_);
    rows_.resize(rows_.size() + n_classes_, kUnknown);
  }
  const std::size_t place = std::size_t{states_[state].row} * n_classes_ + byte_class;
  if (rows_[place] != kUnknown) return rows_[place];
  State next = kDead;
  if (read(state, byte_class) && end_rules()) {
    std::vector<Frame> kernel;
    for (const Frame& frame : reached_.frames())
      if (frame == kBottomFrame || !grammar_->edges(frame.node).empty() ||
          !grammar_->calls(frame.node).empty())
        kernel.push_back(frame);
    next = state_of(std::move(kernel));
  }
  rows_[place] = next;
  return next;
}

// What is reached with a byte; false: too much.
bool Automaton::read(State state, std::uint32_t byte_class) {
  reached_.clear();
  const StateFacts& facts = states_[state];
  for (std::uint32_t i = 0; i < facts.n_readers; ++i) {
    const Frame reader = readers_[facts.first_reader + i];
    for (const Grammar::Edge& edge : grammar_->edges(reader.node))
      if (grammar_->set_has_class(edge.set, byte_class) &&
          can_end(reader.below, grammar_->node(edge.next).needs))
        reached_.add({edge.next, reader.below});
    if (reached_.size() > kMaxFrames) return false;
  }
  return true;
}

// Where a rule may have ended, what called it goes on; false: too much.
bool Automaton::end_rules() {
  std::size_t n_ended = 0;
  for (std::size_t i = 0; i < reached_.size(); ++i) {
    const Frame frame = reached_[i];
    if (frame == kBottomFrame || !grammar_->node(frame.node).may_end) continue;
    const auto callers = belows_[frame.below];
    n_ended += callers.size();
    if (n_ended > kMaxFrames) return false;
    for (const Frame& caller : callers) reached_.add(caller);
  }
  return true;
}

void Automaton::add_reader(Frame frame) {
  const auto n_edges = static_cast<std::uint32_t>(grammar_->edges(frame.node).size());
  if (n_edges == 0 || states_.back().n_edges > kMaxFrameEdges) return;
  readers_.push_back(frame);
  ++n_frames_;
  states_.back().n_edges += n_edges;
}

void Automaton::add_call(const Grammar::Call& call, std::uint32_t below) {
  const std::uint32_t needs = grammar_->rule(call.rule).needs;
  const bool returns_at_once = call.next == Grammar::kReturnAtOnce;
  if (needs > Grammar::kMaxDepth || !can_end(below, returns_at_once ? needs : needs + 1)) return;
  if (!returns_at_once && !can_end(below, grammar_->node(call.next).needs)) return;
  std::vector<Frame>& callers = callers_[call.rule];
  if (callers.empty()) called_.emplace(grammar_->rule(call.rule).place, call.rule);
  if (returns_at_once) {
    const auto frames = belows_[below];
    callers.insert(callers.end(), frames.begin(), frames.end());
    n_frames_ += frames.size();
  } else {
    callers.push_back({call.next, below});
    ++n_frames_;
  }
}

void Automaton::add_calls(Frame frame) {
  for (const Grammar::Call& call : grammar_->calls(frame.node)) {
    if (n_frames_ > kMaxFrames) return;
    add_call(call, frame.below);
  }
}

// Finds all frames of the newest state that read a byte: rules called before any byte, too. They
// come in an order in which all callers of a rule are known before the rule is entered, so that it
// is entered once, above all of them. False: too many.
bool Automaton::expand(State state) {
  const auto first_reader = readers_.size();
  const auto kernel = kernels_[state];
  n_frames_ = kernel.size();
  for (const Frame& frame : kernel) {
    if (frame == kBottomFrame) continue;
    add_reader(frame);
    add_calls(frame);
  }
  while (!called_.empty()) {
    const std::uint32_t rule = called_.top().second;
    called_.pop();
    std::vector<Frame> callers = std::exchange(callers_[rule], {});
    if (n_frames_ > kMaxFrames) continue;  // callers_ must be emptied
    const Frame entered{grammar_->rule(rule).start, below_of(std::move(callers))};
    add_reader(entered);
    add_calls(entered);
  }
  states_[state].first_reader = static_cast<std::uint32_t>(first_reader);
  if (n_frames_ > kMaxFrames || states_[state].n_edges > kMaxFrameEdges) {
    readers_.resize(first_reader);
    return false;
  }
  states_[state].n_frames = static_cast<std::uint32_t>(n_frames_);
  states_[state].n_readers = static_cast<std::uint32_t>(readers_.size() - first_reader);
  return true;
}

std::uint32_t Automaton::adopt_below(const Automaton& other,
                                     std::uint32_t below,
                                     std::unordered_map<std::uint32_t, std::uint32_t>& adopted) {
  if (const auto known = adopted.find(below); known != adopted.end()) return known->second;
  std::vector<Frame> frames;
  for (const Frame& frame : other.belows_[below])  // at most kMaxDepth calls within one another
    frames.push_back(frame == kBottomFrame
                         ? frame
                         : Frame{frame.node, adopt_below(other, frame.below, adopted)});
  const std::uint32_t id = below_of(std::move(frames));
  adopted.emplace(below, id);
  return id;
}

Automaton::State Automaton::adopt(const Automaton& other, State state) {
  FORETOKEN_CHECK(grammar_ == other.grammar_);
  std::unordered_map<std::uint32_t, std::uint32_t> adopted;
  std::vector<Frame> kernel;
  for (const Frame& frame : other.kernels_[state])
    kernel.push_back(frame == kBottomFrame
                         ? frame
                         : Frame{frame.node, adopt_below(other, frame.below, adopted)});
  return state_of(std::move(kernel));
}

}  // namespace foretoken
