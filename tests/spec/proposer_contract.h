// What every proposer owes, whatever it is made of. A test of a new proposer instantiates
// ProposerContract with it. A proposer that answers later (over a wire) brings a `pump` that lets
// its answers arrive.
#pragma once

#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/spec/prefix_hash.h"
#include "common/spec/proposer.h"

namespace foretoken {

struct ProposerCase {
  std::string name;
  std::function<std::unique_ptr<Proposer>()> make;
  std::function<void()> pump = [] {};
};

inline std::ostream& operator<<(std::ostream& out, const ProposerCase& each) {
  return out << each.name;
}

class ProposerContract : public testing::TestWithParam<ProposerCase> {
 protected:
  static constexpr PrefixHash kRoot = prefix_hash_root(1, 2);
  static constexpr std::int32_t kVocab = 50;

  // A text that repeats itself, so that each proposer has something to guess from.
  static std::vector<TokenId> text(std::uint32_t n, TokenId first = 0) {
    std::vector<TokenId> out;
    for (std::uint32_t i = 0; i < n; ++i) out.push_back(first + static_cast<TokenId>(i % 7));
    return out;
  }
  static std::vector<TokenId> part(const std::vector<TokenId>& all,
                                   std::size_t from,
                                   std::size_t n) {
    return {all.begin() + static_cast<std::ptrdiff_t>(from),
            all.begin() + static_cast<std::ptrdiff_t>(from + n)};
  }

  void open(Proposer& proposer,
            ProposalStore& store,
            SeqId seq,
            const std::vector<TokenId>& prompt,
            const std::vector<TokenId>& prediction) {
    texts_.insert_or_assign(seq, CommittedTokens(kRoot, prompt));
    const CommittedTokens& text = texts_.at(seq);
    store.open(seq, text);
    proposer.open({.seq = seq,
                   .text = text,
                   .n_prompt = text.size(),
                   .params = params_,
                   .prediction = prediction});
  }
  // Commits n tokens from `from` on, and asks.
  void ask(Proposer& proposer,
           ProposalStore& store,
           SeqId seq,
           const std::vector<TokenId>& all,
           std::size_t from,
           std::size_t n,
           std::uint32_t budget) {
    for (const TokenId token : part(all, from, n)) texts_.at(seq).append(token);
    store.drop_committed(seq);
    const Ask one{.seq = seq, .budget = budget};
    proposer.ask(std::span<const Ask>(&one, 1));
    GetParam().pump();
    proposer.collect(TimePoint{}, store);
  }

  std::map<SeqId, CommittedTokens> texts_;
  SamplingParams params_;
  Calibration calibration_;
};

TEST_P(ProposerContract, WhatItSaysContinuesTheCommittedTextWithinTheBudget) {
  const auto proposer = GetParam().make();
  const auto all = text(64);
  for (const std::uint32_t budget : {1u, 3u, 8u}) {
    ProposalStore store(kVocab);
    open(*proposer, store, SeqId{1}, part(all, 0, 20), part(all, 20, 44));
    for (std::size_t at = 20; at < 40; at += 3) {
      ask(*proposer, store, SeqId{1}, all, at, 3, budget);
      for (const auto& edge : store.edges(SeqId{1})) {
        EXPECT_LT(edge.position, at + 3 + budget);
        EXPECT_EQ(edge.source, proposer->kind());
        EXPECT_GE(edge.token, 0);
        EXPECT_LT(edge.token, kVocab);
      }
      if (store.edges(SeqId{1}).size() > 0) {
        EXPECT_FALSE(store.best_path(SeqId{1}, budget, calibration_).empty());
      }
    }
    proposer->close(SeqId{1});
  }
}

TEST_P(ProposerContract, ABudgetOfNothingKeepsItQuietAndCurrent) {
  const auto proposer = GetParam().make();
  const auto quiet_then_asked = [&](std::uint32_t early_budget) {
    const auto all = text(64);
    ProposalStore store(kVocab);
    open(*proposer, store, SeqId{1}, part(all, 0, 20), part(all, 20, 44));
    ask(*proposer, store, SeqId{1}, all, 20, 5, early_budget);
    if (early_budget == 0) {
      EXPECT_EQ(store.edges(SeqId{1}).size(), 0u);
    }
    store.open(SeqId{1}, texts_.at(SeqId{1}));  // without what was proposed
    ask(*proposer, store, SeqId{1}, all, 25, 5, 4);
    proposer->close(SeqId{1});
    return std::vector(store.edges(SeqId{1}).begin(), store.edges(SeqId{1}).end());
  };
  EXPECT_EQ(quiet_then_asked(0), quiet_then_asked(4));
}

TEST_P(ProposerContract, HowOftenItIsAskedChangesNothing) {
  const auto proposer = GetParam().make();
  const auto said = [&](bool often) {
    const auto all = text(64);
    ProposalStore store(kVocab);
    open(*proposer, store, SeqId{1}, part(all, 0, 20), part(all, 20, 44));
    if (often) {
      ask(*proposer, store, SeqId{1}, all, 20, 4, 0);
      ask(*proposer, store, SeqId{1}, all, 24, 0, 0);
      ask(*proposer, store, SeqId{1}, all, 24, 4, 0);
    } else {
      ask(*proposer, store, SeqId{1}, all, 20, 8, 0);
    }
    ask(*proposer, store, SeqId{1}, all, 28, 1, 4);
    proposer->close(SeqId{1});
    return std::vector(store.edges(SeqId{1}).begin(), store.edges(SeqId{1}).end());
  };
  EXPECT_EQ(said(false), said(true));
}

TEST_P(ProposerContract, ManyTogetherSayWhatEachSaysAlone) {
  const auto path_of_second = [&](bool alone) {
    const auto proposer = GetParam().make();
    const auto a = text(64), b = text(64, 20);
    ProposalStore store(kVocab);
    if (!alone) open(*proposer, store, SeqId{1}, part(a, 0, 20), part(a, 20, 30));
    open(*proposer, store, SeqId{2}, part(b, 0, 20), part(b, 20, 30));
    if (!alone) ask(*proposer, store, SeqId{1}, a, 20, 2, 5);
    ask(*proposer, store, SeqId{2}, b, 20, 2, 5);
    return store.best_path(SeqId{2}, 5, calibration_);
  };
  EXPECT_EQ(path_of_second(true), path_of_second(false));
}

TEST_P(ProposerContract, SaysNothingOfSequencesThatAreClosedOrUnknown) {
  const auto proposer = GetParam().make();
  const auto all = text(64);
  ProposalStore store(kVocab);
  open(*proposer, store, SeqId{1}, part(all, 0, 20), part(all, 20, 44));
  proposer->close(SeqId{1});
  proposer->close(SeqId{1});
  proposer->close(SeqId{9});
  ask(*proposer, store, SeqId{1}, all, 20, 3, 4);
  EXPECT_EQ(store.edges(SeqId{1}).size(), 0u);
}

TEST_P(ProposerContract, AnswersOfASequenceClosedMeanwhileAreDropped) {
  const auto proposer = GetParam().make();
  const auto all = text(64);
  ProposalStore store(kVocab);
  open(*proposer, store, SeqId{1}, part(all, 0, 20), part(all, 20, 44));
  const Ask one{.seq = SeqId{1}, .budget = 4};
  proposer->ask(std::span<const Ask>(&one, 1));
  proposer->close(SeqId{1});
  GetParam().pump();
  proposer->collect(TimePoint{}, store);
  EXPECT_EQ(store.edges(SeqId{1}).size(), 0u);
}

}  // namespace foretoken
