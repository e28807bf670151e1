// Each rule of the history checker lets good histories pass and catches what breaks it.
#include "tests/simulation/history.h"

#include <gmock/gmock.h>

namespace foretoken::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Sight asked(const std::string& id, std::size_t connection = 1) {
  return {.connection = connection, .what = Saw::kAsked, .id = id};
}
Sight piece(const std::string& id, std::vector<TokenId> ids, const std::string& text) {
  return {.connection = 1, .what = Saw::kPiece, .id = id, .ids = std::move(ids), .text = text};
}
Sight reply(const std::string& id,
            std::vector<TokenId> ids,
            const std::string& text,
            std::uint32_t n_tokens,
            std::size_t connection = 1) {
  return {.connection = connection,
          .what = Saw::kReply,
          .id = id,
          .ids = std::move(ids),
          .text = text,
          .finish_reason = "length",
          .completion_tokens = n_tokens};
}
Sight error(const std::string& id, const std::string& code) {
  return {.connection = 1, .what = Saw::kError, .id = id, .code = code};
}

// A whole answer, a stream of two pieces, a refusal.
History good() {
  return {.promises = {{.id = "a",
                        .ids = {1, 2, 3},
                        .text = "abc",
                        .finish_reason = "length",
                        .errors = {"unavailable"}},
                       {.id = "s",
                        .is_stream = true,
                        .ids = {1, 2, 3, 4},
                        .text = "abcd",
                        .finish_reason = "length"},
                       {.id = "bad", .refusal = "invalid_value", .errors = {"unavailable"}}},
          .sights = {asked("a"), asked("s"), asked("bad"), error("bad", "invalid_value"),
                     piece("s", {1}, "a"), reply("a", {1, 2, 3}, "abc", 3),
                     piece("s", {2, 3}, "bc"), reply("s", {4}, "d", 4)}};
}

Promise& promise_of(History& history, const std::string& id) {
  for (Promise& promise : history.promises)
    if (promise.id == id) return promise;
  std::abort();
}
Sight& last(History& history) { return history.sights.back(); }
void forget_first(History& history, const std::string& id, Saw what) {
  for (auto it = history.sights.begin(); it != history.sights.end(); ++it)
    if (it->id == id && it->what == what) {
      history.sights.erase(it);
      return;
    }
}

auto complains_of(const std::string& what) { return testing::Contains(HasSubstr(what)); }

TEST(History, OfAGoodRunBreaksNoRule) { EXPECT_THAT(violations(good()), IsEmpty()); }

// In the first piece and in none after it.
TEST(History, CatchesLogProbabilitiesOfAPromptThatAreWrongMissingOrTwice) {
  const std::vector<wire::LogprobEntry> prompt{{.token_id = 7}, {.token_id = 8, .logprob = -1.5}};
  History history = good();
  promise_of(history, "s").prompt = prompt;
  EXPECT_THAT(violations(history), complains_of("log-probabilities of 0 tokens of the prompt"));
  Sight& first = history.sights[4];
  first.prompt = prompt;
  EXPECT_THAT(violations(history), IsEmpty());
  first.prompt[1].logprob = -1.25;
  EXPECT_THAT(violations(history), complains_of("log-probabilities of 2 tokens of the prompt"));
  first.prompt = prompt;
  history.sights[6].prompt = prompt;
  EXPECT_THAT(violations(history), complains_of("log-probabilities of 2 tokens of the prompt"));
}

TEST(History, CatchesAnAnswerThatNobodyAskedFor) {
  History history = good();
  history.sights.push_back(reply("x", {1}, "a", 1));
  EXPECT_THAT(violations(history), ElementsAre(HasSubstr("nobody asked for this id")));
  history = good();
  history.sights.push_back(reply("a", {1, 2, 3}, "abc", 3, 2));
  EXPECT_THAT(violations(history), ElementsAre(HasSubstr("not asked over this connection")));
}

TEST(History, CatchesASecondEnd) {
  History history = good();
  history.sights.push_back(reply("a", {1, 2, 3}, "abc", 3));
  EXPECT_THAT(violations(history), ElementsAre(HasSubstr("more ends than asks")));
  history = good();
  history.sights.push_back(error("bad", "invalid_value"));
  EXPECT_THAT(violations(history), ElementsAre(HasSubstr("more ends than asks")));
}

TEST(History, AllowsAnEndForEachAskAndOneForSeveral) {
  History history = good();
  history.sights.push_back(asked("a"));
  EXPECT_THAT(violations(history), IsEmpty());
  history.sights.push_back(reply("a", {1, 2, 3}, "abc", 3));
  last(history).position = last(history).offset = 0;
  EXPECT_THAT(violations(history), IsEmpty());
}

// The end of what was cancelled waited in a full queue, and the answer given again went before it.
TEST(History, AllowsTheEndOfAnEarlierTellingAfterALaterOne) {
  History history = good();
  promise_of(history, "s").may_be_cut = true;
  history.sights.push_back(asked("s"));
  history.sights.push_back(reply("s", {}, "", 4));
  last(history).position = last(history).offset = 4;
  last(history).finish_reason = "cancelled";
  EXPECT_THAT(violations(history), IsEmpty());
}

TEST(History, AllowsAnotherConnectionToTakeTheAnswerOver) {
  History history = good();
  forget_first(history, "a", Saw::kReply);
  history.sights.push_back(asked("a", 2));
  history.sights.push_back(reply("a", {1, 2, 3}, "abc", 3, 2));
  EXPECT_THAT(violations(history), IsEmpty());
}

TEST(History, CatchesARequestWithoutAnEnd) {
  History history = good();
  forget_first(history, "a", Saw::kReply);
  EXPECT_THAT(violations(history), ElementsAre(HasSubstr("request a has no end")));
  promise_of(history, "a").is_abandoned = true;
  EXPECT_THAT(violations(history), IsEmpty());
}

TEST(History, DoesNotTakeAnErrorThatInvitesToAskAgainForTheEnd) {
  History history = good();
  forget_first(history, "a", Saw::kReply);
  history.sights.push_back(error("a", "unavailable"));
  EXPECT_THAT(violations(history), ElementsAre(HasSubstr("request a has no end")));
  history.sights.push_back(asked("a"));
  history.sights.push_back(reply("a", {1, 2, 3}, "abc", 3));
  EXPECT_THAT(violations(history), IsEmpty());
}

TEST(History, CatchesTokensAfterTheEnd) {
  History history = good();
  history.sights.push_back(piece("s", {4}, "d"));
  EXPECT_THAT(violations(history), ElementsAre(HasSubstr("a piece after the end")));
}

TEST(History, CatchesAPositionTwice) {
  History history = good();
  history.sights.insert(history.sights.end() - 1, piece("s", {2, 3}, "bc"));
  EXPECT_THAT(violations(history), complains_of("tokens from position 3 are not those of plain"));
}

TEST(History, CatchesAMissingPosition) {
  History history = good();
  forget_first(history, "s", Saw::kPiece);
  EXPECT_THAT(violations(history), complains_of("tokens from position 0 are not those of plain"));
}

TEST(History, CatchesPositionsOutOfOrder) {
  History history = good();
  std::swap(history.sights[4], history.sights[6]);
  EXPECT_THAT(violations(history), complains_of("tokens from position 0 are not those of plain"));
}

TEST(History, CatchesAPartThatSaysAnotherPlace) {
  History history = good();
  history.sights[4].position = history.sights[4].offset = 0;
  history.sights[6].position = history.sights[6].offset = 1;
  EXPECT_THAT(violations(history), IsEmpty());
  history.sights[6].position = 1;
  history.sights[6].offset = 0;
  EXPECT_THAT(violations(history), complains_of("begins at position 1, byte 0 where 1, 1 is due"));
}

TEST(History, CatchesAnAnswerThatLacksAPartAndAllowsAnErrorInstead) {
  History history = good();
  history.sights[4].position = history.sights[4].offset = 0;
  history.sights[6] = piece("s", {3}, "c");
  history.sights[6].position = history.sights[6].offset = 2;
  last(history).position = last(history).offset = 3;
  EXPECT_THAT(violations(history), complains_of("begins at position 3, byte 3 where 1, 1 is due"));
  last(history) = error("s", "cancelled");
  promise_of(history, "s").errors = {"cancelled"};
  EXPECT_THAT(violations(history), ElementsAre("request s has no end"));
  history.sights.push_back(asked("s"));
  history.sights.push_back(reply("s", {1, 2, 3, 4}, "abcd", 4));
  last(history).position = last(history).offset = 0;
  EXPECT_THAT(violations(history), IsEmpty());
}

TEST(History, LetsAnErrorOfAnEarlierAskComeInTheMiddleOfALaterTelling) {
  History history = good();
  promise_of(history, "s").errors = {"cancelled"};
  history.sights.insert(history.sights.begin() + 2, asked("s"));
  history.sights.insert(history.sights.end() - 1, error("s", "cancelled"));
  EXPECT_THAT(violations(history), IsEmpty());
  history.sights.insert(history.sights.end() - 1, error("s", "cancelled"));
  EXPECT_THAT(violations(history),
              ElementsAre(HasSubstr("more ends than asks"), "request s has no end"));
}

TEST(History, AllowsAStreamThatWasAskedAgainToBeginAnewOnce) {
  History history = good();
  Sight again = piece("s", {1, 2, 3}, "abc");
  again.position = again.offset = 0;
  history.sights[6] = again;
  EXPECT_THAT(violations(history), complains_of("begins at position 0, byte 0 where 1, 1 is due"));
  history.sights.insert(history.sights.begin() + 6, asked("s"));
  EXPECT_THAT(violations(history), IsEmpty());
  history.sights.insert(history.sights.end() - 1, again);
  EXPECT_THAT(violations(history), complains_of("begins at position 0, byte 0 where 3, 3 is due"));
}

TEST(History, CatchesAnotherTokenAndAnotherLetter) {
  History history = good();
  last(history).ids = {5};
  EXPECT_THAT(violations(history), complains_of("tokens from position 3 are not those of plain"));
  history = good();
  last(history).text = "x";
  EXPECT_THAT(violations(history), complains_of("text from byte 3 is not that of plain"));
}

TEST(History, CatchesAnAnswerThatIsTooShortOrTooLong) {
  History history = good();
  last(history) = reply("s", {}, "", 3);
  EXPECT_THAT(violations(history), complains_of("it ended after 3 tokens and 3 bytes"));
  history = good();
  last(history) = reply("s", {4, 5}, "de", 5);
  EXPECT_THAT(violations(history), complains_of("tokens from position 3 are not those of plain"));
  history = good();
  last(history).text = "";
  EXPECT_THAT(violations(history), complains_of("it ended after 4 tokens and 3 bytes"));
}

TEST(History, CatchesUsageAndFinishReasonThatAreNotThoseOfTheAnswer) {
  History history = good();
  last(history).completion_tokens = 3;
  EXPECT_THAT(violations(history), ElementsAre(HasSubstr("usage says 3 tokens of 4")));
  history = good();
  last(history).finish_reason = "stop";
  EXPECT_THAT(violations(history), ElementsAre(HasSubstr("it finished with stop")));
}

TEST(History, AllowsACutAnswerOnlyWhereItWasAskedFor) {
  History history = good();
  last(history) = reply("s", {}, "", 3);
  last(history).position = last(history).offset = 3;
  last(history).finish_reason = "cancelled";
  EXPECT_THAT(violations(history), ElementsAre(HasSubstr("it ended with cancelled")));
  promise_of(history, "s").may_be_cut = true;
  EXPECT_THAT(violations(history), IsEmpty());
  last(history).ids = {7};
  EXPECT_THAT(violations(history), complains_of("are not those of plain"));
  last(history) = error("s", "deadline_exceeded");
  EXPECT_THAT(violations(history), IsEmpty());
}

TEST(History, AllowsACancelToBeAnsweredOnceByItself) {
  const Sight cancel{.connection = 1, .what = Saw::kCancelled, .id = "s"};
  History history = good();
  last(history) = reply("s", {}, "", 3);
  last(history).position = last(history).offset = 3;
  last(history).finish_reason = "cancelled";
  history.sights.insert(history.sights.end() - 1, cancel);
  EXPECT_THAT(violations(history), IsEmpty());
  history.sights.push_back(error("s", "not_found"));
  EXPECT_THAT(violations(history), IsEmpty());
  history.sights.push_back(error("s", "not_found"));
  EXPECT_THAT(violations(history), ElementsAre(HasSubstr("more ends than asks")));
}

TEST(History, CatchesPiecesOfAWholeAnswer) {
  History history = good();
  history.sights.insert(history.sights.begin() + 1, piece("a", {1}, "a"));
  EXPECT_THAT(violations(history), complains_of("asked for whole"));
}

TEST(History, CatchesAnErrorOfTheWrongCode) {
  History history = good();
  history.sights[3].code = "internal";
  EXPECT_THAT(violations(history), complains_of("refused with internal instead of invalid_value"));
  history = good();
  history.sights.insert(history.sights.begin() + 1, error("a", "invalid_value"));
  EXPECT_THAT(violations(history), complains_of("it failed with invalid_value"));
  history = good();
  history.sights[3] = reply("bad", {1}, "a", 1);
  EXPECT_THAT(violations(history), complains_of("an answer to a request that deserves"));
}

TEST(History, CatchesWhatIsLeftBehind) {
  History history = good();
  history.leftovers = {"target-0: 3 blocks held"};
  EXPECT_THAT(violations(history), ElementsAre("left behind: target-0: 3 blocks held"));
}

TEST(History, CatchesTwoRequestsOfOneName) {
  History history = good();
  history.promises.push_back(history.promises.front());
  EXPECT_THAT(violations(history), ElementsAre(HasSubstr("promised twice")));
}

}  // namespace
}  // namespace foretoken::test
