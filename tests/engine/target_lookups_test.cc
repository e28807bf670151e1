// When a target asks a memory of texts and when it waits for one.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "common/engine/target_engine.h"
#include "common/kv/invariants.h"
#include "kernels/include/backend.h"
#include "tests/support/plain_decode.h"
#include "tests/support/scripted_model.h"

namespace foretoken {
namespace {

// Knows the text, or something else; answers at once or when the test says so.
class PuppetSource final : public Proposer, public DraftWatch {
 public:
  explicit PuppetSource(ProposerKind kind) : kind_(kind) {}
  ProposerKind kind() const override { return kind_; }
  void open(const Opening& opening) override { texts_[opening.seq] = &opening.text; }
  void ask(std::span<const Ask> asks) override {
    n_asks += asks.size();
    for (const Ask& ask : asks) {
      const CommittedTokens& text = *texts_.at(ask.seq);
      Proposal proposal{.base = text.size(), .prefix = text.prefix(), .source = kind_};
      for (Position i = text.size(); i < script.size() && proposal.tokens.size() < ask.budget;
           ++i) {
        proposal.tokens.push_back(script[i]);
        proposal.confidences.push_back(250);
      }
      ready_.emplace_back(ask.seq, std::move(proposal));
    }
  }
  void collect(TimePoint, ProposalStore& into) override {
    if (is_slow) return;
    for (const auto& [seq, proposal] : ready_) into.insert(seq, proposal);
    ready_.clear();
  }
  void close(SeqId seq) override {
    texts_.erase(seq);
    ready_.clear();
  }
  DraftOutlook outlook(SeqId, TimePoint) const override {
    return {.readiness = DraftReadiness::kReady, .is_under_way = !ready_.empty()};
  }

  std::vector<TokenId> script;
  bool is_slow = false;
  std::size_t n_asks = 0;

 private:
  ProposerKind kind_;
  std::map<SeqId, const CommittedTokens*> texts_;
  std::vector<std::pair<SeqId, Proposal>> ready_;
};

class TargetLookupsTest : public ::testing::Test {
 protected:
  static constexpr Position kMaxLen = 512;
  static constexpr Duration kPass = std::chrono::milliseconds(5);

  TargetLookupsTest() {
    TargetEngineOptions options;
    options.kv = {.n_blocks = 100, .block_tokens = 8};
    options.max_batch_rows = 64;
    options.max_running = 4;
    options.max_model_len = kMaxLen;
    engine_ = std::make_unique<TargetEngine>(
        model_, *backend_, Proposers{.each = {&memory_, &ngram_}, .memory_watch = &memory_},
        options);
  }
  // A sequence of which each source knows the text, or nothing that is right.
  void open(bool memory_knows, bool ngram_knows) {
    OpenRequest r{.seq = SeqId{++n_opened_}, .prompt = {1, 2, 3}, .tenant_salt = tenant_};
    r.params = {.temperature = 0, .max_tokens = n_tokens_, .ignore_eos = true};
    r.draft_len = 4;
    r.lookup_len = lookup_len_;
    r.proposers = {ProposerKind::kMemory, ProposerKind::kNgram};
    std::vector<TokenId> text = r.prompt;
    const auto answer = plain_decode(model_, *backend_, r, kMaxLen).ids;
    text.insert(text.end(), answer.begin(), answer.end());
    answers_.push_back(answer);
    std::vector<TokenId> wrong = text;
    for (TokenId& token : wrong) token = (token + 1) % 40;
    memory_.script = memory_knows ? text : wrong;
    ngram_.script = ngram_knows ? text : std::vector<TokenId>{};
    for (std::size_t i = ngram_errs_every_; i < ngram_.script.size(); i += ngram_errs_every_)
      ngram_.script[i] = wrong[i];
    ASSERT_TRUE(engine_->open(r, now_).ok());
  }
  void step() {
    const StepOutput& output = engine_->step(now_);
    n_passes_ += output.n_rows > 0;
    most_verified_ = std::max(most_verified_, output.n_verified);
    most_rows_ = std::max(most_rows_, output.n_rows);
    for (const TokensEvent& event : output.tokens) {
      std::vector<TokenId>& into = got_[event.seq.value];
      into.insert(into.end(), event.tokens.ids.begin(), event.tokens.ids.end());
    }
    const auto violations = kv_violations(engine_->kv().snapshot());
    ASSERT_TRUE(violations.empty()) << violations.front();
    engine_->record_step_time(kPass);
    now_ += kPass;
  }
  // Asks per pass of a sequence from beginning to end.
  double asks_of_one(bool memory_knows, bool ngram_knows) {
    memory_.n_asks = 0;
    n_passes_ = 0;
    open(memory_knows, ngram_knows);
    while (engine_->has_work()) step();
    return static_cast<double>(memory_.n_asks) / n_passes_;
  }

  std::unique_ptr<Backend> backend_ = make_backend({.device = "cpu", .n_threads = 1});
  ScriptedModel model_{{.vocab_size = 40, .max_model_len = kMaxLen, .eos_token_ids = {}}};
  PuppetSource memory_{ProposerKind::kMemory};
  PuppetSource ngram_{ProposerKind::kNgram};
  std::unique_ptr<TargetEngine> engine_;
  TimePoint now_{std::chrono::hours(1)};
  std::uint64_t n_opened_ = 0;
  std::uint64_t tenant_ = 0;
  std::uint32_t n_tokens_ = 200;
  std::uint32_t lookup_len_ = 0;
  std::uint32_t most_verified_ = 0;            // in a pass
  std::uint32_t most_rows_ = 0;                // likewise
  std::vector<std::vector<TokenId>> answers_;  // by plain decoding
  std::map<std::uint64_t, std::vector<TokenId>> got_;
  std::size_t ngram_errs_every_ = kMaxLen;
  int n_passes_ = 0;
};

TEST_F(TargetLookupsTest, AsksAfterEachPassWhereGuessesStand) {
  asks_of_one(true, false);
  EXPECT_GT(asks_of_one(true, false), 0.95);
}

TEST_F(TargetLookupsTest, VerifiesAsManyAsALookupMaySay) {
  asks_of_one(false, true);
  EXPECT_EQ(most_verified_, 4u) << "the length of all sources";
  lookup_len_ = 12;
  asks_of_one(false, true);
  EXPECT_EQ(most_verified_, 12u);
  most_verified_ = 0;
  asks_of_one(true, false);
  EXPECT_EQ(most_verified_, 12u) << "of a memory likewise";
}

// Four sequences want 13 rows each where a pass has 40.
TEST_F(TargetLookupsTest, LongGuessesKeepToTheRowsOfAPass) {
  TargetEngineOptions options;
  options.kv = {.n_blocks = 100, .block_tokens = 8};
  options.max_batch_rows = 40;
  options.max_running = 4;
  options.max_model_len = kMaxLen;
  engine_ = std::make_unique<TargetEngine>(
      model_, *backend_, Proposers{.each = {&memory_, &ngram_}, .memory_watch = &memory_}, options);
  lookup_len_ = 12;
  for (int i = 0; i < 4; ++i) open(false, true);
  while (engine_->has_work()) step();
  EXPECT_GT(most_verified_, 4u * 4u);
  EXPECT_LE(most_verified_, 36u);
}

// Blocks for one text of four, and rows for two long guesses: both run out.
TEST_F(TargetLookupsTest, LongGuessesGiveWayWhereBlocksAreScarce) {
  constexpr std::int32_t kBlocks = 34, kRows = 24;
  TargetEngineOptions options;
  options.kv = {.n_blocks = kBlocks, .block_tokens = 8, .prefix_cache = PrefixCaching::kOff};
  options.max_batch_rows = kRows;
  options.max_running = 4;
  options.max_model_len = 240;
  engine_ = std::make_unique<TargetEngine>(
      model_, *backend_, Proposers{.each = {&memory_, &ngram_}, .memory_watch = &memory_}, options);
  lookup_len_ = 16;
  ngram_errs_every_ = 11;
  for (int i = 0; i < 4; ++i) open(false, true);
  for (int n_steps = 0; engine_->has_work(); ++n_steps) {
    ASSERT_LT(n_steps, 2000) << "no progress";
    step();
  }
  for (std::uint64_t seq = 1; seq <= 4; ++seq) EXPECT_EQ(answers_[seq - 1], got_[seq]) << seq;
  EXPECT_GT(most_verified_, 8u) << "guesses were longer than a draft's";
  EXPECT_EQ(most_rows_, static_cast<std::uint32_t>(kRows)) << "rows ran out";
  const TargetSnapshot end = engine_->snapshot();
  EXPECT_GT(end.n_preemptions, 0u) << "blocks ran out";
  EXPECT_EQ(end.kv.n_used, 0);
  EXPECT_EQ(end.kv.n_free, kBlocks);
}

TEST(SequenceLengths, ADraftAloneKeepsToItsOwnLength) {
  OpenRequest request{.seq = SeqId{1}, .prompt = {1}};
  request.proposers = {ProposerKind::kDraft, ProposerKind::kNgram};
  request.draft_len = 2;
  request.lookup_len = 8;
  const Sequence sequence(request, {.max_model_len = 100}, TimePoint{});
  const ProposerSet draft = ProposerKind::kDraft, ngram = ProposerKind::kNgram;
  const ProposerSet both{ProposerKind::kDraft, ProposerKind::kNgram};
  std::vector<PathToken> path;
  for (const ProposerSet sources : {draft, draft, both, ngram, draft, ngram})
    path.push_back({.sources = sources});
  sequence.limit(path);
  EXPECT_EQ(path.size(), 4u);
}

TEST_F(TargetLookupsTest, AsksSeldomWhereGuessesDoNotStandAndAgainWhereTheyDo) {
  asks_of_one(true, false);
  for (int i = 0; i < 3; ++i) asks_of_one(false, false);
  EXPECT_LT(asks_of_one(false, false), 0.1);
  asks_of_one(true, false);
  EXPECT_GT(asks_of_one(true, false), 0.9);
}

TEST_F(TargetLookupsTest, AsksForNothingThatIsAtHandAlready) {
  asks_of_one(true, true);
  EXPECT_LT(asks_of_one(true, true), 0.2);
}

// As good as sure is not sure.
TEST_F(TargetLookupsTest, AsksBesidePlentyThatIsAtHandWhereThatBringsMore) {
  ngram_errs_every_ = 23;
  n_tokens_ = 400;
  for (int i = 0; i < 4; ++i) asks_of_one(true, true);
  EXPECT_GT(asks_of_one(true, true), 0.5);
  const int n_together = n_passes_;
  asks_of_one(false, true);
  EXPECT_LT(n_together, n_passes_);
}

TEST_F(TargetLookupsTest, BeginsWithWhatAsksBroughtToTheSameTenant) {
  asks_of_one(true, false);
  tenant_ = 7;
  for (int i = 0; i < 4; ++i) asks_of_one(false, false);
  EXPECT_LT(asks_of_one(false, false), 0.1);
  tenant_ = 0;
  EXPECT_GT(asks_of_one(true, false), 0.95);
}

// Or a tenant of short answers, once not asked for, would never be again.
TEST_F(TargetLookupsTest, LearnsFromTheLastAskOfAnAnswer) {
  for (int i = 0; i < 5; ++i) asks_of_one(false, false);
  n_tokens_ = 20;  // one ask, after 16 of them
  for (int i = 0; i < 3; ++i) asks_of_one(true, false);
  EXPECT_GT(asks_of_one(true, false), 0.6);
}

TEST_F(TargetLookupsTest, WaitsForAnswersWhereTheyHaveBroughtTokens) {
  asks_of_one(true, false);
  open(true, false);
  for (int i = 0; i < 4; ++i) step();
  memory_.is_slow = true;
  step();
  const Duration longest = engine_->wait_hint(now_);
  EXPECT_GT(longest, Duration::zero());
  EXPECT_LE(longest, kPass / 4);
  EXPECT_FALSE(engine_->proposals_complete(now_));
  memory_.is_slow = false;
  EXPECT_TRUE(engine_->proposals_complete(now_));
}

TEST_F(TargetLookupsTest, DoesNotWaitForAnswersThatBringNothing) {
  for (int i = 0; i < 4; ++i) asks_of_one(false, false);
  memory_.is_slow = true;
  open(false, false);
  Duration waited{};
  while (engine_->has_work()) {
    waited += engine_->wait_hint(now_);
    step();
  }
  EXPECT_EQ(waited, Duration::zero());
  EXPECT_GT(memory_.n_asks, 0u);
}

}  // namespace
}  // namespace foretoken
