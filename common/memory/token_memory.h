// Texts of one tenant as tokens, and what followed the same words before in any of them. A ring of
// places, one token each; for each order of 2, 4 and 8 a table that leads from that many last
// tokens to the latest place after them, and from each place to the one before. Places are compared
// token by token, so nothing is found that is not there.
//
// Documents are written side by side: each fills chunks of its own, whose headers name the chunk
// before and after. A match walks these links and never leaves its document. The oldest chunk is
// overwritten when the ring is full. Nothing is removed from the tables: places are numbered, and
// a number that is too old is dead. Behind a dead place a chain ends; a document writes on in young
// chunks only, so that such a place is at least half a ring old.
//
// It must not know whose texts these are, what a sequence is, or how long anything takes. It reads
// no clock and no file. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"

namespace foretoken {

// What a look-up may answer.
struct RecallRules {
  std::uint32_t min_match = 2;  // equal tokens that a place must have before it
  std::uint32_t max_len = 16;   // of the chain; never more than twice the match
  double min_share = 0.1;       // of the places, at which a walk ends
};

// Tokens that followed, as a tree: the chain that most places agree on, then the runners-up.
struct Recollection {
  static constexpr std::uint16_t kRoot = 0xFFFF;

  std::vector<TokenId> tokens;         // parents before children
  std::vector<std::uint16_t> parents;  // index of the token before; kRoot = the end of the query
  std::vector<float> shares;           // of the places that had its parent, those that go on so
  std::uint32_t n_chain = 0;           // leading tokens that are the chain
  std::uint32_t match = 0;             // equal tokens before the places; 0 = nothing found
  std::uint32_t n_places = 0;          // with such a match
  std::uint32_t n_looked = 0;          // links followed, those of other words included

  void clear();
};

class TokenMemory {
 public:
  static constexpr std::uint32_t kChunk = 256;  // places
  static constexpr std::uint32_t kLeastPlaces = 4 * kChunk;
  static constexpr std::uint32_t kMostPlaces = 1u << 30;  // numbers do not come round sooner
  static constexpr std::size_t kMaxMatch = 32;            // longest run that is compared
  static constexpr std::size_t kMaxPlaces = 16;           // compared further, of each order
  static constexpr std::uint32_t kMaxLooked = 64;         // links of one chain
  static constexpr std::size_t kMaxRunnersUp = 8;
  static constexpr std::uint32_t kRunnerUpLength = 8;

  // Rounded down to whole chunks. A table has as many heads as there are places, or more if asked:
  // then fewer different words share a chain.
  explicit TokenMemory(std::uint32_t n_places, std::uint32_t n_heads = 0);

  // A text that grows. The memory has no list of them: the caller owns its Document.
  class Document {
    friend class TokenMemory;
    std::uint64_t chunk_ = kNoSerial;
    std::array<TokenId, 8> recent_{};  // a ring
    std::uint32_t n_tokens_ = 0;       // 8 follows 15, so that it is right modulo 8
  };

  void append(Document& document, std::span<const TokenId> tokens);
  // The rest of its chunk goes to the next document.
  void close(Document& document);

  // What followed the end of `query`, of which the last kMaxMatch tokens count. The recollection is
  // overwritten; what it has reserved serves again.
  void recall(std::span<const TokenId> query,
              const RecallRules& rules,
              Recollection& recollection) const;

  // To more places, with all that is remembered. Takes about as long as copying it.
  void grow(std::uint32_t n_places);

  std::uint32_t n_places() const { return n_chunks_ * kChunk; }
  std::uint32_t n_free_chunks() const { return n_chunks_ - n_live(); }
  std::uint64_t n_tokens() const { return n_tokens_; }
  std::uint64_t n_evicted() const { return n_evicted_; }  // tokens overwritten, ever
  std::uint64_t size_bytes() const;

 private:
  static constexpr std::array<std::uint32_t, 3> kOrders = {2, 4, 8};
  static constexpr std::uint32_t kNowhere = 0xFFFFFFFFu;  // no place, no chunk
  static constexpr std::uint64_t kNoSerial = ~std::uint64_t{0};
  static constexpr TokenId kBoundary = -1;  // where a document begins in a chunk of another
  static constexpr std::uint32_t kNumbers = (1u << 24) - 1;  // of chunks, before they come round

  struct Chunk {
    std::uint32_t before = kNowhere;  // number of the document's chunk
    std::uint32_t after = kNowhere;
    std::uint32_t n_used = 0;
  };
  // A place as its chunk's number and the offset in it.
  struct Cursor {
    std::uint32_t number = 0;
    std::uint32_t offset = 0;
  };
  // Places with one match, the latest first.
  struct Places {
    std::array<Cursor, kMaxPlaces> at;
    std::uint32_t n = 0;
    std::uint32_t match = 0;
  };
  class Walk;

  void push(Document& document, TokenId token);
  void take_chunk(Document& document);
  bool is_young(std::uint64_t serial) const;
  std::uint32_t n_live() const;
  std::uint32_t number_of(std::uint64_t serial) const;
  bool is_live(std::uint32_t number) const;
  std::uint32_t slot_of(std::uint32_t number) const { return number % n_chunks_; }
  const Chunk& chunk(std::uint32_t number) const { return chunks_[slot_of(number)]; }
  Chunk& chunk(std::uint32_t number) { return chunks_[slot_of(number)]; }
  std::size_t index_of(Cursor at) const {
    return std::size_t{slot_of(at.number)} * kChunk + at.offset;
  }
  std::size_t bucket_of(std::uint64_t key) const { return key >> head_shift_; }
  void size_heads(std::uint32_t n_heads);

  // Equal tokens before a place and before the end of the query.
  std::uint32_t match_at(Cursor at, std::span<const TokenId> query) const;
  // Those with the longest match among the latest with the order's tokens before them. Links
  // followed are added to n_looked.
  Places places_of(std::size_t order,
                   std::uint64_t key,
                   std::span<const TokenId> query,
                   std::uint32_t& n_looked) const;
  // The token at a cursor, which is moved to the document's next chunk where it stands at the end
  // of one; kBoundary where the document ends.
  TokenId read(Cursor& at) const;

  std::uint32_t n_chunks_;
  std::uint32_t n_numbers_ =
      0;                       // a multiple of n_chunks_, so that slots go on when they come round
  std::uint64_t n_taken_ = 0;  // chunks, ever: the serial of the next one
  std::uint64_t first_ = 0;    // serial that has the number 0, and before which all is forgotten
  std::uint64_t spare_ = kNoSerial;  // chunk with room that a closed document has left
  std::uint64_t n_tokens_ = 0;
  std::uint64_t n_evicted_ = 0;
  std::uint32_t head_shift_ = 0;
  std::vector<Chunk> chunks_;                                       // [n_chunks_]
  std::vector<TokenId> ring_;                                       // [n_places]
  std::array<std::vector<std::uint32_t>, kOrders.size()> heads_;    // [a power of two]
  std::array<std::vector<std::uint32_t>, kOrders.size()> earlier_;  // [n_places]
};

}  // namespace foretoken
