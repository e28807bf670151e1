// Which tokens may follow in an answer whose text a grammar constrains: one sequence's place in it,
// as a value. A copy costs nothing, so that a row after k proposed tokens has a place of its own
// and the place of the committed tokens stays. A place is a function of the grammar and the tokens
// taken, never of what other sequences did. One thread for all that share a Constraints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/grammar/grammar.h"

namespace foretoken {

class Automaton;     // a grammar's states, made as they are met
class GrammarCache;  // the grammars in use with one vocabulary
class GrammarInUse;  // one of them

class Constraint {
 public:
  // One more token of the answer. One that may not follow leads to a place from where nothing may.
  void take(TokenId token);

  // Bit (id % 32) of word (id / 32): whether token `id` may follow; [(n_ids + 31) / 32] words. Ends
  // are not among them. No token at all: the text is complete, or the vocabulary lacks the bytes to
  // go on. True until the next call of any Constraint of the same Constraints.
  std::span<const std::uint32_t> allowed() const;
  bool may_end() const;      // the text so far is allowed as a whole
  bool is_complete() const;  // and no other text begins with it

 private:
  friend class Constraints;
  explicit Constraint(std::shared_ptr<GrammarInUse> grammar);
  Automaton& automaton() const;

  std::shared_ptr<GrammarInUse> grammar_;
  // An automaton that has grown too large is replaced: each place moves to the new one at its next
  // use.
  mutable std::shared_ptr<Automaton> automaton_;
  mutable std::uint32_t state_ = 0;
};

// The grammars in use with one vocabulary.
class Constraints {
 public:
  struct Limits {
    std::size_t n_grammars = 16;             // kept for the next request
    std::size_t grammar_bytes = 256 << 20;   // of these together
    std::size_t automaton_bytes = 16 << 20;  // of each, before it is replaced
    std::size_t mask_bytes = 64 << 20;
  };

  // What each token adds to the text, by id; empty: the token is never allowed (special tokens,
  // padding ids).
  explicit Constraints(std::span<const std::string_view> token_bytes);
  Constraints(std::span<const std::string_view> token_bytes, const Limits& limits);
  ~Constraints();

  // At the beginning of an answer. Errors: those of Grammar::read.
  Result<Constraint> open(GrammarKind kind, std::string_view text);

 private:
  std::unique_ptr<GrammarCache> cache_;
};

}  // namespace foretoken
