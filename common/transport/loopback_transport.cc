#include "common/transport/loopback_transport.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/result.h"

namespace foretoken {
namespace {

constexpr std::size_t kMaxInFlight = 65536;  // as bounded as the queues it stands for

}  // namespace

std::unique_ptr<LoopbackTransport> LoopbackNetwork::make_transport(const std::string& host) {
  return std::make_unique<LoopbackTransport>(*this, host);
}

std::optional<TimePoint> LoopbackNetwork::next_arrival() const {
  const auto first =
      std::min_element(flight_.begin(), flight_.end(),
                       [](const Flight& a, const Flight& b) { return a.due < b.due; });
  if (first == flight_.end()) return std::nullopt;
  return first->due;
}

void LoopbackNetwork::launch(LoopbackTransport* from,
                             LoopbackTransport* to,
                             const Delivery& delivery) {
  std::uniform_real_distribution<double> chance(0, 1);
  std::uniform_int_distribution<Duration::rep> delay(
      faults_.min_delay.count(), std::max(faults_.min_delay, faults_.max_delay).count());
  if (severed(from->host_, to->host_)) return;
  const int copies = chance(random_) < faults_.drop        ? 0
                     : chance(random_) < faults_.duplicate ? 2
                                                           : 1;
  for (int i = 0; i < copies; ++i)
    flight_.push_back({clock_.now() + Duration(delay(random_)), ++last_number_, to, delivery});
}

LoopbackTransport::~LoopbackTransport() {
  while (!sockets_.empty()) close(sockets_.begin()->first);
  std::erase_if(network_.flight_, [&](const auto& f) { return f.to == this; });
}

SocketId LoopbackTransport::bind(const std::string& endpoint, Door door) {
  const std::string name = endpoint.ends_with(":*") ? endpoint.substr(0, endpoint.size() - 1) +
                                                          std::to_string(++network_.last_number_)
                                                    : endpoint;
  if (network_.listeners_.contains(name))
    throw FatalError(ErrorCode::kIo, "cannot bind " + name + ": address already in use");
  sockets_[++last_socket_] = {name, door, 0};
  network_.listeners_[name] = {this, last_socket_};
  return last_socket_;
}

SocketId LoopbackTransport::connect(const std::string& endpoint) {
  const std::uint64_t number = ++network_.last_number_;
  sockets_[++last_socket_] = {endpoint, Door::kInternal, number};
  network_.connections_[number] = {this, last_socket_, endpoint};
  return last_socket_;
}

void LoopbackTransport::close(SocketId socket) {
  const auto found = sockets_.find(socket);
  if (found == sockets_.end()) return;
  if (found->second.connection == 0)
    network_.listeners_.erase(found->second.endpoint);
  else
    network_.connections_.erase(found->second.connection);
  std::erase_if(network_.flight_,
                [&](const auto& f) { return f.to == this && f.delivery.peer.socket == socket; });
  sockets_.erase(found);
}

std::string LoopbackTransport::endpoint(SocketId socket) const {
  const auto found = sockets_.find(socket);
  return found == sockets_.end() ? "" : found->second.endpoint;
}

SendResult LoopbackTransport::send(const Peer& to, const Frames& frames) {
  FORETOKEN_CHECK(!frames.empty() && frames.size() <= kMaxParts, "a message has 1 to 8 parts");
  const auto socket = sockets_.find(to.socket);
  if (socket == sockets_.end()) return SendResult::kUnknown;
  if (network_.flight_.size() >= kMaxInFlight) return SendResult::kBusy;
  Delivery delivery;
  delivery.frames = frames;
  if (const auto number = socket->second.connection; number != 0) {
    const auto listener = network_.listeners_.find(socket->second.endpoint);
    if (listener == network_.listeners_.end()) return SendResult::kBusy;  // not connected yet
    delivery.peer = {listener->second.socket, std::to_string(number), false};
    network_.launch(this, listener->second.owner, delivery);
    return SendResult::kSent;
  }
  for (const auto& [number, connection] : network_.connections_) {
    if (std::to_string(number) != to.routing || connection.name != socket->second.endpoint)
      continue;
    delivery.peer = {connection.dial_socket, "", false};
    network_.launch(this, connection.dialler, delivery);
    return SendResult::kSent;
  }
  return SendResult::kUnknown;
}

std::optional<Delivery> LoopbackTransport::receive(TimePoint deadline) {
  auto& flight = network_.flight_;
  auto next = flight.end();
  for (auto f = flight.begin(); f != flight.end(); ++f)
    if (f->to == this &&
        (next == flight.end() || std::pair(f->due, f->order) < std::pair(next->due, next->order)))
      next = f;
  const TimePoint now = network_.clock_.now();
  const bool may_wait = deadline > now && !std::exchange(woken_, false);
  if (next != flight.end() && (next->due <= now || (may_wait && next->due <= deadline))) {
    if (next->due > now) network_.clock_.set(next->due);
    Delivery delivery = std::move(next->delivery);
    flight.erase(next);
    return delivery;
  }
  if (may_wait && deadline != TimePoint::max()) network_.clock_.set(deadline);
  return std::nullopt;
}

}  // namespace foretoken
