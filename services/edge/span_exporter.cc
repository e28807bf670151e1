#include "services/edge/span_exporter.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "common/base/json.h"
#include "common/base/log.h"

namespace foretoken::edge {
namespace {

namespace asio = boost::asio;

// A collector that says one of these may take the same spans later.
bool is_worth_another_try(const Result<HttpAnswer>& answer) {
  if (!answer.ok()) return true;
  const unsigned status = answer->status;
  return status == 429 || status == 502 || status == 503 || status == 504;
}

bool is_taken(const Result<HttpAnswer>& answer) {
  return answer.ok() && answer->status >= 200 && answer->status < 300;
}

// {"partialSuccess": {"rejectedSpans": "5"}}
std::uint64_t rejected_in(const std::string& body) {
  const auto json = parse_json(body, {.max_bytes = std::size_t{64} << 10, .max_depth = 8});
  if (!json.ok() || !json->is_object()) return 0;
  const Json partial = json->value("partialSuccess", Json());
  if (!partial.is_object()) return 0;
  const Json rejected = partial.value("rejectedSpans", Json());
  if (rejected.is_number_unsigned()) return rejected.get<std::uint64_t>();
  return rejected.is_string() ? std::strtoull(rejected.get<std::string>().c_str(), nullptr, 10) : 0;
}

std::string reason_of(const Result<HttpAnswer>& answer) {
  return answer.ok() ? "status " + std::to_string(answer->status) : answer.error().message;
}

Duration pause_after(const Result<HttpAnswer>& answer, Duration usual, Duration longest) {
  if (answer.ok() && answer->retry_after) return std::min(longest, *answer->retry_after);
  return std::min(longest, usual);
}

}  // namespace

SpanExporter::SpanExporter(ExporterOptions options) : options_(std::move(options)) {
  asio::co_spawn(context_, run(), asio::detached);
  thread_ = std::thread([this] { context_.run(); });
}

SpanExporter::~SpanExporter() { stop(); }

void SpanExporter::give(std::vector<Span> spans) {
  bool is_due = false;
  {
    const std::lock_guard lock(mutex_);
    const std::size_t room = options_.most_waiting - waiting_.size();
    if (spans.size() > room) {
      dropped_ += spans.size() - room;
      spans.resize(room);
    }
    const std::size_t before = waiting_.size();
    std::move(spans.begin(), spans.end(), std::back_inserter(waiting_));
    is_due = before < options_.batch && waiting_.size() >= options_.batch;
  }
  if (is_due) asio::post(context_, [this] { timer_.cancel(); });
}

SpanCounts SpanExporter::counts() const { return {sent_, dropped_, refused_}; }

void SpanExporter::stop() {
  if (!thread_.joinable()) return;
  asio::steady_timer end(context_);
  asio::post(context_, [&] {
    stopping_ = true;
    timer_.cancel();
    end.expires_after(options_.last_moment);
    end.async_wait([this](const boost::system::error_code& error) {
      if (!error) context_.stop();
    });
  });
  thread_.join();
  const std::lock_guard lock(mutex_);
  dropped_ += waiting_.size();
  waiting_.clear();
}

bool SpanExporter::has_batch() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size() >= options_.batch;
}

std::vector<Span> SpanExporter::take_batch() {
  const std::lock_guard lock(mutex_);
  const auto end =
      waiting_.begin() + static_cast<std::ptrdiff_t>(std::min(waiting_.size(), options_.batch));
  std::vector<Span> batch(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(end));
  waiting_.erase(waiting_.begin(), end);
  return batch;
}

asio::awaitable<void> SpanExporter::pause(Duration time) {
  boost::system::error_code ignored;
  timer_.expires_after(time);
  co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

asio::awaitable<void> SpanExporter::wait_for_batch() {
  const TimePoint until = steady_now() + options_.interval;
  while (!stopping_ && !has_batch() && steady_now() < until) co_await pause(until - steady_now());
}

asio::awaitable<void> SpanExporter::run() {
  while (true) {
    co_await wait_for_batch();
    auto batch = take_batch();
    const bool is_empty = batch.empty();
    if (!is_empty) co_await send(std::move(batch));
    if (stopping_ && is_empty) break;
  }
  context_.stop();
}

asio::awaitable<void> SpanExporter::send(std::vector<Span> batch) {
  const std::string body = otlp_json(batch, options_.resource, options_.version);
  Duration usual = options_.first_pause;
  for (int n_tries = 1;; ++n_tries) {
    std::string copy = body;
    const auto answer = co_await http_post(context_, options_.collector, options_.headers,
                                           std::move(copy), options_.limit);
    const bool is_over =
        is_taken(answer) || !is_worth_another_try(answer) || n_tries >= options_.most_tries;
    if (is_over || stopping_) co_return note_outcome(batch.size(), answer);
    const TimePoint until = steady_now() + pause_after(answer, usual, options_.longest_pause);
    while (!stopping_ && steady_now() < until) co_await pause(until - steady_now());
    usual *= 2;
  }
}

void SpanExporter::note_outcome(std::size_t n_spans, const Result<HttpAnswer>& answer) {
  if (is_taken(answer)) {
    const std::uint64_t rejected = std::min<std::uint64_t>(n_spans, rejected_in(answer->body));
    sent_ += n_spans - rejected;
    refused_ += rejected;
    if (std::exchange(was_refused_, false)) log_info("the collector takes spans again");
    return;
  }
  refused_ += n_spans;
  if (!std::exchange(was_refused_, true))
    log_warning("the collector takes no spans; they are dropped and counted",
                {{"reason", reason_of(answer)}});
}

}  // namespace foretoken::edge
