// The drafts that the router has assigned to this target: which incarnation of each, how it is
// reached, how many of our sequences have a place there, and where the next one goes. It knows how
// many sequences a draft has, not which. Work thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/wire/codec.h"
#include "services/target/draft_connection.h"
#include "services/target/draft_record.h"

namespace foretoken {

struct AssignedDraft {
  WorkerId id;
  Incarnation incarnation;
  std::string endpoint;
  std::uint32_t max_sequences = 0;
  std::uint32_t order = 0;  // among drafts with as many sequences of ours
  DraftConnection connection;
  std::uint32_t n_sequences = 0;
  bool refuses = false;       // answered NEED(refused): used no more in this incarnation
  TimePoint suspect_until{};  // let go by a sequence a moment ago, as late or full: others first
  TimePoint quiet_until{};    // reported as one that does not answer a moment ago
  DraftRecord record;         // it may be set aside for a while
  // From ATTACH to the first answer, for each token of the sequences that were opening then: a
  // guess on the slow side until it was measured.
  static constexpr Duration kQuickPrefill = std::chrono::microseconds(500);
  Duration prefill_per_token = kQuickPrefill;
  TimePoint renewed{};  // a PROPOSE was sent last

  bool may_be_used() const { return !refuses && connection.may_be_used(); }
  bool has_room() const { return may_be_used() && n_sequences < max_sequences; }
  bool is_suspect(TimePoint now) const { return suspect_until > now; }
};

class AssignedDrafts {
 public:
  // False, and it is in the log: it cannot be connected to.
  bool add(const wire::Assign& assign, const DraftConnection::Surroundings& around);
  void remove(WorkerId id);

  std::size_t size() const { return drafts_.size(); }
  AssignedDraft& at(WorkerId id) { return drafts_.at(id); }
  AssignedDraft* find(WorkerId id);
  const AssignedDraft* find(WorkerId id) const;
  AssignedDraft* find(SocketId socket);
  bool owns(SocketId socket) const;
  // Of the drafts with room one that has not just failed a sequence, then the one with fewest of
  // ours, then as the router orders them: targets that have one sequence each do not meet at one
  // draft. Nothing if there is none.
  AssignedDraft* choose(TimePoint now);
  bool has_room(TimePoint now) const;  // choose() would find one
  // Calls back for each one that is set aside from now on.
  void judge(TimePoint now, const std::function<void(AssignedDraft&)>& set_aside);
  std::vector<wire::DraftSetAside> set_aside(TimePoint now) const;
  // Each draft's name and tier.
  std::vector<std::pair<std::string, std::string_view>> links() const;

  // CLOSE, now or as soon as there is room.
  static void end_sequence(AssignedDraft& draft, const wire::CloseSequence& close);

  // Links. Returns when it wants to be called again.
  TimePoint poll(TimePoint now);
  // Sends the records that were added to connections.
  void flush(TimePoint now);
  // A PROPOSE without records to drafts that have sequences and got nothing about them for so long.
  void renew_leases(TimePoint now, Duration silence);

 private:
  static bool may_be_chosen(const AssignedDraft& draft, TimePoint now);

  std::map<WorkerId, AssignedDraft> drafts_;
};

}  // namespace foretoken
