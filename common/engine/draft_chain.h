// The text of a sequence as its draft has it: the tokens that its target committed, and one chain
// of guesses after them. Holds that a committed token never changes, and that each guess has its
// confidence and its runners-up. Of a text that has outgrown the draft only the length is kept,
// however long it becomes. Must not know the cache, the model, or why anything is guessed. Pure;
// one thread.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/engine/guess.h"

namespace foretoken {

class DraftChain {
 public:
  // Nothing is guessed yet.
  explicit DraftChain(std::vector<TokenId> committed)
      : tokens_(std::move(committed)), known_(static_cast<Position>(tokens_.size())) {}

  Position known() const { return known_; }  // how many tokens are committed
  std::uint32_t n_guesses() const { return static_cast<std::uint32_t>(guesses_.size()); }
  bool is_outgrown() const { return is_outgrown_; }

  // Valid until the next change. Committed tokens, then the guesses; none of a text outgrown.
  std::span<const TokenId> text() const { return tokens_; }
  Position length() const { return static_cast<Position>(tokens_.size()); }
  std::span<const TokenId> guessed() const { return text().last(guesses_.size()); }
  std::span<const Guess> guesses() const { return guesses_; }  // [n_guesses()]

  void append(TokenId token, const Guess& guess);
  // How many of the tokens that the target chose are guesses of this chain, from the first on.
  std::uint32_t n_agreed(std::span<const TokenId> committed) const;
  // The target chose these. The chain goes on after them if they agree with it, else it is void.
  void commit(std::span<const TokenId> committed);
  // From the n-th guess on the chain is another one.
  void replace(std::uint32_t n, std::span<const TokenId> tokens, std::span<const Guess> guesses);
  void outgrow();

 private:
  std::vector<TokenId> tokens_;
  Position known_ = 0;
  std::vector<Guess> guesses_;  // of the last tokens
  bool is_outgrown_ = false;
};

}  // namespace foretoken
