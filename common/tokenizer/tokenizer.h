// Text to token ids and back, exactly as Hugging Face's `tokenizers` does it, read from a model
// folder: tokenizer.json, or tokenizer.model when there is none, with the small files beside it.
// Must not know models, requests or sockets. A Tokenizer never changes after load(); every const
// call is safe from any number of threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"

namespace foretoken {

enum class AddSpecialTokens { kNo, kYes };   // what the post-processor puts around a text, e.g. BOS
enum class SkipSpecialTokens { kNo, kYes };  // whether tokens marked special leave text behind

enum class RegexPolicy { kTestedOnly, kAny };  // patterns we have tested, or whatever compiles
// "tested", "any", as model.patterns has it; any other word is the first.
RegexPolicy regex_policy_from_name(std::string_view name);
enum class RegexJit { kWherePossible, kOff };

struct TokenizerOptions {
  RegexPolicy patterns = RegexPolicy::kTestedOnly;
  RegexJit jit = RegexJit::kWherePossible;
};

class DecodePipeline;
struct SurroundSpec;
enum class TextBefore;

class Tokenizer {
 public:
  using NamedTokens = std::vector<std::pair<std::string, std::string>>;

  virtual ~Tokenizer() = default;

  // Every refusal names file, field, what was expected and what was found.
  static Result<std::unique_ptr<Tokenizer>> load(const std::filesystem::path& folder,
                                                 const TokenizerOptions& options = {});

  // Refused: text that is not UTF-8 (the error says at which byte) and text beyond limits.h. Work
  // grows as n log n.
  virtual Result<std::vector<TokenId>> encode(std::string_view text,
                                              AddSpecialTokens add) const = 0;

  // Ids that name no token leave nothing behind. Always valid UTF-8. For text as it comes:
  // stream_decoder.h.
  std::string decode(std::span<const TokenId> ids, SkipSpecialTokens skip) const;
  virtual std::unique_ptr<DecodePipeline> make_decode_pipeline(TextBefore before) const = 0;

  std::size_t vocab_size() const {
    return tokens_.size();
  }                                               // largest id + 1, added tokens included
  std::string_view token_text(TokenId id) const;  // as written in the file; empty for padding ids
  std::string_view decoder_input(
      TokenId id) const;  // what a decode pipeline takes; id must be a token
  std::string_view token_bytes(TokenId id) const;  // what the token adds to the text, as raw bytes
  bool is_token(TokenId id) const;                 // false for ids outside and for padding ids
  bool is_skipped(TokenId id)
      const;  // leaves no text under SkipSpecialTokens::kYes: special, in all but odd cases
  virtual std::optional<TokenId> token_to_id(std::string_view text) const = 0;

  std::span<const TokenId> eos_ids() const { return eos_ids_; }  // ascending
  std::optional<TokenId> bos_id() const { return bos_id_; }

  // The first pattern of the file that we have not compared with the reference; empty: there is
  // none.
  const std::string& untested_pattern() const { return untested_pattern_; }

  // Equal exactly when ids mean the same: token bytes, added tokens, special ids, EOS set; padding
  // ids left out.
  Fingerprint vocabulary_fingerprint() const { return vocabulary_fingerprint_; }
  // Equal exactly when the same text and the same messages become the same ids: tokenizer file,
  // chat templates, the named tokens in them and what is put around a text.
  Fingerprint text_fingerprint() const { return text_fingerprint_; }

  const std::optional<std::string>& chat_template() const { return chat_template_; }
  // The one for requests with tools; none: that for all.
  const std::optional<std::string>& tool_template() const { return tool_template_; }
  std::string_view bos_token() const;  // empty if there is none
  std::string_view eos_token() const;  // as tokenizer_config.json names it
  // Names and texts as chat templates get them: {"bos_token", "<s>"}, {"pad_token", "<pad>"}, …
  // As in Transformers a name that the folder has no token for is not among them.
  const NamedTokens& named_tokens() const { return named_tokens_; }

 protected:
  struct Token {
    std::string text;
    std::string bytes;
    std::string decoded_as;  // what the decoder sees, where that is not `text`
    bool exists = false;
    bool special = false;
    bool skipped = false;
    bool added = false;
  };
  Tokenizer() = default;
  static Result<void> check_text(std::string_view text);  // size and UTF-8
  // Uses `ids`, which `where` names, or else the eos token itself. tokens_ must be complete.
  Result<void> set_eos(std::span<const std::int64_t> ids, std::string_view where);
  void name_tokens(NamedTokens others);  // beside BOS and EOS, which must be found by then
  void compute_vocabulary_fingerprint();
  // `of_files`: the hash of what turns text into ids. Templates and named tokens must be set.
  void compute_text_fingerprint(std::uint64_t of_files, const SurroundSpec& surround);

  std::vector<Token> tokens_;  // [vocab_size]
  std::vector<TokenId> eos_ids_;
  std::optional<TokenId> bos_id_;
  std::optional<TokenId> eos_token_id_;
  std::optional<std::string> chat_template_;
  std::optional<std::string> tool_template_;
  NamedTokens named_tokens_;
  std::string untested_pattern_;
  Fingerprint vocabulary_fingerprint_ = 0;
  Fingerprint text_fingerprint_ = 0;
};

}  // namespace foretoken
