#include "tests/simulation/asker.h"

#include <algorithm>

namespace foretoken::test {
namespace {

constexpr Duration kAskAgain = std::chrono::seconds(4);

}  // namespace

Asker::Asker(World& world) : world_(world), transport_(world.network().make_transport("client")) {
  socket_ = transport_->connect(kClientEndpoint);
  world.add(*this);
}

void Asker::send(Asked& asked) {
  asked.asked_at = world_.now();
  wire::ClientRequest request = asked.request;
  request.request_id = asked.id;
  (void)transport_->send({.socket = socket_, .routing = {}}, {wire::write_client_request(request)});
}

std::size_t Asker::ask(wire::ClientRequest request) {
  Asked& asked = asked_.emplace_back();
  asked.request = std::move(request);
  asked.id = {0xABCDEF, asked_.size()};
  send(asked);
  return asked_.size() - 1;
}

void Asker::cancel(std::size_t index) {
  wire::ClientRequest request{.op = wire::ClientOp::kCancel, .request_id = asked_[index].id};
  (void)transport_->send({.socket = socket_, .routing = {}}, {wire::write_client_request(request)});
}

bool Asker::all_answered() const {
  return std::all_of(asked_.begin(), asked_.end(),
                     [](const Asked& asked) { return asked.answered; });
}

TimePoint Asker::due() const {
  TimePoint due = transport_->next_arrival().value_or(TimePoint::max());
  for (const Asked& asked : asked_)
    if (!asked.answered) due = std::min(due, asked.asked_at + kAskAgain);
  return due;
}

Asked* Asker::unanswered(const std::string& id) {
  const auto it = std::find_if(asked_.begin(), asked_.end(), [&](const Asked& asked) {
    return !asked.answered && wire::hex_of(asked.id) == id;
  });
  return it == asked_.end() ? nullptr : &*it;
}

void Asker::act() {
  while (auto delivery = transport_->receive(TimePoint::min())) {
    if (delivery->kind != DeliveryKind::kMessage) continue;
    auto answer = wire::read_client_answer(delivery->frames.at(0));
    if (!answer.ok()) continue;
    if (const auto* reply = std::get_if<wire::ClientReply>(&*answer)) {
      if (Asked* asked = unanswered(reply->id)) {
        asked->answered = true;
        ++asked->n_finals;
        asked->reply = *reply;
      }
    } else if (const auto* error = std::get_if<wire::ClientError>(&*answer)) {
      if (Asked* asked = unanswered(error->id)) {
        asked->answered = true;
        ++asked->n_finals;
        asked->error = error->error.code;
      }
    }
  }
  for (Asked& asked : asked_)
    if (!asked.answered && world_.now() - asked.asked_at >= kAskAgain) send(asked);
}

}  // namespace foretoken::test
