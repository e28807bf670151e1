#include "common/tokenizer/bpe.h"

#include <algorithm>
#include <array>

#include "common/base/utf8.h"
#include "common/tokenizer/hash.h"
#include "common/tokenizer/json_tree.h"
#include "common/tokenizer/limits.h"

namespace foretoken {
namespace {

// Covers the byte alphabet and most alphabetic scripts.
constexpr std::size_t kLowCharacters = 0x3000;
constexpr std::size_t kLongPiece = 1024;  // above this, looking for places to cut pays
constexpr std::size_t kFewSymbols = 24;   // below this, scanning beats a heap

constexpr std::uint64_t pair_key(TokenId left, TokenId right) {
  return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) |
         static_cast<std::uint32_t>(right);
}

constexpr std::uint64_t junction_key(char32_t left, char32_t right) {
  return (std::uint64_t{left} << 32) | right;
}

std::string byte_token(unsigned byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + '>';
}

// Lowest rank on top, leftmost first among equals.
constexpr auto kLater = [](const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
};

}  // namespace

Vocabulary::Vocabulary(const std::vector<std::pair<std::string, TokenId>>& entries) {
  std::size_t n_bytes = 0;
  for (const auto& entry : entries) n_bytes += entry.first.size();
  texts_.reserve(n_bytes);  // never grows again: the map's keys point into it
  ids_.reserve(entries.size());
  for (const auto& [text, id] : entries) {
    const std::size_t begin = texts_.size();
    texts_.append(text);
    ids_.emplace(std::string_view(texts_).substr(begin), id);
  }
}

Result<Bpe> Bpe::build(const Vocabulary& vocabulary,
                       const std::vector<std::pair<std::string, std::string>>& merges,
                       BpeOptions options,
                       std::string_view file) {
  Bpe bpe(vocabulary, std::move(options));
  if (bpe.options_.unk_token) {
    bpe.unk_id_ = vocabulary.find(*bpe.options_.unk_token);
    if (bpe.unk_id_ == Vocabulary::kNone)
      return field_error(file, "model.unk_token", "a token of the vocabulary",
                         "\"" + printable(*bpe.options_.unk_token) + "\"");
  }
  bpe.index_characters();
  std::size_t capacity = 16;
  while (capacity < merges.size() * 2) capacity *= 2;
  bpe.merges_.resize(capacity);
  const std::size_t prefix = bpe.options_.continuing_subword_prefix.size();
  std::string joined;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const auto refuse = [&](std::string_view token) {
      return field_error(file, "model.merges[" + std::to_string(rank) + "]",
                         "tokens of the vocabulary",
                         "\"" + printable(token) + "\", which is not there");
    };
    const TokenId left_id = vocabulary.find(left);
    if (left_id == Vocabulary::kNone) return refuse(left);
    const TokenId right_id = vocabulary.find(right);
    if (right_id == Vocabulary::kNone || right.size() < prefix) return refuse(right);
    joined.assign(left).append(right, prefix);
    const TokenId merged = vocabulary.find(joined);
    if (merged == Vocabulary::kNone) return refuse(joined);
    bpe.add_merge(left_id, right_id, static_cast<std::uint32_t>(rank), merged);
    bpe.junctions_.insert(junction_key(utf8::code_point_before(left, left.size()).value,
                                       utf8::code_point_at(right, 0).value));
  }
  return bpe;
}

void Bpe::index_characters() {
  low_characters_.assign(kLowCharacters, Vocabulary::kNone);
  std::string character;
  for (char32_t code_point = 0; code_point < kLowCharacters; ++code_point) {
    character.clear();
    utf8::append(character, code_point);
    low_characters_[code_point] = vocabulary_->find(character);
  }
  for (unsigned byte = 0; byte < 256; ++byte) byte_ids_[byte] = vocabulary_->find(byte_token(byte));
}

void Bpe::add_merge(TokenId left, TokenId right, std::uint32_t rank, TokenId merged) {
  const std::uint64_t key = pair_key(left, right);
  std::size_t slot = mix64(key) & (merges_.size() - 1);
  while (merges_[slot].pair != kEmpty && merges_[slot].pair != key)
    slot = (slot + 1) & (merges_.size() - 1);
  merges_[slot] = {key, rank,
                   merged};  // a pair listed twice: the later rank counts, as in the reference
}

const Bpe::Merge* Bpe::find_merge(TokenId left, TokenId right) const {
  const std::uint64_t key = pair_key(left, right);
  std::size_t slot = mix64(key) & (merges_.size() - 1);
  while (merges_[slot].pair != kEmpty) {
    if (merges_[slot].pair == key) return &merges_[slot];
    slot = (slot + 1) & (merges_.size() - 1);
  }
  return nullptr;
}

TokenId Bpe::character_id(std::string_view character, char32_t code_point) const {
  return code_point < kLowCharacters ? low_characters_[code_point] : vocabulary_->find(character);
}

bool Bpe::may_join(char32_t left, char32_t right) const {
  return junctions_.contains(junction_key(left, right));
}

// Where the part that starts at `begin` may end: at a place between two characters that no merge
// bridges. Characters outside the vocabulary become unknown or byte tokens, whose merging this does
// not judge: no cut beside them.
std::size_t Bpe::cut(std::string_view piece, std::size_t begin, BpeScratch& scratch) const {
  const bool plain =
      options_.continuing_subword_prefix.empty() && options_.end_of_word_suffix.empty();
  utf8::CodePoint left = utf8::code_point_at(piece, begin);
  bool left_known = character_id(piece.substr(begin, left.length), left.value) != Vocabulary::kNone;
  std::size_t at = begin + left.length;
  while (at < piece.size()) {
    const utf8::CodePoint right = utf8::code_point_at(piece, at);
    const bool right_known =
        character_id(piece.substr(at, right.length), right.value) != Vocabulary::kNone;
    ++scratch.n_operations;
    if (plain && left_known && right_known && !may_join(left.value, right.value)) return at;
    if (at + right.length - begin > tokenizer_limits::kMaxPieceBytes) return at;
    left = right;
    left_known = right_known;
    at += right.length;
  }
  return piece.size();
}

void Bpe::encode(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const {
  if (piece.empty()) return;
  if (options_.ignore_merges && piece.size() <= tokenizer_limits::kMaxTokenBytes) {
    const TokenId whole = vocabulary_->find(piece);
    if (whole != Vocabulary::kNone) {
      out.push_back(whole);
      return;
    }
  }
  std::size_t begin = 0;
  while (begin < piece.size()) {
    const std::size_t end = piece.size() > kLongPiece ? cut(piece, begin, scratch) : piece.size();
    encode_bounded(piece.substr(begin, end - begin), begin == 0, end == piece.size(), scratch, out);
    begin = end;
  }
}

void Bpe::encode_bounded(std::string_view piece,
                         bool first,
                         bool last,
                         BpeScratch& scratch,
                         std::vector<TokenId>& out) const {
  make_symbols(piece, first, last, scratch);
  scratch.n_operations += scratch.symbols.size();
  if (scratch.symbols.size() <= kFewSymbols)
    merge_few(scratch);
  else
    merge_many(scratch);
  for (const auto& symbol : scratch.symbols)
    if (symbol.length != 0) out.push_back(symbol.id);
}

bool Bpe::add_byte_tokens(std::string_view character, BpeScratch& scratch) const {
  for (const char c : character)
    if (byte_ids_[static_cast<unsigned char>(c)] == Vocabulary::kNone) return false;
  for (const char c : character)
    scratch.symbols.push_back({byte_ids_[static_cast<unsigned char>(c)], 0, 0, 1});
  return true;
}

// One symbol for each character, or for each of its bytes, or for one or several unknown ones. A
// pending unknown waits for the next known character even if byte tokens come between: the
// reference's order, kept for equality.
void Bpe::make_symbols(std::string_view piece, bool first, bool last, BpeScratch& scratch) const {
  scratch.symbols.clear();
  std::uint32_t unknown_length = 0;
  const auto flush_unknown = [&] {
    if (unknown_length > 0) scratch.symbols.push_back({unk_id_, 0, 0, unknown_length});
    unknown_length = 0;
  };
  const bool plain =
      options_.continuing_subword_prefix.empty() && options_.end_of_word_suffix.empty();
  std::string decorated;
  for (std::size_t at = 0; at < piece.size();) {
    const utf8::CodePoint character = utf8::code_point_at(piece, at);
    std::string_view text = piece.substr(at, character.length);
    TokenId id;
    if (plain) {
      id = character_id(text, character.value);
    } else {
      decorated.clear();
      if (!(first && at == 0)) decorated.append(options_.continuing_subword_prefix);
      decorated.append(text);
      if (last && at + character.length == piece.size())
        decorated.append(options_.end_of_word_suffix);
      text = decorated;
      id = vocabulary_->find(text);
    }
    at += character.length;
    const auto length = static_cast<std::uint32_t>(character.length);
    if (id != Vocabulary::kNone) {
      flush_unknown();
      scratch.symbols.push_back({id, 0, 0, length});
    } else if (options_.byte_fallback && add_byte_tokens(text, scratch)) {
      continue;
    } else if (unk_id_ != Vocabulary::kNone) {
      if (!options_.fuse_unk) flush_unknown();
      unknown_length += length;
    }
  }
  flush_unknown();
}

// The textbook loop; for the short words that most pieces are.
void Bpe::merge_few(BpeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  while (symbols.size() > 1) {
    const Merge* best = nullptr;
    std::size_t best_at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merge* merge = find_merge(symbols[i].id, symbols[i + 1].id);
      ++scratch.n_operations;
      if (merge != nullptr && (best == nullptr || merge->rank < best->rank)) {
        best = merge;
        best_at = i;
      }
    }
    if (best == nullptr) return;
    symbols[best_at].id = best->merged;
    symbols[best_at].length += symbols[best_at + 1].length;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

// Linked symbols and a heap of candidates. Candidates are not removed when a neighbour changes; one
// that no longer describes its pair is dropped when it surfaces.
void Bpe::merge_many(BpeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  heap.clear();
  const auto n = static_cast<std::int32_t>(symbols.size());
  const auto at = [&symbols](std::int32_t i) -> BpeScratch::Symbol& {
    return symbols[static_cast<std::size_t>(i)];
  };
  for (std::int32_t i = 0; i < n; ++i) {
    at(i).previous = i - 1;
    at(i).next = i + 1 < n ? i + 1 : -1;
    if (i + 1 == n) break;
    ++scratch.n_operations;
    if (const Merge* merge = find_merge(at(i).id, at(i + 1).id))
      heap.push_back({merge->rank, i, merge->merged});
  }
  std::make_heap(heap.begin(), heap.end(), kLater);
  const auto push = [&](std::int32_t left, std::int32_t right) {
    ++scratch.n_operations;
    const Merge* merge = find_merge(at(left).id, at(right).id);
    if (merge == nullptr) return;
    heap.push_back({merge->rank, left, merge->merged});
    std::push_heap(heap.begin(), heap.end(), kLater);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), kLater);
    const BpeScratch::Candidate top = heap.back();
    heap.pop_back();
    ++scratch.n_operations;
    auto& left = at(top.position);
    if (left.length == 0 || left.next == -1) continue;
    auto& right = at(left.next);
    const Merge* merge = find_merge(left.id, right.id);
    if (merge == nullptr || merge->merged != top.merged) continue;
    left.id = top.merged;
    left.length += right.length;
    right.length = 0;
    left.next = right.next;
    if (left.next != -1) at(left.next).previous = top.position;
    if (left.previous != -1) push(left.previous, top.position);
    if (left.next != -1) push(top.position, left.next);
  }
}

}  // namespace foretoken
