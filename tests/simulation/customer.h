// A client with habits: it asks for whole answers and streams over connections of its own, asks
// again under the same id when nothing comes, takes its answers slowly, cancels, leaves. What it
// does and sees goes into the history of the run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/simulation/history.h"
#include "tests/simulation/world.h"

namespace foretoken::test {

struct Habits {
  Duration patience = std::chrono::seconds(3);  // then it asks again
  double elsewhere = 0.3;                       // of these: over another connection
  std::optional<TimePoint> leaves;              // for good, without a word
  TimePoint reads_not_from = TimePoint::max(), reads_not_until{};
};

// One request, and when its client cancels it.
struct Wish {
  TimePoint at{};
  wire::ClientRequest request;  // with its id
  std::optional<Duration> cancelled_after;
};

class Customer final : public Actor {
 public:
  Customer(World& world, History& history, const std::string& name, const Habits& habits);
  // The promise is what the history will be judged by.
  void want(Wish wish, Promise promise);
  // From now on nothing new is asked, only what is open.
  bool is_content() const;
  void stop_cancelling() { may_cancel_ = false; }

  TimePoint due() const override;
  void act() override;

 private:
  struct Open {
    Wish wish;
    std::size_t promise = 0;
    bool asked = false, over = false, cancelled = false;
    TimePoint first_asked{}, again{};
    SocketId socket = 0;
  };
  void ask(Open& open);
  void cancel(Open& open);
  void take(const Delivery& delivery);
  void note(const Open& open, Sight sight);
  SocketId new_connection();
  bool reads() const;

  World& world_;
  History& history_;
  Habits habits_;
  std::mt19937_64 dice_;
  std::unique_ptr<LoopbackTransport> transport_;
  std::vector<SocketId> sockets_;
  std::map<SocketId, std::size_t> connections_;
  std::vector<Open> wishes_;
  bool may_cancel_ = true;
};

}  // namespace foretoken::test
