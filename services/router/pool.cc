#include "services/router/pool.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "common/base/model_name.h"
#include "common/wire/client_codec.h"

namespace foretoken {
namespace {

std::string differ(const char* what,
                   const wire::Hello& a,
                   Fingerprint of_a,
                   const wire::Hello& b,
                   Fingerprint of_b) {
  return std::string(what) + " of " + a.name + " (" + wire::hex_of(of_a) + ") and " + b.name +
         " (" + wire::hex_of(of_b) + ") differ";
}

// A router that runs listens again within this time; a longer pause counts as so much.
constexpr Duration kListensAtOnce = std::chrono::milliseconds(500);
constexpr int kRemembered = 120;  // a lost worker is shown for so many times the patience

bool is_stuck(const wire::Heartbeat& beat) {
  return beat.bound_us > 0 && beat.busy_us > beat.bound_us;
}

std::string why_stuck(const wire::Heartbeat& beat) {
  const auto tenths = [](std::uint64_t us) {
    return std::to_string(us / 1'000'000) + "." + std::to_string(us / 100'000 % 10);
  };
  return "no progress for " + tenths(beat.busy_us) + " s in one turn (" +
         std::string(name_of(beat.activity)) + "); the bound is " + tenths(beat.bound_us) +
         " s, 8 times its longest recent turn and at least limits.stuck_s";
}

}  // namespace

std::string why_not_paired(const wire::Hello& target, const wire::Hello& draft) {
  if (target.fingerprints.vocabulary != draft.fingerprints.vocabulary)
    return differ("the vocabularies", target, target.fingerprints.vocabulary, draft,
                  draft.fingerprints.vocabulary);
  if (target.noise_version != draft.noise_version)
    return "the noise versions of " + target.name + " (" + std::to_string(target.noise_version) +
           ") and " + draft.name + " (" + std::to_string(draft.noise_version) + ") differ";
  if (draft.endpoint.empty()) return draft.name + " has no endpoint to connect to";
  return {};
}

std::string why_not_served(const wire::Hello& tokenizer, const wire::Hello& target) {
  if (tokenizer.fingerprints.vocabulary != target.fingerprints.vocabulary)
    return differ("the vocabularies", tokenizer, tokenizer.fingerprints.vocabulary, target,
                  target.fingerprints.vocabulary);
  if (tokenizer.fingerprints.text != target.fingerprints.text)
    return differ("the tokenizer files or chat templates", tokenizer, tokenizer.fingerprints.text,
                  target, target.fingerprints.text);
  return {};
}

namespace {

bool have_equal_tokens(const wire::Hello& target, const wire::Hello& other) {
  return target.fingerprints.model == other.fingerprints.model &&
         target.fingerprints.numerics == other.fingerprints.numerics &&
         target.fingerprints.vocabulary == other.fingerprints.vocabulary &&
         target.noise_version == other.noise_version;
}

}  // namespace

bool can_continue(const wire::Hello& target, const wire::Hello& other) {
  return have_equal_tokens(target, other) && target.max_model_len == other.max_model_len;
}

std::string why_not_one_model(const wire::Hello& target, const wire::Hello& other) {
  const auto names_of = [](const wire::Hello& hello) {
    std::vector<std::string> names = hello.aliases;
    names.insert(names.begin(), hello.model_name);
    return names;
  };
  const auto theirs = names_of(other);
  std::string shared;
  for (const std::string& name : names_of(target))
    if (shared.empty() && std::any_of(theirs.begin(), theirs.end(), [&](const std::string& their) {
          return overlap(name, their);
        }))
      shared = name;
  if (shared.empty()) return {};
  const auto shown = [](const wire::Hello& hello) {
    return hello.name + " (model " + wire::hex_of(hello.fingerprints.model) + ", numerics " +
           wire::hex_of(hello.fingerprints.numerics) + ")";
  };
  const std::string both = "the name \"" + shared + "\" means one model, and " + shown(target) +
                           " and " + shown(other) + " differ";
  const std::string advice = "; give one of them another model.name and model.alias";
  if (!have_equal_tokens(target, other)) return both + advice;
  if (target.max_model_len != other.max_model_len)
    return both + " in model.max_model_len (" + std::to_string(target.max_model_len) + " and " +
           std::to_string(other.max_model_len) +
           " tokens); give both the same, or one of them another " + "model.name and model.alias";
  if (target.fingerprints.text != other.fingerprints.text)
    return both + " in their tokenizer files or chat templates" + advice;
  if (target.end_tokens != other.end_tokens)
    return both + " in their end tokens (generation_config.json)" + advice;
  if (target.sampling != other.sampling)
    return both + " in how a request samples that does not say (generation_config.json)" + advice;
  return {};
}

bool Pool::holds_names(const Worker& worker, TimePoint now) const {
  return worker.hello.role == wire::Role::kTarget &&
         (worker.state != wire::WorkerState::kGone ||
          now - worker.last_seen <= kPatiencesHeld * patience_);
}

std::string Pool::why_names_are_taken(WorkerId id, const wire::Hello& hello, TimePoint now) const {
  if (hello.role != wire::Role::kTarget) return {};
  for (const auto& [other_id, other] : workers_) {
    if (other_id == id || !holds_names(other, now))
      continue;  // a new incarnation replaces its former one
    if (auto why = why_not_one_model(hello, other.hello); !why.empty()) return why;
  }
  return {};
}

void Pool::remember_model(const Worker& worker) {
  if (worker.hello.role != wire::Role::kTarget) return;
  if (former_models_.size() >= kMaxWorkers) former_models_.erase(former_models_.begin());
  former_models_[worker.hello.model_name] = {worker.hello, worker.last_seen};
}

std::vector<const wire::Hello*> Pool::models(TimePoint now) const {
  std::vector<const wire::Hello*> list;
  std::set<std::string_view> names;
  for (const auto& [id, worker] : workers_) {
    if (worker.hello.role != wire::Role::kTarget || worker.state == wire::WorkerState::kGone)
      continue;
    list.push_back(&worker.hello);
    names.insert(worker.hello.model_name);
  }
  // A name that passed on means the new model alone.
  for (const auto& [id, worker] : workers_)
    if (worker.hello.role == wire::Role::kTarget && worker.state == wire::WorkerState::kGone &&
        !names.contains(worker.hello.model_name))
      list.push_back(&worker.hello);
  for (const auto& [name, former] : former_models_)
    if (now - former.last_seen <= kPatiencesHeld * patience_ && !names.contains(name))
      list.push_back(&former.hello);
  std::stable_sort(list.begin(), list.end(), [](const wire::Hello* a, const wire::Hello* b) {
    return a->model_name < b->model_name;
  });
  return list;
}

bool Pool::is_among(const Incarnations& incarnations, WorkerId id, Incarnation incarnation) {
  const auto it = incarnations.find(id);
  return it != incarnations.end() &&
         std::find(it->second.begin(), it->second.end(), incarnation) != it->second.end();
}

void Pool::remember(Incarnations& incarnations, WorkerId id, Incarnation incarnation) {
  auto& remembered = incarnations[id];
  std::erase(remembered, incarnation);
  remembered.push_back(incarnation);
  if (remembered.size() > kRememberedIncarnations) remembered.pop_front();
  if (incarnations.size() >
      kMaxWorkers)  // names come and go: forgetting one may revive it for a lease
    incarnations.erase(incarnations.begin()->first == id ? std::next(incarnations.begin())
                                                         : incarnations.begin());
}

Pool::Arrival Pool::hello(const wire::Header& header,
                          const Peer& peer,
                          const wire::Hello& hello,
                          TimePoint now) {
  using wire::Role;
  if (hello.role != Role::kTokenizer && hello.role != Role::kDraft && hello.role != Role::kTarget &&
      hello.role != Role::kEdge)
    return {.code = ErrorCode::kInvalidRequest,
            .message = "a " + std::string(name_of(hello.role)) + " cannot register as a worker"};
  auto it = workers_.find(header.sender);
  if (it != workers_.end() && it->second.state != wire::WorkerState::kGone &&
      it->second.incarnation == header.incarnation) {
    it->second.peer = peer;
    it->second.hello = hello;
    it->second.minor = header.minor;
    mark_seen(it->second, now);
    return {.accepted = true};
  }
  // A lost incarnation may return; one that sent GOODBYE may not. A replaced one may return only
  // after its replacement was silent for the patience: else two running processes would alternate.
  if (is_among(left_, header.sender, header.incarnation))
    return {.code = ErrorCode::kInvalidRequest, .message = hello.name + " has said goodbye"};
  const bool other_is_here = it != workers_.end() && it->second.incarnation != header.incarnation &&
                             now - it->second.last_seen <= patience_;
  if (other_is_here && is_among(replaced_, header.sender, header.incarnation)) {
    remember(replaced_, header.sender, header.incarnation);  // it runs: others are forgotten first
    return {.code = ErrorCode::kInvalidRequest,
            .message = "another process named " + hello.name + " has taken its place"};
  }
  if (it == workers_.end() && workers_.size() >= kMaxWorkers)
    return {.code = ErrorCode::kQueueFull,
            .message = "already " + std::to_string(kMaxWorkers) + " workers"};
  if (auto why = why_names_are_taken(header.sender, hello, now); !why.empty())
    return {.code = ErrorCode::kIncompatible, .message = std::move(why)};

  Arrival arrival{.accepted = true, .is_new = true};
  if (it != workers_.end() && it->second.incarnation != header.incarnation) {
    arrival.replaced = it->second.state != wire::WorkerState::kGone;
    remember_model(it->second);
    remember(replaced_, header.sender, it->second.incarnation);
  }
  workers_[header.sender] = Worker{.id = header.sender,
                                   .incarnation = header.incarnation,
                                   .peer = peer,
                                   .hello = hello,
                                   .minor = header.minor,
                                   .joined = now,
                                   .last_seen = now};
  return arrival;
}

bool Pool::heartbeat(const wire::Header& header,
                     const Peer& peer,
                     const wire::Heartbeat& beat,
                     TimePoint now) {
  Worker* worker = find_sender(header, now);
  if (worker == nullptr) return false;
  worker->peer = peer;
  worker->load = beat;
  worker->placed_tokens = 0;
  if (beat.draining && worker->state != wire::WorkerState::kDraining) worker->draining_since = now;
  worker->n_started = 0;
  worker->state = beat.draining ? wire::WorkerState::kDraining : wire::WorkerState::kReady;
  return true;
}

void Pool::mark_seen(Worker& worker, TimePoint now) {
  worker.last_seen = now;
  worker.silent = worker.next_probe = {};
}

Worker* Pool::find_sender(const wire::Header& header, TimePoint now) {
  Worker* worker = find(header.sender);
  if (worker == nullptr || worker->incarnation != header.incarnation ||
      worker->state == wire::WorkerState::kGone)
    return nullptr;
  mark_seen(*worker, now);
  return worker;
}

bool Pool::end(WorkerId id, Incarnation incarnation) {
  Worker* worker = find(id);
  if (worker == nullptr || worker->incarnation != incarnation) return false;
  remember(left_, id, incarnation);
  remember_model(*worker);
  workers_.erase(id);
  return true;
}

void Pool::lose(WorkerId id) {
  Worker* worker = find(id);
  if (worker == nullptr) return;
  worker->state = wire::WorkerState::kGone;
  worker->n_placed = 0;
}

void Pool::begin(TimePoint now, Duration registration) {
  counted_until_ = now;
  all_here_by_ = now + registration;
}

void Pool::count_silence(TimePoint received_until) {
  // A router that was stopped finds its clients' requests before services have connected again.
  if (!all_here())
    all_here_by_ += std::max(Duration{}, received_until - counted_until_ - kListensAtOnce);
  // At most a quarter of the patience at a time: what came while the router did not run may not
  // have been taken from its sockets yet.
  const Duration more = std::clamp(received_until - counted_until_, Duration{}, patience_ / 4);
  counted_until_ = std::max(counted_until_, received_until);
  for (auto& [id, worker] : workers_)
    if (worker.state != wire::WorkerState::kGone && worker.last_seen < received_until)
      worker.silent += std::min(more, received_until - worker.last_seen);
}

std::vector<Pool::Loss> Pool::expire(TimePoint now) {
  std::vector<Loss> lost;
  std::erase_if(former_models_, [&](const auto& entry) {
    return now - entry.second.last_seen > kPatiencesHeld * patience_;
  });
  for (auto it = workers_.begin(); it != workers_.end();) {
    Worker& worker = it->second;
    if (worker.state == wire::WorkerState::kGone) {
      // Shown to people for a while, then forgotten.
      it = now - worker.last_seen > kRemembered * patience_ ? workers_.erase(it) : std::next(it);
      continue;
    }
    const std::string why = worker.silent > patience_
                                ? std::to_string(kMissed) + " heartbeats are missing"
                            : is_stuck(worker.load) ? why_stuck(worker.load)
                                                    : "";
    if (!why.empty()) {
      lost.push_back({worker, why});
      worker.state = wire::WorkerState::kGone;
      worker.n_placed = 0;
    }
    ++it;
  }
  return lost;
}

std::vector<Peer> Pool::to_probe() {
  std::vector<Peer> peers;
  for (auto& [id, worker] : workers_) {
    const Duration due = std::max(worker.next_probe, probe_after());
    if (worker.state == wire::WorkerState::kGone || worker.silent < due) continue;
    worker.next_probe = worker.silent + heartbeat_ / 2;
    peers.push_back(worker.peer);
  }
  return peers;
}

Duration Pool::until_next_check() const {
  Duration least = patience_;
  for (const auto& [id, worker] : workers_) {
    if (worker.state == wire::WorkerState::kGone) continue;
    const Duration probe = std::max(worker.next_probe, probe_after());
    least = std::min(least, std::min(probe, patience_) - worker.silent);
  }
  return std::max<Duration>(least, std::chrono::milliseconds(1));
}

Worker* Pool::find(WorkerId id) {
  const auto it = workers_.find(id);
  return it == workers_.end() ? nullptr : &it->second;
}

const Worker* Pool::find(WorkerId id) const {
  const auto it = workers_.find(id);
  return it == workers_.end() ? nullptr : &it->second;
}

const Worker* Pool::find(const Peer& peer) const {
  for (const auto& [id, worker] : workers_)
    if (worker.state != wire::WorkerState::kGone && worker.peer == peer) return &worker;
  return nullptr;
}

std::vector<const Worker*> Pool::all() const {
  std::vector<const Worker*> list;
  for (const auto& [id, worker] : workers_) list.push_back(&worker);
  std::sort(list.begin(), list.end(), [](const Worker* a, const Worker* b) {
    return std::pair(a->hello.role, a->hello.name) < std::pair(b->hello.role, b->hello.name);
  });
  return list;
}

std::vector<const Worker*> Pool::alive(wire::Role role) const {
  auto list = all();
  std::erase_if(list, [&](const Worker* w) {
    return w->hello.role != role || w->state == wire::WorkerState::kGone;
  });
  return list;
}

std::vector<const Worker*> Pool::ready(wire::Role role) const {
  return in_state(role, wire::WorkerState::kReady);
}

std::vector<const Worker*> Pool::draining(wire::Role role) const {
  return in_state(role, wire::WorkerState::kDraining);
}

std::vector<const Worker*> Pool::in_state(wire::Role role, wire::WorkerState state) const {
  auto list = all();
  std::erase_if(list, [&](const Worker* w) { return w->hello.role != role || w->state != state; });
  return list;
}

}  // namespace foretoken
