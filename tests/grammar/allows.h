// Whether a grammar allows a text, byte for byte, without tokens. For tests.
#pragma once

#include <gtest/gtest.h>

#include <string_view>

#include "common/grammar/automaton.h"
#include "common/grammar/grammar.h"

namespace foretoken::test {

inline bool allows(const std::shared_ptr<const Grammar>& grammar, std::string_view answer) {
  Automaton automaton(grammar);
  Automaton::State state = automaton.start();
  for (const char byte : answer) state = automaton.step(state, static_cast<unsigned char>(byte));
  return automaton.may_end(state);
}

inline bool allows(GrammarKind kind, std::string_view text, std::string_view answer) {
  const auto grammar = Grammar::read(kind, text);
  if (!grammar.ok()) {
    ADD_FAILURE() << text << ": " << grammar.error().message;
    return false;
  }
  return allows(*grammar, answer);
}

}  // namespace foretoken::test
