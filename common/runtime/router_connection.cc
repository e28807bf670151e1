#include "common/runtime/router_connection.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "common/base/log.h"
#include "common/base/micros.h"
#include "common/runtime/process.h"

namespace foretoken {
namespace {

constexpr Duration kHelloAgain = std::chrono::milliseconds(300);
// A first hello comes before its connection is there and waits for it, but not behind itself: it
// is given up before it is said again.
constexpr Duration kFirstHelloPatience = std::chrono::milliseconds(200);
constexpr Duration kRefusedHelloAgain =
    std::chrono::seconds(5);  // the reason may go away; the router logs each time
// In a turn that lasts longer the thread of the sockets says hello to a router that does not know
// this service: one that was started again meanwhile would know it only after the turn.
constexpr Duration kLongTurn = std::chrono::milliseconds(100);
constexpr Duration kGoodbyePatience = std::chrono::milliseconds(250);  // of a router that is gone

}  // namespace

struct RouterConnection::Beat {
  // When this service may say hello, from whichever thread: not again before the answer to the last
  // one can be here, and seldom to a router that refused it. Any thread may ask and tell.
  class HelloPace {
   public:
    bool take(TimePoint now) {
      const std::lock_guard lock(mutex_);
      if (now < next_) return false;
      next_ = now + pause_;
      return true;
    }
    TimePoint next() const {
      const std::lock_guard lock(mutex_);
      return next_;
    }
    void is_answered(bool accepted, TimePoint now) {
      const std::lock_guard lock(mutex_);
      pause_ = accepted ? kHelloAgain : kRefusedHelloAgain;
      next_ = accepted ? now : now + pause_;
    }

   private:
    mutable std::mutex mutex_;
    Duration pause_ = kHelloAgain;
    TimePoint next_{};
  };

  Beat(wire::Speaker& speaker,
       wire::Hello hello,
       const Progress& progress,
       Peer router,
       TimePoint started,
       Duration period)
      : speaker_(speaker),
        hello_(std::move(hello)),
        progress_(progress),
        router_(std::move(router)),
        started_(started),
        period_(period),
        due_(started + period) {}

  // Work thread.
  void set_load(wire::Heartbeat load) {
    const std::lock_guard lock(mutex_);
    load_ = std::move(load);
  }
  void set_registered(bool registered, Duration period) {
    const std::lock_guard lock(mutex_);
    registered_ = registered;
    period_ = period;
  }
  TimePoint due() const {
    const std::lock_guard lock(mutex_);
    return due_;
  }
  void hurry() {
    const std::lock_guard lock(mutex_);
    due_ = TimePoint{};
  }

  // Any thread: the next heartbeat, if the router wants one.
  std::optional<Frames> next(TimePoint now) {
    wire::Heartbeat beat;
    {
      const std::lock_guard lock(mutex_);
      due_ = now + period_;
      if (!registered_) return std::nullopt;
      beat = load_;
    }
    const Progress::View view = progress_.view(now);
    beat.sent_us = micros(now.time_since_epoch());
    beat.uptime_s = micros(now - started_) / 1'000'000;
    beat.rss_bytes = resident_bytes();
    beat.turn = view.turn;
    beat.activity = view.activity;
    beat.busy_us = micros(view.busy);
    beat.bound_us = micros(view.bound);
    auto frames = wire::try_encode(speaker_, {}, beat);
    return frames.ok() ? std::optional(std::move(frames).value()) : std::nullopt;
  }

  // The thread of the sockets: the work thread, which knows the load better, goes first.
  TimePoint send_if_due(TimePoint now, const Bus::DirectSend& send) {
    const TimePoint hello_due = greet_if_due(now, send);
    if (now >= late())
      if (const auto frames = next(now)) (void)send(router_, *frames);
    return std::min(late(), hello_due);
  }

  // The thread of the sockets, before the work thread comes to it: the router does not know this
  // service, or refuses it. Returns by when send_if_due() is to be called.
  TimePoint observe(const Delivery& delivery, TimePoint now, const Bus::DirectSend& send) {
    const auto header = delivery.frames.empty() ? Result<wire::Header>(Error{})
                                                : wire::read_header(delivery.frames.front());
    if (!header.ok() || (header->type != wire::MessageType::kHelloReply &&
                         header->type != wire::MessageType::kHeartbeatReply))
      return TimePoint::max();
    const auto incoming = wire::decode(delivery.frames);
    if (!incoming.ok()) return TimePoint::max();
    unknown_in_turn_.reset();
    if (const auto* reply = std::get_if<wire::HelloReply>(&incoming->message)) {
      pace.is_answered(reply->accepted, now);
      return TimePoint::max();
    }
    if (!std::get<wire::HeartbeatReply>(incoming->message).known)
      unknown_in_turn_ = progress_.view(now).turn;
    return greet_if_due(now, send);
  }

  HelloPace pace;

 private:
  TimePoint late() const {
    const std::lock_guard lock(mutex_);
    return due_ + period_ / 8;
  }
  // Says hello if the turn in which the router said that it does not know this service is a long
  // one: the work thread comes to it after a shorter one. Returns when to call it again.
  TimePoint greet_if_due(TimePoint now, const Bus::DirectSend& send) {
    if (!unknown_in_turn_) return TimePoint::max();
    const Progress::View view = progress_.view(now);
    // A service that is stuck is lost to the router, and comes back with its work thread.
    if (view.turn != *unknown_in_turn_ || view.busy == Duration{} || view.is_stuck()) {
      unknown_in_turn_.reset();
      return TimePoint::max();
    }
    if (view.busy < kLongTurn) return now + (kLongTurn - view.busy);
    if (!pace.take(now)) return pace.next();
    unknown_in_turn_.reset();
    if (const auto hello = wire::try_encode(speaker_, {}, hello_); hello.ok())
      (void)send(router_, *hello);
    return TimePoint::max();
  }

  wire::Speaker& speaker_;
  const wire::Hello hello_;
  const Progress& progress_;
  const Peer router_;
  const TimePoint started_;
  mutable std::mutex mutex_;
  Duration period_;
  TimePoint due_;
  wire::Heartbeat load_;
  bool registered_ = false;
  // The thread of the sockets': in which turn the router said that it does not know this service.
  // Empty: it has not, or a hello was sent since.
  std::optional<std::uint64_t> unknown_in_turn_;
};

void RouterConnection::start(Bus& bus, const std::string& endpoint) {
  bus_ = &bus;
  socket_ = bus.connect(endpoint);
  started_ = bus.now();
  beat_ = std::make_shared<Beat>(speaker_, hello_, bus.progress(), router(), started_, heartbeat_);
  bus.add_pulse([beat = beat_](TimePoint now, const Bus::DirectSend& send) {
    return beat->send_if_due(now, send);
  });
  bus.add_observer(socket_, [beat = beat_](const Delivery& delivery, TimePoint now,
                                           const Bus::DirectSend& send) {
    return beat->observe(delivery, now, send);
  });
}

void RouterConnection::post(Frames frames, Duration patience) {
  bus_->send(router(), std::move(frames), {.patience = patience});
}

void RouterConnection::say_hello() {
  // To a router that was there once, a hello that cannot leave now is said again anyway.
  if (const auto frames = wire::try_encode(speaker_, {}, hello_); frames.ok())
    post(*frames, router_life_ == Incarnation{} ? kFirstHelloPatience : Duration{});
  else
    ++dropped_;
  // The router counts from here on, but the answer may have to wait for the end of a long turn.
  if (router_life_ != Incarnation{} && refusal_.empty()) beat_->set_registered(true, heartbeat_);
}

RouterConnection::Event RouterConnection::on_message(const wire::Header& header,
                                                     const wire::Message& message) {
  last_seen_ = bus_->now();
  if (std::holds_alternative<wire::Goodbye>(message)) {
    router_left_ = header.incarnation == router_life_;
    return Event::kHandled;
  }
  if (const auto* reply = std::get_if<wire::HelloReply>(&message)) {
    const bool is_new = router_life_ != header.incarnation;
    const bool had_one = router_life_ != Incarnation{};
    router_life_ = header.incarnation;
    router_left_ = router_left_ && !is_new;
    needed_ = true;
    if (reply->accepted && !registered_)
      log_info(reply->message.empty() ? "registered with the router"
                                      : "registered with the router: " + reply->message);
    if (!reply->accepted && refusal_ != reply->message)
      log_error("the router refuses this service", {{"reason", reply->message}});
    registered_ = reply->accepted;
    refusal_ = reply->accepted ? "" : reply->message;
    // The router, which counts the missing ones, says how often; its configuration may be another
    // file.
    if (reply->accepted && reply->heartbeat_ms > 0)
      heartbeat_ = std::min<Duration>(heartbeat_, std::chrono::milliseconds(reply->heartbeat_ms));
    beat_->set_registered(registered_, heartbeat_);
    beat_->pace.is_answered(registered_, bus_->now());
    return is_new && had_one ? Event::kNewRouter : Event::kHandled;
  }
  if (const auto* reply = std::get_if<wire::HeartbeatReply>(&message)) {
    if (reply->known) needed_ = reply->needed;
    if (!reply->known && registered_) {
      registered_ = false;
      beat_->set_registered(false, heartbeat_);
    }
    return Event::kHandled;
  }
  return Event::kNotMine;
}

void RouterConnection::turn(TimePoint now, const std::function<wire::Heartbeat()>& load) {
  if (!registered_ && beat_->pace.take(now)) say_hello();
  if (now >= beat_->due()) {
    beat_->set_load(load());
    if (const auto frames = beat_->next(now)) post(*frames, Duration{});
  }
}

TimePoint RouterConnection::due() const {
  return std::min(beat_->due(), registered_ ? TimePoint::max() : beat_->pace.next());
}

void RouterConnection::send(RequestId request, const wire::Message& message) {
  auto frames = wire::try_encode(speaker_, request, message);
  if (!frames.ok()) {
    log_error("an answer is too large to be sent", {{"reason", frames.error().message}});
    ++dropped_;
    // Asked again it would be as large: the asker gets an error.
    frames = wire::try_encode(
        speaker_, request,
        wire::Failed{.code = frames.error().code, .message = frames.error().message});
  }
  // What is lost here is asked for again: by position, or by the question being repeated.
  if (frames.ok())
    post(std::move(frames).value(), kAsLongAsItTakes);
  else
    ++dropped_;
}

void RouterConnection::beat_soon() { beat_->hurry(); }

bool RouterConnection::has_router() const {
  return router_life_ != Incarnation{} && refusal_.empty() && !router_left_ &&
         bus_->received_until() - last_seen_ <= kRouterSilence;
}

void RouterConnection::goodbye(const std::string& reason) {
  if (bus_ == nullptr || !registered_) return;
  // With patience: it goes out behind what was sent before, and the router gets that first.
  if (const auto frames = wire::try_encode(speaker_, {}, wire::Goodbye{.reason = reason});
      frames.ok())
    post(*frames, kGoodbyePatience);
}

}  // namespace foretoken
