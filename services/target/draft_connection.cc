#include "services/target/draft_connection.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/transport/memory_door.h"

namespace foretoken {
namespace {

constexpr Duration kOpenAgain = std::chrono::milliseconds(2);
constexpr std::size_t kMostReason = 200;  // of what a draft says, in our log

constexpr Ticket kAskTicket{.high = 1, .low = 0};

Peer peer_at(SocketId socket) { return {.socket = socket, .routing = {}}; }

}  // namespace

DraftConnection::DraftConnection(const Surroundings& around,
                                 std::string name,
                                 const std::string& endpoint)
    : around_(around),
      name_(std::move(name)),
      socket_(around.bus.connect(endpoint, Door::kDraft)),
      link_(around.options.choice) {}

void DraftConnection::close() {
  around_.bus.close(socket_);
  if (memory_socket_ != 0) around_.bus.close(memory_socket_);
}

bool DraftConnection::owns(SocketId socket) const { return socket == socket_ || is_link(socket); }

bool DraftConnection::may_be_used() const {
  switch (around_.options.choice) {
    case LinkChoice::kSharedMemory:
      return link_.is_up();
    case LinkChoice::kAuto:
    case LinkChoice::kZeroMq:
      return true;
  }
  return true;
}

// ---- messages

void DraftConnection::send(const wire::Message& message, const Posting& posting) {
  send_frames(wire::try_encode(around_.speaker, {}, message), posting);
}

void DraftConnection::send_frames(Result<Frames> frames, const Posting& posting) {
  if (frames.ok())
    around_.bus.send(peer_at(socket_), std::move(frames).value(), posting);
  else
    ++around_.counters.not_sent;
}

bool DraftConnection::on_dropped(Ticket ticket, TimePoint now) {
  if (ticket != kAskTicket) return false;
  link_.not_asked(now);
  return true;
}

void DraftConnection::add(wire::ProposeRecord record, Way way) {
  const bool beside = way == Way::kShortest && link_.is_up();
  (beside ? frame_beside_ : frame_).records.push_back(std::move(record));
}

bool DraftConnection::flush() {
  const bool has_records = !frame_beside_.records.empty() || !frame_.records.empty();
  send_frame(frame_beside_, Way::kShortest);
  send_frame(frame_, Way::kConnection);
  return has_records;
}

void DraftConnection::send_frame(wire::Propose& frame, Way way) {
  if (frame.records.empty()) return;
  around_.counters.records += frame.records.size();
  ++around_.counters.proposes;
  auto frames = wire::try_encode(around_.speaker, {}, frame);
  frame.records.clear();
  if (way == Way::kShortest && frames.ok() && link_.is_up()) {
    if (around_.bus.try_send(peer_at(memory_socket_), *frames) == SendResult::kSent)
      return void(++around_.counters.sent_beside);
    ++around_.counters.fallbacks;
  }
  send_frames(std::move(frames), {});
}

// ---- the link

TimePoint DraftConnection::poll(TimePoint now) {
  poll_link(now);
  if (link_.state() == DraftLink::State::kOpening && !has_opened_)
    return std::min(link_.due(), now + kOpenAgain);
  if (!link_.why_not().empty()) say_tier();
  return link_.due();
}

// Sends the greeting before it looks at the timers: a long step of this service is not the draft's
// silence.
void DraftConnection::poll_link(TimePoint now) {
  say_first_word(now);
  switch (link_.tick(now)) {
    case DraftLink::Action::kNone:
      break;
    case DraftLink::Action::kAsk:
      link_.asked(now);
      send(wire::LinkAsk{.machine = around_.options.cores.machine,
                         .cpus = to_text(around_.options.cores.cpus),
                         .threads = static_cast<std::uint32_t>(around_.options.cores.n_threads)},
           {.ticket = kAskTicket});
      break;
    case DraftLink::Action::kGiveUp:
      if (memory_socket_ != 0) around_.bus.close(std::exchange(memory_socket_, 0));
      break;
  }
}

void DraftConnection::say_first_word(TimePoint now) {
  if (link_.state() != DraftLink::State::kOpening || has_opened_) return;
  const auto frames = wire::try_encode(around_.speaker, {}, wire::LinkOpen{token_});
  has_opened_ =
      frames.ok() && around_.bus.try_send(peer_at(memory_socket_), *frames) == SendResult::kSent;
  if (has_opened_) link_.said(now);
}

// What a draft says may be anything: nothing is opened but a door in our own folder.
void DraftConnection::on_offer(const wire::LinkOffer& offer, TimePoint now) {
  if (!link_.offered(now)) {
    ++around_.counters.stale;
    return;
  }
  if (offer.endpoint.empty()) return link_.failed(now, offer.reason.substr(0, kMostReason));
  const std::string folder = std::string(MemoryDoor::kScheme) + around_.options.folder + "/";
  if (!offer.endpoint.starts_with(folder) ||
      offer.endpoint.find('/', folder.size()) != std::string::npos)
    return link_.failed(now, "its door is not in this target's bus.runtime_dir");
  try {
    memory_socket_ = around_.bus.connect(offer.endpoint, Door::kDraft);
    token_ = offer.token;
    has_opened_ = false;
  } catch (const FatalError& error) {
    link_.failed(now, error.what());
  }
}

void DraftConnection::on_opened(SocketId socket, const wire::LinkOpen& opened, TimePoint now) {
  if (socket != memory_socket_ || opened.token != token_ || !link_.confirmed(now))
    return void(++around_.counters.stale);
  say_tier();
}

void DraftConnection::on_closed(const std::string& why, TimePoint now) {
  memory_socket_ = 0;
  link_.failed(now, why);
  say_tier();
}

std::string_view DraftConnection::tier() const {
  if (!may_be_used()) return "none";
  return link_.is_up() ? "shared_memory" : "zeromq";
}

void DraftConnection::say_tier() {
  const std::string& why = link_.why_not();
  const std::string now = std::string(tier()) + " " + why;
  if (std::exchange(said_, now) == now) return;
  if (!may_be_used()) {
    const std::string pinned(name_of(around_.options.choice));
    if (was_used_)  // what drafts die of is no fault of a setting
      return log_warning("a draft is not used until its link is up again",
                         {{"draft", name_}, {"pinned", pinned}, {"reason", why}});
    return log_error("a draft is not used: target.draft_link pins another tier",
                     {{"draft", name_}, {"pinned", pinned}, {"reason", why}});
  }
  was_used_ = true;
  if (why.empty()) return log_info("link to a draft", {{"draft", name_}, {"tier", tier()}});
  log_info("link to a draft", {{"draft", name_}, {"tier", tier()}, {"reason", why}});
}

}  // namespace foretoken
