// Every set of sources with every behaviour: 0 tokens differ from plain decoding. The sets are all
// 16 of draft, n-gram, memory and prediction; all sources of a set behave alike, or one of them
// misbehaves beside honest ones. Draft lengths are fixed and adaptive, several sequences share a
// pass, and a pass is held back for answers as long as the engine says. What each cell must have
// exercised is demanded too, or equality would prove nothing.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/engine/target_engine.h"
#include "common/spec/ngram_proposer.h"
#include "common/spec/prediction_proposer.h"
#include "kernels/include/backend.h"
#include "tests/support/misbehaving_source.h"
#include "tests/support/plain_decode.h"
#include "tests/support/scripted_model.h"

namespace foretoken {
namespace {

constexpr std::array kSources{ProposerKind::kDraft, ProposerKind::kNgram, ProposerKind::kMemory,
                              ProposerKind::kPrediction};
constexpr std::array kBehaviours{Behaviour::kHonest, Behaviour::kMute,       Behaviour::kLying,
                                 Behaviour::kLate,   Behaviour::kDuplicated, Behaviour::kStreaming};
constexpr std::int32_t kIds = 24;
constexpr Position kLongest = 128;
constexpr std::uint32_t kAnswer = 96;
constexpr std::uint64_t kRequests = 4;

std::string_view name_of_behaviour(Behaviour behaviour) {
  return kBehaviourNames[static_cast<std::size_t>(behaviour)];
}

ProposerSet set_of(unsigned number) {
  ProposerSet set;
  for (std::size_t i = 0; i < kSources.size(); ++i)
    if ((number >> i & 1) != 0) set.add(kSources[i]);
  return set;
}

// The requests of all cells, with their answers.
struct Questions {
  ScriptedModel model{{.vocab_size = kIds, .max_model_len = kLongest, .text_seed = 3, .spread = 6}};
  std::unique_ptr<Backend> backend = make_backend({.device = "cpu", .n_threads = 1});
  std::vector<OpenRequest> requests;
  std::vector<std::vector<TokenId>> answers;

  Questions() {
    for (std::uint64_t i = 0; i < kRequests; ++i) {
      OpenRequest request{.seq = SeqId{i + 1}};
      for (std::uint64_t k = 0; k < 6 + 3 * i; ++k)
        request.prompt.push_back(static_cast<TokenId>((k * k + i) % kIds));
      request.params.temperature = i % 2 == 0 ? 0.0f : 0.8f;
      request.params.seed = 100 + i;
      request.params.max_tokens = kAnswer;
      request.params.ignore_eos = true;
      request.draft_len = static_cast<std::uint32_t>(2 + 2 * i);
      request.lookup_len = 12;
      request.length = i < kRequests / 2 ? LengthMode::kFixed : LengthMode::kAdaptive;
      answers.push_back(plain_decode(model, *backend, request, kLongest).ids);
      request.prediction = answers.back();
      for (std::size_t k = 9; k < request.prediction.size(); k += 10)
        request.prediction[k] = (request.prediction[k] + 1) % kIds;
      requests.push_back(std::move(request));
    }
  }
};

// A target with the sources of a set, each with its behaviour.
class Cell {
 public:
  Cell(Questions& questions, ProposerSet set) : questions_(questions), set_(set) {}

  void behave(ProposerKind source, Behaviour behaviour) {
    behaviours_[static_cast<std::size_t>(source)] = behaviour;
  }

  void run() {
    make_sources();
    TargetEngineOptions options;
    options.kv = {.n_blocks = 40, .block_tokens = 8};
    options.max_model_len = kLongest;
    TargetEngine engine(questions_.model, *questions_.backend, proposers_, options);
    TimePoint now{std::chrono::hours(1)};
    for (OpenRequest request : questions_.requests) {
      request.proposers = set_;
      ASSERT_TRUE(engine.open(std::move(request), now).ok());
    }
    std::vector<std::vector<TokenId>> got(kRequests);
    for (int step = 0; engine.has_work(); ++step) {
      ASSERT_LT(step, 2000) << "no progress";
      now = after_waiting(engine, now + std::chrono::milliseconds(1));
      const StepOutput& output = engine.step(now);
      for (const TokensEvent& event : output.tokens) {
        std::vector<TokenId>& into = got.at(event.seq.value - 1);
        into.insert(into.end(), event.tokens.ids.begin(), event.tokens.ids.end());
      }
      engine.record_step_time(std::chrono::microseconds(2000 + 5 * output.n_rows));
    }
    EXPECT_EQ(got, questions_.answers);
    snapshot_ = engine.snapshot();
  }

  // Tokens of a source that were verified and accepted.
  SpecStats::Tally tally(ProposerKind source) const {
    return snapshot_.spec.by_proposer[static_cast<std::size_t>(source)];
  }
  std::uint64_t n_waits() const { return n_waits_; }
  std::uint64_t n_met() const { return n_met_; }  // waits that ended as everything had come
  std::uint64_t n_said(ProposerKind source) const {
    return sources_[static_cast<std::size_t>(source)]->n_said();
  }
  Behaviour behaviour(ProposerKind source) const {
    return behaviours_[static_cast<std::size_t>(source)];
  }

 private:
  // What a target does before a pass: as long as the engine says, what is under way is waited for.
  TimePoint after_waiting(TargetEngine& engine, TimePoint now) {
    constexpr int kLooks = 8;
    const Duration longest = engine.wait_hint(now);
    if (longest == Duration::zero()) return now;
    ++n_waits_;
    for (int look = 0; look < kLooks; ++look) {
      if (engine.proposals_complete(now)) {
        ++n_met_;
        break;
      }
      now += longest / kLooks;
    }
    return now;
  }

  void make_sources() {
    for (Oracle* oracle : {&draft_, &memory_})
      for (std::uint64_t i = 0; i < kRequests; ++i) {
        std::vector<TokenId> text = questions_.requests[i].prompt;
        text.insert(text.end(), questions_.answers[i].begin(), questions_.answers[i].end());
        oracle->set_text(SeqId{i + 1}, std::move(text));
      }
    const std::array<Proposer*, 4> honest{&draft_, &ngram_, &memory_, &prediction_};
    for (Proposer* each : honest) {
      const auto kind = static_cast<std::size_t>(each->kind());
      sources_[kind] =
          std::make_unique<MisbehavingSource>(*each, behaviours_[kind], kIds, 17 + kind);
      proposers_.each.push_back(sources_[kind].get());
    }
    proposers_.watch = sources_[static_cast<std::size_t>(ProposerKind::kDraft)].get();
    proposers_.memory_watch = sources_[static_cast<std::size_t>(ProposerKind::kMemory)].get();
  }

  Questions& questions_;
  ProposerSet set_;
  std::array<Behaviour, kProposerKinds> behaviours_{};
  Oracle draft_{ProposerKind::kDraft, kIds, 5};
  Oracle memory_{ProposerKind::kMemory, kIds, 6};
  NgramProposer ngram_;
  PredictionProposer prediction_;
  std::array<std::unique_ptr<MisbehavingSource>, kProposerKinds> sources_;
  Proposers proposers_;
  TargetSnapshot snapshot_;
  std::uint64_t n_waits_ = 0, n_met_ = 0;
};

// What the cells together did, by source and behaviour.
struct Sum {
  std::uint64_t n_drafted = 0, n_accepted = 0;
  std::uint64_t n_waits = 0, n_met = 0;  // for this source
};
using Sums = std::array<std::array<Sum, kBehaviours.size()>, kProposerKinds>;

// Where there are drafts a pass is held back for them, else for a memory.
bool is_waited_for(ProposerKind source, ProposerSet set) {
  return source == ProposerKind::kDraft ||
         (source == ProposerKind::kMemory && !set.contains(ProposerKind::kDraft));
}

void add_to(Sums& sums, const Cell& cell, ProposerSet set) {
  set.for_each([&](ProposerKind source) {
    auto& sum =
        sums[static_cast<std::size_t>(source)][static_cast<std::size_t>(cell.behaviour(source))];
    sum.n_drafted += cell.tally(source).n_drafted;
    sum.n_accepted += cell.tally(source).n_accepted;
    if (is_waited_for(source, set)) {
      sum.n_waits += cell.n_waits();
      sum.n_met += cell.n_met();
    }
    if (cell.behaviour(source) == Behaviour::kMute) {
      EXPECT_EQ(cell.n_said(source), 0u);
    }
  });
}

// Each source was verified with each behaviour but silence: accepted where it is honest, late or
// repeated, and seldom where it lies.
void expect_exercised(const Sums& sums) {
  for (const ProposerKind source : kSources)
    for (const Behaviour behaviour : kBehaviours) {
      SCOPED_TRACE(testing::Message() << name_of(source) << " " << name_of_behaviour(behaviour));
      const auto& sum = sums[static_cast<std::size_t>(source)][static_cast<std::size_t>(behaviour)];
      if (behaviour == Behaviour::kMute) {
        EXPECT_EQ(sum.n_drafted, 0u);
      } else if (behaviour == Behaviour::kLying) {
        EXPECT_GT(sum.n_drafted, 50u);
        EXPECT_LT(2 * sum.n_accepted, sum.n_drafted);
      } else {
        EXPECT_GT(sum.n_accepted, 50u);
        EXPECT_LT(sum.n_accepted, sum.n_drafted);
      }
      if (!kAskedOverALink.contains(source)) continue;
      if (source == ProposerKind::kDraft || behaviour != Behaviour::kMute) {
        EXPECT_GT(sum.n_waits, 50u);
      }
      if (behaviour != Behaviour::kMute) {
        EXPECT_GT(sum.n_met, 50u);
      } else {
        EXPECT_EQ(sum.n_met, 0u);
      }
    }
}

TEST(SourceMatrix, NoTokenDiffersWhereAllSourcesBehaveAlike) {
  Questions questions;
  Sums sums{};
  for (unsigned number = 0; number < 1u << kSources.size(); ++number)
    for (const Behaviour behaviour : kBehaviours) {
      const ProposerSet set = set_of(number);
      SCOPED_TRACE(testing::Message() << names_in(set) << " " << name_of_behaviour(behaviour));
      Cell cell(questions, set);
      for (const ProposerKind source : kSources) cell.behave(source, behaviour);
      cell.run();
      add_to(sums, cell, set);
    }
  expect_exercised(sums);
}

TEST(SourceMatrix, NoTokenDiffersWhereOneOfSeveralMisbehaves) {
  Questions questions;
  Sums sums{};
  for (unsigned number = 0; number < 1u << kSources.size(); ++number) {
    const ProposerSet set = set_of(number);
    if (set.size() < 2) continue;
    set.for_each([&](ProposerKind odd) {
      for (const Behaviour behaviour : kBehaviours) {
        SCOPED_TRACE(testing::Message() << names_in(set) << ", " << name_of(odd) << " "
                                        << name_of_behaviour(behaviour));
        Cell cell(questions, set);
        cell.behave(odd, behaviour);
        cell.run();
        add_to(sums, cell, set);
      }
    });
  }
  expect_exercised(sums);
}

}  // namespace
}  // namespace foretoken
