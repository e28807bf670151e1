// Who is there: every worker that said hello, which life of it, what it runs, how it fares, when it
// was last heard. Pure: time comes in, facts go out; the router service does the talking and the
// logging. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/transport/transport.h"
#include "common/wire/envelope.h"
#include "common/wire/messages.h"

namespace foretoken {

enum class WorkerState : std::uint8_t { kReady, kDraining, kLost };

struct Worker {
  WorkerId id;
  Incarnation incarnation;
  Peer peer;
  wire::Hello hello;
  wire::Heartbeat load;  // the latest; zeros before the first
  std::string user;      // role:name of its key; empty where connections have none
  WorkerState state = WorkerState::kReady;
  std::string note;  // why it is not (fully) used, for people
  TimePoint joined{};
  TimePoint last_heard{};
  std::uint32_t n_placed = 0;       // requests of this router there now
  std::uint64_t placed_tokens = 0;  // prompt tokens placed since its last heartbeat
};

// Empty: they may work together. Otherwise a sentence that names both and what differs.
std::string why_not_paired(const wire::Hello& target, const wire::Hello& draft);
std::string why_not_served(const wire::Hello& tokenizer, const wire::Hello& target);
// The same request may go on at `other`: equal model and numerics, so equal tokens.
bool can_continue(const wire::Hello& target, const wire::Hello& other);

class Pool {
 public:
  explicit Pool(Duration patience) : patience_(patience) {}

  struct Arrival {
    bool accepted = false;
    ErrorCode code = ErrorCode::kIncompatible;
    std::string message;    // of a refusal
    bool is_new = false;    // not a repeated hello of a life we know
    bool replaced = false;  // an earlier life of the same worker has ended with it
  };
  Arrival hello(const wire::Header& header,
                const Peer& peer,
                const wire::Hello& hello,
                TimePoint now);
  // False: never seen, ended or lost; it should say hello again.
  bool heartbeat(const wire::Header& header,
                 const Peer& peer,
                 const wire::Heartbeat& beat,
                 TimePoint now);
  // Any other message of a worker is a sign of life, too. Null: unknown, a dead life, or lost.
  Worker* heard(const wire::Header& header, TimePoint now);
  // Ends a life: it said goodbye, or its connection is gone. False if there was nothing to end.
  bool end(WorkerId id, Incarnation incarnation);
  // Its connection is gone; the same life may say hello again.
  void lose(WorkerId id);
  // Ends those not heard for the patience and returns them as they were.
  std::vector<Worker> expire(TimePoint now);

  Worker* find(WorkerId id);
  const Worker* find(WorkerId id) const;
  const Worker* find(const Peer& peer) const;
  // Everyone, lost ones included until they are forgotten; by role, then name.
  std::vector<const Worker*> all() const;
  std::vector<const Worker*> alive(wire::Role role) const;
  // Ready ones: alive and taking new work.
  std::vector<const Worker*> ready(wire::Role role) const;

 private:
  static constexpr std::size_t kRememberedLives = 16;
  static constexpr std::size_t kMaxWorkers = 1024;
  using Lives = std::map<WorkerId, std::deque<Incarnation>>;
  static bool is_among(const Lives& lives, WorkerId id, Incarnation incarnation);
  static void remember(Lives& lives, WorkerId id, Incarnation incarnation);

  Duration patience_;
  std::map<WorkerId, Worker> workers_;
  Lives left_;      // said goodbye: a hello of theirs that comes late revives nobody
  Lives replaced_;  // may return once whoever replaced them is gone
};

}  // namespace foretoken
