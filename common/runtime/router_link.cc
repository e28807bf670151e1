#include "common/runtime/router_link.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/runtime/process.h"

namespace foretoken {
namespace {

constexpr Duration kHelloAgain = std::chrono::milliseconds(300);
constexpr Duration kRefusedHelloAgain =
    std::chrono::seconds(5);  // the reason may go away; the router logs each time
constexpr Duration kFlushAgain = std::chrono::milliseconds(2);

}  // namespace

void RouterLink::start(Bus& bus, const std::string& endpoint) {
  bus_ = &bus;
  socket_ = bus.connect(endpoint);
  started_ = bus.now();
  next_heartbeat_ = started_ + heartbeat_;
  next_hello_ = started_;
}

void RouterLink::say_hello() {
  // A hello that cannot leave now is said again anyway: it must not wait behind itself.
  const auto frames = wire::try_encode(speaker_, {}, hello_);
  if (!frames.ok() || bus_->send(router(), *frames) != SendResult::kSent) ++dropped_;
}

RouterLink::Event RouterLink::on_message(const wire::Header& header, const wire::Message& message) {
  if (const auto* reply = std::get_if<wire::HelloReply>(&message)) {
    const bool is_new = router_life_ != header.incarnation;
    const bool had_one = router_life_ != Incarnation{};
    router_life_ = header.incarnation;
    if (reply->accepted && !registered_)
      log_info(reply->message.empty() ? "registered with the router"
                                      : "registered with the router: " + reply->message);
    if (!reply->accepted && refusal_ != reply->message)
      log_error("the router refuses this service", {{"reason", reply->message}});
    registered_ = reply->accepted;
    refusal_ = reply->accepted ? "" : reply->message;
    // Whoever counts the missing ones says how often; its configuration may be another file.
    if (reply->accepted && reply->heartbeat_ms > 0)
      heartbeat_ = std::min<Duration>(heartbeat_, std::chrono::milliseconds(reply->heartbeat_ms));
    if (!registered_) next_hello_ = bus_->now() + kRefusedHelloAgain;
    return is_new && had_one ? Event::kNewRouter : Event::kHandled;
  }
  if (const auto* reply = std::get_if<wire::HeartbeatReply>(&message)) {
    if (!reply->known && registered_) {
      registered_ = false;
      next_hello_ = TimePoint{};
    }
    return Event::kHandled;
  }
  return Event::kNotMine;
}

TimePoint RouterLink::turn(TimePoint now, const std::function<wire::Heartbeat()>& load) {
  outbox_.flush(*bus_, router());
  if (!registered_ && now >= next_hello_) {
    say_hello();
    next_hello_ = now + (refusal_.empty() ? kHelloAgain : kRefusedHelloAgain);
  }
  if (now >= next_heartbeat_) {
    next_heartbeat_ = now + heartbeat_;
    wire::Heartbeat beat = load();
    beat.sent_us = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count());
    beat.uptime_s = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::seconds>(now - started_).count());
    beat.rss_bytes = resident_bytes();
    const auto frames = wire::try_encode(speaker_, {}, beat);
    if (registered_ && (!frames.ok() || bus_->send(router(), *frames) != SendResult::kSent))
      ++dropped_;
  }
  TimePoint due = registered_ ? next_heartbeat_ : std::min(next_heartbeat_, next_hello_);
  return outbox_.size() == 0 ? due : std::min(due, now + kFlushAgain);
}

void RouterLink::send(RequestId request, const wire::Message& message) {
  auto frames = wire::try_encode(speaker_, request, message);
  if (!frames.ok()) {
    log_error("an answer is too large to be sent", {{"reason", frames.error().message}});
    ++dropped_;
    // Asked again it would be as large: whoever asked should hear that no answer comes.
    frames = wire::try_encode(speaker_, request,
                              wire::Failed{.code = frames.error().code,
                                           .message = frames.error().message});
  }
  // What is lost here is asked for again: by position, or by the question being repeated.
  if (!frames.ok() || !outbox_.send(*bus_, router(), std::move(frames).value())) ++dropped_;
}

void RouterLink::on_dropped(const Frames& frames) {
  const auto header =
      frames.empty() ? Result<wire::Header>(Error{}) : wire::read_header(frames.front());
  const bool of_a_request = header.ok() && header->type >= wire::MessageType::kEncode;
  if (!of_a_request || !registered_ || !outbox_.came_back(frames, bus_->now())) ++dropped_;
}

void RouterLink::goodbye(const std::string& reason) {
  if (bus_ != nullptr && registered_) send({}, wire::Goodbye{.reason = reason});
}

}  // namespace foretoken
