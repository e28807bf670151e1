// The tokenizer of a folder with a tokenizer.json: added tokens, normalizer, splitter, BPE and
// post-processor in the order of the reference. Built by Tokenizer::load; no other code needs the
// type, tests excepted.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/tokenizer/added_tokens.h"
#include "common/tokenizer/bpe.h"
#include "common/tokenizer/folder.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/spec_reader.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/tokenizer_json.h"

namespace foretoken {

class BpeTokenizer final : public Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> build(const TokenizerJson& json,
                                                  FolderText text,
                                                  std::string_view file,
                                                  const TokenizerOptions& options);

  Result<std::vector<TokenId>> encode(std::string_view text, AddSpecialTokens add) const override;
  std::unique_ptr<DecodePipeline> make_decode_pipeline(TextBefore before) const override;
  std::optional<TokenId> token_to_id(std::string_view text) const override;

 private:
  BpeTokenizer(const std::vector<std::pair<std::string, TokenId>>& vocab, TokenizerSpec spec)
      : vocabulary_(vocab), spec_(std::move(spec)) {}
  Result<void> number_tokens(std::string_view file);
  Result<void> match_added_tokens(std::string_view file);
  Result<void> surround(const FolderText& text, std::string_view file);
  Result<void> find_ends(const FolderText& text);
  struct Work;
  Result<void> encode_text(std::string_view text, bool starts_text, Work& work) const;
  Result<void> encode_into(std::string_view text, Work& work) const;

  Vocabulary vocabulary_;
  TokenizerSpec spec_;
  std::vector<Bpe> bpe_;  // exactly one once built
  std::unordered_map<std::string, TokenId> added_ids_;
  AddedTokenMatcher raw_matcher_;         // over the text as given
  AddedTokenMatcher normalized_matcher_;  // over normalized text
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
};

}  // namespace foretoken
