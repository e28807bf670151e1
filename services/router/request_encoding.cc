// A request at a tokenizer: its prompt becomes tokens, and the tokens of its answer become text.
#include <algorithm>
#include <string>
#include <utility>

#include "common/base/tool_formats.h"
#include "common/wire/client_codec.h"
#include "services/router/model_limits.h"
#include "services/router/request.h"

namespace foretoken {
namespace {

constexpr std::uint8_t kTokenEndsSince = 3;  // minor version of the protocol

}  // namespace

void Request::encode(TimePoint now, Actions& out) {
  const auto not_this = tokenizer_retry_.is_open() && !prompt_.is_taken ? tokenizer_ : std::nullopt;
  tokenizer_retry_.ask_again(now, context_.rules.silence);
  if (asked_.model.empty())
    if (auto settled = settle_model(now); !settled.ok()) return fail(settled.error(), 0, out);
  const Pool& pool = context_.pool;
  const auto targets = pool.alive(wire::Role::kTarget);
  const auto it = std::find_if(targets.begin(), targets.end(), [&](const Worker* target) {
    return answers_to(target->hello, asked_.model);
  });
  if (it == targets.end()) return;  // no target yet
  const wire::Fingerprints& of_target = (*it)->hello.fingerprints;
  prompt_.encoding = {.vocabulary = of_target.vocabulary, .text = of_target.text};
  // One that has said that it has the prompt keeps it: asked again it does not encode again.
  const Worker* taker = prompt_.is_taken && tokenizer_ ? pool.find(*tokenizer_) : nullptr;
  const bool stays =
      taker != nullptr && taker->state != wire::WorkerState::kGone &&
      place_tokenizer(std::span(&taker, 1), prompt_.encoding, std::nullopt).has_value();
  encode_at(stays ? tokenizer_ : place_tokenizer(pool, prompt_.encoding, not_this), out);
}

void Request::encode_at(std::optional<WorkerId> chosen, Actions& out) {
  if (tokenizer_ && tokenizer_ != chosen)
    out.push_back(ToWorker{*tokenizer_, id_, wire::StreamClose{.reason = CloseReason::kMigrated}});
  assign_tokenizer(chosen);
  prompt_.is_taken = false;
  if (!tokenizer_) return;
  out.push_back(ToWorker{*tokenizer_, id_,
                         wire::Encode{.kind = asked_.prompt_kind,
                                      .text = asked_.prompt_kind == wire::PromptKind::kMessages
                                                  ? wire::messages_json(asked_.messages)
                                                  : asked_.prompt,
                                      .tokens = asked_.token_ids,
                                      .add_special_tokens = asked_.add_special_tokens,
                                      .add_generation_prompt = asked_.add_generation_prompt,
                                      .bad_words = asked_.bad_words,
                                      .prediction = asked_.prediction,
                                      .flow = flow_,
                                      .variables = wire::variables_json(asked_),
                                      .tool_choice = wire::tool_choice_of(asked_),
                                      .tool_name = asked_.tool_name,
                                      .continue_final_message = asked_.continue_final_message,
                                      .without_thinking = !constraint_key(asked_.params).empty()}});
}

// It waits at a tokenizer that has said so.
bool Request::prompt_may_move() const {
  return state_ == State::kEncoding && tokenizer_ && prompt_.is_taken && prompt_.moves_from &&
         !prompt_.was_moved;
}

bool Request::may_move_prompt(TimePoint now) const {
  return prompt_may_move() && now >= *prompt_.moves_from && now < last_moment();
}

void Request::move_prompt(std::optional<WorkerId> idle_tokenizer, TimePoint now, Actions& out) {
  if (!idle_tokenizer) {
    prompt_.moves_from = now + context_.rules.silence.first;
    return;
  }
  encode_at(idle_tokenizer, out);
  tokenizer_retry_.ask(now, context_.rules.silence);
  prompt_.was_moved = true;
}

void Request::on_tokenizer(wire::Message message, TimePoint now, Actions& out) {
  if (auto* encoded = std::get_if<wire::Encoded>(&message))
    return on_encoded(std::move(*encoded), now, out);
  if (const auto* text = std::get_if<wire::Text>(&message)) return on_text(*text, now, out);
  const RequestRules& rules = context_.rules;
  if (state_ == State::kEncoding) {
    if (const auto* opened = std::get_if<wire::Opened>(&message))
      return on_prompt_taken(silence_behind(opened->n_waiting, rules.silence.first), now);
    if (const auto* busy = std::get_if<wire::Busy>(&message))  // it answered, and has no room yet
      return on_prompt_taken(
          std::max(rules.silence.first, Duration(std::chrono::milliseconds(busy->retry_after_ms))),
          now);
  }
  const auto* failed = std::get_if<wire::Failed>(&message);
  if (failed == nullptr) return;
  if (state_ != State::kEncoding) {
    // It lost the stream. Not at once again: a lost StreamOpen makes every Decode behind it fail,
    // too.
    const bool has_stream = stream_.n_sent > 0 || stream_.final_sent;
    if (has_stream && state_ != State::kCounting) tokenizer_retry_.suspect_loss(now, rules.silence);
    return;
  }
  // Of a stream, so of a run of this id that is over: no answer to ENCODE.
  if (failed->code == ErrorCode::kNotFound) return;
  fail(Error{failed->code, failed->message, failed->param}, failed->retry_after_ms, out);
}

void Request::on_prompt_taken(Duration pause, TimePoint now) {
  prompt_.is_taken = true;
  if (!prompt_.moves_from) prompt_.moves_from = now + context_.rules.encode_patience;
  tokenizer_retry_.put_off(now + pause);
}

void Request::on_encoded(wire::Encoded encoded, TimePoint now, Actions& out) {
  if (state_ != State::kEncoding) return;  // an answer to a question asked twice
  tokenizer_retry_.close();
  prompt_.encoded = std::move(encoded);
  prompt_.took = now - arrived_;
  const std::size_t n_tokens = prompt_.encoded.tokens.size();
  if (n_tokens == 0)
    return fail(Error{ErrorCode::kInvalidValue, "the prompt has no tokens; it needs at least one",
                      prompt_key(asked_)},
                0, out);
  if (const auto constraint = constraint_key(asked_.params);
      !constraint.empty() && prompt_.encoded.begun == markers::kThink)
    return fail(Error{ErrorCode::kInvalidValue,
                      "the prompt ends within a thought; an answer that is constrained begins "
                      "without one",
                      std::string(constraint)},
                0, out);
  asked_.params.bad_words = prompt_.encoded.bad_word_tokens;
  answer_.begin(prompt_.encoded.tokens, asked_.params);
  if (asked_.token_ends)
    answer_.set_form({.tool_format = prompt_.encoded.tool_format,
                      .marker_tokens = prompt_.encoded.marker_tokens,
                      .reasons = prompt_.encoded.reasons,
                      .begun = prompt_.encoded.begun});
  if (asked_.return_prompt_token_ids) answer_.show_prompt(prompt_.encoded.tokens);
  context_.counters.prompt_tokens += n_tokens;
  place(now, out);
}

// Those of the target that began the answer: before that there are no tokens to decode.
std::vector<TokenId> Request::end_tokens() const {
  if (!placing_.first) return {};
  return ending_tokens(asked_.params, placing_.first->end_tokens);
}

// Prompt and answer, joined, are what their tokens decode to together. A constraint holds for the
// tokens' own bytes, so that its text begins with theirs, in a turn of a chat too.
bool Request::continues_text() const {
  if (!constraint_key(asked_.params).empty()) return true;
  switch (asked_.prompt_kind) {
    case wire::PromptKind::kTokens:
      return true;
    case wire::PromptKind::kText:
      return !asked_.prompt.empty();
    case wire::PromptKind::kMessages:
      return asked_.continue_final_message;
  }
  return false;
}

// Sends the tokenizer what it does not have. Positions are those of the whole sequence.
void Request::decode(TimePoint now, Actions& out) {
  const bool final = answer_.is_finished();
  if (stream_.n_sent == answer_.n_tokens() && (!final || stream_.final_sent)) return;
  if (!tokenizer_) return replay(now, out);
  const Position n_prompt = answer_.n_prompt();
  if (stream_.n_sent == 0 && !stream_.final_sent)
    out.push_back(ToWorker{*tokenizer_, id_,
                           wire::StreamOpen{.stop = asked_.stop,
                                            .include_stop = asked_.include_stop_str_in_output,
                                            .skip_special_tokens = asked_.skip_special_tokens,
                                            .position = n_prompt,
                                            .min_tokens = asked_.params.min_tokens,
                                            .token_ends = asked_.token_ends,
                                            .end_tokens = end_tokens(),
                                            .continues = continues_text()}});
  const std::vector<TokenId>& tokens = answer_.tokens();
  out.push_back(ToWorker{*tokenizer_, id_,
                         wire::Decode{.position = n_prompt + stream_.n_sent,
                                      .ids = {tokens.begin() + stream_.n_sent, tokens.end()},
                                      .final = final,
                                      .bytes_of = answer_.without_bytes()}});
  stream_.n_sent = answer_.n_tokens();
  stream_.final_sent = final;
  if (!tokenizer_retry_.is_open()) tokenizer_retry_.ask(now, context_.rules.silence);
}

// The stream from its first token, at whichever tokenizer there is. Bytes that came before are
// recognised by offset.
void Request::replay(TimePoint now, Actions& out) {
  ++context_.counters.replayed;
  tokenizer_retry_.ask_again(now, context_.rules.silence);
  assign_tokenizer(place_tokenizer(context_.pool, prompt_.encoding, tokenizer_));
  stream_.n_sent = 0;
  stream_.final_sent = false;
  if (tokenizer_) decode(now, out);
}

Answer::TokenEnds Request::ends_of_tokenizer() const {
  const Worker* tokenizer = tokenizer_ ? context_.pool.find(*tokenizer_) : nullptr;
  const bool says_them = tokenizer != nullptr && tokenizer->minor >= kTokenEndsSince;
  return says_them ? Answer::TokenEnds::kSaid : Answer::TokenEnds::kUnsaid;
}

void Request::on_text(const wire::Text& text, TimePoint now, Actions& out) {
  if (state_ != State::kRunning && state_ != State::kFlushing) return;
  switch (answer_.add_text(text, stream_.n_sent, ends_of_tokenizer())) {
    case Answer::News::kGap:
      return tokenizer_retry_.suspect_loss(now, context_.rules.silence);
    case Answer::News::kNone:
      return;
    case Answer::News::kSome:
      break;
  }
  if (text.stopped) return on_stop_string(text, now, out);
  stream_.final_confirmed = text.final && answer_.is_finished() && answer_.has_all_text();
  if (stream_.final_confirmed) return reply(std::nullopt, now, out);
  if (answer_.n_detokenized() == stream_.n_sent && !stream_.final_sent)
    tokenizer_retry_.close();
  else
    tokenizer_retry_.ask(now, context_.rules.silence);
  deliver(out);
}

void Request::on_stop_string(const wire::Text& text, TimePoint now, Actions& out) {
  answer_.end_at_stop_string(text);
  tokenizer_retry_.close();
  if (answer_.is_finished() || !target_) return reply(std::nullopt, now, out);
  state_ = State::kCounting;
  counting_until_ = now + context_.rules.stats_patience;
  out.push_back(ToWorker{*target_, id_, wire::Close{.reason = CloseReason::kStop}});
}

}  // namespace foretoken
