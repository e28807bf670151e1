#include "services/router/placement.h"

#include <gtest/gtest.h>

#include "common/wire/version.h"

namespace foretoken {
namespace {

Worker target(std::uint64_t id,
              std::uint64_t queued_tokens,
              std::uint32_t active = 0,
              std::uint32_t free_blocks = 0) {
  Worker worker;
  worker.id = WorkerId{id};
  worker.hello = {.role = wire::Role::kTarget,
                  .fingerprints = {1, 1, 1, 1},
                  .model_name = "m",
                  .aliases = {"alias", "claude-*"},
                  .max_sequences = 8};
  worker.load = {.active = active, .queued_tokens = queued_tokens, .kv_blocks_free = free_blocks};
  return worker;
}

std::optional<WorkerId> place(const std::vector<Worker>& workers,
                              const TargetNeed& need = {.model = "m"}) {
  std::vector<const Worker*> list;
  for (const Worker& worker : workers) list.push_back(&worker);
  return place_target(list, need);
}

TEST(Placement, FewestQueuedTokensFirst) {
  EXPECT_EQ(WorkerId{2}, place({target(1, 100), target(2, 50), target(3, 70)}));
}

TEST(Placement, CountsWhatWasPlacedSinceTheLastHeartbeat) {
  Worker busy = target(1, 0);
  busy.placed_tokens = 60;
  EXPECT_EQ(WorkerId{2}, place({busy, target(2, 50)}));
}

TEST(Placement, ThenTheEmptiestThenMostFreeBlocksThenTheLowestId) {
  EXPECT_EQ(WorkerId{2}, place({target(1, 0, 4), target(2, 0, 1)}));
  EXPECT_EQ(WorkerId{2}, place({target(1, 0, 1, 10), target(2, 0, 1, 20)}));
  EXPECT_EQ(WorkerId{1}, place({target(2, 0), target(1, 0)}));
}

TEST(Placement, OnlyTargetsOfTheModel) {
  EXPECT_EQ(std::nullopt, place({target(1, 0)}, {.model = "other"}));
  EXPECT_EQ(WorkerId{1}, place({target(1, 0)}, {.model = "m"}));
  EXPECT_EQ(WorkerId{1}, place({target(1, 0)}, {.model = "alias"}));
  EXPECT_EQ(WorkerId{1}, place({target(1, 0)}, {.model = "claude-sonnet-4"}));
  EXPECT_EQ(std::nullopt, place({target(1, 0)}, {.model = ""})) << "never just any";
}

TEST(Placement, AMigrationNeedsEqualFingerprints) {
  Worker other = target(1, 0);
  other.hello.fingerprints.numerics = 2;
  const wire::Hello like = target(9, 0).hello;
  EXPECT_EQ(std::nullopt, place({other}, {.model = "m", .like = &like}));
  EXPECT_EQ(WorkerId{2}, place({other, target(2, 1000)}, {.model = "m", .like = &like}));
}

TEST(Placement, NotTheOneThatJustRefused) {
  const std::vector<WorkerId> first{WorkerId{1}}, both{WorkerId{1}, WorkerId{2}};
  EXPECT_EQ(WorkerId{2}, place({target(1, 0), target(2, 500)}, {.model = "m", .not_these = first}));
  EXPECT_EQ(std::nullopt, place({target(1, 0)}, {.model = "m", .not_these = first}));
  EXPECT_EQ(std::nullopt, place({target(1, 0), target(2, 0)}, {.model = "m", .not_these = both}));
}

// What a pool knows: workers that have said hello and, some of them, that they drain.
class DrainingPool : public testing::Test {
 protected:
  void join(std::uint64_t id, wire::Role role) {
    wire::Hello hello{
        .role = role, .name = std::to_string(id), .fingerprints = {7, 1, 1, 1}, .model_name = "m"};
    pool.hello(header(id), {.socket = 1, .routing = hello.name}, hello, now);
  }
  void drain(std::uint64_t id) {
    now += std::chrono::milliseconds(10);
    pool.heartbeat(header(id), {.socket = 1, .routing = std::to_string(id)}, {.draining = true},
                   now);
  }
  static wire::Header header(std::uint64_t id) {
    wire::Header header;
    header.sender = WorkerId{id};
    header.incarnation = Incarnation{1};
    return header;
  }
  TimePoint now = TimePoint{} + std::chrono::seconds(100);
  Pool pool{std::chrono::seconds(1)};
};

TEST_F(DrainingPool, ATargetThatDrainsTakesWhatWasAcceptedBeforeIfNoOtherWould) {
  join(1, wire::Role::kTarget);
  join(2, wire::Role::kTarget);
  const TimePoint before = now;
  drain(1);
  EXPECT_EQ(WorkerId{2}, place_target(pool, {.model = "m", .accepted = before}));
  const std::vector<WorkerId> full{WorkerId{2}};
  EXPECT_EQ(std::nullopt, place_target(pool, {.model = "m", .not_these = full, .accepted = before}))
      << "the other one would do, later";
  drain(2);
  EXPECT_EQ(WorkerId{1}, place_target(pool, {.model = "m", .accepted = before}));
  EXPECT_EQ(WorkerId{2}, place_target(pool, {.model = "m", .accepted = now}))
      << "accepted after 1 began to drain";
  EXPECT_EQ(std::nullopt,
            place_target(pool, {.model = "m", .accepted = now + std::chrono::seconds(1)}));
}

TEST_F(DrainingPool, ATokenizerThatDrainsServesWhileItIsTheOnlyOne) {
  join(1, wire::Role::kTokenizer);
  drain(1);
  EXPECT_EQ(WorkerId{1}, place_tokenizer(pool, {.vocabulary = 7}, std::nullopt));
  EXPECT_EQ(std::nullopt, place_tokenizer(pool, {.vocabulary = 8}, std::nullopt));
  join(2, wire::Role::kTokenizer);
  EXPECT_EQ(WorkerId{2}, place_tokenizer(pool, {.vocabulary = 7}, std::nullopt));
  EXPECT_EQ(WorkerId{2}, place_tokenizer(pool, {.vocabulary = 7}, WorkerId{2}))
      << "rather than one that leaves";
}

TEST(Placement, ATokenizerOfTheVocabularyAndAnotherThanTheOneThatFailedIfThereIsOne) {
  Worker a, b;
  a.id = WorkerId{1};
  b.id = WorkerId{2};
  a.hello.fingerprints = {.vocabulary = 7, .text = 70};
  b.hello.fingerprints = {.vocabulary = 7, .text = 71};
  const std::vector<const Worker*> both{&a, &b};
  EXPECT_EQ(WorkerId{1}, place_tokenizer(both, {.vocabulary = 7}, std::nullopt));
  EXPECT_EQ(WorkerId{2}, place_tokenizer(both, {.vocabulary = 7}, WorkerId{1}));
  EXPECT_EQ(WorkerId{1},
            place_tokenizer(std::vector<const Worker*>{&a}, {.vocabulary = 7}, WorkerId{1}));
  EXPECT_EQ(std::nullopt, place_tokenizer(both, {.vocabulary = 8}, std::nullopt));
  EXPECT_EQ(WorkerId{2}, place_tokenizer(both, {.vocabulary = 7, .text = 71}, std::nullopt))
      << "another chat template makes another prompt";
}

// ---- requests that name no model

std::vector<const wire::Hello*> pointers(const std::vector<wire::Hello>& models) {
  std::vector<const wire::Hello*> list;
  for (const wire::Hello& model : models) list.push_back(&model);
  return list;
}

TEST(ModelOfARequestWithout, IsTheOnlyOneThereIs) {
  const wire::Hello a = target(1, 0).hello;
  wire::Hello same = a;
  same.model_name = "n";
  const auto one = model_of_request_without(pointers({a, a}), "");
  ASSERT_TRUE(one.ok());
  EXPECT_EQ("m", *one);
  const auto two_names = model_of_request_without(pointers({a, same}), "");
  ASSERT_TRUE(two_names.ok()) << "one model under two names";
  EXPECT_EQ("m", *two_names);
  const auto none = model_of_request_without({}, "");
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value());
}

TEST(ModelOfARequestWithout, IsAnErrorWithAllNamesWhereThereAreSeveral) {
  const wire::Hello a = target(1, 0).hello;
  wire::Hello b = a;
  b.model_name = "big";
  b.fingerprints.model = 9;
  const auto several = model_of_request_without(pointers({a, b, b}), "");
  ASSERT_FALSE(several.ok());
  EXPECT_EQ("model", several.error().param);
  EXPECT_NE(std::string::npos, several.error().message.find(": big, m;"))
      << several.error().message;
  EXPECT_NE(std::string::npos, several.error().message.find("router.default_model"));
}

TEST(ModelOfARequestWithout, IsTheConfiguredOneWhateverTargetsAreThere) {
  const wire::Hello a = target(1, 0).hello;
  for (const auto& models : {std::vector<wire::Hello>{}, std::vector<wire::Hello>{a}}) {
    const auto configured = model_of_request_without(pointers(models), "big");
    ASSERT_TRUE(configured.ok());
    EXPECT_EQ("big", *configured);
  }
}

TEST(ModelOfARequestWithout, IsTheOneThatIsCalledDefault) {
  const wire::Hello a = target(1, 0).hello;
  wire::Hello b = a;
  b.model_name = "big";
  b.aliases = {"default"};
  b.fingerprints.model = 9;
  const auto meant = model_of_request_without(pointers({a, b}), "");
  ASSERT_TRUE(meant.ok());
  EXPECT_EQ("big", *meant);
  b.aliases = {"def*"};
  EXPECT_FALSE(model_of_request_without(pointers({a, b}), "").ok());
  EXPECT_EQ("m", *model_of_request_without(pointers({a, b}), "m"));
}

// ---- drafts of several models

Worker draft(std::uint64_t id, const std::string& drafts_for, Fingerprint vocabulary = 1) {
  Worker worker;
  worker.id = WorkerId{id};
  worker.hello = {.role = wire::Role::kDraft,
                  .name = "draft-" + std::to_string(id),
                  .endpoint = "ipc://draft",
                  .fingerprints = {.vocabulary = vocabulary},
                  .drafts_for = drafts_for};
  return worker;
}

std::vector<std::uint64_t> drafts_used(const std::vector<Worker>& drafts,
                                       std::uint8_t minor = wire::kVersionMinor) {
  std::vector<const Worker*> list;
  for (const Worker& worker : drafts) list.push_back(&worker);
  std::vector<std::uint64_t> ids;
  Worker user = target(1, 0);
  user.minor = minor;
  for (const Worker* used : drafts_of(user, list)) ids.push_back(used->id.value);
  return ids;
}

TEST(DraftsOf, AreThoseOfItsModelAndTheOthersOfItsVocabularyWhereThereAreNone) {
  using Ids = std::vector<std::uint64_t>;
  EXPECT_EQ((Ids{1, 3}), drafts_used({draft(1, "m"), draft(2, "n"), draft(3, "alias")}));
  EXPECT_EQ((Ids{2}), drafts_used({draft(1, "m", 5), draft(2, "n")})) << "another vocabulary";
  EXPECT_EQ((Ids{1, 2}), drafts_used({draft(1, ""), draft(2, "m")})) << "one that does not say";
  EXPECT_EQ((Ids{}), drafts_used({draft(1, "m", 5), draft(2, "n", 5)}));
}

TEST(DraftsOf, AreMemoriesToo) {
  using Ids = std::vector<std::uint64_t>;
  const auto memory = [](std::uint64_t id, Fingerprint vocabulary = 1) {
    Worker worker = draft(id, "", vocabulary);
    worker.hello.source = wire::DraftSource::kMemory;
    return worker;
  };
  EXPECT_EQ((Ids{3, 2}), drafts_used({draft(1, "n"), memory(2), draft(3, "m")}));
  EXPECT_EQ((Ids{1, 2}), drafts_used({draft(1, "n"), memory(2)})) << "it is no model's draft";
  EXPECT_EQ((Ids{}), drafts_used({memory(2, 5)})) << "another vocabulary";
  EXPECT_EQ((Ids{1}), drafts_used({draft(1, "n"), memory(2)}, 5)) << "takes it for a model";
  Worker own = memory(4), other = memory(5);
  own.hello.drafts_for = "m";
  other.hello.drafts_for = "n";
  EXPECT_EQ((Ids{4}), drafts_used({own, other}));
  EXPECT_EQ((Ids{}), drafts_used({other})) << "it would keep texts of a model that it is not for";
}

TEST(WhyNotTogether, IsSaidOfWhatBelongsTogetherAndOfWhatWorksWithNone) {
  const Worker mine = target(1, 0);
  Worker other = target(2, 0);
  other.hello.model_name = "n";
  other.hello.aliases = {};
  other.hello.fingerprints = {2, 2, 2, 2};
  const std::vector<const Worker*> one{&mine}, both{&mine, &other};
  const auto why = [&](const Worker& helper, const std::vector<const Worker*>& targets) {
    return why_not_together(mine.hello, helper.hello, targets);
  };
  EXPECT_EQ("", why(draft(5, "m"), both));
  EXPECT_EQ("", why(draft(5, "n"), both)) << "it would do";
  EXPECT_EQ("", why(draft(5, "n", 2), both)) << "it works with its own model";
  EXPECT_NE("", why(draft(5, "n", 2), one)) << "it works with none";
  EXPECT_NE("", why(draft(5, "m", 2), both)) << "it is meant for this one";
  Worker tokenizer;
  tokenizer.hello = {.role = wire::Role::kTokenizer,
                     .name = "tokenizer-0",
                     .fingerprints = {.vocabulary = 2, .text = 2},
                     .model_name = "n"};
  EXPECT_EQ("", why(tokenizer, both));
  EXPECT_NE("", why(tokenizer, one));
  tokenizer.hello.model_name = "m";
  EXPECT_NE("", why(tokenizer, both));
}

}  // namespace
}  // namespace foretoken
