#include "services/target/target_answer.h"

#include <algorithm>
#include <span>

namespace foretoken {
namespace {

constexpr std::size_t kTokensAtOnce = 256;  // with 20 log probabilities each 45 KiB

wire::Tokens tokens_of(const TargetAnswer& answer, std::size_t from, std::size_t until) {
  const auto part = [&](const auto& list, std::size_t skipped) {
    const auto within = std::span(list).subspan(from - skipped, until - from);
    return std::vector(within.begin(), within.end());
  };
  wire::Tokens tokens{.position = static_cast<Position>(answer.n_prompt + from),
                      .ids = part(answer.text->from(answer.n_prompt), 0),
                      .accepted = part(answer.guessed, 0)};
  if (answer.with_logprobs) tokens.logprobs = part(answer.logprobs, answer.first_logprob);
  return tokens;
}

}  // namespace

std::string_view TargetAnswer::what_differs(const wire::Open& open) const {
  const auto prompt = std::span(open.tokens).first(open.n_prompt);
  if (!std::ranges::equal(prompt, text->tokens().first(n_prompt))) return "another prompt";
  if (params != open.params) return "other sampling parameters";
  if (end_tokens != open.end_tokens) return "other end tokens";
  const auto resumed = std::span(open.tokens).subspan(open.n_prompt);
  const std::size_t n_both = std::min(resumed.size(), n_output());
  return std::ranges::equal(resumed.first(n_both), text->from(n_prompt).first(n_both))
             ? ""
             : "another answer";
}

bool TargetAnswer::has_logprobs_for(const wire::Open& open) const {
  const bool has_prompt = open.params.n_prompt_logprobs < 0 ||
                          std::max<Position>(1, open.prompt_logprobs_from) >= first_prompt_logprob;
  return has_prompt && (!with_logprobs || open.tokens.size() >= n_prompt + first_logprob);
}

void TargetAnswer::add(const wire::Tokens& tokens, TimePoint now) {
  last_token = now;
  if (first_token)
    n_later += static_cast<std::uint32_t>(tokens.ids.size());
  else
    first_token = now;
  guessed.insert(guessed.end(), tokens.accepted.begin(), tokens.accepted.end());
  guessed.resize(tokens.position + tokens.ids.size() - n_prompt, 0);
  logprobs.insert(logprobs.end(), tokens.logprobs.begin(), tokens.logprobs.end());
}

std::vector<wire::Tokens> TargetAnswer::messages_from(std::size_t begin) const {
  std::vector<wire::Tokens> messages;
  const std::size_t n = n_output();
  for (std::size_t from = begin; from < n; from += kTokensAtOnce)
    messages.push_back(tokens_of(*this, from, std::min(from + kTokensAtOnce, n)));
  return messages;
}

std::vector<wire::Tokens> TargetAnswer::prompt_messages_from(Position from) const {
  std::vector<wire::Tokens> messages;
  const Position first = first_prompt_logprob;
  const Position last = prompt_logprobs_until();
  for (Position at = std::max(from, first); at < last; at += kTokensAtOnce) {
    const Position until = std::min<Position>(at + kTokensAtOnce, last);
    const auto ids = text->tokens().subspan(at, until - at);
    const auto known = std::span(prompt_logprobs).subspan(at - first, until - at);
    messages.push_back({.position = at,
                        .ids = {ids.begin(), ids.end()},
                        .logprobs = {known.begin(), known.end()}});
  }
  return messages;
}

}  // namespace foretoken
