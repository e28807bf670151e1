#include "services/draft/draft_service.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "common/base/log.h"
#include "common/base/micros.h"
#include "common/runtime/process.h"
#include "kernels/include/numerics.h"

namespace foretoken {
namespace {

constexpr Duration kLastWords = std::chrono::milliseconds(250);

// What this draft would guess in vain; empty if it can follow.
std::string why_not_served(const wire::Attach& attach, Fingerprint vocabulary) {
  if (attach.vocabulary != vocabulary) return "its vocabulary is not ours";
  if (attach.noise_version != kNoiseVersion)
    return "its noise version is " + std::to_string(attach.noise_version) + ", ours is " +
           std::to_string(kNoiseVersion);
  if (attach.acceptance != AcceptanceRule::kCoupled)
    return "it wants acceptance " + std::string(wire::name_of(attach.acceptance)) +
           ", this draft guesses for coupled";
  return {};
}

}  // namespace

DraftService::DraftService(const DraftServiceOptions& options,
                           const wire::Hello& hello,
                           Guesser& guesser,
                           wire::Speaker& speaker,
                           Metrics& metrics)
    : WorkerService({options.router, options.heartbeat, kLastWords}, hello, speaker, metrics),
      options_(options),
      guesser_(guesser),
      speaker_(speaker) {}

void DraftService::open(Bus& bus, wire::Hello& hello) {
  hello.noise_version = kNoiseVersion;
  hello.endpoint = bus.endpoint(bus.bind(options_.endpoint, Door::kDraft));
  if (!options_.announced.empty()) hello.endpoint = options_.announced;
  open_door();
}

// Without it the targets come over the connection, as all others do.
void DraftService::open_door() {
  if (options_.memory_endpoint.empty()) return;
  try {
    door_ = bus().bind(options_.memory_endpoint, Door::kDraft);
  } catch (const FatalError& error) {
    why_no_door_ = error.what();
    log_warning("no links through shared memory", {{"reason", why_no_door_}});
  }
}

void DraftService::on_malformed(const Peer& peer) {
  count_malformed();
  // A connection without a token is read once at most: nonsense keeps no place at the door.
  if (is_beside(peer)) disconnect(peer, "not a message of the protocol");
}

void DraftService::on_peer_message(const Delivery& delivery,
                                   const wire::Header& header,
                                   wire::Message& message) {
  const TargetKey from{header.sender, header.incarnation};
  const TimePoint now = bus().now();
  const bool beside = is_beside(delivery.peer);
  if (const auto* open = std::get_if<wire::LinkOpen>(&message); open != nullptr && beside)
    return on_link_open(from, delivery.peer, *open);
  if (!(beside ? admit_beside(from, delivery, now) : admit(from, delivery, now))) {
    ++refused_;
    return;
  }
  if (auto* propose = std::get_if<wire::Propose>(&message)) return on_propose(from, *propose, now);
  if (auto* attach = std::get_if<wire::Attach>(&message)) return on_attach(from, *attach, now);
  if (const auto* close = std::get_if<wire::CloseSequence>(&message))
    return guesser_.detach(from, *close);
  if (const auto* ask = std::get_if<wire::LinkAsk>(&message)) return on_link_ask(from, *ask);
  if (std::holds_alternative<wire::Goodbye>(message)) {
    guesser_.detach_all(from.target, {});
    forget(targets_.find(from));
    return;
  }
  count_malformed();
}

// Where connections have keys only a target's may speak as one, and none with another's name.
bool DraftService::admit(const TargetKey& from, const Delivery& delivery, TimePoint now) {
  if (!delivery.user.empty() && !delivery.user.starts_with("target:")) return false;
  for (const auto& [key, target] : targets_)
    if (key.target == from.target && target.user != delivery.user) return false;
  auto it = targets_.find(from);
  if (it == targets_.end()) {
    // Strangers come and go; one of them makes room, not a target that speaks every few
    // milliseconds.
    if (targets_.size() >= kMaxTargets)
      forget(std::min_element(targets_.begin(), targets_.end(), [](const auto& a, const auto& b) {
        return a.second.heard < b.second.heard;
      }));
    guesser_.detach_all(from.target, from.incarnation);  // its former incarnations are over
    it = targets_.emplace(from, Target{.peer = {}, .user = delivery.user}).first;
  }
  it->second.peer = delivery.peer;
  it->second.heard = now;
  return true;
}

DraftService::Targets::iterator DraftService::forget(Targets::iterator target) {
  if (target->second.beside) {
    links_.erase(*target->second.beside);
    bus().hang_up(*target->second.beside);
  }
  guesser_.set_run_ahead(target->first, std::nullopt);
  const auto next = targets_.erase(target);
  settle_run_ahead();
  return next;
}

// ---- the link

void DraftService::disconnect(const Peer& peer, const std::string& why) {
  bus().hang_up(peer);
  on_closed(peer, why);
}

bool DraftService::admit_beside(const TargetKey& from, const Delivery& delivery, TimePoint now) {
  const auto link = links_.find(delivery.peer);
  if (link == links_.end() || link->second != from) {
    disconnect(delivery.peer, "a header has another sender's id");
    return false;
  }
  targets_.at(from).heard = now;
  return true;
}

// A guess ahead takes the time of each target that shares its cores, whichever it is for: those of
// this machine count together.
void DraftService::settle_run_ahead() {
  if (options_.run_ahead == 0) return;
  CoreUse beside{.machine = options_.cores.machine};
  for (const auto& [key, target] : targets_)
    if (target.cores.machine == beside.machine) beside = together(beside, target.cores);
  const bool is_alone = beside.n_threads == 0 || have_own_cores(options_.cores, beside);
  for (const auto& [key, target] : targets_) {
    const bool may = is_alone && have_own_cores(options_.cores, target.cores);
    guesser_.set_run_ahead(key, may ? std::optional(options_.run_ahead) : std::nullopt);
  }
}

void DraftService::on_link_ask(const TargetKey& from, const wire::LinkAsk& ask) {
  const auto cpus = cpu_list_from(ask.cpus);
  targets_.at(from).cores = {ask.machine, cpus.ok() ? *cpus : CpuList{},
                             static_cast<int>(std::min(ask.threads, 1u << 16))};
  settle_run_ahead();
  wire::LinkOffer offer;
  if (!door_) {
    offer.reason = why_no_door_;
  } else if (!ask.machine.empty() && !options_.cores.machine.empty() &&
             ask.machine != options_.cores.machine) {
    offer.reason = "it runs on another machine";
  } else {
    offer.endpoint = options_.memory_endpoint;
    offer.token = targets_.at(from).token = random_u64() | 1;
  }
  send(from, offer, Way::kConnection);
}

void DraftService::on_link_open(const TargetKey& from,
                                const Peer& peer,
                                const wire::LinkOpen& open) {
  const auto it = targets_.find(from);
  if (it == targets_.end() || open.token == 0 || it->second.token != open.token ||
      links_.contains(peer)) {
    ++refused_;
    return disconnect(peer, "unknown token");
  }
  Target& target = it->second;
  if (target.beside) {
    links_.erase(*target.beside);
    bus().hang_up(*target.beside);
  }
  target.token = 0;
  target.beside = peer;
  links_.emplace(peer, from);
  log_info("a target is linked through shared memory", {{"target", from.target.value}});
  send(from, open);
}

void DraftService::on_closed(const Peer& peer, const std::string& why) {
  const auto link = links_.find(peer);
  if (link == links_.end()) return;
  if (const auto it = targets_.find(link->second); it != targets_.end()) it->second.beside.reset();
  log_info("a link through shared memory is over",
           {{"target", link->second.target.value}, {"reason", why}});
  links_.erase(link);
}

void DraftService::on_attach(const TargetKey& from, wire::Attach& attach, TimePoint now) {
  if (const std::string why = why_not_served(attach, options_.vocabulary); !why.empty()) {
    ++refused_;
    Target& target = targets_.at(from);
    if (!std::exchange(target.was_refused, true))
      log_warning("refused a target's sequences", {{"target", from.target.value}, {"reason", why}});
    return send(
        from, wire::Need{.seq = attach.seq, .lease = attach.lease, .reason = NeedReason::kRefused});
  }
  if (attach.tokens.empty() || attach.n_prompt > attach.tokens.size()) return count_malformed();
  answer(from, guesser_.attach(from, std::move(attach), now));
}

void DraftService::on_propose(const TargetKey& from, const wire::Propose& propose, TimePoint now) {
  guesser_.renew(from, now);
  for (const wire::ProposeRecord& record : propose.records)
    answer(from, guesser_.follow(from, record, now));
}

void DraftService::answer(const TargetKey& to, const DraftOutcome& outcome) {
  if (const auto* need = std::get_if<wire::Need>(&outcome)) return send(to, *need);
  if (const auto* busy = std::get_if<wire::DraftBusy>(&outcome)) return send(to, *busy);
}

// Everything towards a target is a hint, worthless when it is late: it has no patience and no
// ticket, and what cannot leave now is counted.
void DraftService::send(const TargetKey& to, const wire::Message& message, Way way) {
  const auto it = targets_.find(to);
  if (it == targets_.end()) return;
  const auto frames = wire::try_encode(speaker_, {}, message);
  if (way == Way::kShortest && frames.ok() && it->second.beside) {
    const Peer beside = *it->second.beside;
    const SendResult result = bus().try_send(beside, *frames);
    if (result == SendResult::kSent) return;
    ++n_fallbacks_;
    if (result == SendResult::kUnknown) on_closed(beside, "it is gone");
  }
  if (frames.ok())
    bus().send(it->second.peer, *frames, {});
  else
    ++not_sent_;
}

void DraftService::on_undelivered(const Peer& peer, Ticket) {
  ++not_sent_;
  // Its leases run out by themselves if it does not come back.
  for (auto it = targets_.begin(); it != targets_.end();)
    it = it->second.peer == peer ? forget(it) : std::next(it);
}

TimePoint DraftService::work(TimePoint now) {
  guesser_.check(now);
  // Without work a step still frees what has expired, a few times a second.
  if (guesser_.has_work() || guesser_.snapshot().n_attached > 0) step();
  // One that is idle says nothing; a link says itself when it ends.
  for (auto it = targets_.begin(); it != targets_.end();)
    it = !it->second.beside && now - it->second.heard > kForgotten ? forget(it) : std::next(it);
  return guesser_.has_work() ? now : TimePoint::max();
}

void DraftService::step() {
  const TimePoint begin = bus().now();
  bus().progress().doing(wire::Activity::kStep);
  const DraftOutput& output = guesser_.step(begin);
  const TimePoint end = bus().now();
  if (output.n_rows > 0) {
    guesser_.record_step_time(end - begin);
    const std::uint32_t took = short_micros(end - begin) / output.n_steps;
    step_us_ = step_us_ == 0 ? took : (step_us_ * 7 + took) / 8;
    log_.add({.began = begin,
              .computed = end - begin,
              .n_rows = output.n_rows,
              .n_drafted = output.n_drafted});
  }
  std::map<TargetKey, wire::Proposal> frames;
  for (const ReadyProposal& ready : output.proposals)
    if (targets_.contains(ready.to)) {
      wire::ProposalRecord& record = frames[ready.to].records.emplace_back(ready.record);
      if (ready.asked == TimePoint{}) continue;
      record.took_us = std::max(1u, short_micros(end - ready.asked));
      propose_.observe(end - ready.asked);
    }
  for (const auto& [to, frame] : frames) send(to, frame);
  for (const BusySequence& lost : output.busy) send(lost.of, lost.busy);
}

// Where everything stops the drafts are the last: without them what runs would end later. Where
// this one stops alone the router says that it is not needed, and its targets use others or none.
bool DraftService::has_to_stay() const {
  return guesser_.snapshot().n_attached > 0 && router().is_needed();
}

void DraftService::leave() {
  for (const auto& [key, target] : targets_)
    send(key, wire::Goodbye{.reason = "drained"}, Way::kConnection);
}

wire::Heartbeat DraftService::own_load() const {
  const DraftSnapshot now = guesser_.snapshot();
  return {.active = now.n_attached,
          .queued = now.n_behind,
          .kv_blocks_free = static_cast<std::uint32_t>(now.kv.n_free + now.kv.n_cached),
          .step_us_p50 = step_us_,
          .step_us_p99 = step_us_,
          .tokens_total = now.n_drafted,
          .accepted_total = now.n_kept,
          .dropped_total = refused_ + not_sent_ + now.n_ignored};
}

std::string DraftService::status() const {
  return std::to_string(guesser_.snapshot().n_attached) + " sequences of " +
         std::to_string(targets_.size()) + " targets";
}

void DraftService::list_metrics(Metrics& metrics) {
  const DraftSnapshot now = guesser_.snapshot();
  metrics.gauge("draft_sequences", now.n_attached);
  metrics.gauge("draft_links", links_.size());
  metrics.counter("draft_link_fallbacks_total", n_fallbacks_);
  metrics.histogram("spec_decode_round_seconds", propose_, {{"phase", "propose"}});
  metrics.counter("draft_tokens_total", now.n_drafted);
  metrics.counter("draft_needs_total", now.n_needs);
  metrics.counter("draft_busy_total", now.n_busy);
  guesser_.list_metrics(metrics);
}

}  // namespace foretoken
