#include "common/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/utf8.h"

namespace foretoken {
namespace {

// A stretch of a piece: a delimiter, or what lies between two.
struct Stretch {
  std::size_t begin;
  std::size_t end;
  bool is_match;
};

struct ByteAlphabet {
  std::array<std::string, 256> characters;
  std::array<std::int16_t, 512> bytes;
  ByteAlphabet() {
    bytes.fill(-1);
    char32_t next = 256;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const char32_t code_point = printable ? byte : next++;
      utf8::append(characters[byte], code_point);
      bytes[code_point] = static_cast<std::int16_t>(byte);
    }
  }
};

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

// Matches -> stretches that cover [0, size).
std::vector<Stretch> cover(const std::vector<TextRange>& matches, std::size_t size) {
  std::vector<Stretch> stretches;
  std::size_t done = 0;
  for (const TextRange& match : matches) {
    if (done != match.begin) stretches.push_back({done, match.begin, false});
    stretches.push_back({match.begin, match.end, true});
    done = match.end;
  }
  if (done != size) stretches.push_back({done, size, false});
  return stretches;
}

template <class Predicate>
std::vector<TextRange> find_characters(std::string_view text, Predicate matches) {
  std::vector<TextRange> found;
  for (std::size_t at = 0; at < text.size();) {
    const utf8::CodePoint point = utf8::code_point_at(text, at);
    if (matches(point.value)) found.push_back({at, at + point.length});
    at += point.length;
  }
  return found;
}

std::vector<TextRange> find_literal(std::string_view text, std::string_view pattern) {
  std::vector<TextRange> found;
  std::size_t done = 0;
  for (std::size_t at;
       !pattern.empty() && (at = text.find(pattern, done)) != std::string_view::npos;) {
    done = at + pattern.size();
    found.push_back({at, done});
  }
  return found;
}

// A match joins what is before it, unless that is a match, too.
void merge_with_previous(std::vector<Stretch>& stretches) {
  std::vector<Stretch> merged;
  bool previous_match = false;
  for (const Stretch& stretch : stretches) {
    if (stretch.is_match && !previous_match && !merged.empty())
      merged.back().end = stretch.end;
    else
      merged.push_back(stretch);
    previous_match = stretch.is_match;
  }
  stretches = std::move(merged);
}

// The mirror image.
void merge_with_next(std::vector<Stretch>& stretches) {
  std::vector<Stretch> merged;
  bool previous_match = false;
  for (auto stretch = stretches.rbegin(); stretch != stretches.rend(); ++stretch) {
    if (stretch->is_match && !previous_match && !merged.empty())
      merged.back().begin = stretch->begin;
    else
      merged.push_back(*stretch);
    previous_match = stretch->is_match;
  }
  std::reverse(merged.begin(), merged.end());
  stretches = std::move(merged);
}

void merge_contiguous(std::vector<Stretch>& stretches) {
  std::vector<Stretch> merged;
  for (const Stretch& stretch : stretches) {
    if (!merged.empty() && merged.back().is_match == stretch.is_match)
      merged.back().end = stretch.end;
    else
      merged.push_back(stretch);
  }
  stretches = std::move(merged);
}

// Appends the pieces of one range, cut at `matches`, whose offsets count from the range's begin.
void cut(const Pieces::Range& range,
         std::vector<Stretch> stretches,
         SplitBehavior behavior,
         std::vector<Pieces::Range>& out) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      std::erase_if(stretches, [](const Stretch& stretch) { return stretch.is_match; });
      break;
    case SplitBehavior::kIsolated:
      break;
    case SplitBehavior::kMergedWithPrevious:
      merge_with_previous(stretches);
      break;
    case SplitBehavior::kMergedWithNext:
      merge_with_next(stretches);
      break;
    case SplitBehavior::kContiguous:
      merge_contiguous(stretches);
      break;
  }
  for (const Stretch& stretch : stretches)
    if (stretch.begin < stretch.end)
      out.push_back({range.begin + stretch.begin, range.begin + stretch.end,
                     range.starts_text && stretch.begin == 0});
}

template <class FindMatches>
void split_each(Pieces& pieces, SplitBehavior behavior, FindMatches find) {
  std::vector<Pieces::Range> out;
  for (const Pieces::Range& range : pieces.ranges)
    cut(range, cover(find(pieces.text(range)), range.end - range.begin), behavior, out);
  pieces.ranges = std::move(out);
}

Result<void> split(Pieces& pieces,
                   const splitter::Split& spec,
                   const Regex* regex,
                   RegexScratch& scratch) {
  std::vector<Pieces::Range> out;
  std::vector<TextRange> matches;
  for (const Pieces::Range& range : pieces.ranges) {
    const std::string_view text = pieces.text(range);
    matches.clear();
    if (regex == nullptr) {
      matches = find_literal(text, spec.pattern.text);
    } else if (Result<void> found = regex->find_all(text, scratch, matches); !found.ok()) {
      return found;
    }
    std::vector<Stretch> stretches = cover(matches, text.size());
    if (spec.invert)
      for (Stretch& stretch : stretches) stretch.is_match = !stretch.is_match;
    cut(range, std::move(stretches), spec.behavior, out);
  }
  pieces.ranges = std::move(out);
  return {};
}

// Rebuilds the buffer: `write(text, range, buffer)` appends what a range becomes.
template <class Write>
void rewrite(Pieces& pieces, Write write) {
  Pieces fresh;
  fresh.buffer.reserve(pieces.buffer.size() + pieces.buffer.size() / 2);
  fresh.ranges.reserve(pieces.ranges.size());
  for (const Pieces::Range& range : pieces.ranges) {
    const std::size_t begin = fresh.buffer.size();
    write(pieces.text(range), range, fresh.buffer);
    fresh.ranges.push_back({begin, fresh.buffer.size(), range.starts_text});
  }
  pieces = std::move(fresh);
}

Result<void> apply_byte_level(Pieces& pieces,
                              const splitter::ByteLevel& spec,
                              const Regex* regex,
                              RegexScratch& scratch) {
  if (spec.add_prefix_space)
    rewrite(pieces, [](std::string_view text, const Pieces::Range&, std::string& out) {
      if (!text.starts_with(' ')) out.push_back(' ');
      out.append(text);
    });
  if (regex != nullptr) {
    const splitter::Split isolated{{}, SplitBehavior::kIsolated, false};
    if (Result<void> done = split(pieces, isolated, regex, scratch); !done.ok()) return done;
  }
  rewrite(pieces, [](std::string_view text, const Pieces::Range&, std::string& out) {
    for (const char byte : text) out.append(byte_to_character(static_cast<unsigned char>(byte)));
  });
  return {};
}

void apply_metaspace(Pieces& pieces, const splitter::Metaspace& spec) {
  rewrite(pieces, [&spec](std::string_view text, const Pieces::Range& range, std::string& out) {
    const bool marked = text.starts_with(' ') || text.starts_with(spec.replacement);
    const bool wanted = spec.prepend == PrependScheme::kAlways ||
                        (spec.prepend == PrependScheme::kFirst && range.starts_text);
    if (wanted && !marked) out.append(spec.replacement);
    for (const char c : text) c == ' ' ? out.append(spec.replacement) : out.append(1, c);
  });
  if (spec.split)
    split_each(pieces, SplitBehavior::kMergedWithNext,
               [&spec](std::string_view text) { return find_literal(text, spec.replacement); });
}

// Runs of word characters and runs of what is neither word nor space.
std::vector<TextRange> find_words(std::string_view text) {
  enum class Kind { kSpace, kWord, kOther };
  std::vector<TextRange> found;
  Kind previous = Kind::kSpace;
  for (std::size_t at = 0; at < text.size();) {
    const utf8::CodePoint point = utf8::code_point_at(text, at);
    const Kind kind = unicode::is_space(point.value)  ? Kind::kSpace
                      : unicode::is_word(point.value) ? Kind::kWord
                                                      : Kind::kOther;
    if (kind != Kind::kSpace) {
      if (kind == previous)
        found.back().end = at + point.length;
      else
        found.push_back({at, at + point.length});
    }
    previous = kind;
    at += point.length;
  }
  return found;
}

void apply_whitespace(Pieces& pieces) {
  std::vector<Pieces::Range> out;
  for (const Pieces::Range& range : pieces.ranges)
    for (const TextRange& word : find_words(pieces.text(range)))
      out.push_back(
          {range.begin + word.begin, range.begin + word.end, range.starts_text && word.begin == 0});
  pieces.ranges = std::move(out);
}

}  // namespace

std::string_view byte_to_character(unsigned char byte) { return byte_alphabet().characters[byte]; }

std::optional<unsigned char> character_to_byte(char32_t code_point) {
  const auto& bytes = byte_alphabet().bytes;
  if (code_point >= bytes.size() || bytes[code_point] < 0) return std::nullopt;
  return static_cast<unsigned char>(bytes[code_point]);
}

Result<PreTokenizer> PreTokenizer::build(std::vector<SplitterStep> steps, RegexJit jit) {
  PreTokenizer built;
  for (SplitterStep& spec : steps) {
    Step step{std::move(spec), std::nullopt};
    std::optional<std::string> pattern;
    if (const auto* split = std::get_if<splitter::Split>(&step.spec);
        split && split->pattern.is_regex)
      pattern = split->pattern.text;
    if (const auto* bytes = std::get_if<splitter::ByteLevel>(&step.spec); bytes && bytes->use_regex)
      pattern = gpt2_pattern();
    if (pattern) {
      Result<Regex> regex = Regex::compile(*pattern, jit);
      if (!regex.ok()) return regex.error();
      step.regex = std::move(*regex);
    }
    built.steps_.push_back(std::move(step));
  }
  return built;
}

Result<void> PreTokenizer::apply(Pieces& pieces, RegexScratch& scratch) const {
  for (const Step& step : steps_) {
    const Regex* regex = step.regex ? &*step.regex : nullptr;
    Result<void> done;
    if (const auto* spec = std::get_if<splitter::Split>(&step.spec)) {
      done = split(pieces, *spec, regex, scratch);
    } else if (const auto* bytes = std::get_if<splitter::ByteLevel>(&step.spec)) {
      done = apply_byte_level(pieces, *bytes, regex, scratch);
    } else if (const auto* metaspace = std::get_if<splitter::Metaspace>(&step.spec)) {
      apply_metaspace(pieces, *metaspace);
    } else if (const auto* digits = std::get_if<splitter::Digits>(&step.spec)) {
      split_each(pieces, digits->individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                 [](std::string_view text) { return find_characters(text, unicode::is_numeric); });
    } else if (const auto* punctuation = std::get_if<splitter::Punctuation>(&step.spec)) {
      split_each(pieces, punctuation->behavior, [](std::string_view text) {
        return find_characters(text, unicode::is_punctuation);
      });
    } else if (std::holds_alternative<splitter::Whitespace>(step.spec)) {
      apply_whitespace(pieces);
    } else {
      split_each(pieces, SplitBehavior::kRemoved,
                 [](std::string_view text) { return find_characters(text, unicode::is_space); });
    }
    if (!done.ok()) return done;
  }
  return {};
}

}  // namespace foretoken
