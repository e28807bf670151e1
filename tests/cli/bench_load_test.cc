// The load of bench at a door whose system goes away.
#include "services/cli/bench_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <initializer_list>
#include <map>

#include "common/wire/client_codec.h"

namespace foretoken::cli {
namespace {

using testing::HasSubstr;

wire::ClientError error_of(ErrorCode code, std::uint32_t retry_after_ms = 0) {
  return wire::client_error({}, {code, "gone"}, retry_after_ms);
}

// Answers each request with what `answer_to` makes of its number.
class FakeDoor final : public BenchDoor {
 public:
  using Answer = std::variant<wire::ClientAnswer, Error>;
  explicit FakeDoor(std::function<Answer(std::size_t)> answer_to)
      : answer_to_(std::move(answer_to)) {}

  std::string name() const override { return "fake"; }
  Result<void> send(std::size_t request, wire::ClientRequest) override {
    sent.push_back(request);
    Answer answer = answer_to_(request);
    if (auto* error = std::get_if<Error>(&answer)) return *error;
    news_.push_back({request, std::get<wire::ClientAnswer>(std::move(answer))});
    return {};
  }
  std::optional<Result<BenchNews>> next(TimePoint) override {
    if (news_.empty()) return std::nullopt;
    BenchNews first = std::move(news_.front());
    news_.pop_front();
    return Result<BenchNews>(std::move(first));
  }
  void forget(std::size_t) override {}

  std::vector<std::size_t> sent;

 private:
  std::function<Answer(std::size_t)> answer_to_;
  std::deque<BenchNews> news_;
};

BenchSamples run_at(FakeDoor& door, std::size_t concurrency) {
  BenchLoad load{.prompts = {{"a", {}}}, .n_requests = 8, .concurrency = concurrency};
  load.base.timeout_ms = 60'000;
  return run_load(door, load);
}

TEST(BenchLoad, SendsNothingMoreWhenNoServiceTakesARequest) {
  FakeDoor door([](std::size_t request) -> FakeDoor::Answer {
    if (request < 2) return wire::ClientReply{};
    return Error{ErrorCode::kUnavailable, "no router answers"};
  });
  const BenchSamples samples = run_at(door, 1);
  EXPECT_THAT(door.sent, testing::ElementsAre(0, 1, 2));
  EXPECT_TRUE(samples.unreachable);
  EXPECT_EQ(2U, samples.n_done());
  EXPECT_EQ(1U, samples.n_failed);
  EXPECT_EQ("no router answers", samples.first_error);
}

TEST(BenchLoad, WaitsForWhatIsUnderWayAtAServiceThatDrains) {
  // As a router says it, as the HTTP door does, and of a router that is not there.
  for (const auto& gone : {error_of(ErrorCode::kDraining, 1000), error_of(ErrorCode::kDraining),
                           error_of(ErrorCode::kUnavailable)}) {
    FakeDoor door([&](std::size_t request) -> FakeDoor::Answer {
      if (request == 1) return gone;
      return wire::ClientReply{};
    });
    const BenchSamples samples = run_at(door, 4);
    EXPECT_TRUE(samples.unreachable);
    EXPECT_EQ(1U, samples.n_failed);
    EXPECT_EQ(door.sent.size(), samples.n_done() + samples.n_failed);
    EXPECT_EQ(5U, door.sent.size());  // the first answer had made room for one
    EXPECT_THAT(samples.first_error, HasSubstr("gone"));
  }
}

TEST(BenchLoad, GoesOnAfterAnErrorOfOneRequest) {
  FakeDoor door([](std::size_t request) -> FakeDoor::Answer {
    if (request == 1) return error_of(ErrorCode::kInternal);
    if (request == 2) return error_of(ErrorCode::kUnavailable, 1000);  // a target was lost
    return wire::ClientReply{};
  });
  const BenchSamples samples = run_at(door, 1);
  EXPECT_FALSE(samples.unreachable);
  EXPECT_EQ(6U, samples.n_done());
}

TEST(BenchSamplesSum, IsUnreachableWhereOnePassWas) {
  BenchSamples sum, gone;
  gone.unreachable = true;
  add(sum, gone);
  add(sum, {});
  EXPECT_TRUE(sum.unreachable);
}

TEST(BenchSamplesSum, HasProcessorTimeOfAllPassesOrNone) {
  const auto summed = [](std::initializer_list<std::map<std::string, double>> passes) {
    BenchSamples sum;
    for (const auto& seconds : passes) {
      BenchSamples pass;
      pass.records.resize(1);
      pass.processor_seconds = seconds;
      add(sum, pass);
    }
    return sum.processor_seconds;
  };
  using testing::ElementsAre, testing::IsEmpty, testing::Pair;
  EXPECT_THAT(summed({{{"a", 2}, {"b", 1}}, {{"a", 3}, {"b", 1}}}),
              ElementsAre(Pair("a", 5), Pair("b", 2)));
  EXPECT_THAT(summed({{{"a", 2}}, {}}), IsEmpty());
  EXPECT_THAT(summed({{}, {{"a", 2}}}), IsEmpty());
  EXPECT_THAT(summed({{{"a", 2}}, {}, {{"a", 2}}}), IsEmpty());
  EXPECT_THAT(summed({{{"a", 2}}, {{"a", 2}, {"b", 1}}}), IsEmpty()) << "b was there in one only";
}

}  // namespace
}  // namespace foretoken::cli
