// Finds which tokens may follow in a state, all at once: a walk through the vocabulary's tree that
// turns back where the bytes are not allowed, and takes whole branches where all that they hold is.
#pragma once

#include <cstdint>
#include <span>

#include "common/grammar/automaton.h"
#include "common/grammar/token_trie.h"

namespace foretoken {

// No mask takes more (Automaton::cost, each state once): tokens that come later in the walk are not
// allowed. Only a grammar that can be at thousands of nodes at once comes so far.
inline constexpr std::size_t kMaxMaskCost = 4'000'000;

// Sets bit (id % 32) of words[id / 32] for each token that may follow; the others stay.
void allow_tokens(Automaton& automaton,
                  Automaton::State state,
                  const TokenTrie& trie,
                  std::span<std::uint32_t> words);

}  // namespace foretoken
