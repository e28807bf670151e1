// Byte-pair encoding of one piece of text: the merge of lowest rank first, leftmost on a tie, in
// O(n log n). Pieces are cut where no merge can ever join, so that long ones stay cheap without
// changing a token; only a piece that offers no such place for 64 KiB is cut by force. Blind to
// normalization, splitting and special tokens. Immutable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"

namespace foretoken {

// Token text -> id. Texts live in one array and are found without a copy.
class Vocabulary {
 public:
  explicit Vocabulary(const std::vector<std::pair<std::string, TokenId>>& entries);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  static constexpr TokenId kNone = -1;
  TokenId find(std::string_view text) const {
    const auto it = ids_.find(text);
    return it == ids_.end() ? kNone : it->second;
  }
  std::size_t size() const { return ids_.size(); }
  const std::unordered_map<std::string_view, TokenId>& entries() const { return ids_; }

 private:
  std::string texts_;
  std::unordered_map<std::string_view, TokenId> ids_;
};

struct BpeOptions {
  std::optional<std::string> unk_token = {};
  std::string continuing_subword_prefix = {};
  std::string end_of_word_suffix = {};
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
};

// Memory that encode() reuses between pieces, and a count of what it did. One per thread.
struct BpeScratch {
  struct Symbol {
    TokenId id;
    std::int32_t previous;
    std::int32_t next;
    std::uint32_t length;  // bytes; 0 once merged away
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t position;
    TokenId merged;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::uint64_t n_operations = 0;  // symbols made, table look-ups, heap steps
};

class Bpe {
 public:
  // `vocabulary` must outlive the result. Refused: a merge of tokens, or into a token, that the
  // vocabulary lacks.
  static Result<Bpe> build(const Vocabulary& vocabulary,
                           const std::vector<std::pair<std::string, std::string>>& merges,
                           BpeOptions options,
                           std::string_view file);

  // Appends the ids of one piece of valid UTF-8. What has neither token, byte fallback nor
  // unk_token leaves nothing.
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const;

 private:
  struct Merge {
    std::uint64_t pair = kEmpty;
    std::uint32_t rank = 0;
    TokenId merged = Vocabulary::kNone;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};

  Bpe(const Vocabulary& vocabulary, BpeOptions options)
      : vocabulary_(&vocabulary), options_(std::move(options)) {}
  void index_characters();
  void add_merge(TokenId left, TokenId right, std::uint32_t rank, TokenId merged);
  const Merge* find_merge(TokenId left, TokenId right) const;
  TokenId character_id(std::string_view character, char32_t code_point) const;
  bool may_join(char32_t left, char32_t right) const;
  std::size_t cut(std::string_view piece, std::size_t begin, BpeScratch& scratch) const;
  void encode_bounded(std::string_view piece,
                      bool first,
                      bool last,
                      BpeScratch& scratch,
                      std::vector<TokenId>& out) const;
  void make_symbols(std::string_view piece, bool first, bool last, BpeScratch& scratch) const;
  bool add_byte_tokens(std::string_view character, BpeScratch& scratch) const;
  void merge_few(BpeScratch& scratch) const;
  void merge_many(BpeScratch& scratch) const;

  const Vocabulary* vocabulary_;
  BpeOptions options_;
  TokenId unk_id_ = Vocabulary::kNone;
  std::vector<TokenId> low_characters_;  // id of each code point below the table's size
  TokenId byte_ids_[256];                // of <0x00> … <0xFF>, for byte fallback
  std::vector<Merge> merges_;            // open addressing, a power of two
  // (last character of a left side, first of its right side).
  std::unordered_set<std::uint64_t> junctions_;
};

}  // namespace foretoken
