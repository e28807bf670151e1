// Spans on their way to a collector, over real sockets: batches, second tries, and what is dropped.
#include "services/edge/span_exporter.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <deque>
#include <future>

#include "common/base/json.h"
#include "services/edge/http_server.h"
#include "services/edge/name_lookup.h"

namespace foretoken::edge {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace asio = boost::asio;

// Answers each POST with the next of `answers`, then with 200.
class Collector : public ::testing::Test {
 protected:
  void SetUp() override {
    server.emplace(
        context, HttpLimits{}, [this](HttpExchange& exchange) { return handle(exchange); },
        [](const HttpRequest&, unsigned, const std::string&) { return HttpReply(); });
    options.collector = {"127.0.0.1", std::to_string(server->listen("127.0.0.1", 0)), "/v1/traces"};
    options.headers = {{"Content-Type", "application/json"}, {"x-key", "secret"}};
    options.interval = 10ms;
    options.first_pause = 1ms;
    options.limit = options.last_moment = 1h;  // whatever else the machine does
    thread = std::thread([this] { context.run(); });
  }
  void TearDown() override {
    asio::post(context, [this] { server->drain(); });
    context.stop();
    thread.join();
  }

  asio::awaitable<void> handle(HttpExchange& exchange) {
    HttpReply reply;
    {
      const std::lock_guard lock(mutex);
      posts.push_back(exchange.request());
      if (!answers.empty()) {
        reply = answers.front();
        answers.pop_front();
      }
    }
    arrived.notify_all();
    if (reply.status == 0) {  // never
      asio::steady_timer timer(context, 1h);
      boost::system::error_code ignored;
      co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
    co_await exchange.reply(std::move(reply));
  }

  void wait_for_posts(std::size_t n) {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(arrived.wait_for(lock, 30s, [&] { return posts.size() >= n; }));
  }
  void answer_with(unsigned status, const std::string& body = "") {
    answers.push_back({.status = status, .body = body});
  }
  static std::vector<Span> spans(std::size_t n) {
    return std::vector<Span>(n, Span{.context = {.trace = {1, 2}, .span = 3}, .name = "a"});
  }
  std::vector<std::size_t> sizes() {
    const std::lock_guard lock(mutex);
    std::vector<std::size_t> sizes;
    for (const HttpRequest& post : posts) {
      const auto json = parse_json(post.body);
      sizes.push_back(json.ok() ? (*json)["resourceSpans"][0]["scopeSpans"][0]["spans"].size() : 0);
    }
    return sizes;
  }

  std::optional<HttpServer> server;  // outlives the context
  asio::io_context context{1};
  std::thread thread;
  std::mutex mutex;
  std::condition_variable arrived;
  std::vector<HttpRequest> posts;
  std::deque<HttpReply> answers;
  ExporterOptions options;
};

TEST_F(Collector, GetsSpansWithHeadersWithinTheInterval) {
  SpanExporter exporter(options);
  exporter.give(spans(2));
  wait_for_posts(1);
  exporter.stop();
  EXPECT_EQ("POST", posts[0].method);
  EXPECT_EQ("/v1/traces", posts[0].path);
  EXPECT_EQ("secret", posts[0].header("x-key"));
  EXPECT_EQ("application/json", posts[0].header("content-type"));
  EXPECT_THAT(sizes(), ElementsAre(2u));
  EXPECT_EQ(2u, exporter.counts().sent);
}

TEST_F(Collector, GetsAFullBatchAtOnceAndTheRestAtTheEnd) {
  options.interval = 1h;
  options.batch = 4;
  SpanExporter exporter(options);
  exporter.give(spans(3));
  exporter.give(spans(3));
  wait_for_posts(1);
  exporter.stop();
  EXPECT_THAT(sizes(), ElementsAre(4u, 2u));
  EXPECT_EQ(6u, exporter.counts().sent);
  EXPECT_EQ(0u, exporter.counts().dropped);
}

TEST_F(Collector, IsAskedAgainWhenItIsBusy) {
  for (const unsigned status : {429u, 502u, 503u, 504u}) answer_with(status);
  SpanExporter exporter(options);
  exporter.give(spans(1));
  wait_for_posts(5);
  exporter.stop();
  EXPECT_THAT(sizes(), ElementsAre(1u, 1u, 1u, 1u, 1u));
  EXPECT_EQ(1u, exporter.counts().sent);
  EXPECT_EQ(0u, exporter.counts().refused);
}

TEST_F(Collector, IsGivenUpAfterSomeTries) {
  options.most_tries = 2;
  answer_with(503), answer_with(503);
  SpanExporter exporter(options);
  exporter.give(spans(3));
  wait_for_posts(2);
  exporter.give(spans(1));
  wait_for_posts(3);
  exporter.stop();
  EXPECT_EQ(3u, exporter.counts().refused);
  EXPECT_EQ(1u, exporter.counts().sent);
}

TEST_F(Collector, IsNotAskedAgainAfterARefusal) {
  answer_with(400);
  SpanExporter exporter(options);
  exporter.give(spans(3));
  wait_for_posts(1);
  exporter.stop();
  EXPECT_THAT(sizes(), ElementsAre(3u));
  EXPECT_EQ(3u, exporter.counts().refused);
}

TEST_F(Collector, SaysWhatItRejectedOfABatch) {
  answer_with(200, R"({"partialSuccess": {"rejectedSpans": "2", "errorMessage": "no"}})");
  SpanExporter exporter(options);
  exporter.give(spans(3));
  wait_for_posts(1);
  exporter.stop();
  EXPECT_EQ(1u, exporter.counts().sent);
  EXPECT_EQ(2u, exporter.counts().refused);
}

TEST_F(Collector, ThatNeverAnswersCostsSpansAndNoTime) {
  answer_with(0);
  options.most_waiting = 10;
  options.last_moment = 50ms;
  SpanExporter exporter(options);
  exporter.give(spans(1));
  wait_for_posts(1);
  // give() has nothing to wait for: all of these return, and what has no room is counted.
  for (int i = 0; i < 1000; ++i) exporter.give(spans(1));
  EXPECT_EQ(990u, exporter.counts().dropped);
  exporter.stop();
  EXPECT_EQ(1000u, exporter.counts().dropped);
  EXPECT_EQ(0u, exporter.counts().sent);
}

TEST(SpanExporters, WithoutACollectorCountWhatIsRefused) {
  ExporterOptions options{.collector = {"127.0.0.1", "1", "/"}};
  options.interval = 1ms;
  options.first_pause = 1ms;
  options.most_tries = 3;
  options.last_moment = 1h;
  SpanExporter exporter(options);
  exporter.give(std::vector<Span>(2));
  exporter.stop();
  EXPECT_EQ(2u, exporter.counts().refused);
}

// What a look-up in a coroutine comes to.
Result<Endpoints> found_for(const std::string& host, Duration limit, const NameLookup& lookup) {
  asio::io_context context{1};
  const std::string port = "80";
  Result<Endpoints> found = Endpoints();
  const auto search = [&]() -> asio::awaitable<void> {
    found = co_await endpoints_of(context, host, port, steady_now() + limit, lookup);
  };
  asio::co_spawn(context, search, asio::detached);
  context.run();
  return found;
}

TEST(NameLookups, GiveTheAddressesOfAName) {
  const asio::ip::tcp::endpoint place(asio::ip::make_address("192.0.2.1"), 80);
  const auto found = found_for("collector", 1h, [&](const std::string& host, const std::string&) {
    return host == "collector" ? Result<Endpoints>(Endpoints{place}) : Endpoints();
  });
  ASSERT_TRUE(found.ok());
  EXPECT_THAT(*found, ElementsAre(place));
  const auto numeric = found_for("::1", 1h, [](const std::string&, const std::string&) {
    return Error{ErrorCode::kInternal, "a numeric address needs no look-up"};
  });
  ASSERT_TRUE(numeric.ok());
  EXPECT_EQ(numeric->front().address(), asio::ip::make_address("::1"));
}

TEST(NameLookups, ThatTakeTooLongAreLeftToThemselves) {
  // The look-up's own, too.
  const auto end = std::make_shared<std::promise<void>>();
  const auto ended = std::make_shared<std::promise<void>>();
  const auto found =
      found_for("collector", 1ms, [end, ended](const std::string&, const std::string&) {
        end->get_future().wait();
        ended->set_value();
        return Endpoints();
      });
  EXPECT_FALSE(found.ok());
  EXPECT_THAT(found.ok() ? "" : found.error().message, HasSubstr("in time"));
  end->set_value();  // the context and the coroutine are gone by now
  ended->get_future().wait();
}

TEST(HttpUrls, AreReadOrRefused) {
  const auto url = read_url("http://[::1]:80/a?b");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ("::1", url->host);
  EXPECT_EQ("/a?b", url->target);
  EXPECT_EQ("80", read_url("http://host")->port);
  EXPECT_EQ("/", read_url("http://host")->target);
  EXPECT_THAT(read_url("https://host").error().message, HasSubstr("TLS"));
}

}  // namespace
}  // namespace foretoken::edge
