// A 64-bit digest of bytes, fast enough to read a checkpoint with (about memory speed). For telling
// contents apart by accident, not by malice: no cryptography. The same value on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace foretoken {

std::uint64_t digest_bytes(std::span<const std::byte> bytes, std::uint64_t seed = 0);

// Folds values into one digest; the order matters, and so do the boundaries between strings.
class Digest {
 public:
  Digest& add(std::uint64_t value);
  Digest& add(std::string_view text);
  Digest& add(double value);  // its bits; -0 and 0 differ
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0x243F6A8885A308D3ull;
};

}  // namespace foretoken
