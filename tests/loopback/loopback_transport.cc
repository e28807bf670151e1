#include "tests/loopback/loopback_transport.h"

#include <algorithm>
#include <charconv>

#include "common/base/check.h"
#include "common/base/result.h"

namespace foretoken {
namespace {

constexpr std::size_t kMaxInFlight = 65536;  // as bounded as the queues it stands for

}  // namespace

// ---- the network

std::unique_ptr<LoopbackTransport> LoopbackNetwork::make_transport(const std::string& host) {
  return std::make_unique<LoopbackTransport>(*this, host);
}

std::optional<TimePoint> LoopbackNetwork::next_arrival() const {
  std::optional<TimePoint> first;
  for (const LoopbackTransport* transport : transports_)
    if (const auto next = transport->next_arrival(); next && (!first || *next < *first))
      first = next;
  return first;
}

const LoopbackFaults& LoopbackNetwork::faults_of(const std::string& from,
                                                 const std::string& to) const {
  const auto own = own_faults_.find({from, to});
  return own == own_faults_.end() ? faults_ : own->second;
}

void LoopbackNetwork::note(const std::string& from,
                           const std::string& to,
                           LoopbackFate fate,
                           const Frames& frames) {
  if (observer_) observer_({clock_.now(), from, to, fate, frames});
}

SendResult LoopbackNetwork::launch(LoopbackTransport& from,
                                   LoopbackTransport& to,
                                   Lane lane,
                                   const Delivery& delivery) {
  const LoopbackFaults& faults = faults_of(from.host_, to.host_);
  LaneState& state = lanes_[lane];
  if (faults.capacity > 0 && state.n >= faults.capacity)
    return refuse(from, delivery.frames, SendResult::kBusy);
  if (cut_.contains({from.host_, to.host_})) {
    note(from.host_, to.host_, LoopbackFate::kLost, delivery.frames);
    return SendResult::kSent;
  }
  std::uniform_real_distribution<double> chance(0, 1);
  std::uniform_int_distribution<Duration::rep> delay(
      faults.min_delay.count(), std::max(faults.min_delay, faults.max_delay).count());
  const int copies = chance(random_) < faults.drop ? 0 : chance(random_) < faults.duplicate ? 2 : 1;
  note(from.host_, to.host_,
       copies == 0   ? LoopbackFate::kLost
       : copies == 1 ? LoopbackFate::kSent
                     : LoopbackFate::kTwice,
       delivery.frames);
  for (int i = 0; i < copies; ++i) {
    TimePoint due = clock_.now() + Duration(delay(random_));
    if (faults.in_order) due = std::max(due, state.last_due);
    state.last_due = std::max(due, state.last_due);
    to.flights_.insert({{due, ++last_order_}, {lane, delivery}});
    ++state.n;
    ++n_in_flight_;
  }
  return SendResult::kSent;
}

SendResult LoopbackNetwork::refuse(const LoopbackTransport& from,
                                   const Frames& frames,
                                   SendResult why) {
  note(from.host_, from.host_,
       why == SendResult::kUnknown ? LoopbackFate::kNoPeer : LoopbackFate::kBusy, frames);
  return why;
}

void LoopbackNetwork::renumber(std::uint64_t number) {
  const auto found = connections_.find(number);
  const Connection connection = found->second;
  connections_.erase(found);
  for (LoopbackTransport* transport : transports_)
    for (auto f = transport->flights_.begin(); f != transport->flights_.end();)
      f = f->second.lane.first == number ? transport->forget(f) : std::next(f);
  lanes_.erase({number, false});
  lanes_.erase({number, true});
  connections_[++last_number_] = connection;
  connection.dialler->sockets_.at(connection.dial_socket).connection = last_number_;
}

void LoopbackNetwork::break_connections(const std::string& a, const std::string& b) {
  std::vector<std::uint64_t> broken;
  for (const auto& [number, connection] : connections_) {
    const auto listener = listeners_.find(connection.name);
    if (listener == listeners_.end()) continue;
    const std::string& dials = connection.dialler->host_;
    const std::string& listens = listener->second.owner->host_;
    if ((dials == a && listens == b) || (dials == b && listens == a)) broken.push_back(number);
  }
  for (const std::uint64_t number : broken) renumber(number);
}

// ---- one end

LoopbackTransport::LoopbackTransport(LoopbackNetwork& network, std::string host)
    : network_(network), host_(std::move(host)) {
  network_.transports_.insert(this);
}

LoopbackTransport::~LoopbackTransport() {
  while (!sockets_.empty()) close(sockets_.begin()->first);
  while (!flights_.empty()) forget(flights_.begin());
  network_.transports_.erase(this);
}

LoopbackTransport::Flights::iterator LoopbackTransport::forget(Flights::iterator flight) {
  if (const auto lane = network_.lanes_.find(flight->second.lane); lane != network_.lanes_.end())
    --lane->second.n;
  --network_.n_in_flight_;
  return flights_.erase(flight);
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
  for (auto f = flights_.begin(); f != flights_.end();)
    f = f->second.delivery.peer.socket == socket ? forget(f) : std::next(f);
  if (found->second.connection == 0) {
    // Peers that were connected come back over other connections.
    std::vector<std::uint64_t> orphans;
    for (const auto& [number, connection] : network_.connections_)
      if (connection.name == found->second.endpoint) orphans.push_back(number);
    for (const std::uint64_t number : orphans) network_.renumber(number);
    network_.listeners_.erase(found->second.endpoint);
  } else {
    network_.connections_.erase(found->second.connection);
  }
  sockets_.erase(found);
}

std::string LoopbackTransport::endpoint(SocketId socket) const {
  const auto found = sockets_.find(socket);
  return found == sockets_.end() ? "" : found->second.endpoint;
}

SendResult LoopbackTransport::send(const Peer& to, const Frames& frames) {
  FORETOKEN_CHECK(!frames.empty() && frames.size() <= kMaxParts, "a message has 1 to 8 parts");
  const auto socket = sockets_.find(to.socket);
  if (socket == sockets_.end()) return network_.refuse(*this, frames, SendResult::kUnknown);
  if (network_.n_in_flight_ >= kMaxInFlight)
    return network_.refuse(*this, frames, SendResult::kBusy);
  Delivery delivery;
  delivery.frames = frames;
  if (const auto number = socket->second.connection; number != 0) {
    const auto listener = network_.listeners_.find(socket->second.endpoint);
    if (listener == network_.listeners_.end())  // not connected yet
      return network_.refuse(*this, frames, SendResult::kBusy);
    delivery.peer = {listener->second.socket, std::to_string(number), false};
    return network_.launch(*this, *listener->second.owner, {number, false}, delivery);
  }
  std::uint64_t number = 0;
  std::from_chars(to.routing.data(), to.routing.data() + to.routing.size(), number);
  const auto connection = network_.connections_.find(number);
  if (connection == network_.connections_.end() ||
      connection->second.name != socket->second.endpoint)
    return network_.refuse(*this, frames, SendResult::kUnknown);
  delivery.peer = {connection->second.dial_socket, "", false};
  return network_.launch(*this, *connection->second.dialler, {number, true}, delivery);
}

std::optional<TimePoint> LoopbackTransport::next_arrival() const {
  if (flights_.empty()) return std::nullopt;
  return flights_.begin()->first.first;
}

std::optional<Delivery> LoopbackTransport::receive(TimePoint deadline) {
  const TimePoint now = network_.clock_.now();
  const bool may_wait = deadline > now && !std::exchange(woken_, false);
  if (const auto due = next_arrival(); due && (*due <= now || (may_wait && *due <= deadline))) {
    if (*due > now) network_.clock_.set(*due);
    Delivery delivery = std::move(flights_.begin()->second.delivery);
    network_.note({}, host_, LoopbackFate::kArrived, delivery.frames);
    forget(flights_.begin());
    return delivery;
  }
  if (may_wait && deadline != TimePoint::max()) network_.clock_.set(deadline);
  return std::nullopt;
}

}  // namespace foretoken
