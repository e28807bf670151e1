// HTTP from outside, over real sockets: what is answered, what is refused with which status, and
// that one connection's end is no other's.
#include "services/edge/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/use_future.hpp>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>

#include "services/edge/edge.h"

namespace foretoken::edge {
namespace {

using namespace std::chrono_literals;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace asio = boost::asio;

// More than the kernel holds of a connection.
constexpr std::size_t kLargeBytes = std::size_t{64} << 20;

// Answers with what it got; /stream with three events; /large and /large-event with kLargeBytes, as
// a body and as an event; /wait when the client is gone; /grow/N says whether there is room for N
// bytes in place of the body, and answers when the client is gone; /answer/N the same of an answer
// of N bytes; /starve has no memory, /err throws, with a stream begun in /starve/late and
// /err/late.
struct Served : ::testing::Test {
  void SetUp() override {
    HttpLimits limits;
    limits.header = hold_headers_for;
    limits.body = hold_bodies_for;
    limits.idle = 1h;
    limits.write_stall = wait_for_readers;
    limits.max_connections = 8;
    limits.max_held_bytes = 100'000;
    limits.small_body_bytes = 1000;
    server.emplace(
        context, limits, [this](HttpExchange& exchange) { return handle(exchange); },
        [](const HttpRequest& request, unsigned status, const std::string& why) {
          return HttpReply{.status = status,
                           .body = std::to_string(status) + " " + why + " for " + request.path,
                           .headers = {{"x-request-id", request.id}}};
        });
    port = server->listen("127.0.0.1", 0);
    thread = std::thread([this] { context.run(); });
  }
  void TearDown() override {
    asio::post(context, [this] { server->drain(); });
    context.stop();
    thread.join();
  }

  asio::awaitable<void> handle(HttpExchange& exchange) {
    const HttpRequest& request = exchange.request();
    if (request.path == "/stream") {
      (void)co_await exchange.begin_stream({});
      for (const char* each : {"data: 1\n\n", "data: 2\n\n", "data: 3\n\n"}) {
        std::string event = each;
        (void)co_await exchange.write(std::move(event));
      }
      co_return co_await exchange.end_stream(true);
    }
    if (request.path.starts_with("/large")) {
      exchange.on_gone([&] { ++n_gone; });
      std::string large(kLargeBytes, 'x');
      if (request.path == "/large") {
        HttpReply reply;
        reply.body = std::move(large);
        co_return co_await exchange.reply(std::move(reply));
      }
      (void)co_await exchange.begin_stream({});
      (void)co_await exchange.write(std::move(large));
      co_return co_await exchange.end_stream(true);
    }
    if (request.path.starts_with("/grow/")) {
      const bool has_room = exchange.replace_body(std::stoul(request.path.substr(6)));
      if (!has_room) {
        HttpReply full{.status = 503};
        co_return co_await exchange.reply(std::move(full));
      }
      ++n_grown;
    }
    if (request.path.starts_with("/answer/")) {
      const HeldRoom room = exchange.hold_answer(std::stoul(request.path.substr(8)));
      if (room != HeldRoom::kFree) {
        HttpReply refusal{.status = room == HeldRoom::kNever ? 400U : 503U};
        co_return co_await exchange.reply(std::move(refusal));
      }
      ++n_grown;
    }
    if (request.path.ends_with("/late")) (void)co_await exchange.begin_stream({});
    if (request.path.starts_with("/starve")) throw std::bad_alloc();
    if (request.path.starts_with("/err")) throw std::runtime_error("a fault");
    if (request.path == "/wait" || request.path.starts_with("/grow/") ||
        request.path.starts_with("/answer/")) {
      asio::steady_timer timer(context, 30s);
      exchange.on_gone([&] {
        ++n_gone;
        timer.cancel();
      });
      ++n_waiting;
      boost::system::error_code ignored;
      co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      co_return;
    }
    HttpReply reply;
    reply.body = request.method + " " + request.path + " " + request.query + " " + request.body;
    reply.content_type = "text/plain";
    co_await exchange.reply(std::move(reply));
  }

  int open() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  static void write(int fd, const std::string& bytes) {
    std::size_t sent = 0;
    while (sent < bytes.size()) {
      const auto n = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<std::size_t>(n);
    }
  }
  // Until the server closes the connection.
  static std::string read_all(int fd) {
    std::string bytes;
    char some[4096];
    for (ssize_t n = 0; (n = ::recv(fd, some, sizeof some, 0)) > 0;)
      bytes.append(some, static_cast<std::size_t>(n));
    ::close(fd);
    return bytes;
  }
  std::string ask(const std::string& bytes) {
    const int fd = open();
    write(fd, bytes);
    return read_all(fd);
  }

  HttpCounters counters() {
    return asio::post(context, asio::use_future([this] { return server->counters(); })).get();
  }

  // No machine is that slow.
  Duration hold_headers_for = 1h, hold_bodies_for = 1h, wait_for_readers = 1h;
  std::optional<HttpServer> server;  // outlives the context
  asio::io_context context{1};
  std::uint16_t port = 0;
  std::thread thread;
  std::atomic<int> n_gone{0}, n_waiting{0}, n_grown{0};
};

const std::string kClose = "Host: x\r\nConnection: close\r\n";

TEST_F(Served, ARequestIsReadWholeAndAnswered) {
  const std::string answer =
      ask("POST /a%2Fb?c=d HTTP/1.1\r\n" + kClose + "Content-Length: 4\r\n\r\nbody");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, EndsWith("POST /a/b c=d body"));
}

TEST_F(Served, AChunkedBodyIsPutTogether) {
  EXPECT_THAT(ask("POST / HTTP/1.1\r\n" + kClose +
                  "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"),
              EndsWith("POST /  abc"));
}

TEST_F(Served, RequestsOnOneConnectionAreAnsweredInOrder) {
  const std::string answer =
      ask("GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\n" + kClose + "\r\n");
  EXPECT_LT(answer.find("GET /1"), answer.find("GET /2"));
  EXPECT_NE(answer.find("GET /2"), std::string::npos);
}

TEST_F(Served, HeadHasTheHeaderAlone) {
  const std::string answer = ask("HEAD /x HTTP/1.1\r\n" + kClose + "\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Length: "));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

// Of a first line that is beyond the limit nothing is parsed.
TEST_F(Served, HeadThatIsRefusedHasTheHeaderAlone) {
  for (const std::string& rest : {"/" + std::string(20'000, 'a') + " HTTP/1.1\r\n\r\n",
                                  std::string("/ HTTP/1.1\r\nno field\r\n\r\n")}) {
    const std::string answer = ask("HEAD " + rest);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 4"));
    EXPECT_THAT(answer, HasSubstr("Content-Length: "));
    EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
  }
  EXPECT_THAT(ask("GET / HTTP/1.1\r\nHEAD x: no field\r\n\r\n"), Not(EndsWith("\r\n\r\n")));
}

TEST_F(Served, AStreamHasItsEventsInChunksAndAnEnd) {
  const std::string answer = ask("GET /stream HTTP/1.1\r\n" + kClose + "\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/event-stream"));
  EXPECT_THAT(answer,
              HasSubstr("9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n9\r\ndata: 3\n\n\r\n0\r\n\r\n"));
}

TEST_F(Served, AStreamOfHttp10EndsWithItsConnection) {
  const std::string answer = ask("GET /stream HTTP/1.0\r\n\r\n");
  EXPECT_THAT(answer, EndsWith("data: 1\n\ndata: 2\n\ndata: 3\n\n"));
  EXPECT_EQ(answer.find("chunked"), std::string::npos);
}

TEST_F(Served, WhatIsNoRequestIsRefusedWithItsStatus) {
  const std::string long_line(20'000, 'a');
  std::string many_fields;
  for (int i = 0; i < 70; ++i) many_fields += "X-" + std::to_string(i) + ": 1\r\n";
  for (const auto& [bytes, status] : {
           std::pair<std::string, std::string>{"nonsense\r\n\r\n", "400"},
           {"GET / HTTP/1.1\r\n\r\n", "400"},  // no host
           {"GET / HTTP/3.0\r\nHost: x\r\n\r\n", "400"},
           {"GET nowhere HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
           {"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
           {"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
           {"GET /" + long_line + " HTTP/1.1\r\nHost: x\r\n\r\n", "431"},
           {"GET /" + long_line.substr(0, 9000) + " HTTP/1.1\r\nHost: x\r\n\r\n", "414"},
           {"GET / HTTP/1.1\r\nHost: x\r\nX: " + long_line + "\r\n\r\n", "431"},
           {"GET / HTTP/1.1\r\nHost: x\r\n" + many_fields + "\r\n", "431"},
           {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n", "413"},
           {"POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
            "415"},
           // one request inside another
           {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: "
            "chunked\r\n\r\n0\r\n\r\n",
            "400"},
           {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
            "400"},
           {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
            "chunked\r\n\r\n0\r\n\r\n",
            "400"},
           {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "400"},
           {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "400"},
           {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "400"},
           {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1x\r\n\r\nx", "400"},
           {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", "400"},
           {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"},
           {"GET / HTTP/1.1\nHost: x\n\n", "400"},
           {"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: a\r\n b\r\n\r\n", "200"},
       }) {
    const std::string answer = ask(bytes);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 " + status)) << bytes.substr(0, 120);
    EXPECT_TRUE(status == "200" || answer.find("Connection: close") != std::string::npos)
        << bytes.substr(0, 120);
  }
}

TEST_F(Served, ARefusalHasThePathAndTheIdThatWereRead) {
  const std::string head = " HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine-1\r\n";
  const std::string long_line(20'000, 'a');
  for (const auto& [bytes, path, id] : {
           std::tuple<std::string, std::string, std::string>{
               "POST /v1/messages?beta=true" + head + "Content-Length: 2000000\r\n\r\n",
               "/v1/messages", "mine-1"},
           {"POST /a%2Fb" + head + "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", "/a/b",
            "mine-1"},
           {"POST /a" + head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", "/a", "mine-1"},
           {"GET /a" + head + "X: " + long_line + "\r\n\r\n", "/a", "mine-1"},
           {"GET /a" + head + "no field\r\n\r\n", "/a", "mine-1"},
           {"GET /a HTTP/1.1\r\n\r\n", "/a", "req-"},  // no host
           {"GET /a HTTP/1.1\r\nX-Request-Id: " + long_line.substr(0, 200) + "\r\n\r\n", "/a",
            "req-"},
           {"GET /%zz" + head + "\r\n", "", "mine-1"},
           {"GET /a HTTP/3.0\r\nHost: x\r\n\r\n", "", "req-"},
           {"nonsense\r\n\r\n", "", "req-"},
           // of its own request and not of the one before it
           {"GET /a" + head + "\r\nnonsense\r\n\r\n", "", "req-"},
       }) {
    const std::string answer = ask(bytes);
    EXPECT_THAT(answer, HasSubstr("\r\nx-request-id: " + id)) << bytes.substr(0, 120);
    EXPECT_THAT(answer, EndsWith(" for " + path)) << bytes.substr(0, 120);
  }
}

TEST(ErrorReply, IsOfTheProtocolOfThePath) {
  HttpError overloaded = http_error(503, "full");
  overloaded.retry_after_ms = 1000;
  const auto reply_at = [&](const char* path) {
    HttpRequest request;
    request.path = path;
    request.id = "mine-1";
    return error_reply_to(request, overloaded, {{"x-request-id", request.id}});
  };
  const HttpHeaders headers{
      {"x-request-id", "mine-1"}, {"Retry-After", "1"}, {"retry-after-ms", "1000"}};
  for (const char* path : {"/v1/chat/completions", "/nowhere", ""}) {
    const HttpReply reply = reply_at(path);
    EXPECT_EQ(reply.status, 503U) << path;
    EXPECT_EQ(Json::parse(reply.body)["error"]["message"], "full") << path;
    EXPECT_EQ(reply.headers, headers) << path;
  }
  for (const char* path : {"/v2/models/tiny/generate", "/api/show"}) {
    const HttpReply reply = reply_at(path);
    EXPECT_EQ(reply.status, 503U) << path;
    EXPECT_EQ(reply.body, R"({"error":"full"})") << path;
    EXPECT_EQ(reply.headers, headers) << path;
  }
  const HttpReply reply = reply_at("/v1/messages");
  EXPECT_EQ(reply.status, 529U);
  EXPECT_EQ(Json::parse(reply.body)["type"], "error");
  EXPECT_EQ(Json::parse(reply.body)["request_id"], "mine-1");
  EXPECT_EQ(reply.headers, (HttpHeaders{{"x-request-id", "mine-1"},
                                        {"request-id", "mine-1"},
                                        {"Retry-After", "1"},
                                        {"retry-after-ms", "1000"}}));
}

struct ServedWithShortHeaders : Served {
  ServedWithShortHeaders() { hold_headers_for = 1ms; }
};

struct ServedWithShortBodies : Served {
  ServedWithShortBodies() { hold_bodies_for = 1ms; }
};

struct ServedToTheFast : Served {
  ServedToTheFast() { wait_for_readers = 1ms; }
};

struct ServedToTheSlow : Served {
  ServedToTheSlow() { wait_for_readers = 3s; }
};

TEST_F(ServedToTheFast, AClientThatTakesNothingOfAnAnswerIsCut) {
  for (const std::string path : {"/large", "/large-event"}) {
    const int fd = open(), n_before = n_gone;
    write(fd, "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    while (n_gone == n_before) std::this_thread::yield();
    EXPECT_LT(read_all(fd).size(), kLargeBytes) << path;
  }
}

// It reads for longer than a client may take nothing.
TEST_F(ServedToTheSlow, AClientThatIsSlowWithAnAnswerGetsAllOfIt) {
  std::vector<int> clients;
  for (const std::string path : {"/large", "/large-event"}) {
    clients.push_back(open());
    write(clients.back(), "GET " + path + " HTTP/1.1\r\n" + kClose + "\r\n");
  }
  std::vector<std::string> answers(clients.size());
  std::string some(kLargeBytes / 64, '\0');
  for (const auto end = steady_now() + wait_for_readers + 1s; steady_now() < end;) {
    for (std::size_t i = 0; i < clients.size(); ++i) {
      const auto n = ::recv(clients[i], some.data(), some.size(), MSG_DONTWAIT);
      if (n > 0) answers[i].append(some, 0, static_cast<std::size_t>(n));
    }
    std::this_thread::sleep_for(100ms);  // the slowness of this client: it is what the test is of
  }
  for (std::size_t i = 0; i < clients.size(); ++i) {
    EXPECT_LT(answers[i].size(), kLargeBytes) << "it was not slow";
    answers[i] += read_all(clients[i]);
    EXPECT_GE(answers[i].size(), kLargeBytes);
  }
  EXPECT_THAT(answers.front(), EndsWith("x"));
  EXPECT_THAT(answers.back(), EndsWith("x\r\n0\r\n\r\n"));
  EXPECT_EQ(n_gone, 0);
}

TEST_F(ServedWithShortHeaders, AClientThatIsSlowWithItsHeaderIsClosed) {
  const int fd = open();
  write(fd, "GET / HT");
  EXPECT_EQ(read_all(fd), "");
}

TEST_F(ServedWithShortBodies, AClientThatIsSlowWithItsBodyIsClosed) {
  const int fd = open();
  write(fd, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
  EXPECT_EQ(read_all(fd), "");
  EXPECT_THAT(ask("GET / HTTP/1.1\r\n" + kClose + "\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST_F(Served, AClientThatLeavesWhileItWaitsIsNoticed) {
  const int fd = open();
  write(fd, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  while (n_waiting == 0) std::this_thread::yield();
  EXPECT_EQ(n_gone, 0);
  ::close(fd);
  while (n_gone == 0) std::this_thread::yield();
}

TEST_F(Served, AClientThatLeavesBehindItsNextRequestIsNoticed) {
  const int fd = open();
  write(fd, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n");
  while (n_waiting == 0) std::this_thread::yield();
  ::close(fd);
  while (n_gone == 0) std::this_thread::yield();
  const int later = open();
  write(later, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  while (n_waiting == 1) std::this_thread::yield();
  write(later, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  ::close(later);
  while (n_gone == 1) std::this_thread::yield();
  EXPECT_EQ(n_waiting, 2);  // what stood behind the requests was not answered
  EXPECT_THAT(ask("GET / HTTP/1.1\r\n" + kClose + "\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST_F(Served, BodiesTogetherHaveALimitThatSmallOnesPass) {
  const auto request = [](const std::string& path, std::size_t n_bytes) {
    return "POST " + path + " HTTP/1.1\r\n" + kClose +
           "Content-Length: " + std::to_string(n_bytes) + "\r\n\r\n" + std::string(n_bytes, 'x');
  };
  const int holder = open();
  write(holder, request("/wait", 60'000));
  while (n_waiting == 0) std::this_thread::yield();
  EXPECT_THAT(ask(request("/", 60'000)), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(ask(request("/", 1000)), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask(request("/", 30'000)), StartsWith("HTTP/1.1 200"));
  ::close(holder);
  while (n_gone == 0) std::this_thread::yield();
  EXPECT_THAT(ask(request("/", 60'000)), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(counters().overloaded, 1U);
  EXPECT_EQ(counters().malformed, 0U);
  EXPECT_THAT(ask("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_EQ(counters().overloaded, 1U);
  EXPECT_EQ(counters().malformed, 1U);
}

TEST_F(Served, WhatABodyBecomesIsHeldInItsPlace) {
  const auto request = [](const std::string& path, std::size_t n_bytes) {
    return "POST " + path + " HTTP/1.1\r\n" + kClose +
           "Content-Length: " + std::to_string(n_bytes) + "\r\n\r\n" + std::string(n_bytes, 'x');
  };
  const int small = open(), large = open();
  write(small, request("/grow/60000", 10));
  while (n_grown == 0) std::this_thread::yield();
  EXPECT_THAT(ask(request("/grow/60000", 10)), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(ask(request("/grow/1", 60'000)), StartsWith("HTTP/1.1 503"));
  write(large, request("/grow/1", 30'000));  // it is not counted as less than its body
  while (n_grown == 1) std::this_thread::yield();
  EXPECT_THAT(ask(request("/", 20'000)), StartsWith("HTTP/1.1 503"));
  ::close(small);
  ::close(large);
  while (n_gone < 2) std::this_thread::yield();
  EXPECT_THAT(ask(request("/", 90'000)), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(counters().overloaded, 3U);
  EXPECT_EQ(counters().malformed, 0U);
}

TEST_F(Served, AnswersAreHeldBesideBodies) {
  const auto request = [](const std::string& path, std::size_t n_bytes) {
    return "POST " + path + " HTTP/1.1\r\n" + kClose +
           "Content-Length: " + std::to_string(n_bytes) + "\r\n\r\n" + std::string(n_bytes, 'x');
  };
  EXPECT_THAT(ask(request("/answer/100001", 10)), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask(request("/answer/60000", 50'000)), StartsWith("HTTP/1.1 400"));
  const int holder = open();
  write(holder, request("/answer/60000", 10));
  while (n_grown == 0) std::this_thread::yield();
  EXPECT_THAT(ask(request("/answer/60000", 10)), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(ask(request("/", 60'000)), StartsWith("HTTP/1.1 503"));
  const int small = open();
  write(small, request("/answer/1000", 10));  // large ones do not keep it out
  while (n_grown == 1) std::this_thread::yield();
  ::close(holder);
  ::close(small);
  while (n_gone < 2) std::this_thread::yield();
  EXPECT_THAT(ask(request("/", 90'000)), StartsWith("HTTP/1.1 200"));
}

TEST_F(Served, ARequestWhoseHandlerThrowsFailsAlone) {
  EXPECT_THAT(ask("GET /starve HTTP/1.1\r\nHost: x\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("Connection: close")));
  EXPECT_THAT(ask("GET /err HTTP/1.1\r\nHost: x\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 500"), HasSubstr("internal error"),
                    HasSubstr("Connection: close"), Not(HasSubstr("a fault"))));
  for (const std::string path : {"/starve/late", "/err/late"})
    EXPECT_THAT(ask("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"),
                AllOf(StartsWith("HTTP/1.1 200"), Not(EndsWith("0\r\n\r\n"))));
  EXPECT_THAT(ask("GET / HTTP/1.1\r\n" + kClose + "\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST_F(Served, ARequestThatStillArrivesWhenItDrainsIsAnswered) {
  const int idle = open(), fd = open();
  write(fd, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n" + std::string(2000, 'x'));
  const auto on_server = [&](auto step) {
    return asio::post(context, asio::use_future([&] { return step(*server); })).get();
  };
  while (on_server([](HttpServer& each) { return each.n_held_bytes(); }) < 2000)
    std::this_thread::yield();
  EXPECT_EQ(on_server([](HttpServer& each) {
              each.drain();
              return each.n_exchanges();
            }),
            1U);
  EXPECT_EQ(read_all(idle), "");
  write(fd, std::string(2000, 'x'));
  const std::string answer = read_all(fd);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("Connection: close"));
  EXPECT_THAT(answer, EndsWith(std::string(4000, 'x')));
}

TEST_F(Served, BeyondTheLimitConnectionsAreClosedAtOnce) {
  std::vector<int> waiting;
  for (int i = 0; i < 8; ++i) {
    waiting.push_back(open());
    write(waiting.back(), "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  }
  while (n_waiting < 8) std::this_thread::yield();
  EXPECT_EQ(read_all(open()), "");
  for (const int fd : waiting) ::close(fd);
  while (n_gone < 8) std::this_thread::yield();
  EXPECT_THAT(ask("GET / HTTP/1.1\r\n" + kClose + "\r\n"), StartsWith("HTTP/1.1 200"));
}

}  // namespace
}  // namespace foretoken::edge
