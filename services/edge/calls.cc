#include "services/edge/calls.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/client/client.h"
#include "services/edge/answer_bytes.h"

namespace foretoken::edge {
namespace {

namespace asio = boost::asio;

// Between two tries of a call that has answers already and finds no room for the next.
constexpr Duration kRetryEvery = std::chrono::milliseconds(100);

bool is_last(const wire::ClientAnswer& answer) {
  return !std::holds_alternative<wire::ClientPiece>(answer);
}

// That a reader is behind by. A last answer comes once, however slow its reader is.
std::size_t waiting_bytes_of(const wire::ClientAnswer& answer) {
  const auto* piece = std::get_if<wire::ClientPiece>(&answer);
  return piece == nullptr ? 0 : bytes_of(*piece);
}

// What comes at once, to a reader in time too, and so has room beside all that is held.
std::size_t held_bytes_of(const wire::ClientAnswer& answer) {
  if (const auto* piece = std::get_if<wire::ClientPiece>(&answer)) return bytes_of_prompt(*piece);
  const auto* reply = std::get_if<wire::ClientReply>(&answer);
  return reply == nullptr ? 0 : bytes_of(*reply);
}

bool has_no_room(const wire::ClientAnswer& answer) {
  const auto* error = std::get_if<wire::ClientError>(&answer);
  return error != nullptr && error_from(*error).code == ErrorCode::kQueueFull;
}

template <class T>
void append(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

// One piece of two that follow one another.
void join(wire::ClientPiece& piece, wire::ClientPiece next) {
  piece.text += next.text;
  append(piece.token_ids, next.token_ids);
  append(piece.token_ends, next.token_ends);
  append(piece.logprobs, next.logprobs);
  piece.accepted += next.accepted;
}

}  // namespace

std::size_t CallLimits::most_at_a_time(const std::string& model) const {
  const bool is_default = model.empty() || model == "default";
  const RequestLimit* own = request_limit_of(of_models, is_default ? default_model : model);
  return std::max<std::size_t>(1, (own == nullptr ? of_all : own->most) / 2);
}

Call::~Call() { give_up(); }

void Call::give_up() {
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    if (std::exchange(states_[i], State::kOver) != State::kAtWork) continue;
    calls_.open_.erase(wire::hex_of(ids_[i]));
    calls_.router_.cancel(ids_[i]);
  }
  unsent_.clear();
}

asio::awaitable<std::optional<Call::Arrival>> Call::next(TimePoint deadline) {
  while (arrivals_.empty() && !interrupted_ && steady_now() < deadline) {
    signal_.expires_at(deadline);
    boost::system::error_code ignored;
    co_await signal_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  if (arrivals_.empty()) co_return std::nullopt;
  wire::ClientPiece*& waiting = waiting_[arrivals_.front().request];
  if (waiting == std::get_if<wire::ClientPiece>(&arrivals_.front().answer)) waiting = nullptr;
  std::optional<Arrival> arrival = std::move(arrivals_.front());
  arrivals_.pop_front();
  waiting_bytes_ -= waiting_bytes_of(arrival->answer);
  co_return arrival;
}

void Call::let_go(const Arrival& arrival) {
  if (arrival.held_bytes == 0) return;
  held_bytes_ -= arrival.held_bytes;
  if (hold_) hold_(held_bytes_);
}

void Call::interrupt() {
  interrupted_ = true;
  signal_.cancel();
}

void Call::take(std::size_t request, wire::ClientAnswer answer) {
  const std::size_t n_held = held_bytes_of(answer);
  held_bytes_ += n_held;
  waiting_bytes_ += waiting_bytes_of(answer);
  if (n_held > 0 || !joins_waiting(request, answer)) {
    arrivals_.push_back({request, std::move(answer), n_held});
    waiting_[request] = std::get_if<wire::ClientPiece>(&arrivals_.back().answer);
  }
  if (waiting_bytes_ > kMaxWaitingBytes)
    end_with(request, {ErrorCode::kCancelled, "the client reads too slowly: more than " +
                                                  std::to_string(kMaxWaitingBytes) +
                                                  " bytes waited for it"});
  else if (n_held > 0 && hold_ && !hold_(held_bytes_))
    end_with(request, {ErrorCode::kOutOfMemory, "there is no room for the answer"});
  signal_.cancel();
}

// In place of all that waits.
void Call::end_with(std::size_t request, const Error& error) {
  give_up();
  for (const Arrival& each : arrivals_) held_bytes_ -= each.held_bytes;
  arrivals_.clear();
  std::fill(waiting_.begin(), waiting_.end(), nullptr);
  waiting_bytes_ = 0;
  arrivals_.push_back({request, wire::client_error(ids_[request], error, 0)});
}

// False: it is sent again when one of those at work makes room, or a moment later.
bool Call::end(std::size_t request, const wire::ClientAnswer& answer) {
  --n_at_work_;
  const bool comes_again = has_no_room(answer) && (n_at_work_ > 0 || has_answers_);
  states_[request] = comes_again ? State::kUnsent : State::kOver;
  if (comes_again) {
    unsent_.push_back(request);
    if (n_at_work_ == 0) send_later();
  } else {
    // Moved out: an empty one in its place would keep the memory of its texts.
    { const wire::ClientRequest over = std::move(requests_[request]); }
    has_answers_ = has_answers_ || !std::holds_alternative<wire::ClientError>(answer);
  }
  return !comes_again;
}

void Call::send_later() {
  retry_.expires_after(kRetryEvery);
  retry_.async_wait([self = weak_from_this()](const boost::system::error_code& error) {
    if (const auto call = self.lock(); call && !error) call->send(1);
  });
}

std::optional<std::uint32_t> Call::time_left_ms(const wire::ClientRequest& request) const {
  const Duration allowed = request.timeout_ms == 0 ? calls_.limits_.timeout
                                                   : std::chrono::milliseconds(request.timeout_ms);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(began_ + allowed - steady_now());
  if (left.count() <= 0) return std::nullopt;
  return static_cast<std::uint32_t>(left.count());
}

void Call::send(std::size_t most) {
  for (; most > 0 && !unsent_.empty() && n_at_work_ < most_at_a_time_; --most) {
    const std::size_t i = unsent_.front();
    unsent_.pop_front();
    const auto left = time_left_ms(requests_[i]);
    if (!left) {
      states_[i] = State::kOver;
      take(i, wire::client_error(ids_[i],
                                 {ErrorCode::kDeadlineExceeded,
                                  "the time of the request (timeout_ms, "
                                  "limits.request_timeout_s) was over before the last of its " +
                                      std::to_string(ids_.size()) + " answers began"},
                                 0));
      return;
    }
    wire::ClientRequest request;
    if (requests_.size() == 1) {
      request = std::move(requests_[i]);
    } else {  // it may come again
      request = requests_[i];
      request.timeout_ms = *left;
    }
    request.request_id = ids_[i] = new_request_id();
    calls_.open_[wire::hex_of(ids_[i])] = {this, i};
    states_[i] = State::kAtWork;
    ++n_at_work_;
    calls_.router_.post(std::move(request));
  }
}

bool Call::joins_waiting(std::size_t request, wire::ClientAnswer& answer) {
  auto* piece = std::get_if<wire::ClientPiece>(&answer);
  if (piece == nullptr || waiting_[request] == nullptr) return false;
  waiting_bytes_ -= sizeof *piece;  // that of the one it joins is counted
  join(*waiting_[request], std::move(*piece));
  return true;
}

Calls::Calls(asio::io_context& context, const BusSection& bus, CallLimits limits)
    : context_(context),
      limits_(std::move(limits)),
      router_(bus, [this](std::vector<wire::ClientAnswer> answers) {
        asio::post(context_,
                   [this, answers = std::move(answers)]() mutable { take(std::move(answers)); });
      }) {}

std::shared_ptr<Call> Calls::start(std::vector<wire::ClientRequest> requests) {
  const std::size_t most = limits_.most_at_a_time(requests.front().model);
  std::shared_ptr<Call> call(new Call(context_, *this, std::move(requests), most));
  call->send(most);
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
      open_.erase(found);
      if (!place.call->end(place.request, answer)) continue;
    }
    const bool makes_room = is_last(answer) && !std::holds_alternative<wire::ClientError>(answer);
    place.call->take(place.request, std::move(answer));
    // Two for one, so that a queue that was full a moment ago is filled again.
    if (makes_room) place.call->send(2);
  }
}

}  // namespace foretoken::edge
