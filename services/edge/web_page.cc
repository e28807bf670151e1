#include "services/edge/web_page.h"

#include <sodium.h>

#include "common/base/check.h"

namespace foretoken::edge {
namespace {

// 'sha256-...' of what stands between the first <tag> and </tag>.
std::string digest_of(std::string_view html, const std::string& tag) {
  const std::string open = "<" + tag + ">", close = "</" + tag + ">";
  const std::size_t begin = html.find(open), end = html.find(close);
  FORETOKEN_CHECK(begin != std::string_view::npos && end != std::string_view::npos,
                  "the page has a style and a script");
  const std::string_view text = html.substr(begin + open.size(), end - begin - open.size());
  unsigned char digest[crypto_hash_sha256_BYTES];
  crypto_hash_sha256(digest, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  std::string base64(sodium_base64_ENCODED_LEN(sizeof digest, sodium_base64_VARIANT_ORIGINAL), ' ');
  sodium_bin2base64(base64.data(), base64.size(), digest, sizeof digest,
                    sodium_base64_VARIANT_ORIGINAL);
  base64.pop_back();
  return "'sha256-" + base64 + "'";
}

}  // namespace

std::string page_policy(std::string_view html) {
  return "default-src 'none'; script-src " + digest_of(html, "script") + "; style-src " +
         digest_of(html, "style") +
         "; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
}

}  // namespace foretoken::edge
