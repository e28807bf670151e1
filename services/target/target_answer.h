// An answer under way at a target, or ended and not yet closed by the router: what was asked for,
// what the engine committed, and what of it was sent; and the messages that these make. Must not
// know the engine, or when anything is sent. Its fields are set by TargetService. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/sampling_params.h"
#include "common/base/token_logprobs.h"
#include "common/messages/messages.h"
#include "common/spec/committed_tokens.h"

namespace foretoken {

struct TargetAnswer {
  SeqId seq;
  std::uint32_t n_prompt = 0;
  SamplingParams params;  // as asked for, as the next one is
  std::vector<TokenId> end_tokens;
  // The engine's; resumed tokens included.
  std::shared_ptr<const CommittedTokens> text = {};
  std::size_t n_output() const { return text->size() - n_prompt; }
  std::vector<std::uint8_t> guessed;
  std::vector<TokenLogprobs> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;
  Position first_prompt_logprob = 1;  // the position of the first of these
  Position prompt_logprobs_until() const {
    return static_cast<Position>(first_prompt_logprob + prompt_logprobs.size());
  }
  bool with_logprobs = false;
  std::uint32_t first_logprob = 0;  // resumed tokens have none here
  // Ends of the passes that committed its first tokens and its latest.
  std::optional<TimePoint> first_token = {};
  TimePoint last_token{};
  std::uint32_t n_later = 0;  // tokens after those of the first pass
  // What was sent to the router.
  Duration interval{};               // at least so long between two Tokens
  std::uint32_t n_sent = 0;          // tokens of the answer, resumed ones included
  TimePoint sent_at{};               // when the last of them were sent
  bool closing = false;              // the router wants nothing but the end
  std::optional<wire::Message> end;  // Done or Failed, once it has ended
  TimePoint ended{};

  // What an OPEN asks for that this is not; empty if this is its answer. All that the text depends
  // on counts; not how fast it is wanted.
  std::string_view what_differs(const wire::Open& open) const;
  // Whether it has all log-probabilities that an OPEN of this answer asks for. One that went on
  // from another target's tokens has none of these.
  bool has_logprobs_for(const wire::Open& open) const;
  // What the engine committed, but for the tokens themselves, which are in `text` already.
  void add(const wire::Tokens& tokens, TimePoint now);

  // Its tokens from `begin` on, with their log-probabilities where these are asked for: then
  // `begin` is first_logprob at least. In parts: a whole answer with log-probabilities can be more
  // than a message holds, and so can a prompt's.
  std::vector<wire::Tokens> messages_from(std::size_t begin) const;
  // The log-probabilities of its prompt from that position on.
  std::vector<wire::Tokens> prompt_messages_from(Position from) const;
};

}  // namespace foretoken
