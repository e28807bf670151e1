// The grammars in use with one vocabulary, each with the automaton that its sequences share. What
// is kept beyond its use is bounded. One thread.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/base/result.h"
#include "common/grammar/automaton.h"
#include "common/grammar/constraint.h"
#include "common/grammar/mask_cache.h"
#include "common/grammar/token_trie.h"

namespace foretoken {

// A vocabulary and its masks, which places keep as long as they need them.
struct ConstrainedVocabulary {
  TokenTrie trie;
  MaskCache masks;
  std::size_t max_automaton_bytes = 0;
  std::uint64_t n_automata = 0;  // serial numbers
};

class GrammarInUse {
 public:
  GrammarInUse(std::shared_ptr<const Grammar> grammar,
               std::shared_ptr<ConstrainedVocabulary> vocabulary);

  // A new one once the last has grown too large.
  const std::shared_ptr<Automaton>& automaton();
  // In a state of the automaton of now.
  std::span<const std::uint32_t> mask(Automaton::State state);
  std::string_view token_bytes(TokenId token) const { return vocabulary_->trie.bytes(token); }
  std::size_t size_bytes() const;

 private:
  void make_automaton();

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<ConstrainedVocabulary> vocabulary_;
  std::shared_ptr<Automaton> automaton_;
  std::uint64_t serial_ = 0;
};

class GrammarCache {
 public:
  GrammarCache(std::span<const std::string_view> token_bytes, const Constraints::Limits& limits);

  Result<std::shared_ptr<GrammarInUse>> get(GrammarKind kind, std::string_view text);

 private:
  void forget_oldest();

  Constraints::Limits limits_;
  std::shared_ptr<ConstrainedVocabulary> vocabulary_;
  struct Entry {
    std::string key;
    std::shared_ptr<GrammarInUse> grammar;
  };
  std::list<Entry> entries_;  // the last used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> places_;
};

}  // namespace foretoken
