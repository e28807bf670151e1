#include "services/edge/http_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "common/base/log.h"
#include "common/base/result.h"

namespace foretoken::edge {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kLingerTime = std::chrono::seconds(2);
constexpr std::size_t kLingerBytes = std::size_t{4} << 20;
constexpr auto kAcceptPause = std::chrono::milliseconds(100);
constexpr auto kWatchPause = std::chrono::milliseconds(50);
// What the kernel holds of an answer beside what is on its way. Without that bound it takes more
// only when a third of its buffer is free, of up to 4 MiB, so that a slow client takes nothing for
// long.
constexpr int kUnsentBytes = 64 << 10;

auto into(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

// The status for what the parser refuses; 0: the client ended, or its connection broke.
unsigned status_of(const error_code& error) {
  if (error == http::error::header_limit) return 431;
  if (error == http::error::body_limit) return 413;
  if (error == http::error::end_of_stream || error == http::error::partial_message) return 0;
  if (error.category() == http::make_error_code(http::error::bad_method).category()) return 400;
  return 0;
}

std::string size_text(std::size_t n_bytes) {
  const bool is_whole = n_bytes > 0 && n_bytes % (std::size_t{1} << 20) == 0;
  return is_whole ? std::to_string(n_bytes >> 20) + " MiB" : std::to_string(n_bytes) + " bytes";
}

// One that has no memory ends alone.
void end_of_connection(const std::exception_ptr& failure) {
  try {
    if (failure) std::rethrow_exception(failure);
  } catch (const std::bad_alloc&) {
    log_error("a connection has no memory");
  } catch (const std::exception& error) {
    log_error("a connection failed", {{"reason", error.what()}});
  }
}

}  // namespace

HttpCounters& HttpCounters::operator+=(const HttpCounters& more) {
  accepted += more.accepted;
  turned_away += more.turned_away;
  requests += more.requests;
  malformed += more.malformed;
  timed_out += more.timed_out;
  abandoned += more.abandoned;
  overloaded += more.overloaded;
  return *this;
}

class HttpServer::Connection final : public HttpExchange,
                                     public std::enable_shared_from_this<Connection> {
 public:
  Connection(HttpServer& server, tcp::socket socket)
      : server_(server), stream_(std::move(socket)), watch_timer_(server.context_) {
    place_ = server_.connections_.insert(server_.connections_.end(), this);
  }
  ~Connection() override {
    let_go();
    server_.connections_.erase(place_);
  }

  asio::awaitable<void> run() {
    error_code ignored;
    stream_.socket().set_option(tcp::no_delay(true), ignored);
    ::setsockopt(stream_.socket().native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytes,
                 sizeof kUnsentBytes);
    while (keep_alive_ && !server_.draining_) {
      if (!co_await wait_for_request()) break;
      is_open_ = true;
      if (!co_await read_request()) break;
      ++server_.counters_.requests;
      status_ = 0;
      begin_watch();
      co_await handle();
      end_watch();
      is_open_ = false;
      on_gone_ = {};
      drop_body();
      let_go();
      more_headers_.clear();
      if (gone_) break;
    }
    is_open_ = false;
    let_go();  // of a body that was refused
    co_await linger();
  }

  bool is_open() const { return is_open_; }
  void close_if_idle() {
    if (!is_open_) stream_.cancel();
  }

  const HttpRequest& request() const override { return request_; }
  bool replace_body(std::size_t n_bytes) override {
    drop_body();
    const bool has_room = hold(body_bytes_, std::max(body_bytes_, n_bytes));
    if (!has_room) ++server_.counters_.overloaded;
    return has_room;
  }
  HeldRoom hold_answer(std::size_t n_bytes) override {
    const std::size_t before = answer_bytes_;
    if (hold(answer_bytes_, n_bytes) || answer_bytes_ <= before) return HeldRoom::kFree;
    if (body_bytes_ + answer_bytes_ > server_.limits_.max_held_bytes) return HeldRoom::kNever;
    ++server_.counters_.overloaded;
    return HeldRoom::kTaken;
  }
  bool is_gone() const override { return gone_; }
  unsigned status() const override { return status_; }
  void add_header(std::string name, std::string value) override {
    more_headers_.emplace_back(std::move(name), std::move(value));
  }
  void on_gone(std::function<void()> callback) override { on_gone_ = std::move(callback); }

  asio::awaitable<void> reply(HttpReply reply) override {
    http::response<http::string_body> response{static_cast<http::status>(reply.status), version_};
    status_ = reply.status;
    (void)hold(answer_bytes_, reply.body.size());  // it is sent all the same: that makes room
    set_headers(response, reply.headers);
    if (!reply.body.empty()) response.set(http::field::content_type, reply.content_type);
    response.body() = std::move(reply.body);
    if (server_.draining_) keep_alive_ = false;
    response.keep_alive(keep_alive_);
    response.prepare_payload();
    if (is_head_) response.body().clear();
    http::response_serializer<http::string_body> serializer{response};
    serializer.split(is_head_);
    co_await send(serializer);
  }

  asio::awaitable<bool> begin_stream(HttpHeaders headers) override {
    http::response<http::empty_body> response{http::status::ok, version_};
    status_ = 200;
    set_headers(response, headers);
    response.set(http::field::content_type, "text/event-stream; charset=utf-8");
    response.set(http::field::cache_control, "no-cache");
    response.set("X-Accel-Buffering", "no");
    if (server_.draining_) keep_alive_ = false;
    is_chunked_ = version_ >= 11;
    keep_alive_ = keep_alive_ && is_chunked_;
    response.keep_alive(keep_alive_);
    if (is_chunked_) response.chunked(true);
    http::response_serializer<http::empty_body> serializer{response};
    serializer.split(true);
    co_await send(serializer);
    co_return !gone_;
  }

  asio::awaitable<bool> write(std::string bytes) override {
    if (gone_) co_return false;
    if (is_chunked_) {
      const auto chunk = http::make_chunk(asio::buffer(bytes));
      co_await send_buffers(chunk);
    } else {
      const asio::const_buffer piece = asio::buffer(bytes);
      co_await send_buffers(piece);
    }
    co_return !gone_;
  }

  asio::awaitable<void> end_stream(bool is_whole) override {
    if (!is_whole) keep_alive_ = false;
    if (gone_ || !is_whole || !is_chunked_) co_return;
    const auto last = http::make_chunk_last();
    co_await send_buffers(last);
  }

 private:
  // In pieces, each with a write_stall of its own: a client that is slow gets all of it, and one
  // that takes nothing is cut. Of a serializer that is split the header alone.
  template <class Serializer>
  asio::awaitable<void> send(Serializer& serializer) {
    error_code error;
    while (!error && !(serializer.split() ? serializer.is_header_done() : serializer.is_done())) {
      stream_.expires_after(server_.limits_.write_stall);
      co_await http::async_write_some(stream_, serializer, into(error));
    }
    if (error) lose();
  }
  template <class Buffers>
  asio::awaitable<void> send_buffers(const Buffers& buffers) {
    beast::buffers_suffix<Buffers> unsent(buffers);
    error_code error;
    while (!error && beast::buffer_bytes(unsent) > 0) {
      stream_.expires_after(server_.limits_.write_stall);
      const std::size_t n = co_await stream_.async_write_some(unsent, into(error));
      unsent.consume(n);
    }
    if (error) lose();
  }

  template <class Response>
  void set_headers(Response& response, const HttpHeaders& headers) const {
    response.set(http::field::server, "foretoken");
    for (const auto* each : {&headers, &more_headers_})
      for (const auto& [name, value] : *each) response.set(name, value);
  }

  // Between two requests a connection costs no buffer. False: it ended, or nothing came.
  asio::awaitable<bool> wait_for_request() {
    if (buffer_.size() > 0) co_return true;
    buffer_.shrink_to_fit();
    request_ = {};
    error_code error;
    stream_.expires_after(server_.limits_.idle);
    // Through the stream, so that its time limit holds: a read of no bytes ends when there are
    // some.
    char first = 0;
    const std::size_t n = co_await stream_.async_read_some(asio::buffer(&first, 1), into(error));
    if (error || n == 0) co_return false;
    *static_cast<char*>(buffer_.prepare(1).data()) = first;
    buffer_.commit(1);
    co_return true;
  }

  asio::awaitable<bool> read_request() {
    const HttpLimits& limits = server_.limits_;
    http::request_parser<http::string_body> parser;
    parser.header_limit(static_cast<std::uint32_t>(limits.max_header_bytes));
    parser.body_limit(limits.max_body_bytes);
    error_code error;
    stream_.expires_after(limits.header);
    co_await http::async_read_header(stream_, buffer_, parser, into(error));
    auto& message = parser.get();
    is_head_ = is_head(message, error);
    take_head(message);
    if (error) co_return co_await refuse(error);
    version_ = message.version();
    keep_alive_ = message.keep_alive();
    if (auto refusal = problem_with(message)) {
      why_ = std::move(refusal->why);
      co_return co_await refuse(refusal->status);
    }
    if (beast::iequals(message[http::field::expect], "100-continue")) {
      http::response<http::empty_body> go_on{http::status::continue_, version_};
      co_await http::async_write(stream_, go_on, into(error));
    }
    // In pieces, so that what all connections hold is known whatever a header announces.
    stream_.expires_after(limits.body);
    while (!parser.is_done()) {
      co_await http::async_read_some(stream_, buffer_, parser, into(error));
      if (error) co_return co_await refuse(error);
      if (!hold(body_bytes_, parser.get().body().size())) co_return co_await refuse(503);
    }
    request_.body = std::move(message.body());
    buffer_.shrink_to_fit();  // an answer takes its time
    co_return true;
  }

  // An empty text in its place would keep its memory.
  void drop_body() { std::string().swap(request_.body); }

  // Of one with a broken header too, and of one whose first line is beyond the limit: of that
  // nothing was parsed, and it lies in the buffer. Its reply has no body either.
  bool is_head(const http::request<http::string_body>& message, const error_code& error) const {
    if (!error || !message.method_string().empty()) return message.method() == http::verb::head;
    const auto unread = buffer_.data();
    const std::string_view line(static_cast<const char*>(unread.data()), unread.size());
    return line.starts_with("HEAD ");
  }

  // `part`: of the body or of the answer. False: more is held than max_held_bytes, this among it.
  bool hold(std::size_t& part, std::size_t n_bytes) {
    const std::size_t counted = n_bytes > server_.limits_.small_body_bytes ? n_bytes : 0;
    server_.held_bytes_ = server_.held_bytes_ - part + counted;
    part = counted;
    return counted == 0 || server_.held_bytes_ <= server_.limits_.max_held_bytes;
  }
  void let_go() {
    (void)hold(body_bytes_, 0);
    (void)hold(answer_bytes_, 0);
  }

  struct Refusal {
    unsigned status = 0;
    std::string why;
  };
  // What the parser lets pass and we do not.
  std::optional<Refusal> problem_with(const http::request<http::string_body>& message) const {
    const HttpLimits& limits = server_.limits_;
    if (message.target().size() > limits.max_target_bytes)
      return Refusal{414, "the request's target has " + size_text(message.target().size()) +
                              "; the limit is " + size_text(limits.max_target_bytes)};
    const auto n_fields = std::distance(message.begin(), message.end());
    if (n_fields > static_cast<std::ptrdiff_t>(limits.max_fields))
      return Refusal{431, "the request has " + std::to_string(n_fields) +
                              " header fields; the limit is " + std::to_string(limits.max_fields)};
    if (message.version() != 10 && message.version() != 11)
      return Refusal{505, "HTTP/1.0 and HTTP/1.1 are spoken here"};
    if (request_.path.empty()) return Refusal{400, "the request's target is no path"};
    // Where two parties may count a body differently, one request can hide in another.
    if (message.count(http::field::content_length) > 1 ||
        message.count(http::field::transfer_encoding) > 1 ||
        (message.count(http::field::transfer_encoding) > 0 &&
         (message.count(http::field::content_length) > 0 ||
          !beast::iequals(message[http::field::transfer_encoding], "chunked"))))
      return Refusal{400,
                     "the body's length must be said once: by Content-Length, or by "
                     "Transfer-Encoding: chunked"};
    const auto n_hosts = message.count(http::field::host);
    if (message.version() == 11 && n_hosts != 1)
      return Refusal{
          400, "the request has " + std::to_string(n_hosts) + " Host headers; HTTP/1.1 needs one"};
    const auto encoding = message[http::field::content_encoding];
    if (encoding.empty() || beast::iequals(encoding, "identity")) return std::nullopt;
    return Refusal{415, "Content-Encoding " + std::string(encoding) +
                            " is not read here: send the body without one"};
  }

  // Of what the parser refuses.
  std::string why_of(const error_code& error) const {
    if (error == http::error::body_limit)
      return "the body is larger than the limit, which is " +
             size_text(server_.limits_.max_body_bytes);
    if (error == http::error::header_limit)
      return "the header is larger than the limit, which is " +
             size_text(server_.limits_.max_header_bytes);
    return error.message();
  }

  // As far as it was read: a request that is refused has a path and an id, too. A target that is no
  // path leaves "".
  void take_head(const http::request<http::string_body>& message) {
    request_ = {};
    request_.method = std::string(message.method_string());
    const std::string target(message.target());
    const std::size_t mark = target.find('?');
    auto path = decoded_path(std::string_view(target).substr(0, mark));
    if (path && path->starts_with('/')) request_.path = std::move(*path);
    if (mark != std::string::npos) request_.query = target.substr(mark + 1);
    for (const auto& field : message)
      request_.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    request_.id = request_id_of(request_);
  }

  // A request whose handler throws fails alone.
  asio::awaitable<void> handle() {
    unsigned status = 0;
    std::string reason;
    try {
      co_return co_await server_.handler_(*this);
    } catch (const std::bad_alloc&) {
      status = 503;
    } catch (const std::exception& error) {
      status = 500;
      reason = error.what();
    }
    on_gone_ = {};  // what it would call ended with the handler
    const char* why = status == 503 ? "no memory" : "internal error";
    if (reason.empty()) reason = why;
    log_error("a request could not be handled",
              {{"path", request_.path}, {"id", request_.id}, {"reason", reason}});
    keep_alive_ = false;
    if (status_ != 0) co_return;  // its reply was begun: the end of the connection cuts it
    HttpReply error = server_.error_reply_(request_, status, why);
    co_await reply(std::move(error));
  }

  asio::awaitable<bool> refuse(error_code error) {
    if (error == beast::error::timeout) ++server_.counters_.timed_out;
    const unsigned status = status_of(error);
    if (status == 0) {
      gone_ = true;
      co_return false;
    }
    why_ = why_of(error);
    co_return co_await refuse(status);
  }

  asio::awaitable<bool> refuse(unsigned status) {
    // A request that finds no room is as good as any other.
    ++(status == 503 ? server_.counters_.overloaded : server_.counters_.malformed);
    keep_alive_ = false;
    if (why_.empty()) why_ = std::string(http::obsolete_reason(static_cast<http::status>(status)));
    HttpReply error = server_.error_reply_(request_, status, why_);
    co_await reply(std::move(error));
    co_return false;
  }

  // A request that was not read to its end would reset the connection, and with it the reply.
  asio::awaitable<void> linger() {
    error_code error;
    if (gone_) {
      stream_.close();
      co_return;
    }
    stream_.socket().shutdown(tcp::socket::shutdown_send, error);
    stream_.expires_after(kLingerTime);
    std::vector<char> waste(4096);
    for (std::size_t n = 0; !error && n < kLingerBytes;)
      n += co_await stream_.async_read_some(asio::buffer(waste), into(error));
    stream_.close();
  }

  // While an answer is made nothing is read, but a client that closes its connection is noticed.
  void begin_watch() {
    stream_.expires_never();
    watch(++watch_round_, buffer_.size() > 0);
  }
  // One whose next request is here already has something to be read at any time, so its state is
  // looked at every now and then.
  void watch(std::uint64_t round, bool has_more) {
    auto look = [self = shared_from_this(), round](const error_code& error) {
      if (error || self->watch_round_ != round) return;
      if (self->has_ended()) return self->lose();
      self->watch(round, true);
    };
    if (!has_more) return stream_.socket().async_wait(tcp::socket::wait_read, std::move(look));
    watch_timer_.expires_after(kWatchPause);
    watch_timer_.async_wait(std::move(look));
  }
  void end_watch() {
    ++watch_round_;
    watch_timer_.cancel();
    error_code ignored;
    stream_.socket().cancel(ignored);
  }
  // The client has closed its side, or the connection is broken.
  bool has_ended() {
    tcp_info info{};
    socklen_t size = sizeof info;
    return ::getsockopt(stream_.socket().native_handle(), IPPROTO_TCP, TCP_INFO, &info, &size) !=
               0 ||
           info.tcpi_state != TCP_ESTABLISHED;
  }
  void lose() {
    if (std::exchange(gone_, true)) return;
    keep_alive_ = false;
    ++server_.counters_.abandoned;
    stream_.cancel();  // what is being written has no reader
    if (auto callback = std::exchange(on_gone_, {})) callback();
  }

  HttpServer& server_;
  beast::tcp_stream stream_;
  asio::steady_timer watch_timer_;
  std::uint64_t watch_round_ = 0;
  beast::flat_buffer buffer_;
  std::list<Connection*>::iterator place_;
  HttpRequest request_;
  unsigned version_ = 11;
  unsigned status_ = 0;
  HttpHeaders more_headers_;
  bool keep_alive_ = true;
  bool is_head_ = false;
  bool is_chunked_ = false;
  bool is_open_ = false;  // a request is being read or answered
  bool gone_ = false;
  std::size_t body_bytes_ = 0, answer_bytes_ = 0;  // that count as held
  std::string why_;
  std::function<void()> on_gone_;
};

HttpServer::HttpServer(asio::io_context& context,
                       HttpLimits limits,
                       HttpHandler handler,
                       HttpErrorReply error_reply)
    : context_(context),
      limits_(limits),
      handler_(std::move(handler)),
      error_reply_(std::move(error_reply)) {}

HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::listen(const std::string& host, std::uint16_t port) {
  const bool is_local = host == "localhost";
  for (const std::string& address :
       is_local ? std::vector<std::string>{"127.0.0.1", "::1"} : std::vector<std::string>{host}) {
    error_code error;
    const auto ip = asio::ip::make_address(address, error);
    if (error)
      throw FatalError(ErrorCode::kConfig,
                       "edge.host is \"" + host + "\"; it must be a numeric address or localhost");
    auto acceptor = std::make_shared<tcp::acceptor>(context_);
    const tcp::endpoint where(ip, port);
    acceptor->open(where.protocol(), error);
    if (!error && ip.is_v6()) acceptor->set_option(asio::ip::v6_only(is_local), error);
    if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor->bind(where, error);
    if (!error) acceptor->listen(1024, error);
    if (error && is_local && ip.is_v6()) break;  // a machine without IPv6
    if (error)
      throw FatalError(ErrorCode::kIo, "cannot take HTTP connections at " + address + " port " +
                                           std::to_string(port) + ": " + error.message());
    port = acceptor->local_endpoint().port();
    acceptors_.emplace_back(acceptor);
    asio::co_spawn(context_, accept(acceptor), asio::detached);
  }
  return port;
}

asio::awaitable<void> HttpServer::accept(std::shared_ptr<tcp::acceptor> acceptor) {
  asio::steady_timer pause(context_);
  while (acceptor->is_open()) {
    error_code error;
    tcp::socket socket = co_await acceptor->async_accept(into(error));
    if (error == asio::error::operation_aborted) co_return;
    if (error) {  // no descriptors left, most likely: others may end
      log_warning("a connection could not be taken", {{"reason", error.message()}});
      pause.expires_after(kAcceptPause);
      co_await pause.async_wait(into(error));
      continue;
    }
    if (connections_.size() >= limits_.max_connections) {
      ++counters_.turned_away;
      continue;  // closed
    }
    ++counters_.accepted;
    auto connection = std::make_shared<Connection>(*this, std::move(socket));
    asio::co_spawn(
        context_, [connection]() -> asio::awaitable<void> { co_await connection->run(); },
        [connection](const std::exception_ptr& failure) { end_of_connection(failure); });
  }
}

void HttpServer::drain() {
  if (std::exchange(draining_, true)) return;
  for (const auto& each : acceptors_) {
    error_code ignored;
    if (const auto acceptor = each.lock()) acceptor->close(ignored);
  }
  for (Connection* connection : connections_) connection->close_if_idle();
}

std::size_t HttpServer::n_connections() const { return connections_.size(); }

std::size_t HttpServer::n_exchanges() const {
  return static_cast<std::size_t>(
      std::count_if(connections_.begin(), connections_.end(),
                    [](const Connection* connection) { return connection->is_open(); }));
}

}  // namespace foretoken::edge
