#include "common/spec/proposal_store.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <utility>

#include "common/spec/prefix_hash.h"

namespace foretoken {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr SeqId kSeq{1};
constexpr PrefixHash kStoreRoot = 99;
constexpr std::int32_t kVocab = 100;
const Calibration kUncalibrated;

// A store with one sequence, and its text.
struct OpenedStore {
  explicit OpenedStore(const std::vector<TokenId>& committed, std::int32_t vocab = kVocab)
      : text(kStoreRoot, committed), store(vocab) {
    store.open(kSeq, text);
  }
  void commit(const std::vector<TokenId>& tokens) {
    for (const TokenId token : tokens) text.append(token);
    store.drop_committed(kSeq);
  }
  CommittedTokens text;
  ProposalStore store;
};

Proposal chain(const std::vector<TokenId>& before,
               std::vector<TokenId> tokens,
               std::uint8_t confidence = 200,
               ProposerKind source = ProposerKind::kDraft) {
  Proposal proposal;
  proposal.base = static_cast<Position>(before.size());
  proposal.prefix = prefix_hash_extend(kStoreRoot, before);
  proposal.confidences.assign(tokens.size(), confidence);
  proposal.tokens = std::move(tokens);
  proposal.source = source;
  return proposal;
}

std::vector<TokenId> path_tokens(const ProposalStore& store, std::uint32_t n) {
  std::vector<TokenId> out;
  for (const PathToken& token : store.best_path(kSeq, n, kUncalibrated)) out.push_back(token.token);
  return out;
}

TEST(ProposalStore, WalksFromTheCommittedPrefix) {
  OpenedStore opened({1, 2});
  ProposalStore& store = opened.store;
  EXPECT_EQ(store.insert(kSeq, chain({1, 2}, {3, 4, 5})), Insertion::kInserted);
  EXPECT_THAT(path_tokens(store, 8), ElementsAre(3, 4, 5));
  EXPECT_THAT(path_tokens(store, 2), ElementsAre(3, 4));
  EXPECT_THAT(path_tokens(store, 0), IsEmpty());
}

TEST(ProposalStore, FollowsTheCommittedTokensAndForgetsWhatLiesBehind) {
  OpenedStore opened({1, 2});
  ProposalStore& store = opened.store;
  store.insert(kSeq, chain({1, 2}, {3, 4, 5}));
  opened.commit({3});
  EXPECT_THAT(path_tokens(store, 8), ElementsAre(4, 5));
  EXPECT_EQ(store.edges(kSeq).size(), 2u);
  opened.commit({9});
  EXPECT_THAT(path_tokens(store, 8), IsEmpty());
  EXPECT_EQ(store.edges(kSeq).size(), 1u);
}

TEST(ProposalStore, ALateProposalStillServesFromWhereTheTextIsNow) {
  OpenedStore opened({1});
  ProposalStore& store = opened.store;
  opened.commit({2, 3});
  EXPECT_EQ(store.insert(kSeq, chain({1}, {2, 3, 4, 5})), Insertion::kInserted);
  EXPECT_THAT(path_tokens(store, 8), ElementsAre(4, 5));
  EXPECT_EQ(store.insert(kSeq, chain({1}, {2, 8, 7, 6})), Insertion::kInserted);
  EXPECT_THAT(path_tokens(store, 8), ElementsAre(4, 5));
}

TEST(ProposalStore, RefusesWhatItCannotPlace) {
  OpenedStore opened({1, 2});
  ProposalStore& store = opened.store;
  EXPECT_EQ(store.insert(SeqId{7}, chain({1, 2}, {3})), Insertion::kUnknownSequence);
  EXPECT_EQ(store.insert(kSeq, chain({1, 2, 3}, {4})), Insertion::kAhead);
  EXPECT_EQ(store.insert(kSeq, chain({2, 1}, {3})), Insertion::kDivergent);
  EXPECT_EQ(store.edges(kSeq).size(), 0u);
}

TEST(ProposalStore, RefusesMalformedRecordsWhole) {
  OpenedStore opened({1, 2});
  ProposalStore& store = opened.store;
  Proposal short_confidences = chain({1, 2}, {3, 4});
  short_confidences.confidences.pop_back();
  Proposal forward_parent = chain({1, 2}, {3, 4});
  forward_parent.parents = {kParentIsBase, 1};
  Proposal short_parents = chain({1, 2}, {3, 4});
  short_parents.parents = {kParentIsBase};
  for (const Proposal& bad :
       {short_confidences, forward_parent, short_parents, chain({1, 2}, {3, kVocab}),
        chain({1, 2}, {3, -1}), chain({1, 2}, std::vector<TokenId>(5000, 3))})
    EXPECT_EQ(store.insert(kSeq, bad), Insertion::kMalformed);
  EXPECT_EQ(store.edges(kSeq).size(), 0u);
}

TEST(ProposalStore, AnEmptyProposalIsHarmless) {
  OpenedStore opened({1});
  ProposalStore& store = opened.store;
  EXPECT_EQ(store.insert(kSeq, chain({1}, {})), Insertion::kInserted);
  EXPECT_THAT(path_tokens(store, 8), IsEmpty());
}

TEST(ProposalStore, ChoosesTheBranchWithMoreExpectedTokens) {
  OpenedStore opened({1});
  ProposalStore& store = opened.store;
  Proposal tree = chain({1}, {10, 20, 21, 22});
  tree.parents = {kParentIsBase, kParentIsBase, 1, 2};
  // 0.6 alone against 0.5 (1 + 0.98 (1 + 0.98)) = 1.47.
  tree.confidences = {153, 128, 250, 250};
  store.insert(kSeq, tree);
  EXPECT_THAT(path_tokens(store, 8), ElementsAre(20, 21, 22));
  EXPECT_THAT(path_tokens(store, 1), ElementsAre(10));
  opened.commit({20});
  EXPECT_THAT(path_tokens(store, 8), ElementsAre(21, 22));
}

TEST(ProposalStore, TheSameEdgeTwiceKeepsTheLargerConfidence) {
  OpenedStore opened({1});
  ProposalStore& store = opened.store;
  store.insert(kSeq, chain({1}, {5}, 100, ProposerKind::kNgram));
  store.insert(kSeq, chain({1}, {5}, 200, ProposerKind::kDraft));
  store.insert(kSeq, chain({1}, {5}, 50, ProposerKind::kPrediction));
  ASSERT_EQ(store.edges(kSeq).size(), 1u);
  EXPECT_EQ(store.best_path(kSeq, 1, kUncalibrated)[0],
            (PathToken{5,
                       200,
                       ProposerKind::kDraft,
                       {ProposerKind::kDraft, ProposerKind::kNgram, ProposerKind::kPrediction}}))
      << "the surest, and all that said it";
}

TEST(ProposalStore, WhatASourceRepeatsIsNoAgreement) {
  OpenedStore opened({1});
  ProposalStore& store = opened.store;
  store.insert(kSeq, chain({1}, {5, 6}, 100));
  store.insert(kSeq, chain({1}, {5, 6}, 100));
  ASSERT_EQ(store.edges(kSeq).size(), 2u);
  for (const auto& edge : store.edges(kSeq)) EXPECT_EQ(edge.sources, ProposerKind::kDraft);
}

TEST(ProposalStore, ScoresWhatTheTextHasPassedWhetherItStoodOrNot) {
  OpenedStore opened({1});
  ProposalStore& store = opened.store;
  store.insert(kSeq, chain({1}, {2, 3, 4, 5}, 200));
  store.insert(kSeq, chain({1}, {2, 8, 9}, 100, ProposerKind::kNgram));
  store.insert(kSeq, chain({1}, {7, 3}, 50, ProposerKind::kNgram));
  EXPECT_THAT(store.score(kSeq, 1), IsEmpty()) << "nothing was committed since";
  for (const TokenId token : {2, 3, 6}) opened.text.append(token);
  const auto draft = [](TokenId token) {
    return PathToken{token, 200, ProposerKind::kDraft, ProposerKind::kDraft};
  };
  const auto ngram = [](TokenId token, std::uint8_t confidence) {
    return PathToken{token, confidence, ProposerKind::kNgram, ProposerKind::kNgram};
  };
  const PathToken both{2, 200, ProposerKind::kDraft, {ProposerKind::kDraft, ProposerKind::kNgram}};
  EXPECT_THAT(store.score(kSeq, 1),
              testing::UnorderedElementsAre(
                  ScoredToken{both, 0, true}, ScoredToken{ngram(7, 50), 0, false},
                  ScoredToken{draft(3), 1, true}, ScoredToken{ngram(8, 100), 1, false},
                  ScoredToken{draft(4), 2, false}))
      << "each chain up to its first miss";
  store.drop_committed(kSeq);
  EXPECT_THAT(store.score(kSeq, 3), IsEmpty()) << "what was dropped is not counted again";
}

// What a source says while nothing of it is verified: whether it would have stood is known once the
// text has gone on.
TEST(ProposalStore, AGoodSourceIsFoundAgainWithoutARow) {
  OpenedStore opened({0});
  Calibration calibration;
  const auto commit_one = [&](bool is_right) {
    const TokenId next = static_cast<TokenId>(opened.text.size() % 50);
    const std::vector<TokenId> before(opened.text.tokens().begin(), opened.text.tokens().end());
    opened.store.insert(kSeq, chain(before, {is_right ? next : next + 1, 60, 61}));
    opened.text.append(next);
    calibration.observe(opened.store.score(kSeq, static_cast<Position>(before.size())));
    opened.store.drop_committed(kSeq);
  };
  const PathToken said{1, 200, ProposerKind::kDraft};
  for (int i = 0; i < 300; ++i) commit_one(false);
  EXPECT_LT(calibration.acceptance(said, 0), 0.05);
  for (int i = 0; i < 200; ++i) commit_one(true);
  EXPECT_GT(calibration.acceptance(said, 0), 0.35);
}

Proposal random_tree(std::mt19937& random, const std::vector<TokenId>& committed) {
  const auto base = static_cast<std::ptrdiff_t>(random() % (committed.size() + 1));
  Proposal tree = chain({committed.begin(), committed.begin() + base}, {});
  const std::size_t n = random() % 12;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t at = static_cast<std::size_t>(base) + i;
    // Often along the committed text, so that late proposals reach beyond it.
    tree.tokens.push_back(at < committed.size() && random() % 4 != 0
                              ? committed[at]
                              : static_cast<TokenId>(random() % 3));
    tree.parents.push_back(i == 0 || random() % 5 == 0
                               ? (random() % 2 == 0 && i > 0
                                      ? static_cast<std::uint16_t>(random() % i)
                                      : kParentIsBase)
                               : static_cast<std::uint16_t>(i - 1));
    tree.confidences.push_back(static_cast<std::uint8_t>(random() % 256));
  }
  tree.source = static_cast<ProposerKind>(1 + random() % 3);
  return tree;
}

TEST(ProposalStore, OrderAndRepetitionChangeNothing) {
  const std::uint32_t seed = 77;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    std::vector<TokenId> committed(random() % 6);
    for (TokenId& token : committed) token = static_cast<TokenId>(random() % 3);
    std::vector<Proposal> proposals;
    for (std::size_t i = 0; i < 8; ++i) proposals.push_back(random_tree(random, committed));
    OpenedStore one(committed);
    ProposalStore& in_order = one.store;
    for (const Proposal& each : proposals)
      ASSERT_EQ(in_order.insert(kSeq, each), Insertion::kInserted);
    auto shuffled = proposals;
    shuffled.insert(shuffled.end(), proposals.begin(),
                    proposals.begin() + static_cast<std::ptrdiff_t>(random() % 9));
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    OpenedStore other(committed);
    ProposalStore& otherwise = other.store;
    for (const Proposal& each : shuffled) otherwise.insert(kSeq, each);
    ASSERT_TRUE(std::ranges::equal(in_order.edges(kSeq), otherwise.edges(kSeq)));
    ASSERT_EQ(in_order.best_path(kSeq, 8, kUncalibrated),
              otherwise.best_path(kSeq, 8, kUncalibrated));
  }
}

TEST(ProposalStore, AFloodStaysWithinTheBoundAndKeepsTheConfident) {
  OpenedStore opened({1}, 1 << 20);
  ProposalStore& store = opened.store;
  store.insert(kSeq, chain({1}, {5, 6, 7}, 255));
  std::mt19937 random(3);
  for (int round = 0; round < 4000; ++round) {
    std::vector<TokenId> noise(8);
    for (TokenId& token : noise) token = static_cast<TokenId>(random() % (1 << 20));
    store.insert(kSeq, chain({1}, noise, static_cast<std::uint8_t>(random() % 200)));
    ASSERT_LE(store.edges(kSeq).size(), ProposalStore::kMaxEdges);
  }
  EXPECT_THAT(path_tokens(store, 8), ElementsAre(5, 6, 7));
}

TEST(ProposalStore, AWalkOverAFullStoreEnds) {
  OpenedStore opened({1});
  ProposalStore& store = opened.store;
  // A complete tree of three tokens a node, deeper than can be stored.
  Proposal tree = chain({1}, {});
  for (std::size_t i = 0; i < ProposalStore::kMaxEdges; ++i) {
    tree.tokens.push_back(static_cast<TokenId>(i % 3));
    tree.parents.push_back(i < 3 ? kParentIsBase : static_cast<std::uint16_t>(i / 3 - 1));
    tree.confidences.push_back(255);
  }
  ASSERT_EQ(store.insert(kSeq, tree), Insertion::kInserted);
  EXPECT_EQ(store.edges(kSeq).size(), ProposalStore::kMaxEdges);
  EXPECT_EQ(path_tokens(store, 32).size(),
            8u);  // 3 + 9 + ... + 3^7 = 3279 edges, the rest begins an eighth level
}

// Nodes 0 and 1 are a chain, 2 comes where 0 is wrong, 3 follows 2.
Proposal with_runner_up(ProposerKind source = ProposerKind::kDraft) {
  Proposal proposal = chain({1}, {3, 4, 5, 6}, 200, source);
  proposal.parents = {kParentIsBase, 0, kParentIsBase, 2};
  return proposal;
}

std::vector<std::pair<TokenId, bool>> runners_up(const ProposalStore& store) {
  std::vector<std::pair<TokenId, bool>> tokens;
  for (const auto& edge : store.edges(kSeq)) tokens.emplace_back(edge.token, edge.is_runner_up);
  std::ranges::sort(tokens);
  return tokens;
}

TEST(ProposalStore, OfSeveralTokensAfterOneTheFirstIsTheGuess) {
  OpenedStore opened({1});
  EXPECT_EQ(opened.store.insert(kSeq, with_runner_up()), Insertion::kInserted);
  EXPECT_THAT(runners_up(opened.store), ElementsAre(std::pair{3, false}, std::pair{4, false},
                                                    std::pair{5, true}, std::pair{6, false}));
}

// In either order of insertion.
TEST(ProposalStore, WhatOneSourceGuessesIsNoRunnerUpOfAnother) {
  for (const bool runner_up_comes_first : {false, true}) {
    OpenedStore opened({1});
    std::vector<Proposal> said{chain({1}, {5}, 100, ProposerKind::kNgram), with_runner_up()};
    if (runner_up_comes_first) std::ranges::reverse(said);
    for (const Proposal& proposal : said) opened.store.insert(kSeq, proposal);
    EXPECT_THAT(runners_up(opened.store), testing::Contains(std::pair{5, false}));
  }
}

TEST(ProposalStore, SaysOfWhatTheTextHasPassedWhetherItWasARunnerUp) {
  OpenedStore opened({1});
  opened.store.insert(kSeq, with_runner_up());
  opened.text.append(5);
  std::vector<std::tuple<TokenId, bool, bool>> scored;
  for (const ScoredToken& each : opened.store.score(kSeq, 1))
    scored.emplace_back(each.token.token, each.token.is_runner_up, each.stood);
  EXPECT_THAT(scored, testing::UnorderedElementsAre(std::tuple{3, false, false},
                                                    std::tuple{5, true, true}));
}

TEST(ProposalStore, KnowsWhatOtherSourcesSay) {
  OpenedStore opened({1});
  opened.store.insert(kSeq, chain({1}, {3, 4, 5}));
  opened.store.insert(kSeq, chain({1}, {3, 6}, 100, ProposerKind::kNgram));
  std::vector<TokenId> tokens;
  for (const PathToken& token :
       opened.store.best_path_without(ProposerKind::kDraft, kSeq, 8, kUncalibrated))
    tokens.push_back(token.token);
  EXPECT_THAT(tokens, ElementsAre(3, 6));
  EXPECT_THAT(path_tokens(opened.store, 8), ElementsAre(3, 4, 5));
}

TEST(ProposalStore, SequencesAreApart) {
  OpenedStore opened({1});
  ProposalStore& store = opened.store;
  store.open(SeqId{2}, opened.text);
  store.insert(kSeq, chain({1}, {5}));
  EXPECT_EQ(store.edges(SeqId{2}).size(), 0u);
  store.close(kSeq);
  EXPECT_FALSE(store.contains(kSeq));
  EXPECT_TRUE(store.contains(SeqId{2}));
}

}  // namespace
}  // namespace foretoken
