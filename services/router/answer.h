// What has come of the answer to one request, and what its client has had of it: tokens from the
// target, their text from the tokenizer, pieces to the client. All three may be late, lost or said
// twice. Plain bookkeeping: it uses no worker and sends nothing. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/messages/client.h"
#include "common/messages/messages.h"

namespace foretoken {

// Equal = same model, numerics and build.
std::string system_fingerprint_of(const wire::Fingerprints& prints);

class Answer {
 public:
  explicit Answer(TimePoint arrived) : arrived_(arrived) {}

  // Before the first token. Positions count from the prompt's first token.
  void begin(const std::vector<TokenId>& prompt, const SamplingParams& params);
  // The client wants to see the ids of its prompt.
  void show_prompt(const std::vector<TokenId>& prompt) { shown_prompt_ = prompt; }

  // How the answer is to be read, for its first piece; and from now on, where its tokens end.
  void set_form(wire::AnswerForm form) { form_ = std::move(form); }

  enum class News : std::uint8_t { kNone, kSome, kGap };  // kGap: what is before it was lost
  // Tokens of the answer, or of the prompt with the log-probabilities that were asked for: without
  // all of these, what is behind them is a gap.
  News add_tokens(const wire::Tokens& tokens, TimePoint now);
  // Whether the tokenizer says where the text of each token ends; an old one does not.
  enum class TokenEnds : std::uint8_t { kUnsaid, kSaid };
  // Text of the first n_sent tokens, which the tokenizer was sent in this run of the stream. Text
  // of more tokens was said to an earlier run. What it says of the bytes and ends of tokens is
  // kept. With a form, ends that are missing are a gap, too: a message without text may be lost.
  News add_text(const wire::Text& text, std::uint32_t n_sent, TokenEnds ends = TokenEnds::kSaid);
  // For log probabilities: the tokens without text yet (before the first, those of the prompt,
  // too), and those likeliest in their places, whose bytes are not known. To be asked for together
  // with that text, so that a client that has the text has the bytes.
  std::vector<TokenId> without_bytes() const;
  // The answer ends at a stop string, whatever the target has committed meanwhile. What the client
  // has been given stays given.
  void end_at_stop_string(const wire::Text& text);
  // The target's last word.
  void finish(wire::Done done) { done_ = std::move(done); }

  const std::vector<TokenId>& tokens() const { return tokens_; }
  std::uint32_t n_tokens() const { return static_cast<std::uint32_t>(tokens_.size()); }
  std::uint32_t n_prompt() const { return n_prompt_; }
  std::uint32_t n_detokenized() const { return n_detokenized_; }
  // Log-probabilities of the prompt: what the target is to begin with, and whether that is nothing.
  Position prompt_logprobs_from() const;
  bool has_all_of_prompt() const { return prompt_logprobs_from() >= prompt_.size(); }
  bool has_all_text() const { return n_detokenized_ == n_tokens(); }
  TimePoint last_token() const { return last_token_; }  // when it came, if one has
  bool is_finished() const { return done_.has_value(); }
  // The client has, or could be given, something of it.
  bool has_something_for_client() const { return n_detokenized_ > 0 || n_delivered_ > 0; }
  bool is_delivered() const { return n_delivered_bytes_ == text_.size(); }

  // The text that no piece has carried yet, with the tokens whose text is in it; from now on they
  // count as delivered. Nothing: there is no such text.
  std::optional<wire::ClientPiece> next_piece(RequestId id);
  // The client has lost what it had.
  void restart_delivery();

  // How the answer ends.
  struct Ending {
    std::optional<FinishReason> cut_short;  // cancelled, late: tokens without text are left out
    const wire::Hello* target = nullptr;    // that began it, if one has
    Duration tokenized{};                   // until the prompt's tokens were here
    Duration waited{};                      // for a place at a target
    std::uint32_t n_migrations = 0;         // the last target decoded a part of it, if any
    std::uint32_t n_draft = 0;              // the draft length asked for
  };
  // All of the answer with its counts.
  wire::ClientReply whole_reply(RequestId id, const Ending& ending);
  // The same for a client that has had the pieces: text, tokens and logprobs are those after them.
  wire::ClientReply without_pieces(wire::ClientReply whole) const;

 private:
  void add_bytes(const wire::Text& text);
  void add_ends(const wire::Text& text);
  std::vector<std::uint32_t> ends_of(std::uint32_t from, std::uint32_t until) const;
  News add_prompt(const wire::Tokens& tokens);
  wire::LogprobEntry logprob_entry(TokenId token, const TokenLogprobs* of_target) const;
  std::vector<wire::LogprobEntry> prompt_entries() const;
  void add_logprobs(std::vector<wire::LogprobEntry>& to,
                    std::uint32_t from,
                    std::uint32_t until) const;
  FinishReason reason_of(const Ending& ending) const;
  wire::ReplyMetrics metrics(const Ending& ending) const;

  TimePoint arrived_{}, first_token_{}, last_token_{};
  std::uint32_t n_prompt_ = 0;
  std::vector<TokenId> shown_prompt_;           // empty unless asked for
  std::vector<TokenId> prompt_;                 // if its log-probabilities are asked for
  std::vector<TokenLogprobs> prompt_logprobs_;  // from its second token on
  bool with_logprobs_ = false;
  std::optional<wire::AnswerForm> form_;

  std::vector<TokenId> tokens_;
  std::vector<TokenLogprobs> logprobs_;
  std::unordered_map<TokenId, std::vector<std::uint8_t>> bytes_of_;  // with log probabilities
  std::vector<std::uint8_t> guessed_;  // per token: 1 if a draft had guessed it
  std::optional<wire::Done> done_;

  std::string text_;                 // all of it so far
  std::uint32_t n_detokenized_ = 0;  // tokens whose text is in it
  std::vector<std::uint32_t> ends_;  // if a form is set: of these tokens, where their text ends
  std::optional<std::string> stop_string_;

  std::size_t n_delivered_bytes_ = 0;  // of the text, in pieces
  std::uint32_t n_delivered_ = 0;      // tokens in them
  bool is_begun_ = false;              // with the first of them, what stands in it alone
};

}  // namespace foretoken
