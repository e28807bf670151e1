// The stages of a tokenizer.json as plain data: what normalizes, splits, surrounds and decodes.
// Read by spec_reader, interpreted by normalizer, pre_tokenizer and decode_pipeline. No behaviour
// here.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "common/base/ids.h"
#include "common/tokenizer/unicode.h"

namespace foretoken {

// A pattern is a literal string or a regular expression.
struct PatternSpec {
  bool is_regex = false;
  std::string text;
};

namespace normalizer {
struct UnicodeForm {
  unicode::Form form;
};
struct Lowercase {};
struct Strip {
  bool left;
  bool right;
};
struct Prepend {
  std::string text;
};
struct Replace {
  PatternSpec pattern;
  std::string content;
};
}  // namespace normalizer
using NormalizerStep = std::variant<normalizer::UnicodeForm,
                                    normalizer::Lowercase,
                                    normalizer::Strip,
                                    normalizer::Prepend,
                                    normalizer::Replace>;

// What becomes of the delimiters between pieces.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
enum class PrependScheme { kAlways, kFirst, kNever };

namespace splitter {
struct Split {
  PatternSpec pattern;
  SplitBehavior behavior;
  bool invert;
};
struct ByteLevel {
  bool add_prefix_space;
  bool use_regex;
};
struct Metaspace {
  std::string replacement;
  PrependScheme prepend;
  bool split;
};
struct Digits {
  bool individual;
};
struct Punctuation {
  SplitBehavior behavior;
};
struct Whitespace {};       // words and runs of other characters; spaces vanish
struct WhitespaceSplit {};  // at spaces, which vanish
}  // namespace splitter
using SplitterStep = std::variant<splitter::Split,
                                  splitter::ByteLevel,
                                  splitter::Metaspace,
                                  splitter::Digits,
                                  splitter::Punctuation,
                                  splitter::Whitespace,
                                  splitter::WhitespaceSplit>;

namespace decoder {
struct ByteLevel {};
struct ByteFallback {};
struct Fuse {};
struct Strip {
  std::string content;
  std::size_t start;
  std::size_t stop;
};  // content is one character
struct Replace {
  std::string pattern;
  std::string content;
};
struct Metaspace {
  std::string replacement;
  PrependScheme prepend;
};
struct BpeSuffix {
  std::string suffix;
};
// sentencepiece's own way: each byte piece that is not text becomes one U+FFFD, the rest stands;
// U+2581 is a space, and of those at the very beginning none, one or all vanish.
enum class LeadingSpaces { kKept, kOneStripped, kAllStripped };
struct SentencePiece {
  LeadingSpaces leading;
};
}  // namespace decoder
using DecoderStep = std::variant<decoder::ByteLevel,
                                 decoder::ByteFallback,
                                 decoder::Fuse,
                                 decoder::Strip,
                                 decoder::Replace,
                                 decoder::Metaspace,
                                 decoder::BpeSuffix,
                                 decoder::SentencePiece>;

struct DecoderSpec {
  bool present = false;  // without a decoder, tokens are joined by spaces
  std::vector<DecoderStep> steps;
};

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = false;
  bool special = false;
};

// What the post-processor puts around the ids of one text.
struct SurroundSpec {
  std::vector<TokenId> before;
  std::vector<TokenId> after;
};

}  // namespace foretoken
