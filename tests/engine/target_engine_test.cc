// A target engine's promises to its service, one at a time. That text never changes is
// lossless_test.cc's part.
#include "common/engine/target_engine.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/spec/ngram_proposer.h"
#include "common/spec/prediction_proposer.h"
#include "common/spec/prefix_hash.h"
#include "kernels/include/backend.h"
#include "tests/support/acceptance_rate.h"
#include "tests/support/plain_decode.h"
#include "tests/support/scripted_model.h"

namespace foretoken {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::Pair;

const TimePoint kStart{std::chrono::hours(1)};
constexpr Position kMaxLen = 128;

// Offers what the test says, and claims the outlook that the test says.
class PuppetDraft final : public Proposer, public DraftWatch {
 public:
  explicit PuppetDraft(ProposerKind kind = ProposerKind::kDraft) : kind_(kind) {}
  ProposerKind kind() const override { return kind_; }
  void open(const Opening& opening) override {
    opened.push_back(opening.seq);
    if (opening.is_asked_soon) prepared.push_back(opening.seq);
    salts.push_back(opening.tenant_salt);
    texts[opening.seq] = &opening.text;
  }
  void ask(std::span<const Ask> asks) override {
    for (const Ask& ask : asks) {
      budgets.push_back(ask.budget);
      last_budget[ask.seq.value] = ask.budget;
      const CommittedTokens& text = *texts.at(ask.seq);
      const Position base = text.size();
      const auto own = script_of.find(ask.seq.value);
      const std::vector<TokenId>& foreseen = own == script_of.end() ? script : own->second;
      if (foreseen.size() <= base) continue;
      Proposal proposal{.base = base, .prefix = text.prefix(), .source = kind()};
      for (Position i = base; i < foreseen.size() && proposal.tokens.size() < ask.budget; ++i) {
        proposal.tokens.push_back(foreseen[i]);
        proposal.confidences.push_back(250);
      }
      if (add_beside) add_beside(proposal);
      ready.emplace_back(ask.seq, proposal);
    }
  }
  void collect(TimePoint, ProposalStore& into) override {
    for (const auto& [seq, proposal] : ready) into.insert(seq, proposal);
    ready.clear();
  }
  void close(SeqId seq) override { closed.push_back(seq); }
  DraftOutlook outlook(SeqId seq, TimePoint) const override {
    const auto own = says_of.find(seq.value);
    return own == says_of.end() ? says : own->second;
  }

  std::vector<TokenId> script;  // prompt and answer as this draft foresees them
  std::map<std::uint64_t, std::vector<TokenId>> script_of;  // of single sequences instead
  std::function<void(Proposal&)> add_beside;  // to each that is said; none: a chain alone
  DraftOutlook says{.readiness = DraftReadiness::kReady};
  std::map<SeqId, const CommittedTokens*> texts;
  std::map<std::uint64_t, DraftOutlook> says_of;  // of single sequences instead
  std::vector<SeqId> opened, closed;
  std::vector<SeqId> prepared;       // of those opened, the ones that are asked soon
  std::vector<std::uint64_t> salts;  // beside opened
  std::vector<std::uint32_t> budgets;
  std::map<std::uint64_t, std::uint32_t> last_budget;  // by sequence
  std::vector<std::pair<SeqId, Proposal>> ready;

 private:
  ProposerKind kind_;
};

class TargetEngineTest : public ::testing::Test {
 protected:
  void start(TargetEngineOptions options = default_options()) {
    engine_ = std::make_unique<TargetEngine>(
        model_, *backend_, Proposers{.each = {&draft_, &ngram_}, .watch = &draft_}, options);
  }
  static TargetEngineOptions default_options() {
    TargetEngineOptions options;
    options.kv = {.n_blocks = 100, .block_tokens = 8};
    options.max_running = 4;
    options.max_waiting = 2;
    options.max_batch_rows = 64;
    options.prefill_chunk = 16;
    options.max_model_len = kMaxLen;
    options.prefix_root = 3;
    return options;
  }
  OpenRequest request(std::uint64_t seq,
                      std::vector<TokenId> prompt = {1, 2, 3},
                      std::uint32_t max_tokens = 10) {
    OpenRequest r{.seq = SeqId{seq}, .prompt = std::move(prompt)};
    r.params = {.temperature = 0, .max_tokens = max_tokens};
    r.draft_len = 4;
    r.length = LengthMode::kFixed;
    return r;
  }
  static std::vector<TokenId> some_tokens(std::uint32_t n) {
    std::vector<TokenId> tokens;
    for (std::uint32_t i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>(i * i % 37));
    return tokens;
  }
  std::vector<TokenId> plain(const OpenRequest& r) {
    return plain_decode(model_, *backend_, r, kMaxLen).ids;
  }

  // Runs to the end and gathers what came.
  void run(int limit = 1000) {
    for (int i = 0; engine_->has_work(); ++i) {
      ASSERT_LT(i, limit);
      take(engine_->step(now_));
      now_ += milliseconds(1);
    }
  }
  void take(const StepOutput& output) {
    for (const auto& event : output.prompts) {
      auto& all = prompt_[event.seq.value];
      EXPECT_TRUE(text_[event.seq.value].empty()) << "a prompt comes before its answer";
      all.insert(all.end(), event.tokens.logprobs.begin(), event.tokens.logprobs.end());
    }
    for (const auto& event : output.tokens) {
      auto& ids = text_[event.seq.value];
      ids.insert(ids.end(), event.tokens.ids.begin(), event.tokens.ids.end());
      first_seen_.push_back(event.seq);
    }
    done_.insert(done_.end(), output.done.begin(), output.done.end());
    failed_.insert(failed_.end(), output.failed.begin(), output.failed.end());
  }
  ErrorCode refusal(OpenRequest r) {
    const auto opened = engine_->open(std::move(r), now_);
    EXPECT_FALSE(opened.ok());
    if (opened.ok()) return ErrorCode::kInternal;
    EXPECT_FALSE(opened.error().message.empty());
    return opened.error().code;
  }
  void open(OpenRequest r) {
    const auto opened = engine_->open(std::move(r), now_);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
  }

  std::unique_ptr<Backend> backend_ = make_backend({.device = "cpu", .n_threads = 1});
  ScriptedModel model_{{.vocab_size = 40, .max_model_len = 512, .eos_token_ids = {}}};
  PuppetDraft draft_;
  NgramProposer ngram_;
  std::unique_ptr<TargetEngine> engine_;
  TimePoint now_ = kStart;
  std::map<std::uint64_t, std::vector<TokenId>> text_;
  std::map<std::uint64_t, std::vector<TokenLogprobs>> prompt_;
  std::vector<SeqId> first_seen_;
  std::vector<DoneEvent> done_;
  std::vector<FailedEvent> failed_;
};

TEST_F(TargetEngineTest, WritesThePlainTextInFewerStepsWithAGoodDraft) {
  start();
  OpenRequest r = request(1, {1, 2, 3}, 20);
  const auto text = plain(r);
  draft_.script = r.prompt;
  draft_.script.insert(draft_.script.end(), text.begin(), text.end());
  open(r);
  run();
  EXPECT_EQ(text_[1], text);
  ASSERT_EQ(done_.size(), 1u);
  EXPECT_EQ(done_[0].reason, FinishReason::kLength);
  EXPECT_EQ(done_[0].stats.n_steps, 1u + 4u);  // the first token, then 5 + 5 + 5 + 4
  EXPECT_EQ(done_[0].stats.spec.n_accepted, 15u);
  EXPECT_EQ(test::acceptance_rate(done_[0].stats.spec), 1.0);
  EXPECT_EQ(draft_.opened, std::vector<SeqId>{SeqId{1}});
  EXPECT_EQ(draft_.closed, std::vector<SeqId>{SeqId{1}});
}

TEST_F(TargetEngineTest, RoundsByLengthAreTheSameRoundsAndPassesSayWhatTheyVerified) {
  start();
  OpenRequest r = request(1, {1, 2, 3}, 20);
  const auto text = plain(r);
  draft_.script = r.prompt;
  draft_.script.insert(draft_.script.end(), text.begin(), text.end());
  draft_.script[10] ^= 1;
  open(r);
  std::uint32_t n_verified = 0;
  while (engine_->has_work()) {
    engine_->verify(now_);
    const StepOutput& output = engine_->commit();
    n_verified += output.n_verified;
    take(output);
    now_ += milliseconds(1);
  }
  EXPECT_EQ(text_[1], text);
  ASSERT_EQ(done_.size(), 1u);
  const SequenceStats& stats = done_[0].stats;
  EXPECT_EQ(n_verified, stats.spec.n_drafted);
  std::vector<std::uint64_t> sums(stats.spec.accepted_histogram.size());
  std::size_t n_lengths = 0;
  for (std::size_t n = 0; n < stats.rounds_by_length.size(); ++n) {
    const auto& rounds = stats.rounds_by_length[n];
    if (rounds.empty()) continue;
    ++n_lengths;
    EXPECT_EQ(n + 1, rounds.size());
    for (std::size_t i = 0; i < rounds.size(); ++i) sums[i] += rounds[i];
  }
  EXPECT_GT(n_lengths, 1u) << "the last round is shorter than the others";
  EXPECT_THAT(stats.spec.accepted_histogram, testing::ElementsAreArray(sums));
}

TEST_F(TargetEngineTest, APromptThatIsCachedIsComputedAgainForItsLogProbabilities) {
  start();
  OpenRequest r = request(1, some_tokens(50), 3);
  r.params.n_prompt_logprobs = 2;
  const PlainAnswer alone = plain_decode(model_, *backend_, r, kMaxLen);
  for (const std::uint64_t seq : {1, 2}) {
    r.seq = SeqId{seq};
    open(r);
    run();
    EXPECT_EQ(prompt_[seq], alone.prompt_logprobs);
    EXPECT_EQ(text_[seq], alone.ids);
    EXPECT_EQ(done_.back().stats.n_cached, 0u);
  }
  r.seq = SeqId{3};
  r.params.n_prompt_logprobs = -1;
  open(r);
  run();
  EXPECT_TRUE(prompt_[3].empty());
  EXPECT_EQ(done_.back().stats.n_cached, 48u);
}

TEST_F(TargetEngineTest, LogProbabilitiesFromAPositionOnUseTheCacheBeforeIt) {
  start();
  OpenRequest r = request(1, some_tokens(50), 3);
  open(r);
  run();
  r.seq = SeqId{2};
  r.params.n_prompt_logprobs = 1;
  r.prompt_logprobs_from = 33;
  open(r);
  run();
  const PlainAnswer alone = plain_decode(model_, *backend_, r, kMaxLen);
  EXPECT_EQ(prompt_[2],
            std::vector(alone.prompt_logprobs.begin() + 32, alone.prompt_logprobs.end()));
  EXPECT_EQ(done_.back().stats.n_cached, 32u);
}

TEST_F(TargetEngineTest, AnAnswerOfNoTokensEndsWithThePrompt) {
  start();
  for (const std::uint32_t n_prompt : {1, 2, 17, 40}) {
    SCOPED_TRACE(n_prompt);
    OpenRequest r = request(n_prompt, some_tokens(n_prompt), 0);
    r.params.n_prompt_logprobs = 0;
    open(r);
    run();
    EXPECT_TRUE(text_[n_prompt].empty());
    EXPECT_EQ(prompt_[n_prompt].size(), n_prompt - 1);
    EXPECT_EQ(done_.back().reason, FinishReason::kLength);
    EXPECT_EQ(done_.back().stats.n_output, 0u);
  }
  OpenRequest r = request(99, {1, 2}, 0);
  EXPECT_EQ(refusal(r), ErrorCode::kInvalidValue) << "nothing is asked for";
}

TEST_F(TargetEngineTest, LogitsOfAPromptAreBoundedInEachPass) {
  auto options = default_options();
  options.max_forced_rows = 3;
  start(options);
  OpenRequest r = request(1, some_tokens(40), 2);
  r.params.n_prompt_logprobs = 0;
  open(r);
  std::size_t n_all = 0;
  while (engine_->has_work()) {
    engine_->verify(now_);
    const StepOutput& output = engine_->commit();
    std::size_t n = 0;
    for (const TokensEvent& event : output.prompts) n += event.tokens.ids.size();
    EXPECT_LE(n, 3u);
    n_all += n;
  }
  EXPECT_EQ(n_all, 39u);
}

TEST_F(TargetEngineTest, NeverAsksForMoreThanCouldBeUsed) {
  start();
  open(request(1, {1, 2, 3}, 6));
  run();
  // After 1 .. 5 committed tokens 5 .. 1 remain, of which the last is the target's own.
  EXPECT_EQ(draft_.budgets, (std::vector<std::uint32_t>{4, 3, 2, 1, 0}));
}

// What a step takes on a model whose passes are long: 70 ms to read the weights, and for each row
// more the longer the text before it. The engine is not told, and takes attention for free.
Duration long_step(const StepOutput& output, std::uint32_t context) {
  const double s = 0.07 + 0.0015 * output.n_rows * (1 + context / 1500.0);
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s));
}

// Flows on one target in simulated time, where a pass costs a part that is fixed and a part by
// rows.
class SharedTarget : public testing::Test {
 protected:
  struct Cost {
    Duration fixed;
    Duration row;
    Duration message{};  // after a pass, for each sequence that had tokens
  };
  void start(Cost cost, AdmissionPolicy policy = AdmissionPolicy::kMaxUtilization) {
    cost_ = cost;
    TargetEngineOptions options{
        .kv = {.n_blocks = 900, .block_tokens = 8}, .policy = policy, .prefix_root = 3};
    options.max_running = 40;
    options.max_waiting = 100;
    engine_ = std::make_unique<TargetEngine>(
        model_, *backend_, Proposers{.each = {&draft_}, .watch = &draft_}, options);
    n_events_.clear();
    for (std::uint64_t seq = 1; seq <= 64; seq *= 2) {  // steps of many sizes, to be measured
      for (std::uint64_t i = 0; i < std::min<std::uint64_t>(seq, 40); ++i)
        open(1000 * seq + i, 0, 4);
      while (engine_->has_work()) step();
    }
  }
  void open(std::uint64_t seq,
            std::uint64_t flow,
            std::uint32_t max_tokens,
            double weight = 1,
            std::uint32_t draft_len = 0) {
    OpenRequest r{.seq = SeqId{seq}, .prompt = {1, 2, 3, static_cast<TokenId>(seq % 40)}};
    r.params = {.temperature = 0, .max_tokens = max_tokens, .ignore_eos = true};
    r.flow = flow;
    r.flow_weight = weight;
    r.draft_len = draft_len;
    if (draft_len > 4) {  // a draft that is always right
      std::vector<TokenId>& script = draft_.script_of[seq] = r.prompt;
      const auto answer = plain_decode(model_, *backend_, r, 512).ids;
      script.insert(script.end(), answer.begin(), answer.end());
    }
    ASSERT_TRUE(engine_->open(r, now_).ok());
  }
  void step() {
    const StepOutput& output = engine_->step(now_);
    const Duration took = cost_.fixed + output.n_rows * cost_.row;
    now_ += took;
    engine_->record_step_time(took);
    for (const TokensEvent& event : output.tokens)
      n_events_[event.seq.value] += event.tokens.ids.size();
    for (const DoneEvent& event : output.done) done_[event.seq.value] = now_;
    now_ += output.tokens.size() * cost_.message;
  }
  Duration time_of(std::uint64_t seq, std::uint64_t flow) {
    const TimePoint begin = now_;
    open(seq, flow, 32);
    for (int i = 0; !done_.contains(seq); ++i) {
      EXPECT_LT(i, 5000);
      if (i >= 5000) break;
      step();
    }
    return now_ - begin;
  }

  std::unique_ptr<Backend> backend_ = make_backend({.device = "cpu", .n_threads = 1});
  ScriptedModel model_{{.vocab_size = 40, .max_model_len = 2048, .eos_token_ids = {}}};
  Cost cost_{};
  TimePoint now_ = kStart;
  PuppetDraft draft_;
  std::map<std::uint64_t, std::size_t> n_events_;  // tokens by sequence
  std::map<std::uint64_t, TimePoint> done_;
  std::unique_ptr<TargetEngine> engine_;
};

// A step of one row in 2 ms and of 33 in 12: alone 32 tokens take 64 ms, in one row of many 380.
TEST_F(SharedTarget, OneSequenceBesideManyOfAnotherFlowKeepsHalfItsPace) {
  start({.fixed = microseconds(1700), .row = microseconds(300)});
  const Duration alone = time_of(1, 7);
  for (std::uint64_t seq = 100; seq < 132; ++seq) open(seq, 8, 400);
  for (int i = 0; i < 20; ++i) step();
  const Duration beside = time_of(2, 7);
  EXPECT_LE(beside, 2.1 * alone);
  std::size_t least = 1000, most = 0;
  for (std::uint64_t seq = 100; seq < 132; ++seq) {
    least = std::min(least, n_events_[seq]);
    most = std::max(most, n_events_[seq]);
  }
  EXPECT_GE(least, 20u + 3u) << "the many move, too";
  EXPECT_LE(most - least, 3u) << "and none of them is ahead of the others";
}

// Rows are nearly free, but what is sent for each sequence takes its time before the next step.
TEST_F(SharedTarget, TimeBetweenStepsIsSharedToo) {
  start({.fixed = microseconds(1700), .row = microseconds(20), .message = microseconds(300)});
  const Duration alone = time_of(1, 7);
  for (std::uint64_t seq = 100; seq < 132; ++seq) open(seq, 8, 400);
  for (int i = 0; i < 20; ++i) step();
  EXPECT_LE(time_of(2, 7), 2 * alone);
}

TEST_F(SharedTarget, AHeavierFlowKeepsMore) {
  start({.fixed = microseconds(200), .row = microseconds(300)});
  for (std::uint64_t seq = 100; seq < 116; ++seq) open(seq, 7, 400, 3);
  for (std::uint64_t seq = 200; seq < 216; ++seq) open(seq, 8, 400, 1);
  for (int i = 0; i < 300; ++i) step();
  std::size_t heavy = 0, light = 0;
  for (std::uint64_t seq = 100; seq < 116; ++seq) heavy += n_events_[seq];
  for (std::uint64_t seq = 200; seq < 216; ++seq) light += n_events_[seq];
  EXPECT_NEAR(3.0, static_cast<double>(heavy) / static_cast<double>(light), 0.4);
}

TEST_F(SharedTarget, WhereRowsAreFreeAllDecodeInEachPass) {
  start({.fixed = microseconds(10000), .row = microseconds(10)});
  open(1, 7, 100);
  for (std::uint64_t seq = 100; seq < 132; ++seq) open(seq, 8, 100);
  const std::uint64_t before = engine_->snapshot().n_steps;
  while (engine_->has_work()) step();
  EXPECT_LE(engine_->snapshot().n_steps - before, 110u) << "a hundred tokens and the prompts";
}

TEST_F(SharedTarget, SequencesOfAFlowThatIsCutAreNotDraftedWhileThereAreOthers) {
  start({.fixed = microseconds(1700), .row = microseconds(300)});
  for (std::uint64_t seq = 100; seq < 132; ++seq) open(seq, 8, 400, 1, 4);
  for (int i = 0; i < 20; ++i) step();
  EXPECT_GT(draft_.last_budget.at(110), 0u);
  open(1, 7, 100, 1, 4);
  for (int i = 0; i < 5; ++i) step();
  draft_.last_budget.clear();
  for (int i = 0; i < 40; ++i) step();
  ASSERT_FALSE(done_.contains(1)) << "or nothing was shared any more";
  EXPECT_THAT(draft_.last_budget, ElementsAre(Pair(1, 4)))
      << "not asked at all: a draft that may answer nothing seems not to answer";
  while (!done_.contains(1)) step();
  for (int i = 0; i < 3; ++i) step();
  for (std::uint64_t seq = 100; seq < 132; ++seq) EXPECT_EQ(4u, draft_.last_budget[seq]) << seq;
}

// Four sequences of one flow, with proposals, beside one that has none: they lose some, not all.
TEST_F(SharedTarget, AFlowThatIsCutALittleKeepsProposals) {
  start({.fixed = microseconds(1700), .row = microseconds(45)});
  for (std::uint64_t seq = 100; seq < 104; ++seq) open(seq, 8, 400, 1, 8);
  open(1, 7, 400);
  for (int i = 0; i < 40; ++i) step();
  for (std::uint64_t seq = 100; seq < 104; ++seq) {
    EXPECT_GE(draft_.last_budget[seq], 2u);
    EXPECT_GE(n_events_[seq], 3u * 40) << "more than two proposals that stand in each pass";
  }
  EXPECT_EQ(n_events_[1], 40u);
}

// A millisecond for two or three tokens does not pay for the whole batch, but it does for a flow of
// one.
TEST_F(SharedTarget, ProposalsOfALoneSequenceAreWaitedForBesideMany) {
  for (const std::uint64_t flow : {8u, 7u}) {
    start({.fixed = microseconds(1700), .row = microseconds(100)});
    for (std::uint64_t seq = 100; seq < 132; ++seq) open(seq, 8, 200);
    open(1, flow, 200, 1, 4);
    for (int i = 0; i < 60; ++i) step();
    draft_.says = {
        .readiness = DraftReadiness::kReady, .is_under_way = true, .arrives_in = milliseconds(1)};
    (void)engine_->wait_hint(now_);  // a trial, which brings nothing
    step();
    if (flow == 8) {
      EXPECT_EQ(Duration{}, engine_->wait_hint(now_));
    } else {
      EXPECT_GE(engine_->wait_hint(now_), milliseconds(1));
    }
    draft_.says = {.readiness = DraftReadiness::kReady};
  }
}

// Six answers of 1,000 tokens may fill 6 x 126 blocks of 900; a seventh, which may fill 151, waits
// until one ends, though its prompt needs a single one.
TEST_F(SharedTarget, APromptWhoseLongestAnswerDoesNotFitTakesNoShare) {
  start({.fixed = microseconds(200), .row = microseconds(300)},
        AdmissionPolicy::kGuaranteedNoEvict);
  for (std::uint64_t seq = 100; seq < 106; ++seq) open(seq, 8, 1000);
  for (int i = 0; i < 5; ++i) step();
  open(1, 7, 1200);
  n_events_.clear();
  const std::uint64_t n_cut = engine_->snapshot().n_cut_steps;
  for (int i = 0; i < 40; ++i) step();
  EXPECT_EQ(n_cut, engine_->snapshot().n_cut_steps);
  for (std::uint64_t seq = 100; seq < 106; ++seq) EXPECT_EQ(40u, n_events_[seq]) << seq;
  while (!done_.contains(1)) step();
  EXPECT_EQ(1200u, n_events_[1]);
}

// One sequence of a flow gets five tokens in a pass, sixteen of another one each. Passes with
// proposals take 1.6 times as long: a loss by tokens, a gain by their value.
TEST_F(SharedTarget, WhetherDraftsAreAskedGoesByTheValueOfTokens) {
  start({.fixed = microseconds(10000), .row = microseconds(10)});
  open(1, 7, 480, 1, 5);
  for (std::uint64_t seq = 100; seq < 116; ++seq) open(seq, 8, 480);
  const DraftingGate& gate = engine_->drafting_gate();
  for (int i = 0; i < 60; ++i) {
    if (gate.asking() == DraftingGate::Asking::kAll) now_ += microseconds(6000);
    step();
  }
  ASSERT_FALSE(done_.contains(1));
  EXPECT_GT(gate.gain(), 1.5);
  EXPECT_EQ(DraftingGate::Asking::kAll, gate.asking());
}

class LongPrompts : public testing::Test {
 protected:
  void start(Duration max_step) {
    engine_ = std::make_unique<TargetEngine>(
        model_, *backend_, Proposers{},
        TargetEngineOptions{
            .kv = {.n_blocks = 700, .block_tokens = 16}, .max_step = max_step, .prefix_root = 3});
  }
  void open(std::uint64_t seq, std::uint32_t n_prompt, std::uint32_t max_tokens) {
    OpenRequest r{.seq = SeqId{seq}};
    for (std::uint32_t i = 0; i < n_prompt; ++i)
      r.prompt.push_back(static_cast<TokenId>((i * 7 + i / 5 + seq) % 40));
    r.params = {.temperature = 0, .max_tokens = max_tokens};
    expected_[seq] = plain_decode(model_, *backend_, r, 9000).ids;
    ASSERT_TRUE(engine_->open(r, now_).ok());
  }
  // One step; its time and what it brought are noted.
  void step() {
    const StepOutput& output = engine_->step(now_);
    if (output.n_rows == 0) return;
    const auto context = static_cast<std::uint32_t>(engine_->snapshot().n_prompt_rows);
    const Duration took = long_step(output, context);
    now_ += took;
    longest_ = std::max(longest_, took);
    engine_->record_step_time(took);
    for (const TokensEvent& event : output.tokens) {
      auto& text = text_[event.seq.value];
      text.insert(text.end(), event.tokens.ids.begin(), event.tokens.ids.end());
      first_.try_emplace(event.seq.value, now_);
    }
  }
  void run_until_written(std::uint64_t seq) {
    for (int i = 0; !first_.contains(seq); ++i) {
      ASSERT_LT(i, 2000);
      step();
    }
  }

  std::unique_ptr<Backend> backend_ = make_backend({.device = "cpu", .n_threads = 1});
  ScriptedModel model_{{.vocab_size = 40, .max_model_len = 9000, .eos_token_ids = {}}};
  std::unique_ptr<TargetEngine> engine_;
  TimePoint now_ = kStart;
  Duration longest_{};
  std::map<std::uint64_t, TimePoint> first_;
  std::map<std::uint64_t, std::vector<TokenId>> text_, expected_;
};

TEST_F(LongPrompts, AStreamBesideOneKeepsItsPace) {
  constexpr Duration kBound = milliseconds(250);
  start(kBound);
  open(1, 5, 1000);
  run_until_written(1);
  for (int i = 0; i < 10; ++i) step();
  const Duration normal = longest_;
  open(2, 8000, 3);
  longest_ = {};
  const TimePoint begin = now_;
  run_until_written(2);
  EXPECT_LE(longest_, 3 * normal + kBound);
  EXPECT_LE(longest_, 6 * kBound / 5);
  EXPECT_LT(now_ - begin, seconds(80)) << "of which the rows alone take 44";
  while (engine_->has_work()) step();
  EXPECT_EQ(text_, expected_);
}

TEST_F(LongPrompts, WithoutABoundTheStreamWaitsForWholeChunks) {
  start({});
  open(1, 5, 100);
  run_until_written(1);
  open(2, 8000, 3);
  longest_ = {};
  run_until_written(2);
  EXPECT_GT(longest_, seconds(2));
}

TEST_F(LongPrompts, AloneOneTakesLittleLongerThanTwiceTheBoundAStep) {
  start(milliseconds(250));
  open(1, 8000, 3);
  run_until_written(1);
  EXPECT_LE(longest_, milliseconds(600));
  EXPECT_EQ(text_[1][0], expected_[1][0]);
}

TEST_F(LongPrompts, AShortOneBehindALongOneDoesNotWaitForIt) {
  start(milliseconds(250));
  open(1, 8000, 3);
  for (int i = 0; i < 5; ++i) step();
  open(2, 60, 3);
  const TimePoint begin = now_;
  run_until_written(2);
  EXPECT_LT(now_ - begin, seconds(2));
  EXPECT_FALSE(first_.contains(1));
}

TEST_F(LongPrompts, FourThatComeTogetherEndTogether) {
  start(milliseconds(250));
  const TimePoint begin = now_;
  for (std::uint64_t seq = 1; seq <= 4; ++seq) open(seq, 1500, 3);
  for (std::uint64_t seq = 1; seq <= 4; ++seq) run_until_written(seq);
  EXPECT_LT(first_[4] - first_[1], (first_[4] - begin) / 10);
  while (engine_->has_work()) step();
  EXPECT_EQ(text_, expected_);
}

TEST_F(TargetEngineTest, OpensNoDraftForPlainDecoding) {
  start();
  OpenRequest off = request(1);
  off.draft_len = 0;
  open(off);
  OpenRequest none = request(2);
  none.proposers = ProposerKind::kNone;
  open(none);
  OpenRequest single = request(3, {5}, 1);
  open(single);
  run();
  EXPECT_TRUE(draft_.opened.empty());
  for (const auto& event : done_) {
    const bool is_single = event.seq == SeqId{3};
    EXPECT_EQ(event.stats.spec.fallbacks[static_cast<std::size_t>(FallbackReason::kDisabled)],
              is_single ? 0u : 8u);
  }
}

TEST_F(TargetEngineTest, TellsADraftOfASequenceWhenItIsAdmitted) {
  auto options = default_options();
  options.max_running = 1;
  start(options);
  open(request(1));
  open(request(2));
  engine_->step(now_);
  EXPECT_EQ(draft_.opened, std::vector<SeqId>{SeqId{1}});
  run();
  EXPECT_EQ(draft_.opened, (std::vector<SeqId>{SeqId{1}, SeqId{2}}));
  EXPECT_EQ(draft_.closed, (std::vector<SeqId>{SeqId{1}, SeqId{2}}));
}

TEST_F(TargetEngineTest, TellsADraftWhoseTextItIs) {
  start();
  OpenRequest r = request(1);
  r.tenant_salt = 77;
  open(r);
  run();
  EXPECT_EQ(draft_.salts, std::vector<std::uint64_t>{77});
}

TEST_F(TargetEngineTest, SaysWhyARoundWasPlain) {
  start();
  const auto fallbacks = [&](std::uint64_t seq, FallbackReason reason) {
    text_.clear();
    done_.clear();
    open(request(seq));
    run();
    return done_.at(0).stats.spec.fallbacks[static_cast<std::size_t>(reason)];
  };
  EXPECT_EQ(fallbacks(1, FallbackReason::kNoProposal), 8u);
  draft_.says.readiness = DraftReadiness::kOpening;
  EXPECT_EQ(fallbacks(2, FallbackReason::kNoProposer), 8u);
  draft_.says.readiness = DraftReadiness::kDetached;
  EXPECT_EQ(fallbacks(3, FallbackReason::kNoProposer), 8u);
}

std::vector<TokenId> repeating_prompt() {
  std::vector<TokenId> repeating;
  for (int i = 0; i < 40; ++i) repeating.push_back(static_cast<TokenId>(i % 4 + 1));
  return repeating;
}

constexpr ProposerSet kDraftAndNgram{ProposerKind::kDraft, ProposerKind::kNgram};

TEST_F(TargetEngineTest, LooksUpOnlyWhereTheRequestNamesIt) {
  start();
  draft_.says.readiness = DraftReadiness::kDetached;
  OpenRequest r = request(1, repeating_prompt(), 40);
  r.proposers = kDraftAndNgram;
  open(r);
  open(request(2, repeating_prompt(), 40));
  run();
  EXPECT_EQ(text_[1], plain(r));
  EXPECT_EQ(text_[2], text_[1]);
  for (const auto& event : done_) {
    const auto n =
        event.stats.spec.by_proposer[static_cast<std::size_t>(ProposerKind::kNgram)].n_drafted;
    EXPECT_EQ(n > 0, event.seq == SeqId{1});
  }
}

TEST_F(TargetEngineTest, OpensAsksAndClosesEachSourceOfASequence) {
  start();
  OpenRequest r = request(1);
  r.proposers = kDraftAndNgram;
  open(r);
  run();
  EXPECT_EQ(draft_.opened, std::vector<SeqId>{SeqId{1}});
  EXPECT_EQ(draft_.closed, std::vector<SeqId>{SeqId{1}});
  EXPECT_EQ(std::ranges::max(draft_.budgets), 4u);
}

// The client's expectation is right, again and again.
TEST_F(TargetEngineTest, SparesADraftWhereOthersAreAsGoodAsSure) {
  PredictionProposer prediction;
  engine_ = std::make_unique<TargetEngine>(
      model_, *backend_, Proposers{.each = {&draft_, &prediction}, .watch = &draft_},
      default_options());
  const auto n_spared = [&](std::uint64_t seq, ProposerSet proposers) {
    OpenRequest r = request(seq, {1, 2, 3}, 100);
    r.prediction = plain(r);
    r.proposers = proposers;
    r.draft_len = 2;
    draft_.budgets.clear();
    open(r);
    run();
    return std::ranges::count(draft_.budgets, 0u);
  };
  const auto alone = n_spared(1, ProposerKind::kDraft);
  EXPECT_GT(n_spared(2, {ProposerKind::kDraft, ProposerKind::kPrediction}), alone + 5);
}

TEST_F(TargetEngineTest, CountsWhatBecameOfEachSourcesProposals) {
  start();
  OpenRequest r = request(1, repeating_prompt(), 40);
  draft_.script = r.prompt;
  const std::vector<TokenId> answer = plain(r);
  draft_.script.insert(draft_.script.end(), answer.begin(), answer.end());
  r.proposers = kDraftAndNgram;
  open(r);
  run();
  const TargetSnapshot end = engine_->snapshot();
  const auto& of_draft = end.proposals[static_cast<std::size_t>(ProposerKind::kDraft)];
  const auto& of_ngram = end.proposals[static_cast<std::size_t>(ProposerKind::kNgram)];
  EXPECT_GT(of_draft.n_right, 0u);
  EXPECT_EQ(of_draft.n_wrong, 0u);
  EXPECT_GT(of_ngram.n_right + of_ngram.n_wrong, 0u);
  EXPECT_LE(end.n_agreed, of_ngram.n_right + of_ngram.n_wrong);
}

// One of a draft's tokens for a place is its guess. The others say what comes if that is wrong, so
// they are no failures where it is not.
TEST_F(TargetEngineTest, CountsARunnerUpOnlyWhereItIsRight) {
  const auto tally_with = [&](std::function<void(Proposal&)> add_beside) {
    start();
    OpenRequest r = request(1, {1, 2, 3}, 40);
    draft_.script = r.prompt;
    const std::vector<TokenId> answer = plain(r);
    draft_.script.insert(draft_.script.end(), answer.begin(), answer.end());
    draft_.add_beside = std::move(add_beside);
    open(r);
    run();
    EXPECT_EQ(std::exchange(text_[1], {}), answer);
    return engine_->snapshot().proposals[static_cast<std::size_t>(ProposerKind::kDraft)];
  };
  const auto another = [](TokenId token) { return (token + 1) % 40; };
  const auto as_chain = [](Proposal& said) {
    said.parents = {kParentIsBase};
    while (said.parents.size() < said.tokens.size())
      said.parents.push_back(static_cast<std::uint16_t>(said.parents.size() - 1));
  };
  const ProposalTally alone = tally_with(nullptr);
  EXPECT_GT(alone.n_right, 20u);
  EXPECT_EQ(alone.n_wrong, 0u);
  const ProposalTally beside = tally_with([&](Proposal& said) {
    as_chain(said);
    said.tokens.push_back(another(said.tokens.front()));
    said.confidences.push_back(90);
    said.parents.push_back(kParentIsBase);
  });
  EXPECT_EQ(beside.n_right, alone.n_right);
  EXPECT_EQ(beside.n_wrong, 0u) << "of each proposal one is a wrong runner-up";
  std::uint64_t n_said = 0;
  const ProposalTally instead = tally_with([&](Proposal& said) {
    as_chain(said);
    said.tokens.insert(said.tokens.begin(), another(said.tokens.front()));
    said.confidences.insert(said.confidences.begin(), 90);
    for (std::uint16_t& parent : said.parents) parent += parent == kParentIsBase ? 0 : 1;
    said.parents.insert(said.parents.begin(), kParentIsBase);
    ++n_said;
  });
  EXPECT_EQ(instead.n_wrong, n_said) << "the guess is wrong each time";
  EXPECT_EQ(instead.n_right, alone.n_right) << "and the runner-up right, with all after it";
}

TEST_F(TargetEngineTest, RefusesWithAReasonAndKeepsNothing) {
  start();
  EXPECT_EQ(refusal(request(1, {})), ErrorCode::kInvalidValue);
  EXPECT_EQ(refusal(request(1, {40})), ErrorCode::kInvalidValue);
  EXPECT_EQ(refusal(request(1, {-1})), ErrorCode::kInvalidValue);
  EXPECT_EQ(refusal(request(1, std::vector<TokenId>(kMaxLen, 1))),
            ErrorCode::kContextLengthExceeded);
  OpenRequest hot = request(1);
  hot.params.temperature = -1;
  EXPECT_EQ(refusal(hot), ErrorCode::kInvalidValue);
  for (std::uint64_t seq = 1; seq <= 6; ++seq) open(request(seq));
  EXPECT_EQ(refusal(request(7)), ErrorCode::kQueueFull);
  EXPECT_EQ(engine_->snapshot().n_refused, 6u);
  run();
  EXPECT_EQ(done_.size(), 6u);
  open(request(1));
  EXPECT_EQ(refusal(request(1)), ErrorCode::kInvalidRequest);
  engine_->begin_drain();
  EXPECT_EQ(refusal(request(8)), ErrorCode::kDraining);
  run();
  EXPECT_EQ(done_.size(), 7u) << "what runs is finished";
}

TEST_F(TargetEngineTest, RefusesAtStartACacheTooSmallForOneSequence) {
  auto options = default_options();
  options.kv.n_blocks = 15;
  EXPECT_THROW(start(options), FatalError);
  options.kv.n_blocks = 16;
  EXPECT_NO_THROW(start(options));
}

TEST_F(TargetEngineTest, RefusesAtStartALongerSequenceThanTheModelHasPositionsFor) {
  auto options = default_options();
  options.max_model_len = 513;
  try {
    start(options);
    FAIL();
  } catch (const FatalError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_NE(std::string(error.what()).find("513"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("512"), std::string::npos);
  }
  options.max_model_len = 512;
  start(options);
}

TEST_F(TargetEngineTest, EndsAnAnswerAtTheModelsLongestSequence) {
  start();
  OpenRequest r = request(1, std::vector<TokenId>(kMaxLen - 3, 1), 100);
  open(r);
  run();
  EXPECT_EQ(text_[1].size(), 3u);
  EXPECT_EQ(done_.at(0).reason, FinishReason::kLength);
}

TEST_F(TargetEngineTest, StopsInsideAnAcceptedRunWherePlainDecodingWould) {
  start();
  OpenRequest r = request(1, {1, 2, 3}, 20);
  const auto text = plain(r);
  draft_.script = r.prompt;
  draft_.script.insert(draft_.script.end(), text.begin(), text.end());
  r.params.stop_token_ids = {text[3]};
  const auto stopped = plain(r);
  ASSERT_LT(stopped.size(), text.size());
  open(r);
  run();
  EXPECT_EQ(text_[1], stopped);
  EXPECT_EQ(done_.at(0).reason, FinishReason::kStop);
  EXPECT_EQ(done_.at(0).stop_token, text[3]);
}

TEST_F(TargetEngineTest, AnEndTokenBeyondTheVocabularyEndsNothing) {
  start();
  OpenRequest r = request(1);
  r.params.min_tokens = 5;  // masks the end tokens, so each must be a column of the logits
  const auto text = plain(r);
  r.end_tokens = {40, -1, 1 << 20};
  open(r);
  run();
  EXPECT_EQ(text_[1], text);
  EXPECT_EQ(done_.size(), 1u);
}

// A draft whose matrix has more rows than the vocabulary has ids may propose what can never be
// chosen, and penalties count what was proposed.
TEST_F(TargetEngineTest, AProposedPaddingIdIsNoProposal) {
  auto options = default_options();
  options.n_valid_ids = 36;
  start(options);
  OpenRequest r = request(1, {1, 2, 3}, 12);
  r.params.repetition_penalty = 1.2f;
  r.params.frequency_penalty = 0.1f;
  draft_.script = {1, 2, 3};
  for (TokenId id = 36; id < 40; ++id) draft_.script.insert(draft_.script.end(), 4, id);
  open(r);
  run();
  EXPECT_EQ(text_[1].size(), 12u);
  for (const TokenId id : text_[1]) EXPECT_LT(id, 36);
  ASSERT_EQ(done_.size(), 1u);
  EXPECT_EQ(done_[0].stats.spec.n_drafted, 0u);
}

TEST_F(TargetEngineTest, OpensItsProposersOnceThoughTheClockBeginsAtZeroAndItIsPreempted) {
  now_ = TimePoint{};
  TargetEngineOptions options = default_options();
  options.kv.n_blocks = 17;  // one sequence and a little
  start(options);
  open(request(1, {1, 2, 3}, 100));
  open(request(2, {4, 5, 6}, 100));
  run();
  EXPECT_GT(engine_->snapshot().n_preemptions, 0u);
  EXPECT_EQ(draft_.opened, (std::vector<SeqId>{SeqId{1}, SeqId{2}}));
}

TEST_F(TargetEngineTest, CancelsOnceAndFreesEverything) {
  start();
  open(request(1, {1, 2, 3}, 50));
  open(request(2, {1, 2, 3}, 50));
  for (int i = 0; i < 5; ++i) take(engine_->step(now_));
  EXPECT_TRUE(engine_->close(SeqId{1}, CloseReason::kCancelled));
  EXPECT_FALSE(engine_->close(SeqId{1}, CloseReason::kCancelled));
  EXPECT_TRUE(engine_->close(SeqId{2}, CloseReason::kStop));
  EXPECT_FALSE(engine_->close(SeqId{9}, CloseReason::kStop));
  EXPECT_EQ(engine_->snapshot().kv.n_used, 0);
  EXPECT_TRUE(engine_->has_work()) << "the events are still to be handed out";
  run();
  ASSERT_EQ(done_.size(), 2u);
  EXPECT_EQ(done_[0].reason, FinishReason::kCancelled);
  EXPECT_EQ(done_[1].reason, FinishReason::kStop);
  EXPECT_EQ(draft_.closed.size(), 2u);
}

TEST_F(TargetEngineTest, APassThatBeganBeforeTheDeadlineIsFinishedAndDelivered) {
  start();
  OpenRequest short_lived = request(1, {1, 2, 3}, 100);
  short_lived.deadline = now_ + microseconds(1);  // long before the end of the first pass
  open(short_lived);
  run();
  ASSERT_EQ(done_.size(), 1u);
  EXPECT_EQ(done_[0].reason, FinishReason::kDeadline);
  EXPECT_EQ(text_[1].size(), 1u);
}

TEST_F(TargetEngineTest, EndsByTheDeadlineRunningOrWaiting) {
  auto options = default_options();
  options.max_running = 1;
  start(options);
  OpenRequest running = request(1, {1, 2, 3}, 100);
  running.deadline = now_ + milliseconds(5);
  open(running);
  OpenRequest waiting = request(2, {1, 2, 3}, 100);
  waiting.deadline = now_ + milliseconds(3);
  open(waiting);
  run();
  ASSERT_EQ(done_.size(), 2u);
  EXPECT_EQ(done_[0].seq, SeqId{2});
  EXPECT_EQ(done_[0].reason, FinishReason::kDeadline);
  EXPECT_EQ(done_[1].reason, FinishReason::kDeadline);
  EXPECT_EQ(text_[1].size(), 5u);
}

TEST_F(TargetEngineTest, AdmitsByPriorityThenArrival) {
  auto options = default_options();
  options.max_running = 1;
  options.max_waiting = 8;
  start(options);
  open(request(1, {1}, 1));
  open(request(2, {1}, 1));
  OpenRequest urgent = request(3, {1}, 1);
  urgent.priority = 1;
  open(urgent);
  run();
  EXPECT_EQ(first_seen_, (std::vector<SeqId>{SeqId{3}, SeqId{1}, SeqId{2}}));
}

TEST_F(TargetEngineTest, GoesOnWhereAnotherTargetStopped) {
  start();
  OpenRequest r = request(1, {1, 2, 3}, 12);
  r.params.temperature = 0.9f;
  r.params.repetition_penalty = 1.3f;
  const auto text = plain(r);
  r.resume.assign(text.begin(), text.begin() + 7);
  open(r);
  take(engine_->step(now_));
  run();
  EXPECT_EQ(text_[1], std::vector<TokenId>(text.begin() + 7, text.end()));
  EXPECT_EQ(done_.at(0).stats.n_output, 12u);
}

TEST_F(TargetEngineTest, ResumesAnAnswerThatHadEndedWithItsEnd) {
  start();
  OpenRequest r = request(1, {1, 2, 3}, 4);
  r.resume = plain(r);
  open(r);
  run();
  ASSERT_EQ(done_.size(), 1u);
  EXPECT_EQ(done_[0].reason, FinishReason::kLength);
  EXPECT_TRUE(text_[1].empty());
  r.seq = SeqId{2};
  r.resume.push_back(1);
  EXPECT_EQ(refusal(r), ErrorCode::kInvalidRequest);
}

TEST_F(TargetEngineTest, ResumesAnAnswerThatHadFilledTheContext) {
  start();
  OpenRequest r = request(1, {1, 2, 3}, kMaxLen - 3);
  r.params.ignore_eos = true;
  r.resume = plain(r);
  ASSERT_EQ(r.prompt.size() + r.resume.size(), kMaxLen);
  open(r);
  run();
  ASSERT_EQ(done_.size(), 1u);
  EXPECT_EQ(done_[0].reason, FinishReason::kLength);
  r.seq = SeqId{2};
  r.resume.push_back(1);
  EXPECT_EQ(refusal(r), ErrorCode::kContextLengthExceeded);
}

TEST_F(TargetEngineTest, FailsWhereNoTokenMayFollow) {
  start();
  OpenRequest r = request(1);
  for (TokenId id = 0; id < 40; ++id) r.params.bad_words.push_back({id});
  open(r);
  run();
  ASSERT_EQ(failed_.size(), 1u);
  EXPECT_EQ(failed_[0].error.code, ErrorCode::kInvalidValue);
  EXPECT_TRUE(done_.empty());
  EXPECT_EQ(engine_->snapshot().kv.n_used, 0);
}

// Of a model that is broken, not of the request.
TEST_F(TargetEngineTest, FailsWhereLogitsAreNotNumbers) {
  ScriptedModel broken({.vocab_size = 40, .max_model_len = kMaxLen, .spread = std::nanf("")});
  engine_ = std::make_unique<TargetEngine>(broken, *backend_,
                                           Proposers{.each = {&draft_, &ngram_}, .watch = &draft_},
                                           default_options());
  open(request(1));
  run();
  ASSERT_EQ(failed_.size(), 1u);
  EXPECT_EQ(failed_[0].error.code, ErrorCode::kInternal);
  EXPECT_TRUE(failed_[0].error.param.empty());
  EXPECT_EQ(engine_->snapshot().kv.n_used, 0);
  engine_.reset();
}

TEST_F(TargetEngineTest, FindsAPromptsBlocksAgainButNotAnotherTenants) {
  start();
  const std::vector<TokenId> prompt(33, 4);
  for (std::uint64_t seq = 1; seq <= 3; ++seq) {
    OpenRequest r = request(seq, prompt, 2);
    r.tenant_salt = seq == 3 ? 9 : 0;
    open(r);
    run();
  }
  EXPECT_EQ(done_.at(0).stats.n_cached, 0u);
  EXPECT_EQ(done_.at(1).stats.n_cached, 32u);
  EXPECT_EQ(done_.at(2).stats.n_cached, 0u);
}

TEST_F(TargetEngineTest, APromptOfSeveralThatComeTogetherIsComputedOnce) {
  start();
  for (std::uint64_t seq = 1; seq <= 4; ++seq) open(request(seq, some_tokens(64), 2));
  run();
  EXPECT_EQ(done_.size(), 4u);
  // What is left of a prompt that another one computes is not waited for where it is short.
  EXPECT_LE(engine_->snapshot().n_prompt_rows, 64u + 3 * 16);
}

TEST_F(TargetEngineTest, MoreOfOnePromptThanThereArePlacesAreServed) {
  auto options = default_options();
  options.max_running = 2;
  start(options);
  for (std::uint64_t seq = 1; seq <= 4; ++seq) open(request(seq, some_tokens(64), 2));
  run();
  EXPECT_EQ(done_.size(), 4u);
}

TEST_F(TargetEngineTest, OneThatWaitsForThePromptOfAnotherGoesOnWhenThatOneEnds) {
  start();
  open(request(1, some_tokens(64), 2));
  open(request(2, some_tokens(64), 2));
  take(engine_->step(now_));
  EXPECT_EQ(engine_->snapshot().n_running, 1u);
  EXPECT_EQ(engine_->snapshot().n_held_back, 1u);
  EXPECT_EQ(engine_->snapshot().n_waiting_tokens, 0u);
  ASSERT_TRUE(engine_->close(SeqId{1}, CloseReason::kCancelled));
  run();
  EXPECT_EQ(text_[2], plain(request(2, some_tokens(64), 2)));
}

TEST_F(TargetEngineTest, OthersPromptsAndThoseOfOtherTenantsAreNotWaitedFor) {
  start();
  auto other = some_tokens(64);
  other[0] = 38;
  OpenRequest foreign = request(3, some_tokens(64), 2);
  foreign.tenant_salt = 9;
  open(request(1, some_tokens(64), 2));
  open(request(2, other, 2));
  open(foreign);
  take(engine_->step(now_));
  EXPECT_EQ(engine_->snapshot().n_running, 3u);
}

TEST_F(TargetEngineTest, APromptThatOthersHoldTakesNoFurtherBlocks) {
  auto options = default_options();
  options.kv.n_blocks = 16;  // ten for the prompt: not twice
  start(options);
  open(request(1, some_tokens(80), 40));
  for (int i = 0; i < 6; ++i) take(engine_->step(now_));
  open(request(2, some_tokens(80), 2));
  take(engine_->step(now_));
  EXPECT_EQ(engine_->snapshot().n_running, 2u);
  run();
  EXPECT_EQ(engine_->snapshot().n_preemptions, 0u);
  EXPECT_EQ(text_[2], plain(request(2, some_tokens(80), 2)));
}

TEST_F(TargetEngineTest, WhatIsComputedAgainIsNeitherAPromptNorFoundInTheCache) {
  auto options = default_options();
  options.kv.n_blocks = 17;  // one sequence and a little
  start(options);
  open(request(1, std::vector<TokenId>(20, 1), 100));
  open(request(2, std::vector<TokenId>(20, 2), 100));
  run();
  const TargetSnapshot snapshot = engine_->snapshot();
  EXPECT_GT(snapshot.n_preemptions, 0u);
  EXPECT_EQ(snapshot.n_prompt_rows, 40u);
  EXPECT_EQ(snapshot.n_looked_up_tokens, 40u);
  EXPECT_EQ(snapshot.n_found_tokens, 0u);
}

TEST_F(TargetEngineTest, KeepsItsRowBudget) {
  auto options = default_options();
  options.max_batch_rows = 12;
  options.prefill_chunk = 6;
  start(options);
  for (std::uint64_t seq = 1; seq <= 4; ++seq) open(request(seq, std::vector<TokenId>(30, 2), 20));
  draft_.script.assign(60, 2);
  run();
  EXPECT_LE(model_.most_rows(), 12u);
  EXPECT_EQ(done_.size(), 4u);
}

TEST_F(TargetEngineTest, WaitsOnlyForAnActiveDraftThatOwesAnAnswer) {
  start();
  EXPECT_EQ(engine_->wait_hint(now_), Duration{});
  open(request(1, std::vector<TokenId>(20, 1), 50));
  draft_.says = {
      .readiness = DraftReadiness::kReady, .is_under_way = true, .arrives_in = microseconds(50)};
  EXPECT_EQ(engine_->wait_hint(now_), Duration{}) << "the first token waits for no draft";
  engine_->step(now_);
  EXPECT_EQ(engine_->wait_hint(now_), Duration{}) << "nor does a prompt";
  engine_->step(now_);
  EXPECT_GT(engine_->wait_hint(now_), Duration{});
  EXPECT_FALSE(engine_->proposals_complete(now_));
  draft_.says.is_under_way = false;
  EXPECT_EQ(engine_->wait_hint(now_), Duration{});
  EXPECT_TRUE(engine_->proposals_complete(now_));
  for (const DraftReadiness readiness :
       {DraftReadiness::kDetached, DraftReadiness::kOpening, DraftReadiness::kUnready}) {
    draft_.says = {.readiness = readiness, .is_under_way = true, .arrives_in = microseconds(50)};
    EXPECT_EQ(engine_->wait_hint(now_), Duration{});
    EXPECT_TRUE(engine_->proposals_complete(now_));
  }
  draft_.says = {
      .readiness = DraftReadiness::kReady, .is_under_way = true, .arrives_in = microseconds(50)};
  open(request(2, {1, 2, 3}, 5));
  EXPECT_EQ(engine_->wait_hint(now_), Duration{}) << "a newcomer's first token comes first";
}

TEST_F(TargetEngineTest, WaitsForAdaptiveRequestsOnlyAsLongAsItPays) {
  start();
  OpenRequest r = request(1, {1, 2, 3}, 100);
  r.length = LengthMode::kAdaptive;
  open(r);
  const auto step = [&] {
    engine_->step(now_);
    engine_->record_step_time(milliseconds(4));
  };
  for (int i = 0; i < 20; ++i) step();
  draft_.says = {
      .readiness = DraftReadiness::kReady, .is_under_way = true, .arrives_in = microseconds(500)};
  EXPECT_GE(engine_->wait_hint(now_), microseconds(500));
  EXPECT_LE(engine_->wait_hint(now_), milliseconds(4)) << "a step";

  // Too late to pay by what is known: waited for once, to see, and after that only now and then.
  draft_.says.arrives_in = milliseconds(50);
  EXPECT_EQ(engine_->wait_hint(now_), milliseconds(4));
  int n_trials = 0;
  for (int i = 0; i < 64; ++i) {
    step();
    if (engine_->wait_hint(now_) > Duration{}) ++n_trials;
  }
  EXPECT_EQ(n_trials, 2);
}

// What waits for a single question that is tried, and what does not.
class ProbedDraft : public TargetEngineTest {
 protected:
  static constexpr DraftOutlook kOwes{
      .readiness = DraftReadiness::kReady, .is_under_way = true, .arrives_in = microseconds(500)};

  void start_with(std::vector<LengthMode> lengths) {
    auto options = default_options();
    options.max_model_len = 512;
    start(options);
    for (std::size_t i = 0; i < lengths.size(); ++i) open_one(i + 1, lengths[i]);
  }
  void open_one(std::uint64_t seq, LengthMode length) {
    OpenRequest r = request(seq, {1, 2, 3}, 500);
    r.length = length;
    open(r);
  }
  const DraftingGate& gate() const { return engine_->drafting_gate(); }
  // Passes take ten times as long while drafts are asked.
  void pass() {
    if (gate().asking() != DraftingGate::Asking::kNone) now_ += milliseconds(36);
    engine_->step(now_);
    engine_->record_step_time(milliseconds(4));
    now_ += milliseconds(4);
  }
  void run_into_probe() {
    for (int i = 0; i < 300 && !gate().is_probing(); ++i) pass();
    ASSERT_TRUE(gate().is_probing());
  }
};

TEST_F(ProbedDraft, IsAskedForTheFirstSequenceThatItServes) {
  start_with({LengthMode::kAdaptive, LengthMode::kAdaptive});
  draft_.says_of[1] = {.readiness = DraftReadiness::kDetached};
  for (int i = 0; i < 300 && gate().asking() == DraftingGate::Asking::kAll; ++i) pass();
  draft_.last_budget.clear();
  run_into_probe();
  pass();
  EXPECT_TRUE(draft_.last_budget.contains(2));
}

// Or texts that end before it is asked would never be in it.
TEST_F(ProbedDraft, IsOpenedByItsFirstAskWhileSilencedAndAMemoryAtOnce) {
  PuppetDraft memory(ProposerKind::kMemory);
  auto options = default_options();
  options.max_model_len = 512;
  engine_ = std::make_unique<TargetEngine>(
      model_, *backend_,
      Proposers{.each = {&draft_, &memory}, .watch = &draft_, .memory_watch = &memory}, options);
  open_one(1, LengthMode::kAdaptive);
  for (int i = 0; i < 300 && gate().asking() != DraftingGate::Asking::kNone; ++i) pass();
  ASSERT_EQ(DraftingGate::Asking::kNone, gate().asking());
  OpenRequest r = request(2);
  r.length = LengthMode::kAdaptive;
  r.proposers = {ProposerKind::kDraft, ProposerKind::kMemory};
  open(r);
  pass();
  EXPECT_EQ(draft_.opened.back(), SeqId{2});
  EXPECT_EQ(draft_.prepared, std::vector<SeqId>{SeqId{1}});
  EXPECT_EQ(memory.prepared, std::vector<SeqId>{SeqId{2}});
}

TEST_F(ProbedDraft, IsNotWaitedForByAnAdaptiveRequest) {
  start_with({LengthMode::kAdaptive});
  for (int i = 0; i < 5; ++i) pass();
  draft_.says = kOwes;
  EXPECT_GE(engine_->wait_hint(now_), microseconds(500)) << "before drafts were silenced";
  draft_.says = {.readiness = DraftReadiness::kReady};
  run_into_probe();
  draft_.says = kOwes;
  EXPECT_EQ(engine_->wait_hint(now_), Duration{});
  EXPECT_TRUE(engine_->proposals_complete(now_));
}

TEST_F(ProbedDraft, IsWaitedForByARequestOfFixedLength) {
  start_with({LengthMode::kAdaptive, LengthMode::kFixed});
  run_into_probe();
  draft_.says_of = {{1, kOwes}, {2, kOwes}};
  EXPECT_GT(engine_->wait_hint(now_), Duration{});
  EXPECT_FALSE(engine_->proposals_complete(now_));
  draft_.says_of.erase(2);
  EXPECT_TRUE(engine_->proposals_complete(now_)) << "what is probed holds no pass up";
}

// The probe goes on until the next adaptive request; requests of fixed length are not held up.
TEST_F(ProbedDraft, HoldsUpNoPassWhereItsRequestEnds) {
  start_with({LengthMode::kAdaptive, LengthMode::kFixed});
  run_into_probe();
  draft_.says_of[1] = kOwes;
  pass();
  ASSERT_TRUE(gate().is_probing());
  ASSERT_TRUE(engine_->close(SeqId{1}, CloseReason::kCancelled));
  for (int i = 0; i < 200; ++i) {
    draft_.says = kOwes;
    ASSERT_GT(engine_->wait_hint(now_), Duration{}) << i;
    draft_.says.is_under_way = false;
    pass();
  }
  EXPECT_TRUE(gate().is_probing());
  open_one(3, LengthMode::kAdaptive);
  for (int i = 0; i < 3; ++i) pass();
  EXPECT_FALSE(gate().is_probing());
}

TEST_F(TargetEngineTest, StopsWaitingWhenTheAnswerIsThere) {
  start();
  OpenRequest r = request(1, {1, 2, 3}, 50);
  open(r);
  engine_->step(now_);
  draft_.says = {
      .readiness = DraftReadiness::kReady, .is_under_way = true, .arrives_in = microseconds(50)};
  EXPECT_GT(engine_->wait_hint(now_), Duration{});
  EXPECT_FALSE(engine_->proposals_complete(now_));
  // The answer is with the proposer, but it is not collected yet.
  ASSERT_FALSE(draft_.budgets.empty());
  draft_.script.assign(40, 7);
  engine_->step(now_);
  EXPECT_TRUE(engine_->proposals_complete(now_)) << "a whole proposal is at hand";
  EXPECT_EQ(engine_->wait_hint(now_), Duration{});
}

TEST_F(TargetEngineTest, CountsWhatItDid) {
  start();
  open(request(1, std::vector<TokenId>(20, 1), 3));
  run();
  const TargetSnapshot snapshot = engine_->snapshot();
  EXPECT_EQ(snapshot.n_opened, 1u);
  EXPECT_EQ(snapshot.n_done, 1u);
  EXPECT_EQ(snapshot.n_tokens, 3u);
  EXPECT_EQ(snapshot.n_steps, 4u);  // two chunks, then two tokens more
  EXPECT_EQ(snapshot.n_rows, 22u);
  EXPECT_EQ(snapshot.n_prompt_rows, 20u);
  EXPECT_EQ(snapshot.n_running + snapshot.n_waiting, 0u);
}

}  // namespace
}  // namespace foretoken
