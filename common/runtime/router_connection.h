// A worker's side of its connection to the router: hello, heartbeats, hello again when the router
// forgot or restarted. What belongs to a request waits for a full socket; greetings are said anew.
// Services own one and pass it what arrives; it uses no request. It sends through the Bus it was
// started with. Work thread only. The thread of the sockets sends heartbeats while the work thread
// computes, so that a long step is no silence, and in a long turn a hello when the router asks for
// one, so that a router that was restarted during the turn can register this service.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/runtime/service.h"
#include "common/wire/codec.h"

namespace foretoken {

class RouterConnection {
 public:
  RouterConnection(wire::Speaker& speaker, wire::Hello hello, Duration heartbeat)
      : speaker_(speaker), hello_(std::move(hello)), heartbeat_(heartbeat) {}

  void start(Bus& bus, const std::string& endpoint);
  SocketId socket() const { return socket_; }
  wire::Hello& hello() { return hello_; }  // before start()

  enum class Event : std::uint8_t {
    kNotMine,  // a message for the service
    kHandled,
    kNewRouter,  // another incarnation of the router: what the former asked for is not wanted
                 // any more
  };
  // Give it every message that came over socket(), first.
  Event on_message(const wire::Header& header, const wire::Message& message);

  // Sends what is due; `load` is called when that is a heartbeat.
  void turn(TimePoint now, const std::function<wire::Heartbeat()>& load);
  // When something is due next.
  TimePoint due() const;
  void send(RequestId request, const wire::Message& message);
  void on_dropped() { ++dropped_; }
  void goodbye(const std::string& reason);

  // The next turn() sends a heartbeat, whenever the next one was due: what it says is news.
  void beat_soon();
  // There is a router, and it wants this service: it accepted the last HELLO, has not said goodbye
  // and has sent something within the last kRouterSilence.
  bool has_router() const;
  // The router has ended, and all it had with it.
  bool router_left() const { return router_left_; }
  // Of a service that drains: the router has requests that count on it, or has not said yet.
  bool is_needed() const { return has_router() && needed_; }
  static constexpr Duration kRouterSilence = std::chrono::seconds(5);

  // Why the router does not want us; empty if it does.
  const std::string& refusal() const { return refusal_; }
  std::size_t n_waiting() const { return bus_->n_waiting(socket_); }
  std::uint64_t n_dropped() const { return dropped_; }

 private:
  // What a heartbeat is made of, for both threads.
  struct Beat;
  void say_hello();
  void post(Frames frames, Duration patience);
  Peer router() const { return {.socket = socket_, .routing = {}}; }

  wire::Speaker& speaker_;
  wire::Hello hello_;
  Duration heartbeat_;
  Bus* bus_ = nullptr;
  SocketId socket_ = 0;
  TimePoint started_{};
  std::shared_ptr<Beat> beat_;
  bool registered_ = false;
  std::string refusal_;
  Incarnation router_life_{};
  TimePoint last_seen_{};     // of the router
  bool router_left_ = false;  // with a goodbye, and no new incarnation of it has come since
  bool needed_ = true;        // as it said last
  std::uint64_t dropped_ = 0;
};

}  // namespace foretoken
