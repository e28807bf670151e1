#include "tests/simulation/host.h"

#include <algorithm>
#include <utility>

namespace foretoken::test {
namespace {

constexpr int kMessagesPerTurn = 256;
constexpr std::size_t kInbox = 4096;
constexpr Duration kLongestSleep = std::chrono::milliseconds(500);
// What a turn costs without a step: time goes on even where every turn asks for the next at once.
constexpr Duration kTurn = std::chrono::microseconds(20);

}  // namespace

Host::Host(ManualClock& clock,
           LoopbackNetwork& network,
           const std::string& name,
           Duration clock_ahead,
           const WaitingLimits& client_limits)
    : clock_(clock),
      name_(name),
      ahead_(clock_ahead),
      transport_(network.make_transport(name)),
      work_until_(clock.now()),
      send_directly_(
          [this](const Peer& to, const Frames& frames) { return transport_->send(to, frames); }),
      outbox_(send_directly_, {kWorkerLimits, client_limits, kDraftLimits}) {}

Host::~Host() {
  fiber_.reset();    // unwinds out of the program before the program goes
  pulses_.clear();   // they borrow from it, too
  program_.reset();  // and this before its wire
}

void Host::run(std::unique_ptr<Program> program) {
  program_ = std::move(program);
  fiber_ = std::make_unique<Fiber>([this] { loop(); });
}

std::optional<TimePoint> Host::due() const {
  if (stopped_at_ || fiber_->is_over()) return std::nullopt;
  TimePoint due = works_ ? work_until_ : in_world(wait_until_);
  if (const auto arrival = transport_->next_arrival(); arrival && inbox_.size() < kInbox)
    due = std::min(due, *arrival);
  if (!works_ && (!inbox_.empty() || outbox_.has_lost())) due = clock_.now();
  return std::max(std::min({due, in_world(next_pulse_), in_world(outbox_.due())}), clock_.now());
}

TimePoint Host::in_world(TimePoint own) const {
  return own == TimePoint::max() ? own : own - ahead_;
}

void Host::go_on() {
  if (next_pulse_ <= now()) return beat();
  if (outbox_.due() <= now()) return outbox_.send_again(now());
  if (works_ && clock_.now() < work_until_) return listen();
  fiber_->resume();
}

// What arrives while the work thread computes: the thread of the sockets takes it and looks at it.
void Host::listen() {
  while (inbox_.size() < kInbox && outbox_.has_lost()) {
    inbox_.push_back(*outbox_.lost());
    inbox_.back().arrived = clock_.now();
    n_lost_series_ +=
        inbox_.back().kind == DeliveryKind::kDropped && inbox_.back().ticket != Ticket{} ? 1 : 0;
  }
  while (inbox_.size() < kInbox) {
    auto delivery = transport_->receive(TimePoint::min());
    if (!delivery) return;
    delivery->arrived = clock_.now();
    for (const auto& [socket, observer] : observers_)
      if (socket == delivery->peer.socket)
        next_pulse_ = std::min(next_pulse_, observer(*delivery, now(), send_directly_));
    inbox_.push_back(std::move(*delivery));
  }
}

std::optional<Delivery> Host::take() {
  listen();
  if (inbox_.empty()) return std::nullopt;
  auto delivery = std::move(inbox_.front());
  inbox_.pop_front();
  return delivery;
}

// On the thread of the sockets, as it were: whatever the fiber is in the middle of.
void Host::beat() {
  next_pulse_ = TimePoint::max();
  for (const Pulse& pulse : pulses_)
    next_pulse_ = std::min(next_pulse_, std::max(pulse(now(), send_directly_), now() + kTurn));
}

void Host::add_pulse(Pulse pulse) {
  pulses_.push_back(std::move(pulse));
  next_pulse_ = now();
}

TimePoint Host::received_until() const {
  const auto arrival =
      inbox_.empty() ? transport_->next_arrival() : std::optional(inbox_.front().arrived);
  return arrival && *arrival < clock_.now() ? *arrival + ahead_ : now();
}

SocketId Host::bind(const std::string& endpoint, Door door) {
  const SocketId id = transport_->bind(endpoint, door);
  outbox_.add(id, door);
  return id;
}

SocketId Host::connect(const std::string& endpoint, Door door) {
  const SocketId id = transport_->connect(endpoint);
  outbox_.add(id, door);
  return id;
}

void Host::close(SocketId socket) {
  transport_->close(socket);
  outbox_.remove(socket);
}

void Host::stop() {
  if (!stopped_at_) stopped_at_ = clock_.now();
}

void Host::resume() {
  if (!stopped_at_) return;
  // What it computed goes on from where it was.
  if (works_) work_until_ += clock_.now() - *stopped_at_;
  stopped_at_.reset();
}

void Host::drain(Duration at_most) {
  drain_within_ = at_most;
  wait_until_ = TimePoint{};  // a signal ends a wait
}

void Host::work(Duration took) {
  works_ = true;
  work_until_ = clock_.now() + took;
  fiber_->pause();
}

void Host::wait(TimePoint until) {
  works_ = false;
  wait_until_ = until;
  fiber_->pause();
}

std::optional<Delivery> Host::receive(TimePoint deadline) {
  while (true) {
    if (auto delivery = take()) return delivery;
    if (deadline <= now()) return std::nullopt;
    wait(deadline);
  }
}

void Host::loop() {
  Service& service = program_->service();
  service.start(*this);
  std::optional<TimePoint> drain_until;
  while (true) {
    progress().begin(now());
    for (int i = 0; i < kMessagesPerTurn; ++i) {
      auto delivery = take();
      if (!delivery) break;
      dispatch(service, std::move(*delivery));
    }
    const TimePoint next = service.on_turn(now());
    if (drain_within_) {
      drain_until = now() + *std::exchange(drain_within_, std::nullopt);
      service.drain(*drain_until);
    }
    if (drain_until && (service.drained() || now() >= *drain_until)) return;
    work(kTurn);
    if (next <= now() || drain_within_) continue;
    progress().wait(now());
    wait(std::min<TimePoint>(next, now() + kLongestSleep));
  }
}

}  // namespace foretoken::test
