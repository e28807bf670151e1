#include "services/router/metrics_questions.h"

#include <gmock/gmock.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::IsEmpty;

class MetricsQuestionsTest : public testing::Test {
 protected:
  static constexpr WorkerId kTarget{1}, kTokenizer{2};
  static constexpr RequestId kAskedId{0, 7}, kOwn{0, 99};
  void SetUp() override {
    join(kTarget, wire::Role::kTarget);
    join(kTokenizer, wire::Role::kTokenizer);
  }
  void join(WorkerId id, wire::Role role) {
    wire::Header header;
    header.sender = id;
    header.incarnation = Incarnation{1};
    pool.hello(header, {.socket = 1, .routing = std::to_string(id.value)},
               {.role = role, .name = "w" + std::to_string(id.value), .model_name = "m"}, now);
  }
  // Returns the services that were asked.
  std::set<WorkerId> submit(MetricsAsked what, RequestId own = kOwn) {
    questions.submit({.peer = {.socket = 2, .routing = "c"}, .id = kAskedId, .what = what}, own,
                     "router_up 1\n", now, out);
    std::set<WorkerId> asked;
    for (const Action& action : out)
      if (const auto* to = std::get_if<ToWorker>(&action)) {
        EXPECT_EQ(std::get<wire::MetricsRequest>(to->message).passes,
                  what == MetricsAsked::kPasses);
        asked.insert(to->worker);
      }
    return asked;
  }
  void reply(WorkerId from, const std::string& text, RequestId own = kOwn) {
    questions.on_reply(*pool.find(from), own, {.text = text}, out);
  }
  // What the client was told since this was asked last.
  template <class A>
  std::optional<A> answered() {
    std::optional<A> answer;
    for (const Action& action : std::exchange(out, {}))
      if (const auto* to = std::get_if<ToClient>(&action)) {
        EXPECT_FALSE(answer) << "one answer";
        EXPECT_EQ(to->request, kAskedId);
        answer = std::get<A>(to->answer);
      }
    return answer;
  }

  TimePoint now = TimePoint{} + seconds(1000);
  Pool pool{seconds(1000)};
  MetricsQuestions questions{pool};
  Actions out;
};

TEST_F(MetricsQuestionsTest, AreAnsweredOnceAllServicesHaveSpoken) {
  EXPECT_EQ(submit(MetricsAsked::kMetrics), (std::set{kTarget, kTokenizer}));
  reply(kTarget, "target_up 1\n");
  EXPECT_FALSE(answered<wire::MetricsText>());
  reply(kTarget, "target_up 2\n");
  EXPECT_FALSE(answered<wire::MetricsText>()) << "a second reply of one is no other's";
  reply(kTokenizer, "tokenizer_up 1\n");
  const auto answer = answered<wire::MetricsText>();
  ASSERT_TRUE(answer);
  for (const char* line : {"router_up 1\n", "target_up 1\n", "tokenizer_up 1\n"})
    EXPECT_THAT(answer->metrics_text, HasSubstr(line));
}

TEST_F(MetricsQuestionsTest, ForPassesGoToServicesThatHaveSome) {
  EXPECT_EQ(submit(MetricsAsked::kPasses), std::set{kTarget});
  reply(kTarget, "");
  const auto answer = answered<wire::PassesReply>();
  ASSERT_TRUE(answer);
  ASSERT_EQ(answer->passes.size(), 1u);
  EXPECT_EQ(answer->passes[0].name, "w1");
  EXPECT_EQ(answer->passes[0].role, "target");
}

TEST_F(MetricsQuestionsTest, AreAnsweredWithoutTheSilentWhenTheirTimeIsOver) {
  submit(MetricsAsked::kMetrics);
  reply(kTarget, "target_up 1\n");
  EXPECT_EQ(questions.tick(now, out), now + milliseconds(500));
  EXPECT_FALSE(answered<wire::MetricsText>());
  now += milliseconds(500);
  questions.tick(now, out);
  const auto answer = answered<wire::MetricsText>();
  ASSERT_TRUE(answer);
  EXPECT_THAT(answer->metrics_text, HasSubstr("target_up 1\n"));
  EXPECT_EQ(questions.tick(now, out), TimePoint::max()) << "none is left";
}

TEST_F(MetricsQuestionsTest, HaveOfAServiceThatIsLateWhatItSaidLast) {
  const auto answer_without_target = [&](std::uint64_t own) {
    submit(MetricsAsked::kMetrics, {0, own});
    reply(kTokenizer, "tokenizer_up 1\n", {0, own});
    now += milliseconds(500);
    questions.tick(now, out);
    return answered<wire::MetricsText>().value().metrics_text;
  };
  EXPECT_THAT(answer_without_target(1), testing::Not(HasSubstr("target_up")));
  reply(kTarget, "target_up 7\n", {0, 1});  // after the answer
  EXPECT_THAT(answer_without_target(2), HasSubstr("target_up 7\n"));
  pool.find(kTarget)->incarnation = Incarnation{2};
  EXPECT_THAT(answer_without_target(3), testing::Not(HasSubstr("target_up")));
  pool.find(kTarget)->incarnation = Incarnation{1};
  questions.worker_lost(kTarget, out);
  EXPECT_THAT(answer_without_target(4), testing::Not(HasSubstr("target_up")));
}

TEST_F(MetricsQuestionsTest, WaitForNoServiceThatIsGone) {
  submit(MetricsAsked::kMetrics);
  reply(kTarget, "target_up 1\n");
  answered<wire::MetricsText>();
  questions.worker_lost(kTokenizer, out);
  EXPECT_TRUE(answered<wire::MetricsText>());
}

TEST_F(MetricsQuestionsTest, OfNoServiceAreAnsweredAtOnce) {
  Pool empty{seconds(1000)};
  MetricsQuestions alone{empty};
  alone.submit({.peer = {.socket = 2, .routing = "c"}, .id = kAskedId}, kOwn, "router_up 1\n", now,
               out);
  const auto answer = answered<wire::MetricsText>();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->metrics_text, "router_up 1\n");
}

TEST_F(MetricsQuestionsTest, AreRefusedBeyondSoManyAtATime) {
  for (std::uint64_t i = 0; i < 64; ++i) {
    ASSERT_TRUE(questions.has_room());
    submit(MetricsAsked::kMetrics, {1, i});
  }
  EXPECT_FALSE(questions.has_room());
  out.clear();
  EXPECT_THAT(submit(MetricsAsked::kMetrics), IsEmpty());
  const auto error = answered<wire::ClientError>();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->error.code, "queue_full");
}

}  // namespace
}  // namespace foretoken
