#include "services/edge/http_types.h"

#include <algorithm>
#include <cctype>

#include "common/client/client.h"
#include "common/wire/client_codec.h"

namespace foretoken::edge {
namespace {

bool equal_in_any_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  const auto found = std::find_if(headers.begin(), headers.end(), [&](const auto& header) {
    return equal_in_any_case(header.first, name);
  });
  return found == headers.end() ? std::string_view{} : found->second;
}

std::string header_list(const std::vector<std::string>& words) {
  constexpr std::size_t kMost = 1024;
  std::string text;
  for (const auto& word : words) {
    const bool fits = text.size() + word.size() <= kMost;
    text += (text.empty() ? "" : ", ") + (fits ? word : "...");
    if (!fits) break;
  }
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
  return text;
}

std::string request_id_of(const HttpRequest& request) {
  constexpr std::size_t kMost = 128;
  const std::string_view own = request.header("x-request-id");
  const bool is_printable =
      std::all_of(own.begin(), own.end(), [](unsigned char c) { return std::isgraph(c) != 0; });
  if (!own.empty() && own.size() <= kMost && is_printable) return std::string(own);
  return "req-" + wire::hex_of(new_request_id());
}

std::optional<std::string> decoded_path(std::string_view path) {
  std::string decoded;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] != '%') {
      decoded += path[i];
      continue;
    }
    if (i + 2 >= path.size()) return std::nullopt;
    const int high = hex_digit(path[i + 1]);
    const int low = hex_digit(path[i + 2]);
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return std::nullopt;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

}  // namespace foretoken::edge
