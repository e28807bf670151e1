#include "common/grammar/mask_walk.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace foretoken {
namespace {

using State = Automaton::State;

// What a mask may cost: states are charged as they are met, each once. Costs are of the states, not
// of the time they take.
class CostBudget {
 public:
  explicit CostBudget(Automaton& automaton) : automaton_(automaton) { automaton.start_visits(); }
  bool charge(State state) {
    if (!automaton_.is_first_visit(state)) return true;
    const std::size_t cost = automaton_.cost(state);
    if (cost > left_) {
      left_ = 0;
      return false;
    }
    left_ -= cost;
    return true;
  }

 private:
  Automaton& automaton_;
  std::size_t left_ = kMaxMaskCost;
};

// The states that the bytes of one lead to.
struct Steps {
  std::array<State, 256> by_byte{};
  bool is_within_budget = true;

  Steps(Automaton& automaton, State state, CostBudget& budget) {
    for (unsigned byte = 0; byte < by_byte.size() && is_within_budget; ++byte) {
      by_byte[byte] = automaton.step(state, static_cast<unsigned char>(byte));
      is_within_budget = budget.charge(by_byte[byte]);
    }
  }

  // The one that most bytes lead to, of several the one of the lowest byte: numbers of states
  // depend on what was met before, and a mask must not.
  State most_common() const {
    std::vector<std::pair<State, std::size_t>> counts;
    for (const State state : by_byte) {
      if (state == Automaton::kDead) continue;
      const auto known = std::ranges::find(counts, state, &std::pair<State, std::size_t>::first);
      if (known == counts.end())
        counts.emplace_back(state, 1);
      else
        ++known->second;
    }
    const auto most = std::ranges::max_element(counts, {}, &std::pair<State, std::size_t>::second);
    return most == counts.end() ? Automaton::kDead : most->first;
  }
};

// States that most bytes lead through one after the other, as within a string, be it counted: at
// each place, the bytes that lead to the next. Tokens made of such bytes need no steps.
class Chain {
 public:
  static constexpr std::size_t kMaxLength = 32;
  static constexpr std::size_t kFewBytes = 40;  // a chain of them spares too little

  Chain(Automaton& automaton, State state, CostBudget& budget) {
    while (length_ < kMaxLength) {
      const Steps steps(automaton, state, budget);
      const State next = steps.most_common();
      ByteSet bytes;
      for (std::size_t byte = 0; byte < steps.by_byte.size(); ++byte)
        bytes[byte] = next != Automaton::kDead && steps.by_byte[byte] == next;
      if (!steps.is_within_budget || bytes.count() < kFewBytes) break;
      states_[length_] = state;
      allowed_[length_++][1] = bytes;
      state = next;
    }
    for (std::size_t place = 0; place < length_; ++place)
      for (std::size_t n = 2; place + n <= length_; ++n)
        allowed_[place][n] = allowed_[place][n - 1] & allowed_[place + n - 1][1];
  }

  // Whether any `n_bytes` of `bytes` may follow at a depth.
  bool allows_all(std::size_t depth, State state, std::size_t n_bytes, const ByteSet& bytes) const {
    if (n_bytes == 0 || depth + n_bytes > length_ || states_[depth] != state) return false;
    return (bytes & ~allowed_[depth][n_bytes]).none();
  }

 private:
  std::size_t length_ = 0;
  std::array<State, kMaxLength> states_{};
  std::array<std::array<ByteSet, kMaxLength + 1>, kMaxLength> allowed_;  // [place, n bytes]
};

void set_bits(std::span<const TokenId> tokens, std::span<std::uint32_t> words) {
  for (const TokenId token : tokens) {
    const auto id = static_cast<std::uint32_t>(token);
    words[id / 32] |= 1u << (id % 32);
  }
}

}  // namespace

void allow_tokens(Automaton& automaton,
                  Automaton::State state,
                  const TokenTrie& trie,
                  std::span<std::uint32_t> words) {
  if (state == Automaton::kDead) return;
  CostBudget budget(automaton);
  if (!budget.charge(state)) return;
  const Chain chain(automaton, state, budget);
  std::vector<State> path(trie.max_depth() + 1, state);  // by depth
  for (std::size_t i = 1; i < trie.n_nodes();) {
    const TokenTrie::Node& node = trie[i];
    const State reached = automaton.step(path[node.depth - std::size_t{1}], node.byte);
    if (reached == Automaton::kDead) {
      i = node.end;
      continue;
    }
    if (!budget.charge(reached)) return;
    if (chain.allows_all(node.depth, reached, node.height, trie.below(node))) {
      set_bits(trie.tokens_at_and_below(i), words);
      i = node.end;
    } else {
      set_bits(trie.tokens_at(i), words);
      path[node.depth] = reached;
      ++i;
    }
  }
}

}  // namespace foretoken
