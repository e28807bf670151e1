// Texts of one tenant as tokens, and what followed the same words before in any of them. A ring of
// chunks of places, one token each; for each order of 2, 4 and 8 a table that leads from that many
// last tokens to the latest place after them, and from each place to the one before. Places are
// compared token by token, so nothing is found that is not there.
//
// Documents are written side by side: each fills chunks of its own, whose headers name the chunk
// before and after. A match walks these links and never leaves its document. The oldest chunk is
// overwritten when the ring is full. Nothing is removed from the tables: places are numbered, and
// a number that is too old is dead. Behind a dead place a chain ends; a document writes on in young
// chunks only, so that such a place is at least half a ring old.
//
// It grows without a pause: a chunk is allocated when it is first written, and a larger table is
// filled from the one before by a few heads with each token, so that who waits for a look-up never
// waits for all that is remembered to be copied.
//
// It must not know whose texts these are, what a sequence is, or how long anything takes. It reads
// no clock and no file. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
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

  // To more places, with all that is remembered. Where places have been overwritten it has to wait
  // for the end of the ring.
  bool can_grow() const;
  void grow(std::uint32_t n_places);

  std::uint32_t n_places() const { return n_chunks_ * kChunk; }
  std::uint32_t n_free_chunks() const { return n_chunks_ - n_live_; }
  std::uint64_t n_tokens() const { return n_tokens_; }
  std::uint64_t n_evicted() const { return n_evicted_; }  // tokens overwritten, ever
  std::uint64_t n_moved() const;  // heads copied from a table to a larger one, ever
  std::uint64_t size_bytes() const;

 private:
  static constexpr std::array<std::uint32_t, 3> kOrders = {2, 4, 8};
  static constexpr std::uint32_t kNowhere = 0xFFFFFFFFu;  // no place, no chunk
  static constexpr std::uint64_t kNoSerial = ~std::uint64_t{0};
  static constexpr TokenId kBoundary = -1;  // where a document begins in a chunk of another
  static constexpr std::uint32_t kNumbers = (1u << 24) - 1;  // of chunks, before they come round
  // Heads moved with each token: the smaller table is gone after a sixteenth of its tokens, so that
  // two of them are in memory for a short time only.
  static constexpr std::uint32_t kMovedAtOnce = 16;

  struct Chunk {
    std::uint32_t before = kNowhere;  // number of the document's chunk
    std::uint32_t after = kNowhere;
    std::uint32_t n_used = 0;  // places; the others have no value yet
    std::array<TokenId, kChunk> tokens;
    std::array<std::array<std::uint32_t, kChunk>, kOrders.size()> earlier;
  };
  // The heads of one order's chains. A bucket is named by the upper bits of a key, so that one of a
  // smaller table becomes neighbours in a larger one, which all begin with its chain.
  class Heads {
   public:
    explicit Heads(std::uint32_t n_heads);
    std::uint32_t& of(std::uint64_t key);
    std::uint32_t of(std::uint64_t key) const { return const_cast<Heads*>(this)->of(key); }
    // Begins to move into a table of at least so many, if that is larger.
    void grow(std::uint32_t n_heads);
    // Moves so many heads of the smaller table, or those that are left.
    void move(std::uint32_t n_heads);
    std::uint64_t n_moved() const { return n_moved_ever_; }
    std::uint64_t size_bytes() const;

   private:
    using Table = std::unique_ptr<std::uint32_t[]>;  // without a value where nothing has moved

    Table now_, smaller_;
    std::uint32_t n_bits_ = 0, n_smaller_bits_ = 0;
    std::uint32_t n_moved_ = 0;  // of the smaller one, from its beginning
    std::uint64_t n_moved_ever_ = 0;
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
  std::uint32_t number_of(std::uint64_t serial) const;
  std::uint32_t age_of(std::uint32_t number) const {  // chunks taken since
    return newest_ >= number ? newest_ - number : newest_ + kNumbers - number;
  }
  bool is_live(std::uint32_t number) const { return age_of(number) < n_live_; }
  std::uint32_t slot_of(std::uint32_t number) const {  // of a live one
    const std::uint32_t age = age_of(number);
    return newest_slot_ >= age ? newest_slot_ - age : newest_slot_ + n_chunks_ - age;
  }
  const Chunk& chunk(std::uint32_t number) const { return *chunks_[slot_of(number)]; }
  Chunk& chunk(std::uint32_t number) { return *chunks_[slot_of(number)]; }
  void empty_slot(std::unique_ptr<Chunk>& slot);

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
  std::uint64_t n_taken_ = 0;        // chunks, ever: the serial of the next one
  std::uint64_t first_ = 0;          // serial of the oldest one when the ring got its size
  std::uint32_t newest_ = 0;         // number of the last one taken
  std::uint32_t newest_slot_;        // its place in the ring
  std::uint32_t n_live_ = 0;         // chunks that have not been overwritten
  std::uint64_t spare_ = kNoSerial;  // chunk with room that a closed document has left
  std::uint64_t n_tokens_ = 0;
  std::uint64_t n_evicted_ = 0;
  std::vector<std::unique_ptr<Chunk>> chunks_;  // [n_chunks_], from the first unused one on none
  std::array<Heads, kOrders.size()> heads_;
};

}  // namespace foretoken
