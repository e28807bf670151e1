// What becomes of a request as time passes: deadlines, silences, services that do not come.
#include <algorithm>

#include "services/router/request.h"

namespace foretoken {

// The target ends a late request itself.
TimePoint Request::last_moment() const {
  return deadline_ +
         (target_ || answer_.is_finished() ? context_.rules.deadline_grace : Duration{0});
}

bool Request::has_no_answer_yet() const { return waits_for_target() && answer_.n_tokens() == 0; }

TimePoint Request::due(TimePoint now) const {
  const Duration silence = context_.rules.silence.first;
  TimePoint due = std::min(last_moment(), tokenizer_retry_.due());
  if (state_ == State::kPlacing || state_ == State::kRunning)
    due = std::min(due, target_retry_.due());
  if (!context_.pool.all_here()) due = std::min(due, context_.pool.all_here_after(now));
  if (has_no_answer_yet()) due = std::min(due, now + silence);
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

// A service that it waits for was lost and is still remembered, or had taken it and no other one of
// its model is here: it may be loading its model again.
bool Request::may_return() const {
  if (placing_.first && !has_target_of_model()) return true;
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
  if (!has_no_answer_yet()) return;
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
