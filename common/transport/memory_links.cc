#include "common/transport/memory_links.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/shared_region.h"
#include "common/transport/memory_greeting.h"
#include "common/transport/shared_ring.h"

namespace foretoken {
namespace {

constexpr int kAcceptsAtOnce = 16;
constexpr Duration kLookEvery = std::chrono::milliseconds(20);  // at the sockets, however busy

}  // namespace

MemoryLinks::MemoryLinks(MemoryLinkOptions options) : options_(std::move(options)) {
  FORETOKEN_CHECK(is_ring_size(options_.ring_bytes), "a ring has a power of two of bytes");
}

std::string MemoryLinks::why_unavailable() {
  auto made = SharedRegion::make("foretoken-link", kRingHeadBytes);
  if (!made.ok()) return made.error().message;
  const auto seen = SharedRegion::adopt(Fd(::dup(made->fd())), made->size());
  return seen.ok() ? "" : seen.error().message;
}

// ---- doors and connections

SocketId MemoryLinks::bind(const std::string& endpoint) {
  doors_.try_emplace(last_id_ + 1, endpoint);
  return ++last_id_;
}

SocketId MemoryLinks::connect(const std::string& endpoint) {
  auto link = new_link({.socket = last_id_ + 1, .routing = {}}, MemoryLink::Origin::kDialled,
                       MemoryDoor::call(endpoint));
  link->greet_first(endpoint);
  links_.push_back(std::move(link));
  return ++last_id_;
}

std::unique_ptr<MemoryLink> MemoryLinks::new_link(Peer peer,
                                                  MemoryLink::Origin origin,
                                                  Fd socket) const {
  return std::make_unique<MemoryLink>(options_, *counters_, std::move(peer), origin,
                                      std::move(socket));
}

void MemoryLinks::close(SocketId socket) {
  std::erase_if(links_, [&](const auto& link) { return link->peer().socket == socket; });
  doors_.erase(socket);
  std::erase_if(closed_, [&](const Delivery& event) { return event.peer.socket == socket; });
}

void MemoryLinks::hang_up(const Peer& peer) {
  std::erase_if(links_, [&](const auto& link) { return link->peer() == peer; });
  std::erase_if(closed_, [&](const Delivery& event) { return event.peer == peer; });
}

MemoryLink* MemoryLinks::find(const Peer& peer) {
  const auto found = std::find_if(links_.begin(), links_.end(),
                                  [&](const auto& link) { return link->peer() == peer; });
  return found == links_.end() || (*found)->end() ? nullptr : found->get();
}

void MemoryLinks::accept_from(SocketId id, const MemoryDoor& door) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    Fd socket = door.accept();
    if (!socket) return;
    if (links_.size() >= kMaxLinks && !make_room()) {
      ++counters_->refused;
      continue;
    }
    links_.push_back(new_link({.socket = id, .routing = std::to_string(++last_routing_)},
                              MemoryLink::Origin::kAccepted, std::move(socket)));
  }
}

// The one that has been silent for longest goes: silent connections keep no other out.
bool MemoryLinks::make_room() {
  MemoryLink* longest = nullptr;
  for (const auto& link : links_)
    if (!link->end() && link->has_not_spoken() &&
        (longest == nullptr || link->since() < longest->since()))
      longest = link.get();
  if (longest == nullptr) return false;
  longest->mark_failed(MemoryLink::End::kBroken, "closed to make room: it had sent nothing");
  remove_closed();
  return true;
}

// ---- looking after them

void MemoryLinks::look(TimePoint now) {
  look_soon_ = false;
  look_at_ = now + kLookEvery;
  std::vector<pollfd> waiting;
  add_to(waiting);
  if (waiting.empty()) return;
  const bool any = ::poll(waiting.data(), waiting.size(), 0) > 0;
  auto polled = waiting.cbegin() + static_cast<std::ptrdiff_t>(doors_.size());
  const std::size_t n_links = links_.size();
  for (std::size_t i = 0; any && i < n_links; ++i, ++polled)
    if (polled->revents != 0 && !links_[i]->end()) links_[i]->on_readable();
  polled = waiting.cbegin();
  if (any)
    for (const auto& [id, door] : doors_)
      if ((polled++)->revents != 0) accept_from(id, door);
  for (const auto& link : links_)
    if (!link->end()) link->check_patience(now);
  remove_closed();
}

// The end of a link that a service has used is an event. One that never opened at a door is only
// counted.
void MemoryLinks::remove_closed() {
  for (const auto& link : links_) {
    if (!link->end()) continue;
    if (!link->is_open())
      ++counters_->refused;
    else
      ++(*link->end() == MemoryLink::End::kLeft ? counters_->ended : counters_->broken);
    if (link->is_known()) {
      Delivery event;
      event.kind = DeliveryKind::kClosed;
      event.peer = link->peer();
      event.frames = {link->why()};
      closed_.push_back(std::move(event));
    }
  }
  std::erase_if(links_, [](const auto& link) { return link->end().has_value(); });
}

// ---- messages

SendResult MemoryLinks::send(const Peer& to, const Frames& frames) {
  MemoryLink* link = find(to);
  if (link == nullptr) return SendResult::kUnknown;
  const SendResult result = link->send(frames);
  if (link->end()) remove_closed();
  return result;
}

std::optional<Delivery> MemoryLinks::read_rings() {
  const std::size_t n = links_.size();
  for (std::size_t i = 0; i < n; ++i) {
    MemoryLink& link = *links_[(turn_ + i) % n];
    std::optional<Frames> frames = link.receive();
    if (!frames) continue;
    turn_ = (turn_ + i + 1) % n;
    Delivery delivery;
    delivery.peer = link.peer();
    delivery.frames = std::move(*frames);
    return delivery;
  }
  remove_closed();
  return std::nullopt;
}

std::optional<Delivery> MemoryLinks::receive() {
  if (is_idle()) return std::nullopt;
  const TimePoint now = options_.now();
  if (now >= look_at_) look(now);
  std::optional<Delivery> delivery = read_rings();
  if (!delivery && look_soon_) {
    look(now);
    delivery = read_rings();
  }
  if (delivery || closed_.empty()) return delivery;
  delivery = std::move(closed_.front());
  closed_.pop_front();
  return delivery;
}

// ---- sleeping

bool MemoryLinks::fall_asleep() {
  if (sleeps_ % 2 == 0) ++sleeps_;
  bool quiet = closed_.empty();
  for (const auto& link : links_) quiet = link->fall_asleep(sleeps_) && quiet;
  return quiet;
}

void MemoryLinks::add_to(std::vector<pollfd>& waiting) const {
  for (const auto& [id, door] : doors_) waiting.push_back({door.fd(), POLLIN, 0});
  for (const auto& link : links_) waiting.push_back({link->fd(), POLLIN, 0});
}

void MemoryLinks::wake_up() {
  if (sleeps_ % 2 == 1) ++sleeps_;
  for (const auto& link : links_) link->wake_up(sleeps_);
  look_soon_ = !is_idle();
}

}  // namespace foretoken
