// The ways from a target to one draft: its connection, and beside it a link through shared memory
// where both run on one machine. It asks for the link, opens it, gives it up and tries again as
// DraftLink says, and tells the log which tier the guesses take; what the link does not take goes
// over the connection. Order between the two ways is not kept: the sender says what may
// overtake. It knows messages, not which sequences they are of. Work thread;
// bus, speaker, options and counters are borrowed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/cores.h"
#include "common/runtime/posting.h"
#include "common/runtime/service.h"
#include "common/wire/codec.h"
#include "services/target/draft_link.h"

namespace foretoken {

struct DraftLinkOptions {
  LinkChoice choice = LinkChoice::kZeroMq;
  CoreUse cores;       // of this target
  std::string folder;  // the only one where a draft's door is looked for
};

// Since start, of all drafts of this target.
struct DraftCounters {
  std::uint64_t attaches = 0, proposes = 0, records = 0, usable = 0, stale = 0, malformed = 0,
                divergent = 0, misses = 0, not_sent = 0, busy = 0, needs = 0;
  // Frames that left through shared memory, and those that would have and went the other way.
  std::uint64_t sent_beside = 0, fallbacks = 0;
  std::uint64_t set_aside = 0;  // drafts whose guesses were worth nothing, each time
};

class DraftConnection {
 public:
  struct Surroundings {
    Bus& bus;
    wire::Speaker& speaker;
    const DraftLinkOptions& options;
    DraftCounters& counters;
  };
  // Throws FatalError: `endpoint` is none.
  DraftConnection(const Surroundings& around, std::string name, const std::string& endpoint);
  void close();  // both ways; said by its owner, for the bus may go first

  const std::string& name() const { return name_; }
  bool owns(SocketId socket) const;
  // False: the pinned tier does not work.
  bool may_be_used() const;
  // "shared_memory", "zeromq", or "none" where the pinned tier does not work.
  std::string_view tier() const;

  // Over the connection, where it waits or is lost as its posting says; what is too large is
  // dropped.
  void send(const wire::Message& message, const Posting& posting = {});
  // Into the frame for this way that leaves with flush().
  void add(wire::ProposeRecord record, Way way);
  bool flush();  // false: there was nothing

  // The link's timers and first word. Returns when it wants to be called again.
  TimePoint poll(TimePoint now);
  void on_offer(const wire::LinkOffer& offer, TimePoint now);
  void on_opened(SocketId socket, const wire::LinkOpen& opened, TimePoint now);
  // True if what was lost is the question for a link: it is asked again.
  bool on_dropped(Ticket ticket, TimePoint now);
  void on_closed(const std::string& why, TimePoint now);  // the link
  bool is_link(SocketId socket) const { return memory_socket_ != 0 && socket == memory_socket_; }

 private:
  void send_frames(Result<Frames> frames, const Posting& posting);
  void say_first_word(TimePoint now);
  void poll_link(TimePoint now);
  void say_tier();
  void send_frame(wire::Propose& frame, Way way);

  Surroundings around_;
  std::string name_;
  SocketId socket_ = 0;
  DraftLink link_;
  SocketId memory_socket_ = 0;  // the link's, while there is one
  std::uint64_t token_ = 0;
  bool has_opened_ = false;     // the first word has left
  std::string said_;            // about its tier, in the log
  bool was_used_ = false;       // in this incarnation of the draft
  wire::Propose frame_;         // of records that may not overtake
  wire::Propose frame_beside_;  // of the others
};

}  // namespace foretoken
