#include "common/grammar/grammar_cache.h"

#include <utility>

#include "common/grammar/mask_walk.h"

namespace foretoken {

GrammarInUse::GrammarInUse(std::shared_ptr<const Grammar> grammar,
                           std::shared_ptr<ConstrainedVocabulary> vocabulary)
    : grammar_(std::move(grammar)), vocabulary_(std::move(vocabulary)) {
  make_automaton();
}

void GrammarInUse::make_automaton() {
  automaton_ = std::make_shared<Automaton>(grammar_);
  serial_ = ++vocabulary_->n_automata;
}

const std::shared_ptr<Automaton>& GrammarInUse::automaton() {
  if (automaton_->size_bytes() > vocabulary_->max_automaton_bytes) make_automaton();
  return automaton_;
}

std::span<const std::uint32_t> GrammarInUse::mask(Automaton::State state) {
  return vocabulary_->masks.get({serial_, state}, [&](std::span<std::uint32_t> words) {
    allow_tokens(*automaton_, state, vocabulary_->trie, words);
  });
}

std::size_t GrammarInUse::size_bytes() const {
  return grammar_->size_bytes() + automaton_->size_bytes();
}

GrammarCache::GrammarCache(std::span<const std::string_view> token_bytes,
                           const Constraints::Limits& limits)
    : limits_(limits),
      vocabulary_(std::make_shared<ConstrainedVocabulary>(ConstrainedVocabulary{
          TokenTrie(token_bytes), MaskCache((token_bytes.size() + 31) / 32, limits.mask_bytes),
          limits.automaton_bytes})) {}

Result<std::shared_ptr<GrammarInUse>> GrammarCache::get(GrammarKind kind, std::string_view text) {
  std::string key = std::to_string(static_cast<int>(kind)) + ':' + std::string(text);
  if (const auto known = places_.find(key); known != places_.end()) {
    entries_.splice(entries_.begin(), entries_, known->second);
    forget_oldest();  // automata grow while they are used
    return entries_.front().grammar;
  }
  auto grammar = Grammar::read(kind, text);
  if (!grammar.ok()) return grammar.error();
  entries_.push_front(
      {std::move(key), std::make_shared<GrammarInUse>(std::move(*grammar), vocabulary_)});
  places_.emplace(entries_.front().key, entries_.begin());
  forget_oldest();
  return entries_.front().grammar;
}

void GrammarCache::forget_oldest() {
  std::size_t size_bytes = 0;
  for (const Entry& entry : entries_) size_bytes += entry.key.size() + entry.grammar->size_bytes();
  while (entries_.size() > 1 &&
         (entries_.size() > limits_.n_grammars || size_bytes > limits_.grammar_bytes)) {
    const Entry& oldest = entries_.back();
    size_bytes -= oldest.key.size() + oldest.grammar->size_bytes();
    places_.erase(oldest.key);
    entries_.pop_back();
  }
}

}  // namespace foretoken
