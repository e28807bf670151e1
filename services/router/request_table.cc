#include "services/router/request_table.h"

#include <algorithm>

#include "common/base/hash.h"
#include "common/wire/client_codec.h"
#include "services/router/request_answers.h"

namespace foretoken {
namespace {

constexpr std::size_t kLeastTokens = 32;  // what a turn costs at least
constexpr std::size_t kKeptFree = 16;     // one of so many requests is kept for flows that have few

std::uint64_t salt_of(const std::string& tenant) {
  if (tenant.empty()) return 0;
  std::uint64_t hash = 0x9ae16a3b2f90404full;
  for (const char c : tenant) hash = mix64(hash ^ (static_cast<unsigned char>(c) + 1));
  return hash | 1;  // 0 is reserved for no tenant
}

// A connection, whichever of its questions this is.
Peer connection_of(const Peer& peer) { return {.socket = peer.socket, .routing = peer.routing}; }

std::uint64_t micros_until(TimePoint deadline, TimePoint now) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(
      1, std::chrono::duration_cast<std::chrono::microseconds>(deadline - now).count()));
}

// The key that held the prompt.
std::string prompt_key(const wire::ClientRequest& request) {
  switch (request.prompt_kind) {
    case wire::PromptKind::kTokens:
      return "token_ids";
    case wire::PromptKind::kMessages:
      return "messages";
    case wire::PromptKind::kText:
      return "prompt";
  }
  return "prompt";
}

// What the request left open is as the model's makers would have it.
SamplingParams params_with(const SamplingDefaults& model, const wire::ClientRequest& request) {
  SamplingParams params = request.params;
  SamplingDefaults::fields(model, [&](int, const char* key, const auto& value, const char*) {
    if (request.given.contains(key)) return;
    SamplingParams::fields(
        params, [&](int, std::string_view name, auto& member, const Limit&, const char*) {
          if constexpr (std::same_as<decltype(member), std::decay_t<decltype(value)>&>)
            if (name == key) member = value;
        });
  });
  return params;
}

// It waits at a tokenizer that has said so.
bool may_move_prompt(const RequestRow& row) {
  return row.phase == RequestPhase::kEncoding && row.encode_taken && row.tokenizer &&
         row.encode_elsewhere && !row.encode_moved;
}

wire::ClientError cancelled_error(RequestId id, const std::string& message) {
  return wire::client_error(id, Error{ErrorCode::kNotFound, message, "request_id"}, 0);
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

Duration longer_silence(Duration before, Duration silence, Duration longest) {
  return std::min(longest, std::max(silence, 2 * before));
}

std::uint64_t seed_of(RequestId id) {
  // Two different constants, so that high and low are not interchangeable.
  return mix64(mix64(id.high ^ 0x243f6a8885a308d3ull) ^ (id.low + 0x13198a2e03707344ull));
}

// ---- from clients

void RequestTable::submit(const Peer& peer,
                          RequestId id,
                          wire::ClientRequest request,
                          std::uint64_t content,
                          TimePoint now,
                          Actions& out) {
  const auto refuse = [&](ErrorCode code, std::string message, std::string param,
                          std::uint32_t retry_ms) {
    ++counters_.refused;
    out.push_back(ToClient{
        peer, id,
        wire::client_error(id, Error{code, std::move(message), std::move(param)}, retry_ms)});
  };
  finished_.forget_old(now);
  const auto running = rows_.find(id);
  // One id means one request: what workers still send for the first could otherwise be taken for
  // the second, even if the first was cancelled or failed.
  if (running != rows_.end() ? running->second.content != content
                             : finished_.content_of(id).value_or(content) != content)
    return refuse(ErrorCode::kInvalidValue,
                  "request_id was used for another request within the last minute", "request_id",
                  0);
  if (running != rows_.end()) return join(id, running->second, peer, out);
  if (auto finished = finished_.find(id)) {
    ++counters_.joined;
    out.push_back(ToClient{peer, id, std::move(*finished)});
    return;
  }
  if (rows_.size() >= rules_.max_requests)
    return refuse(ErrorCode::kQueueFull,
                  "the router holds " + std::to_string(rows_.size()) +
                      " requests; the limit is limits.max_running + limits.max_waiting",
                  "", 1000);
  const FlowId flow = flow_of(request.tenant, peer);
  const auto held = per_flow_.find(flow);
  const std::size_t kept_free = rules_.max_requests / kKeptFree;
  if (held != per_flow_.end() && held->second >= kept_free && kept_free > 0 &&
      rows_.size() + kept_free >= rules_.max_requests)
    return refuse(ErrorCode::kQueueFull,
                  "the router holds " + std::to_string(rows_.size()) + " requests, " +
                      std::to_string(held->second) + " of this tenant or connection; the last " +
                      std::to_string(kept_free) +
                      " of limits.max_running + limits.max_waiting are for others",
                  "", 1000);
  if (const auto client = per_client_.find(connection_of(peer));
      client != per_client_.end() && client->second >= rules_.max_per_client)
    return refuse(ErrorCode::kQueueFull,
                  "this connection has " + std::to_string(rules_.max_per_client) +
                      " unanswered requests, the most allowed",
                  "", 1000);

  Row row;
  row.content = content;
  row.peer = peer;
  row.flow = flow;
  row.arrived = row.waiting_since = now;
  row.came_early = !pool_.all_here();
  row.deadline = now + (request.timeout_ms == 0 ? rules_.timeout
                                                : std::chrono::milliseconds(request.timeout_ms));
  row.request = std::move(request);
  if (!row.request.given.contains("seed")) row.request.params.seed = seed_of(id);
  if (auto settled = settle_model(row, now); !settled.ok())
    return refuse(settled.error().code, settled.error().message, settled.error().param, 0);
  ++per_client_[connection_of(peer)];
  ++per_flow_[flow];
  ++counters_.accepted;
  wake_at(row.deadline);
  if (!pool_.all_here()) wake_at(pool_.all_here_after(now));
  encode(id, rows_.emplace(id, std::move(row)).first->second, now, out);
}

Result<void> RequestTable::settle_model(Row& row, TimePoint now) const {
  const auto models = pool_.models(now);
  if (row.request.model.empty()) {
    auto meant = model_of_request_without(models, rules_.default_model);
    if (!meant.ok()) return meant.error();
    const bool may_get_company = rules_.default_model.empty() && !pool_.all_here();
    if (!*meant || may_get_company) return {};  // a target may be about to come
    row.request.model = **meant;
  }
  const bool is_known =
      models.empty() || std::any_of(models.begin(), models.end(), [&](const wire::Hello* model) {
        return answers_to(*model, row.request.model);
      });
  if (is_known || !pool_.all_here()) return {};
  return Error{ErrorCode::kModelNotFound, not_served(row, models), "model"};
}

std::string RequestTable::not_served(const Row& row,
                                     std::span<const wire::Hello* const> models) const {
  const std::string& model = row.request.model;
  return "model \"" + model + "\"" +
         (model == rules_.default_model ? " (router.default_model)" : "") +
         " is not served; there is " + names_of(models);
}

// The client lost its answer and asks again: from now on it is told, from the beginning.
void RequestTable::join(RequestId id, Row& row, const Peer& peer, Actions& out) {
  ++counters_.joined;
  if (row.peer != peer) {
    if (const auto it = per_client_.find(connection_of(row.peer));
        it != per_client_.end() && --it->second == 0)
      per_client_.erase(it);
    ++per_client_[connection_of(peer)];
    row.peer = peer;
  }
  row.delivered_bytes = 0;
  row.delivered_tokens = 0;
  row.client_refused_since = {};
  deliver(id, row, out);
}

void RequestTable::cancel(const Peer& by, RequestId id, TimePoint now, Actions& out) {
  const auto it = rows_.find(id);
  if (it == rows_.end()) {
    out.push_back(ToClient{by, id, cancelled_error(id, "no request with this id is running")});
    return;
  }
  const bool own = it->second.peer == by;
  ++counters_.cancelled;
  reply(id, now, FinishReason::kCancelled, out);
  if (!own)
    out.push_back(
        ToClient{by, id, wire::ClientReply{.id = wire::hex_of(id), .finish_reason = "cancelled"}});
  fill_room(now, out);
}

void RequestTable::client_gone(const Peer& peer, TimePoint now, Actions& out) {
  std::vector<RequestId> theirs;
  for (const auto& [id, row] : rows_)
    if (connection_of(row.peer) == connection_of(peer)) theirs.push_back(id);
  std::sort(theirs.begin(), theirs.end());  // equal histories give equal messages
  for (const RequestId id : theirs) {
    ++counters_.cancelled;
    drop(id, CloseReason::kCancelled, now, out);
  }
  fill_room(now, out);
}

void RequestTable::give_up(RequestId id, const Error& error, TimePoint now, Actions& out) {
  if (rows_.contains(id)) fail(id, error, 0, now, out);
  fill_room(now, out);
}

void RequestTable::undo_delivery(RequestId id, const wire::ClientPiece& piece, TimePoint now) {
  const auto it = rows_.find(id);
  if (it == rows_.end()) return;
  Row& row = it->second;
  // Exactly to where it began: after a fresh beginning it may be of the telling before.
  row.delivered_bytes = std::min<std::size_t>(row.delivered_bytes, piece.offset);
  row.delivered_tokens = std::min(row.delivered_tokens, piece.position);
  if (row.client_refused_since == TimePoint{}) row.client_refused_since = now;
  wake_at(now + rules_.silence);
}

// ---- retries

void RequestTable::ask(Retry& retry, TimePoint now) {
  retry = {.open = true,
           .loss_suspected = false,
           .again = now + rules_.silence,
           .interval = rules_.silence};
  wake_at(retry.again);
}

void RequestTable::ask_again(Retry& retry, TimePoint now) {
  retry.open = true;
  retry.loss_suspected = false;
  retry.interval = longer_silence(retry.interval, rules_.silence, rules_.longest_silence);
  retry.again = now + retry.interval;
  wake_at(retry.again);
}

// A gap shows that a message was lost. Not asked for at once: it may only have been overtaken, and
// one question heals many losses.
void RequestTable::suspect_loss(Retry& retry, TimePoint now) {
  if (retry.loss_suspected) return;
  retry.open = retry.loss_suspected = true;
  retry.again = now + rules_.silence / 16;
  wake_at(retry.again);
}

void RequestTable::assign_tokenizer(Row& row, std::optional<WorkerId> to) {
  if (row.tokenizer)
    if (Worker* worker = pool_.find(*row.tokenizer); worker != nullptr && worker->n_placed > 0)
      --worker->n_placed;
  row.tokenizer = to;
  if (to)
    if (Worker* worker = pool_.find(*to)) ++worker->n_placed;
}

void RequestTable::assign_target(Row& row, std::optional<WorkerId> to) {
  if (row.target)
    if (Worker* worker = pool_.find(*row.target); worker != nullptr && worker->n_placed > 0)
      --worker->n_placed;
  if (row.target) {
    room_ = true;
    AtTarget& there = working_.at(*row.target);
    if (--there.of_flow.at(row.flow) == 0) there.of_flow.erase(row.flow);
    if (--there.n == 0) working_.erase(*row.target);
  }
  row.target = to;
  row.started = false;
  if (!to) return;
  AtTarget& there = working_[*to];
  ++there.n;
  ++there.of_flow[row.flow];
  if (Worker* worker = pool_.find(*to)) {
    ++worker->n_placed;
    worker->placed_tokens += row.encoded.tokens.size() + row.output.size();
  }
}

void RequestTable::encode(RequestId id, Row& row, TimePoint now, Actions& out) {
  const auto failed_us =
      row.tokenizer_retry.open && !row.encode_taken ? row.tokenizer : std::nullopt;
  ask_again(row.tokenizer_retry, now);
  if (row.request.model.empty())
    if (auto settled = settle_model(row, now); !settled.ok())
      return fail(id, settled.error(), 0, now, out);
  const auto targets = pool_.alive(wire::Role::kTarget);
  const auto it = std::find_if(targets.begin(), targets.end(), [&](const Worker* w) {
    return answers_to(w->hello, row.request.model);
  });
  if (it == targets.end()) return;  // no target yet
  const wire::Fingerprints& of_target = (*it)->hello.fingerprints;
  row.encoding = {.vocabulary = of_target.vocabulary, .text = of_target.text};
  // One that has said that it has the prompt keeps it: asked again it does not encode again.
  const Worker* taker = row.encode_taken && row.tokenizer ? pool_.find(*row.tokenizer) : nullptr;
  const bool stays = taker != nullptr && taker->state != WorkerState::kLost &&
                     place_tokenizer(std::span(&taker, 1), row.encoding, std::nullopt).has_value();
  encode_at(id, row, stays ? row.tokenizer : place_tokenizer(pool_, row.encoding, failed_us), out);
}

void RequestTable::encode_at(RequestId id, Row& row, std::optional<WorkerId> chosen, Actions& out) {
  if (row.tokenizer && row.tokenizer != chosen)
    out.push_back(
        ToWorker{*row.tokenizer, id, wire::StreamClose{.reason = CloseReason::kMigrated}});
  assign_tokenizer(row, chosen);
  row.encode_taken = false;
  if (!row.tokenizer) return;
  const wire::ClientRequest& request = row.request;
  wire::Encode message{.kind = request.prompt_kind,
                       .text = request.prompt_kind == wire::PromptKind::kMessages
                                   ? wire::messages_json(request.messages)
                                   : request.prompt,
                       .tokens = request.token_ids,
                       .add_special_tokens = request.add_special_tokens,
                       .add_generation_prompt = request.add_generation_prompt,
                       .bad_words = request.bad_words,
                       .prediction = request.prediction,
                       .flow = row.flow};
  out.push_back(ToWorker{*row.tokenizer, id, std::move(message)});
}

// Another than the row's that would do and encodes nothing, neither by its last heartbeat nor by
// what it was given since.
std::optional<WorkerId> RequestTable::idle_tokenizer(const Row& row) const {
  auto idle = pool_.ready(wire::Role::kTokenizer);
  std::erase_if(idle, [&](const Worker* tokenizer) {
    return tokenizer->id == row.tokenizer || tokenizer->load.queued > 0 ||
           std::any_of(rows_.begin(), rows_.end(), [&](const auto& entry) {
             return entry.second.phase == Phase::kEncoding &&
                    entry.second.tokenizer == tokenizer->id;
           });
  });
  return place_tokenizer(idle, row.encoding, std::nullopt);
}

// What only the model can tell: how it likes to be sampled, context length, size of its vocabulary.
// Of the request as it came, for the first target that was looked at need not be the one that
// begins.
Result<SamplingParams> RequestTable::params_at(const Row& row, const wire::Hello& target) {
  SamplingParams params = params_with(target.sampling, row.request);
  const auto n_prompt = static_cast<std::uint32_t>(row.encoded.tokens.size());
  const std::uint32_t limit = target.max_model_len;
  if (limit != 0 && n_prompt >= limit)
    return Error{ErrorCode::kContextLengthExceeded,
                 "prompt has " + std::to_string(n_prompt) + " tokens; the limit is " +
                     std::to_string(limit - 1) + " (model.max_model_len leaves one for the answer)",
                 prompt_key(row.request)};
  if (!row.request.given.contains("max_tokens"))
    params.max_tokens =
        limit == 0 ? kDefaultMaxTokens : std::min(kDefaultMaxTokens, limit - n_prompt);
  if (limit != 0 && params.max_tokens > limit - n_prompt)
    return Error{ErrorCode::kContextLengthExceeded,
                 "prompt has " + std::to_string(n_prompt) + " tokens and max_tokens is " +
                     std::to_string(params.max_tokens) + "; together the limit is " +
                     std::to_string(limit) + " (model.max_model_len)",
                 "max_tokens"};
  params.min_tokens = std::min(params.min_tokens, params.max_tokens);
  if (auto valid = validate(params, target.vocab_size); !valid.ok()) return valid.error();
  return params;
}

Need RequestTable::need_of(const Row& row) const {
  return {.model = row.request.model,
          .like = row.target_hello ? &*row.target_hello : nullptr,
          .not_these = row.refused_by,
          .accepted = draining_ ? TimePoint::min() : row.arrived};
}

std::optional<WorkerId> RequestTable::choose_target(const Row& row) const {
  return place_target(pool_, need_of(row));
}

double RequestTable::weight_of(const std::string& tenant) const {
  const auto weight = rules_.tenant_weights.find(tenant);
  return weight == rules_.tenant_weights.end() ? 1 : weight->second;
}

// One that was moved or refused waits for no others; a new one is served in the order of the flows.
void RequestTable::place(RequestId id, Row& row, TimePoint now, Actions& out) {
  row.phase = Phase::kPlacing;
  assign_target(row, std::nullopt);
  if (row.target_hello || !row.refused_by.empty()) return place_at_once(id, row, now, out);
  // What a model does not allow is said at once, whatever is before it.
  if (const auto first = choose_target(row))
    if (!is_for(id, row, pool_.find(*first)->hello, now, out)) return;
  const std::size_t n_tokens = row.encoded.tokens.size() + (row.request.given.contains("max_tokens")
                                                                ? row.request.params.max_tokens
                                                                : kDefaultMaxTokens);
  in_order_.push({.id = id,
                  .flow = row.flow,
                  .weight = weight_of(row.request.tenant),
                  .priority = row.request.priority,
                  .cost = static_cast<double>(std::max(kLeastTokens, n_tokens))});
  room_ = true;
  wake_at(now + rules_.silence);
}

void RequestTable::place_at_once(RequestId id, Row& row, TimePoint now, Actions& out) {
  const auto chosen = choose_target(row);
  if (!chosen) {
    // Refused by all there are: the client is told at once, unless it has an answer half read
    // already.
    if (!row.refused_by.empty() && row.migrations == 0 && row.refusal)
      return fail(id, Error{row.refusal->code, row.refusal->message},
                  std::max(1u, row.refusal->retry_after_ms), now, out);
    row.refused_by.clear();
    return ask_again(row.target_retry, now);
  }
  start_at(id, row, *chosen, now, out);
}

// False: it is not, and has been encoded anew or ended.
bool RequestTable::is_for(
    RequestId id, Row& row, const wire::Hello& target, TimePoint now, Actions& out) {
  if (target.fingerprints.vocabulary != row.encoding.vocabulary ||
      (!row.target_hello && target.fingerprints.text != row.encoding.text)) {
    // Another model behind the same name has come.
    row.phase = Phase::kEncoding;
    encode(id, row, now, out);
    return false;
  }
  if (row.target_hello) return true;
  if (auto params = params_at(row, target); !params.ok()) {
    fail(id, params.error(), 0, now, out);
    return false;
  }
  return true;
}

void RequestTable::start_at(RequestId id, Row& row, WorkerId target, TimePoint now, Actions& out) {
  const wire::Hello& hello = pool_.find(target)->hello;
  if (!is_for(id, row, hello, now, out)) return;
  if (!row.target_hello) {
    row.request.params = value_or_throw(params_at(row, hello));
    row.target_hello = hello;
  }
  assign_target(row, target);
  row.phase = Phase::kRunning;
  ask(row.target_retry, now);
  open(id, row, now, out);
}

// A target's own queue is short: it is given what it runs at a time, and the others wait here,
// where flows are served in order. Its last places are kept for flows that have few there: they
// need not wait until one of the others' requests ends.
bool RequestTable::has_room_for(const Worker& target, FlowId flow) const {
  const std::uint32_t places = target.hello.max_sequences;
  const auto working = working_.find(target.id);
  if (places == 0 || working == working_.end()) return true;
  const std::uint32_t kept = wire::kept_places(places);
  const AtTarget& there = working->second;
  const auto theirs = there.of_flow.find(flow);
  if (theirs == there.of_flow.end() || theirs->second < kept) return there.n < places + kept;
  std::uint32_t n_few = 0;  // of flows that have few
  for (const auto& [id, n] : there.of_flow) n_few += n <= kept ? n : 0;
  return there.n - std::min(n_few, kept) < places;
}

// Those that have a place at all.
std::vector<const Worker*> RequestTable::targets_with_room() const {
  auto targets = pool_.ready(wire::Role::kTarget);
  std::erase_if(targets, [&](const Worker* target) {
    const std::uint32_t places = target->hello.max_sequences;
    const std::uint32_t queued =
        target->load.queued - std::min(target->load.queued, target->n_started);
    const auto working = working_.find(target->id);
    return places > 0 &&
           (queued > wire::kept_places(places) ||
            (working != working_.end() && working->second.n >= places + wire::kept_places(places)));
  });
  return targets;
}

void RequestTable::fill_room(TimePoint now, Actions& out) {
  if (!std::exchange(room_, false)) return;
  while (!in_order_.empty()) {
    const auto targets = targets_with_room();
    if (targets.empty() && pool_.draining(wire::Role::kTarget).empty()) return;  // for none of them
    std::optional<WorkerId> chosen;
    const auto next = in_order_.take([&](const FairQueue::Item& item) {
      auto for_it = targets;
      std::erase_if(for_it,
                    [&](const Worker* target) { return !has_room_for(*target, item.flow); });
      const Row& row = rows_.at(item.id);
      chosen = place_target(for_it, need_of(row));
      if (chosen) return true;
      // Where none is ready, one that drains finishes what was accepted before.
      const auto last = choose_target(row);
      const Worker* draining = last ? pool_.find(*last) : nullptr;
      if (draining == nullptr || draining->state != WorkerState::kDraining ||
          !has_room_for(*draining, item.flow))
        return false;
      chosen = last;
      return true;
    });
    if (!next) return;
    start_at(next->id, rows_.at(next->id), *chosen, now, out);
  }
}

// Opens, moves and heals: the target answers from the position it is given.
void RequestTable::open(RequestId id, Row& row, TimePoint now, Actions& out) {
  wire::Open message{.tokens = row.encoded.tokens,
                     .n_prompt = static_cast<std::uint32_t>(row.encoded.tokens.size()),
                     .params = row.request.params,
                     .proposer = row.request.proposer,
                     .draft_len = row.request.num_draft_tokens,
                     .adaptive = row.request.adaptive,
                     .prediction = row.encoded.prediction_tokens,
                     .deadline_us = micros_until(row.deadline, now),
                     .tenant_salt = salt_of(row.request.tenant),
                     .flow = row.flow,
                     .flow_weight = static_cast<float>(weight_of(row.request.tenant))};
  message.tokens.insert(message.tokens.end(), row.output.begin(), row.output.end());
  out.push_back(ToWorker{*row.target, id, std::move(message)});
}

// Sends the tokenizer what it does not have. Positions are those of the whole sequence.
void RequestTable::decode(RequestId id, Row& row, TimePoint now, Actions& out) {
  const bool final = row.done.has_value();
  if (row.n_sent_to_tokenizer == row.output.size() && (!final || row.final_sent)) return;
  if (!row.tokenizer) return replay(id, row, now, out);
  const auto n_prompt = static_cast<Position>(row.encoded.tokens.size());
  if (row.n_sent_to_tokenizer == 0 && !row.final_sent) {
    out.push_back(ToWorker{*row.tokenizer, id,
                           wire::StreamOpen{.stop = row.request.stop,
                                            .include_stop = row.request.include_stop_str_in_output,
                                            .skip_special_tokens = row.request.skip_special_tokens,
                                            .position = n_prompt,
                                            .min_tokens = row.request.params.min_tokens}});
  }
  out.push_back(
      ToWorker{*row.tokenizer, id,
               wire::Decode{.position = n_prompt + row.n_sent_to_tokenizer,
                            .ids = {row.output.begin() + row.n_sent_to_tokenizer, row.output.end()},
                            .final = final}});
  row.n_sent_to_tokenizer = static_cast<std::uint32_t>(row.output.size());
  row.final_sent = final;
  if (!row.tokenizer_retry.open) ask(row.tokenizer_retry, now);
}

// The stream from its first token, at whichever tokenizer there is. Bytes that came before are
// recognised by offset.
void RequestTable::replay(RequestId id, Row& row, TimePoint now, Actions& out) {
  ++counters_.replayed;
  ask_again(row.tokenizer_retry, now);
  const auto failed_us = row.tokenizer;
  assign_tokenizer(row, place_tokenizer(pool_, row.encoding, failed_us));
  row.n_sent_to_tokenizer = 0;
  row.final_sent = false;
  if (row.tokenizer) decode(id, row, now, out);
}

void RequestTable::migrate(RequestId id, Row& row, TimePoint now, Actions& out) {
  assign_target(row, std::nullopt);
  if (++row.migrations > rules_.max_migrations)
    return fail(id,
                Error{ErrorCode::kUnavailable,
                      "lost " + std::to_string(row.migrations) + " targets; the limit is " +
                          std::to_string(rules_.max_migrations) + " moves"},
                1000, now, out);
  ++counters_.migrated;
  row.waiting_since = now;
  row.target_retry = {};
  place(id, row, now, out);
}

// ---- from workers

void RequestTable::on_message(
    WorkerId from, RequestId id, wire::Message message, TimePoint now, Actions& out) {
  hear(from, id, std::move(message), now, out);
  fill_room(now, out);
}

void RequestTable::hear(
    WorkerId from, RequestId id, wire::Message message, TimePoint now, Actions& out) {
  const auto it = rows_.find(id);
  if (it == rows_.end()) {
    ++counters_.stale;
    // A sequence that is not waited for: its CLOSE was lost.
    if (std::holds_alternative<wire::Tokens>(message) ||
        std::holds_alternative<wire::Done>(message))
      out.push_back(ToWorker{from, id, wire::Close{.reason = CloseReason::kFinished}});
    return;
  }
  Row& row = it->second;
  const bool by_tokenizer = row.tokenizer == from;
  const bool by_target = row.target == from;
  if (!by_tokenizer && !by_target) {
    ++counters_.stale;
    // It was thought dead, and the request has moved on.
    if (std::holds_alternative<wire::Tokens>(message) ||
        std::holds_alternative<wire::Opened>(message))
      out.push_back(ToWorker{from, id, wire::Close{.reason = CloseReason::kMigrated}});
    return;
  }
  if (by_target) {
    if (!row.target_retry.loss_suspected)
      ask(row.target_retry, now);  // it lives: the next silence begins now
    if (auto* tokens = std::get_if<wire::Tokens>(&message))
      return on_tokens(id, row, *tokens, now, out);
    if (auto* done = std::get_if<wire::Done>(&message))
      return on_done(id, row, std::move(*done), now, out);
    if (auto* busy = std::get_if<wire::Busy>(&message))
      return on_busy(id, row, std::move(*busy), now, out);
    if (auto* failed = std::get_if<wire::Failed>(&message)) {
      if (row.phase != Phase::kRunning) return;
      if (failed->code == ErrorCode::kDraining || failed->code == ErrorCode::kUnavailable)
        return migrate(id, row, now, out);
      return fail(id, Error{failed->code, failed->message, failed->param}, failed->retry_after_ms,
                  now, out);
    }
    return;
  }
  if (auto* encoded = std::get_if<wire::Encoded>(&message))
    return on_encoded(id, row, std::move(*encoded), now, out);
  if (auto* text = std::get_if<wire::Text>(&message)) return on_text(id, row, *text, now, out);
  if (row.phase == Phase::kEncoding) {
    const auto* opened = std::get_if<wire::Opened>(&message);
    const auto* busy = std::get_if<wire::Busy>(&message);
    if (opened != nullptr || busy != nullptr) {
      row.encode_taken = true;  // or it lives, and has no room yet
      if (!row.encode_elsewhere) row.encode_elsewhere = now + rules_.encode_patience;
      wake_at(*row.encode_elsewhere);
      row.tokenizer_retry.again =
          now + (opened != nullptr
                     ? silence_behind(opened->n_waiting, rules_.silence)
                     : std::max(rules_.silence,
                                Duration(std::chrono::milliseconds(busy->retry_after_ms))));
      return wake_at(row.tokenizer_retry.again);
    }
  }
  if (auto* failed = std::get_if<wire::Failed>(&message)) {
    if (row.phase == Phase::kEncoding) {
      // Of a stream, so of a run of this id that is over: no answer to ENCODE.
      if (failed->code == ErrorCode::kNotFound) return;
      return fail(id, Error{failed->code, failed->message, failed->param}, failed->retry_after_ms,
                  now, out);
    }
    // It lost the stream. Not at once again: a lost StreamOpen makes every Decode behind it fail,
    // too.
    suspect_loss(row.tokenizer_retry, now);
  }
}

void RequestTable::on_encoded(
    RequestId id, Row& row, wire::Encoded encoded, TimePoint now, Actions& out) {
  if (row.phase != Phase::kEncoding) return;  // an answer to a question asked twice
  row.tokenizer_retry = {};
  row.encoded = std::move(encoded);
  if (row.encoded.tokens.empty())
    return fail(id,
                Error{ErrorCode::kInvalidValue, "the prompt has no tokens; it needs at least one",
                      prompt_key(row.request)},
                0, now, out);
  row.request.params.bad_words = row.encoded.bad_word_tokens;
  counters_.prompt_tokens += row.encoded.tokens.size();
  place(id, row, now, out);
}

void RequestTable::on_tokens(
    RequestId id, Row& row, const wire::Tokens& tokens, TimePoint now, Actions& out) {
  if (row.phase != Phase::kRunning) return;
  if (!std::exchange(row.started, true))
    if (Worker* target = pool_.find(*row.target)) {
      ++target->n_started;
      room_ = true;
    }
  const std::size_t have = row.encoded.tokens.size() + row.output.size();
  if (tokens.position > have)
    return suspect_loss(row.target_retry, now);  // a gap: from here, please
  const std::size_t known = have - tokens.position;
  if (known >= tokens.ids.size()) return;
  const bool with_logprobs =
      row.request.params.n_logprobs >= 0 && tokens.logprobs.size() == tokens.ids.size();
  for (std::size_t i = known; i < tokens.ids.size(); ++i) {
    row.output.push_back(tokens.ids[i]);
    row.guessed.push_back(i < tokens.accepted.size() ? tokens.accepted[i] : std::uint8_t{0});
    if (with_logprobs) row.logprobs.push_back(tokens.logprobs[i]);
  }
  if (row.first_token == TimePoint{}) row.first_token = now;
  row.last_token = now;
  decode(id, row, now, out);
}

void RequestTable::on_done(RequestId id, Row& row, wire::Done done, TimePoint now, Actions& out) {
  if (row.phase == Phase::kCounting) {
    row.done = std::move(done);
    return reply(id, now, std::nullopt, out);
  }
  if (row.phase != Phase::kRunning) return;
  if (done.reason == FinishReason::kCancelled) return migrate(id, row, now, out);  // not by us
  // Its time is not over: that was said of an earlier run of the same request.
  if (done.reason == FinishReason::kDeadline && now + rules_.deadline_grace < row.deadline) {
    out.push_back(ToWorker{*row.target, id, wire::Close{.reason = CloseReason::kMigrated}});
    return suspect_loss(row.target_retry, now);
  }
  if (done.n_generated > row.output.size())
    return suspect_loss(row.target_retry, now);  // tokens were lost on the way
  row.done = std::move(done);
  row.phase = Phase::kFlushing;
  row.target_retry = {};
  out.push_back(ToWorker{*row.target, id, wire::Close{.reason = CloseReason::kFinished}});
  assign_target(row, std::nullopt);  // its place is free
  decode(id, row, now, out);
}

void RequestTable::on_text(
    RequestId id, Row& row, const wire::Text& text, TimePoint now, Actions& out) {
  if (row.phase != Phase::kRunning && row.phase != Phase::kFlushing) return;
  if (text.offset > row.text.size()) {  // text was lost on the way
    return suspect_loss(row.tokenizer_retry, now);
  }
  const auto n_prompt = static_cast<Position>(row.encoded.tokens.size());
  if (text.next < n_prompt + row.n_detokenized) return;  // overtaken by a replay
  // Of tokens that this run has not sent: said to an earlier run of the same request.
  if (text.next > n_prompt + row.n_sent_to_tokenizer) return;
  const std::size_t known = row.text.size() - text.offset;
  if (known < text.text.size()) row.text.append(text.text, known);
  row.n_detokenized = std::min(static_cast<std::uint32_t>(row.output.size()), text.next - n_prompt);
  if (text.stopped) return on_stop_string(id, row, text, now, out);
  row.final_confirmed =
      text.final && row.done.has_value() && row.n_detokenized == row.output.size();
  if (row.final_confirmed) return reply(id, now, std::nullopt, out);
  if (row.n_detokenized == row.n_sent_to_tokenizer && !row.final_sent)
    row.tokenizer_retry = {};
  else
    ask(row.tokenizer_retry, now);
  deliver(id, row, out);
}

// The answer ends here, whatever the target has committed meanwhile.
void RequestTable::on_stop_string(
    RequestId id, Row& row, const wire::Text& text, TimePoint now, Actions& out) {
  // Whatever it says: what the client has already been given stays given.
  const std::uint32_t n = std::clamp(text.n_tokens, row.delivered_tokens,
                                     static_cast<std::uint32_t>(row.output.size()));
  row.stop_string = text.stop_string;
  row.output.resize(n);
  row.guessed.resize(n);
  if (row.logprobs.size() > n) row.logprobs.resize(n);
  row.n_detokenized = n;
  row.tokenizer_retry = {};
  if (row.done || !row.target) return reply(id, now, std::nullopt, out);
  row.phase = Phase::kCounting;
  row.counting_until = now + rules_.stats_patience;
  wake_at(row.counting_until);
  out.push_back(ToWorker{*row.target, id, wire::Close{.reason = CloseReason::kStop}});
}

void RequestTable::on_busy(RequestId id, Row& row, wire::Busy busy, TimePoint now, Actions& out) {
  if (row.phase != Phase::kRunning) return;
  row.refused_by.push_back(*row.target);
  row.refusal = std::move(busy);
  row.target_retry = {};
  place(id, row, now, out);
}

void RequestTable::worker_lost(WorkerId worker, TimePoint now, Actions& out) {
  std::vector<RequestId> affected;
  for (const auto& [id, row] : rows_)
    if (row.tokenizer == worker || row.target == worker) affected.push_back(id);
  std::sort(affected.begin(), affected.end());
  for (const RequestId id : affected) {
    const auto it = rows_.find(id);
    if (it == rows_.end()) continue;
    Row& row = it->second;
    if (row.target == worker) {
      if (row.phase == Phase::kRunning) {
        migrate(id, row, now, out);
      } else {
        assign_target(row, std::nullopt);
        if (row.phase == Phase::kCounting) reply(id, now, std::nullopt, out);
      }
      continue;  // one process is one worker: it is not the tokenizer, too
    }
    row.tokenizer.reset();
    if (row.phase == Phase::kEncoding)
      encode(id, row, now, out);
    else if (row.phase != Phase::kCounting && (row.n_detokenized < row.output.size() || row.done))
      replay(id, row, now, out);
  }
  fill_room(now, out);
}

void RequestTable::workers_changed(TimePoint now, Actions& out) {
  std::vector<RequestId> waiting;
  for (const auto& [id, row] : rows_)
    if ((row.phase == Phase::kPlacing && !in_order_.contains(id)) ||
        ((row.phase == Phase::kEncoding || row.n_detokenized < row.output.size()) &&
         !row.tokenizer))
      waiting.push_back(id);
  std::sort(waiting.begin(), waiting.end(), [&](RequestId a, RequestId b) {
    return std::pair(rows_.at(a).arrived, a) < std::pair(rows_.at(b).arrived, b);
  });
  for (const RequestId id : waiting) {
    Row& row = rows_.at(id);
    if (row.phase == Phase::kPlacing)
      place(id, row, now, out);
    else if (row.phase == Phase::kEncoding)
      encode(id, row, now, out);
    else
      replay(id, row, now, out);
  }
  room_ = true;
  fill_room(now, out);
}

void RequestTable::begin_drain(TimePoint now, Actions& out) {
  draining_ = true;
  workers_changed(now, out);
}

bool RequestTable::needs(const Worker& worker) const {
  const bool is_target = worker.hello.role == wire::Role::kTarget;
  return std::any_of(rows_.begin(), rows_.end(), [&](const auto& entry) {
    const Row& row = entry.second;
    const bool waits = row.phase == Phase::kEncoding || row.phase == Phase::kPlacing;
    if (is_target && waits) return choose_target(row) == worker.id;
    if (is_target) return row.target == worker.id && row.phase != Phase::kFlushing;
    return (row.tokenizer ? row.tokenizer : place_tokenizer(pool_, row.encoding, std::nullopt)) ==
           worker.id;
  });
}

// ---- time

TimePoint RequestTable::tick(TimePoint now, Actions& out) {
  if (now < next_due_) return next_due_;
  next_due_ = TimePoint::max();
  std::vector<RequestId> ids;
  ids.reserve(rows_.size());
  for (const auto& [id, row] : rows_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (const RequestId id : ids)
    if (const auto it = rows_.find(id); it != rows_.end()) tick_row(id, it->second, now, out);
  room_ = true;  // heartbeats may have said so
  fill_room(now, out);
  if (!in_order_.empty()) wake_at(now + rules_.silence);
  finished_.forget_old(now);
  return next_due_;
}

// It waits for others, not for a service to come.
bool RequestTable::has_taker(RequestId id, const Row& row) const {
  if (row.phase == Phase::kEncoding) return row.encode_taken && row.tokenizer;
  return in_order_.contains(id) && choose_target(row).has_value();
}

void RequestTable::tick_row(RequestId id, Row& row, TimePoint now, Actions& out) {
  const Duration grace = row.target || row.done ? rules_.deadline_grace : Duration{0};
  if (now >= row.deadline + grace) {
    if (row.n_detokenized > 0 || row.delivered_tokens > 0)
      return reply(id, now, FinishReason::kDeadline, out);
    return fail(id,
                Error{ErrorCode::kDeadlineExceeded,
                      "no token within " +
                          std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(
                                             row.deadline - row.arrived)
                                             .count()) +
                          " ms (timeout_ms, limits.request_timeout_s)"},
                0, now, out);
  }
  const bool waits_for_model = row.phase == Phase::kEncoding && !row.tokenizer;
  if (waits_for_model && row.came_early && pool_.all_here()) {
    const bool was_open = row.request.model.empty();
    if (auto settled = settle_model(row, now); !settled.ok())
      return fail(id, settled.error(), 0, now, out);
    if (was_open && !row.request.model.empty()) row.tokenizer_retry.again = now;
  }
  // No service could take it for a while: an error soon, and not at its deadline. One that was lost
  // not long ago may be loading its model again.
  const bool never_placed =
      row.output.empty() && (row.phase == Phase::kEncoding || row.phase == Phase::kPlacing);
  if (never_placed && has_taker(id, row)) row.waiting_since = now;
  if (never_placed && now >= row.waiting_since + rules_.first_placement && !may_return(row)) {
    if (auto settled = settle_model(row, now);
        !settled.ok())  // it was waited for, and is not there
      return fail(id, settled.error(), 0, now, out);
    const bool no_tokenizer = row.phase == Phase::kEncoding && has_target(row);
    return fail(
        id,
        Error{ErrorCode::kUnavailable,
              no_tokenizer ? "no tokenizer of the model's vocabulary and chat template answers"
              : pool_.alive(wire::Role::kTarget).empty()
                  ? "no target is there to answer"
                  : "no target of model \"" + row.request.model + "\" answers"},
        1000, now, out);
  }
  if (row.client_refused_since != TimePoint{} && row.delivered_bytes == row.text.size())
    row.client_refused_since = {};  // nothing came back since: it reads again
  if (row.client_refused_since != TimePoint{}) {
    if (now >= row.client_refused_since + rules_.stalled_client) {
      ++counters_.cancelled;
      return drop(id, CloseReason::kCancelled, now, out);
    }
    deliver(id, row, out);
    wake_at(now + rules_.silence);
  }
  if (row.phase == Phase::kCounting) {
    if (now >= row.counting_until) return reply(id, now, std::nullopt, out);
    wake_at(row.counting_until);
  }
  if (may_move_prompt(row) && now >= *row.encode_elsewhere) {
    if (const auto idle = idle_tokenizer(row)) {
      encode_at(id, row, idle, out);
      ask(row.tokenizer_retry, now);
      row.encode_moved = true;
    } else {
      row.encode_elsewhere = now + rules_.silence;
    }
  }
  if (row.tokenizer_retry.open && now >= row.tokenizer_retry.again) {
    if (row.phase == Phase::kEncoding)
      encode(id, row, now, out);
    else
      replay(id, row, now, out);
  } else if (row.target_retry.open && now >= row.target_retry.again) {
    if (row.phase == Phase::kPlacing) {
      place(id, row, now, out);
    } else if (row.phase == Phase::kRunning) {
      ask_again(row.target_retry, now);
      open(id, row, now, out);
    }
  }
  if (const auto still = rows_.find(id); still != rows_.end()) {
    const Row& left = still->second;
    wake_at(left.deadline + (left.target || left.done ? rules_.deadline_grace : Duration{0}));
    if (!pool_.all_here()) wake_at(pool_.all_here_after(now));
    if (left.output.empty() && (left.phase == Phase::kEncoding || left.phase == Phase::kPlacing))
      wake_at(std::max(now + rules_.silence, left.waiting_since + rules_.first_placement));
    if (left.tokenizer_retry.open) wake_at(left.tokenizer_retry.again);
    if (may_move_prompt(left)) wake_at(*left.encode_elsewhere);
    if (left.target_retry.open) wake_at(left.target_retry.again);
  }
}

// A target of its model is there.
bool RequestTable::has_target(const Row& row) const {
  const auto targets = pool_.alive(wire::Role::kTarget);
  return std::any_of(targets.begin(), targets.end(), [&](const Worker* target) {
    return answers_to(target->hello, row.request.model);
  });
}

// A service that it waits for was lost and is still remembered.
bool RequestTable::may_return(const Row& row) const {
  const bool waits_for_target = row.phase == Phase::kPlacing || !has_target(row);
  const auto all = pool_.all();
  return std::any_of(all.begin(), all.end(), [&](const Worker* worker) {
    if (worker->state != WorkerState::kLost) return false;
    if (waits_for_target)
      return worker->hello.role == wire::Role::kTarget &&
             answers_to(worker->hello, row.request.model);
    return worker->hello.role == wire::Role::kTokenizer &&
           place_tokenizer(std::span(&worker, 1), row.encoding, std::nullopt).has_value();
  });
}

// ---- to clients

void RequestTable::deliver(RequestId id, Row& row, Actions& out) {
  if (!row.request.stream || row.delivered_bytes >= row.text.size())
    return;  // no piece without text
  wire::ClientPiece piece = next_piece(id, row);
  row.delivered_bytes += piece.text.size();
  row.delivered_tokens += static_cast<std::uint32_t>(piece.token_ids.size());
  out.push_back(ToClient{row.peer, id, std::move(piece)});
}

void RequestTable::reply(RequestId id,
                         TimePoint now,
                         std::optional<FinishReason> cut_short,
                         Actions& out) {
  Row& row = rows_.at(id);
  if (cut_short) {  // tokens whose text is not known were never delivered
    row.output.resize(std::max(row.n_detokenized, row.delivered_tokens));
    if (row.logprobs.size() > row.output.size()) row.logprobs.resize(row.output.size());
  }
  const FinishReason reason = cut_short         ? *cut_short
                              : row.stop_string ? FinishReason::kStop
                              : row.done        ? row.done->reason
                                                : FinishReason::kStop;
  wire::ClientReply whole = whole_reply(id, row, reason, rules_.default_draft_len);
  ++counters_.replied;
  counters_.tokens += row.output.size();
  const wire::SpeculativeDecoding& spec = whole.metrics.speculative_decoding;
  counters_.rounds += spec.num_spec_steps;
  counters_.drafted += spec.num_draft_tokens;
  counters_.guessed_right += spec.num_accepted_draft_tokens;
  out.push_back(ToClient{row.peer, id, row.request.stream ? without_pieces(whole, row) : whole});
  // A cancelled or late answer is no answer to a client that asks again.
  if (!cut_short) finished_.keep(id, row.content, whole, now);
  drop(id,
       cut_short == FinishReason::kDeadline
           ? CloseReason::kDeadline
           : (cut_short ? CloseReason::kCancelled : CloseReason::kFinished),
       now, out);
}

void RequestTable::fail(
    RequestId id, const Error& error, std::uint32_t retry_after_ms, TimePoint now, Actions& out) {
  Row& row = rows_.at(id);
  ++counters_.failed;
  out.push_back(ToClient{row.peer, id, wire::client_error(id, error, retry_after_ms)});
  drop(id, CloseReason::kCancelled, now, out);
}

// Takes the row out and tells the workers that may still have it.
void RequestTable::drop(RequestId id, CloseReason reason, TimePoint now, Actions& out) {
  const auto it = rows_.find(id);
  Row& row = it->second;
  if (row.target && (row.phase == Phase::kRunning || row.phase == Phase::kCounting))
    out.push_back(ToWorker{*row.target, id, wire::Close{.reason = reason}});
  in_order_.erase(id);
  if (row.tokenizer &&
      (row.phase == Phase::kEncoding || (row.n_sent_to_tokenizer > 0 && !row.final_confirmed)))
    out.push_back(ToWorker{*row.tokenizer, id, wire::StreamClose{.reason = reason}});
  assign_target(row, std::nullopt);
  assign_tokenizer(row, std::nullopt);
  if (const auto client = per_client_.find(connection_of(row.peer));
      client != per_client_.end() && --client->second == 0)
    per_client_.erase(client);
  if (const auto flow = per_flow_.find(row.flow); --flow->second == 0) per_flow_.erase(flow);
  finished_.end(id, row.content, now);
  rows_.erase(it);
}

void RequestTable::fail_all(const Error& error, TimePoint now, Actions& out) {
  std::vector<RequestId> ids;
  for (const auto& [id, row] : rows_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (const RequestId id : ids) fail(id, error, 1000, now, out);
}

std::size_t RequestTable::n_waiting() const {
  return static_cast<std::size_t>(std::count_if(rows_.begin(), rows_.end(), [](const auto& entry) {
    return entry.second.phase == Phase::kEncoding || entry.second.phase == Phase::kPlacing;
  }));
}

}  // namespace foretoken
