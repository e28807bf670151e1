#include "tests/simulation/host.h"

#include <algorithm>
#include <utility>

namespace foretoken::test {
namespace {

constexpr int kMessagesPerTurn = 256;
constexpr Duration kLongestSleep = std::chrono::milliseconds(500);
// What a turn costs without a step: time goes on even where every turn asks for the next at once.
constexpr Duration kTurn = std::chrono::microseconds(20);

}  // namespace

Host::Host(ManualClock& clock,
           LoopbackNetwork& network,
           const std::string& name,
           Duration clock_ahead)
    : clock_(clock),
      name_(name),
      ahead_(clock_ahead),
      transport_(network.make_transport(name)),
      work_until_(clock.now()) {}

Host::~Host() {
  fiber_.reset();    // unwinds out of the program before the program goes
  program_.reset();  // and this before its wire
}

void Host::run(std::unique_ptr<Program> program) {
  program_ = std::move(program);
  fiber_ = std::make_unique<Fiber>([this] { loop(); });
}

std::optional<TimePoint> Host::due() const {
  if (stopped_at_ || fiber_->is_over()) return std::nullopt;
  if (works_) return work_until_;
  TimePoint due = wait_until_ == TimePoint::max() ? wait_until_ : wait_until_ - ahead_;
  if (const auto arrival = transport_->next_arrival()) due = std::min(due, *arrival);
  return std::max(due, clock_.now());
}

void Host::go_on() { fiber_->resume(); }

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
    if (auto delivery = transport_->receive(TimePoint::min())) return delivery;
    if (deadline <= now()) return std::nullopt;
    wait(deadline);
  }
}

void Host::loop() {
  Service& service = program_->service();
  service.start(*this);
  std::optional<TimePoint> drain_until;
  while (true) {
    for (int i = 0; i < kMessagesPerTurn; ++i) {
      auto delivery = transport_->receive(TimePoint::min());
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
    if (next > now() && !drain_within_) wait(std::min<TimePoint>(next, now() + kLongestSleep));
  }
}

}  // namespace foretoken::test
