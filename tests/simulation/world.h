// All services in one process: a loopback network with seeded faults, one manual clock, one thread.
// Processes start, crash, stop, continue and start again; clients ask until they are answered. The
// same seed tells the same story.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/tokenizer/tokenizer.h"
#include "common/wire/client_codec.h"
#include "kernels/include/backend.h"
#include "tests/loopback/loopback_transport.h"
#include "tests/simulation/host.h"
#include "tests/simulation/programs.h"
#include "tests/support/temp_folder.h"

namespace foretoken::test {

// Something beside the hosts that acts when its time has come: clients.
class Actor {
 public:
  virtual ~Actor() = default;
  virtual TimePoint due() const = 0;
  virtual void act() = 0;
};

class World {
 public:
  explicit World(std::uint64_t seed);
  ~World();

  // "router", "tokenizer-0", "draft-0", "memory-0", "target-1" ... Starting one that runs is a
  // crash and a restart.
  void start(const std::string& name);
  void crash(const std::string& name);
  bool runs(const std::string& name) const { return hosts_.contains(name); }
  Host& host(const std::string& name) { return *hosts_.at(name); }
  std::vector<std::string> names() const;  // of those that run
  // For the lives of this name that start from now on; its pace at once.
  Settings& settings(const std::string& name) { return settings_[name]; }
  void set_rules(const RequestRules& rules) { rules_ = rules; }

  void set_faults(const LoopbackFaults& faults) { network_.set_faults(faults); }
  // What waits for clients that do not read, of routers that start later.
  void set_client_limits(const WaitingLimits& limits) { client_limits_ = limits; }
  LoopbackNetwork& network() { return network_; }
  // Called at this time, or as soon as the world goes on.
  void at(TimePoint when, std::function<void()> what) { events_.emplace(when, std::move(what)); }
  void add(Actor& actor) { actors_.push_back(&actor); }

  // Time goes on to the next thing that happens, and that happens.
  void turn(TimePoint at_most);
  // Until `done`, or for this long.
  bool run_until(const std::function<bool()>& done, Duration at_most);
  void run_for(Duration time) {
    run_until([] { return false; }, time);
  }

  // Of all lives of the router together.
  struct Counts {
    std::uint64_t migrated = 0, replayed = 0, joined = 0;
    std::uint64_t cut = 0;  // answers of which a message was lost, as a client did not read
  };
  Counts counts() const;
  // Frames to drafts that took the second way, of targets that run.
  std::uint64_t sent_beside() const;
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  struct Reference {
    std::vector<TokenId> ids;
    std::string text;
    std::string finish_reason;
    std::vector<wire::LogprobEntry> prompt;  // if its log-probabilities were asked for
  };
  // What plain decoding gives, stop strings applied.
  Reference reference(const wire::ClientRequest& request, RequestId id) const;

  TimePoint now() const { return clock_.now(); }
  std::mt19937_64& dice() { return dice_; }

 private:
  Counts counts_of_running_router() const;

  ManualClock clock_;
  LoopbackNetwork network_;
  std::mt19937_64 dice_;
  TempFolder folder_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Tokenizer> tokenizer_;
  RequestRules rules_;
  std::map<std::string, Settings> settings_;
  std::map<std::string, std::unique_ptr<Host>> hosts_;
  std::multimap<TimePoint, std::function<void()>> events_;
  std::vector<Actor*> actors_;
  std::uint64_t n_lives_ = 0;
  Counts counts_;  // of routers that crashed
  WaitingLimits client_limits_ = kClientLimits;
};

}  // namespace foretoken::test
