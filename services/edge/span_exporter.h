// Sends spans to a collector, on a thread of its own, in batches. A request never waits for it:
// what finds no room is dropped and counted, and so is what the collector does not take.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "services/edge/asio.h"
#include "services/edge/http_client.h"
#include "services/edge/otlp.h"

namespace foretoken::edge {

struct ExporterOptions {
  HttpUrl collector;
  HttpHeaders headers;
  ResourceAttributes resource;
  std::string version;

  std::size_t batch = 512;                      // spans of one POST
  Duration interval = std::chrono::seconds(5);  // fewer wait no longer
  std::size_t most_waiting = 4096;
  Duration limit = std::chrono::seconds(10);  // of one POST
  int most_tries = 5;
  Duration first_pause = std::chrono::seconds(1);  // between two tries; then twice as long each
  Duration longest_pause = std::chrono::seconds(30);
  Duration last_moment = std::chrono::seconds(1);  // at the end, for what is left
};

struct SpanCounts {
  std::uint64_t sent = 0;
  std::uint64_t dropped = 0;  // no room, or left at the end
  std::uint64_t refused = 0;  // by the collector, or it did not answer
};

class SpanExporter {
 public:
  explicit SpanExporter(ExporterOptions options);
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // From any thread; never waits.
  void give(std::vector<Span> spans);
  SpanCounts counts() const;
  // Sends what is left, for a moment. Nothing is sent afterwards.
  void stop();

 private:
  boost::asio::awaitable<void> run();
  boost::asio::awaitable<void> wait_for_batch();
  boost::asio::awaitable<void> pause(Duration time);
  boost::asio::awaitable<void> send(std::vector<Span> batch);
  std::vector<Span> take_batch();
  bool has_batch() const;
  void note_outcome(std::size_t n_spans, const Result<HttpAnswer>& answer);

  const ExporterOptions options_;
  mutable std::mutex mutex_;
  std::vector<Span> waiting_;  // guarded by mutex_
  std::atomic<std::uint64_t> sent_ = 0, dropped_ = 0, refused_ = 0;

  // The thread's own, but for posts.
  boost::asio::io_context context_{1};
  boost::asio::steady_timer timer_{context_};
  bool stopping_ = false;
  bool was_refused_ = false;  // said in the log once, until it works again
  std::thread thread_;
};

}  // namespace foretoken::edge
