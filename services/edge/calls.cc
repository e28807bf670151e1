#include "services/edge/calls.h"

#include <utility>

namespace foretoken::edge {
namespace {

namespace asio = boost::asio;

bool is_last(const wire::ClientAnswer& answer) {
  return !std::holds_alternative<wire::ClientPiece>(answer);
}

std::size_t bytes_of(const wire::ClientAnswer& answer) {
  const auto* piece = std::get_if<wire::ClientPiece>(&answer);
  if (piece == nullptr) return 0;  // a last answer always fits
  std::size_t bytes =
      sizeof *piece + piece->text.size() + piece->token_ids.size() * sizeof(TokenId);
  for (const auto& entry : piece->logprobs)
    bytes += sizeof entry + entry.top_ids.size() * (sizeof(TokenId) + sizeof(double));
  return bytes;
}

}  // namespace

Call::~Call() { give_up(); }

void Call::give_up() {
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    if (over_[i]) continue;
    over_[i] = true;
    calls_.open_.erase(wire::hex_of(ids_[i]));
    calls_.router_.cancel(ids_[i]);
  }
}

asio::awaitable<std::optional<Call::Arrival>> Call::next(TimePoint deadline) {
  while (arrivals_.empty() && !interrupted_ && steady_now() < deadline) {
    signal_.expires_at(deadline);
    boost::system::error_code ignored;
    co_await signal_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  if (arrivals_.empty()) co_return std::nullopt;
  std::optional<Arrival> arrival = std::move(arrivals_.front());
  arrivals_.pop_front();
  waiting_bytes_ -= bytes_of(arrival->answer);
  co_return arrival;
}

void Call::interrupt() {
  interrupted_ = true;
  signal_.cancel();
}

void Call::take(std::size_t request, wire::ClientAnswer answer) {
  waiting_bytes_ += bytes_of(answer);
  arrivals_.push_back({request, std::move(answer)});
  if (waiting_bytes_ > kMaxWaitingBytes) {
    give_up();
    arrivals_.clear();
    waiting_bytes_ = 0;
    arrivals_.push_back({request, wire::client_error(ids_[request],
                                                     {ErrorCode::kCancelled,
                                                      "the client reads too slowly: more than " +
                                                          std::to_string(kMaxWaitingBytes) +
                                                          " bytes waited for it"},
                                                     0)});
  }
  signal_.cancel();
}

Calls::Calls(asio::io_context& context, const BusSection& bus)
    : context_(context), router_(bus, [this](std::vector<wire::ClientAnswer> answers) {
        asio::post(context_,
                   [this, answers = std::move(answers)]() mutable { take(std::move(answers)); });
      }) {}

std::shared_ptr<Call> Calls::start(std::vector<wire::ClientRequest> requests) {
  const std::shared_ptr<Call> call(new Call(context_, *this, requests.size()));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    call->ids_[i] = new_request_id();
    requests[i].request_id = call->ids_[i];
    open_[wire::hex_of(call->ids_[i])] = {call.get(), i};
    router_.post(std::move(requests[i]));
  }
  return call;
}

std::shared_ptr<Call> Calls::start(wire::ClientRequest request) {
  std::vector<wire::ClientRequest> one;
  one.push_back(std::move(request));
  return start(std::move(one));
}

void Calls::take(std::vector<wire::ClientAnswer> answers) {
  for (auto& answer : answers) {
    const auto found = open_.find(answer_id(answer));
    if (found == open_.end()) continue;
    const Place place = found->second;
    if (is_last(answer)) {
      place.call->over_[place.request] = true;
      open_.erase(found);
    }
    place.call->take(place.request, std::move(answer));
  }
}

}  // namespace foretoken::edge
