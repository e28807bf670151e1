#include "common/grammar/constraint.h"

#include <utility>

#include "common/grammar/automaton.h"
#include "common/grammar/grammar_cache.h"

namespace foretoken {

Constraint::Constraint(std::shared_ptr<GrammarInUse> grammar)
    : grammar_(std::move(grammar)),
      automaton_(grammar_->automaton()),
      state_(automaton_->start()) {}

// The automaton of now, with the place in it.
Automaton& Constraint::automaton() const {
  const std::shared_ptr<Automaton>& now = grammar_->automaton();
  if (automaton_ != now) {
    state_ = now->adopt(*automaton_, state_);
    automaton_ = now;
  }
  return *automaton_;
}

void Constraint::take(TokenId token) {
  Automaton& reader = automaton();
  const std::string_view bytes = grammar_->token_bytes(token);
  if (bytes.empty()) state_ = Automaton::kDead;
  for (const char byte : bytes) state_ = reader.step(state_, static_cast<unsigned char>(byte));
}

std::span<const std::uint32_t> Constraint::allowed() const {
  automaton();
  return grammar_->mask(state_);
}

bool Constraint::may_end() const { return automaton_->may_end(state_); }

bool Constraint::is_complete() const { return automaton_->is_complete(state_); }

Constraints::Constraints(std::span<const std::string_view> token_bytes)
    : Constraints(token_bytes, Limits{}) {}

Constraints::Constraints(std::span<const std::string_view> token_bytes, const Limits& limits)
    : cache_(std::make_unique<GrammarCache>(token_bytes, limits)) {}

Constraints::~Constraints() = default;

Result<Constraint> Constraints::open(GrammarKind kind, std::string_view text) {
  auto grammar = cache_->get(kind, text);
  if (!grammar.ok()) return grammar.error();
  return Constraint(std::move(*grammar));
}

}  // namespace foretoken
