#include "common/tokenizer/spec_reader.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "common/base/utf8.h"
#include "common/tokenizer/limits.h"
#include "common/tokenizer/regex.h"

namespace foretoken {
namespace {

namespace limits = tokenizer_limits;

// Reads fields until one is wrong; after that every answer is a default and error() says what was
// wrong first.
class SpecReader {
 public:
  explicit SpecReader(RegexPolicy policy) : policy_(policy) {}

  const std::optional<Error>& error() const { return error_; }
  const std::string& untested_pattern() const { return untested_pattern_; }

  void model(const JsonCursor& model, BpeOptions& options);
  void added_tokens(const JsonCursor& list, std::vector<AddedToken>& tokens);
  void normalizer(const JsonCursor& cursor, std::vector<NormalizerStep>& steps);
  void pre_tokenizer(const JsonCursor& cursor, std::vector<SplitterStep>& steps);
  void decoder(const JsonCursor& cursor, DecoderSpec& spec);
  void post_processor(const JsonCursor& cursor, SurroundSpec& surround);

 private:
  void fail(Error error) {
    if (!error_) error_ = std::move(error);
  }
  template <class T>
  T take(Result<T> result, T fallback = {}) {
    if (result.ok()) return std::move(*result);
    fail(result.error());
    return fallback;
  }
  std::string string(const JsonCursor& cursor) { return take(cursor.string()); }
  bool flag(const JsonCursor& cursor, bool fallback) { return take(cursor.boolean_or(fallback)); }
  std::string character(const JsonCursor& cursor);
  std::string optional_string(const JsonCursor& cursor) {
    return cursor.present() ? string(cursor) : std::string();
  }
  // The type of a stage; empty, and an error, if there is none. Counts stages.
  std::string type_of(const JsonCursor& cursor);
  std::vector<JsonCursor> sequence(const JsonCursor& list);
  PatternSpec pattern(const JsonCursor& cursor);
  SplitBehavior behavior(const JsonCursor& cursor);
  PrependScheme prepend_scheme(const JsonCursor& metaspace);
  void template_processing(const JsonCursor& cursor, SurroundSpec& surround);
  void special_token_ids(const JsonCursor& entry, std::vector<TokenId>& ids);
  void unsupported(const JsonCursor& cursor, std::string_view supported, const std::string& type) {
    fail(cursor["type"].error("one of " + std::string(supported), "\"" + printable(type) + "\"",
                              ErrorCode::kUnsupportedModel));
  }

  RegexPolicy policy_;
  std::size_t n_stages_ = 0;
  std::string untested_pattern_;
  std::optional<Error> error_;
};

std::string SpecReader::character(const JsonCursor& cursor) {
  std::string text = string(cursor);
  if (text.empty() || utf8::sequence_length(static_cast<unsigned char>(text[0])) != text.size())
    fail(cursor.error("one character", "\"" + printable(text) + "\""));
  return text;
}

std::string SpecReader::type_of(const JsonCursor& cursor) {
  if (++n_stages_ > limits::kMaxStages)
    fail(cursor.error("at most " + std::to_string(limits::kMaxStages) + " stages in the file",
                      "more"));
  if (!cursor.is(JsonTree::Kind::kObject)) {
    fail(cursor.unexpected("an object with a type"));
    return {};
  }
  return string(cursor["type"]);
}

std::vector<JsonCursor> SpecReader::sequence(const JsonCursor& list) {
  if (!list.is(JsonTree::Kind::kArray)) fail(list.unexpected("an array"));
  return error_ ? std::vector<JsonCursor>() : list.elements();
}

PatternSpec SpecReader::pattern(const JsonCursor& cursor) {
  PatternSpec spec;
  if (cursor["String"].present()) {
    spec.text = string(cursor["String"]);
  } else if (cursor["Regex"].present()) {
    spec.is_regex = true;
    spec.text = string(cursor["Regex"]);
    if (!error_ && !is_tested_pattern(spec.text)) {
      if (untested_pattern_.empty()) untested_pattern_ = spec.text;
      if (policy_ == RegexPolicy::kTestedOnly)
        fail(cursor["Regex"].error(
            "a pattern of a known tokenizer (model.patterns = \"any\" permits others)",
            "\"" + printable(spec.text) + "\"", ErrorCode::kUnsupportedModel));
    }
  } else {
    fail(cursor.unexpected("{\"String\": …} or {\"Regex\": …}"));
  }
  if (spec.text.empty()) fail(cursor.error("a pattern", "an empty one"));
  return spec;
}

SplitBehavior SpecReader::behavior(const JsonCursor& cursor) {
  const std::string name = string(cursor);
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  fail(cursor.error("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous",
                    "\"" + printable(name) + "\""));
  return SplitBehavior::kIsolated;
}

// Older files say add_prefix_space: true or false.
PrependScheme SpecReader::prepend_scheme(const JsonCursor& metaspace) {
  const JsonCursor scheme = metaspace["prepend_scheme"];
  if (!scheme.present())
    return flag(metaspace["add_prefix_space"], true) ? PrependScheme::kAlways
                                                     : PrependScheme::kNever;
  const std::string name = string(scheme);
  if (name == "always") return PrependScheme::kAlways;
  if (name == "first") return PrependScheme::kFirst;
  if (name == "never") return PrependScheme::kNever;
  fail(scheme.error("always, first or never", "\"" + printable(name) + "\""));
  return PrependScheme::kAlways;
}

void SpecReader::model(const JsonCursor& model, BpeOptions& options) {
  if (!model.is(JsonTree::Kind::kObject)) return fail(model.unexpected("an object"));
  // Files of the first generation have no type; vocabulary and merges then say BPE.
  if (model["type"].present()) {
    const std::string type = string(model["type"]);
    if (!error_ && type != "BPE") return unsupported(model, "BPE", type);
  }
  if (model["unk_token"].present()) options.unk_token = string(model["unk_token"]);
  options.continuing_subword_prefix = optional_string(model["continuing_subword_prefix"]);
  options.end_of_word_suffix = optional_string(model["end_of_word_suffix"]);
  options.fuse_unk = flag(model["fuse_unk"], false);
  options.byte_fallback = flag(model["byte_fallback"], false);
  options.ignore_merges = flag(model["ignore_merges"], false);
  // Drawn at random for every word: the same text would have other ids each time.
  const JsonCursor dropout = model["dropout"];
  if (dropout.present() && !dropout.is_zero())
    fail(dropout.error("null or 0: dropout of merges is not supported", "a probability",
                       ErrorCode::kUnsupportedModel));
}

void SpecReader::added_tokens(const JsonCursor& list, std::vector<AddedToken>& tokens) {
  if (!list.present()) return;
  std::unordered_set<std::string> contents;
  std::unordered_set<TokenId> ids;
  const std::vector<JsonCursor> entries = sequence(list);
  if (entries.size() > limits::kMaxAddedTokens)
    return fail(list.error("at most " + std::to_string(limits::kMaxAddedTokens) + " tokens",
                           std::to_string(entries.size())));
  for (const JsonCursor& entry : entries) {
    if (error_) return;
    AddedToken token;
    token.id = static_cast<TokenId>(take(entry["id"].integer(0, limits::kMaxTokenId)));
    token.content = string(entry["content"]);
    token.single_word = flag(entry["single_word"], false);
    token.lstrip = flag(entry["lstrip"], false);
    token.rstrip = flag(entry["rstrip"], false);
    token.special = flag(entry["special"], false);
    token.normalized = flag(entry["normalized"], !token.special);
    if (error_) return;
    if (token.content.empty() || token.content.size() > limits::kMaxTokenBytes)
      return fail(
          entry["content"].error("1 to " + std::to_string(limits::kMaxTokenBytes) + " bytes",
                                 std::to_string(token.content.size())));
    if (!contents.insert(token.content).second)
      return fail(
          entry["content"].error("each token once", "\"" + printable(token.content) + "\" twice"));
    if (!ids.insert(token.id).second)
      return fail(entry["id"].error("an id of its own",
                                    std::to_string(token.id) + ", which another added token has"));
    tokens.push_back(std::move(token));
  }
}

void SpecReader::normalizer(const JsonCursor& cursor, std::vector<NormalizerStep>& steps) {
  if (error_ || !cursor.present()) return;
  const std::string type = type_of(cursor);
  if (error_) return;
  if (type == "Sequence") {
    for (const JsonCursor& step : sequence(cursor["normalizers"])) normalizer(step, steps);
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    steps.push_back(normalizer::UnicodeForm{type == "NFC"    ? unicode::Form::kNfc
                                            : type == "NFD"  ? unicode::Form::kNfd
                                            : type == "NFKC" ? unicode::Form::kNfkc
                                                             : unicode::Form::kNfkd});
  } else if (type == "Lowercase") {
    steps.push_back(normalizer::Lowercase{});
  } else if (type == "Strip") {
    steps.push_back(
        normalizer::Strip{flag(cursor["strip_left"], true), flag(cursor["strip_right"], true)});
  } else if (type == "Prepend") {
    steps.push_back(normalizer::Prepend{string(cursor["prepend"])});
  } else if (type == "Replace") {
    steps.push_back(normalizer::Replace{pattern(cursor["pattern"]), string(cursor["content"])});
  } else {
    unsupported(cursor, "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, Replace", type);
  }
}

void SpecReader::pre_tokenizer(const JsonCursor& cursor, std::vector<SplitterStep>& steps) {
  if (error_ || !cursor.present()) return;
  const std::string type = type_of(cursor);
  if (error_) return;
  if (type == "Sequence") {
    for (const JsonCursor& step : sequence(cursor["pretokenizers"])) pre_tokenizer(step, steps);
  } else if (type == "Split") {
    steps.push_back(splitter::Split{pattern(cursor["pattern"]), behavior(cursor["behavior"]),
                                    flag(cursor["invert"], false)});
  } else if (type == "ByteLevel") {
    steps.push_back(splitter::ByteLevel{flag(cursor["add_prefix_space"], true),
                                        flag(cursor["use_regex"], true)});
  } else if (type == "Metaspace") {
    steps.push_back(splitter::Metaspace{character(cursor["replacement"]), prepend_scheme(cursor),
                                        flag(cursor["split"], true)});
  } else if (type == "Digits") {
    steps.push_back(splitter::Digits{flag(cursor["individual_digits"], false)});
  } else if (type == "Punctuation") {
    const JsonCursor how = cursor["behavior"];
    steps.push_back(
        splitter::Punctuation{how.present() ? behavior(how) : SplitBehavior::kIsolated});
  } else if (type == "Whitespace") {
    steps.push_back(splitter::Whitespace{});
  } else if (type == "WhitespaceSplit") {
    steps.push_back(splitter::WhitespaceSplit{});
  } else {
    unsupported(
        cursor,
        "Sequence, Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit",
        type);
  }
}

void SpecReader::decoder(const JsonCursor& cursor, DecoderSpec& spec) {
  if (error_ || !cursor.present()) return;
  spec.present = true;
  const std::string type = type_of(cursor);
  if (error_) return;
  if (type == "Sequence") {
    for (const JsonCursor& step : sequence(cursor["decoders"])) decoder(step, spec);
  } else if (type == "ByteLevel") {
    spec.steps.push_back(decoder::ByteLevel{});
  } else if (type == "ByteFallback") {
    spec.steps.push_back(decoder::ByteFallback{});
  } else if (type == "Fuse") {
    spec.steps.push_back(decoder::Fuse{});
  } else if (type == "Strip") {
    constexpr std::int64_t kMost = 1 << 16;
    spec.steps.push_back(
        decoder::Strip{character(cursor["content"]),
                       static_cast<std::size_t>(take(cursor["start"].integer(0, kMost))),
                       static_cast<std::size_t>(take(cursor["stop"].integer(0, kMost)))});
  } else if (type == "Replace") {
    const PatternSpec what = pattern(cursor["pattern"]);
    if (what.is_regex)
      return fail(cursor["pattern"].error("{\"String\": …}", "a regular expression",
                                          ErrorCode::kUnsupportedModel));
    spec.steps.push_back(decoder::Replace{what.text, string(cursor["content"])});
  } else if (type == "Metaspace") {
    spec.steps.push_back(
        decoder::Metaspace{character(cursor["replacement"]), prepend_scheme(cursor)});
  } else if (type == "BPEDecoder") {
    const JsonCursor suffix = cursor["suffix"];
    spec.steps.push_back(decoder::BpeSuffix{suffix.present() ? string(suffix) : "</w>"});
  } else {
    unsupported(cursor,
                "Sequence, ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, BPEDecoder",
                type);
  }
}

void SpecReader::post_processor(const JsonCursor& cursor, SurroundSpec& surround) {
  if (error_ || !cursor.present()) return;
  const std::string type = type_of(cursor);
  if (error_) return;
  if (type == "Sequence") {
    for (const JsonCursor& step : sequence(cursor["processors"])) post_processor(step, surround);
  } else if (type == "TemplateProcessing") {
    template_processing(cursor, surround);
  } else if (type != "ByteLevel") {  // that one moves offsets, not ids
    unsupported(cursor, "Sequence, TemplateProcessing, ByteLevel", type);
  }
}

void SpecReader::special_token_ids(const JsonCursor& entry, std::vector<TokenId>& ids) {
  for (const JsonCursor& id : sequence(entry["ids"]))
    ids.push_back(static_cast<TokenId>(take(id.integer(0, limits::kMaxTokenId))));
}

// A later processor of a sequence wraps around what earlier ones made.
void SpecReader::template_processing(const JsonCursor& cursor, SurroundSpec& surround) {
  std::vector<TokenId> before, after;
  bool seen_text = false;
  const std::vector<JsonCursor> pieces = sequence(cursor["single"]);
  if (pieces.size() > limits::kMaxTemplatePieces)
    return fail(cursor["single"].error(
        "at most " + std::to_string(limits::kMaxTemplatePieces) + " pieces", "more"));
  for (const JsonCursor& piece : pieces) {
    if (error_) return;
    const JsonCursor special = piece["SpecialToken"];
    if (special.present()) {
      const std::string name = string(special["id"]);
      const JsonCursor entry = cursor["special_tokens"][name];
      if (!error_ && !entry.present())
        return fail(entry.unexpected("the ids of a token that `single` names"));
      special_token_ids(entry, seen_text ? after : before);
    } else if (piece["Sequence"].present() && !seen_text) {
      seen_text = true;
    } else {
      return fail(piece.error("special tokens around one Sequence", "something else"));
    }
  }
  if (!seen_text)
    return fail(cursor["single"].error("special tokens around one Sequence", "no Sequence"));
  surround.before.insert(surround.before.begin(), before.begin(), before.end());
  surround.after.insert(surround.after.end(), after.begin(), after.end());
}

bool may_remove_beginning(const NormalizerStep& step) {
  if (const auto* strip = std::get_if<normalizer::Strip>(&step)) return strip->left;
  const auto* replace = std::get_if<normalizer::Replace>(&step);
  if (replace == nullptr) return false;
  const std::string& what = replace->pattern.text;
  return replace->pattern.is_regex || replace->content.empty() ||
         utf8::sequence_length(static_cast<unsigned char>(what.front())) != what.size();
}

// To the reference a piece is the first if its first character stood at offset 0 before it was
// normalized. We know only where it stands afterwards: the same, unless a normalizer removes what a
// text begins with.
Result<void> check_first(const TokenizerSpec& spec, const JsonCursor& root) {
  const bool asks = std::any_of(
      spec.pre_tokenizer.begin(), spec.pre_tokenizer.end(), [](const SplitterStep& step) {
        const auto* metaspace = std::get_if<splitter::Metaspace>(&step);
        return metaspace != nullptr && metaspace->prepend == PrependScheme::kFirst;
      });
  if (!asks || std::none_of(spec.normalizer.begin(), spec.normalizer.end(), may_remove_beginning))
    return {};
  return root["pre_tokenizer"].error(
      "no prepend_scheme \"first\" behind a normalizer that may remove how a text begins (Strip, "
      "Replace)",
      "both", ErrorCode::kUnsupportedModel);
}

}  // namespace

Result<TokenizerSpec> read_spec(const JsonTree& tree, std::string_view file, RegexPolicy policy) {
  const JsonCursor root(file, &tree, "");
  SpecReader reader(policy);
  TokenizerSpec spec;
  reader.model(root["model"], spec.bpe);
  reader.added_tokens(root["added_tokens"], spec.added_tokens);
  reader.normalizer(root["normalizer"], spec.normalizer);
  reader.pre_tokenizer(root["pre_tokenizer"], spec.pre_tokenizer);
  reader.decoder(root["decoder"], spec.decoder);
  reader.post_processor(root["post_processor"], spec.surround);
  if (reader.error()) return *reader.error();
  spec.untested_pattern = reader.untested_pattern();
  if (Result<void> known = check_first(spec, root); !known.ok()) return known.error();
  return spec;
}

}  // namespace foretoken
