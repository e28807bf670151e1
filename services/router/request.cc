#include "services/router/request.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "common/base/hash.h"
#include "common/base/micros.h"
#include "common/base/tool_formats.h"
#include "common/messages/named_proposers.h"
#include "common/wire/client_codec.h"
#include "services/router/model_limits.h"

namespace foretoken {
namespace {

constexpr std::size_t kLeastTokens = 32;       // what a turn costs at least
constexpr std::uint8_t kConstraintsSince = 4;  // minor version of the protocol

std::uint64_t salt_of(const std::string& tenant) {
  if (tenant.empty()) return 0;
  std::uint64_t hash = 0x9ae16a3b2f90404full;
  for (const char c : tenant) hash = mix64(hash ^ (static_cast<unsigned char>(c) + 1));
  return hash | 1;  // 0 is reserved for no tenant
}

std::uint64_t micros_until(TimePoint deadline, TimePoint now) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(
      1, std::chrono::duration_cast<std::chrono::microseconds>(deadline - now).count()));
}

CloseReason close_reason_of(std::optional<FinishReason> cut_short) {
  if (!cut_short) return CloseReason::kFinished;
  return *cut_short == FinishReason::kDeadline ? CloseReason::kDeadline : CloseReason::kCancelled;
}

}  // namespace

FlowId flow_of(const std::string& tenant, const Peer& peer) {
  // Two different constants: no connection chooses its way into a tenant's turn.
  return tenant.empty() ? mix64(fnv1a(peer.routing) ^ 0x452821e638d01377ull ^ peer.socket)
                        : mix64(fnv1a(tenant) ^ 0xbe5466cf34e90c6cull);
}

Duration silence_behind(std::uint32_t n_waiting, Duration silence) {
  return std::min<Duration>(std::chrono::minutes(1), silence * (8 + n_waiting / 2));
}

std::uint64_t seed_of(RequestId id) {
  // Two different constants, so that high and low are not interchangeable.
  return mix64(mix64(id.high ^ 0x243f6a8885a308d3ull) ^ (id.low + 0x13198a2e03707344ull));
}

Request::Request(RequestContext& context,
                 RequestId id,
                 const Peer& peer,
                 wire::ClientRequest asked,
                 std::uint64_t content,
                 TimePoint now)
    : context_(context),
      id_(id),
      content_(content),
      asked_(std::move(asked)),
      peer_(peer),
      flow_(flow_of(asked_.tenant, peer)),
      arrived_(now),
      waiting_since_(now),
      deadline_(now + (asked_.timeout_ms == 0 ? context.rules.timeout
                                              : std::chrono::milliseconds(asked_.timeout_ms))),
      came_early_(!context.pool.all_here()),
      answer_(now),
      series_(++context.n_series) {
  if (!asked_.given.contains("seed")) asked_.params.seed = seed_of(id);
}

// ---- the model

Result<void> Request::settle_model(TimePoint now) {
  const Pool& pool = context_.pool;
  const RequestRules& rules = context_.rules;
  const auto models = pool.models(now);
  if (asked_.model.empty()) {
    auto meant = settled_model_without(pool, models, rules.default_model, rules.only_model);
    if (!meant.ok()) return meant.error();
    if (!*meant) return {};
    asked_.model = **meant;
  }
  const bool is_known =
      models.empty() || std::any_of(models.begin(), models.end(), [&](const wire::Hello* model) {
        return answers_to(*model, asked_.model);
      });
  if (is_known || !pool.all_here()) return {};
  return Error{ErrorCode::kModelNotFound, not_served(models), "model"};
}

std::string Request::not_served(const std::vector<const wire::Hello*>& models) const {
  return "model \"" + asked_.model + "\"" +
         (asked_.model == context_.rules.default_model ? " (router.default_model)" : "") +
         " is not served; there is " + names_of(models);
}

std::string Request::model_among(std::span<const wire::Hello* const> served) const {
  if (placing_.first) return placing_.first->model_name;
  if (asked_.model.empty()) return {};  // an alias "*" would stand for it
  const auto it = std::find_if(served.begin(), served.end(), [&](const wire::Hello* model) {
    return answers_to(*model, asked_.model);
  });
  return it == served.end() ? std::string() : (*it)->model_name;
}

bool Request::has_target_of_model() const {
  const auto targets = context_.pool.alive(wire::Role::kTarget);
  return std::any_of(targets.begin(), targets.end(),
                     [&](const Worker* target) { return answers_to(target->hello, asked_.model); });
}

// ---- the client

void Request::join(const Peer& peer, Actions& out) {
  peer_ = peer;
  answer_.restart_delivery();
  series_ = ++context_.n_series;
  deliver(out);
}

void Request::deliver(Actions& out) {
  if (!asked_.stream) return;
  if (auto piece = answer_.next_piece(id_)) {
    piece->index = asked_.params.choice;
    if (piece->position == 0 && placing_.first) {
      piece->model = placing_.first->model_name;
      piece->system_fingerprint = system_fingerprint_of(placing_.first->fingerprints);
    }
    send_client(std::move(*piece), out);
  }
}

void Request::send_client(wire::ClientAnswer answer, Actions& out) const {
  out.push_back(ToClient{.peer = peer_,
                         .request = id_,
                         .answer = std::move(answer),
                         .is_accepted = true,
                         .series = series()});
}

void Request::reply(std::optional<FinishReason> cut_short, TimePoint now, Actions& out) {
  const RequestRules& rules = context_.rules;
  wire::ClientReply whole = answer_.whole_reply(
      id_, {.cut_short = cut_short,
            .target = placing_.first ? &*placing_.first : nullptr,
            .tokenized = prompt_.took,
            .waited = placing_.waited,
            .n_migrations = placing_.n_migrations,
            .n_draft = asked_.num_draft_tokens < 0
                           ? rules.default_draft_len
                           : static_cast<std::uint32_t>(asked_.num_draft_tokens)});
  whole.index = asked_.params.choice;
  RequestCounters& counters = context_.counters;
  const wire::SpeculativeDecoding& spec = whole.metrics.speculative_decoding;
  ++counters.replied;
  counters.tokens += answer_.n_tokens();
  counters.rounds += spec.num_spec_steps;
  counters.drafted += spec.num_draft_tokens;
  counters.guessed_right += spec.num_accepted_draft_tokens;
  if (const auto reason = value_named<FinishReason>(whole.finish_reason))
    tally_answer(whole, *reason, now);
  send_client(asked_.stream ? answer_.without_pieces(whole) : whole, out);
  // A cancelled or late answer is no answer to a client that asks again.
  if (!cut_short) final_reply_ = std::move(whole);
  end(close_reason_of(cut_short), out);
}

// When a client cancels says nothing about this system's latency.
void Request::tally_answer(const wire::ClientReply& whole, FinishReason reason, TimePoint now) {
  if (tally_ == nullptr) return;
  ++tally_->n_ended[static_cast<std::size_t>(reason)];
  if (reason == FinishReason::kCancelled) return;
  tally_->whole_answer.observe(now - arrived_);
  tally_->queueing.observe(whole.metrics.queue_time_ms / 1e3);
  tally_->prompt_tokens.observe(answer_.n_prompt());
  tally_->answer_tokens.observe(answer_.n_tokens());
}

void Request::fail(const Error& error, std::uint32_t retry_after_ms, Actions& out) {
  ++context_.counters.failed;
  // Whatever is lost of the answer before it needs no second error.
  series_ = ++context_.n_series;
  send_client(wire::client_error(id_, error, retry_after_ms), out);
  end(CloseReason::kCancelled, out);
}

// The workers that may still have it drop it.
void Request::end(CloseReason reason, Actions& out) {
  if (target_ && (state_ == State::kRunning || state_ == State::kCounting))
    out.push_back(ToWorker{*target_, id_, wire::Close{.reason = reason}});
  context_.places.stop_waiting(id_);
  if (tokenizer_ &&
      (state_ == State::kEncoding || (stream_.n_sent > 0 && !stream_.final_confirmed)))
    out.push_back(ToWorker{*tokenizer_, id_, wire::StreamClose{.reason = reason}});
  assign_target(std::nullopt);
  assign_tokenizer(std::nullopt);
  has_ended_ = true;
}

// ---- its workers

void Request::assign_tokenizer(std::optional<WorkerId> to) {
  Pool& pool = context_.pool;
  if (tokenizer_)
    if (Worker* worker = pool.find(*tokenizer_); worker != nullptr && worker->n_placed > 0)
      --worker->n_placed;
  tokenizer_ = to;
  if (to)
    if (Worker* worker = pool.find(*to)) ++worker->n_placed;
}

void Request::assign_target(std::optional<WorkerId> to) {
  Pool& pool = context_.pool;
  if (target_) {
    if (Worker* worker = pool.find(*target_); worker != nullptr && worker->n_placed > 0)
      --worker->n_placed;
    context_.places.give_back(*target_, flow_);
  }
  target_ = to;
  placing_.has_started = false;
  if (!to) return;
  context_.places.take(*to, flow_);
  if (Worker* worker = pool.find(*to)) {
    ++worker->n_placed;
    worker->placed_tokens += prompt_.encoded.tokens.size() + answer_.n_tokens();
  }
}

void Request::on_message(WorkerId from, wire::Message message, TimePoint now, Actions& out) {
  if (target_ == from) return on_target(std::move(message), now, out);
  if (tokenizer_ == from) return on_tokenizer(std::move(message), now, out);
  ++context_.counters.stale;
  // It was thought dead, and the request has moved on.
  if (std::holds_alternative<wire::Tokens>(message) ||
      std::holds_alternative<wire::Opened>(message))
    out.push_back(ToWorker{from, id_, wire::Close{.reason = CloseReason::kMigrated}});
}

void Request::worker_lost(WorkerId worker, TimePoint now, Actions& out) {
  if (target_ == worker) {
    if (state_ == State::kRunning) return migrate(now, out);
    assign_target(std::nullopt);
    if (state_ == State::kCounting) reply(std::nullopt, now, out);
  } else if (tokenizer_ == worker) {
    assign_tokenizer(std::nullopt);
    if (state_ == State::kEncoding)
      encode(now, out);
    else if (state_ != State::kCounting && (!answer_.has_all_text() || answer_.is_finished()))
      replay(now, out);
  }
}

bool Request::waits_for_worker() const {
  if (state_ == State::kPlacing) return !context_.places.is_waiting(id_);
  return !tokenizer_ && (state_ == State::kEncoding || !answer_.has_all_text());
}

void Request::workers_changed(TimePoint now, Actions& out) {
  if (state_ == State::kPlacing)
    place(now, out);
  else if (state_ == State::kEncoding)
    encode(now, out);
  else
    replay(now, out);
}

bool Request::needs(const Worker& worker) const {
  if (worker.hello.role == wire::Role::kTarget)
    return waits_for_target() ? place_target(context_.pool, need()) == worker.id
                              : target_ == worker.id && state_ != State::kFlushing;
  return (tokenizer_ ? tokenizer_
                     : place_tokenizer(context_.pool, prompt_.encoding, std::nullopt)) == worker.id;
}

// ---- encoding: at a tokenizer

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

// ---- placing and running: at a target

TargetNeed Request::need() const {
  return {
      .model = asked_.model,
      .least_minor = constraint_key(asked_.params).empty() ? std::uint8_t{0} : kConstraintsSince,
      .like = placing_.first ? &*placing_.first : nullptr,
      .not_these = placing_.refused_by,
      .accepted = context_.draining ? TimePoint::min() : arrived_};
}

// One that was moved or refused waits for no others; a new one is served in the order of the flows.
void Request::place(TimePoint now, Actions& out) {
  state_ = State::kPlacing;
  if (!placing_.waits_since) placing_.waits_since = now;
  assign_target(std::nullopt);
  if (placing_.first || !placing_.refused_by.empty()) return place_at_once(now, out);
  // What a model does not allow is said at once, whatever is before it.
  std::size_t most = SIZE_MAX;  // tokens of its prompt and answer that a target has room for
  if (const auto first = place_target(context_.pool, need())) {
    const Worker& worker = *context_.pool.find(*first);
    if (!is_for(worker, now, out)) return;
    if (worker.hello.max_model_len != 0) most = worker.hello.max_model_len;
  }
  const std::size_t n_asked =
      prompt_.encoded.tokens.size() +
      (asked_.given.contains("max_tokens") ? asked_.params.max_tokens : kDefaultMaxTokens);
  const std::size_t n_tokens = std::min(n_asked, most);
  context_.places.wait({.id = id_,
                        .flow = flow_,
                        .weight = context_.rules.weight_of(asked_.tenant),
                        .priority = asked_.priority,
                        .cost = static_cast<double>(std::max(kLeastTokens, n_tokens))});
}

void Request::place_at_once(TimePoint now, Actions& out) {
  if (const auto chosen = place_target(context_.pool, need())) return start_at(*chosen, now, out);
  // Refused by all there are: an error at once, unless a target had begun the answer.
  const bool had_begun = placing_.n_migrations > 0 || answer_.n_tokens() > 0;
  if (!had_begun && placing_.refusal && !placing_.refused_by.empty())
    return fail(Error{placing_.refusal->code, placing_.refusal->message},
                std::max(1u, placing_.refusal->retry_after_ms), out);
  placing_.refused_by.clear();
  target_retry_.ask_again(now, context_.rules.silence);
}

// False: it is not, and has been encoded anew or ended.
bool Request::is_for(const Worker& worker, TimePoint now, Actions& out) {
  const wire::Hello& target = worker.hello;
  if (target.fingerprints.vocabulary != prompt_.encoding.vocabulary ||
      (!placing_.first && target.fingerprints.text != prompt_.encoding.text)) {
    // Another model behind the same name has come.
    state_ = State::kEncoding;
    encode(now, out);
    return false;
  }
  const std::string_view constraint = constraint_key(asked_.params);
  if (!constraint.empty() && worker.minor < kConstraintsSince) {  // it would answer freely
    fail(Error{ErrorCode::kUnsupportedParameter,
               "target " + target.name + " constrains no answers: it is older than the router",
               std::string(constraint)},
         0, out);
    return false;
  }
  if (placing_.first) return true;
  if (auto params = params_at(target, asked_, prompt_.encoded.tokens.size()); !params.ok()) {
    fail(params.error(), 0, out);
    return false;
  }
  return true;
}

// The parameters are those of the request as it came until a target begins, for the first that was
// looked at need not be that one.
void Request::start_at(WorkerId target, TimePoint now, Actions& out) {
  const Worker& worker = *context_.pool.find(target);
  if (!is_for(worker, now, out)) return;
  const wire::Hello& hello = worker.hello;
  if (!placing_.first) {
    asked_.params = value_or_throw(params_at(hello, asked_, prompt_.encoded.tokens.size()));
    placing_.first = hello;
    tally_ = &context_.tallies[hello.model_name];
  }
  if (placing_.waits_since) placing_.waited += now - *placing_.waits_since;
  placing_.waits_since.reset();
  assign_target(target);
  state_ = State::kRunning;
  target_retry_.ask(now, context_.rules.silence);
  open(now, out);
}

// Any token may end an answer that has stop strings, and what follows is decoded in vain.
Duration Request::tokens_interval() const {
  if (asked_.stream || !asked_.stop.empty()) return {};
  return context_.rules.unstreamed_interval;
}

// Opens, migrates and resends: the target answers from the position it is given.
void Request::open(TimePoint now, Actions& out) {
  const std::vector<TokenId>& prompt = prompt_.encoded.tokens;
  const wire::NamedProposers named = wire::named(asked_.proposer);
  wire::Open message{.tokens = prompt,
                     .n_prompt = static_cast<std::uint32_t>(prompt.size()),
                     .params = asked_.params,
                     .proposer = named.first,
                     .draft_len = asked_.num_draft_tokens,
                     .adaptive = asked_.adaptive,
                     .prediction = prompt_.encoded.prediction_tokens,
                     .deadline_us = micros_until(deadline_, now),
                     .tenant_salt = salt_of(asked_.tenant),
                     .flow = flow_,
                     .flow_weight = static_cast<float>(context_.rules.weight_of(asked_.tenant)),
                     .prompt_logprobs_from = answer_.prompt_logprobs_from(),
                     .tokens_interval_us = short_micros(tokens_interval()),
                     .proposers = named.bits};
  message.tokens.insert(message.tokens.end(), answer_.tokens().begin(), answer_.tokens().end());
  out.push_back(ToWorker{*target_, id_, std::move(message)});
}

void Request::migrate(TimePoint now, Actions& out) {
  assign_target(std::nullopt);
  const std::uint32_t limit = context_.rules.max_migrations;
  if (++placing_.n_migrations > limit)
    return fail(Error{ErrorCode::kUnavailable, "lost " + std::to_string(placing_.n_migrations) +
                                                   " targets; the limit is " +
                                                   std::to_string(limit) + " moves"},
                1000, out);
  ++context_.counters.migrated;
  waiting_since_ = now;
  target_retry_.close();
  place(now, out);
}

void Request::on_target(wire::Message message, TimePoint now, Actions& out) {
  if (!target_retry_.loss_suspected())  // it answered: the next silence begins now
    target_retry_.ask(now, context_.rules.silence);
  if (const auto* tokens = std::get_if<wire::Tokens>(&message)) return on_tokens(*tokens, now, out);
  if (auto* done = std::get_if<wire::Done>(&message)) return on_done(std::move(*done), now, out);
  if (state_ != State::kRunning) return;
  if (auto* busy = std::get_if<wire::Busy>(&message)) {
    placing_.refused_by.push_back(*target_);
    placing_.refusal = std::move(*busy);
    target_retry_.close();
    return place(now, out);
  }
  if (const auto* failed = std::get_if<wire::Failed>(&message))
    return on_failed_target(*failed, now, out);
}

void Request::on_failed_target(const wire::Failed& failed, TimePoint now, Actions& out) {
  if (failed.code == ErrorCode::kDraining || failed.code == ErrorCode::kUnavailable)
    return migrate(now, out);
  fail(Error{failed.code, failed.message, failed.param}, failed.retry_after_ms, out);
}

void Request::on_tokens(const wire::Tokens& tokens, TimePoint now, Actions& out) {
  if (state_ != State::kRunning) return;
  if (!std::exchange(placing_.has_started, true))
    if (Worker* target = context_.pool.find(*target_)) {
      ++target->n_started;
      context_.places.look_again();
    }
  const bool is_first = answer_.n_tokens() == 0;
  const TimePoint before = answer_.last_token();
  switch (answer_.add_tokens(tokens, now)) {
    case Answer::News::kGap:
      return target_retry_.suspect_loss(now, context_.rules.silence);
    case Answer::News::kNone:
      return;
    case Answer::News::kSome:
      if (is_first)
        tally_->first_token.observe(now - arrived_);
      else if (asked_.stream)
        tally_->inter_token.observe(now - before);
      return decode(now, out);
  }
}

void Request::on_done(wire::Done done, TimePoint now, Actions& out) {
  const RequestRules& rules = context_.rules;
  if (state_ == State::kCounting) {
    answer_.finish(std::move(done));
    return reply(std::nullopt, now, out);
  }
  if (state_ != State::kRunning) return;
  if (done.reason == FinishReason::kCancelled) return migrate(now, out);  // not by us
  // Its time is not over: that was said of an earlier run of the same request.
  if (done.reason == FinishReason::kDeadline && now + rules.deadline_grace < deadline_) {
    out.push_back(ToWorker{*target_, id_, wire::Close{.reason = CloseReason::kMigrated}});
    return target_retry_.suspect_loss(now, rules.silence);
  }
  if (done.reason == FinishReason::kDeadline && done.n_generated == 0 &&
      !answer_.has_something_for_client())
    return end_late(now, out);
  const bool is_whole = done.reason == FinishReason::kStop || done.reason == FinishReason::kLength;
  if (is_whole && !answer_.has_all_of_prompt() && done.prompt_logprobs_until < answer_.n_prompt())
    return fail(Error{ErrorCode::kUnsupportedParameter,
                      "the target gives no prompt_logprobs: it is older than the router",
                      "prompt_logprobs"},
                0, out);
  if (done.n_generated > answer_.n_tokens() ||
      (is_whole && !answer_.has_all_of_prompt()))  // tokens were lost on the way
    return target_retry_.suspect_loss(now, rules.silence);
  answer_.finish(std::move(done));
  state_ = State::kFlushing;
  target_retry_.close();
  out.push_back(ToWorker{*target_, id_, wire::Close{.reason = CloseReason::kFinished}});
  assign_target(std::nullopt);  // its place is free
  decode(now, out);
}

// ---- the text: at a tokenizer

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
                                            .token_ends = asked_.token_ends}});
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

void Request::on_text(const wire::Text& text, TimePoint now, Actions& out) {
  if (state_ != State::kRunning && state_ != State::kFlushing) return;
  switch (answer_.add_text(text, stream_.n_sent)) {
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

// ---- time

// The target ends a late request itself.
TimePoint Request::last_moment() const {
  return deadline_ +
         (target_ || answer_.is_finished() ? context_.rules.deadline_grace : Duration{0});
}

bool Request::is_never_placed() const { return waits_for_target() && answer_.n_tokens() == 0; }

TimePoint Request::due(TimePoint now) const {
  const Duration silence = context_.rules.silence.first;
  TimePoint due = std::min(last_moment(), tokenizer_retry_.due());
  if (state_ == State::kPlacing || state_ == State::kRunning)
    due = std::min(due, target_retry_.due());
  if (!context_.pool.all_here()) due = std::min(due, context_.pool.all_here_after(now));
  if (is_never_placed()) due = std::min(due, now + silence);
  if (counting_until_) due = std::min(due, *counting_until_);
  if (prompt_may_move()) due = std::min(due, *prompt_.moves_from);
  return due;
}

void Request::tick(TimePoint now, Actions& out) {
  if (now >= last_moment()) return end_late(now, out);
  settle_early_model(now, out);
  if (!has_ended_) give_up_unplaced(now, out);
  if (has_ended_) return;
  if (state_ == State::kCounting && now >= *counting_until_) return reply(std::nullopt, now, out);
  ask_silent_worker(now, out);
}

void Request::end_late(TimePoint now, Actions& out) {
  if (answer_.has_something_for_client()) return reply(FinishReason::kDeadline, now, out);
  const auto allowed = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - arrived_);
  fail(Error{ErrorCode::kDeadlineExceeded, "no token within " + std::to_string(allowed.count()) +
                                               " ms (timeout_ms, limits.request_timeout_s)"},
       0, out);
}

void Request::settle_early_model(TimePoint now, Actions& out) {
  const bool waits_for_model = state_ == State::kEncoding && !tokenizer_;
  if (!waits_for_model || !came_early_ || !context_.pool.all_here()) return;
  const bool was_open = asked_.model.empty();
  if (auto settled = settle_model(now); !settled.ok()) return fail(settled.error(), 0, out);
  if (was_open && !asked_.model.empty()) tokenizer_retry_.put_off(now);
}

// It waits for others, not for a service to come.
bool Request::has_taker() const {
  if (state_ == State::kEncoding) return prompt_.is_taken && tokenizer_;
  return context_.places.is_waiting(id_) && place_target(context_.pool, need()).has_value();
}

// A service that it waits for was lost and is still remembered: it may be loading its model again.
bool Request::may_return() const {
  const bool waits_for_target = state_ == State::kPlacing || !has_target_of_model();
  const auto all = context_.pool.all();
  return std::any_of(all.begin(), all.end(), [&](const Worker* worker) {
    if (worker->state != wire::WorkerState::kGone) return false;
    if (waits_for_target)
      return worker->hello.role == wire::Role::kTarget && answers_to(worker->hello, asked_.model);
    return worker->hello.role == wire::Role::kTokenizer &&
           place_tokenizer(std::span(&worker, 1), prompt_.encoding, std::nullopt).has_value();
  });
}

// No service could take it for a while: an error soon, and not at its deadline.
void Request::give_up_unplaced(TimePoint now, Actions& out) {
  if (!is_never_placed()) return;
  if (has_taker()) waiting_since_ = now;
  if (now < waiting_since_ + context_.rules.first_placement || may_return()) return;
  // It was waited for, and is not there.
  if (auto settled = settle_model(now); !settled.ok()) return fail(settled.error(), 0, out);
  const bool no_tokenizer = state_ == State::kEncoding && has_target_of_model();
  fail(Error{ErrorCode::kUnavailable,
             no_tokenizer ? "no tokenizer of the model's vocabulary and chat template answers"
             : context_.pool.alive(wire::Role::kTarget).empty()
                 ? "no target is there to answer"
                 : "no target of model \"" + asked_.model + "\" answers"},
       1000, out);
}

void Request::ask_silent_worker(TimePoint now, Actions& out) {
  if (tokenizer_retry_.is_due(now)) {
    if (state_ == State::kEncoding)
      encode(now, out);
    else
      replay(now, out);
  } else if (target_retry_.is_due(now)) {
    if (state_ == State::kPlacing) {
      place(now, out);
    } else if (state_ == State::kRunning) {
      target_retry_.ask_again(now, context_.rules.silence);
      open(now, out);
    }
  }
}

}  // namespace foretoken
