// Sockets and poll() around the parser of Beast: a few thousand connections at most, and nothing
// between the arrival of bytes and the time that is taken.
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "common/base/host_and_port.h"
#include "common/runtime/process_limits.h"
#include "services/cli/bench_door.h"
#include "services/cli/chat_stream.h"

namespace foretoken::cli {
namespace {

namespace http = boost::beast::http;
using ReplyParser = http::response_parser<http::string_body>;

constexpr std::size_t kReadBytes = std::size_t{64} << 10;
constexpr timeval kHttpPatience{.tv_sec = 5, .tv_usec = 0};    // with a pause
constexpr Duration kReplyPatience = std::chrono::seconds(30);  // with one that does not end

class HttpSocket {
 public:
  explicit HttpSocket(int fd = -1) : fd_(fd) {}
  HttpSocket(HttpSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  HttpSocket& operator=(HttpSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~HttpSocket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

  // A server closes a connection that was idle for long.
  bool is_open() const {
    char byte = 0;
    return fd_ >= 0 && ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           (errno == EAGAIN || errno == EWOULDBLOCK);
  }
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }

 private:
  int fd_;
};

Error no_server(const HttpAddress& address, const std::string& why) {
  return {ErrorCode::kUnavailable,
          "no HTTP server answers at " + host_and_port(address.host, address.port) + ": " + why};
}

// It is this process that can open no more, not the server.
Error no_descriptor() {
  return {ErrorCode::kIo, "this process may have no more than " +
                              std::to_string(raise_descriptor_limit()) +
                              " files and sockets open: raise the limit (ulimit -n)"};
}

Result<HttpSocket> connect_to(const HttpAddress& address) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int why = ::getaddrinfo(address.host.c_str(), address.port.c_str(), &wanted, &found);
      why != 0)
    return why == EAI_SYSTEM && errno == EMFILE ? no_descriptor()
                                                : no_server(address, ::gai_strerror(why));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> places(found, ::freeaddrinfo);
  int why = 0;
  for (const addrinfo* place = found; place != nullptr; place = place->ai_next) {
    HttpSocket socket(::socket(place->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.fd() < 0) {
      why = errno;
      if (why == EMFILE) return no_descriptor();
      continue;
    }
    // Of connect(), too.
    ::setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &kHttpPatience, sizeof kHttpPatience);
    if (::connect(socket.fd(), place->ai_addr, place->ai_addrlen) == 0) {
      const int yes = 1;
      ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      return socket;
    }
    why = errno;
  }
  // Of a connect() whose time is up.
  return no_server(address,
                   why == EINPROGRESS ? "it took no connection in time" : std::strerror(why));
}

// A whole request, as it is sent.
std::string request_text(const HttpAddress& address,
                         const std::string& method_and_path,
                         const std::string& body) {
  std::string text =
      method_and_path + " HTTP/1.1\r\nHost: " + host_and_port(address.host, address.port) +
      "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
      "\r\n";
  if (!address.key.empty()) text += "Authorization: Bearer " + address.key + "\r\n";
  return text + "\r\n" + body;
}

// A connection with a request on it. Its reply is a stream of events, or an error as one body.
struct HttpAsked {
  HttpSocket socket;
  std::size_t request = 0;
  std::unique_ptr<ReplyParser> parser;
  std::string unread;  // of the header
  ChatStream stream = {};

  HttpAsked(HttpSocket own, std::size_t number)
      : socket(std::move(own)), request(number), parser(std::make_unique<ReplyParser>()) {
    parser->eager(true);
    // Not boost::none, with which Boost 1.74 refuses each body with a Content-Length.
    parser->body_limit(std::numeric_limits<std::uint64_t>::max());
  }

  // What arrived, or the end of the connection. Not true: this is no HTTP.
  bool take(std::string_view bytes) {
    boost::system::error_code error;
    if (bytes.empty()) {
      if (!parser->got_some()) return false;  // Beast asserts it
      parser->put_eof(error);
      return !error;
    }
    unread += bytes;
    while (!unread.empty() && !parser->is_done()) {
      const std::size_t n = parser->put(boost::asio::buffer(unread), error);
      unread.erase(0, n);
      if (error == http::error::need_more) return true;
      if (error) return false;
    }
    return true;
  }
  bool is_stream() {
    return parser->is_header_done() && parser->get().result_int() == 200 &&
           parser->get()[http::field::content_type].starts_with("text/event-stream");
  }
};

class HttpDoor final : public BenchDoor {
 public:
  explicit HttpDoor(HttpAddress address) : address_(std::move(address)) {}

  std::string name() const override { return "http"; }

  std::vector<MetricSample> metrics() override {
    const auto reply = http_get(address_, "/metrics");
    return reply.ok() && reply->status == 200 ? read_samples(reply->body)
                                              : std::vector<MetricSample>();
  }

  Result<void> send(std::size_t request, wire::ClientRequest asked) override {
    // Of an earlier load: the end of its stream may come after the answer that ended it.
    forget(request);
    const std::string text =
        request_text(address_, "POST /v1/chat/completions", to_text(chat_body(asked)));
    while (!idle_.empty()) {
      HttpSocket socket = std::move(idle_.back());
      idle_.pop_back();
      if (!socket.is_open() || !socket.send(text)) continue;
      open_.emplace(request, HttpAsked(std::move(socket), request));
      return {};
    }
    auto socket = connect_to(address_);
    if (!socket.ok()) return socket.error();
    if (!socket->send(text)) return no_server(address_, "it takes no request");
    open_.emplace(request, HttpAsked(std::move(*socket), request));
    return {};
  }

  std::optional<Result<BenchNews>> next(TimePoint deadline) override {
    if (news_.empty()) wait(deadline);
    if (news_.empty()) return std::nullopt;
    auto first = std::move(news_.front());
    news_.pop_front();
    return Result<BenchNews>(std::move(first));
  }

  void forget(std::size_t request) override {
    open_.erase(request);
    std::erase_if(news_, [&](const BenchNews& each) { return each.request == request; });
  }

 private:
  void wait(TimePoint deadline) {
    std::vector<pollfd> polled;
    std::vector<std::size_t> requests;
    for (const auto& [request, exchange] : open_) {
      polled.push_back({exchange.socket.fd(), POLLIN, 0});
      requests.push_back(request);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_now());
    ::poll(polled.data(), polled.size(), static_cast<int>(std::max<std::int64_t>(0, left.count())));
    for (std::size_t i = 0; i < polled.size(); ++i)
      if (polled[i].revents != 0) read(requests[i]);
  }

  void read(std::size_t request) {
    HttpAsked& exchange = open_.at(request);
    std::string bytes(kReadBytes, '\0');
    const ssize_t n = ::recv(exchange.socket.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    const bool is_http = exchange.take(bytes);
    if (exchange.is_stream()) {
      for (auto& answer : exchange.stream.read(exchange.parser->get().body()))
        news_.push_back({request, std::move(answer)});
      exchange.parser->get().body().clear();
    }
    const bool is_done = exchange.parser->is_done();
    if (!is_http || is_done || n <= 0) end(request, is_http && is_done);
  }

  // Its connection has brought all that it will.
  void end(std::size_t request, bool is_whole) {
    auto node = open_.extract(request);
    HttpAsked& exchange = node.mapped();
    auto& reply = exchange.parser->get();
    if (!exchange.stream.is_over()) {
      const Error why = is_whole ? http_failure(reply.result_int(), reply.body())
                                 : Error{ErrorCode::kInternal, "the answer broke off"};
      news_.push_back({request, wire::client_error({}, why, 0)});
    }
    if (is_whole && reply.keep_alive()) idle_.push_back(std::move(exchange.socket));
  }

  const HttpAddress address_;
  std::map<std::size_t, HttpAsked> open_;  // by request
  std::vector<HttpSocket> idle_;
  std::deque<BenchNews> news_;
};

}  // namespace

Result<HttpAddress> read_url(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  const auto refused = [&] {
    return Error{ErrorCode::kInvalidValue, "--url is \"" + url + "\"; it must be http://HOST:PORT"};
  };
  if (!url.starts_with(kScheme)) return refused();
  std::string place = url.substr(kScheme.size());
  for (const std::string_view end : {"/", "/v1"})
    if (place.ends_with(end)) place.resize(place.size() - end.size());
  const std::size_t colon = place.rfind(':');
  if (colon == std::string::npos || colon == 0 || place.find('/') != std::string::npos)
    return refused();
  HttpAddress address{.host = place.substr(0, colon), .port = place.substr(colon + 1)};
  // The colons of an address of IPv6 stand in brackets.
  if (address.host.starts_with('[') && address.host.ends_with(']'))
    address.host = address.host.substr(1, address.host.size() - 2);
  else if (address.host.find(':') != std::string::npos)
    return refused();
  const bool is_number =
      !address.port.empty() && std::all_of(address.port.begin(), address.port.end(),
                                           [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number || address.host.empty()) return refused();
  return address;
}

Result<HttpText> http_get(const HttpAddress& address, const std::string& path) {
  auto socket = connect_to(address);
  if (!socket.ok()) return socket.error();
  ::setsockopt(socket->fd(), SOL_SOCKET, SO_RCVTIMEO, &kHttpPatience, sizeof kHttpPatience);
  if (!socket->send(request_text(address, "GET " + path, "")))
    return no_server(address, "it takes no request");
  HttpAsked exchange(std::move(*socket), 0);
  std::string bytes(kReadBytes, '\0');
  const TimePoint end = steady_now() + kReplyPatience;
  while (!exchange.parser->is_done()) {
    const ssize_t n = ::recv(exchange.socket.fd(), bytes.data(), bytes.size(), 0);
    if (steady_now() > end) return no_server(address, "its answer does not end");
    if (n < 0) return no_server(address, std::strerror(errno));
    // The end of the connection is that of a reply without a length, too.
    const bool is_http =
        exchange.take(std::string_view(bytes).substr(0, static_cast<std::size_t>(n)));
    if (!is_http || (n == 0 && !exchange.parser->is_done()))
      return no_server(address, "its answer is no HTTP");
  }
  auto& reply = exchange.parser->get();
  return HttpText{.status = reply.result_int(),
                  .server = std::string(reply[http::field::server]),
                  .body = std::move(reply.body())};
}

Result<std::string> first_model(const HttpAddress& address) {
  const auto reply = http_get(address, "/v1/models");
  if (!reply.ok()) return reply.error();
  if (reply->status != 200)
    return no_server(address, "GET /v1/models is " + std::to_string(reply->status) + ": " +
                                  error_message(reply->body));
  const auto list = parse_json(reply->body);
  if (list.ok() && list->is_object() && list->contains("data") && (*list)["data"].is_array())
    for (const Json& each : (*list)["data"])
      if (each.is_object() && each.contains("id") && each["id"].is_string())
        return each["id"].get<std::string>();
  return no_server(address, "it lists no model");
}

std::unique_ptr<BenchDoor> http_door(HttpAddress address) {
  raise_descriptor_limit();  // a connection for each request at a time
  return std::make_unique<HttpDoor>(std::move(address));
}

}  // namespace foretoken::cli
