// The crown test of the services: whatever the network loses, repeats, delays and reorders,
// whatever crashes and comes back, every request ends exactly once, and its text is that of plain
// decoding.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/simulation/asker.h"
#include "tests/simulation/world.h"

namespace foretoken::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

int within(World& world, int low, int high) {
  return low + static_cast<int>(world.dice()() % static_cast<std::uint64_t>(high - low + 1));
}

wire::ClientRequest random_request(World& world) {
  wire::ClientRequest request;
  const int n = within(world, 1, 60);
  for (int i = 0; i < n; ++i) request.prompt += static_cast<char>('a' + within(world, 0, 25));
  request.params.max_tokens = static_cast<std::uint32_t>(within(world, 1, 120));
  request.given = {"max_tokens", "temperature"};
  request.params.temperature = within(world, 0, 1) == 0 ? 0.0f : 0.9f;
  request.params.ignore_eos = within(world, 0, 1) == 0;
  if (within(world, 0, 1) == 0) {
    request.params.seed = world.dice()();
    request.given.insert("seed");
  }
  if (within(world, 0, 2) == 0)
    request.stop = {std::string(1, static_cast<char>('a' + within(world, 0, 25))) + "b", "cde"};
  request.num_draft_tokens = within(world, -1, 8);
  if (within(world, 0, 4) == 0) request.proposer = ProposerKind::kNgram;
  return request;
}

void expect_all_as_plain(const World& world, const Asker& asker) {
  for (std::size_t i = 0; i < asker.n_asked(); ++i) {
    const Asked& asked = asker.asked(i);
    EXPECT_EQ("", asked.error) << "request " << i;
    EXPECT_EQ(1, asked.n_finals) << "request " << i;
    const auto [ids, text, reason, prompt] = world.reference(asked.request, asked.id);
    EXPECT_EQ(ids, asked.reply.token_ids) << "request " << i;
    EXPECT_EQ(text, asked.reply.text) << "request " << i;
    EXPECT_EQ(ids.size(), asked.reply.usage.completion_tokens) << "request " << i;
  }
}

void start_all(World& world) {
  for (const char* name :
       {"router", "tokenizer-0", "tokenizer-1", "draft-0", "draft-1", "target-0", "target-1"})
    world.start(name);
  world.run_for(seconds(1));
}

TEST(Services, AnswerWithTheTextOfPlainDecodingAndReallySpeculate) {
  World world(1);
  Asker asker(world);
  start_all(world);
  for (int i = 0; i < 20; ++i) asker.ask(random_request(world));
  ASSERT_TRUE(world.run_until([&] { return asker.all_answered(); }, minutes(2)));
  expect_all_as_plain(world, asker);
  std::uint32_t accepted = 0;
  for (std::size_t i = 0; i < asker.n_asked(); ++i)
    accepted += asker.asked(i).reply.metrics.speculative_decoding.num_accepted_draft_tokens;
  EXPECT_GT(accepted, 20u);
  EXPECT_GT(world.sent_beside(), 20u);
}

class Faults : public testing::TestWithParam<std::uint64_t> {
 protected:
  static void remember(const World& world) {
    const World::Counts counts = world.counts();
    seen_.migrated += counts.migrated;
    seen_.replayed += counts.replayed;
    seen_.joined += counts.joined;
    sent_beside_ += world.sent_beside();
    ++n_worlds_;
  }
  // A fault test that met no fault proves nothing.
  static void TearDownTestSuite() {
    if (n_worlds_ < 20) return;  // a filter picked single seeds
    EXPECT_GT(seen_.migrated, 20u);
    EXPECT_GT(seen_.replayed, 50u);
    EXPECT_GT(seen_.joined, 20u);
    EXPECT_GT(sent_beside_, 1000u) << "two ways, or messages change places on one alone";
  }
  static inline World::Counts seen_;
  static inline std::uint64_t sent_beside_ = 0;
  static inline int n_worlds_ = 0;
};

TEST_P(Faults, OfTheNetworkChangeNoText) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  World world(GetParam());
  Asker asker(world);
  start_all(world);
  world.set_faults({.drop = 0.05,
                    .duplicate = 0.05,
                    .min_delay = milliseconds(0),
                    .max_delay = milliseconds(within(world, 0, 30))});
  for (int i = 0; i < 12; ++i) {
    asker.ask(random_request(world));
    world.run_for(milliseconds(within(world, 0, 50)));
  }
  ASSERT_TRUE(world.run_until([&] { return asker.all_answered(); }, minutes(10)));
  expect_all_as_plain(world, asker);
  remember(world);
}

TEST_P(Faults, OfProcessesChangeNoText) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  World world(GetParam());
  Asker asker(world);
  start_all(world);
  world.set_faults({.drop = 0.01,
                    .duplicate = 0.02,
                    .min_delay = milliseconds(0),
                    .max_delay = milliseconds(5)});
  const std::vector<std::string> mortal{"tokenizer-0", "tokenizer-1", "draft-0", "draft-1",
                                        "target-0",    "target-1",    "router"};
  int crashes = 0;
  for (int i = 0; i < 16; ++i) {
    asker.ask(random_request(world));
    world.run_for(milliseconds(within(world, 0, 60)));
    if (within(world, 0, 2) != 0 || crashes >= 3) continue;
    // At most three: a request may move three times, and some crash takes its target each time at
    // worst.
    const std::string& victim =
        mortal[static_cast<std::size_t>(within(world, 0, static_cast<int>(mortal.size()) - 1))];
    world.crash(victim);
    ++crashes;
    world.run_for(milliseconds(within(world, 0, 1500)));
    world.start(victim);
  }
  ASSERT_TRUE(world.run_until([&] { return asker.all_answered(); }, minutes(10)));
  expect_all_as_plain(world, asker);
  remember(world);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Faults, testing::Range<std::uint64_t>(100, 160));

TEST(Services, StartInAnyOrder) {
  for (const auto& order :
       std::vector<std::vector<std::string>>{{"target-0", "draft-0", "tokenizer-0", "router"},
                                             {"draft-0", "router", "target-0", "tokenizer-0"},
                                             {"tokenizer-0", "target-0", "router", "draft-0"}}) {
    World world(7);
    Asker asker(world);
    for (const std::string& name : order) {
      world.start(name);
      world.run_for(milliseconds(700));
    }
    asker.ask(random_request(world));
    ASSERT_TRUE(world.run_until([&] { return asker.all_answered(); }, seconds(10)));
    expect_all_as_plain(world, asker);
  }
}

TEST(Services, ARequestSurvivesWithoutAnyTargetUntilOneComes) {
  World world(8);
  Asker asker(world);
  start_all(world);
  auto request = random_request(world);
  request.stop.clear();
  request.params.max_tokens = 300;
  request.params.ignore_eos = true;
  asker.ask(request);
  world.run_for(milliseconds(20));
  ASSERT_FALSE(asker.all_answered());
  world.crash("target-0");
  world.crash("target-1");
  world.run_for(seconds(20));
  EXPECT_FALSE(asker.all_answered());
  world.start("target-1");
  ASSERT_TRUE(world.run_until([&] { return asker.all_answered(); }, seconds(20)));
  expect_all_as_plain(world, asker);
}

TEST(Services, CancelledRequestsLeaveNothingBehind) {
  World world(9);
  Asker asker(world);
  start_all(world);
  for (int i = 0; i < 10; ++i) {
    auto request = random_request(world);
    request.stop.clear();
    request.params.max_tokens = 300;
    request.params.ignore_eos = true;
    const std::size_t index = asker.ask(request);
    world.run_for(milliseconds(within(world, 1, 15)));
    asker.cancel(index);
  }
  ASSERT_TRUE(world.run_until([&] { return asker.all_answered(); }, seconds(30)));
  for (std::size_t i = 0; i < asker.n_asked(); ++i) {
    const World::Reference plain = world.reference(asker.asked(i).request, asker.asked(i).id);
    EXPECT_TRUE(plain.text.starts_with(asker.asked(i).reply.text))
        << "what was delivered is where plain decoding begins";
  }
}

}  // namespace
}  // namespace foretoken::test
