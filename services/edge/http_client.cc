#include "services/edge/http_client.h"

#include <algorithm>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <charconv>

#include "services/edge/name_lookup.h"

namespace foretoken::edge {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

auto into_error(boost::system::error_code& error) {
  return asio::redirect_error(asio::use_awaitable, error);
}

constexpr std::size_t kMaxAnswerBytes = std::size_t{64} << 10;

Error broken(const HttpUrl& url, const std::string& why) {
  return {ErrorCode::kUnavailable, url.host + ":" + url.port + ": " + why};
}

Error broken(const HttpUrl& url, const boost::system::error_code& error) {
  return broken(url, error == beast::error::timeout ? "no answer in time" : error.message());
}

std::optional<Duration> seconds_in(std::string_view text) {
  std::uint32_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return std::chrono::seconds(seconds);
}

bool is_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc{} && end == text.data() + text.size() && port != 0;
}

HttpAnswer answer_of(const http::response<http::string_body>& response) {
  const auto after = response[http::field::retry_after];
  return {.status = response.result_int(),
          .body = response.body(),
          .retry_after = seconds_in({after.data(), after.size()})};
}

}  // namespace

Result<HttpUrl> read_url(std::string_view text) {
  const auto bad = [&](const std::string& why) {
    return Error{ErrorCode::kConfig, "\"" + std::string(text) + "\" " + why +
                                         "; it must be http://HOST, http://HOST:PORT or one of "
                                         "these with a path"};
  };
  constexpr std::string_view kScheme = "http://";
  if (text.starts_with("https://"))
    return bad("asks for TLS, which is not spoken here: send to a collector on this machine");
  if (!text.starts_with(kScheme)) return bad("is no address of HTTP");
  if (std::any_of(text.begin(), text.end(), [](char c) { return c <= ' ' || c == 0x7f; }))
    return bad("has blanks or control characters");
  std::string_view rest = text.substr(kScheme.size());
  HttpUrl url;
  const std::size_t slash = rest.find('/');
  if (slash != std::string_view::npos) url.target = rest.substr(slash);
  rest = rest.substr(0, slash);
  if (rest.find('@') != std::string_view::npos) return bad("names a user");
  std::size_t end = rest.find(':');
  if (rest.starts_with('[')) {  // an address of IPv6
    const std::size_t close = rest.find(']');
    if (close == std::string_view::npos) return bad("has a [ without ]");
    url.host = rest.substr(1, close - 1);
    end = close + 1 == rest.size() ? std::string_view::npos : close + 1;
    if (end != std::string_view::npos && rest[end] != ':') return bad("has something behind ]");
  } else {
    url.host = rest.substr(0, end);
  }
  if (url.host.empty()) return bad("names no host");
  if (end != std::string_view::npos) {
    url.port = rest.substr(end + 1);
    if (!is_port(url.port)) return bad("has no port from 1 to 65535");
  }
  return url;
}

asio::awaitable<Result<HttpAnswer>> http_post(asio::io_context& context,
                                              const HttpUrl& url,
                                              const HttpHeaders& headers,
                                              std::string body,
                                              Duration limit) {
  boost::system::error_code error;
  const TimePoint deadline = steady_now() + limit;
  const NameLookup lookup = look_up;
  const auto places = co_await endpoints_of(context, url.host, url.port, deadline, lookup);
  if (!places.ok()) co_return broken(url, places.error().message);

  beast::tcp_stream stream(context);
  stream.expires_at(deadline);
  co_await stream.async_connect(*places, into_error(error));
  if (error) co_return broken(url, error);

  http::request<http::string_body> request{http::verb::post, url.target, 11};
  const bool is_v6 = url.host.find(':') != std::string::npos;
  std::string host = url.host;
  if (is_v6) host = "[" + host + "]";
  request.set(http::field::host, host + ":" + url.port);
  request.set(http::field::user_agent, "foretoken");
  for (const auto& [name, value] : headers) request.set(name, value);
  request.body() = std::move(body);
  request.keep_alive(false);
  request.prepare_payload();
  co_await http::async_write(stream, request, into_error(error));
  if (error) co_return broken(url, error);

  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(kMaxAnswerBytes);
  co_await http::async_read(stream, buffer, parser, into_error(error));
  if (error) co_return broken(url, error);
  co_return answer_of(parser.get());
}

}  // namespace foretoken::edge
