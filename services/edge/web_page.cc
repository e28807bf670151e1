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

std::string escaped(std::string_view text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

std::string cell(std::string_view text) { return "<td>" + escaped(text) + "</td>"; }

}  // namespace

std::string status_html(const Result<wire::StatusReply>& status) {
  if (!status.ok()) return "<p>No state: " + escaped(status.error().message) + "</p>";
  std::string html = std::string("<p>The services are ") + (status->ready ? "ready" : "not ready") +
                     ".</p>\n<table><caption>Services</caption><thead><tr>";
  for (const char* title : {"name", "state", "model", "active", "note"})
    html += "<th scope=\"col\">" + std::string(title) + "</th>";
  html += "</tr></thead><tbody>\n";
  for (const auto& service : status->services)
    html += "<tr>" + cell(service.name) + cell(service.state) + cell(service.model) +
            cell(std::to_string(service.active)) + cell(service.note) + "</tr>\n";
  return html + "</tbody></table>";
}

std::string page_with(std::string_view html, const std::string& status) {
  constexpr std::string_view kPlace = "<!--status-->";
  const std::size_t at = html.find(kPlace);
  FORETOKEN_CHECK(at != std::string_view::npos, "the page has a place for the state");
  return std::string(html).replace(at, kPlace.size(), status);
}

std::string page_policy(std::string_view html) {
  return "default-src 'none'; script-src " + digest_of(html, "script") + "; style-src " +
         digest_of(html, "style") +
         "; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
         "frame-ancestors 'none'";
}

}  // namespace foretoken::edge
