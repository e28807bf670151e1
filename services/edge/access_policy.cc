#include "services/edge/access_policy.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "services/edge/asio.h"

namespace foretoken::edge {
namespace {

std::string in_small_letters(std::string_view text) {
  std::string small(text);
  std::transform(small.begin(), small.end(), small.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return small;
}

// Of "Bearer KEY", in letters of any case; "" of another scheme.
std::string_view bearer_of(std::string_view authorization) {
  const std::size_t space = std::min(authorization.find(' '), authorization.size());
  if (in_small_letters(authorization.substr(0, space)) != "bearer") return {};
  authorization.remove_prefix(space);
  return authorization.substr(std::min(authorization.find_first_not_of(' '), authorization.size()));
}

// The keys that a request has, of which one is enough.
std::vector<std::string_view> keys_in(const HttpRequest& request) {
  std::vector<std::string_view> keys{bearer_of(request.header("authorization")),
                                     request.header("x-api-key")};
  std::erase(keys, std::string_view());
  return keys;
}

bool is_digits(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::optional<boost::asio::ip::address> address_in(const std::string& host) {
  boost::system::error_code error;
  auto address = boost::asio::ip::make_address(host, error);
  if (error) return std::nullopt;
  return address;
}

// Of "NAME", "NAME:PORT" or "[ADDRESS]:PORT": small letters, without the dot of a full name.
std::string host_in(std::string_view header) {
  std::string host(header);
  if (const std::size_t colon = host.rfind(':');
      colon != std::string::npos && is_digits(std::string_view(host).substr(colon + 1)) &&
      (host.find(':') == colon || host[colon - 1] == ']'))
    host.resize(colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  if (host.ends_with('.')) host.pop_back();
  return in_small_letters(host);
}

// A page of the edge itself, under whichever name it was loaded: a browser sends both as the
// address of the page has them.
bool is_same_host(std::string_view origin, std::string_view host) {
  constexpr std::string_view kAfterScheme = "://";
  const std::size_t at = origin.find(kAfterScheme);
  return at != std::string_view::npos && !host.empty() &&
         origin.substr(at + kAfterScheme.size()) == host;
}

HttpError wrong_key(bool has_one) {
  HttpError error =
      http_error(401, has_one ? "this key is not one of edge.key_file"
                              : "a key is needed: Authorization: Bearer KEY, or x-api-key");
  error.code = "invalid_api_key";
  return error;
}

HttpError origin_refused(std::string_view origin) {
  HttpError error =
      http_error(403, "web pages of " + header_list({std::string(origin)}) +
                          " may not ask here; edge.cors_origins names those that may");
  error.code = "origin_not_allowed";
  return error;
}

HttpError host_refused(std::string_view host) {
  HttpError error = http_error(
      403, "the request was sent to " + header_list({std::string(host)}) +
               ", which is neither localhost, nor a numeric address, nor in edge.allowed_hosts; "
               "where no key is asked for it must be one of these");
  error.code = "host_not_allowed";
  return error;
}

void check_reach(const std::string& key, const std::string& host, const ApiKeys& keys) {
  if (keys.empty() && !is_loopback(host))
    throw FatalError(ErrorCode::kConfig,
                     key + " " + host +
                         " is reachable from other machines and there are no keys: set "
                         "edge.key_file");
}

}  // namespace

bool is_loopback(const std::string& host) {
  const auto address = address_in(host);
  return host == "localhost" || (address && address->is_loopback());
}

AccessPolicy::AccessPolicy(const EdgeSection& section, const std::string& metrics_host)
    : section_(section),
      keys_(section.key_file.empty() ? ApiKeys() : value_or_throw(ApiKeys::read(section.key_file))),
      metrics_need_a_key_(!is_loopback(metrics_host)) {
  check_reach("edge.host", section.host, keys_);
  if (!metrics_host.empty()) check_reach("metrics.listen", metrics_host, keys_);
}

std::optional<HttpError> AccessPolicy::refusal(const HttpRequest& request, bool is_open) const {
  if (!keys_.empty()) {
    if (is_open || knows(request)) return std::nullopt;
    return wrong_key(!keys_in(request).empty());
  }
  return refusal_of_page(request, is_open);
}

std::optional<HttpError> AccessPolicy::metrics_refusal(const HttpRequest& request) const {
  return metrics_need_a_key_ ? refusal(request, false) : refusal_of_page(request, false);
}

std::optional<HttpError> AccessPolicy::refusal_of_page(const HttpRequest& request,
                                                       bool is_open) const {
  const std::string_view host = request.header("host");
  if (!takes_host(host)) return host_refused(host);
  // A browser sends a plain POST of any page without asking first.
  const std::string_view origin = request.header("origin");
  const bool is_own = is_same_host(origin, host) && is_named(host);
  if (!is_open && !origin.empty() && !takes_origin(origin) && !is_own)
    return origin_refused(origin);
  return std::nullopt;
}

bool AccessPolicy::knows(const HttpRequest& request) const {
  return keys_.empty() || name_of(request);
}

std::string AccessPolicy::tenant_of(const HttpRequest& request) const {
  return name_of(request).value_or("");
}

std::optional<std::string> AccessPolicy::name_of(const HttpRequest& request) const {
  for (const std::string_view key : keys_in(request))
    if (auto name = keys_.name_of(key)) return name;
  return std::nullopt;
}

// "http://localhost:*" takes every port of it; "*" takes all.
bool AccessPolicy::takes_origin(std::string_view origin) const {
  const auto& allowed = section_.cors_origins;
  return std::any_of(allowed.begin(), allowed.end(), [&](std::string_view each) {
    if (each == "*" || each == origin) return true;
    if (!each.ends_with(":*")) return false;
    each.remove_suffix(2);
    if (!origin.starts_with(each)) return false;
    const std::string_view rest = origin.substr(each.size());
    return rest.empty() || (rest.front() == ':' && is_digits(rest.substr(1)));
  });
}

bool AccessPolicy::takes_host(std::string_view header) const {
  return is_named(header) || std::ranges::count(section_.allowed_hosts, "*") > 0;
}

// A numeric address is no name that a stranger could have lead elsewhere, and a browser names a
// host always.
bool AccessPolicy::is_named(std::string_view header) const {
  const std::string host = host_in(header);
  if (host.empty() || host == "localhost" || host.ends_with(".localhost") || address_in(host))
    return true;
  return std::ranges::any_of(section_.allowed_hosts,
                             [&](const std::string& each) { return host_in(each) == host; });
}

}  // namespace foretoken::edge
