#include "services/target/attachment.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace foretoken {
namespace {

using State = AttachmentState;
using Action = AttachmentAction;
using std::chrono::milliseconds;
using std::chrono::seconds;

const TimePoint kStart = TimePoint{} + seconds(100);

// An attachment brought into a state at kStart by legal events alone.
Attachment in(State state) {
  Attachment attachment;
  if (state == State::kDetached) return attachment;
  attachment.assigned(kStart, {});
  if (state == State::kOpening) return attachment;
  attachment.asked(Epoch{1}, 4, kStart);
  attachment.answered(Epoch{1}, kStart);
  if (state == State::kActive) return attachment;
  if (state == State::kLagging) {
    attachment.asked(Epoch{2}, 4, kStart - milliseconds(50));
    attachment.tick(kStart, {});
    return attachment;
  }
  attachment.closed();
  return attachment;
}

struct Row {
  std::string event;
  std::function<Action(Attachment&)> happens;
  // Expected action and state after, from DETACHED, OPENING, ACTIVE, LAGGING, CLOSED.
  std::vector<std::pair<Action, State>> expected;
};

std::vector<Row> table() {
  // NOLINTBEGIN(readability-identifier-naming): the table's columns
  const auto D = State::kDetached, O = State::kOpening, A = State::kActive, L = State::kLagging,
             C = State::kClosed;
  // NOLINTEND(readability-identifier-naming)
  const auto none = Action::kNone;
  return {
      {"assigned",
       [](Attachment& a) { return a.assigned(kStart, {}); },
       {{Action::kSendAttach, O},
        {Action::kSendAttach, O},
        {Action::kSendAttach, O},
        {Action::kSendAttach, O},
        {none, C}}},
      {"lost",
       [](Attachment& a) { return a.lost(kStart); },
       {{none, D}, {Action::kRelease, D}, {Action::kRelease, D}, {Action::kRelease, D}, {none, C}}},
      {"usable record",
       [](Attachment& a) { return a.answered(Epoch{1}, kStart); },
       {{none, D}, {none, A}, {none, A}, {none, A}, {none, C}}},
      {"needs everything",
       [](Attachment& a) { return a.needs_everything(kStart, {}); },
       {{none, D},
        {Action::kSendAttach, O},
        {Action::kSendAttach, O},
        {Action::kSendAttach, O},
        {none, C}}},
      {"needs a tail",
       [](Attachment& a) { return a.needs_tail(kStart); },
       {{none, D},
        {Action::kSendPropose, O},
        {Action::kSendPropose, A},
        {Action::kSendPropose, L},
        {none, C}}},
      {"busy",
       [](Attachment& a) { return a.busy(kStart, milliseconds(100)); },
       {{none, D}, {none, O}, {none, A}, {none, L}, {none, C}}},
      {"one malformed record",
       [](Attachment& a) { return a.malformed(kStart); },
       {{none, D}, {none, O}, {none, A}, {none, L}, {none, C}}},
      {"closed",
       [](Attachment& a) { return a.closed(); },
       {{none, C},
        {Action::kSendClose, C},
        {Action::kSendClose, C},
        {Action::kSendClose, C},
        {none, C}}},
      {"tick at once",
       [](Attachment& a) { return a.tick(kStart, {}); },
       {{none, D}, {none, O}, {none, A}, {none, L}, {none, C}}},
  };
}

TEST(Attachment, EveryStateAnswersEveryEventAsTheTableSays) {
  const std::vector<State> states{State::kDetached, State::kOpening, State::kActive,
                                  State::kLagging, State::kClosed};
  for (const Row& row : table()) {
    ASSERT_EQ(states.size(), row.expected.size());
    for (std::size_t i = 0; i < states.size(); ++i) {
      Attachment attachment = in(states[i]);
      ASSERT_EQ(states[i], attachment.state());
      EXPECT_EQ(row.expected[i].first, row.happens(attachment)) << row.event << " in state " << i;
      EXPECT_EQ(row.expected[i].second, attachment.state()) << row.event << " in state " << i;
    }
  }
}

TEST(Attachment, OnlyAnActiveDraftThatIsOnTimeIsWaitedFor) {
  for (const State state : {State::kDetached, State::kOpening, State::kLagging, State::kClosed})
    EXPECT_FALSE(in(state).may_wait(kStart));
  Attachment active = in(State::kActive);
  EXPECT_TRUE(active.may_wait(kStart));
  active.asked(Epoch{2}, 4, kStart);
  EXPECT_TRUE(active.may_wait(kStart + milliseconds(20)));
  EXPECT_FALSE(active.may_wait(kStart + milliseconds(21)));
}

TEST(Attachment, LetsADraftGoAfterThreeMissesInARow) {
  Attachment attachment = in(State::kActive);
  attachment.asked(Epoch{2}, 4, kStart);
  EXPECT_EQ(Action::kNone, attachment.tick(kStart + milliseconds(20), {}));
  EXPECT_EQ(State::kActive, attachment.state());
  EXPECT_EQ(Action::kNone, attachment.tick(kStart + milliseconds(21), {}));
  EXPECT_EQ(State::kLagging, attachment.state());
  EXPECT_EQ(Action::kNone, attachment.tick(kStart + milliseconds(42), {}));
  EXPECT_EQ(Action::kRelease, attachment.tick(kStart + milliseconds(63), {}));
  EXPECT_EQ(State::kDetached, attachment.state());
}

TEST(Attachment, AnAnswerBetweenMissesStartsTheCountAnew) {
  Attachment attachment = in(State::kActive);
  attachment.asked(Epoch{2}, 4, kStart);
  attachment.tick(kStart + milliseconds(21), {});
  attachment.tick(kStart + milliseconds(42), {});
  attachment.answered(Epoch{2}, kStart + milliseconds(50));
  EXPECT_EQ(State::kActive, attachment.state());
  EXPECT_EQ(0u, attachment.misses());
}

TEST(Attachment, AskingWithoutABudgetCanNotBeMissed) {
  Attachment attachment = in(State::kActive);
  attachment.asked(Epoch{2}, 0, kStart);
  EXPECT_EQ(Action::kNone, attachment.tick(kStart + seconds(10), {}));
  EXPECT_EQ(State::kActive, attachment.state());
}

TEST(Attachment, PatienceFollowsTheAverageAnswer) {
  Attachment attachment = in(State::kActive);
  EXPECT_EQ(milliseconds(20), attachment.patience());
  for (std::uint32_t epoch = 2; epoch < 100; ++epoch) {
    const TimePoint at = kStart + seconds(epoch);
    attachment.asked(Epoch{epoch}, 4, at);
    attachment.answered(Epoch{epoch}, at + milliseconds(10));
  }
  EXPECT_GT(attachment.patience(), milliseconds(38));
  EXPECT_LE(attachment.patience(), milliseconds(40));
  for (std::uint32_t epoch = 100; epoch < 200; ++epoch) {
    const TimePoint at = kStart + seconds(epoch);
    attachment.asked(Epoch{epoch}, 4, at);
    attachment.answered(Epoch{epoch}, at + milliseconds(90));
  }
  EXPECT_GT(attachment.patience(), milliseconds(350));
  EXPECT_LE(attachment.patience(), milliseconds(360));
  for (std::uint32_t epoch = 200; epoch < 300; ++epoch) {
    const TimePoint at = kStart + seconds(100 * epoch);
    attachment.asked(Epoch{epoch}, 4, at);
    attachment.answered(Epoch{epoch}, at + seconds(60));
  }
  EXPECT_EQ(seconds(10), attachment.patience());
}

// A draft may add to its answer: the time until then is not that of an answer.
TEST(Attachment, TimesTheFirstAnswerToAQuestionAlone) {
  Attachment attachment = in(State::kActive);
  attachment.asked(Epoch{2}, 4, kStart);
  attachment.answered(Epoch{2}, kStart + milliseconds(8));
  const Duration usual = attachment.answer_ewma();
  EXPECT_FALSE(attachment.asked_at(Epoch{2}).has_value());
  attachment.answered(Epoch{2}, kStart + milliseconds(500));
  EXPECT_EQ(attachment.answer_ewma(), usual);
  EXPECT_FALSE(attachment.is_under_way());
}

TEST(Attachment, ADraftThatSendsWhatItHasIsNotLateWithTheRest) {
  Attachment attachment = in(State::kActive);
  attachment.asked(Epoch{2}, 8, kStart);
  for (int ms = 15; ms < 200; ms += 15) {
    const TimePoint now = kStart + milliseconds(ms);
    attachment.progressed(Epoch{2}, static_cast<std::uint32_t>(ms / 15), now);
    attachment.tick(now + milliseconds(14), {});
    ASSERT_EQ(attachment.state(), State::kActive) << ms;
    ASSERT_TRUE(attachment.is_under_way());
  }
  EXPECT_EQ(attachment.stream().first(), milliseconds(15));
  EXPECT_EQ(attachment.stream().per_token(), milliseconds(15));
  attachment.answered(Epoch{2}, kStart + milliseconds(210));
  EXPECT_FALSE(attachment.is_under_way());
}

TEST(Attachment, PatienceIsTwoStepsOfTheTargetAtLeast) {
  Attachment attachment = in(State::kActive);
  attachment.tick(kStart, {.step = milliseconds(700)});
  EXPECT_EQ(milliseconds(1400), attachment.patience());
  attachment.tick(kStart, {.step = milliseconds(1)});
  EXPECT_EQ(milliseconds(20), attachment.patience());
}

// A draft that needs three steps of its target for each answer, and a target that asks at each
// step.
TEST(Attachment, ASlowDraftIsNotLetGo) {
  Attachment attachment = in(State::kActive);
  constexpr Duration kStep = milliseconds(500);
  TimePoint now = kStart;
  for (std::uint32_t epoch = 2; epoch < 60; ++epoch, now += kStep) {
    if (epoch >= 5) attachment.answered(Epoch{epoch - 3}, now);
    EXPECT_EQ(Action::kNone, attachment.tick(now, {.step = kStep})) << epoch;
    ASSERT_TRUE(attachment.is_attached()) << epoch;
    attachment.asked(Epoch{epoch}, 4, now);
  }
  EXPECT_EQ(State::kActive, attachment.state());
}

TEST(Attachment, ADraftThatWasLetGoIsBackWithItsNextUsableRecord) {
  Attachment attachment = in(State::kOpening);
  const Lease lease = attachment.lease();
  EXPECT_EQ(Action::kRelease, attachment.tick(kStart + seconds(2), {}));
  EXPECT_EQ(Action::kNone, attachment.answered(Epoch{0}, kStart + milliseconds(2100)));
  EXPECT_EQ(State::kActive, attachment.state());
  EXPECT_EQ(lease, attachment.lease());
  EXPECT_EQ(Action::kNone, attachment.tick(kStart + seconds(60), {})) << "and is not probed";
  EXPECT_EQ(State::kActive, attachment.state());
}

TEST(Attachment, WaitsTwiceAsLongEachTimeADraftDoesNotAnswer) {
  Attachment attachment = in(State::kOpening);
  TimePoint now = kStart;
  for (const int grace : {2, 4, 8, 16, 32, 64, 64}) {
    EXPECT_EQ(Action::kNone, attachment.tick(now + seconds(grace) - milliseconds(1), {}));
    now += seconds(grace);
    EXPECT_EQ(Action::kRelease, attachment.tick(now, {}));
    now += seconds(1);
    EXPECT_EQ(Action::kSendAttach, attachment.tick(now, {}));
  }
  attachment.answered(Epoch{0}, now);
  attachment.assigned(now, {});
  EXPECT_EQ(Action::kRelease, attachment.tick(now + seconds(2), {})) << "and anew after an answer";
}

TEST(Attachment, ProbesTheSameDraftUnderTheSameLeaseAfterASecond) {
  Attachment attachment = in(State::kOpening);
  const Lease lease = attachment.lease();
  EXPECT_EQ(Action::kRelease, attachment.tick(kStart + seconds(2), {}));
  EXPECT_EQ(Action::kNone, attachment.tick(kStart + milliseconds(2999), {}));
  EXPECT_EQ(Action::kSendAttach, attachment.tick(kStart + seconds(3), {}));
  EXPECT_EQ(State::kOpening, attachment.state());
  EXPECT_EQ(lease, attachment.lease());
}

TEST(Attachment, DoesNotProbeADraftThatWentAway) {
  Attachment attachment = in(State::kActive);
  attachment.lost(kStart);
  EXPECT_EQ(Action::kNone, attachment.tick(kStart + seconds(100), {}));
}

TEST(Attachment, EachAssignmentHasANewLease) {
  Attachment attachment;
  attachment.assigned(kStart, {});
  EXPECT_EQ(Lease{1}, attachment.lease());
  attachment.assigned(kStart, {});
  EXPECT_EQ(Lease{2}, attachment.lease());
}

TEST(Attachment, WaitsForAPrefillAsLongAsItIsExpectedToTake) {
  Attachment attachment;
  attachment.assigned(kStart, {.prefill = seconds(5)});
  EXPECT_EQ(Action::kNone, attachment.tick(kStart + milliseconds(6999), {}));
  EXPECT_EQ(Action::kRelease, attachment.tick(kStart + seconds(7), {}));
}

TEST(Attachment, SixteenMalformedRecordsEndIt) {
  Attachment attachment = in(State::kActive);
  for (int i = 0; i < 15; ++i) EXPECT_EQ(Action::kNone, attachment.malformed(kStart));
  EXPECT_EQ(Action::kRelease, attachment.malformed(kStart));
  EXPECT_EQ(Action::kNone, attachment.tick(kStart + seconds(100), {}))
      << "a wrong draft is not probed";
}

TEST(Attachment, BusyPausesAskingAndIsNoMiss) {
  Attachment attachment = in(State::kActive);
  attachment.asked(Epoch{2}, 4, kStart);
  attachment.busy(kStart, milliseconds(250));
  EXPECT_FALSE(attachment.may_ask(kStart + milliseconds(249)));
  EXPECT_TRUE(attachment.may_ask(kStart + milliseconds(250)));
  EXPECT_EQ(Action::kNone, attachment.tick(kStart + milliseconds(200), {}));
  EXPECT_EQ(State::kActive, attachment.state());
  EXPECT_FALSE(attachment.is_under_way());
}

// A draft without a place for it: BUSY to each ATTACH, and NEED to what comes after it.
TEST(Attachment, ADraftWithoutAPlaceIsAskedAgainAfterASecondAndNotReported) {
  Attachment attachment = in(State::kOpening);
  TimePoint now = kStart;
  for (int i = 0; i < 20; ++i) {
    attachment.busy(now, milliseconds(250));
    EXPECT_EQ(attachment.needs_everything(now, {}), Action::kReleaseBusy) << i;
    EXPECT_EQ(attachment.tick(now + milliseconds(999), {}), Action::kNone) << i;
    now += seconds(1);
    EXPECT_EQ(attachment.tick(now, {}), Action::kSendAttach) << i;
  }
  attachment.busy(now, seconds(3));
  EXPECT_EQ(attachment.needs_everything(now, {}), Action::kReleaseBusy);
  EXPECT_EQ(attachment.tick(now + milliseconds(2999), {}), Action::kNone)
      << "the pause it asked for";
  EXPECT_EQ(attachment.tick(now + seconds(3), {}), Action::kSendAttach);
  EXPECT_EQ(attachment.needs_everything(now + seconds(3), {}), Action::kSendAttach)
      << "not busy this time";
}

TEST(Attachment, ADraftThatWasOnlyBusyIsNotReportedHoweverLateItIsAsked) {
  Attachment opening = in(State::kOpening);
  opening.busy(kStart, milliseconds(250));
  EXPECT_EQ(opening.tick(kStart + seconds(10), {}), Action::kReleaseBusy);
  EXPECT_EQ(opening.tick(kStart + seconds(11), {}), Action::kSendAttach);
  EXPECT_EQ(opening.tick(kStart + seconds(13), {}), Action::kRelease) << "no answer this time";
}

TEST(Attachment, ADraftThatFallsSilentAfterBusyIsReported) {
  Attachment attachment = in(State::kActive);
  attachment.busy(kStart, milliseconds(250));
  TimePoint now = kStart + milliseconds(250);
  attachment.asked(Epoch{2}, 4, now);
  auto action = Action::kNone;
  while (action == Action::kNone && now < kStart + seconds(60))
    action = attachment.tick(now += milliseconds(50), {});
  EXPECT_EQ(action, Action::kRelease);
}

TEST(Attachment, AUsableRecordEndsBusy) {
  Attachment attachment = in(State::kOpening);
  attachment.busy(kStart, milliseconds(250));
  attachment.answered(Epoch{0}, kStart + milliseconds(300));
  EXPECT_EQ(attachment.needs_everything(kStart + milliseconds(301), {}), Action::kSendAttach);
}

// A draft that answers NEED to everything, every millisecond: how often is it sent the prompt?
TEST(Attachment, ADraftThatAlwaysNeedsEverythingIsSentItAFewTimesAndLetGo) {
  Attachment attachment = in(State::kActive);
  int n_sent = 0;
  TimePoint now = kStart;
  while (attachment.is_attached() && now < kStart + seconds(60)) {
    n_sent += attachment.needs_everything(now, {}) == Action::kSendAttach;
    now += milliseconds(1);
  }
  EXPECT_EQ(n_sent, 8);
  EXPECT_EQ(attachment.state(), State::kDetached);
  EXPECT_GT(now, kStart + seconds(2)) << "an honest draft has time to come round";
  EXPECT_LT(now, kStart + seconds(10));
  // Probed later, it has one more chance each time.
  EXPECT_EQ(attachment.tick(now + seconds(3), {}), Action::kSendAttach);
  EXPECT_EQ(attachment.needs_everything(now + seconds(3), {}), Action::kRelease);
}

TEST(Attachment, TheFirstNeedIsAnsweredAtOnceAndOneAfterAUsableRecordSoon) {
  Attachment attachment = in(State::kActive);
  EXPECT_EQ(attachment.needs_tail(kStart), Action::kSendPropose);
  EXPECT_EQ(attachment.needs_tail(kStart + milliseconds(1)), Action::kNone);
  EXPECT_EQ(attachment.needs_tail(kStart + milliseconds(20)), Action::kSendPropose);
  EXPECT_EQ(attachment.needs_tail(kStart + milliseconds(59)), Action::kNone) << "twice as long";
  EXPECT_EQ(attachment.needs_tail(kStart + milliseconds(60)), Action::kSendPropose);
  attachment.answered(Epoch{1}, kStart + milliseconds(61));
  for (int i = 0; i < 100; ++i) {  // usable between: for ever, if not at each step
    const TimePoint now = kStart + milliseconds(200 + 20 * i);
    EXPECT_EQ(attachment.needs_everything(now, {}), Action::kSendAttach) << i;
    EXPECT_EQ(attachment.needs_everything(now + milliseconds(19), {}), Action::kNone) << i;
    attachment.answered(Epoch{1}, now + milliseconds(19));
  }
  attachment.assigned(kStart + seconds(5), {});
  EXPECT_EQ(attachment.needs_everything(kStart + seconds(5), {}), Action::kSendAttach)
      << "another draft, another account";
}

TEST(Attachment, ARefusedSequenceIsNotTriedThereAgain) {
  Attachment attachment = in(State::kOpening);
  EXPECT_EQ(attachment.refused(kStart), Action::kLeave);
  EXPECT_EQ(attachment.tick(kStart + seconds(60), {}), Action::kNone);
  EXPECT_EQ(attachment.refused(kStart), Action::kNone);
}

TEST(Attachment, KnowsWhetherItsLastQuestionIsOpen) {
  Attachment attachment = in(State::kActive);
  EXPECT_FALSE(attachment.is_under_way());
  attachment.asked(Epoch{2}, 4, kStart);
  attachment.asked(Epoch{3}, 4, kStart + milliseconds(5));
  attachment.answered(Epoch{2}, kStart + milliseconds(6));
  EXPECT_TRUE(attachment.is_under_way()) << "an answer to the question before";
  attachment.answered(Epoch{3}, kStart + milliseconds(9));
  EXPECT_FALSE(attachment.is_under_way());
}

TEST(Attachment, AnAnswerToNoQuestionOfOursDoesNotClaimTheFuture) {
  Attachment attachment = in(State::kActive);
  attachment.answered(Epoch{1000}, kStart);
  attachment.asked(Epoch{2}, 4, kStart);
  EXPECT_TRUE(attachment.is_under_way());
}

}  // namespace
}  // namespace foretoken
