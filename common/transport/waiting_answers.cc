#include "common/transport/waiting_answers.h"

#include <algorithm>

namespace foretoken {
namespace {

// What a message takes beside its bytes, so that empty ones have a bound, too.
constexpr std::size_t kMessageBytes = 128;

std::size_t size_of(const Frames& frames) {
  std::size_t bytes = kMessageBytes;
  for (const Bytes& part : frames) bytes += part.size();
  return bytes;
}

}  // namespace

bool WaitingAnswers::keep(const Peer& peer, const Frames& frames, TimePoint now) {
  const std::size_t n_bytes = size_of(frames);
  const auto [at, is_new] = clients_.try_emplace(client_of(peer));
  if (at->second.n_bytes + n_bytes > limits_.bytes_of_one) {
    if (is_new) clients_.erase(at);
    return false;
  }
  if (is_new) {
    at->second.took_last = now;
    at->second.again = now + kFirstPause;
    due_.emplace(at->second.again, at->first);
  }
  at->second.messages.emplace_back(peer, frames);
  at->second.n_bytes += n_bytes;
  n_bytes_ += n_bytes;
  // The client that holds most of it makes room for all.
  while (n_bytes_ > limits_.bytes_of_all)
    lose(std::max_element(clients_.begin(), clients_.end(), [](const auto& a, const auto& b) {
      return a.second.n_bytes < b.second.n_bytes;
    }));
  return true;
}

void WaitingAnswers::lose(std::map<Client, Waiting>::iterator client) {
  n_bytes_ -= client->second.n_bytes;
  for (auto& [peer, frames] : client->second.messages) {
    Delivery report;
    report.kind = DeliveryKind::kDropped;
    report.peer = std::move(peer);
    report.frames = std::move(frames);
    lost_.push_back(std::move(report));
  }
  erase(client);
}

void WaitingAnswers::erase(std::map<Client, Waiting>::iterator client) {
  due_.erase({client->second.again, client->first});
  clients_.erase(client);
}

// True if nothing waits for this client any more.
bool WaitingAnswers::send_some(Waiting& waiting, const Send& send, TimePoint now) {
  while (!waiting.messages.empty()) {
    const auto& [peer, frames] = waiting.messages.front();
    const SendResult result = send(peer, frames);
    if (result == SendResult::kBusy) return false;
    if (result == SendResult::kUnknown) {  // one word is enough: the rest goes with it
      Delivery report;
      report.kind = DeliveryKind::kUndelivered;
      report.peer = peer;
      report.frames = frames;
      lost_.push_back(std::move(report));
      n_bytes_ -= waiting.n_bytes;
      return true;
    }
    const std::size_t n_bytes = size_of(frames);
    waiting.n_bytes -= n_bytes;
    n_bytes_ -= n_bytes;
    waiting.took_last = now;
    waiting.messages.pop_front();
  }
  return true;
}

void WaitingAnswers::send_again(const Send& send, TimePoint now) {
  while (due() <= now) {
    const auto client = clients_.find(due_.begin()->second);
    Waiting& waiting = client->second;
    const std::size_t n_before = waiting.messages.size();
    if (send_some(waiting, send, now)) {
      erase(client);
    } else if (now - waiting.took_last >= limits_.patience) {
      lose(client);
    } else {
      const bool took_some = waiting.messages.size() < n_before;
      waiting.pause = took_some ? kFirstPause : std::min(2 * waiting.pause, kLongestPause);
      due_.erase(due_.begin());
      waiting.again = now + waiting.pause;
      due_.emplace(waiting.again, client->first);
    }
  }
}

std::optional<Delivery> WaitingAnswers::lost() {
  if (lost_.empty()) return std::nullopt;
  Delivery report = std::move(lost_.front());
  lost_.pop_front();
  return report;
}

void WaitingAnswers::forget(SocketId socket) {
  for (auto at = clients_.begin(); at != clients_.end();) {
    const auto client = at++;
    if (client->first.first != socket) continue;
    n_bytes_ -= client->second.n_bytes;
    erase(client);
  }
}

}  // namespace foretoken
