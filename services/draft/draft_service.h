// The draft as a service: attachments of many targets in, proposals out, batched into one frame per
// target and step. It owns nothing of value: everything here may vanish, and a target that misses
// it asks again. Work thread only; the guesser is borrowed.
//
// A target on this machine that asks is shown a door for a link through shared memory, with a token
// that says on the link whose it is. Answers take the link where there is one and it has room.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "common/base/cores.h"
#include "common/runtime/pass_log.h"
#include "common/runtime/posting.h"
#include "common/runtime/worker_service.h"
#include "common/wire/codec.h"
#include "services/draft/guesser.h"

namespace foretoken {

struct DraftServiceOptions {
  std::string router;    // endpoint to connect to
  std::string endpoint;  // to bind
  Duration heartbeat = std::chrono::milliseconds(250);
  Fingerprint vocabulary = 0;
  std::string memory_endpoint;  // shm:///PATH, the door for links through memory; empty = none
  CoreUse cores;                // of this draft
  // Guesses that it goes on with for targets that leave it cores of its own; 0: none.
  std::uint32_t run_ahead = 0;
  std::string announced;  // where targets are sent instead: a forwarder's; empty = as bound
};

class DraftService final : public WorkerService {
 public:
  DraftService(const DraftServiceOptions& options,
               const wire::Hello& hello,
               Guesser& guesser,
               wire::Speaker& speaker,
               Metrics& metrics);

  void on_undelivered(const Peer& peer, Ticket ticket) override;
  void on_closed(const Peer& peer, const std::string& why) override;
  std::string status() const override;

 private:
  struct Target {
    Peer peer;
    std::string user;  // role:name of its key; empty where connections have none
    TimePoint heard{};
    bool was_refused = false;         // and it was said in the log
    std::uint64_t token = 0;          // of the offer it has not taken yet
    std::optional<Peer> beside = {};  // its link through memory
    CoreUse cores = {};               // as its LINK_ASK says
  };
  using Targets = std::map<TargetKey, Target>;

  void open(Bus& bus, wire::Hello& hello) override;
  bool on_router_message(const wire::Header&, wire::Message&) override { return false; }
  void on_peer_message(const Delivery& from,
                       const wire::Header& header,
                       wire::Message& message) override;
  void on_peer_dropped(const Peer&, Ticket) override { ++not_sent_; }
  void on_malformed(const Peer& peer) override;
  TimePoint work(TimePoint now) override;
  bool has_to_stay() const override;
  void leave() override;
  wire::Heartbeat own_load() const override;
  wire::Passes passes() const override { return log_.passes(bus().now(), wall_micros()); }
  void list_metrics(Metrics& metrics) override;

  void open_door();
  bool is_beside(const Peer& peer) const { return door_ && peer.socket == *door_; }
  bool admit(const TargetKey& from, const Delivery& delivery, TimePoint now);
  // Hangs up on a link, whether it belongs to a target yet or not.
  void disconnect(const Peer& peer, const std::string& why);
  // What comes through memory: its sender, by the link; nothing if it belongs to no target.
  bool admit_beside(const TargetKey& from, const Delivery& delivery, TimePoint now);
  void on_link_ask(const TargetKey& from, const wire::LinkAsk& ask);
  void settle_run_ahead();
  void on_link_open(const TargetKey& from, const Peer& peer, const wire::LinkOpen& open);
  Targets::iterator forget(Targets::iterator target);
  void on_attach(const TargetKey& from, wire::Attach& attach, TimePoint now);
  void on_propose(const TargetKey& from, const wire::Propose& propose, TimePoint now);
  void answer(const TargetKey& to, const DraftOutcome& outcome);
  void send(const TargetKey& to, const wire::Message& message, Way way = Way::kShortest);
  void step();

  static constexpr std::size_t kMaxTargets = 1024;
  static constexpr Duration kForgotten = std::chrono::minutes(1);  // a target without a link

  DraftServiceOptions options_;
  Guesser& guesser_;
  wire::Speaker& speaker_;
  Targets targets_;
  std::optional<SocketId> door_;  // for links through memory
  std::string why_no_door_ = "it opens no door for links";
  std::map<Peer, TargetKey> links_;
  std::uint64_t n_fallbacks_ = 0;  // answers that a link did not take
  std::uint64_t refused_ = 0;      // attachments of another vocabulary, speakers with another's key
  std::uint64_t not_sent_ = 0;
  std::uint32_t step_us_ = 0;  // fading average
  Histogram propose_{round_bounds()};
  PassLog log_;
};

}  // namespace foretoken
