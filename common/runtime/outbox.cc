#include "common/runtime/outbox.h"

#include <algorithm>
#include <iterator>

namespace foretoken {

Door Outbox::door_of(SocketId socket) const {
  const auto found = doors_.find(socket);
  return found == doors_.end() ? Door::kInternal : found->second;
}

void Outbox::set_bytes(Queues::iterator at, std::size_t n_bytes) {
  if (n_bytes == at->second.n_bytes) return;
  const auto door = static_cast<std::size_t>(door_of(at->first.first));
  auto node = by_bytes_[door].extract(at);
  n_bytes_[door] = n_bytes_[door] - at->second.n_bytes + n_bytes;
  at->second.n_bytes = n_bytes;
  if (node.empty())
    by_bytes_[door].insert(at);
  else
    by_bytes_[door].insert(std::move(node));
}

TimePoint Outbox::expiry_of(const Queue& queue, const Message& message) {
  if (message.posting.patience == kAsLongAsItTakes) return TimePoint::max();
  return std::max(queue.took_last, message.since) + message.posting.patience;
}

// What ends a request has room beside what waits.
std::size_t Outbox::limit_of(const Queue& queue,
                             const Message& message,
                             const WaitingLimits& limits) {
  if (message.posting.room == Room::kReserved)
    return std::max(2 * limits.of_one, limits.of_all / 2);
  const bool is_taking = queue.took_some && message.since - queue.took_last <= kTaking;
  return is_taking ? std::max(limits.of_one, limits.of_one_taking) : limits.of_one;
}

// ---- a message comes

void Outbox::send(const Peer& to, Frames frames, const Posting& posting, TimePoint now) {
  const Series series{connection_of(to), posting.ticket};
  if (posting.part == Part::kFirst)
    holes_.erase(series);
  else if (holes_.contains(series))
    return;  // its sender has the report
  const bool may_wait = posting.patience > Duration{};
  const bool is_behind = may_wait && queues_.contains(series.first);
  const SendResult result = is_behind ? SendResult::kBusy : send_(to, frames);
  if (result == SendResult::kSent) return;
  if (result == SendResult::kUnknown) return peer_is_gone(to, posting.ticket);
  const TimePoint since = patience_clock_.at(now);
  if (!may_wait || !keep({to, std::move(frames), posting, since}, now)) lose(to, posting);
}

void Outbox::lose(const Peer& to, const Posting& posting) {
  const Series series{connection_of(to), posting.ticket};
  if (posting.part == Part::kNext && holes_.contains(series)) return;
  remember_hole(series);
  report(DeliveryKind::kDropped, to, posting.ticket);
}

bool Outbox::keep(Message message, TimePoint now) {
  const Door door = door_of(message.to.socket);
  const std::size_t n_bytes = waiting_bytes(message.frames);
  const auto [at, is_new] = queues_.try_emplace(connection_of(message.to));
  Queue& queue = at->second;
  if (queue.n_bytes + n_bytes > limit_of(queue, message, limits_[static_cast<std::size_t>(door)])) {
    if (is_new) queues_.erase(at);
    return false;
  }
  if (is_new) {
    queue.took_last = message.since;
    queue.again = now + kFirstPause;
    due_.emplace(queue.again, at->first);
  }
  queue.first_expiry = std::min(queue.first_expiry, expiry_of(queue, message));
  queue.messages.push_back(std::move(message));
  set_bytes(at, queue.n_bytes + n_bytes);
  make_room(door);
  return true;
}

// The peer for which most waits makes room for all.
void Outbox::make_room(Door door) {
  while (n_bytes(door) > limits_[static_cast<std::size_t>(door)].of_all) {
    const auto largest = *by_bytes_[static_cast<std::size_t>(door)].begin();
    const std::size_t n_before = n_bytes(door);
    lose_if(largest, [](const Message& m) { return m.posting.room == Room::kShared; });
    if (n_bytes(door) == n_before) lose_if(largest, [](const Message&) { return true; });
    if (largest->second.messages.empty()) erase(largest);
  }
}

// ---- what waits

void Outbox::send_again(TimePoint now) {
  const TimePoint counted = patience_clock_.at(now);
  while (due() <= now) {
    const auto at = queues_.find(due_.begin()->second);
    Queue& queue = at->second;
    const std::size_t n_before = queue.messages.size();
    if (send_some(at, counted)) continue;
    const bool took_some = queue.messages.size() < n_before;
    // Each look is at all that waits: one in a while is enough, as no patience is that exact.
    if (counted >= queue.first_expiry && now >= queue.next_look) {
      queue.next_look = now + kLookPause;
      lose_if(at, [&](const Message& message) { return counted >= expiry_of(queue, message); });
      if (queue.messages.empty()) {
        erase(at);
        continue;
      }
    }
    queue.pause = took_some ? kFirstPause : std::min(2 * queue.pause, kLongestPause);
    due_.erase({queue.again, at->first});
    queue.again = now + queue.pause;
    due_.emplace(queue.again, at->first);
  }
}

bool Outbox::send_some(Queues::iterator at, TimePoint counted) {
  Queue& queue = at->second;
  std::size_t n_bytes = queue.n_bytes;
  while (!queue.messages.empty()) {
    const Message& message = queue.messages.front();
    const SendResult result = send_(message.to, message.frames);
    if (result == SendResult::kBusy) {
      set_bytes(at, n_bytes);
      return false;
    }
    if (result == SendResult::kUnknown) {
      peer_is_gone(message.to, message.posting.ticket);
      return true;
    }
    n_bytes -= waiting_bytes(message.frames);
    queue.took_last = counted;
    queue.took_some = true;
    queue.messages.pop_front();
  }
  erase(at);
  return true;
}

// Takes them out in order, and with each of a series those behind it.
void Outbox::lose_if(Queues::iterator at, const std::function<bool(const Message&)>& is_lost) {
  Queue& queue = at->second;
  std::set<Ticket> holes;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Message> reported;  // by what it is about
  std::deque<Message> left;
  std::size_t n_bytes = queue.n_bytes;
  queue.first_expiry = TimePoint::max();
  for (Message& message : queue.messages) {
    const Posting& posting = message.posting;
    const bool is_first = posting.part == Part::kFirst;
    const std::pair subject{posting.ticket.high, posting.ticket.low};
    if (is_first) reported.erase(subject);  // a newer series takes its place
    const bool is_behind_hole = !is_first && holes.contains(posting.ticket);
    if (!is_behind_hole && !is_lost(message)) {
      if (is_first) holes.erase(posting.ticket);
      queue.first_expiry = std::min(queue.first_expiry, expiry_of(queue, message));
      left.push_back(std::move(message));
      continue;
    }
    n_bytes -= waiting_bytes(message.frames);
    if (is_behind_hole) continue;
    if (posting.ticket == Ticket{}) {
      report(DeliveryKind::kDropped, message.to, posting.ticket);
      continue;
    }
    holes.insert(posting.ticket);
    const bool is_known = holes_.contains({at->first, posting.ticket});
    if (!is_known) reported.emplace(subject, std::move(message));
  }
  queue.messages = std::move(left);
  set_bytes(at, n_bytes);
  for (const auto& [subject, message] : reported)
    report(DeliveryKind::kDropped, message.to, message.posting.ticket);
  for (const Ticket& ticket : holes) remember_hole({at->first, ticket});
}

// One report is enough: the rest goes with the peer. Should there be one of its name again before
// the sender has the report, it gets no rest of a series.
void Outbox::peer_is_gone(const Peer& peer, Ticket ticket) {
  report(DeliveryKind::kUndelivered, peer, ticket);
  const Connection connection = connection_of(peer);
  remember_hole({connection, ticket});
  const auto at = queues_.find(connection);
  if (at == queues_.end()) return;
  for (const Message& message : at->second.messages)
    remember_hole({connection, message.posting.ticket});
  erase(at);
}

void Outbox::forget(const Peer& peer) {
  const Connection connection = connection_of(peer);
  if (const auto at = queues_.find(connection); at != queues_.end()) erase(at);
  forget_holes(connection);
}

void Outbox::remove(SocketId socket) {
  for (auto at = queues_.begin(); at != queues_.end();) {
    const auto queue = at++;
    if (queue->first.first == socket) erase(queue);
  }
  std::erase_if(holes_, [&](const auto& hole) { return hole.first.first.first == socket; });
  doors_.erase(socket);
}

void Outbox::erase(Queues::iterator at) {
  const auto door = static_cast<std::size_t>(door_of(at->first.first));
  n_bytes_[door] -= at->second.n_bytes;
  by_bytes_[door].erase(at);
  due_.erase({at->second.again, at->first});
  queues_.erase(at);
}

// ---- what was lost

void Outbox::remember_hole(const Series& series) {
  if (series.second == Ticket{} || !holes_.try_emplace(series, n_holes_).second) return;
  holes_by_age_.emplace_back(series, n_holes_++);
  if (holes_by_age_.size() <= kMaxHoles) return;
  // Unless it was filled, and another has come since.
  const auto& [oldest, at] = holes_by_age_.front();
  if (const auto hole = holes_.find(oldest); hole != holes_.end() && hole->second == at)
    holes_.erase(hole);
  holes_by_age_.pop_front();
}

void Outbox::forget_holes(const Connection& connection) {
  const auto begin = holes_.lower_bound({connection, Ticket{}});
  auto end = begin;
  while (end != holes_.end() && end->first.first == connection) ++end;
  holes_.erase(begin, end);
}

void Outbox::report(DeliveryKind kind, const Peer& peer, Ticket ticket) {
  Delivery delivery;
  delivery.kind = kind;
  delivery.peer = peer;
  delivery.ticket = ticket;
  lost_.push_back(std::move(delivery));
}

std::optional<Delivery> Outbox::lost() {
  if (lost_.empty()) return std::nullopt;
  Delivery report = std::move(lost_.front());
  lost_.pop_front();
  return report;
}

std::size_t Outbox::n_waiting(SocketId socket) const {
  std::size_t n = 0;
  for (const auto& [connection, queue] : queues_)
    if (connection.first == socket) n += queue.messages.size();
  return n;
}

}  // namespace foretoken
