#include "common/tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <utility>

#include "common/base/utf8.h"
#include "common/tokenizer/decode_pipeline.h"
#include "common/tokenizer/limits.h"

namespace foretoken {

// What one call of encode carries along.
struct BpeTokenizer::Work {
  RegexScratch regex;
  BpeScratch bpe;
  Pieces pieces;
  std::vector<TokenId> ids;
};

Result<std::unique_ptr<Tokenizer>> BpeTokenizer::build(const TokenizerJson& json,
                                                       FolderText text,
                                                       std::string_view file,
                                                       const TokenizerOptions& options) {
  Result<TokenizerSpec> spec = read_spec(json.tree, file, options.patterns);
  if (!spec.ok()) return spec.error();
  if (json.vocab.empty()) return field_error(file, "model.vocab", "at least one token", "nothing");
  std::unique_ptr<BpeTokenizer> made(new BpeTokenizer(json.vocab, std::move(*spec)));
  Result<Bpe> bpe = Bpe::build(made->vocabulary_, json.merges, made->spec_.bpe, file);
  if (!bpe.ok()) return bpe.error();
  made->bpe_.push_back(std::move(*bpe));
  Result<Normalizer> normalizer = Normalizer::build(made->spec_.normalizer, options.jit);
  if (!normalizer.ok()) return normalizer.error();
  made->normalizer_ = std::move(*normalizer);
  Result<PreTokenizer> pre_tokenizer = PreTokenizer::build(made->spec_.pre_tokenizer, options.jit);
  if (!pre_tokenizer.ok()) return pre_tokenizer.error();
  made->pre_tokenizer_ = std::move(*pre_tokenizer);

  if (Result<void> done = made->number_tokens(file); !done.ok()) return done.error();
  if (Result<void> done = made->match_added_tokens(file); !done.ok()) return done.error();
  if (Result<void> done = made->find_ends(text); !done.ok()) return done.error();
  if (Result<void> done = made->surround(text, file); !done.ok()) return done.error();
  made->untested_pattern_ = made->spec_.untested_pattern;
  made->chat_template_ = std::move(text.chat_template);
  made->tool_template_ = std::move(text.tool_template);
  made->name_tokens(std::move(text.other_tokens));
  made->compute_vocabulary_fingerprint();
  made->compute_text_fingerprint(json.canonical_hash, made->spec_.surround);
  return std::unique_ptr<Tokenizer>(std::move(made));
}

// Fills tokens_: the vocabulary's own, then added tokens, which may confirm an entry or extend the
// vocabulary.
Result<void> BpeTokenizer::number_tokens(std::string_view file) {
  TokenId largest = 0;
  for (const auto& [text, id] : vocabulary_.entries()) largest = std::max(largest, id);
  for (const AddedToken& token : spec_.added_tokens) largest = std::max(largest, token.id);
  tokens_.resize(static_cast<std::size_t>(largest) + 1);
  for (const auto& [text, id] : vocabulary_.entries()) {
    Token& token = tokens_[static_cast<std::size_t>(id)];
    token.text = text;
    token.exists = true;
  }
  for (std::size_t i = 0; i < spec_.added_tokens.size(); ++i) {
    const AddedToken& added = spec_.added_tokens[i];
    const std::string path = "added_tokens[" + std::to_string(i) + "].id";
    const TokenId known = vocabulary_.find(added.content);
    if (known != Vocabulary::kNone && known != added.id)
      return field_error(
          file, path,
          "the id of \"" + printable(added.content) + "\" in model.vocab, " + std::to_string(known),
          std::to_string(added.id));
    Token& token = tokens_[static_cast<std::size_t>(added.id)];
    if (token.exists && token.text != added.content)
      return field_error(
          file, path, "an id of its own for \"" + printable(added.content) + "\"",
          std::to_string(added.id) + ", which \"" + printable(token.text) + "\" has");
    token.text = added.content;
    token.exists = token.added = true;
    token.special = added.special;
    added_ids_.emplace(added.content, added.id);
  }
  return {};
}

// Special tokens go first: of two that match the same text, the first added wins. A token that is
// matched in normalized text is also decoded as that.
Result<void> BpeTokenizer::match_added_tokens(std::string_view file) {
  RegexScratch scratch;
  for (const bool special : {true, false}) {
    for (std::size_t i = 0; i < spec_.added_tokens.size(); ++i) {
      const AddedToken& token = spec_.added_tokens[i];
      if (token.special != special) continue;
      if (!token.normalized) {
        raw_matcher_.add(token, token.content);
        continue;
      }
      Result<std::string> text = normalizer_.apply(token.content, scratch);
      if (!text.ok()) return text.error();
      // To the reference such a token lies between any two bytes: it cuts every text there, or
      // fails within a character.
      if (text->empty())
        return field_error(file, "added_tokens[" + std::to_string(i) + "].content",
                           "a text of which the normalizer leaves something",
                           "\"" + printable(token.content) + "\"", ErrorCode::kUnsupportedModel);
      normalized_matcher_.add(token, *text);
      if (*text != token.content) tokens_[static_cast<std::size_t>(token.id)].decoded_as = *text;
    }
  }
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    if (!tokens_[id].exists) continue;
    const std::string_view input = decoder_input(static_cast<TokenId>(id));
    tokens_[id].bytes = token_bytes_under(spec_.decoder, input);
    // The reference compares what it decodes with the contents of special tokens; normalizing can
    // make them differ.
    const auto same = added_ids_.find(std::string(input));
    tokens_[id].skipped =
        same != added_ids_.end() && tokens_[static_cast<std::size_t>(same->second)].special;
  }
  return {};
}

Result<void> BpeTokenizer::surround(const FolderText& text, std::string_view file) {
  SurroundSpec& spec = spec_.surround;
  const auto add = [](std::optional<TokenId> id, std::vector<TokenId>& ids) {
    if (id) ids.push_back(*id);
  };
  // The post-processor decides, as in Transformers 5, which drops both keys beside a
  // tokenizer.json. Where it adds nothing they count, as in the Llama class of Transformers 4.
  if (spec.before.empty() && spec.after.empty()) {
    if (text.add_bos.value_or(false)) add(bos_id_, spec.before);
    if (text.add_eos.value_or(false)) add(eos_token_id_, spec.after);
  }
  for (const std::vector<TokenId>* ids : {&spec.before, &spec.after})
    for (const TokenId id : *ids)
      if (!is_token(id))
        return field_error(file, "post_processor.special_tokens", "ids of tokens",
                           std::to_string(id));
  return {};
}

Result<void> BpeTokenizer::find_ends(const FolderText& text) {
  const auto find = [this](std::string_view name, const std::string& token,
                           std::optional<TokenId>& id) -> Result<void> {
    if (token.empty()) return {};
    id = token_to_id(token);
    if (!id)
      return field_error("tokenizer_config.json", name, "a token of the vocabulary",
                         "\"" + printable(token) + "\"");
    return {};
  };
  if (Result<void> found = find("bos_token", text.bos_token, bos_id_); !found.ok()) return found;
  if (Result<void> found = find("eos_token", text.eos_token, eos_token_id_); !found.ok())
    return found;
  return set_eos(text.eos_ids, text.eos_file);
}

std::optional<TokenId> BpeTokenizer::token_to_id(std::string_view text) const {
  if (const auto added = added_ids_.find(std::string(text)); added != added_ids_.end())
    return added->second;
  const TokenId id = vocabulary_.find(text);
  return id == Vocabulary::kNone ? std::nullopt : std::optional(id);
}

std::unique_ptr<DecodePipeline> BpeTokenizer::make_decode_pipeline(TextBefore before) const {
  return std::make_unique<DecodePipeline>(spec_.decoder, before);
}

Result<void> BpeTokenizer::encode_text(std::string_view text, bool starts_text, Work& work) const {
  work.pieces.buffer.assign(text);
  work.pieces.ranges.assign(1, {0, text.size(), starts_text});
  if (Result<void> done = pre_tokenizer_.apply(work.pieces, work.regex); !done.ok()) return done;
  for (const Pieces::Range& range : work.pieces.ranges)
    bpe_.front().encode(work.pieces.text(range), work.bpe, work.ids);
  return {};
}

Result<void> BpeTokenizer::encode_into(std::string_view text, Work& work) const {
  std::vector<AddedTokenMatcher::Segment> outer, inner;
  raw_matcher_.split(text, outer);
  for (const auto& segment : outer) {
    if (segment.token) {
      work.ids.push_back(*segment.token);
      continue;
    }
    Result<std::string> normalized =
        normalizer_.apply(text.substr(segment.begin, segment.end - segment.begin), work.regex);
    if (!normalized.ok()) return normalized.error();
    inner.clear();
    normalized_matcher_.split(*normalized, inner);
    for (const auto& part : inner) {
      if (part.token) {
        work.ids.push_back(*part.token);
        continue;
      }
      const bool starts_text = segment.begin == 0 && part.begin == 0;
      const std::string_view piece =
          std::string_view(*normalized).substr(part.begin, part.end - part.begin);
      if (Result<void> done = encode_text(piece, starts_text, work); !done.ok()) return done;
    }
  }
  return {};
}

Result<std::vector<TokenId>> BpeTokenizer::encode(std::string_view text,
                                                  AddSpecialTokens add) const {
  if (Result<void> fit = check_text(text); !fit.ok()) return fit.error();
  Work work;
  const bool special = add == AddSpecialTokens::kYes;
  if (special) work.ids = spec_.surround.before;
  if (Result<void> done = encode_into(text, work); !done.ok()) return done.error();
  if (special)
    work.ids.insert(work.ids.end(), spec_.surround.after.begin(), spec_.surround.after.end());
  return std::move(work.ids);
}

}  // namespace foretoken
