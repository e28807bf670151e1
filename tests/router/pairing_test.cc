// Which drafts each target is sent, for pools of a few workers.
#include "services/router/pairing.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace foretoken {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr std::uint64_t kIncarnation = 7;

class PairingTest : public testing::Test {
 protected:
  void join(std::uint64_t id, const wire::Hello& hello) {
    ASSERT_TRUE(pool_.hello(header(id), peer(id), hello, now_).accepted);
  }
  void drain(std::uint64_t id) {
    ASSERT_TRUE(pool_.heartbeat(header(id), peer(id), {.draining = true}, now_));
  }

  static wire::Hello target(const std::string& name, const std::string& model = "m") {
    return {.role = wire::Role::kTarget,
            .name = name,
            .fingerprints = {1, 2, 3, 4},
            .noise_version = 1,
            .model_name = model};
  }
  static wire::Hello draft(const std::string& name, const std::string& drafts_for = "") {
    return {.role = wire::Role::kDraft,
            .name = name,
            .endpoint = "ipc://" + name,
            .fingerprints = {1, 2, 3, 4},
            .noise_version = 1,
            .drafts_for = drafts_for};
  }

  // One line for each message, in their order: "1 uses 11 at 0", "1 leaves 11: draining".
  static std::vector<std::string> lines_of(const Actions& actions) {
    std::vector<std::string> lines;
    for (const Action& action : actions) {
      const auto& to = std::get<ToWorker>(action);
      const std::string who = std::to_string(to.worker.value);
      if (const auto* assign = std::get_if<wire::Assign>(&to.message)) {
        EXPECT_EQ(Incarnation{kIncarnation}, assign->incarnation);
        lines.push_back(who + " uses " + std::to_string(assign->draft.value) + " at " +
                        std::to_string(assign->order));
      } else {
        const auto& unassign = std::get<wire::Unassign>(to.message);
        EXPECT_EQ(Incarnation{kIncarnation}, unassign.incarnation);
        lines.push_back(who + " leaves " + std::to_string(unassign.draft.value) + ": " +
                        unassign.reason);
      }
    }
    return lines;
  }
  // All drafts of the pool are needed but these.
  std::vector<std::string> pair_all(const std::vector<std::uint64_t>& not_needed = {}) {
    std::vector<const Worker*> needed;
    for (const Worker* worker : pool_.alive(wire::Role::kDraft))
      if (std::ranges::find(not_needed, worker->id.value) == not_needed.end())
        needed.push_back(worker);
    Actions actions;
    pairing_.pair_all(pool_, needed, actions);
    return lines_of(actions);
  }

  Pool pool_{std::chrono::milliseconds(250)};
  Pairing pairing_;

 private:
  static wire::Header header(std::uint64_t id) {
    wire::Header header;
    header.sender = WorkerId{id};
    header.incarnation = Incarnation{kIncarnation};
    return header;
  }
  static Peer peer(std::uint64_t id) { return {.socket = 1, .routing = std::to_string(id)}; }

  const TimePoint now_ = TimePoint{} + std::chrono::seconds(100);
};

TEST_F(PairingTest, TargetsBeginWithDifferentDrafts) {
  join(1, target("target-0"));
  join(2, target("target-1"));
  EXPECT_THAT(pair_all(), IsEmpty());
  join(11, draft("draft-0"));
  join(12, draft("draft-1"));
  const std::vector<std::string> lines = pair_all();
  EXPECT_THAT(lines,
              ElementsAre("1 uses 11 at 0", "1 uses 12 at 1", "2 uses 11 at 1", "2 uses 12 at 0"));
  EXPECT_EQ(lines, pair_all()) << "a message that was lost is sent by the next call";
}

TEST_F(PairingTest, AnAssignmentHasWhatTheTargetConnectsTo) {
  join(1, target("target-0"));
  wire::Hello hello = draft("draft-0");
  hello.max_sequences = 5;
  join(11, hello);
  Actions actions;
  pairing_.pair_all(pool_, pool_.alive(wire::Role::kDraft), actions);
  ASSERT_EQ(1u, actions.size());
  const auto& assign = std::get<wire::Assign>(std::get<ToWorker>(actions[0]).message);
  EXPECT_EQ("draft-0", assign.name);
  EXPECT_EQ("ipc://draft-0", assign.endpoint);
  EXPECT_EQ(hello.fingerprints, assign.fingerprints);
  EXPECT_EQ(5u, assign.max_sequences);
  EXPECT_EQ(wire::DraftSource::kModel, assign.source);
}

TEST_F(PairingTest, ADraftThatDrainsIsUsedWhileItIsNeeded) {
  join(1, target("target-0"));
  join(11, draft("draft-0"));
  join(12, draft("draft-1"));
  drain(11);
  EXPECT_THAT(pair_all(), ElementsAre("1 uses 11 at 0", "1 uses 12 at 1"));
  EXPECT_THAT(pair_all({11}), ElementsAre("1 uses 12 at 0", "1 leaves 11: draining"));
}

TEST_F(PairingTest, ADraftOfAnotherModelIsLeftForOneOfTheTargetsOwn) {
  join(1, target("target-0"));
  join(11, draft("draft-0", "other"));
  EXPECT_THAT(pair_all(), ElementsAre("1 uses 11 at 0")) << "there is no better one";
  join(12, draft("draft-1", "m"));
  EXPECT_THAT(pair_all(),
              ElementsAre("1 uses 12 at 0", "1 leaves 11: there is one of its own model"));
}

TEST_F(PairingTest, AMemoryOfAnotherModelIsLeft) {
  join(1, target("target-0"));
  wire::Hello memory = draft("memory-0", "other");
  memory.source = wire::DraftSource::kMemory;
  join(11, memory);
  EXPECT_THAT(pair_all(), ElementsAre("1 leaves 11: a memory of another model, or it takes none"));
}

// No target could use it, so none has to leave it.
TEST_F(PairingTest, ADraftOfAnotherVocabularyIsInNoMessage) {
  join(1, target("target-0"));
  wire::Hello other = draft("draft-0");
  other.fingerprints.vocabulary = 9;
  join(11, other);
  EXPECT_THAT(pair_all(), IsEmpty());
}

TEST_F(PairingTest, EveryTargetLeavesADraftThatIsGone) {
  join(1, target("target-0"));
  join(2, target("target-1", "other"));
  join(11, draft("draft-0"));
  const Worker gone = *pool_.find(WorkerId{11});
  ASSERT_TRUE(pool_.end(gone.id, gone.incarnation));
  Actions actions;
  Pairing::unassign(pool_, gone, "it said goodbye", actions);
  EXPECT_THAT(lines_of(actions),
              UnorderedElementsAre("1 leaves 11: it said goodbye", "2 leaves 11: it said goodbye"));
}

}  // namespace
}  // namespace foretoken
