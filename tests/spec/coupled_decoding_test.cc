// A model of speculative decoding without a model: made-up logits that are a function of the text,
// a chooser of a few lines, proposers that know, lie, lag, repeat and stay silent. The plain path
// takes its rules from their definition and keeps no state; the speculative path runs the room's
// own parts. Token ids and finish must be equal.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "common/spec/acceptance.h"
#include "common/spec/draft_length.h"
#include "common/spec/finish.h"
#include "common/spec/ngram_proposer.h"
#include "common/spec/prediction_proposer.h"
#include "common/spec/prefix_hash.h"
#include "common/spec/row_rules.h"
#include "common/spec/spec_stats.h"
#include "tests/spec/reference_rules.h"
#include "tests/support/acceptance_rate.h"

namespace foretoken {
namespace {

constexpr TokenId kVocab = 12;
constexpr SeqId kSeq{1};
const std::vector<TokenId> kEosIds{0};

double unit(std::uint64_t word) { return (static_cast<double>(mix64(word) >> 12) + 0.5) * 0x1p-52; }

// Logits after a text: depend on its last two tokens, so that texts repeat and n-grams have
// something to find.
std::vector<float> logits_after(std::span<const TokenId> text, double noise, std::uint64_t salt) {
  const PrefixHash state = prefix_hash_extend(5, text.last(std::min<std::size_t>(2, text.size())));
  const PrefixHash all = prefix_hash_extend(salt, text);
  std::vector<float> logits;
  for (std::uint64_t id = 0; id < kVocab; ++id)
    logits.push_back(static_cast<float>(6 * unit(state + id) - 3 + noise * (unit(all + id) - 0.5)));
  return logits;
}

// What the choose op does with a row, without top-k, top-p and min-p.
TokenId choose(std::vector<float> logits, std::span<const Adjustment> row, const RowRule& rule) {
  for (const Adjustment& each : row) {
    float& logit = logits[static_cast<std::size_t>(each.id)];
    logit = (logit > 0 ? logit / each.repetition : logit * each.repetition) + each.add;
  }
  TokenId best = -1;
  double best_score = -std::numeric_limits<double>::infinity();
  for (TokenId id = 0; id < kVocab; ++id) {
    double score = static_cast<double>(logits[static_cast<std::size_t>(id)]);
    if (rule.temperature > 0) {
      const std::uint64_t key =
          rule.seed ^ (std::uint64_t{rule.position} << 32) ^ (std::uint64_t{rule.choice} << 24);
      score = score / static_cast<double>(rule.temperature) -
              std::log(-std::log(unit(key + static_cast<std::uint64_t>(id))));
    }
    if (score > best_score) best = id, best_score = score;
  }
  return best;
}

struct Answer {
  std::vector<TokenId> tokens;
  std::optional<FinishReason> reason;
  bool operator==(const Answer&) const = default;
};

struct Request {
  SamplingParams params;
  std::vector<TokenId> prompt;
  Position max_model_len = 0;
};

std::vector<TokenId> joined(std::span<const TokenId> a, std::span<const TokenId> b) {
  std::vector<TokenId> out(a.begin(), a.end());
  out.insert(out.end(), b.begin(), b.end());
  return out;
}

Answer plain(const Request& request) {
  Answer answer;
  SequenceOdds odds;
  while (!answer.reason) {
    const auto text = joined(request.prompt, answer.tokens);
    const Row row =
        row_by_definition(request.params, kEosIds, request.prompt, answer.tokens, kVocab);
    const RowRule rule{.temperature = request.params.temperature,
                       .seed = request.params.seed,
                       .choice = request.params.choice,
                       .position = static_cast<Position>(text.size())};
    const TokenId token = choose(logits_after(text, 0, 0), row, rule);
    if (token < 0) break;
    answer.tokens.push_back(token);
    const auto& stops = request.params.stop_token_ids;
    const bool ends = (token == kEosIds[0] && !request.params.ignore_eos) ||
                      std::find(stops.begin(), stops.end(), token) != stops.end();
    const bool full = answer.tokens.size() == request.params.max_tokens ||
                      text.size() + 1 == request.max_model_len;
    if (ends || full) answer.reason = ends ? FinishReason::kStop : FinishReason::kLength;
  }
  return answer;
}

// A draft model that is right more or less often, and a link that drops, repeats, delays and
// garbles.
class BadDraft {
 public:
  BadDraft(std::mt19937& random, double noise) : random_(random), noise_(noise) {}
  void propose(const CommittedTokens& committed,
               ProposalStore& store,
               const SamplingParams& params) {
    const std::span<const TokenId> text = committed.tokens();
    Proposal proposal{.base = static_cast<Position>(text.size()),
                      .prefix = committed.prefix(),
                      .tokens = {},
                      .parents = {},
                      .confidences = {},
                      .source = ProposerKind::kDraft};
    std::vector<TokenId> guess(text.begin(), text.end());
    for (auto n = random_() % 9; n > 0; --n) {
      const RowRule rule{.temperature = params.temperature,
                         .seed = params.seed,
                         .choice = params.choice,
                         .position = static_cast<Position>(guess.size())};
      guess.push_back(choose(logits_after(guess, noise_, 77), {}, rule));
      proposal.tokens.push_back(guess.back());
      proposal.confidences.push_back(static_cast<std::uint8_t>(random_() % 256));
    }
    late_.push_back(std::move(proposal));
    while (!late_.empty() && random_() % 4 != 0) {
      const std::size_t at = random_() % late_.size();
      Proposal sent = late_[at];
      if (random_() % 8 == 0 && !sent.tokens.empty())
        sent.tokens[0] = static_cast<TokenId>(random_() % 20);
      if (random_() % 8 == 0) sent.prefix ^= 1;
      if (random_() % 8 != 0) store.insert(kSeq, sent);
      if (random_() % 3 != 0) late_.erase(late_.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

 private:
  std::mt19937& random_;
  double noise_;
  std::vector<Proposal> late_;
};

Answer speculative(const Request& request,
                   const std::vector<TokenId>& prediction,
                   std::mt19937& random,
                   SpecStats& stats) {
  ProposalStore store(kVocab);
  CommittedTokens committed(123, request.prompt);
  NgramProposer ngram;
  PredictionProposer predicted;
  BadDraft draft(random, 2.0 * unit(random()));
  DraftLength length({.mode = random() % 2 == 0 ? LengthMode::kFixed : LengthMode::kAdaptive});
  RowRules rules(request.params, kEosIds, request.prompt);
  FinishRules finish(request.params, kEosIds, static_cast<Position>(request.prompt.size()),
                     request.max_model_len);
  const bool use_ngram = random() % 2 == 0, use_prediction = random() % 2 == 0,
             use_draft = random() % 4 != 0;
  store.open(kSeq, committed);
  const Opening opening{.seq = kSeq,
                        .text = committed,
                        .n_prompt = committed.size(),
                        .params = request.params,
                        .prediction = prediction};
  ngram.open(opening);
  predicted.open(opening);

  Answer answer;
  SequenceOdds odds;
  while (!answer.reason) {
    const auto text = joined(request.prompt, answer.tokens);
    const Ask ask{.seq = kSeq, .budget = 6};
    ngram.ask(std::span(&ask, 1));
    predicted.ask(std::span(&ask, 1));
    if (use_ngram) ngram.collect(TimePoint{}, store);
    if (use_prediction) predicted.collect(TimePoint{}, store);
    if (use_draft) draft.propose(committed, store, request.params);

    const auto path = store.best_path(kSeq, 8, length.calibration(), odds.factor());
    const std::vector<Candidate> batch{
        {.path = path, .cap = static_cast<std::uint32_t>(random() % 9), .odds = odds.factor()}};
    const std::uint32_t n = std::min(length.cut(batch, 0, 100)[0], finish.n_remaining() - 1);
    std::vector<TokenId> drafted;
    for (std::uint32_t i = 0; i < n; ++i) drafted.push_back(path[i].token);
    std::vector<RowRule> row_rules;
    std::vector<Adjustment> adjustments;
    std::vector<std::uint32_t> masks;
    rules.append_rows(drafted, 0, {row_rules, adjustments, masks});
    std::vector<TokenId> chosen;
    for (std::size_t k = 0; k < row_rules.size(); ++k) {
      const auto seen = joined(text, std::span<const TokenId>(drafted).first(k));
      const auto row = std::span<const Adjustment>(adjustments)
                           .subspan(static_cast<std::size_t>(row_rules[k].adjust_begin),
                                    static_cast<std::size_t>(row_rules[k].adjust_end -
                                                             row_rules[k].adjust_begin));
      chosen.push_back(choose(logits_after(seen, 0, 0), row, row_rules[k]));
    }
    const Acceptance accepted = accept(drafted, chosen);
    const Position n_before = committed.size();
    for (const TokenId token : accepted.committed) {
      if (token < 0) return answer;
      committed.append(token);
      answer.tokens.push_back(token);
      rules.commit(token);
      answer.reason = finish.on_token(token);
      if (answer.reason) break;
    }
    length.observe_round(store.score(kSeq, n_before), odds);
    store.drop_committed(kSeq);
    length.observe_step(n + 1, committed.size() - n_before,
                        std::chrono::microseconds(1000 + 10 * n));
    if (n > 0) stats.record_round(std::span(path).first(n), accepted.n_accepted);
  }
  return answer;
}

Request random_request(std::mt19937& random) {
  const auto id = [&] { return static_cast<TokenId>(random() % kVocab); };
  Request request;
  request.prompt.resize(1 + random() % 12);
  for (TokenId& token : request.prompt) token = id();
  SamplingParams& params = request.params;
  params.temperature = random() % 3 == 0 ? 0.0f : 0.3f + 0.1f * static_cast<float>(random() % 10);
  params.seed = random();
  params.choice = static_cast<std::uint32_t>(random() % 3);
  params.max_tokens = 1 + static_cast<std::uint32_t>(random() % 60);
  params.min_tokens =
      random() % 3 == 0 ? static_cast<std::uint32_t>(random() % (params.max_tokens + 1)) : 0;
  params.ignore_eos = random() % 3 != 0;
  if (random() % 3 == 0) params.stop_token_ids = {id()};
  if (random() % 2 == 0) params.repetition_penalty = 1.2f;
  if (random() % 2 == 0) params.presence_penalty = 0.4f;
  if (random() % 2 == 0) params.frequency_penalty = 0.1f;
  if (random() % 2 == 0) params.logit_bias = {{id(), 1.5f}};
  if (random() % 2 == 0) params.bad_words = {{id(), id()}, {id()}};
  request.max_model_len = static_cast<Position>(request.prompt.size() + 1 + random() % 60);
  return request;
}

TEST(CoupledDecoding, WritesWhatPlainDecodingWritesWhateverIsProposed) {
  const std::uint32_t seed = 4711;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  SpecStats stats;
  std::uint64_t n_stopped = 0, n_tokens = 0;
  for (int round = 0; round < 1500; ++round) {
    const Request request = random_request(random);
    const Answer expected = plain(request);
    auto prediction = expected.tokens;
    if (!prediction.empty() && random() % 2 == 0) prediction[random() % prediction.size()] = 3;
    const Answer answer = speculative(request, prediction, random, stats);
    ASSERT_EQ(answer.tokens, expected.tokens) << "request " << round;
    ASSERT_EQ(answer.reason, expected.reason) << "request " << round;
    n_stopped += answer.reason == FinishReason::kStop ? 1 : 0;
    n_tokens += answer.tokens.size();
  }
  // It did speculate, both ways, and both finishes occurred.
  EXPECT_GT(stats.n_rounds, 3000u);
  EXPECT_GT(test::acceptance_rate(stats), 0.1);
  EXPECT_LT(test::acceptance_rate(stats), 0.95);
  EXPECT_GT(n_stopped, 100u);
  EXPECT_GT(n_tokens, 10000u);
  for (const ProposerKind kind :
       {ProposerKind::kDraft, ProposerKind::kNgram, ProposerKind::kPrediction})
    EXPECT_GT(stats.by_proposer[static_cast<std::size_t>(kind)].n_accepted, 50u) << name_of(kind);
}

}  // namespace
}  // namespace foretoken
