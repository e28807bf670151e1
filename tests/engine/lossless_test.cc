// Speculation changes speed, never text: whatever proposes, however it behaves, and whatever the
// batch, the chunks, the cache and the schedule, every request gets the tokens of plain decoding,
// once each and in order.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "common/engine/draft_engine.h"
#include "common/engine/target_engine.h"
#include "common/grammar/constraint.h"
#include "common/kv/invariants.h"
#include "common/model/config.h"
#include "common/model/init_random.h"
#include "common/model/load_model.h"
#include "common/spec/ngram_proposer.h"
#include "common/spec/prediction_proposer.h"
#include "kernels/include/backend.h"
#include "tests/support/acceptance_rate.h"
#include "tests/support/faulty_proposers.h"
#include "tests/support/plain_decode.h"
#include "tests/support/scripted_model.h"
#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

constexpr PrefixHash kRoot = 0x4f1e6a336da9b7b6;
constexpr Position kMaxLen = 100;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : rng_(seed) {}
  int within(int low, int high) {
    return low + static_cast<int>(rng_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(int n) { return within(1, n) == 1; }
  template <class T>
  T pick(std::initializer_list<T> from) {
    return *(from.begin() + within(0, static_cast<int>(from.size()) - 1));
  }
  std::uint64_t word() { return rng_(); }

 private:
  std::mt19937_64 rng_;
};

// What all cases together must have exercised, or the test proves nothing.
struct Coverage {
  SpecStats spec;
  std::uint64_t n_preemptions = 0;
  std::uint64_t n_hit_tokens = 0;
  std::uint64_t n_stops = 0;
  std::uint64_t n_resumed = 0;
  std::uint64_t n_cancelled = 0;
  std::uint64_t n_late = 0;
  std::uint64_t n_draft_busy = 0;
  std::uint64_t n_draft_cut = 0;
  std::uint64_t n_cut_steps = 0;
  std::uint64_t n_prompt_logprobs = 0;
  std::uint64_t n_only_prompt = 0;  // requests
  std::uint64_t n_complete = 0;     // answers that their grammar ended
  std::uint64_t n_ended_early = 0;  // by an end token, where the grammar allowed more
  std::uint64_t n_guessed_under_grammar = 0;
  std::uint64_t n_agreed = 0;  // proposed tokens that several sources said
};

// A vocabulary for grammars: every byte of kLetters alone, and pieces of up to four of them.
constexpr std::string_view kLetters = R"(ab01":,{}[]-)";

std::vector<std::string> vocabulary_texts(std::int32_t n_ids) {
  std::mt19937 random(5);
  std::vector<std::string> texts(static_cast<std::size_t>(n_ids));
  for (std::size_t id = 1; id < texts.size(); ++id) {  // 0 is the end token
    if (id <= kLetters.size()) {
      texts[id] = kLetters[id - 1];
      continue;
    }
    for (auto n = 1 + random() % 4; n > 0; --n) texts[id] += kLetters[random() % kLetters.size()];
  }
  return texts;
}

std::shared_ptr<Constraints> constraints_over(const std::vector<std::string>& texts) {
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  return std::make_shared<Constraints>(views);
}

void random_grammar(Dice& dice, SamplingParams& params) {
  switch (dice.within(0, 3)) {
    case 0:
      params.regex = dice.pick({"(ab|ba|a0)*[01]{2,5}", "[ab]{3,20}(:[01]+)?", "a+", "[^a]*a"});
      break;
    case 1:
      params.json_schema = R"({"type": "object", "required": ["a"], "additionalProperties": false,
          "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"enum": ["a", "b", 0]}}}})";
      break;
    case 2:
      params.json_schema = R"({"type": "array", "items": {"type": "string", "maxLength": 6}})";
      break;
    default:
      params.gbnf = "root ::= \"[\" root* \"]\" | [ab]\n";
  }
}

SamplingParams random_params(Dice& dice, std::int32_t vocab) {
  SamplingParams p;
  const auto token = [&] { return static_cast<TokenId>(dice.within(0, vocab - 1)); };
  p.temperature = dice.pick({0.0f, 0.0f, 0.7f, 1.0f, 1.5f});
  if (dice.one_in(3)) p.top_k = static_cast<std::uint32_t>(dice.within(1, 20));
  if (dice.one_in(3)) p.top_p = dice.pick({0.3f, 0.9f, 0.95f});
  if (dice.one_in(4)) p.min_p = dice.pick({0.02f, 0.1f});
  if (dice.one_in(4)) p.repetition_penalty = dice.pick({0.8f, 1.2f});
  if (dice.one_in(4)) p.presence_penalty = dice.pick({-0.5f, 0.7f});
  if (dice.one_in(4)) p.frequency_penalty = dice.pick({-0.2f, 0.3f});
  if (dice.one_in(4)) p.logit_bias = {{token(), 3.0f}, {token(), -100.0f}};
  if (dice.one_in(4)) p.bad_words = {{token()}, {token(), token()}, {token(), token(), token()}};
  if (dice.one_in(4)) p.stop_token_ids = {token(), token()};
  if (dice.one_in(3)) p.n_logprobs = dice.within(0, 3);
  p.ignore_eos = !dice.one_in(3);
  p.seed = dice.word();
  p.choice = static_cast<std::uint32_t>(dice.within(0, 2));
  p.max_tokens = static_cast<std::uint32_t>(dice.within(1, 80));
  if (dice.one_in(4))
    p.min_tokens = static_cast<std::uint32_t>(dice.within(0, static_cast<int>(p.max_tokens)));
  return p;
}

std::vector<TokenId> random_prompt(Dice& dice,
                                   std::int32_t vocab,
                                   const std::vector<TokenId>& shared) {
  std::vector<TokenId> prompt;
  if (dice.one_in(2))
    prompt.assign(shared.begin(), shared.begin() + dice.within(1, static_cast<int>(shared.size())));
  const int n = dice.within(prompt.empty() ? 1 : 0, 40);
  for (int i = 0; i < n; ++i) prompt.push_back(static_cast<TokenId>(dice.within(0, vocab - 1)));
  return prompt;
}

// One request with the answer it must get.
struct Expectation {
  OpenRequest request;
  PlainAnswer answer;
  int opens_at = 0;       // step
  int cancelled_at = -1;  // step, or never
  std::vector<TokenId> delivered;
  std::vector<float> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;
  std::uint64_t n_guessed = 0;  // delivered tokens marked as proposals that stood
  bool has_ended = false;
};

class Case {
 public:
  Case(std::uint64_t seed, Backend& backend, Model& target, Model& draft, Coverage& coverage)
      : dice_(seed),
        bounds_(~seed),
        prompts_(seed + 0x9e3779b97f4a7c15),
        grammars_(seed ^ 0xd1b54a32d192ed03),
        ahead_(seed + 0xa0761d6478bd642f),
        lookups_(seed + 0xe7037ed1a0b428db),
        texts_(vocabulary_texts(target.config().vocab_size)),
        constraints_(constraints_over(texts_)),
        backend_(backend),
        target_(target),
        draft_(draft),
        coverage_(coverage) {}

  void run() {
    make_requests();
    make_draft();
    Proposers proposers{.each = {&prediction_}, .watch = linked_.get()};
    if (draft_proposer_ != nullptr) proposers.each.push_back(draft_proposer_);
    if (!dice_.one_in(5)) proposers.each.push_back(&ngram_);
    rows_cost_ = bounds_.one_in(2);
    TargetEngine engine(target_, backend_, proposers, target_options());
    for (int step = 0; !all_ended(engine); ++step) {
      ASSERT_LT(step, 20000) << "no progress";
      now_ += std::chrono::milliseconds(1);
      open_and_cancel(engine, step);
      if (linked_ && dice_.one_in(40)) linked_->vanish();
      const StepOutput& output = engine.step(now_);
      const auto by_rows = static_cast<int>(50 * output.n_rows);
      take_events(output);
      engine.record_step_time(
          std::chrono::microseconds(rows_cost_ ? 20 + by_rows : dice_.within(50, 5000)));
      const auto violations = kv_violations(engine.kv().snapshot());
      ASSERT_TRUE(violations.empty()) << violations.front();
      if (::testing::Test::HasFatalFailure()) return;
    }
    check_answers();
    const TargetSnapshot end = engine.snapshot();
    EXPECT_EQ(end.kv.n_used, 0);
    EXPECT_EQ(end.kv.n_free + end.kv.n_cached, options_.kv.n_blocks);
    EXPECT_EQ(end.n_done + end.n_failed, end.n_opened);
    check_draft();
    if (end.n_failed == 0) {
      EXPECT_EQ(end.spec, sum_);
    }
    coverage_.spec.add(end.spec);
    coverage_.n_preemptions += end.n_preemptions;
    coverage_.n_cut_steps += end.n_cut_steps;
    coverage_.n_agreed += end.n_agreed;
    coverage_.n_hit_tokens += end.kv.n_hit_tokens;
  }

 private:
  void make_requests() {
    // Rows of a matrix may be padded; a draft that does not know proposes such ids as well.
    const std::int32_t n_rows = target_.config().vocab_size;
    if (dice_.one_in(3)) options_.n_valid_ids = n_rows - dice_.within(1, 4);
    const std::int32_t vocab = options_.n_valid_ids > 0 ? options_.n_valid_ids : n_rows;
    std::vector<TokenId> shared;
    for (int i = 0; i < 40; ++i) shared.push_back(static_cast<TokenId>(dice_.within(0, vocab - 1)));
    for (int i = 0, n = dice_.within(1, 8); i < n; ++i) {
      Expectation e;
      e.request.seq = SeqId{static_cast<std::uint64_t>(i + 1)};
      e.request.prompt = random_prompt(dice_, vocab, shared);
      e.request.params = random_params(dice_, vocab);
      e.request.proposers = random_sources();
      e.request.draft_len = static_cast<std::uint32_t>(dice_.within(0, 8));
      e.request.lookup_len = lookups_.pick({0u, 16u, 32u});
      e.request.length =
          dice_.pick({LengthMode::kFixed, LengthMode::kFixed, LengthMode::kAdaptive});
      e.request.priority = dice_.within(0, 2);
      e.request.tenant_salt = static_cast<std::uint64_t>(dice_.within(0, 1));
      e.request.flow = static_cast<std::uint64_t>(bounds_.within(0, 2));
      e.request.flow_weight = 0.5 * bounds_.within(1, 4);
      ask_for_prompt(e.request);
      if (grammars_.one_in(6)) random_grammar(grammars_, e.request.params);
      e.answer = plain_decode(target_, backend_, e.request, kMaxLen, options_.n_valid_ids,
                              constraints_over(texts_).get());
      e.opens_at = dice_.one_in(2) ? 0 : dice_.within(0, 30);
      if (dice_.one_in(10)) e.cancelled_at = e.opens_at + dice_.within(0, 20);
      if (dice_.one_in(10))
        e.request.deadline = now_ + std::chrono::milliseconds(e.opens_at + dice_.within(0, 60));
      if (dice_.one_in(6) && e.answer.ids.size() > 1) {
        const int n_resumed = dice_.within(1, static_cast<int>(e.answer.ids.size()) - 1);
        e.request.resume.assign(e.answer.ids.begin(), e.answer.ids.begin() + n_resumed);
        ++coverage_.n_resumed;
      }
      e.request.prediction = e.answer.ids;
      for (TokenId& token : e.request.prediction)
        if (dice_.one_in(6)) token = static_cast<TokenId>(dice_.within(0, n_rows - 1));
      requests_.push_back(std::move(e));
    }
  }

  // Any set, a draft in most of them.
  ProposerSet random_sources() {
    ProposerSet sources;
    if (!dice_.one_in(3)) sources.add(ProposerKind::kDraft);
    if (dice_.one_in(2)) sources.add(ProposerKind::kNgram);
    if (dice_.one_in(3)) sources.add(ProposerKind::kPrediction);
    return sources;
  }

  void ask_for_prompt(OpenRequest& request) {
    if (!prompts_.one_in(3)) return;
    SamplingParams& p = request.params;
    p.n_prompt_logprobs = prompts_.within(0, 3);
    if (prompts_.one_in(8)) p.max_tokens = p.min_tokens = 0;
    if (prompts_.one_in(3))
      request.prompt_logprobs_from =
          static_cast<Position>(prompts_.within(0, static_cast<int>(request.prompt.size())));
  }

  // With the random times of steps it makes chunks of ever other sizes.
  Duration random_bound() {
    return bounds_.one_in(2) ? Duration{} : std::chrono::microseconds(bounds_.within(100, 20000));
  }

  TargetEngineOptions target_options() {
    options_.kv.block_tokens = dice_.pick({4, 8, 16});
    const std::int32_t one = (static_cast<std::int32_t>(kMaxLen) + options_.kv.block_tokens - 1) /
                             options_.kv.block_tokens;
    options_.kv.n_blocks = dice_.one_in(3) ? 9 * one : one + dice_.within(0, 4);
    options_.kv.prefix_cache = dice_.pick({PrefixCaching::kOn, PrefixCaching::kOff});
    options_.max_running = dice_.within(1, 8);
    options_.max_batch_rows = dice_.pick({8, 16, 64, 512});
    options_.prefill_chunk = dice_.pick({1, 5, 16, 512});
    options_.max_forced_rows = prompts_.pick({0, 1, 3, 17});
    options_.max_step = random_bound();
    options_.policy =
        dice_.pick({AdmissionPolicy::kMaxUtilization, AdmissionPolicy::kGuaranteedNoEvict});
    options_.max_model_len = kMaxLen;
    options_.prefix_root = kRoot;
    options_.constraints = constraints_;
    return options_;
  }

  void make_draft() {
    const int kind = dice_.within(0, 9);
    if (kind == 0) return;
    if (kind == 1) {
      liar_ = std::make_unique<Liar>(target_.config().vocab_size, dice_.word());
      draft_proposer_ = liar_.get();
      return;
    }
    DraftEngineOptions options;
    options.kv.block_tokens = dice_.pick({4, 8, 16});
    options.kv.n_blocks = dice_.one_in(3) ? dice_.within(4, 30) : 400;
    options.kv.prefix_cache = dice_.pick({PrefixCaching::kOn, PrefixCaching::kOff});
    options.max_batch_rows = dice_.pick({1, 3, 64});
    options.prefill_chunk = dice_.pick({1, 16, 64});
    options.max_step = random_bound();
    options.max_model_len = dice_.pick({20u, 100u, 200u});
    options.max_sequences = dice_.within(1, 8);
    options.max_ahead = static_cast<std::uint32_t>(dice_.within(1, 12));
    options.retry_after = std::chrono::milliseconds(dice_.within(1, 20));
    options.max_chained = dice_.pick({1u, 1u, 3u, 16u});
    options.run_ahead = ahead_.pick({0u, 0u, 3u, 16u});
    options.branch_rows = ahead_.pick({0u, 3u, 8u});
    if (!grammars_.one_in(6)) options.constraints = constraints_over(texts_);
    draft_engine_ = std::make_unique<DraftEngine>(draft_, backend_, options);
    const LinkFaults faults = kind < 5 ? LinkFaults{}
                                       : LinkFaults{.lose = dice_.within(0, 30),
                                                    .repeat = dice_.within(0, 30),
                                                    .max_delay = dice_.within(0, 6)};
    linked_ = std::make_unique<LinkedDraft>(*draft_engine_, kRoot, faults, dice_.word());
    draft_proposer_ = linked_.get();
  }

  void open_and_cancel(TargetEngine& engine, int step) {
    for (Expectation& e : requests_) {
      if (e.opens_at == step) {
        const auto opened = engine.open(e.request, now_);
        ASSERT_TRUE(opened.ok()) << opened.error().message;
      }
      if (e.cancelled_at == step) {
        EXPECT_EQ(engine.close(e.request.seq, CloseReason::kCancelled), !e.has_ended);
      }
    }
  }

  bool all_ended(const TargetEngine& engine) const {
    return !engine.has_work() && std::all_of(requests_.begin(), requests_.end(),
                                             [](const auto& e) { return e.has_ended; });
  }

  Expectation& of(SeqId seq) { return requests_.at(seq.value - 1); }

  static Position first_owed(const Expectation& e) {
    return std::max<Position>(1, e.request.prompt_logprobs_from);
  }

  void take_events(const StepOutput& output) {
    for (const TokensEvent& event : output.prompts) {
      Expectation& e = of(event.seq);
      ASSERT_FALSE(e.has_ended) << "a prompt after the end";
      ASSERT_TRUE(e.delivered.empty()) << "a prompt after its answer";
      const wire::Tokens& tokens = event.tokens;
      ASSERT_EQ(tokens.position, first_owed(e) + e.prompt_logprobs.size());
      ASSERT_LE(tokens.position + tokens.ids.size(), e.request.prompt.size());
      ASSERT_EQ(tokens.logprobs.size(), tokens.ids.size());
      for (std::size_t i = 0; i < tokens.ids.size(); ++i)
        ASSERT_EQ(tokens.ids[i], e.request.prompt[tokens.position + i]);
      e.prompt_logprobs.insert(e.prompt_logprobs.end(), tokens.logprobs.begin(),
                               tokens.logprobs.end());
    }
    for (const TokensEvent& event : output.tokens) {
      Expectation& e = of(event.seq);
      ASSERT_FALSE(e.has_ended) << "tokens after the end";
      ASSERT_EQ(event.tokens.position,
                e.request.prompt.size() + e.request.resume.size() + e.delivered.size());
      ASSERT_EQ(event.tokens.accepted.size(), event.tokens.ids.size());
      e.delivered.insert(e.delivered.end(), event.tokens.ids.begin(), event.tokens.ids.end());
      e.n_guessed += static_cast<std::uint64_t>(
          std::count(event.tokens.accepted.begin(), event.tokens.accepted.end(), std::uint8_t{1}));
      ASSERT_EQ(event.tokens.logprobs.size(),
                e.request.params.n_logprobs >= 0 ? event.tokens.ids.size() : 0u);
      for (const TokenLogprobs& logprobs : event.tokens.logprobs) {
        e.logprobs.push_back(logprobs.logprob);
        ASSERT_EQ(logprobs.top_ids.size(), static_cast<std::size_t>(e.request.params.n_logprobs));
      }
    }
    for (const DoneEvent& event : output.done) {
      Expectation& e = of(event.seq);
      ASSERT_FALSE(e.has_ended) << "ended twice";
      e.has_ended = true;
      check_counts(e, event.stats);
      if (event.reason == FinishReason::kCancelled) {
        ASSERT_GE(e.cancelled_at, 0);
        ++coverage_.n_cancelled;
        continue;
      }
      if (event.reason == FinishReason::kDeadline) {
        ASSERT_GE(now_, e.request.deadline);
        ++coverage_.n_late;
        continue;
      }
      EXPECT_FALSE(e.answer.is_blocked);
      EXPECT_EQ(event.reason, e.answer.reason);
      EXPECT_EQ(event.stats.n_output, e.answer.ids.size());
      if (event.reason == FinishReason::kStop) {
        EXPECT_EQ(event.stop_token, e.answer.ended_by_token ? e.answer.ids.back() : -1);
        ++coverage_.n_stops;
      }
      check_grammar_of(e);
      EXPECT_EQ(e.delivered.size() + e.request.resume.size(), e.answer.ids.size());
      if (e.request.params.n_prompt_logprobs >= 0) {
        EXPECT_EQ(e.prompt_logprobs.size() +
                      std::min<std::size_t>(first_owed(e), e.request.prompt.size()),
                  e.request.prompt.size());
        coverage_.n_prompt_logprobs += e.prompt_logprobs.size();
        if (e.request.params.max_tokens == 0) ++coverage_.n_only_prompt;
      }
    }
    for (const FailedEvent& event : output.failed) {
      Expectation& e = of(event.seq);
      ASSERT_FALSE(e.has_ended) << "ended twice";
      e.has_ended = true;
      EXPECT_TRUE(e.answer.is_blocked) << event.error.message;
    }
  }

  void check_grammar_of(const Expectation& e) {
    const SamplingParams& p = e.request.params;
    if (p.regex.empty() && p.json_schema.empty() && p.gbnf.empty()) return;
    coverage_.n_guessed_under_grammar += e.n_guessed;
    if (e.answer.reason != FinishReason::kStop) return;
    ++(e.answer.ended_by_token ? coverage_.n_ended_early : coverage_.n_complete);
    if (p.regex.empty()) return;
    std::string text;
    for (const TokenId id : e.answer.ids) text += texts_[static_cast<std::size_t>(id)];
    if (e.answer.ended_by_token) {
      const TokenId end = e.answer.ids.back();
      text.resize(text.size() - texts_[static_cast<std::size_t>(end)].size());
    }
    EXPECT_TRUE(std::regex_match(text, std::regex(p.regex))) << text << " under " << p.regex;
  }

  // What speculation is said to have done is what it did here: tokens that another target had
  // delivered before are no proposer's guesses, and nothing counts twice.
  void check_counts(const Expectation& e, const SequenceStats& stats) {
    const SpecStats& spec = stats.spec;
    EXPECT_EQ(stats.n_output, e.request.resume.size() + e.delivered.size());
    EXPECT_EQ(spec.n_accepted, e.n_guessed);
    EXPECT_LE(spec.n_accepted, spec.n_drafted);
    EXPECT_LE(spec.n_accepted, e.delivered.size());
    EXPECT_LE(e.delivered.size(), spec.n_accepted + stats.n_steps) << "a step adds one of its own";
    std::uint64_t n_rounds = 0, n_plain = 0, n_weighted = 0;
    for (std::size_t n = 0; n < spec.accepted_histogram.size(); ++n) {
      n_rounds += spec.accepted_histogram[n];
      n_weighted += n * spec.accepted_histogram[n];
    }
    for (const std::uint64_t n : spec.fallbacks) n_plain += n;
    EXPECT_EQ(n_rounds, spec.n_rounds);
    EXPECT_EQ(n_weighted, spec.n_accepted);
    EXPECT_LE(spec.n_rounds + n_plain, stats.n_steps);
    const auto expect_adds_up = [&](const auto& tallies) {
      SpecStats::Tally sum;
      for (const SpecStats::Tally& tally : tallies) {
        sum.n_drafted += tally.n_drafted;
        sum.n_accepted += tally.n_accepted;
      }
      EXPECT_EQ(sum.n_drafted, spec.n_drafted);
      EXPECT_EQ(sum.n_accepted, spec.n_accepted);
    };
    expect_adds_up(spec.by_depth);
    expect_adds_up(spec.by_proposer);
    sum_.add(spec);
  }

  void check_answers() {
    for (const Expectation& e : requests_) {
      std::vector<TokenId> got = e.request.resume;
      got.insert(got.end(), e.delivered.begin(), e.delivered.end());
      ASSERT_LE(got.size(), e.answer.ids.size());
      EXPECT_TRUE(std::equal(got.begin(), got.end(), e.answer.ids.begin()))
          << "sequence " << e.request.seq.value;
      if (e.request.params.n_logprobs >= 0) {
        const auto from =
            e.answer.logprobs.begin() + static_cast<std::ptrdiff_t>(e.request.resume.size());
        EXPECT_TRUE(std::equal(e.logprobs.begin(), e.logprobs.end(), from))
            << "logprobs of " << e.request.seq.value;
      }
      check_prompt(e);
    }
  }

  // Those of rows that ran alone.
  static void check_prompt(const Expectation& e) {
    const auto from =
        e.answer.prompt_logprobs.begin() + static_cast<std::ptrdiff_t>(first_owed(e)) - 1;
    if (e.prompt_logprobs.empty()) return;
    EXPECT_TRUE(std::equal(e.prompt_logprobs.begin(), e.prompt_logprobs.end(), from))
        << "the prompt of " << e.request.seq.value;
    for (std::size_t i = 0; i < e.prompt_logprobs.size(); ++i) {
      const TokenLogprobs& got = e.prompt_logprobs[i];
      const TokenId token = e.request.prompt.at(first_owed(e) + i);
      const auto top = std::find(got.top_ids.begin(), got.top_ids.end(), token);
      if (top == got.top_ids.end()) continue;
      EXPECT_EQ(got.top_logprobs[static_cast<std::size_t>(top - got.top_ids.begin())], got.logprob);
    }
  }

  // Whatever was lost, a draft forgets within its lease.
  void check_draft() {
    if (!draft_engine_) return;
    const DraftSnapshot snapshot = draft_engine_->snapshot();
    coverage_.n_draft_busy += snapshot.n_busy;
    coverage_.n_draft_cut += snapshot.n_cut;
    draft_engine_->step(now_ + std::chrono::seconds(11));
    EXPECT_EQ(draft_engine_->snapshot().n_attached, 0u);
    EXPECT_EQ(draft_engine_->snapshot().kv.n_used, 0);
    const auto violations = kv_violations(draft_engine_->kv().snapshot());
    EXPECT_TRUE(violations.empty()) << violations.front();
  }

  Dice dice_;
  Dice bounds_;   // of passes
  Dice prompts_;  // whose log-probabilities are asked for
  Dice grammars_;
  Dice ahead_;    // how far drafts run
  Dice lookups_;  // how long the guesses of other sources may be
  std::vector<std::string> texts_;
  std::shared_ptr<Constraints> constraints_;
  Backend& backend_;
  Model& target_;
  Model& draft_;
  Coverage& coverage_;
  TimePoint now_{std::chrono::hours(1)};
  TargetEngineOptions options_;
  NgramProposer ngram_;
  PredictionProposer prediction_;
  std::unique_ptr<Liar> liar_;
  std::unique_ptr<DraftEngine> draft_engine_;
  std::unique_ptr<LinkedDraft> linked_;
  bool rows_cost_ = false;  // so that flows are cut
  Proposer* draft_proposer_ = nullptr;
  std::vector<Expectation> requests_;
  SpecStats sum_;  // of all that are done
};

TEST(Lossless, EveryProposerGivesThePlainTextOfAScriptedModel) {
  const auto backend = make_backend({.device = "cpu", .n_threads = 1});
  Coverage coverage;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Dice dice(seed);
    ScriptedOptions options;
    options.vocab_size = dice.within(8, 64);
    options.text_seed = dice.word();
    options.spread = dice.pick({1.0f, 3.0f, 6.0f});
    ScriptedModel target(options);
    ScriptedOptions guess = options;
    guess.error_seed = dice.word();
    guess.error = dice.pick({0.0f, 0.3f, 1.0f});
    ScriptedModel draft(guess);
    Case(seed * 77, *backend, target, draft, coverage).run();
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
  EXPECT_GT(test::acceptance_rate(coverage.spec), 0.2);
  EXPECT_LT(test::acceptance_rate(coverage.spec), 0.95);
  for (const ProposerKind kind :
       {ProposerKind::kDraft, ProposerKind::kNgram, ProposerKind::kPrediction})
    EXPECT_GT(coverage.spec.by_proposer[static_cast<std::size_t>(kind)].n_accepted, 200u)
        << name_of(kind);
  EXPECT_GT(coverage.n_preemptions, 50u);
  EXPECT_GT(coverage.n_hit_tokens, 500u);
  EXPECT_GT(coverage.n_stops, 50u);
  EXPECT_GT(coverage.n_resumed, 20u);
  EXPECT_GT(coverage.n_cancelled, 10u);
  EXPECT_GT(coverage.n_late, 10u);
  EXPECT_GT(coverage.n_draft_busy, 10u);
  EXPECT_GT(coverage.n_draft_cut, 500u);
  EXPECT_GT(coverage.n_cut_steps, 500u);
  EXPECT_GT(coverage.n_prompt_logprobs, 5000u);
  EXPECT_GT(coverage.n_only_prompt, 20u);
  EXPECT_GT(coverage.n_complete, 50u);
  EXPECT_GT(coverage.n_ended_early, 5u);
  EXPECT_GT(coverage.n_guessed_under_grammar, 200u);
  EXPECT_GT(coverage.n_agreed, 500u);
}

// The same with real decoders: what they compute for a row does not depend on its company, or this
// fails.
TEST(Lossless, EveryProposerGivesThePlainTextOfARandomDecoder) {
  Coverage coverage;
  std::uint64_t seed = 1000;
  for (const WeightDType dtype :
       {WeightDType::kF32, WeightDType::kBf16, WeightDType::kI8, WeightDType::kI4}) {
    for (const Family family : {Family::kLlama, Family::kQwen3}) {
      const test::TempFolder folder;
      RandomModelRecipe recipe{.config = tiny_config(family), .seed = ++seed};
      write_random_model(folder / "target", recipe);
      write_perturbed_model(folder / "target", folder / "draft", 0.1f, seed);
      const bool in_threads = dtype == WeightDType::kF32 && family == Family::kLlama;
      const auto backend = make_backend({.device = "cpu", .n_threads = in_threads ? 2 : 1});
      const LoadOptions options{.dtype = dtype, .max_rows = 512, .max_model_len = 256};
      const auto target = load_model(folder / "target", *backend, options);
      const auto draft = load_model(folder / "draft", *backend, options);
      for (int i = 0; i < (in_threads ? 2 : 8); ++i) {
        SCOPED_TRACE(::testing::Message() << "seed " << ++seed);
        Case(seed, *backend, *target, *draft, coverage).run();
        if (HasFatalFailure() || HasNonfatalFailure()) return;
      }
    }
  }
  EXPECT_GT(coverage.spec.by_proposer[static_cast<std::size_t>(ProposerKind::kDraft)].n_accepted,
            100u);
  EXPECT_GT(coverage.spec.n_accepted, 500u);
  EXPECT_GT(coverage.n_preemptions, 0u);
  EXPECT_GT(coverage.n_prompt_logprobs, 300u);
  EXPECT_GT(coverage.n_hit_tokens, 50u);
}

}  // namespace
}  // namespace foretoken
