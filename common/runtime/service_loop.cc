#include "common/runtime/service_loop.h"

#include <malloc.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <string>

#include "common/base/log.h"
#include "common/runtime/service_main.h"

namespace foretoken {
namespace {

constexpr int kMessagesPerTurn = 256;  // then the service gets a turn, however much more is waiting
constexpr auto kStatusEvery = std::chrono::seconds(5);
constexpr auto kLongestSleep = std::chrono::milliseconds(500);

class Loop {
 public:
  Loop(Service& service,
       ThreadedBus& bus,
       Signals& signals,
       Notifier& notifier,
       const LoopOptions& options)
      : service_(service), bus_(bus), signals_(signals), notifier_(notifier), options_(options) {}

  int run() {
    bus_.progress().set_floor(options_.stuck_time);
    feed_watchdog();
    service_.start(bus_);
    while (true) {
      bus_.progress().begin(bus_.now());
      for (int i = 0; i < kMessagesPerTurn; ++i) {
        auto delivery = bus_.receive(TimePoint::min());
        if (!delivery) break;
        dispatch(service_, std::move(*delivery));
      }
      const TimePoint next = service_.on_turn(bus_.now());
      const TimePoint now = bus_.now();
      announce(now);
      while (const auto signal = signals_.next()) on_signal(*signal, now);
      if (drain_until_ && (service_.drained() || now >= *drain_until_)) return finish(now);
      if (next <= now) continue;
      bus_.progress().wait(now);
      bus_.wait(std::min<TimePoint>(next, now + kLongestSleep), signals_.fd());
    }
  }

 private:
  // From the thread of the sockets, so that a long step feeds it as well; a stuck one does not.
  void feed_watchdog() {
    if (!notifier_.watchdog_period()) return;
    bus_.add_pulse([&notifier = notifier_, &progress = bus_.progress(), was_stuck = false](
                       TimePoint now, const Bus::DirectSend&) mutable {
      const Progress::View view = progress.view(now);
      if (!view.is_stuck()) notifier.alive(now);
      if (view.is_stuck() && !was_stuck)
        log_error("no progress: the watchdog is no longer fed",
                  {{"turn", view.turn},
                   {"activity", wire::name_of(view.activity)},
                   {"busy_s", in_seconds(view.busy)},
                   {"bound_s", in_seconds(view.bound)}});
      was_stuck = view.is_stuck();
      return now + *notifier.watchdog_period() / 8;
    });
  }

  void announce(TimePoint now) {
    if (!ready_ && service_.ready()) {
      ready_ = true;
      notifier_.ready();
      notifier_.status(service_.status());
      log_info("ready", {{"status", service_.status()}});
      last_status_ = now;
    }
    if (now - last_status_ < kStatusEvery) return;
    last_status_ = now;
    notifier_.status(service_.status());
    // What a burst of connections or messages left in the allocator goes back to the system.
    // Without it glibc keeps the holes between what lived on, and each flood of 10^5 frames leaves
    // more: measured 10, 35, 41, 66 MB at the router. A trim takes 0.1 ms for a heap of 10 MB and
    // 1 ms for 100 MB.
    ::malloc_trim(0);
  }

  void on_signal(int signal, TimePoint now) {
    if (signal == SIGHUP) return;  // configuration is read once: nothing to reload
    if (drain_until_) {
      log_warning("second signal: ending now");
      drain_until_ = now;
      return;
    }
    notifier_.stopping();
    notifier_.status("draining: " + service_.status());
    log_info("draining", {{"limit_s", std::chrono::duration<double>(options_.drain_time).count()},
                          {"status", service_.status()}});
    drain_until_ = now + options_.drain_time;
    service_.drain(*drain_until_);
  }

  int finish(TimePoint now) {
    if (now >= *drain_until_ && !service_.drained())
      log_warning("ended before everything was done", {{"status", service_.status()}});
    log_info("stopped");
    return kExitOk;
  }

  Service& service_;
  ThreadedBus& bus_;
  Signals& signals_;
  Notifier& notifier_;
  LoopOptions options_;
  bool ready_ = false;
  TimePoint last_status_{};
  std::optional<TimePoint> drain_until_;
};

}  // namespace

int run_service(Service& service,
                ThreadedBus& bus,
                Signals& signals,
                Notifier& notifier,
                const LoopOptions& options) {
  struct End {
    Service& service;
    ~End() { service.on_end(); }
  } const end{service};
  return Loop(service, bus, signals, notifier, options).run();
}

}  // namespace foretoken
