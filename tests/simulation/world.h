// All services in one process: a loopback network with seeded faults, one manual clock, one thread.
// Processes start, crash and start again; clients ask until they are answered. The same seed tells
// the same story.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/runtime/direct_bus.h"
#include "common/runtime/metrics.h"
#include "common/tokenizer/tokenizer.h"
#include "common/transport/loopback_transport.h"
#include "common/wire/client_codec.h"
#include "kernels/include/backend.h"
#include "tests/support/scripted_model.h"
#include "tests/support/temp_folder.h"

namespace foretoken::test {

// One simulated process: a service with everything it owns, on a host of its own.
class Process {
 public:
  virtual ~Process() = default;
  virtual Service& service() = 0;
  std::unique_ptr<LoopbackTransport> transport;
  std::unique_ptr<DirectBus> bus;
};

struct Asked {
  wire::ClientRequest request;
  RequestId id;
  bool answered = false;
  int n_finals = 0;
  wire::ClientReply reply;
  std::string error;  // code of a final error
  TimePoint asked_at{};
};

class World {
 public:
  explicit World(std::uint64_t seed);
  ~World();

  // "router", "tokenizer", "draft-0", "target-1" ... Starting one that runs is a crash and a
  // restart.
  void start(const std::string& name);
  void crash(const std::string& name);
  bool runs(const std::string& name) const { return processes_.contains(name); }
  void set_faults(const LoopbackFaults& faults) { network_.set_faults(faults); }

  // A client's request; it is sent again under the same id until there is an answer.
  std::size_t ask(wire::ClientRequest request);
  const Asked& asked(std::size_t index) const { return asked_[index]; }
  std::size_t n_asked() const { return asked_.size(); }
  bool all_answered() const;
  void cancel(std::size_t index);

  // One turn of every process, then time goes on to the next thing that happens.
  void turn();
  // Until `done`, or for this long.
  bool run_until(const std::function<bool()>& done, Duration at_most);

  // Of all lives of the router together.
  struct Counts {
    std::uint64_t migrated = 0, replayed = 0, joined = 0;
  };
  Counts counts() const;
  // Frames to drafts that took the second way, of targets that run.
  std::uint64_t sent_beside() const;
  // Verdicts from boards with which the drafts that run now began a pass before a PROPOSE said so.
  std::uint64_t taken_early() const;
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // What plain decoding gives: ids and text, stop strings applied.
  std::pair<std::vector<TokenId>, std::string> expected(const wire::ClientRequest& request,
                                                        RequestId id);

  TimePoint now() const { return clock_.now(); }
  std::mt19937_64& dice() { return dice_; }

  static constexpr std::int32_t kVocabulary = 48;
  static constexpr Position kMaxLen = 400;

 private:
  void pump_client();
  Counts counts_of_running_router() const;
  void send(Asked& asked);

  ManualClock clock_;
  LoopbackNetwork network_;
  std::mt19937_64 dice_;
  TempFolder folder_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::map<std::string, std::unique_ptr<Process>> processes_;
  std::unique_ptr<LoopbackTransport> client_;
  SocketId client_socket_ = 0;
  std::vector<Asked> asked_;
  std::uint64_t n_lives_ = 0;
  Counts counts_;  // of routers that crashed
};

}  // namespace foretoken::test
