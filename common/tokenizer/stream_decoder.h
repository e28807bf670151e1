// Text as tokens arrive. The pieces of a stream, joined, are what Tokenizer::decode gives for all
// its tokens but one that ends the answer, cut before the first stop string; of a stream that
// continues a text, what they add to that text. Never half a code
// point, never a byte of a stop string, nothing held back that no stop string could still claim.
// One stream, one object, one thread at a time; the tokenizer must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/tokenizer/added_tokens.h"
#include "common/tokenizer/decode_pipeline.h"
#include "common/tokenizer/tokenizer.h"

namespace foretoken {

// Whether the text ends with the stop string, or the text of the token, that ends it.
enum class IncludeStop { kNo, kYes };

struct StreamOptions {
  std::vector<std::string> stop = {};
  IncludeStop include_stop = IncludeStop::kNo;
  SkipSpecialTokens skip_special = SkipSpecialTokens::kYes;
  std::vector<TokenId> kept = {};  // leave their text, special or not, and if they end the answer
  std::vector<TokenId> ends = {};  // end the answer: no text, unless include_stop
  std::size_t min_tokens = 0;  // what the first so many tokens complete is text and ends nothing
  TextBefore before = TextBefore::kNo;
};

// Finds the first place where one of several strings is complete, byte by byte (Aho-Corasick).
class StopMatcher {
 public:
  explicit StopMatcher(std::span<const std::string> stops);

  // Feeds a byte; the index of the longest string that ends with it, if any.
  std::optional<std::size_t> feed(char byte);
  // Goes on after a match as if it were text: only what may still become a string stays open.
  void pass_over_match();
  // Bytes at the end of what was fed that may be the beginning of a string.
  std::size_t open_bytes() const { return states_[static_cast<std::size_t>(state_)].depth; }

 private:
  struct State {
    std::size_t depth = 0;
    std::int32_t fallback = 0;  // longest proper suffix that is a prefix of some string
    std::int32_t match = ByteTrie::kNone;
  };
  ByteTrie trie_;
  std::vector<State> states_;  // of each node of the trie
  std::int32_t state_ = 0;
};

class StreamDecoder {
 public:
  struct Piece {
    std::string text;                       // whole code points
    bool stopped = false;                   // a stop string is complete: nothing follows
    std::optional<std::size_t> stop_index;  // which one, in the order given
    std::size_t end = 0;  // bytes of text up to the end of the last token, what is held back too
    // Pushed up to now; after a stop, up to the one that completed it. Byte tokens in a row count
    // as one: what they are is certain at their end.
    std::size_t n_tokens = 0;
  };

  // Refused: empty strings, strings that are not UTF-8, more or longer ones than limits.h permits.
  static Result<void> check_stops(std::span<const std::string> stops);

  // The stop strings must have passed check_stops.
  StreamDecoder(const Tokenizer& tokenizer, const StreamOptions& options);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;

  Piece push(TokenId token);
  // What was held back. A stop string may still become complete here.
  Piece finish();

 private:
  bool leaves_text(TokenId token) const;
  Piece emit(std::string_view fresh, std::size_t n_earlier);

  const Tokenizer* tokenizer_;
  std::unique_ptr<DecodePipeline> pipeline_;
  StopMatcher matcher_;
  std::vector<std::string> stops_;
  IncludeStop include_stop_;
  SkipSpecialTokens skip_special_;
  std::vector<TokenId> kept_;
  std::vector<TokenId> ends_;
  std::size_t min_tokens_;
  std::size_t n_made_ = 0;  // bytes of text so far, those of a stop string too
  std::string held_;
  bool finished_ = false;
  std::size_t n_tokens_ = 0;
  std::size_t n_with_text_ = 0;  // up to the last token that leaves text
  std::size_t n_before_ = 0;     // up to the one before it
  std::optional<std::size_t> stop_index_;
};

}  // namespace foretoken
