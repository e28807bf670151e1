// An answer is whole and each part is given to the client once, whatever is lost, late or repeated
// on the way.
#include "services/router/answer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace foretoken {
namespace {

constexpr std::uint32_t kPromptTokens = 5;
const std::vector<TokenId> kPrompt{11, 12, 13, 14, 15};
constexpr RequestId kAnswered{0, 7};
const TimePoint kReceived = TimePoint{} + std::chrono::seconds(9);

// Token i of the truth is 100 + i; its text is one to three letters long.
struct WholeAnswer {
  explicit WholeAnswer(std::uint32_t n_tokens) {
    for (std::uint32_t i = 0; i < n_tokens; ++i) {
      tokens.push_back(static_cast<TokenId>(100 + i));
      text += std::string(1 + i % 3, static_cast<char>('a' + i % 26));
      ends.push_back(text.size());
    }
  }
  wire::Tokens some_tokens(std::uint32_t from, std::uint32_t until) const {
    return {.position = kPromptTokens + from,
            .ids = {tokens.begin() + from, tokens.begin() + until}};
  }
  wire::Text some_text(std::uint32_t from, std::uint32_t until) const {
    const std::size_t begin = from == 0 ? 0 : ends[from - 1];
    const std::size_t end = until == 0 ? 0 : ends[until - 1];
    return {.next = kPromptTokens + until,
            .text = text.substr(begin, end - begin),
            .offset = static_cast<std::uint32_t>(begin)};
  }
  std::vector<TokenId> tokens;
  std::string text;
  std::vector<std::size_t> ends;
};

TEST(Answer, AGapAddsNothing) {
  const WholeAnswer truth(8);
  Answer answer(kReceived);
  answer.begin(kPrompt, {});
  EXPECT_EQ(Answer::News::kGap, answer.add_tokens(truth.some_tokens(1, 3), kReceived));
  EXPECT_EQ(0u, answer.n_tokens());
  EXPECT_EQ(Answer::News::kSome, answer.add_tokens(truth.some_tokens(0, 3), kReceived));
  EXPECT_EQ(Answer::News::kNone, answer.add_tokens(truth.some_tokens(0, 2), kReceived));
  EXPECT_EQ(Answer::News::kGap, answer.add_text(truth.some_text(1, 2), 3));
  EXPECT_FALSE(answer.next_piece(kAnswered));
}

TEST(Answer, LogProbabilitiesAreNotThoseOfAnotherToken) {
  const WholeAnswer truth(5);
  Answer answer(kReceived);
  answer.begin(kPrompt, {.n_logprobs = 0});
  answer.add_tokens(truth.some_tokens(0, 3), kReceived);  // they are missing
  wire::Tokens rest = truth.some_tokens(3, 5);
  rest.logprobs = {{.logprob = -1.0f}, {.logprob = -2.0f}};
  answer.add_tokens(rest, kReceived);
  EXPECT_EQ(5u, answer.n_tokens());
  EXPECT_TRUE(answer.whole_reply(kAnswered, {}).logprobs.empty());
}

TEST(Answer, TextOfTokensThatWereNotSentIsOfAnEarlierRun) {
  const WholeAnswer truth(8);
  Answer answer(kReceived);
  answer.begin(kPrompt, {});
  answer.add_tokens(truth.some_tokens(0, 8), kReceived);
  EXPECT_EQ(Answer::News::kNone, answer.add_text(truth.some_text(0, 5), 4));
  EXPECT_EQ(0u, answer.n_detokenized());
  EXPECT_EQ(Answer::News::kSome, answer.add_text(truth.some_text(0, 5), 5));
  EXPECT_EQ(5u, answer.n_detokenized());
}

TEST(Answer, EachPartIsGivenToTheClientOnceWhateverIsRepeated) {
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) {
      return std::uniform_int_distribution<std::uint32_t>(0, n)(random);
    };
    const WholeAnswer truth(1 + below(40));
    const auto n = static_cast<std::uint32_t>(truth.tokens.size());
    Answer answer(kReceived);
    answer.begin(kPrompt, {});
    std::string had;  // of the client
    std::vector<TokenId> had_tokens;
    for (int step = 0; step < 300; ++step) {
      const std::uint32_t from = below(n), until = from + below(n - from);
      if (below(1) == 0) {
        const std::uint32_t before = answer.n_tokens();
        const auto news = answer.add_tokens(truth.some_tokens(from, until), kReceived);
        EXPECT_EQ(from > before     ? Answer::News::kGap
                  : until <= before ? Answer::News::kNone
                                    : Answer::News::kSome,
                  news);
      } else if (until <= answer.n_tokens()) {
        answer.add_text(truth.some_text(from, until), answer.n_tokens());
      }
      if (below(9) == 0) {  // the client lost all of it
        answer.restart_delivery();
        had.clear();
        had_tokens.clear();
      }
      if (auto piece = answer.next_piece(kAnswered)) {
        EXPECT_EQ(had.size(), piece->offset);
        EXPECT_EQ(had_tokens.size(), piece->position);
        had += piece->text;
        had_tokens.insert(had_tokens.end(), piece->token_ids.begin(), piece->token_ids.end());
      }
    }
    answer.add_tokens(truth.some_tokens(0, n), kReceived);
    answer.add_text(truth.some_text(0, n), n);
    EXPECT_TRUE(answer.has_all_text());
    const wire::ClientReply whole = answer.whole_reply(kAnswered, {});
    EXPECT_EQ(truth.text, whole.text);
    EXPECT_EQ(truth.tokens, whole.token_ids);
    const wire::ClientReply rest = answer.without_pieces(whole);
    EXPECT_EQ(truth.text, had + rest.text);
    had_tokens.insert(had_tokens.end(), rest.token_ids.begin(), rest.token_ids.end());
    EXPECT_EQ(truth.tokens, had_tokens);
  }
}

// What a tokenizer says that is asked for these.
std::string bytes_of_token(TokenId id) { return "\xc3" + std::to_string(id); }  // half a character
wire::Text with_bytes(wire::Text text, const std::vector<TokenId>& ids) {
  for (const TokenId id : ids) {
    const std::string bytes = bytes_of_token(id);
    text.bytes_of.push_back(id);
    text.n_bytes.push_back(static_cast<std::uint32_t>(bytes.size()));
    text.bytes.insert(text.bytes.end(), bytes.begin(), bytes.end());
  }
  return text;
}

void expect_bytes(const std::vector<wire::LogprobEntry>& entries) {
  const auto as_text = [](const std::vector<std::uint8_t>& bytes) {
    return std::string(bytes.begin(), bytes.end());
  };
  for (const wire::LogprobEntry& entry : entries) {
    EXPECT_EQ(bytes_of_token(entry.token_id), as_text(entry.bytes));
    EXPECT_EQ("\xef\xbf\xbd" + std::to_string(entry.token_id), entry.token);
    ASSERT_EQ(entry.top_ids.size(), entry.top_bytes.size());
    ASSERT_EQ(entry.top_ids.size(), entry.top_tokens.size());
    for (std::size_t i = 0; i < entry.top_ids.size(); ++i) {
      EXPECT_EQ(bytes_of_token(entry.top_ids[i]), as_text(entry.top_bytes[i]));
      EXPECT_EQ("\xef\xbf\xbd" + std::to_string(entry.top_ids[i]), entry.top_tokens[i]);
    }
  }
}

// Answers of the tokenizer get lost, those without text unnoticed.
TEST(Answer, WhereTokensHaveTextTheirLogprobsHaveBytes) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) {
      return std::uniform_int_distribution<std::uint32_t>(0, n)(random);
    };
    const WholeAnswer truth(1 + below(30));
    const auto n = static_cast<std::uint32_t>(truth.tokens.size());
    Answer answer(kReceived);
    answer.begin(kPrompt, {.n_logprobs = 0});
    std::vector<wire::LogprobEntry> had;
    for (std::uint32_t have = 0; have < n;) {
      const std::uint32_t until = std::min(n, have + 1 + below(4));
      wire::Tokens tokens = truth.some_tokens(have, until);
      for (std::uint32_t i = have; i < until; ++i)
        tokens.logprobs.push_back({.logprob = -1,
                                   .top_ids = {static_cast<TokenId>(below(5)), truth.tokens[i]},
                                   .top_logprobs = {-1, -2}});
      answer.add_tokens(tokens, kReceived);
      have = until;
      const std::vector<TokenId> wanted = answer.without_bytes();
      if (have < n && below(2) == 0) continue;  // lost
      const std::uint32_t from = answer.n_detokenized();
      answer.add_text(with_bytes(truth.some_text(from, until), wanted), until);
      EXPECT_TRUE(answer.without_bytes().empty());
      if (auto piece = answer.next_piece(kAnswered)) {
        EXPECT_EQ(piece->token_ids.size(), piece->logprobs.size());
        had.insert(had.end(), piece->logprobs.begin(), piece->logprobs.end());
      }
    }
    const wire::ClientReply whole = answer.whole_reply(kAnswered, {});
    EXPECT_EQ(n, whole.logprobs.size());
    expect_bytes(whole.logprobs);
    EXPECT_EQ(whole.logprobs, had);
  }
}

// Tokens [from, until) of kPrompt as a target says them.
wire::Tokens some_prompt(Position from, Position until) {
  wire::Tokens tokens{.position = from, .ids = {kPrompt.begin() + from, kPrompt.begin() + until}};
  for (Position i = from; i < until; ++i)
    tokens.logprobs.push_back({.logprob = -0.5f * static_cast<float>(i),
                               .top_ids = {static_cast<TokenId>(200 + i)},
                               .top_logprobs = {-0.25f}});
  return tokens;
}

void expect_prompt(const std::vector<wire::LogprobEntry>& entries) {
  ASSERT_EQ(kPrompt.size(), entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(kPrompt[i], entries[i].token_id);
    if (i == 0) {
      EXPECT_FALSE(entries[i].logprob);
      EXPECT_TRUE(entries[i].top_ids.empty());
      continue;
    }
    EXPECT_EQ(-0.5 * static_cast<double>(i), entries[i].logprob);
    EXPECT_EQ(std::vector{static_cast<TokenId>(200 + i)}, entries[i].top_ids);
  }
  expect_bytes(entries);
}

TEST(Answer, ThePromptsLogProbabilitiesComeInAnyPartsAndBeforeTheAnswer) {
  const WholeAnswer truth(3);
  Answer answer(kReceived);
  answer.begin(kPrompt, {.n_prompt_logprobs = 1});
  EXPECT_EQ(1u, answer.prompt_logprobs_from());
  EXPECT_EQ(Answer::News::kSome, answer.add_tokens(some_prompt(1, 3), kReceived));
  EXPECT_EQ(3u, answer.prompt_logprobs_from());
  EXPECT_EQ(Answer::News::kNone, answer.add_tokens(some_prompt(1, 3), kReceived)) << "repeated";
  EXPECT_EQ(Answer::News::kGap, answer.add_tokens(some_prompt(4, 5), kReceived));
  EXPECT_EQ(Answer::News::kGap, answer.add_tokens(truth.some_tokens(0, 3), kReceived));
  EXPECT_EQ(0u, answer.n_tokens());
  EXPECT_FALSE(answer.has_all_of_prompt());
  EXPECT_TRUE(answer.whole_reply(kAnswered, {}).prompt_logprobs.empty()) << "all or none";
  EXPECT_EQ(Answer::News::kSome, answer.add_tokens(some_prompt(2, 5), kReceived));
  EXPECT_TRUE(answer.has_all_of_prompt());
  EXPECT_EQ(Answer::News::kNone, answer.add_tokens(some_prompt(1, 5), kReceived));
  EXPECT_EQ(Answer::News::kSome, answer.add_tokens(truth.some_tokens(0, 3), kReceived));
  answer.add_text(with_bytes(truth.some_text(0, 3), answer.without_bytes()), 3);
  expect_prompt(answer.whole_reply(kAnswered, {}).prompt_logprobs);
}

TEST(Answer, ThePromptsLogProbabilitiesAreInTheFirstPieceOrInTheLastMap) {
  const WholeAnswer truth(3);
  for (const bool has_pieces : {false, true}) {
    Answer answer(kReceived);
    answer.begin(kPrompt, {.n_prompt_logprobs = 1});
    answer.add_tokens(some_prompt(1, 5), kReceived);
    if (has_pieces) answer.add_tokens(truth.some_tokens(0, 2), kReceived);
    answer.add_text(with_bytes(truth.some_text(0, has_pieces ? 1 : 0), answer.without_bytes()), 1);
    for (int telling = 0; has_pieces && telling < 2; ++telling) {
      answer.restart_delivery();
      expect_prompt(answer.next_piece(kAnswered).value_or(wire::ClientPiece{}).prompt_logprobs);
    }
    if (has_pieces) {
      answer.add_text(truth.some_text(1, 2), 2);
      EXPECT_TRUE(
          answer.next_piece(kAnswered).value_or(wire::ClientPiece{}).prompt_logprobs.empty());
    }
    const wire::ClientReply whole = answer.whole_reply(kAnswered, {});
    expect_prompt(whole.prompt_logprobs);
    EXPECT_EQ(has_pieces, answer.without_pieces(whole).prompt_logprobs.empty());
  }
}

// The form and the number of the prompt's tokens let a client begin before the answer is whole.
TEST(Answer, EndsOfTokensGoWithThemAndTheFormWithTheFirst) {
  const WholeAnswer truth(6);
  Answer answer(kReceived);
  answer.begin(kPrompt, {});
  answer.set_form({.tool_format = "hermes"});
  answer.add_tokens(truth.some_tokens(0, 6), kReceived);
  const auto with_ends = [&](std::uint32_t from, std::uint32_t until) {
    wire::Text text = truth.some_text(from, until);
    for (std::uint32_t i = from; i < until; ++i)
      text.ends.push_back(static_cast<std::uint32_t>(truth.ends[i]));
    return text;
  };
  answer.add_text(with_ends(0, 2), 6);
  const auto first = answer.next_piece(kAnswered).value_or(wire::ClientPiece{});
  EXPECT_EQ(first.token_ends, (std::vector<std::uint32_t>{1, 3}));
  EXPECT_EQ(first.prompt_tokens, kPromptTokens);
  ASSERT_TRUE(first.form.has_value());
  answer.add_text(with_ends(0, 4), 6);  // a replay says the first ones again
  const auto second = answer.next_piece(kAnswered).value_or(wire::ClientPiece{});
  EXPECT_EQ(second.token_ends, (std::vector<std::uint32_t>{6, 7}));
  EXPECT_FALSE(second.form.has_value());
  answer.add_text(with_ends(4, 6), 6);
  const wire::ClientReply whole = answer.whole_reply(kAnswered, {});
  EXPECT_EQ(whole.token_ends, (std::vector<std::uint32_t>{1, 3, 6, 7, 9, 12}));
  EXPECT_TRUE(whole.form.has_value());
  const wire::ClientReply rest = answer.without_pieces(whole);
  EXPECT_EQ(rest.token_ends, (std::vector<std::uint32_t>{9, 12}));
  EXPECT_FALSE(rest.form.has_value());
}

// The first token has no text of its own, as one that ends within a character.
TEST(Answer, EndsThatALostTextWithoutBytesHadAreAGap) {
  const auto begun = [] {
    Answer answer(kReceived);
    answer.begin(kPrompt, {});
    answer.set_form({.tool_format = "hermes"});
    answer.add_tokens({.position = kPromptTokens, .ids = {100, 101}}, kReceived);
    return answer;
  };
  const wire::Text first{.next = kPromptTokens + 1, .ends = {0}};
  const wire::Text second{.next = kPromptTokens + 2, .text = "ab", .ends = {2}};
  const wire::Text again{.next = kPromptTokens + 2, .text = "ab", .ends = {0, 2}};
  const wire::Text last{.next = kPromptTokens + 2, .text = "ab", .final = true};
  using News = Answer::News;

  Answer lost = begun();
  EXPECT_EQ(News::kGap, lost.add_text(second, 2));
  EXPECT_EQ(0u, lost.n_detokenized());
  EXPECT_EQ(News::kSome, lost.add_text(again, 2));
  EXPECT_EQ((std::vector<std::uint32_t>{0, 2}), lost.whole_reply(kAnswered, {}).token_ends);

  Answer overtaken = begun();
  EXPECT_EQ(News::kGap, overtaken.add_text(second, 2));
  EXPECT_EQ(News::kSome, overtaken.add_text(first, 2));
  EXPECT_EQ(News::kSome, overtaken.add_text(second, 2));

  Answer at_its_end = begun();  // what it says last has no tokens of its own
  EXPECT_EQ(News::kSome, at_its_end.add_text(first, 2));
  EXPECT_EQ(News::kGap, at_its_end.add_text(last, 2));

  Answer of_an_old_tokenizer = begun();
  EXPECT_EQ(News::kSome, of_an_old_tokenizer.add_text(last, 2, Answer::TokenEnds::kUnsaid));
  EXPECT_EQ("ab", of_an_old_tokenizer.whole_reply(kAnswered, {}).text);
}

TEST(Answer, EndsOfTextThatIsKnownAlreadyAreKept) {
  const WholeAnswer truth(4);
  Answer answer(kReceived);
  answer.begin(kPrompt, {});
  answer.set_form({.tool_format = "hermes"});
  answer.add_tokens(truth.some_tokens(0, 4), kReceived);
  EXPECT_EQ(Answer::News::kSome,
            answer.add_text(truth.some_text(0, 3), 4, Answer::TokenEnds::kUnsaid));
  wire::Text first = truth.some_text(0, 2), second = truth.some_text(2, 4);
  first.ends = {1, 3};
  second.ends = {6, 7};
  EXPECT_EQ(Answer::News::kNone, answer.add_text(first, 4));
  EXPECT_EQ(Answer::News::kSome, answer.add_text(second, 4));
  EXPECT_EQ((std::vector<std::uint32_t>{1, 3, 6, 7}), answer.whole_reply(kAnswered, {}).token_ends);
}

TEST(Answer, BytesAreAskedForOnlyWithLogprobs) {
  const WholeAnswer truth(3);
  for (const bool with_logprobs : {false, true}) {
    Answer answer(kReceived);
    answer.begin(kPrompt, {.n_logprobs = with_logprobs ? 0 : -1});
    wire::Tokens tokens = truth.some_tokens(0, 3);
    tokens.logprobs.assign(3, {.logprob = -1, .top_ids = {7}, .top_logprobs = {-1}});
    answer.add_tokens(tokens, kReceived);
    EXPECT_EQ(with_logprobs ? std::vector<TokenId>({7, 100, 101, 102}) : std::vector<TokenId>(),
              answer.without_bytes());
  }
}

TEST(Answer, ATokenizerThatKnowsNoBytesLeavesThemEmpty) {
  const WholeAnswer truth(2);
  for (const auto& broken : {wire::Text{}, wire::Text{.bytes_of = {100}},
                             wire::Text{.bytes_of = {100}, .n_bytes = {9}}}) {
    Answer answer(kReceived);
    answer.begin(kPrompt, {.n_logprobs = 0});
    wire::Tokens tokens = truth.some_tokens(0, 2);
    tokens.logprobs.assign(2, {.logprob = -1, .top_ids = {7}, .top_logprobs = {-1}});
    answer.add_tokens(tokens, kReceived);
    wire::Text text = truth.some_text(0, 2);
    text.bytes_of = broken.bytes_of;
    text.n_bytes = broken.n_bytes;
    answer.add_text(text, 2);
    const auto piece = answer.next_piece(kAnswered);
    ASSERT_TRUE(piece);
    EXPECT_EQ(truth.text.substr(0, piece->text.size()), piece->text);
    ASSERT_EQ(2u, piece->logprobs.size());
    EXPECT_EQ("", piece->logprobs[0].token);
    EXPECT_TRUE(piece->logprobs[0].bytes.empty());
    EXPECT_EQ(std::vector<std::string>{""}, piece->logprobs[0].top_tokens);
  }
}

TEST(Answer, AStopStringTakesNothingBackThatTheClientHas) {
  const WholeAnswer truth(8);
  Answer answer(kReceived);
  answer.begin(kPrompt, {});
  answer.add_tokens(truth.some_tokens(0, 8), kReceived);
  answer.add_text(truth.some_text(0, 6), 8);
  ASSERT_TRUE(answer.next_piece(kAnswered));
  answer.end_at_stop_string({.stop_string = "x", .n_tokens = 3});
  EXPECT_EQ(6u, answer.n_tokens());
  const wire::ClientReply reply = answer.whole_reply(kAnswered, {});
  EXPECT_EQ("stop", reply.finish_reason);
  EXPECT_EQ(6u, reply.usage.completion_tokens);
}

// What clients of vLLM check before they take the counts of an answer.
void expect_consistent_counts(const wire::SpeculativeDecoding& spec) {
  ASSERT_EQ(spec.num_spec_tokens + 1, spec.acceptance_histogram.size());
  std::uint32_t n_rounds = 0, n_accepted = 0;
  for (std::uint32_t i = 0; i <= spec.num_spec_tokens; ++i) {
    n_rounds += spec.acceptance_histogram[i];
    n_accepted += i * spec.acceptance_histogram[i];
  }
  EXPECT_EQ(spec.num_spec_steps, n_rounds);
  EXPECT_EQ(spec.num_accepted_draft_tokens, n_accepted);
  EXPECT_LE(spec.num_accepted_draft_tokens, spec.num_draft_tokens);
}

TEST(Answer, ItsHistogramHasAPlaceForEachCountThatARoundMayAccept) {
  struct Case {
    const char* what;
    std::optional<wire::Done> done;
    std::uint32_t asked;  // what the router believes
    std::vector<std::uint32_t> histogram;
  };
  using enum ProposerKind;
  const std::vector<Case> cases{
      {"no counts came", std::nullopt, 3, {0, 0, 0, 0}},
      {"no rounds", wire::Done{.draft_len = 2}, 2, {0, 0, 0}},
      {"plain decoding", wire::Done{.draft_len = 0}, 0, {0}},
      {"fewer were accepted than allowed",
       wire::Done{
           .proposers = {{kDraft, 5, 12, 4}}, .acceptance_histogram = {2, 2, 1}, .draft_len = 4},
       4,
       {2, 2, 1, 0, 0}},
      {"nothing was accepted",
       wire::Done{.proposers = {{kNgram, 2, 3, 0}}, .acceptance_histogram = {2}, .draft_len = 1},
       1,
       {2, 0}},
      {"the target is configured with a higher bound",
       wire::Done{.proposers = {{kDraft, 2, 9, 1}}, .acceptance_histogram = {1, 1}, .draft_len = 5},
       2,
       {1, 1, 0, 0, 0, 0}},
      {"the target is configured with a lower bound",
       wire::Done{.proposers = {{kDraft, 2, 2, 1}}, .acceptance_histogram = {1, 1}, .draft_len = 1},
       8,
       {1, 1}},
      {"a target that does not say its bound had the router's",
       wire::Done{.proposers = {{kDraft, 2, 4, 1}}, .acceptance_histogram = {1, 1}},
       3,
       {1, 1, 0, 0}},
      {"a target that does not say its bound had a higher one",
       wire::Done{.proposers = {{kDraft, 2, 7, 4}}, .acceptance_histogram = {1, 0, 0, 0, 1}},
       2,
       {1, 0, 0, 0, 1}},
      {"two proposers",
       wire::Done{.proposers = {{kDraft, 3, 4, 2}, {kPrediction, 3, 5, 3}},
                  .acceptance_histogram = {0, 2, 0, 1, 0, 0},
                  .draft_len = 4},
       4,
       {0, 2, 0, 1, 0}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const WholeAnswer truth(8);
    Answer answer(kReceived);
    answer.begin(kPrompt, {});
    answer.add_tokens(truth.some_tokens(0, 8), kReceived);
    answer.add_text(truth.some_text(0, 8), 8);
    if (c.done) answer.finish(*c.done);
    const wire::SpeculativeDecoding spec =
        answer.whole_reply(kAnswered, {.n_draft = c.asked}).metrics.speculative_decoding;
    EXPECT_EQ(c.histogram, spec.acceptance_histogram);
    expect_consistent_counts(spec);
  }
}

TEST(Answer, ItsHistogramByDraftLengthIsTheSameRounds) {
  Answer answer(kReceived);
  answer.begin(kPrompt, {});
  answer.finish({.proposers = {{ProposerKind::kDraft, 8, 20, 8}},
                 .acceptance_histogram = {3, 3, 1, 1},
                 .draft_len = 4,
                 .rounds_by_length = {{1, {2, 2}}, {3, {0, 1, 1, 1}}, {10, {1}}}});
  const wire::SpeculativeDecoding spec =
      answer.whole_reply(kAnswered, {}).metrics.speculative_decoding;
  EXPECT_EQ((std::map<std::string, std::vector<std::uint32_t>>{
                {"1", {2, 2}}, {"3", {0, 1, 1, 1}}, {"10", {1}}}),
            spec.acceptance_histogram_by_draft_length);
}

TEST(Answer, DecodingIsTimedByTheTargetUnlessItDecodedAPartOnly) {
  const WholeAnswer truth(5);
  Answer answer(kReceived);
  answer.begin(kPrompt, {});
  answer.add_tokens(truth.some_tokens(0, 1), kReceived + std::chrono::milliseconds(10));
  answer.add_tokens(truth.some_tokens(1, 5), kReceived + std::chrono::milliseconds(90));
  answer.add_text(truth.some_text(0, 5), 5);
  answer.finish({.decode_us = 40'000});
  const wire::ReplyMetrics here = answer.whole_reply(kAnswered, {}).metrics;
  EXPECT_DOUBLE_EQ(40, here.generation_time_ms);
  EXPECT_DOUBLE_EQ(100, here.tokens_per_second);
  const wire::ReplyMetrics moved = answer.whole_reply(kAnswered, {.n_migrations = 1}).metrics;
  EXPECT_DOUBLE_EQ(80, moved.generation_time_ms);
  EXPECT_DOUBLE_EQ(50, moved.tokens_per_second);
}

TEST(Answer, OneThatIsCutShortHasNoTokensWithoutText) {
  const WholeAnswer truth(8);
  Answer answer(kReceived);
  answer.begin(kPrompt, {});
  answer.add_tokens(truth.some_tokens(0, 8), kReceived);
  answer.add_text(truth.some_text(0, 2), 8);
  const wire::ClientReply reply =
      answer.whole_reply(kAnswered, {.cut_short = FinishReason::kDeadline});
  EXPECT_EQ("deadline", reply.finish_reason);
  EXPECT_EQ(2u, reply.token_ids.size());
}

}  // namespace
}  // namespace foretoken
