#include "common/grammar/mask_walk.h"

#include <algorithm>
#include <array>
#include <vector>

namespace foretoken {
namespace {

using State = Automaton::State;

// Pays for states as they are met, each once. Costs are of the states, not of the time they take.
class Purse {
 public:
  explicit Purse(Automaton& automaton) : automaton_(automaton) { automaton.start_visits(); }
  bool pay(State state) {
    if (!automaton_.is_first_visit(state)) return true;
    const std::size_t cost = automaton_.cost(state);
    if (cost > left_) return false;
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
  bool are_paid = true;

  Steps(Automaton& automaton, State state, Purse& purse) {
    for (unsigned byte = 0; byte < by_byte.size() && are_paid; ++byte) {
      by_byte[byte] = automaton.step(state, static_cast<unsigned char>(byte));
      are_paid = purse.pay(by_byte[byte]);
    }
  }

  // The one that most bytes lead to.
  State most_common() const {
    std::array<State, 256> sorted = by_byte;
    std::ranges::sort(sorted);
    State most = Automaton::kDead;
    std::size_t n_most = 0;
    for (std::size_t first = 0; first < sorted.size();) {
      std::size_t end = first;
      while (end < sorted.size() && sorted[end] == sorted[first]) ++end;
      if (sorted[first] != Automaton::kDead && end - first > n_most) {
        most = sorted[first];
        n_most = end - first;
      }
      first = end;
    }
    return most;
  }
};

// States that most bytes lead through one after the other, as within a string, be it counted: at
// each place, the bytes that lead to the next. Tokens made of such bytes need no steps.
class Chain {
 public:
  static constexpr std::size_t kMaxLength = 32;
  static constexpr std::size_t kFewBytes = 40;  // a chain of them spares too little

  Chain(Automaton& automaton, State state, Purse& purse) {
    while (length_ < kMaxLength) {
      const Steps steps(automaton, state, purse);
      const State next = steps.most_common();
      ByteSet bytes;
      for (std::size_t byte = 0; byte < steps.by_byte.size(); ++byte)
        bytes[byte] = next != Automaton::kDead && steps.by_byte[byte] == next;
      if (!steps.are_paid || bytes.count() < kFewBytes) break;
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
  Purse purse(automaton);
  if (!purse.pay(state)) return;
  const Chain chain(automaton, state, purse);
  std::vector<State> path(trie.max_depth() + 1, state);  // by depth
  for (std::size_t i = 1; i < trie.n_nodes();) {
    const TokenTrie::Node& node = trie[i];
    const State reached = automaton.step(path[node.depth - std::size_t{1}], node.byte);
    if (reached == Automaton::kDead) {
      i = node.end;
      continue;
    }
    if (!purse.pay(reached)) return;
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
