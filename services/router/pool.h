// The registry of workers: the incarnation, model, load and last message of each. Pure: time is an
// argument; the router service sends and logs. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/messages/messages.h"
#include "common/transport/transport.h"
#include "common/wire/envelope.h"

namespace foretoken {

// Of services that register.
inline constexpr std::array kWorkerRoles{wire::Role::kTokenizer, wire::Role::kDraft,
                                         wire::Role::kTarget, wire::Role::kEdge};

struct Worker {
  WorkerId id;
  Incarnation incarnation;
  Peer peer;
  wire::Hello hello;
  std::uint8_t minor = 0;  // of the protocol that it speaks
  wire::Heartbeat load;    // the latest; zeros before the first
  std::string user;        // role:name of its key; empty where connections have none
  wire::WorkerState state = wire::WorkerState::kReady;
  std::string note;  // why it is not (fully) used, for people
  TimePoint joined{};
  TimePoint last_seen{};
  Duration silent{};                // for how long the router has listened since and heard nothing
  Duration next_probe{};            // the silence after which it is probed again
  TimePoint draining_since{};       // in state kDraining
  std::uint32_t n_placed = 0;       // requests of this router there now
  std::uint64_t placed_tokens = 0;  // prompt tokens placed since its last heartbeat
  std::uint32_t n_started = 0;      // requests that wait there no more, since its last heartbeat
};

// Empty: they may work together. Otherwise a sentence that names both and what differs.
std::string why_not_paired(const wire::Hello& target, const wire::Hello& draft);
std::string why_not_served(const wire::Hello& tokenizer, const wire::Hello& target);
// The same request may go on at `other`: equal model and numerics, so equal tokens, and equal
// lengths, so that it ends at the same token.
bool can_continue(const wire::Hello& target, const wire::Hello& other);
// Two targets that share a name, or an alias, must answer equal requests with equal text: tokens as
// above, and what a request gets that does not say. Empty: they do, or share no name.
std::string why_not_one_model(const wire::Hello& target, const wire::Hello& other);

class Pool {
 public:
  // A worker that is silent for so many heartbeats is gone. A thread of a busy machine may be late
  // by most of a second; that a process has ended is noticed long before, by probes.
  static constexpr int kMissed = 8;
  explicit Pool(Duration heartbeat) : heartbeat_(heartbeat), patience_(kMissed * heartbeat) {}

  // The router has just started to listen: once it has listened for this long, every service that
  // runs has said hello. Until then the targets that are here say nothing about others.
  void begin(TimePoint now, Duration registration);
  bool all_here() const { return counted_until_ >= all_here_by_; }
  TimePoint all_here_after(TimePoint now) const {  // when to look again, while they are not
    return std::max(all_here_by_, now + std::chrono::milliseconds(1));
  }

  struct Arrival {
    bool accepted = false;
    ErrorCode code = ErrorCode::kIncompatible;
    std::string message;    // of a refusal
    bool is_new = false;    // not a repeated HELLO of a known incarnation
    bool replaced = false;  // an earlier incarnation of the same worker has ended with it
  };
  Arrival hello(const wire::Header& header,
                const Peer& peer,
                const wire::Hello& hello,
                TimePoint now);
  // False: never seen, ended or gone; it should say hello again.
  bool heartbeat(const wire::Header& header,
                 const Peer& peer,
                 const wire::Heartbeat& beat,
                 TimePoint now);
  // Any other message of a worker counts as seen, too. Null: unknown, an ended incarnation, or
  // lost.
  Worker* find_sender(const wire::Header& header, TimePoint now);
  // Ends an incarnation: it sent GOODBYE. False if there was nothing to end.
  bool end(WorkerId id, Incarnation incarnation);
  // Its connection is gone; the same incarnation may send HELLO again.
  void lose(WorkerId id);
  // The router has received everything that arrived before `received_until`. Silence is counted
  // only while it listens: a router that was stopped, or has a queue to read, has missed nothing
  // yet.
  void count_silence(TimePoint received_until);
  // A worker that is no longer used, as it was, and why.
  struct Loss {
    Worker worker;
    std::string why;
  };
  // Loses those that are silent for longer than the patience, and those that are stuck: alive, but
  // in one turn of work for longer than they bound it themselves.
  std::vector<Loss> expire(TimePoint now);
  // Those that are silent for long enough that their connections may be broken: a message to them
  // would come back. Again after each further half of a heartbeat.
  std::vector<Peer> to_probe();
  // How long, if nothing arrives, until expire() or to_probe() would find a worker.
  Duration until_next_check() const;

  Worker* find(WorkerId id);
  const Worker* find(WorkerId id) const;
  const Worker* find(const Peer& peer) const;
  // All, those gone included until they are forgotten; by role, then name.
  std::vector<const Worker*> all() const;
  std::vector<const Worker*> alive(wire::Role role) const;
  // Ready ones: alive and taking new work.
  std::vector<const Worker*> ready(wire::Role role) const;
  // Alive, and about to stop: they finish what was accepted before.
  std::vector<const Worker*> draining(wire::Role role) const;

  // What targets serve or just served, by model name. One that was lost counts until it is
  // forgotten and one that left for a while: it may be restarting, and requests that mean it are
  // not for the others. Valid until the next call that changes the pool.
  std::vector<const wire::Hello*> models(TimePoint now) const;

 private:
  std::vector<const Worker*> in_state(wire::Role role, wire::WorkerState state) const;

  static constexpr std::size_t kRememberedIncarnations = 16;
  static constexpr std::size_t kMaxWorkers = 1024;
  // A target that was lost holds its names for so many patiences: it may be back in a moment.
  static constexpr int kPatiencesHeld = 15;
  using Incarnations = std::map<WorkerId, std::deque<Incarnation>>;
  static bool is_among(const Incarnations& incarnations, WorkerId id, Incarnation incarnation);
  static void remember(Incarnations& incarnations, WorkerId id, Incarnation incarnation);

  static void mark_seen(Worker& worker, TimePoint now);
  Duration probe_after() const { return heartbeat_ * 3 / 2; }
  bool holds_names(const Worker& worker, TimePoint now) const;
  // Why this target may not have the names it wants; empty if it may.
  std::string why_names_are_taken(WorkerId id, const wire::Hello& hello, TimePoint now) const;
  void remember_model(const Worker& worker);

  struct FormerModel {
    wire::Hello hello;
    TimePoint last_seen{};
  };

  Duration heartbeat_;
  Duration patience_;
  TimePoint counted_until_{};
  TimePoint all_here_by_{};  // or later, if the router is kept from listening
  std::map<WorkerId, Worker> workers_;
  std::map<std::string, FormerModel> former_models_;  // of incarnations that ended, by name
  Incarnations left_;      // said goodbye: a hello of theirs that comes late revives none
  Incarnations replaced_;  // may return once their replacement is gone
};

}  // namespace foretoken
