// What the cards of all kinds of boards have in common, and what stands in front of every board's
// entries: whoever has opened memory by a card looks whether it is the board that the card names.
// Header only, for the CUDA library shares no symbol with its caller.
#pragma once

#include <sys/random.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "kernels/include/verdict_board.h"

namespace foretoken {

// "FTKN", kind of board, version of its card.
using BoardKind = std::array<char, 16>;
using BoardNonce = std::array<std::uint64_t, 2>;

// Before the entries.
struct alignas(64) BoardHead {
  BoardKind kind{};
  BoardNonce nonce{};
  std::int32_t n_entries = 0;
};
static_assert(sizeof(BoardHead) == 64);

constexpr std::size_t board_bytes(std::int32_t n_entries) {
  return sizeof(BoardHead) + static_cast<std::size_t>(n_entries) * sizeof(BoardEntry);
}

// Nothing where the system has no random numbers.
inline std::optional<BoardNonce> new_board_nonce() {
  BoardNonce nonce{};
  if (::getrandom(nonce.data(), sizeof nonce, 0) != static_cast<ssize_t>(sizeof nonce))
    return std::nullopt;
  return nonce;
}

inline bool is_head_of(const BoardHead& head,
                       const BoardKind& kind,
                       const BoardNonce& nonce,
                       std::int32_t n_entries) {
  return head.kind == kind && head.nonce == nonce && head.n_entries == n_entries;
}

// A card of this kind, or nothing with `why`. Card: trivially copyable, begins with BoardKind kind,
// has n_entries.
template <class Card>
std::optional<Card> read_card(std::span<const std::byte> bytes,
                              const BoardKind& wanted,
                              std::string& why) {
  Card card;
  BoardKind kind{};
  if (bytes.size() >= sizeof kind) std::memcpy(kind.data(), bytes.data(), sizeof kind);
  if (kind != wanted) {
    const bool is_ours = std::memcmp(kind.data(), wanted.data(), 4) == 0;
    why = is_ours ? "the board is on another kind of device, or of another version"
                  : "these bytes are no board's card";
    return std::nullopt;
  }
  if (bytes.size() != sizeof card) {
    why = "the board's card has " + std::to_string(bytes.size()) + " bytes; it should have " +
          std::to_string(sizeof card);
    return std::nullopt;
  }
  std::memcpy(&card, bytes.data(), sizeof card);
  if (card.n_entries <= 0 || card.n_entries > VerdictBoard::kMostEntries) {
    why = "the board's card speaks of " + std::to_string(card.n_entries) + " entries";
    return std::nullopt;
  }
  return card;
}

}  // namespace foretoken
