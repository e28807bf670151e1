#include "common/engine/draft_chain.h"

#include <algorithm>
#include <cstddef>

#include "common/base/check.h"

namespace foretoken {

void DraftChain::append(TokenId token, const Guess& guess) {
  FORETOKEN_CHECK(!is_outgrown_, "nothing is guessed of a text that is not kept");
  tokens_.push_back(token);
  guesses_.push_back(guess);
}

std::uint32_t DraftChain::n_agreed(std::span<const TokenId> committed) const {
  const auto chain = guessed();
  const auto differs = std::ranges::mismatch(committed, chain);
  return static_cast<std::uint32_t>(differs.in1 - committed.begin());
}

void DraftChain::commit(std::span<const TokenId> committed) {
  const std::uint32_t n = n_agreed(committed);
  if (n == committed.size()) {
    guesses_.erase(guesses_.begin(), guesses_.begin() + n);
  } else if (!is_outgrown_) {
    tokens_.resize(known_ + n);
    tokens_.insert(tokens_.end(), committed.begin() + n, committed.end());
    guesses_.clear();
  }
  known_ += static_cast<Position>(committed.size());
}

void DraftChain::replace(std::uint32_t n,
                         std::span<const TokenId> tokens,
                         std::span<const Guess> guesses) {
  FORETOKEN_CHECK(n <= n_guesses() && tokens.size() == guesses.size());
  tokens_.resize(known_ + n);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  guesses_.resize(n);
  guesses_.insert(guesses_.end(), guesses.begin(), guesses.end());
}

void DraftChain::outgrow() {
  is_outgrown_ = true;
  tokens_ = {};
  guesses_ = {};
}

}  // namespace foretoken
