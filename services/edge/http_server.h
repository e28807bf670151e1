// HTTP/1.1 for the edge: one thread, a coroutine for each connection, limits on everything that
// comes from outside (docs/operations.md, "HTTP"). It knows no route and no model: a handler gets
// each request that was read whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "services/edge/asio.h"
#include "services/edge/http_types.h"

namespace foretoken::edge {

struct HttpLimits {
  std::size_t max_connections = 4096;
  std::size_t max_body_bytes = std::size_t{1} << 20;
  // Bodies that are held at a time, or what was made of them, and answers, of all connections
  // together; those of small_body_bytes or less are free, so that large ones cannot keep them out.
  std::size_t max_held_bytes = std::size_t{64} << 20;
  std::size_t small_body_bytes = std::size_t{16} << 10;
  std::size_t max_header_bytes = std::size_t{16} << 10;
  std::size_t max_target_bytes = std::size_t{8} << 10;
  std::size_t max_fields = 64;
  Duration idle = std::chrono::seconds(15);         // between two requests
  Duration header = std::chrono::seconds(10);       // from its first byte
  Duration body = std::chrono::seconds(30);         // all of it
  Duration write_stall = std::chrono::seconds(30);  // of a client that takes nothing
};

// What happened so far; any number may be shown as a metric.
struct HttpCounters {
  std::uint64_t accepted = 0, turned_away = 0;  // connections; the latter at max_connections
  std::uint64_t requests = 0, malformed = 0, timed_out = 0, abandoned = 0;
  std::uint64_t overloaded = 0;  // at max_held_bytes

  HttpCounters& operator+=(const HttpCounters& more);
};

// Whether what an exchange keeps has room beside what the others keep.
enum class HeldRoom : std::uint8_t {
  kFree,
  kTaken,  // as much of it as is missing is free again when others end
  kNever,  // it is more than max_held_bytes by itself
};

// One request and the way to its answer: either one reply, or a stream of events.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;
  // The body has become requests of so many bytes and is not needed any more: it is let go, and
  // they count in its place if they are more. False: they have no room beside what is held.
  virtual bool replace_body(std::size_t n_bytes) = 0;
  // So much is kept of the answer from now on, beside the body. The text of a reply counts in its
  // place. What is less than before has room.
  virtual HeldRoom hold_answer(std::size_t n_bytes) = 0;
  virtual boost::asio::awaitable<void> reply(HttpReply reply) = 0;
  // A header that its reply will have, whichever that is.
  virtual void add_header(std::string name, std::string value) = 0;
  // Of the reply that was begun; 0: none was.
  virtual unsigned status() const = 0;
  // Server-sent events: the header, any bytes, the end. False: the client is gone.
  virtual boost::asio::awaitable<bool> begin_stream(HttpHeaders headers) = 0;
  virtual boost::asio::awaitable<bool> write(std::string bytes) = 0;
  // Not whole: the connection is closed without the end of the stream.
  virtual boost::asio::awaitable<void> end_stream(bool is_whole) = 0;
  virtual bool is_gone() const = 0;
  // Called once when the client goes away before the answer is whole; {} = not any more.
  virtual void on_gone(std::function<void()> callback) = 0;
};

using HttpHandler = std::function<boost::asio::awaitable<void>(HttpExchange&)>;
// What an error that the server itself finds is answered with. The request has what was read of it:
// its path is "" where there was none, its id is always there, and its body never.
using HttpErrorReply =
    std::function<HttpReply(const HttpRequest& request, unsigned status, const std::string& why)>;

// It outlives the context, whose end ends the connections.
class HttpServer {
 public:
  HttpServer(boost::asio::io_context& context,
             HttpLimits limits,
             HttpHandler handler,
             HttpErrorReply error_reply);
  ~HttpServer();

  // Takes connections at a numeric address, or at "localhost": 127.0.0.1 and, where there is one,
  // ::1. Returns the port. Throws FatalError.
  std::uint16_t listen(const std::string& host, std::uint16_t port);
  // No new connections; those that wait for a request are closed, the others after their answer:
  // a request whose first byte has come is read to its end, in the time that the limits give it.
  void drain();
  std::size_t n_connections() const;
  std::size_t n_exchanges() const;  // requests that are being read or answered
  std::size_t n_held_bytes() const { return held_bytes_; }
  const HttpCounters& counters() const { return counters_; }

 private:
  class Connection;
  boost::asio::awaitable<void> accept(std::shared_ptr<boost::asio::ip::tcp::acceptor> acceptor);

  boost::asio::io_context& context_;
  const HttpLimits limits_;
  const HttpHandler handler_;
  const HttpErrorReply error_reply_;
  HttpCounters counters_;
  // The coroutines own them, and end with the context.
  std::vector<std::weak_ptr<boost::asio::ip::tcp::acceptor>> acceptors_;
  std::list<Connection*> connections_;
  std::size_t held_bytes_ = 0;  // of bodies and answers
  bool draining_ = false;
};

}  // namespace foretoken::edge
