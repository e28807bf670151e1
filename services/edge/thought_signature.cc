#include "services/edge/thought_signature.h"

#include <sodium.h>

#include <array>

namespace foretoken::edge {

std::string thought_signature(std::string_view thought) {
  static const auto key = [] {
    std::array<unsigned char, crypto_auth_hmacsha256_KEYBYTES> bytes{};
    randombytes_buf(bytes.data(), bytes.size());
    return bytes;
  }();
  std::array<unsigned char, crypto_auth_hmacsha256_BYTES> digest{};
  crypto_auth_hmacsha256(digest.data(), reinterpret_cast<const unsigned char*>(thought.data()),
                         thought.size(), key.data());
  std::string hex(2 * digest.size() + 1, '\0');
  sodium_bin2hex(hex.data(), hex.size(), digest.data(), digest.size());
  hex.pop_back();
  return hex;
}

}  // namespace foretoken::edge
