// What clients asked and saw in one run, and the rules that it must obey, as one pure function: a
// history in, every violation out, a sentence each. It uses no service, no clock and no dice.
//
// The unit is an *ask*: one map sent over one connection. A request is asked at least once under
// its id, and again when an answer does not come.
//
// - On a connection, an id has at most as many ends (a reply or an error) as asks before it.
// Several
//   asks over one connection while the request runs join it and share one end.
// - An ask over another connection takes the answer over: the connection that asked before hears no
//   more of it, and no end. So an end is owed to the request, not to each connection.
// - Pieces of a stream come only while an ask is open on that connection, that is: has no end yet.
// - Tokens and text of a stream, pieces and last reply put together, are the reference from its
//   first token on, each position once and in order, and each part says where it belongs. A stream
//   begins anew, at 0, at most once for each time that the request is asked again over that
//   connection. A piece from beyond what has come is left out, as clients do: one before it was
//   lost in a full queue, and the end is an error then, for an answer that lacks a part is none.
// - Log-probabilities of the prompt, if they are asked for, are the reference, in the part where an
//   answer begins and in no other. An answer that was cut short may lack them.
// - A cancel may be answered by itself, with not_found or an empty cancelled reply, beside the end
// of
//   what it cancels.
// - A whole answer equals the reference: ids, text, finish reason, usage. One that was cut short,
// by
//   a deadline or a cancel that its client sent, is where the reference begins.
// - An error carries a code that this request may get.
// - Unless its client left, a request has a final end: an answer, or the refusal that it deserves.
//   Errors that invite to ask again are not final.
// - When nothing is asked any more, nothing is left in any service.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/messages/client.h"

namespace foretoken::test {

enum class Saw : std::uint8_t { kAsked, kCancelled, kPiece, kReply, kError };

// In the order of time, of all clients.
struct Sight {
  TimePoint at{};
  std::size_t connection = 0;
  Saw what = Saw::kAsked;
  std::string id;
  std::vector<TokenId> ids;
  std::string text;
  // Where it says that it belongs: tokens and bytes of the answer before it.
  std::optional<std::uint32_t> position = {}, offset = {};
  std::vector<wire::LogprobEntry> prompt = {};  // without texts
  std::string finish_reason;                    // of a reply
  std::uint32_t completion_tokens = 0;
  std::string code;  // of an error
};

// What one request is entitled to.
struct Promise {
  std::string id;
  bool is_stream = false;
  std::vector<TokenId> ids;  // the reference
  std::string text;
  std::string finish_reason;
  std::vector<wire::LogprobEntry> prompt = {};  // log-probabilities, if they are asked for
  std::string refusal;           // the code that it deserves instead; empty: it is a good request
  bool may_be_cut = false;       // it has a deadline; one that its client cancels may be, too
  bool is_abandoned = false;     // its client left
  std::set<std::string> errors;  // codes after which its client asks again
};

struct History {
  std::vector<Promise> promises;
  std::vector<Sight> sights;
  std::vector<std::string> leftovers;  // found in services at the end
  std::size_t n_connections = 0;
  std::uint64_t n_remembered = 0;  // answers with guesses from a memory, of the same replies
  std::uint64_t n_accepted = 0;    // guesses delivered in answers, of the replies that said so
};

std::vector<std::string> violations(const History& history);

}  // namespace foretoken::test
