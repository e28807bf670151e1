#include "services/target/target_service.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "common/base/log.h"
#include "common/base/micros.h"
#include "common/messages/named_proposers.h"
#include "kernels/include/numerics.h"

namespace foretoken {
namespace {

constexpr std::size_t kRecentSteps = 256;
constexpr int kMessagesPerStep = 256;
constexpr Duration kSweep = std::chrono::seconds(1);
constexpr Duration kLastWords = std::chrono::milliseconds(500);

// What the client expects is a source of its own beside those that are configured.
ProposerSet proposers_of(const wire::Open& open, const TargetServiceOptions& options) {
  const ProposerSet asked = wire::proposers_named(open.proposer, open.proposers);
  const bool is_default = asked.contains(ProposerKind::kDefault);
  ProposerSet set = is_default ? options.proposers.sources() : asked.sources();
  if (is_default && !open.prediction.empty()) set.add(ProposerKind::kPrediction);
  if (!options.allow_prediction) set.remove(ProposerKind::kPrediction);
  return set;
}

std::string fallback_of(const SpecStats& spec) {
  if (spec.n_rounds > 0) return {};
  const auto most = std::max_element(spec.fallbacks.begin(), spec.fallbacks.end());
  return *most == 0
             ? ""
             : std::string(kFallbackNames[static_cast<std::size_t>(most - spec.fallbacks.begin())]);
}

wire::Done done_of(const DoneEvent& event, Duration decoding) {
  const SequenceStats& stats = event.stats;
  wire::Done done{.reason = event.reason,
                  .stop_token = event.stop_token,
                  .n_generated = stats.n_output,
                  .n_cached = stats.n_cached,
                  .fallback_reason = fallback_of(stats.spec),
                  .draft_len = static_cast<std::int32_t>(stats.draft_len)};
  for (std::size_t i = 0; i < kProposerKinds; ++i) {
    const SpecStats::Tally& tally = stats.spec.by_proposer[i];
    if (tally.n_drafted == 0) continue;
    done.proposers.push_back({.proposer = static_cast<ProposerKind>(i),
                              .rounds = static_cast<std::uint32_t>(stats.spec.n_rounds),
                              .drafted = static_cast<std::uint32_t>(tally.n_drafted),
                              .accepted = static_cast<std::uint32_t>(tally.n_accepted)});
  }
  if (stats.spec.n_rounds > 0) {
    const auto& histogram = stats.spec.accepted_histogram;
    std::size_t n = histogram.size();
    while (n > 0 && histogram[n - 1] == 0) --n;
    for (std::size_t i = 0; i < n; ++i)
      done.acceptance_histogram.push_back(static_cast<std::uint32_t>(histogram[i]));
  }
  for (std::size_t n = 0; n < stats.rounds_by_length.size(); ++n)
    if (!stats.rounds_by_length[n].empty())
      done.rounds_by_length.push_back(
          {.n_verified = static_cast<std::uint32_t>(n), .histogram = stats.rounds_by_length[n]});
  if (stats.admitted != TimePoint{}) done.queue_us = short_micros(stats.admitted - stats.opened);
  done.decode_us = micros(decoding);
  return done;
}

// For people, who have few drafts; the metrics have them all.
std::string links_text(const std::vector<std::pair<std::string, std::string_view>>& links) {
  constexpr std::size_t kMost = 512;
  std::string text;
  for (const auto& [draft, tier] : links)
    if (text.size() < kMost) text += (text.empty() ? "" : ", ") + draft + " " + std::string(tier);
  return text;
}

}  // namespace

TargetService::TargetService(const TargetServiceOptions& options,
                             const wire::Hello& hello,
                             TargetEngine& engine,
                             const DraftPools& pools,
                             wire::Speaker& speaker,
                             Metrics& metrics)
    : WorkerService({options.router, options.heartbeat, kLastWords}, hello, speaker, metrics),
      options_(options),
      engine_(engine),
      drafts_(pools.models),
      memories_(pools.memories),
      own_metrics_(engine, pools),
      step_us_(kRecentSteps, 0) {}

void TargetService::open(Bus& bus, wire::Hello& hello) {
  hello.noise_version = kNoiseVersion;
  drafts_.start(bus);
  if (memories_ != nullptr) memories_->start(bus);
  next_sweep_ = bus.now() + kSweep;
}

// ---- messages

bool TargetService::on_router_message(const wire::Header& header, wire::Message& message) {
  if (const auto* open = std::get_if<wire::Open>(&message))
    on_open(header.request, *open, bus().now());
  else if (const auto* close = std::get_if<wire::Close>(&message))
    on_close(header.request, *close);
  else if (const auto* assign = std::get_if<wire::Assign>(&message))
    on_assign(*assign);
  else if (const auto* unassign = std::get_if<wire::Unassign>(&message))
    on_unassign(*unassign);
  else
    return false;
  return true;
}

void TargetService::on_assign(const wire::Assign& assign) {
  if (assign.source == wire::DraftSource::kModel) return drafts_.assign(assign);
  if (memories_ != nullptr) memories_->assign(assign);
}

void TargetService::on_unassign(const wire::Unassign& unassign) {
  drafts_.unassign(unassign.draft, unassign.incarnation);
  if (memories_ != nullptr) memories_->unassign(unassign.draft, unassign.incarnation);
}

DraftProposer& TargetService::pool_of(SocketId socket) {
  return memories_ != nullptr && memories_->owns(socket) ? *memories_ : drafts_;
}

void TargetService::on_peer_message(const Delivery& from,
                                    const wire::Header& header,
                                    wire::Message& message) {
  pool_of(from.peer.socket).on_message(from.peer.socket, header, std::move(message), from.arrived);
}

void TargetService::on_malformed(const Peer& peer) {
  if (DraftProposer& pool = pool_of(peer.socket); pool.owns(peer.socket))
    return pool.on_malformed(peer.socket);
  count_malformed();
}

void TargetService::on_peer_dropped(const Peer& peer, Ticket ticket) {
  pool_of(peer.socket).on_dropped(peer.socket, ticket);
}

void TargetService::on_closed(const Peer& peer, const std::string& why) {
  pool_of(peer.socket).on_closed(peer.socket, why);
}

// A new sequence, or the question where an old one stands. One that the router has closed since, or
// that lacks log-probabilities which are asked for, begins anew from the tokens that come with it.
void TargetService::on_open(RequestId id, const wire::Open& open, TimePoint now) {
  if (open.n_prompt == 0 || open.n_prompt > open.tokens.size())
    return refuse(
        id, {ErrorCode::kInvalidRequest, "n_prompt is " + std::to_string(open.n_prompt) + " of " +
                                             std::to_string(open.tokens.size()) + " tokens"});
  if (const auto it = answers_.find(id); it != answers_.end()) {
    if (!it->second.closing) {
      if (const auto what = it->second.what_differs(open); !what.empty())
        return refuse(id, {ErrorCode::kInvalidRequest,
                           "this request id has a sequence with " + std::string(what) +
                               " here; one id is one request",
                           "request_id"});
      if (it->second.has_logprobs_for(open)) return repeat_from(id, it->second, open);
    }
    drop(it);
  }
  const auto prompt_end = open.tokens.begin() + open.n_prompt;
  OpenRequest request{
      .seq = SeqId{++last_seq_},
      .prompt = {open.tokens.begin(), prompt_end},
      .resume = {prompt_end, open.tokens.end()},
      .params = open.params,
      .prompt_logprobs_from = open.prompt_logprobs_from,
      .end_tokens = open.end_tokens,
      .proposers = proposers_of(open, options_),
      .draft_len = open.draft_len < 0
                       ? options_.draft_len
                       : std::min(static_cast<std::uint32_t>(open.draft_len), kMaxDraftTokens),
      .lookup_len = open.draft_len < 0 ? options_.lookup_len : 0,
      .length = open.adaptive && options_.adaptive ? LengthMode::kAdaptive : LengthMode::kFixed,
      .prediction = open.prediction,
      .priority = open.priority,
      .tenant_salt = open.tenant_salt,
      .flow = open.flow,
      .flow_weight = open.flow_weight > 0 ? std::clamp<double>(open.flow_weight, 0.01, 100) : 1};
  if (open.deadline_us != 0)
    request.deadline =
        now + std::min<Duration>(
                  std::chrono::microseconds(std::min<std::uint64_t>(open.deadline_us, 1ull << 42)),
                  std::chrono::hours(24));
  const SeqId seq = request.seq;
  const auto n_resumed = static_cast<std::uint32_t>(request.resume.size());
  auto opened = engine_.open(std::move(request), now);
  if (!opened.ok()) return refuse(id, opened.error());
  TargetAnswer answer{.seq = seq,
                      .n_prompt = open.n_prompt,
                      .params = open.params,
                      .end_tokens = open.end_tokens,
                      .text = std::move(*opened),
                      .guessed = std::vector<std::uint8_t>(n_resumed, 0),
                      .first_prompt_logprob = std::max<Position>(1, open.prompt_logprobs_from),
                      .with_logprobs = open.params.n_logprobs >= 0,
                      .first_logprob = n_resumed,
                      .interval = std::chrono::microseconds(open.tokens_interval_us),
                      .n_sent = n_resumed};
  requests_.emplace(answer.seq, id);
  answers_.emplace(id, std::move(answer));
  router().send(id, wire::Opened{.n_waiting = engine_.snapshot().n_waiting});
}

// Nothing is sent to the router, which has just asked for the sequence anew.
void TargetService::drop(Answers::iterator it) {
  if (!it->second.end && !it->second.closing)
    engine_.close(it->second.seq, CloseReason::kCancelled);
  requests_.erase(it->second.seq);
  answers_.erase(it);
}

void TargetService::refuse(RequestId id, const Error& error) {
  const bool try_elsewhere = error.code == ErrorCode::kQueueFull ||
                             error.code == ErrorCode::kDraining ||
                             error.code == ErrorCode::kOutOfMemory;
  if (try_elsewhere)
    return router().send(
        id, wire::Busy{.code = error.code, .message = error.message, .retry_after_ms = 500});
  router().send(id,
                wire::Failed{.code = error.code, .message = error.message, .param = error.param});
}

void TargetService::send_all(RequestId id, std::vector<wire::Tokens> messages) {
  for (wire::Tokens& message : messages) router().send(id, std::move(message));
}

void TargetService::repeat_from(RequestId id, TargetAnswer& answer, const wire::Open& open) {
  const auto position = static_cast<Position>(open.tokens.size());
  const bool owes_prompt = answer.prompt_logprobs_until() >
                           std::max(open.prompt_logprobs_from, answer.first_prompt_logprob);
  if (owes_prompt) send_all(id, answer.prompt_messages_from(open.prompt_logprobs_from));
  if (position >= answer.n_prompt && position < answer.text->size()) {
    send_all(id, answer.messages_from(position - answer.n_prompt));
  } else if (!owes_prompt) {
    router().send(id, wire::Opened{});
  }
  answer.n_sent = static_cast<std::uint32_t>(answer.n_output());
  answer.sent_at = bus().now();
  if (answer.end) router().send(id, *answer.end);
}

void TargetService::on_close(RequestId id, const wire::Close& close) {
  const auto it = answers_.find(id);
  if (it == answers_.end()) return;
  TargetAnswer& answer = it->second;
  if (answer.end) {
    // The router knows the end unless it cut the answer short itself: then it still wants the
    // counts.
    if (close.reason == CloseReason::kStop) router().send(id, *answer.end);
    requests_.erase(answer.seq);
    answers_.erase(it);
    return;
  }
  answer.closing = true;
  engine_.close(answer.seq, close.reason);
  // The router's answer waits for these counts, and a pass of the other sequences may be long.
  if (close.reason != CloseReason::kStop) return;
  if (const auto event = engine_.take_done(answer.seq)) done(*event, bus().now());
}

// ---- work

void TargetService::report_lost(DraftProposer& pool) {
  for (const wire::DraftLost& lost : pool.take_lost()) {
    log_warning("a draft does not answer", {{"draft", lost.draft.value}});
    router().send({}, lost);
  }
}

TimePoint TargetService::work(TimePoint now) {
  TimePoint due = drafts_.turn(now);
  report_lost(drafts_);
  if (memories_ != nullptr) {
    due = std::min(due, memories_->turn(now));
    report_lost(*memories_);
  }
  if (now >= next_sweep_) {
    next_sweep_ = now + kSweep;
    std::erase_if(answers_, [&](const auto& entry) {
      const bool old = entry.second.end && now - entry.second.ended > options_.keep_finished;
      if (old) requests_.erase(entry.second.seq);
      return old;
    });
  }
  if (engine_.has_work()) {
    const Duration waited = wait_for_proposals();
    step(waited);
  }
  engine_.check_ranks(now);
  return engine_.has_work() ? now : std::min(due, next_sweep_);
}

// A finished answer stays until the router closes it: only then is it known to have arrived. And
// the router may have requests that it accepted and has not placed yet.
bool TargetService::has_to_stay() const {
  const bool awaited = router().has_router() && (!answers_.empty() || router().is_needed());
  return !router().router_left() && (engine_.has_work() || awaited);
}

// The goodbye moves whatever is unfinished to another target, so it is said while there is still
// time for it.
void TargetService::leave() {
  // Another target need not compute what was held back.
  for (auto& [id, answer] : answers_) send_new_tokens(id, answer, bus().now());
  if (!answers_.empty()) forget_all("stopping");
  engine_.begin_drain();
}

// Waits as long as the engine says, at most until the last relevant proposal has arrived. Returns
// how long that was.
Duration TargetService::wait_for_proposals() {
  // What has come during the pass is at hand, and need not be waited for. A flood may cost this
  // step its guesses, but not the step.
  const TimePoint begin = bus().now();
  for (int i = 0; i < kMessagesPerStep; ++i) {
    auto delivery = bus().receive(begin);
    if (!delivery) break;
    dispatch(*this, std::move(*delivery));
  }
  const TimePoint waits_since = bus().now();
  const TimePoint until = waits_since + engine_.wait_hint(waits_since);
  TimePoint now = waits_since;
  for (; now < until && !engine_.proposals_complete(now); now = bus().now()) {
    auto delivery = bus().receive(until);
    if (!delivery) break;
    dispatch(*this, std::move(*delivery));
  }
  return waits_since < until ? bus().now() - waits_since : Duration::zero();
}

void TargetService::step(Duration waited) {
  const TimePoint begin = bus().now();
  bus().progress().doing(wire::Activity::kStep);
  engine_.verify(begin);
  const TimePoint verified = bus().now();
  const StepOutput& output = engine_.commit();
  const TimePoint end_of_step = bus().now();
  if (output.n_rows > 0) {
    engine_.record_step_time(end_of_step - begin);
    step_us_[n_steps_++ % kRecentSteps] = short_micros(end_of_step - begin);
  }
  for (const TokensEvent& event : output.prompts) send_prompt(event);
  for (const TokensEvent& event : output.tokens) add_tokens(event, end_of_step);
  for (const DoneEvent& event : output.done) done(event, end_of_step);
  for (const FailedEvent& event : output.failed)
    end(event.seq,
        wire::Failed{
            .code = event.error.code, .message = event.error.message, .param = event.error.param},
        end_of_step);
  const TimePoint sent = bus().now();
  if (output.n_rows > 0)
    log_.add({.began = begin,
              .waited = waited,
              .computed = verified - begin,
              .committed = sent - verified,
              .n_sequences = output.n_sequences,
              .n_rows = output.n_rows,
              .n_drafted = output.n_verified,
              .n_accepted = output.n_accepted,
              .n_tokens = output.n_committed});
  // A wait that brought no guesses counts, too: it cost the same.
  if (output.n_verified > 0 || waited > Duration::zero()) own_metrics_.tally.wait.observe(waited);
  if (output.n_verified == 0) return;
  own_metrics_.tally.verify.observe(verified - begin);
  own_metrics_.tally.commit.observe(sent - verified);
}

void TargetService::done(const DoneEvent& event, TimePoint now) {
  const auto it = requests_.find(event.seq);
  if (it == requests_.end()) return;
  const TargetAnswer& answer = answers_.at(it->second);
  const Duration decoding = answer.last_token - answer.first_token.value_or(answer.last_token);
  if (event.reason != FinishReason::kCancelled && answer.first_token) {
    own_metrics_.tally.prefill.observe(*answer.first_token - event.stats.admitted);
    own_metrics_.tally.decode.observe(decoding);
    if (answer.n_later > 0) own_metrics_.tally.per_token.observe(decoding / answer.n_later);
  }
  end(event.seq, done_of(event, decoding), now);
}

void TargetService::send_prompt(const TokensEvent& event) {
  const auto it = requests_.find(event.seq);
  if (it == requests_.end()) return;  // forgotten meanwhile
  TargetAnswer& answer = answers_.at(it->second);
  const auto& logprobs = event.tokens.logprobs;
  answer.prompt_logprobs.insert(answer.prompt_logprobs.end(), logprobs.begin(), logprobs.end());
  if (!answer.closing) send_all(it->second, answer.prompt_messages_from(event.tokens.position));
}

void TargetService::add_tokens(const TokensEvent& event, TimePoint now) {
  const auto it = requests_.find(event.seq);
  if (it == requests_.end()) return;  // forgotten meanwhile
  TargetAnswer& answer = answers_.at(it->second);
  answer.add(event.tokens, now);
  if (now >= answer.sent_at + answer.interval) send_new_tokens(it->second, answer, now);
}

// The tokens that were not sent yet; none after a CLOSE.
void TargetService::send_new_tokens(RequestId id, TargetAnswer& answer, TimePoint now) {
  const auto n = static_cast<std::uint32_t>(answer.n_output());
  if (answer.closing || answer.n_sent >= n) return;
  send_all(id, answer.messages_from(answer.n_sent));
  answer.n_sent = n;
  answer.sent_at = now;
}

void TargetService::end(SeqId seq, wire::Message message, TimePoint now) {
  const auto it = requests_.find(seq);
  if (it == requests_.end()) return;
  const RequestId id = it->second;
  TargetAnswer& answer = answers_.at(id);
  if (auto* done = std::get_if<wire::Done>(&message);
      done != nullptr && answer.params.n_prompt_logprobs >= 0)
    done->prompt_logprobs_until = answer.prompt_logprobs_until();
  send_new_tokens(id, answer, now);
  router().send(id, message);
  if (answer.closing) {
    answers_.erase(id);
    requests_.erase(it);
    return;
  }
  answer.end = std::move(message);
  answer.ended = now;
}

void TargetService::forget_all(const std::string& why) {
  log_warning("dropping all sequences", {{"reason", why}, {"sequences", answers_.size()}});
  for (const auto& [id, answer] : answers_)
    if (!answer.end) engine_.close(answer.seq, CloseReason::kCancelled);
  answers_.clear();
  requests_.clear();
}

// ---- load, people

wire::Heartbeat TargetService::own_load() const {
  const TargetSnapshot now = engine_.snapshot();
  wire::Heartbeat beat{
      .active = now.n_running + now.n_held_back,  // those have a place, and its work is small
      .queued = now.n_waiting - now.n_held_back,
      .queued_tokens = now.n_waiting_tokens,
      .kv_blocks_free = static_cast<std::uint32_t>(now.kv.n_free + now.kv.n_cached),
      .tokens_total = now.n_tokens,
      .drafted_total = now.spec.n_drafted,
      .accepted_total = now.spec.n_accepted,
      .dropped_total = own_metrics_.total(&DraftCounters::stale) +
                       own_metrics_.total(&DraftCounters::malformed) +
                       own_metrics_.total(&DraftCounters::not_sent),
      .links = links_text(own_metrics_.links()),
      .set_aside = own_metrics_.set_aside()};
  if (n_steps_ > 0) {
    std::vector<std::uint32_t> recent(
        step_us_.begin(),
        step_us_.begin() + static_cast<std::ptrdiff_t>(std::min(n_steps_, kRecentSteps)));
    std::sort(recent.begin(), recent.end());
    beat.step_us_p50 = recent[recent.size() / 2];
    beat.step_us_p99 = recent[recent.size() * 99 / 100];
  }
  return beat;
}

std::string TargetService::status() const {
  const TargetSnapshot now = engine_.snapshot();
  return std::to_string(now.n_running) + " sequences, " + std::to_string(now.n_waiting) +
         " waiting, " + std::to_string(own_metrics_.n_drafts()) + " drafts";
}

}  // namespace foretoken
