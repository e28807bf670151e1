#include "common/client/client.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "common/client/listener.h"
#include "common/config/resolve.h"
#include "common/messages/limits.h"
#include "common/transport/endpoint.h"

namespace foretoken {
namespace {

// An answer may take minutes; a missing router must be reported sooner.
constexpr auto kConnectPatience = std::chrono::seconds(5);

// A router that is being restarted is back within this.
constexpr auto kRestartPatience = std::chrono::milliseconds(800);

Result<Bytes> bytes_of(const wire::ClientRequest& request) {
  Bytes bytes = wire::write_client_request(request);
  // The router's socket drops a larger one without a word.
  if (bytes.size() > wire::kMaxClientPartBytes)
    return Error{ErrorCode::kInvalidValue, "the request has " + std::to_string(bytes.size()) +
                                               " bytes; the limit is " +
                                               std::to_string(wire::kMaxClientPartBytes)};
  return bytes;
}

}  // namespace

RequestId new_request_id() {
  std::random_device entropy;
  const auto word = [&] { return (static_cast<std::uint64_t>(entropy()) << 32) | entropy(); };
  return {.high = word(), .low = word()};
}

ZmqOptions client_options(const BusSection& bus) {
  const auto endpoint = parse_endpoint(client_endpoint(bus));
  ZmqOptions options{.watch_connections = true, .max_part_bytes = wire::kMaxAnswerBytes};
  // There are no keys on ipc, and their files need not be readable.
  if (endpoint.ok() && endpoint->scheme != Scheme::kTcp) return options;
  options.curve_secret_file = bus.curve_secret;
  options.curve_peers_file = bus.curve_peers;
  options.insecure = bus.insecure;
  return options;
}

Client::Client(const BusSection& bus, Patience patience)
    : endpoint_(client_endpoint(bus)),
      key_file_(client_options(bus).curve_secret_file),
      patience_(std::move(patience)),
      transport_(std::make_unique<ZmqTransport>(client_options(bus))) {
  socket_ = transport_->connect(endpoint_);
}

Client::~Client() = default;

Result<RequestId> Client::send(wire::ClientRequest request, TimePoint deadline) {
  if (!request.request_id) request.request_id = new_request_id();
  const auto packed = bytes_of(request);
  if (!packed.ok()) return packed.error();
  const Bytes& bytes = *packed;
  const TimePoint give_up = std::min(deadline, steady_now() + kConnectPatience);
  const std::string id = wire::hex_of(*request.request_id);
  if (request.op == wire::ClientOp::kCancel)
    if (const auto found = asked_.find(id); found != asked_.end()) found->second.cancelled = true;
  // The connection is made in the background. A send into one that is known to be lost would be
  // forgotten.
  for (;;) {
    if (is_up() && transport_->send(Peer{.socket = socket_}, Frames{bytes}) == SendResult::kSent) {
      // Asked again on this connection: what was passed on already is not passed on again.
      if (const auto open = asked_.find(id); open != asked_.end() && open->second.bytes == bytes)
        open->second.again = false;
      else if (request.op != wire::ClientOp::kCancel)
        asked_[id] = AskedRequest{.bytes = bytes, .resumed = {}};
      return *request.request_id;
    }
    if (const auto refusal = refused()) return *refusal;
    if (steady_now() >= give_up) break;
    wait(std::min(give_up, steady_now() + std::chrono::milliseconds(5)));
  }
  return Error{ErrorCode::kUnavailable, no_answer_message()};
}

// The door closes the connection of a client whose key it does not take, and would each time again.
std::optional<Error> Client::refused() const {
  const ConnectionState connection = transport_->connection(socket_);
  if (connection.up || connection.refused == Refusal::kNone) return std::nullopt;
  if (connection.refused == Refusal::kNoKeys)
    return Error{ErrorCode::kConfig, "the router at " + endpoint_ +
                                         " has no keys and takes no client with one: ask it "
                                         "without bus.curve_secret, which is " +
                                         key_file_ + ", or start it with a key"};
  if (key_file_.empty())
    return Error{ErrorCode::kConfig,
                 "the router at " + endpoint_ +
                     " takes only clients with a key; set bus.curve_secret and bus.curve_peers"};
  return Error{
      ErrorCode::kConfig,
      "the router at " + endpoint_ + " refuses the key of " + key_file_ +
          ": its bus.curve_peers must list that key as client:NAME or tool:NAME, and the one here "
          "must give the router's own key for this address" +
          (connection.refused == Refusal::kUnsaid ? "; or it has no keys" : "")};
}

std::string Client::no_answer_message() const {
  std::string words = "no router answers at " + endpoint_;
  if (listener_at(endpoint_) == Listener::kSome)
    words +=
        ", where connections are accepted: the router is suspended, or is out of file descriptors "
        "(its log has a line of that), or another program listens there";
  return words;
}

std::optional<Result<wire::ClientAnswer>> Client::receive(TimePoint deadline) {
  for (bool waited = false; answers_.empty(); waited = true) {
    if (waited && steady_now() >= deadline) return std::nullopt;
    wait(deadline);
  }
  return next();
}

Result<RequestId> Client::post(wire::ClientRequest request) {
  if (!request.request_id) request.request_id = new_request_id();
  auto bytes = bytes_of(request);
  if (!bytes.ok()) return bytes.error();
  // Behind requests that wait it waits too: first come, first sent.
  const bool is_sent =
      is_up() && !lost_since_ &&
      transport_->send(Peer{.socket = socket_}, Frames{*bytes}) == SendResult::kSent;
  if (!is_sent && !lost_since_) lost_since_ = steady_now();
  asked_[wire::hex_of(*request.request_id)] =
      AskedRequest{.bytes = std::move(*bytes), .again = !is_sent, .n_again = is_sent ? 0 : -1};
  return *request.request_id;
}

void Client::cancel(RequestId id) {
  const std::string hex = wire::hex_of(id);
  const auto found = asked_.find(hex);
  if (found == asked_.end()) return;
  wire::ClientRequest cancel;
  cancel.op = wire::ClientOp::kCancel;
  cancel.request_id = id;
  const bool is_sent =
      !found->second.again && is_up() &&
      transport_->send(Peer{.socket = socket_}, Frames{wire::write_client_request(cancel)}) ==
          SendResult::kSent;
  if (!is_sent) return end(hex, ErrorCode::kCancelled, "cancelled");
  found->second.cancelled = true;
}

std::optional<Result<wire::ClientAnswer>> Client::next() {
  if (answers_.empty()) return std::nullopt;
  auto answer = std::move(answers_.front());
  answers_.pop_front();
  return answer;
}

void Client::wait(TimePoint deadline) {
  if (lost_since_) deadline = std::min(deadline, steady_now() + std::chrono::milliseconds(20));
  if (const auto delivery = transport_->receive(deadline)) take(*delivery);
  look_after_connection();
}

void Client::take(const Delivery& delivery) {
  if (delivery.kind != DeliveryKind::kMessage || delivery.frames.empty()) return;
  auto answer = wire::read_client_answer(delivery.frames.back());
  const auto found = answer.ok() ? asked_.find(answer_id(*answer)) : asked_.end();
  if (found != asked_.end()) {
    auto news = found->second.resumed.new_part(std::move(*answer));
    if (!news) return;
    answer = std::move(*news);
    if (!std::holds_alternative<wire::ClientPiece>(*answer)) asked_.erase(found);
  }
  answers_.push_back(std::move(answer));
}

void Client::look_after_connection() {
  const ConnectionState connection = transport_->connection(socket_);
  if (connection.losses != losses_) {
    losses_ = connection.losses;
    if (!lost_since_) lost_since_ = steady_now();
    for (auto& [id, asked] : asked_) asked.again = !asked.cancelled;
    // After what the lost connection had brought no router will answer these.
    while (const auto delivery = transport_->receive(steady_now())) take(*delivery);
    end_all(ErrorCode::kCancelled, "cancelled", &AskedRequest::cancelled);
  }
  if (!lost_since_) return;
  if (connection.up) return ask_again();
  if (asked_.empty()) return;
  if (const auto refusal = refused())
    return end_all(refusal->code, refusal->message, &AskedRequest::again);
  const Duration waited = steady_now() - *lost_since_;
  if (waited >= patience_.longest) {
    end_all(ErrorCode::kUnavailable,
            (connection.losses > 0 ? "the connection was lost, and " : "") + no_answer_message(),
            &AskedRequest::again);
  } else if (waited >= patience_.silent && patience_.say && !std::exchange(said_, true)) {
    patience_.say("the connection to the router at " + endpoint_ + " was lost; waiting " +
                  std::to_string(
                      std::chrono::duration_cast<std::chrono::seconds>(patience_.longest).count()) +
                  " s for it to be back");
  }
}

void Client::ask_again() {
  // First what the lost connection had brought: it tells how much of the next telling is not new.
  while (const auto delivery = transport_->receive(steady_now())) take(*delivery);
  const ConnectionState connection = transport_->connection(socket_);
  if (!connection.up || connection.losses != losses_) return;
  for (auto it = asked_.begin(); it != asked_.end();) {
    const auto here = it++;
    AskedRequest& asked = here->second;
    if (!asked.again) continue;
    if (asked.n_again == kMostTimesAskedAgain) {
      end(std::string(here->first), ErrorCode::kUnavailable,
          "the connection to the router at " + endpoint_ + " was lost " +
              std::to_string(asked.n_again + 1) + " times before the answer was whole");
      continue;
    }
    if (transport_->send(Peer{.socket = socket_}, Frames{asked.bytes}) != SendResult::kSent) return;
    asked.resumed.begin_again();
    asked.again = false;
    ++asked.n_again;
    ++n_asked_again_;
  }
  lost_since_.reset();
  said_ = false;
}

void Client::end(const std::string& id, ErrorCode code, const std::string& why) {
  answers_.push_back(wire::ClientAnswer(wire::ClientError{
      .id = id, .error = {.code = std::string(error_code_name(code)), .message = why}}));
  asked_.erase(asked_.find(id));
}

void Client::end_all(ErrorCode code, const std::string& why, bool AskedRequest::*which) {
  std::vector<std::string> ids;
  for (const auto& [id, asked] : asked_)
    if (asked.*which) ids.push_back(id);
  for (const auto& id : ids) end(id, code, why);
}

Result<wire::ClientAnswer> Client::ask(wire::ClientRequest request,
                                       TimePoint deadline,
                                       const OnPiece& on_piece) {
  const auto sent = send(std::move(request), deadline);
  if (!sent.ok()) return sent.error();
  const std::string id = wire::hex_of(*sent);
  while (auto answer = receive(deadline)) {
    if (!answer->ok()) return *answer;
    if (answer_id(**answer) != id) continue;
    if (const auto* piece = std::get_if<wire::ClientPiece>(&**answer)) {
      if (on_piece) on_piece(*piece);
      continue;
    }
    if (const auto* error = std::get_if<wire::ClientError>(&**answer)) return error_from(*error);
    return *answer;
  }
  forget(*sent);
  return Error{ErrorCode::kDeadlineExceeded, "no answer from " + endpoint_ + " in time"};
}

Result<wire::ClientReply> Client::generate(wire::ClientRequest request,
                                           TimePoint deadline,
                                           const OnPiece& on_piece) {
  auto answer = ask(std::move(request), deadline, on_piece);
  if (!answer.ok()) return answer.error();
  if (auto* reply = std::get_if<wire::ClientReply>(&*answer)) return std::move(*reply);
  return Error{ErrorCode::kMalformed, "the router answered with something that is not a reply"};
}

Result<wire::StatusReply> Client::status(TimePoint deadline) {
  for (const TimePoint patience = std::min(deadline, steady_now() + kRestartPatience);
       listener_at(endpoint_) == Listener::kNone;) {
    if (steady_now() >= patience) return Error{ErrorCode::kUnavailable, no_answer_message()};
    (void)transport_->receive(std::min(patience, steady_now() + std::chrono::milliseconds(20)));
  }
  wire::ClientRequest request;
  request.op = wire::ClientOp::kStatus;
  auto answer = ask(std::move(request), deadline);
  if (!answer.ok()) return answer.error();
  if (auto* reply = std::get_if<wire::StatusReply>(&*answer)) return std::move(*reply);
  return Error{ErrorCode::kMalformed, "the router answered with something that is not a status"};
}

Error Client::unreachable(const Error& error) const {
  if (error.code == ErrorCode::kConfig) return error;
  return {ErrorCode::kUnavailable, no_answer_message()};
}

Error error_from(const wire::ClientError& error) {
  ErrorCode code = ErrorCode::kInternal;
  for (const auto& [known, name] : kErrorCodeNames)
    if (name == error.error.code) code = known;
  return {code, error.error.message, error.error.param};
}

const std::string& answer_id(const wire::ClientAnswer& answer) {
  return std::visit([](const auto& each) -> const std::string& { return each.id; }, answer);
}

}  // namespace foretoken
