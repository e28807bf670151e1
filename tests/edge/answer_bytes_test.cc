// What answers count for: the limits on what the edge keeps of them are worth as much as this
// count.
#include "services/edge/answer_bytes.h"

#include <gtest/gtest.h>

namespace foretoken::edge {
namespace {

constexpr std::size_t kTop = 20;

wire::LogprobEntry entry() {
  wire::LogprobEntry entry{.token_id = 7, .logprob = -0.5, .token = "cat", .bytes = {1, 2, 3}};
  entry.top_ids.resize(kTop);
  entry.top_logprobs.resize(kTop);
  entry.top_tokens.resize(kTop, "cat");
  entry.top_bytes.resize(kTop, {1, 2, 3});
  return entry;
}

template <class T>
std::size_t more(auto change) {
  T changed;
  change(changed);
  return bytes_of(changed) - bytes_of(T{});
}

TEST(AnswerBytes, AnEntryHasItsListsOfTheLikeliest) {
  constexpr std::size_t kEachOfTop = sizeof(TokenId) + sizeof(double) + sizeof(std::string) +
                                     sizeof(std::vector<std::uint8_t>) + 32;
  EXPECT_GE(bytes_of(entry()), sizeof(wire::LogprobEntry) + kTop * kEachOfTop);
  EXPECT_LT(bytes_of(entry()), 2400U);
  wire::LogprobEntry long_text = entry();
  long_text.top_tokens[3] = std::string(1000, 'x');
  EXPECT_GE(bytes_of(long_text), bytes_of(entry()) + 1000);
}

TEST(AnswerBytes, AReplyHasItsTextTokensAndLogprobsOfBothSides) {
  using wire::ClientReply;
  const std::size_t of_entries = 3 * bytes_of(entry());
  EXPECT_GE(bytes_of(ClientReply{}), sizeof(ClientReply));
  EXPECT_EQ(more<ClientReply>([](auto& r) { r.text = "12345"; }), 5U);
  EXPECT_EQ(more<ClientReply>([](auto& r) { r.token_ids = {1, 2, 3}; }), 12U);
  EXPECT_EQ(more<ClientReply>([](auto& r) { r.token_ends = {1, 2, 3}; }), 12U);
  EXPECT_EQ(more<ClientReply>([](auto& r) { r.prompt_token_ids = {1, 2, 3}; }), 12U);
  EXPECT_EQ(more<ClientReply>([](auto& r) { r.logprobs.assign(3, entry()); }), of_entries);
  EXPECT_EQ(more<ClientReply>([](auto& r) { r.prompt_logprobs.assign(3, entry()); }), of_entries);
}

TEST(AnswerBytes, APieceHasWhatItSaysOfThePromptApart) {
  wire::ClientPiece piece{.text = "he", .logprobs = {entry()}};
  const std::size_t of_answer = bytes_of(piece);
  EXPECT_EQ(bytes_of_prompt(piece), 0U);
  piece.prompt_logprobs.assign(3, entry());
  piece.prompt_token_ids = {1, 2, 3};
  EXPECT_EQ(bytes_of(piece), of_answer);
  EXPECT_EQ(bytes_of_prompt(piece), 3 * bytes_of(entry()) + 12);
}

}  // namespace
}  // namespace foretoken::edge
