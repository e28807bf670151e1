#include "services/router/request.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "common/base/hash.h"
#include "common/wire/client_codec.h"

namespace foretoken {
namespace {

CloseReason close_reason_of(std::optional<FinishReason> cut_short) {
  if (!cut_short) return CloseReason::kFinished;
  return *cut_short == FinishReason::kDeadline ? CloseReason::kDeadline : CloseReason::kCancelled;
}

// A process that took the place of the one that counts the request has counts of its own.
void count_down(Pool& pool, WorkerId id, Incarnation counted_by) {
  Worker* worker = pool.find(id);
  if (worker != nullptr && worker->incarnation == counted_by && worker->n_placed > 0)
    --worker->n_placed;
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
  if (tokenizer_) count_down(pool, *tokenizer_, tokenizer_process_);
  tokenizer_ = to;
  if (!to) return;
  if (Worker* worker = pool.find(*to)) {
    ++worker->n_placed;
    tokenizer_process_ = worker->incarnation;
  }
}

void Request::assign_target(std::optional<WorkerId> to) {
  Pool& pool = context_.pool;
  if (target_) {
    count_down(pool, *target_, target_process_);
    context_.places.give_back(*target_, flow_);
  }
  target_ = to;
  placing_.has_started = false;
  if (!to) return;
  context_.places.take(*to, flow_);
  if (Worker* worker = pool.find(*to)) {
    ++worker->n_placed;
    target_process_ = worker->incarnation;
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

}  // namespace foretoken
