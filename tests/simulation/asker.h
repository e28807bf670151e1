// One patient client: it asks, and asks again under the same id until there is an answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/world.h"

namespace foretoken::test {

struct Asked {
  wire::ClientRequest request;
  RequestId id;
  bool answered = false;
  int n_finals = 0;
  wire::ClientReply reply;
  std::string error;  // code of a final error
  TimePoint asked_at{};
};

class Asker final : public Actor {
 public:
  explicit Asker(World& world);
  std::size_t ask(wire::ClientRequest request);
  const Asked& asked(std::size_t index) const { return asked_[index]; }
  std::size_t n_asked() const { return asked_.size(); }
  bool all_answered() const;
  void cancel(std::size_t index);

  TimePoint due() const override;
  void act() override;

 private:
  void send(Asked& asked);
  Asked* unanswered(const std::string& id);

  World& world_;
  std::unique_ptr<LoopbackTransport> transport_;
  SocketId socket_ = 0;
  std::vector<Asked> asked_;
};

}  // namespace foretoken::test
