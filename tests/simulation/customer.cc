#include "tests/simulation/customer.h"

#include <algorithm>
#include <variant>

namespace foretoken::test {
namespace {

constexpr Duration kAfterAnError = std::chrono::milliseconds(300);

// Texts come with the tokens of an answer, from another service, and are not judged here.
std::vector<wire::LogprobEntry> without_texts(std::vector<wire::LogprobEntry> entries) {
  for (wire::LogprobEntry& entry : entries)
    entry = {.token_id = entry.token_id,
             .logprob = entry.logprob,
             .top_ids = std::move(entry.top_ids),
             .top_logprobs = std::move(entry.top_logprobs)};
  return entries;
}

void place(Sight& sight, std::uint32_t position, std::uint32_t offset) {
  if (position != wire::kNoPosition) sight.position = position;
  if (offset != wire::kNoPosition) sight.offset = offset;
}

}  // namespace

Customer::Customer(World& world, History& history, const std::string& name, const Habits& habits)
    : world_(world),
      history_(history),
      habits_(habits),
      dice_(world.dice()()),
      transport_(world.network().make_transport(name)) {
  new_connection();
  world.add(*this);
}

SocketId Customer::new_connection() {
  const SocketId socket = transport_->connect(kClientEndpoint);
  sockets_.push_back(socket);
  connections_[socket] = history_.n_connections++;
  return socket;
}

void Customer::want(Wish wish, Promise promise) {
  wishes_.push_back({.wish = std::move(wish), .promise = history_.promises.size()});
  history_.promises.push_back(std::move(promise));
}

bool Customer::is_content() const {
  return transport_ == nullptr ||
         std::all_of(wishes_.begin(), wishes_.end(), [](const Open& open) { return open.over; });
}

bool Customer::reads() const {
  return world_.now() < habits_.reads_not_from || world_.now() >= habits_.reads_not_until;
}

TimePoint Customer::due() const {
  if (transport_ == nullptr) return TimePoint::max();
  TimePoint due = habits_.leaves.value_or(TimePoint::max());
  if (const auto arrival = transport_->next_arrival())
    due = std::min(due, reads() ? *arrival : habits_.reads_not_until);
  for (const Open& open : wishes_) {
    if (open.over) continue;
    due = std::min(due, open.asked ? open.again : open.wish.at);
    if (open.asked && !open.cancelled && open.wish.cancelled_after && may_cancel_)
      due = std::min(due, open.first_asked + *open.wish.cancelled_after);
  }
  return std::max(due, world_.now());
}

void Customer::act() {
  const TimePoint now = world_.now();
  if (habits_.leaves && now >= *habits_.leaves) {
    for (const Open& open : wishes_)
      if (!open.over) history_.promises[open.promise].is_abandoned = true;
    transport_.reset();
    return;
  }
  if (reads())
    while (auto delivery = transport_->receive(TimePoint::min())) take(*delivery);
  for (Open& open : wishes_) {
    if (open.over) continue;
    if (!open.asked ? now >= open.wish.at : now >= open.again) ask(open);
    if (open.asked && !open.cancelled && open.wish.cancelled_after && may_cancel_ &&
        now >= open.first_asked + *open.wish.cancelled_after)
      cancel(open);
  }
}

void Customer::ask(Open& open) {
  const TimePoint now = world_.now();
  const bool is_again = open.asked;
  open.again = now + habits_.patience;
  const bool elsewhere =
      is_again && std::uniform_real_distribution<double>(0, 1)(dice_) < habits_.elsewhere;
  if (!is_again || elsewhere)
    open.socket = elsewhere ? new_connection() : sockets_[dice_() % sockets_.size()];
  if (!is_again) open.first_asked = now;
  open.asked = true;
  note(open, {.what = Saw::kAsked});
  (void)transport_->send({.socket = open.socket, .routing = {}},
                         {wire::write_client_request(open.wish.request)});
}

void Customer::cancel(Open& open) {
  open.cancelled = true;
  note(open, {.what = Saw::kCancelled});
  const wire::ClientRequest request{.op = wire::ClientOp::kCancel,
                                    .request_id = open.wish.request.request_id};
  (void)transport_->send({.socket = open.socket, .routing = {}},
                         {wire::write_client_request(request)});
}

void Customer::note(const Open& open, Sight sight) {
  sight.at = world_.now();
  sight.id = wire::hex_of(*open.wish.request.request_id);
  sight.connection = connections_.at(open.socket);
  history_.sights.push_back(std::move(sight));
}

void Customer::take(const Delivery& delivery) {
  if (delivery.kind != DeliveryKind::kMessage) return;
  auto answer = wire::read_client_answer(delivery.frames.at(0));
  Sight sight{.at = world_.now(), .connection = connections_.at(delivery.peer.socket)};
  if (!answer.ok()) {
    sight.what = Saw::kError;
    sight.code = "unreadable: " + answer.error().message;
    history_.sights.push_back(std::move(sight));
    return;
  }
  sight.id = std::visit([](const auto& said) { return said.id; }, *answer);
  if (auto* piece = std::get_if<wire::ClientPiece>(&*answer)) {
    sight.what = Saw::kPiece;
    sight.ids = std::move(piece->token_ids);
    sight.text = std::move(piece->text);
    sight.prompt = without_texts(std::move(piece->prompt_logprobs));
    place(sight, piece->position, piece->offset);
  } else if (auto* reply = std::get_if<wire::ClientReply>(&*answer)) {
    sight.what = Saw::kReply;
    sight.ids = std::move(reply->token_ids);
    sight.text = std::move(reply->text);
    sight.prompt = without_texts(std::move(reply->prompt_logprobs));
    place(sight, reply->position, reply->offset);
    sight.finish_reason = reply->finish_reason;
    sight.completion_tokens = reply->usage.completion_tokens;
    history_.n_remembered +=
        reply->metrics.speculative_decoding.proposer.find("memory") != std::string::npos;
    history_.n_accepted += reply->metrics.speculative_decoding.num_accepted_draft_tokens;
  } else if (auto* tokens = std::get_if<wire::TokensReply>(&*answer)) {
    sight.what = Saw::kReply;
    sight.completion_tokens = static_cast<std::uint32_t>(tokens->token_ids.size());
    sight.ids = std::move(tokens->token_ids);
    sight.text = std::move(tokens->text);
  } else if (auto* error = std::get_if<wire::ClientError>(&*answer)) {
    sight.what = Saw::kError;
    sight.code = error->error.code;
  } else {
    return;  // status and metrics are asked for to be in the way, and promise nothing
  }
  const auto of = std::find_if(wishes_.begin(), wishes_.end(), [&](const Open& open) {
    return wire::hex_of(*open.wish.request.request_id) == sight.id;
  });
  if (of != wishes_.end() && !of->over) {
    of->again = world_.now() + habits_.patience;
    // An answer to the cancel alone: what it was to cancel may be unknown there, and known
    // elsewhere.
    const bool is_of_cancel = of->cancelled && sight.code == "not_found";
    const Promise& promise = history_.promises[of->promise];
    const bool is_final = sight.what == Saw::kReply ||
                          (sight.what == Saw::kError && !promise.errors.contains(sight.code));
    if (is_final && !is_of_cancel)
      of->over = true;
    else if (sight.what == Saw::kError)
      of->again = world_.now() + kAfterAnError;
  }
  history_.sights.push_back(std::move(sight));
}

}  // namespace foretoken::test
