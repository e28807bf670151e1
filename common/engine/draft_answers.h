// What a draft sends its target of a sequence: when a chain is an answer, and what goes beside it.
// Each function appends to what a step sends if its case has come. Must not know passes, the cache
// or links. Pure.
#pragma once

#include <vector>

#include "common/engine/draft_events.h"
#include "common/engine/leased_sequence.h"

namespace foretoken {

// A record that came before the chain was complete: the target has taken its step without. How far
// the chain is goes to it nevertheless, or a draft that is slower than its target would seem dead.
void answer_overtaken(LeasedSequence& sequence, std::vector<ReadyProposal>& sent);
// The record that an answer is owed to, once the chain is as long as it may become.
void answer_if_complete(LeasedSequence& sequence, std::vector<ReadyProposal>& sent);
// Each token as it is made: of an answer before it is complete, beyond it, and beside it.
void send_news(LeasedSequence& sequence, std::vector<ReadyProposal>& sent);

}  // namespace foretoken
