#include "common/spec/path_cache.h"

#include <gtest/gtest.h>

#include <random>

#include "common/spec/prefix_hash.h"

namespace foretoken {
namespace {

constexpr SeqId kCachedSeq{1}, kOtherSeq{2};
constexpr PrefixHash kCachedRoot = 7;
constexpr TokenId kCachedVocab = 3;  // so few that proposals meet

// Two sequences of a store, and what may happen to them.
struct CachedPath {
  std::mt19937 random{11};
  CommittedTokens text{kCachedRoot, {1}}, other_text{kCachedRoot, {2}};
  ProposalStore store{kCachedVocab};
  Calibration calibration;
  double odds = 1;

  CachedPath() {
    store.open(kCachedSeq, text);
    store.open(kOtherSeq, other_text);
  }
  int draw(int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }
  void insert(SeqId seq, const CommittedTokens& into) {
    Proposal proposal{.base = into.size(), .prefix = into.prefix()};
    proposal.source = draw(2) == 0 ? ProposerKind::kDraft : ProposerKind::kNgram;
    for (int i = draw(5); i >= 0; --i) {
      proposal.tokens.push_back(draw(kCachedVocab));
      proposal.confidences.push_back(static_cast<std::uint8_t>(draw(256)));
    }
    ASSERT_EQ(store.insert(seq, proposal), Insertion::kInserted);
  }
  // What is learnt from it holds for all sequences.
  void commit(SeqId seq, CommittedTokens& into) {
    const Position from = into.size();
    into.append(draw(kCachedVocab));
    if (draw(2) == 0) calibration.observe(store.score(seq, from));
    if (draw(2) == 0) store.drop_committed(seq);
  }
  void change() {
    switch (draw(8)) {
      case 0:
        return commit(kCachedSeq, text);
      case 1:
        odds = 0.25 * (1 + draw(8));
        return;
      case 2:
        insert(kOtherSeq, other_text);
        return commit(kOtherSeq, other_text);
      case 3:
        if (draw(8) > 0) return;
        store.close(kCachedSeq);
        return store.open(kCachedSeq, text);
      default:
        return insert(kCachedSeq, text);
    }
  }
};

TEST(PathCache, SaysWhatTheStoreSaysAfterEveryChange) {
  CachedPath world;
  PathCache cache;
  for (int i = 0; i < 20000; ++i) {
    if (world.draw(3) > 0) world.change();
    const auto n = static_cast<std::uint32_t>(world.draw(4) == 0 ? 2 : 8);
    const auto kept =
        cache.best({.seq = kCachedSeq, .n = n, .odds = world.odds}, world.store, world.calibration);
    ASSERT_EQ(kept, world.store.best_path(kCachedSeq, n, world.calibration, world.odds)) << i;
  }
}

TEST(PathCache, HasNothingNewToSayOfOtherSequencesOrRepetitions) {
  CachedPath world;
  const Proposal proposal{.base = world.text.size(),
                          .prefix = world.text.prefix(),
                          .tokens = {0, 1, 2},
                          .parents = {},
                          .confidences = {9, 8, 7},
                          .source = ProposerKind::kDraft};
  world.store.insert(kCachedSeq, proposal);
  const auto state = world.store.state(kCachedSeq);
  for (int i = 0; i < 10; ++i) world.insert(kOtherSeq, world.other_text);
  world.store.insert(kCachedSeq, proposal);
  world.store.drop_committed(kCachedSeq);
  EXPECT_EQ(world.store.state(kCachedSeq), state);
}

// Two stores that cannot be told apart by their state, though they say different things: a path
// that is worked out anew would be another one.
TEST(PathCache, WorksOutAPathOnlyAfterAChange) {
  CachedPath one, other;
  const auto say = [](CachedPath& world, TokenId token) {
    const Proposal proposal{.base = world.text.size(),
                            .prefix = world.text.prefix(),
                            .tokens = {token, token},
                            .parents = {},
                            .confidences = {200, 200},
                            .source = ProposerKind::kDraft};
    ASSERT_EQ(world.store.insert(kCachedSeq, proposal), Insertion::kInserted);
  };
  say(one, 0);
  say(other, 2);
  ASSERT_EQ(one.store.state(kCachedSeq), other.store.state(kCachedSeq));
  PathCache cache;
  PathQuery query{.seq = kCachedSeq, .n = 8};
  const auto said_by = [&](CachedPath& world) {
    return cache.best(query, world.store, world.calibration).front().token;
  };
  EXPECT_EQ(said_by(one), 0);
  EXPECT_EQ(said_by(other), 0) << "it is kept";
  query.n = 1;
  EXPECT_EQ(said_by(other), 2) << "another length is another question";
  query.n = 8;
  EXPECT_EQ(said_by(one), 0);
  one.text.append(0);
  say(one, 1);
  EXPECT_EQ(said_by(one), 1) << "and forgotten after a change";
}

}  // namespace
}  // namespace foretoken
