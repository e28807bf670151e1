// A request at a target: it waits for a place, runs, and moves where the target is lost.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/hash.h"
#include "common/base/micros.h"
#include "common/messages/named_proposers.h"
#include "services/router/model_limits.h"
#include "services/router/request.h"

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

}  // namespace

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
  if (const auto first = place_target(context_.pool, need()))
    if (!is_for(*context_.pool.find(*first), now, out)) return;
  context_.places.wait({.id = id_,
                        .flow = flow_,
                        .weight = context_.rules.weight_of(asked_.tenant),
                        .priority = asked_.priority,
                        .cost = static_cast<double>(std::max(kLeastTokens, most_tokens(now)))});
}

// Of its prompt and answer. No more than the context of its model has room for, also while no
// target is ready; where no context is known, no more than a request that names no number.
std::size_t Request::most_tokens(TimePoint now) const {
  const std::size_t n_prompt = prompt_.encoded.tokens.size();
  std::size_t longest = 0;
  for (const wire::Hello* model : context_.pool.models(now))
    if (answers_to(*model, asked_.model))
      longest = std::max<std::size_t>(longest, model->max_model_len);
  const std::size_t n_asked =
      n_prompt +
      (asked_.given.contains("max_tokens") ? asked_.params.max_tokens : kDefaultMaxTokens);
  return std::min(n_asked, longest != 0 ? longest : n_prompt + kDefaultMaxTokens);
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

}  // namespace foretoken
