// Tensor parallelism, whole: the model of every family over 1, 2 and 4 ranks, target and draft each
// with ranks of their own. Whatever proposes, the text is the one that a single process would have
// chosen from the whole logits of these ranks; and no rank has them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "common/base/result.h"
#include "common/engine/draft_engine.h"
#include "common/engine/follower.h"
#include "common/engine/rank_setup.h"
#include "common/engine/slice_chooser.h"
#include "common/engine/target_engine.h"
#include "common/model/config.h"
#include "common/model/init_random.h"
#include "common/model/load_model.h"
#include "common/spec/ngram_proposer.h"
#include "common/spec/prefix_hash.h"
#include "tests/engine/attach_request.h"
#include "tests/engine/said_text.h"
#include "tests/support/acceptance_rate.h"
#include "tests/support/faulty_proposers.h"
#include "tests/support/plain_decode.h"
#include "tests/support/temp_folder.h"
#include "tests/support/whole_view.h"
#if defined(FORETOKEN_EMU)
#include "kernels/cuda/emulated.h"
#endif

namespace foretoken {
namespace {

constexpr PrefixHash kRoot = 0x4f1e6a336da9b7b6;
constexpr Position kMaxLen = 96;
constexpr std::int32_t kValidIds = 258;  // of 261: the last slice ends in padding
constexpr auto kPatience = std::chrono::minutes(1);

// Heads for four ranks, biases wherever a family may have them, a vocabulary of uneven slices.
ModelConfig config_of(Family family, std::int32_t n_kv_heads = 4) {
  ModelConfig config = tiny_config(family);
  config.n_heads = 8;
  config.n_kv_heads = n_kv_heads;
  config.head_dim = 8;
  config.vocab_size = 261;
  if (family == Family::kLlama) config.qkv_bias = config.o_bias = config.mlp_bias = true;
  config.tie_word_embeddings = family == Family::kQwen3;
  return config;
}

using MakeBackend = std::function<std::unique_ptr<Backend>()>;
std::unique_ptr<Backend> on_the_cpu() { return make_backend({.device = "cpu", .n_threads = 1}); }

// The ranks of one model as threads; rank 0 is the test's own thread.
class Team {
 public:
  using Body = std::function<void(Model&, Backend&)>;

  // Loads on every rank; the others then run `others`.
  Team(const std::filesystem::path& folder,
       int n_ranks,
       WeightDType dtype,
       const Body& others,
       const MakeBackend& make = on_the_cpu) {
    ranks_ =
        n_ranks > 1 ? make_thread_collectives(n_ranks) : std::vector<std::unique_ptr<Collective>>();
    const auto load = [folder, dtype](Backend& backend, Collective* ranks) {
      if (ranks != nullptr) ranks->set_patience(kPatience);
      return load_model(
          folder, backend,
          {.dtype = dtype, .max_rows = 128, .max_model_len = kMaxLen, .ranks = ranks});
    };
    for (std::size_t r = 1; r < ranks_.size(); ++r)
      threads_.emplace_back([this, r, load, others, make] {
        const auto backend = make();
        const auto model = load(*backend, ranks_[r].get());
        others(*model, *backend);
      });
    backend_ = make();
    model_ = load(*backend_, ranks_.empty() ? nullptr : ranks_[0].get());
  }
  ~Team() {
    for (std::thread& thread : threads_) thread.join();
  }
  Model& model() { return *model_; }
  Backend& backend() { return *backend_; }

 private:
  std::vector<std::unique_ptr<Collective>> ranks_;
  std::vector<std::thread> threads_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
};

void follow_to_the_end(Model& model, Backend& backend) { follow(model, backend, kPatience); }

std::vector<OpenRequest> some_requests(std::uint64_t seed) {
  std::mt19937_64 dice(seed);
  const auto token = [&] { return static_cast<TokenId>(dice() % kValidIds); };
  std::vector<TokenId> shared(20);
  for (TokenId& one : shared) one = token();
  std::vector<OpenRequest> requests(8);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    OpenRequest& request = requests[i];
    request.seq = SeqId{i + 1};
    if (i % 2 == 0) request.prompt = shared;  // and blocks with it
    for (std::uint64_t n = 1 + dice() % 20; n > 0; --n) request.prompt.push_back(token());
    SamplingParams& p = request.params;
    p.seed = dice();
    p.max_tokens = static_cast<std::uint32_t>(10 + dice() % 40);
    p.ignore_eos = i % 3 != 0;
    p.temperature = i == 0 ? 0.0f : 0.8f + 0.1f * static_cast<float>(i % 4);
    if (i == 2) p.top_k = 7;
    if (i == 3) p.top_p = 0.9f;
    if (i == 4) p.min_p = 0.05f;
    if (i == 5) p.top_k = 40, p.top_p = 0.7f, p.min_p = 0.01f;
    if (i >= 5) p.repetition_penalty = 1.2f, p.presence_penalty = 0.3f;
    if (i == 6) p.logit_bias = {{token(), 4.0f}, {token(), -100.0f}}, p.top_p = 0.999f;
    if (i % 2 == 1) p.n_logprobs = static_cast<std::int32_t>(i % 4);
    if (i % 3 == 0) p.n_prompt_logprobs = static_cast<std::int32_t>(i);
    request.draft_len = 5;
    request.length = LengthMode::kFixed;
    request.proposers = i % 3 == 1 ? ProposerKind::kNgram : ProposerKind::kDraft;
  }
  return requests;
}

struct Answer {
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;
};

// What one process with all logits of these ranks would write.
std::vector<PlainAnswer> by_whole_logits(const std::filesystem::path& folder,
                                         int n_ranks,
                                         WeightDType dtype,
                                         const std::vector<OpenRequest>& requests,
                                         const MakeBackend& make = on_the_cpu) {
  std::vector<PlainAnswer> answers;
  const auto decode_all = [&requests](Model& model, Backend& backend,
                                      std::vector<PlainAnswer>& into) {
    test::WholeView whole(model, backend);
    for (const OpenRequest& request : requests)
      into.push_back(plain_decode(whole, backend, request, kMaxLen, kValidIds));
  };
  Team team(
      folder, n_ranks, dtype,
      [&](Model& model, Backend& backend) {
        std::vector<PlainAnswer> same;
        decode_all(model, backend, same);
      },
      make);
  decode_all(team.model(), team.backend(), answers);
  return answers;
}

std::map<SeqId, Answer> by_engine(const std::filesystem::path& target_folder,
                                  const std::filesystem::path& draft_folder,
                                  int n_ranks,
                                  WeightDType dtype,
                                  const std::vector<OpenRequest>& requests,
                                  SpecStats& spec,
                                  const MakeBackend& make = on_the_cpu) {
  Team target(target_folder, n_ranks, dtype, follow_to_the_end, make);
  Team draft(draft_folder, n_ranks, dtype, follow_to_the_end, make);
  DraftEngineOptions draft_options;
  draft_options.kv = {.n_blocks = 200, .block_tokens = 8};
  draft_options.n_valid_ids = kValidIds;
  DraftEngine draft_engine(draft.model(), draft.backend(), draft_options);
  LinkedDraft linked(draft_engine, kRoot, {.lose = 5, .repeat = 5, .max_delay = 2}, 3);
  NgramProposer ngram;
  TargetEngineOptions options;
  options.kv = {.n_blocks = 40, .block_tokens = 8};  // too few for all: some are preempted
  options.max_running = 5;
  options.max_batch_rows = 60;
  options.prefill_chunk = 11;
  options.max_model_len = kMaxLen;
  options.n_valid_ids = kValidIds;
  options.prefix_root = kRoot;
  TargetEngine engine(target.model(), target.backend(),
                      {.each = {&linked, &ngram}, .watch = &linked}, options);
  TimePoint now{std::chrono::hours(1)};
  for (const OpenRequest& request : requests) EXPECT_TRUE(engine.open(request, now).ok());
  std::map<SeqId, Answer> answers;
  for (int step = 0; engine.has_work() && step < 5000; ++step) {
    now += std::chrono::milliseconds(400);  // so that ranks are counted now and then, too
    engine.check_ranks(now);
    draft_engine.check_ranks(now);
    const StepOutput& output = engine.step(now);
    for (const TokensEvent& event : output.prompts) {
      auto& all = answers[event.seq].prompt_logprobs;
      all.insert(all.end(), event.tokens.logprobs.begin(), event.tokens.logprobs.end());
    }
    for (const TokensEvent& event : output.tokens) {
      Answer& answer = answers[event.seq];
      answer.ids.insert(answer.ids.end(), event.tokens.ids.begin(), event.tokens.ids.end());
      for (const TokenLogprobs& one : event.tokens.logprobs) answer.logprobs.push_back(one.logprob);
    }
    EXPECT_TRUE(output.failed.empty());
  }
  EXPECT_FALSE(engine.has_work());
  spec = engine.snapshot().spec;
  engine.release_ranks();
  draft_engine.release_ranks();
  return answers;
}

struct Case {
  Family family;
  WeightDType dtype;
  int n_ranks;
  std::int32_t n_kv_heads = 4;
};

// But for the order in which totals are added.
void expect_alike(const TokenLogprobs& got, const TokenLogprobs& wanted) {
  EXPECT_FLOAT_EQ(got.logprob, wanted.logprob);
  EXPECT_EQ(got.top_ids, wanted.top_ids);
  ASSERT_EQ(got.top_logprobs.size(), wanted.top_logprobs.size());
  for (std::size_t i = 0; i < got.top_logprobs.size(); ++i)
    EXPECT_FLOAT_EQ(got.top_logprobs[i], wanted.top_logprobs[i]);
}

class OverRanks : public testing::TestWithParam<Case> {};

TEST_P(OverRanks, SpeculativeTextIsTheTextOfOneProcessWithTheWholeLogits) {
  const Case& c = GetParam();
  const test::TempFolder folder;
  write_random_model(folder / "target", {.config = config_of(c.family, c.n_kv_heads), .seed = 11});
  write_perturbed_model(folder / "target", folder / "draft", 0.05f, 5);
  const std::vector<OpenRequest> requests = some_requests(21);
  const auto plain = by_whole_logits(folder / "target", c.n_ranks, c.dtype, requests);
  SpecStats spec;
  const auto got =
      by_engine(folder / "target", folder / "draft", c.n_ranks, c.dtype, requests, spec);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "request " << i);
    const Answer& answer = got.at(requests[i].seq);
    EXPECT_EQ(answer.ids, plain[i].ids);
    ASSERT_EQ(answer.prompt_logprobs.size(), plain[i].prompt_logprobs.size());
    for (std::size_t t = 0; t < answer.prompt_logprobs.size(); ++t)
      expect_alike(answer.prompt_logprobs[t], plain[i].prompt_logprobs[t]);
    if (requests[i].params.n_logprobs < 0) continue;
    ASSERT_EQ(answer.logprobs.size(), plain[i].logprobs.size());
    for (std::size_t t = 0; t < answer.logprobs.size(); ++t)
      EXPECT_FLOAT_EQ(answer.logprobs[t], plain[i].logprobs[t]);
  }
  EXPECT_GT(spec.n_accepted, 20u) << "guesses must have been worth something";
  EXPECT_LT(test::acceptance_rate(spec), 0.98);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Family family : {Family::kLlama, Family::kQwen2, Family::kQwen3, Family::kMistral})
    for (const int n_ranks : {1, 2, 4}) cases.push_back({family, WeightDType::kF32, n_ranks});
  for (const int n_ranks : {2, 4}) cases.push_back({Family::kLlama, WeightDType::kBf16, n_ranks});
  cases.push_back({Family::kQwen3, WeightDType::kI8, 2});
  cases.push_back({Family::kLlama, WeightDType::kI4, 2});
  cases.push_back({Family::kQwen3, WeightDType::kF32, 4, 2});  // ranks that share a KV head
  cases.push_back({Family::kLlama, WeightDType::kF32, 4, 1});
  return cases;
}

std::string name_of(const testing::TestParamInfo<Case>& one) {
  const char* dtype = one.param.dtype == WeightDType::kF32    ? "f32"
                      : one.param.dtype == WeightDType::kBf16 ? "bf16"
                      : one.param.dtype == WeightDType::kI8   ? "int8"
                                                              : "int4";
  return std::string(family_name(one.param.family)) + "_" + dtype + "_" +
         std::to_string(one.param.n_ranks) + "_" + std::to_string(one.param.n_kv_heads);
}

INSTANTIATE_TEST_SUITE_P(All, OverRanks, testing::ValuesIn(all_cases()), name_of);

#if defined(FORETOKEN_EMU)
// The same over emulated CUDA devices, one a rank; a few short texts, as their threads are slow.
TEST(OverRanksOnDevices, SpeculativeTextIsTheTextOfOneProcessWithTheWholeLogits) {
  const test::TempFolder folder;
  write_random_model(folder / "target", {.config = config_of(Family::kLlama, 1), .seed = 11});
  write_perturbed_model(folder / "target", folder / "draft", 0.05f, 5);
  const std::vector<OpenRequest> all = some_requests(21);
  std::vector<OpenRequest> requests{all[0], all[3],
                                    all[5]};  // greedy; top-p; all three truncations
  for (OpenRequest& request : requests) {
    request.prompt.resize(std::min<std::size_t>(request.prompt.size(), 6));
    request.params.max_tokens = 8;
    request.params.ignore_eos = true;
    request.proposers = ProposerKind::kDraft;
  }
  const MakeBackend make = [] { return emu::make_backend(9, CudaPath::kSimple); };
  const auto plain = by_whole_logits(folder / "target", 2, WeightDType::kBf16, requests, make);
  SpecStats spec;
  const auto got =
      by_engine(folder / "target", folder / "draft", 2, WeightDType::kBf16, requests, spec, make);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "request " << i);
    const Answer& answer = got.at(requests[i].seq);
    EXPECT_EQ(answer.ids, plain[i].ids);
    ASSERT_EQ(answer.prompt_logprobs.size(), plain[i].prompt_logprobs.size());
    for (std::size_t t = 0; t < answer.prompt_logprobs.size(); ++t)
      expect_alike(answer.prompt_logprobs[t], plain[i].prompt_logprobs[t]);
  }
  EXPECT_GT(spec.n_accepted, 0u) << "guesses must have been worth something";
}
#endif

std::vector<TokenId> joined(std::vector<TokenId> text, std::span<const TokenId> more) {
  text.insert(text.end(), more.begin(), more.end());
  return text;
}

const std::vector<TokenId> kBranchedPrompt{3, 1, 4, 1, 5, 9, 2};

// What a draft of so many ranks says beside its chain of this prompt, and beside that of the text
// in which one of these came.
struct SaidOverRanks {
  std::vector<TokenId> prompt;
  test::SaidText text;
};
std::vector<SaidOverRanks> branches_over_ranks(const std::filesystem::path& folder,
                                               int n_ranks,
                                               std::vector<TokenId> prompt,
                                               const SamplingParams& params) {
  Team team(folder, n_ranks, WeightDType::kF32, follow_to_the_end);
  DraftEngineOptions options;
  options.kv = {.n_blocks = 200, .block_tokens = 4};
  options.n_valid_ids = kValidIds;
  options.run_ahead = 8;
  options.branch_rows = 3;
  DraftEngine engine(team.model(), team.backend(), options);
  const TimePoint now{std::chrono::hours(1)};
  constexpr TargetKey kFrom{WorkerId{1}, Incarnation{1}};
  (void)engine.attach(kFrom, test::attach_message(SeqId{1}, kRoot, prompt, 4, params), now);
  std::vector<SaidOverRanks> said;
  const auto run = [&] {
    while (engine.has_work())
      for (const ReadyProposal& ready : engine.step(now).proposals)
        for (test::SaidText& text : test::branches_of(ready.record))
          said.push_back({prompt, std::move(text)});
  };
  run();
  const auto taken = std::ranges::max_element(
      said, {}, [](const SaidOverRanks& each) { return each.text.tokens.size(); });
  if (taken != said.end()) {
    const std::vector<TokenId> tail = taken->text.tokens;
    const auto from = static_cast<Position>(prompt.size());
    prompt = joined(prompt, tail);
    (void)engine.follow(kFrom,
                        {.seq = SeqId{1},
                         .lease = Lease{1},
                         .epoch = Epoch{1},
                         .from = from,
                         .tail = tail,
                         .prefix = prefix_hash_extend(kRoot, prompt),
                         .budget = 4},
                        now);
    run();
  }
  EXPECT_EQ(engine.snapshot().n_branches_taken, 1u);
  engine.release_ranks();
  return said;
}

// By whole logits: what is guessed where each is wrong, and what comes after its runner-up.
void expect_said_by_whole_logits(const std::filesystem::path& folder,
                                 int n_ranks,
                                 const std::vector<SaidOverRanks>& said,
                                 const SamplingParams& params) {
  std::vector<OpenRequest> requests;
  for (const auto& [prompt, text] : said) {
    const auto tokens = std::span(text.tokens);
    requests.push_back({.prompt = joined(prompt, tokens.first(text.n_chain)), .params = params});
    requests.back().params.max_tokens = 1;
    requests.push_back(
        {.prompt = joined(prompt, tokens.first(text.n_chain + 1)), .params = params});
    requests.back().params.max_tokens =
        static_cast<std::uint32_t>(tokens.size() - text.n_chain - 1);
  }
  const auto plain = by_whole_logits(folder, n_ranks, WeightDType::kF32, requests);
  for (std::size_t i = 0; i < said.size(); ++i) {
    const test::SaidText& text = said[i].text;
    EXPECT_NE(plain[2 * i].ids.front(), text.tokens[text.n_chain]);
    const auto own = std::span(text.tokens).subspan(text.n_chain + 1);
    EXPECT_EQ(plain[2 * i + 1].ids, std::vector(own.begin(), own.end()));
  }
}

// The ranks that follow copy the blocks that a branch shares with its chain.
TEST(BranchesOverRanks, GoOnAsOneProcessWithTheWholeLogitsWould) {
  const test::TempFolder folder;
  write_random_model(folder.path(), {.config = config_of(Family::kLlama), .seed = 11});
  for (const float temperature : {0.0f, 0.8f})
    for (const int n_ranks : {2, 4}) {
      SCOPED_TRACE(testing::Message() << n_ranks << " ranks, temperature " << temperature);
      const SamplingParams params{
          .temperature = temperature, .seed = 6, .max_tokens = 60, .ignore_eos = true};
      const auto said = branches_over_ranks(folder.path(), n_ranks, kBranchedPrompt, params);
      ASSERT_GT(said.size(), 10u);
      expect_said_by_whole_logits(folder.path(), n_ranks, said, params);
    }
}

// The likeliest ids of a row come from the slices of all ranks: greedy, the second of them is what
// comes where the guess is forbidden.
TEST(BranchesOverRanks, BeginWithTheNextBestOfAllSlices) {
  const test::TempFolder folder;
  write_random_model(folder.path(), {.config = config_of(Family::kLlama), .seed = 11});
  SamplingParams params{.temperature = 0, .max_tokens = 60, .ignore_eos = true};
  std::map<std::vector<TokenId>, TokenId> best;  // at each place the first that was said
  for (const TokenId first : {3, 4, 5, 6}) {
    std::vector<TokenId> text = kBranchedPrompt;
    text.front() = first;
    for (const auto& [before, said] : branches_over_ranks(folder.path(), 4, text, params))
      if (before == text)
        best.try_emplace(joined(text, std::span(said.tokens).first(said.n_chain)),
                         said.tokens[said.n_chain]);
  }
  ASSERT_GT(best.size(), 6u);
  params.max_tokens = 1;
  std::vector<OpenRequest> requests;
  for (const auto& [before, runner_up] : best)
    requests.push_back({.prompt = before, .params = params});
  const auto guesses = by_whole_logits(folder.path(), 4, WeightDType::kF32, requests);
  for (std::size_t i = 0; i < requests.size(); ++i)
    requests[i].params.bad_words = {{guesses[i].ids.front()}};
  const auto instead = by_whole_logits(folder.path(), 4, WeightDType::kF32, requests);
  for (std::size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(best.at(requests[i].prompt), instead[i].ids.front());
}

// The next token's score after seven in a block, read from that block or from a copy of it.
double score_after_seven(const std::filesystem::path& folder, std::int32_t block, bool copies) {
  Team team(folder, 2, WeightDType::kF32, follow_to_the_end);
  const CacheShape shape{.n_blocks = 4, .block_tokens = 8, .n_valid_ids = kValidIds};
  Leader leader(team.model().ranks(), shape);
  PlanRunner runner(team.model(), team.backend(), shape);
  const auto run = [&](const StepPlan& plan) {
    leader.send(plan);
    runner.run(plan);
  };
  StepPlan first;
  first.tokens = {3, 1, 4, 1, 5, 9, 2};
  first.slices = {{.seq = SeqId{1}, .n_known = 7, .n_blocks = 1}};
  first.block_tables = {0};
  run(first);
  StepPlan next;
  next.tokens = {6};
  next.slices = {{.seq = SeqId{1}, .start = 7, .n_known = 1, .n_choices = 1, .n_blocks = 1}};
  next.block_tables = {block};
  if (copies) next.copies = {{.src_block = 0, .dst_block = block}};
  next.logit_rows = {0};
  next.rules = {RowRule{}};
  run(next);
  leader.end();
  return runner.choices().front().score;
}

TEST(Followers, CopyBlocksAsThePlanSays) {
  const test::TempFolder folder;
  write_random_model(folder.path(), {.config = config_of(Family::kLlama), .seed = 11});
  const double in_place = score_after_seven(folder.path(), 0, false);
  EXPECT_EQ(score_after_seven(folder.path(), 2, true), in_place);
  EXPECT_NE(score_after_seven(folder.path(), 2, false), in_place) << "the cache must matter";
}

// One row whose choice is wanted.
StepPlan one_row(const RowRule& rule) {
  StepPlan plan;
  plan.tokens = {6};
  plan.slices = {{.seq = SeqId{1}, .n_known = 1, .n_choices = 1, .n_blocks = 1}};
  plan.block_tables = {0};
  plan.logit_rows = {0};
  plan.rules = {rule};
  return plan;
}

// What was chosen is masked, again and again: the next choice is the one that adjustments by
// -infinity leave, on any number of ranks.
TEST(Followers, ChooseAmongTheIdsOfAMask) {
  const test::TempFolder folder;
  write_random_model(folder.path(), {.config = config_of(Family::kLlama), .seed = 11});
  for (const int n_ranks : {1, 2, 4})
    for (const float top_p : {1.0f, 0.8f}) {
      Team team(folder.path(), n_ranks, WeightDType::kF32, follow_to_the_end);
      const CacheShape shape{.n_blocks = 4, .block_tokens = 8, .n_valid_ids = kValidIds};
      Leader leader(team.model().ranks(), shape);
      PlanRunner runner(team.model(), team.backend(), shape);
      const auto choice_of = [&](const StepPlan& plan) {
        leader.send(plan);
        runner.run(plan);
        return runner.choices().front();
      };
      StepPlan masked = one_row({.temperature = 1, .top_p = top_p, .seed = 3, .mask_begin = 2});
      masked.masks.assign(2 + mask_words(kValidIds), ~std::uint32_t{0});
      masked.masks[0] = masked.masks[1] = 0;  // of another row
      std::set<TokenId> chosen;
      for (int i = 0; i < 12; ++i) {
        StepPlan adjusted = one_row({.temperature = 1, .top_p = top_p, .seed = 3});
        for (const TokenId id : chosen)
          adjusted.adjustments.push_back(
              {.id = id, .add = -std::numeric_limits<float>::infinity()});
        adjusted.rules[0].adjust_end = i;
        const Choice by_mask = choice_of(masked), by_adjustments = choice_of(adjusted);
        EXPECT_EQ(by_mask.token, by_adjustments.token);
        EXPECT_EQ(by_mask.score, by_adjustments.score);
        ASSERT_GE(by_mask.token, 0);
        EXPECT_TRUE(chosen.insert(by_mask.token).second);
        masked.masks[static_cast<std::size_t>(2 + by_mask.token / 32)] &=
            ~(std::uint32_t{1} << by_mask.token % 32);
      }
      leader.end();
    }
}

// Two ranks of which the other one does all at once.
class CountedBroadcasts final : public Collective {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  int n = 0;

 private:
  void do_gather(std::span<const std::byte>, std::span<std::byte>) override {}
  void do_broadcast(std::vector<std::byte>&) override { ++n; }
};

// The loop of a service, which sleeps for at most half a second, calls check_ranks() as often.
TEST(Leader, AsksWhetherAllAreThereWellWithinThePatienceOfTheOthers) {
  using std::chrono::milliseconds;
  for (const auto& [patience, period] : {std::pair(milliseconds(600'000), milliseconds(1000)),
                                         {milliseconds(4000), milliseconds(1000)},
                                         {milliseconds(2000), milliseconds(500)},
                                         {milliseconds(0), milliseconds(1000)}}) {
    CountedBroadcasts ranks;
    Leader leader(&ranks, {});
    ranks.set_patience(patience);
    TimePoint now{std::chrono::hours(1)};
    leader.check_ranks(now);
    ranks.n = 0;
    leader.check_ranks(now += period - milliseconds(1));
    EXPECT_EQ(ranks.n, 0) << patience.count() << " ms";
    leader.check_ranks(now += milliseconds(1));
    EXPECT_EQ(ranks.n, 1) << patience.count() << " ms";
  }
}

TEST(Leader, IsNotSilentForAsLongAsTheOthersWait) {
  CountedBroadcasts ranks;
  Leader leader(&ranks, {});
  ranks.set_patience(std::chrono::milliseconds(2000));
  EXPECT_EQ(leader.longest_silence(), std::chrono::milliseconds(1000));
  ranks.set_patience(Duration::zero());  // no limit
  EXPECT_EQ(leader.longest_silence(), Duration::max());
  EXPECT_EQ(Leader(nullptr, {}).longest_silence(), Duration::max());
}

// Counts what this rank gives to the others.
class CountedGathers final : public Collective {
 public:
  explicit CountedGathers(Collective& ranks) : ranks_(ranks) {}
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  std::size_t n_bytes = 0;

 private:
  void do_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    n_bytes += mine.size();
    ranks_.gather(mine, all);
  }
  void do_broadcast(std::vector<std::byte>& bytes) override { ranks_.broadcast(bytes); }

  Collective& ranks_;
};

// Rows of two slices, some of which most of the vocabulary stays in.
struct WideRows {
  static constexpr std::int32_t kSlice = 4096, kValid = 8190;
  StepPlan plan;
  std::vector<float> logits;  // [n_rows, 2 * kSlice]

  explicit WideRows(std::span<const RowRule> rules) {
    plan.rules.assign(rules.begin(), rules.end());
    std::mt19937 random(5);
    for (const RowRule& rule : rules)
      for (std::int32_t id = 0; id < 2 * kSlice; ++id)
        logits.push_back(static_cast<float>(random() % 1000) / (is_wide(rule) ? 1000.0f : 10.0f));
  }
  static bool is_wide(const RowRule& rule) { return rule.top_p > 0.99f; }

  std::vector<Choice> by_whole_logits(Backend& backend) const {
    std::vector<Choice> choices(plan.rules.size());
    backend.choose({.logits = logits.data(),
                    .n_rows = static_cast<std::int32_t>(choices.size()),
                    .vocab = 2 * kSlice,
                    .n_valid = kValid,
                    .rules = plan.rules.data(),
                    .choices = choices.data()});
    return choices;
  }
  // Those of rank 1; n_bytes: what it gave.
  std::vector<Choice> by_slices(std::size_t& n_bytes) const {
    const auto ranks = make_thread_collectives(2);
    std::vector<Choice> choices;
    const auto choose = [&](std::size_t rank) {
      std::vector<float> own;
      for (auto row = logits.begin(); row != logits.end(); row += 2 * kSlice) {
        const auto begin = row + static_cast<std::ptrdiff_t>(rank) * kSlice;
        own.insert(own.end(), begin, begin + kSlice);
      }
      const auto backend = on_the_cpu();
      CountedGathers counted(*ranks[rank]);
      SliceChooser chooser(*backend, counted,
                           {.first_id = static_cast<std::int32_t>(rank) * kSlice, .n_ids = kSlice},
                           kValid);
      std::vector<Choice> got;
      std::vector<TopLogprob> none;
      chooser.choose(plan, own.data(), got, none);
      if (rank == 0) return;
      choices = got;
      n_bytes = counted.n_bytes;
    };
    std::thread first([&] { choose(0); });
    choose(1);
    first.join();
    return choices;
  }
};

// Row 5, 6 and 11 of 16 need most of the vocabulary.
TEST(SliceChooser, ExchangesMoreCandidatesOfUndecidedRowsAlone) {
  for (const std::int32_t top_k : {0, 6000}) {
    SCOPED_TRACE(top_k);
    std::vector<RowRule> rules(16, {.temperature = 1, .top_p = 0.9f});
    for (std::size_t row = 0; row < rules.size(); ++row) rules[row].seed = row;
    for (const std::size_t row : {5u, 6u, 11u}) rules[row].top_p = 0.9999f;
    rules[6].top_k = top_k;
    const WideRows rows(rules);
    const auto backend = on_the_cpu();
    const std::vector<Choice> wanted = rows.by_whole_logits(*backend);
    std::size_t n_bytes = 0;
    const std::vector<Choice> got = rows.by_slices(n_bytes);
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t row = 0; row < got.size(); ++row) {
      EXPECT_EQ(got[row].token, wanted[row].token) << row;
      EXPECT_EQ(got[row].score, wanted[row].score) << row;
    }
    const std::size_t at_first = top_k == 0 ? 256 : 2048, most = WideRows::kValid + 1;
    const std::size_t n_candidates = 16 * at_first + 3 * (2048 + most);
    EXPECT_LE(n_bytes, n_candidates * sizeof(SliceCandidate) + 25 * sizeof(SliceChoice));
    EXPECT_GT(n_bytes, 3 * most * sizeof(SliceCandidate)) << "else one exchange was enough";
  }
}

TEST(Plans, ArriveAsTheyWereSent) {
  StepPlan plan;
  plan.tokens = {1, 2, 3};
  plan.slices = {{.seq = SeqId{9}, .start = 4, .n_known = 3, .n_choices = 1, .n_blocks = 2}};
  plan.block_tables = {7, 8};
  plan.copies = {{.src_block = 1, .dst_block = 2}};
  plan.logit_rows = {2};
  plan.rules = {{.temperature = 0.5f, .seed = 77}};
  plan.masks = {0xffff0000u, 5};
  StepPlan got;
  got.adjustments = {{.id = 3}};
  const auto bytes = pack_plan(plan);
  ASSERT_TRUE(unpack_plan(bytes, got).ok());
  EXPECT_EQ(got.tokens, plan.tokens);
  EXPECT_EQ(got.block_tables, plan.block_tables);
  EXPECT_EQ(got.copies, plan.copies);
  EXPECT_EQ(got.logit_rows, plan.logit_rows);
  ASSERT_EQ(got.slices.size(), 1u);
  EXPECT_EQ(got.slices[0].seq, SeqId{9});
  EXPECT_EQ(got.slices[0].n_blocks, 2u);
  ASSERT_EQ(got.rules.size(), 1u);
  EXPECT_EQ(got.rules[0].seed, 77u);
  EXPECT_TRUE(got.adjustments.empty());
  EXPECT_EQ(got.masks, plan.masks);
}

TEST(Plans, NothingElseIsTakenForOne) {
  StepPlan plan, got;
  plan.tokens = {1, 2, 3};
  const auto bytes = pack_plan(plan);
  for (std::size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(unpack_plan(std::span(bytes).first(n), got).ok()) << n;
  auto longer = bytes;
  longer.push_back({});
  EXPECT_FALSE(unpack_plan(longer, got).ok());
  auto endless = bytes;
  for (std::size_t i = 4; i < 12; ++i) endless[i] = std::byte{0x7f};  // that many tokens
  EXPECT_FALSE(unpack_plan(endless, got).ok());
}

TEST(RankSetup, SeatsTheLeastAndStrangers) {
  auto ranks = make_thread_collectives(3);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      Collective& mine = *ranks[static_cast<std::size_t>(r)];
      const RankSeat seat = find_seat(mine, r == 1 ? "b" : "a");
      EXPECT_EQ(seat.n_here, r == 1 ? 1 : 2);
      EXPECT_EQ(seat.index_here, r == 2 ? 1 : 0);
      EXPECT_EQ(least_of(mine, static_cast<std::uint64_t>(10 - r)), 8u);
      check_alike(mine, "build", "1");
      EXPECT_THROW(check_alike(mine, "build", r == 2 ? "2" : "1"), FatalError);
      check_apart(mine, "device", "");
      check_apart(mine, "device", r == 0 ? "a" : r == 1 ? "b" : "");
      try {
        check_apart(mine, "device", r == 1 ? "b" : "a");
        ADD_FAILURE() << "rank " << r;
      } catch (const FatalError& error) {
        EXPECT_STREQ(error.what(), "ranks 0 and 2 have the same device: each needs its own");
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace foretoken
