#include "common/tokenizer/tokenizer.h"

#include <algorithm>
#include <iterator>
#include <new>

#include "common/base/utf8.h"
#include "common/tokenizer/bpe_tokenizer.h"
#include "common/tokenizer/decode_pipeline.h"
#include "common/tokenizer/folder.h"
#include "common/tokenizer/hash.h"
#include "common/tokenizer/limits.h"
#include "common/tokenizer/sentencepiece.h"
#include "common/tokenizer/spec.h"
#include "common/tokenizer/tokenizer_json.h"

namespace foretoken {
namespace {

Result<std::unique_ptr<Tokenizer>> load_folder(const std::filesystem::path& folder,
                                               const TokenizerOptions& options) {
  Result<FolderText> text = read_folder_text(folder);
  if (!text.ok()) return text.error();
  constexpr std::string_view kFile = "tokenizer.json";
  Result<TokenizerJson> json = read_tokenizer_json(folder / kFile);
  if (!json.ok()) {
    std::error_code status;
    const bool older = json.error().code == ErrorCode::kNotFound &&
                       std::filesystem::exists(folder / "tokenizer.model", status);
    if (older) return load_sentencepiece(folder, std::move(*text));
    if (json.error().code == ErrorCode::kNotFound)
      return Error{ErrorCode::kNotFound, "no tokenizer.json and no tokenizer.model"};
    return json.error();
  }
  return BpeTokenizer::build(*json, std::move(*text), kFile, options);
}

Error too_large_for_memory(const std::filesystem::path& folder) {
  std::error_code status;
  std::filesystem::path file = folder / "tokenizer.json";
  if (!std::filesystem::exists(file, status)) file = folder / "tokenizer.model";
  const std::uintmax_t size = std::filesystem::file_size(file, status);
  return Error{ErrorCode::kOutOfMemory,
               "tokenizer: " + file.string() + " has " +
                   (status ? "an unknown number of" : std::to_string(size)) +
                   " bytes, and reading it takes more memory than this process may have (ulimit "
                   "-v, or the machine's)"};
}

}  // namespace

RegexPolicy regex_policy_from_name(std::string_view name) {
  return name == "any" ? RegexPolicy::kAny : RegexPolicy::kTestedOnly;
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::filesystem::path& folder,
                                                   const TokenizerOptions& options) {
  std::error_code status;
  const bool is_folder = std::filesystem::is_directory(folder, status);
  if (status && status != std::errc::no_such_file_or_directory &&
      status != std::errc::not_a_directory)
    return Error{ErrorCode::kIo,
                 "tokenizer: " + folder.string() + ": cannot be read: " + status.message()};
  if (!is_folder)
    return Error{ErrorCode::kNotFound, "tokenizer: " + folder.string() + " is not a folder"};
  Error error;
  try {
    auto loaded = load_folder(folder, options);
    if (loaded.ok()) return loaded;
    error = std::move(loaded).error();
  } catch (const std::bad_alloc&) {  // what was read is given back by now
    return too_large_for_memory(folder);
  }
  // Draft and target have files of the same names.
  if (error.message.find(folder.string()) == std::string::npos)
    error.message += ", in " + folder.string();
  return error;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, SkipSpecialTokens skip) const {
  const std::unique_ptr<DecodePipeline> pipeline = make_decode_pipeline(TextBefore::kNo);
  std::string text;
  for (const TokenId id : ids) {
    if (!is_token(id) || (skip == SkipSpecialTokens::kYes && is_skipped(id))) continue;
    pipeline->push(decoder_input(id), text);
  }
  pipeline->finish(text);
  return text;
}

bool Tokenizer::is_token(TokenId id) const {
  return id >= 0 && static_cast<std::size_t>(id) < tokens_.size() &&
         tokens_[static_cast<std::size_t>(id)].exists;
}

std::string_view Tokenizer::token_text(TokenId id) const {
  return is_token(id) ? std::string_view(tokens_[static_cast<std::size_t>(id)].text)
                      : std::string_view();
}

std::string_view Tokenizer::decoder_input(TokenId id) const {
  const Token& token = tokens_[static_cast<std::size_t>(id)];
  return token.decoded_as.empty() ? token.text : token.decoded_as;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  return is_token(id) ? std::string_view(tokens_[static_cast<std::size_t>(id)].bytes)
                      : std::string_view();
}

bool Tokenizer::is_skipped(TokenId id) const {
  return is_token(id) && tokens_[static_cast<std::size_t>(id)].skipped;
}

std::string_view Tokenizer::bos_token() const {
  return bos_id_ ? token_text(*bos_id_) : std::string_view();
}

std::string_view Tokenizer::eos_token() const {
  return eos_token_id_ ? token_text(*eos_token_id_) : std::string_view();
}

Result<void> Tokenizer::check_text(std::string_view text) {
  namespace limits = tokenizer_limits;
  if (text.size() > limits::kMaxTextBytes)
    return Error{ErrorCode::kInvalidValue, "the text has " + std::to_string(text.size()) +
                                               " bytes; the limit is " +
                                               std::to_string(limits::kMaxTextBytes)};
  if (const auto at = utf8::first_invalid(text))
    return Error{ErrorCode::kInvalidValue,
                 "the text is not valid UTF-8 at byte " + std::to_string(*at)};
  return {};
}

Result<void> Tokenizer::set_eos(std::span<const std::int64_t> ids, std::string_view where) {
  for (const std::int64_t wide : ids) {
    const auto id = static_cast<TokenId>(wide);
    if (!is_token(id))
      return Error{ErrorCode::kMalformed, std::string(where) + ": expected ids of tokens, found " +
                                              std::to_string(id) +
                                              ", which the tokenizer does not have"};
    eos_ids_.push_back(id);
  }
  if (ids.empty() && eos_token_id_) eos_ids_.push_back(*eos_token_id_);
  std::sort(eos_ids_.begin(), eos_ids_.end());
  eos_ids_.erase(std::unique(eos_ids_.begin(), eos_ids_.end()), eos_ids_.end());
  return {};
}

void Tokenizer::name_tokens(NamedTokens others) {
  if (bos_id_) named_tokens_.emplace_back("bos_token", bos_token());
  if (eos_token_id_) named_tokens_.emplace_back("eos_token", eos_token());
  std::ranges::move(others, std::back_inserter(named_tokens_));
}

void Tokenizer::compute_vocabulary_fingerprint() {
  StableHash hash;
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    const Token& token = tokens_[id];
    if (!token.exists) continue;
    hash.add(std::uint64_t{id})
        .add(token.bytes)
        .add(std::uint64_t{token.special} * 2 + std::uint64_t{token.added});
  }
  for (const TokenId id : eos_ids_) hash.add(static_cast<std::uint64_t>(id));
  vocabulary_fingerprint_ = hash.value();
}

void Tokenizer::compute_text_fingerprint(std::uint64_t of_files, const SurroundSpec& surround) {
  StableHash hash;
  hash.add(of_files);
  for (const auto* source : {&chat_template_, &tool_template_})
    hash.add(std::uint64_t{source->has_value()}).add(source->value_or(""));
  // A token that no template writes changes no prompt.
  for (const auto& [name, text] : named_tokens_)
    if (chat_template_.value_or("").find(name) != std::string::npos ||
        tool_template_.value_or("").find(name) != std::string::npos)
      hash.add(name).add(text);
  for (const std::vector<TokenId>* ids : {&surround.before, &surround.after}) {
    hash.add(std::uint64_t{ids->size()});
    for (const TokenId id : *ids) hash.add(static_cast<std::uint64_t>(id));
  }
  text_fingerprint_ = hash.value();
}

}  // namespace foretoken
