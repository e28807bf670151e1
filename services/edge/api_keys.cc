#include "services/edge/api_keys.h"

#include <sodium.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>

namespace foretoken::edge {
namespace {

std::string digest_of(std::string_view key) {
  std::string digest(crypto_hash_sha256_BYTES, '\0');
  crypto_hash_sha256(reinterpret_cast<unsigned char*>(digest.data()),
                     reinterpret_cast<const unsigned char*>(key.data()), key.size());
  return digest;
}

// "" if it is no digest.
std::string from_hex(const std::string& text) {
  std::string bytes(crypto_hash_sha256_BYTES, '\0');
  std::size_t size = 0;
  const char* end = nullptr;
  if (sodium_hex2bin(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(), text.data(),
                     text.size(), nullptr, &size, &end) != 0 ||
      size != bytes.size() || end != text.data() + text.size())
    return {};
  return bytes;
}

}  // namespace

Result<ApiKeys> ApiKeys::read(const std::string& file) {
  std::ifstream in(file);
  if (!in) return Error{ErrorCode::kIo, "cannot read the keys of edge.key_file: " + file};
  ApiKeys keys;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    Key key;
    std::string digest, more;
    if (!(words >> key.name)) continue;
    words >> digest;
    key.digest = from_hex(digest);
    const std::string where = file + " line " + std::to_string(number) + ": ";
    if (key.digest.empty() || words >> more)
      return Error{ErrorCode::kConfig,
                   where +
                       "a line is NAME DIGEST, the digest of a key as `printf %s KEY | sha256sum` "
                       "prints it"};
    if (std::any_of(keys.keys_.begin(), keys.keys_.end(),
                    [&](const Key& other) { return other.digest == key.digest; }))
      return Error{ErrorCode::kConfig, where + "this key is listed twice"};
    keys.keys_.push_back(std::move(key));
  }
  if (keys.empty()) return Error{ErrorCode::kConfig, file + " lists no key"};
  return keys;
}

std::optional<std::string> ApiKeys::name_of(std::string_view key) const {
  const std::string digest = digest_of(key);
  std::optional<std::string> name;
  for (const Key& each : keys_)
    if (sodium_memcmp(each.digest.data(), digest.data(), digest.size()) == 0) name = each.name;
  return name;
}

}  // namespace foretoken::edge
