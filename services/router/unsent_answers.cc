#include "services/router/unsent_answers.h"

#include <variant>

#include "common/wire/client_codec.h"

namespace foretoken {
namespace {

constexpr Duration kPatience = std::chrono::seconds(30);
constexpr Duration kArrived = std::chrono::seconds(1);  // if it did not come back for so long
constexpr Duration kPause = std::chrono::milliseconds(50);
constexpr std::size_t kMaxUnsent = 1024;

}  // namespace

bool UnsentAnswers::keep(const Peer& peer, wire::ClientAnswer answer, TimePoint now) {
  if (unsent_.size() >= kMaxUnsent || patience_.size() >= 2 * kMaxUnsent) return false;
  const std::string id = std::visit([](const auto& said) { return said.id; }, answer);
  Patience& patience = patience_[{peer, id}];
  if (now >= patience.seen + kArrived) patience.until = now + kPatience;
  patience.seen = now;
  if (now >= patience.until) return false;
  if (const auto spoiled = spoiled_.find({peer, id});
      spoiled != spoiled_.end() && now < spoiled->second.at + kArrived)
    answer = spoiled->second.instead;
  if (unsent_.empty()) due_ = now + kPause;
  unsent_.push_back({peer, std::move(answer), id, patience.until});
  return true;
}

void UnsentAnswers::spoil(const Peer& peer,
                          const std::string& id,
                          wire::ClientError instead,
                          TimePoint now) {
  forget_old(now);
  for (Unsent& unsent : unsent_)
    if (unsent.peer == peer && unsent.id == id) unsent.answer = instead;
  if (spoiled_.size() < kMaxUnsent) spoiled_.insert_or_assign({peer, id}, Spoiled{instead, now});
}

void UnsentAnswers::client_gone(const Peer& peer) {
  std::erase_if(unsent_, [&](const Unsent& unsent) { return unsent.peer == peer; });
  std::erase_if(spoiled_, [&](const auto& entry) { return entry.first.first == peer; });
}

void UnsentAnswers::forget_old(TimePoint now) {
  std::erase_if(patience_, [&](const auto& entry) { return now >= entry.second.seen + kArrived; });
  std::erase_if(spoiled_, [&](const auto& entry) { return now >= entry.second.at + kArrived; });
}

std::uint64_t UnsentAnswers::send_again(Bus& bus, TimePoint now) {
  std::uint64_t n_given_up = 0;
  if (now < due_) return n_given_up;
  due_ = now + kPause;
  for (std::size_t n = unsent_.size(); n > 0; --n) {
    Unsent unsent = std::move(unsent_.front());
    unsent_.pop_front();
    const SendResult result = bus.send(unsent.peer, {wire::write_client_answer(unsent.answer)});
    if (result == SendResult::kSent) continue;
    if (result == SendResult::kBusy && now < unsent.until) {
      patience_[{unsent.peer, unsent.id}].seen = now;
      unsent_.push_back(std::move(unsent));
    } else {
      ++n_given_up;
    }
  }
  forget_old(now);
  return n_given_up;
}

}  // namespace foretoken
