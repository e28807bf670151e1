#include "common/memory_log/log_writer.h"

#include <algorithm>
#include <utility>

namespace foretoken {
namespace {

constexpr std::size_t kRecordTokens = 16;  // what an entry of the queue takes besides its tokens

}  // namespace

LogWriter::LogWriter(LogFolder folder) : folder_(std::move(folder)), thread_([this] { run(); }) {}

LogWriter::~LogWriter() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LogWriter::append(std::uint64_t salt, const LogRecord& record) {
  bool was_empty = false;
  {
    const std::lock_guard lock(mutex_);
    if (!why_off_.empty()) return;
    was_empty = waiting_.empty();
    n_waiting_tokens_ += record.tokens.size() + kRecordTokens;
    if (n_waiting_tokens_ > kMaxWaitingTokens)
      return turn_off("the disk is too slow: " + std::to_string(kMaxWaitingTokens) +
                      " tokens wait for it");
    waiting_.push_back(
        {salt, record.document, std::vector<TokenId>(record.tokens.begin(), record.tokens.end())});
  }
  if (was_empty) changed_.notify_all();  // with more in the queue the thread does not wait
}

void LogWriter::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty() && !busy_; });
}

std::string LogWriter::why_off() const {
  const std::lock_guard lock(mutex_);
  return why_off_;
}

void LogWriter::turn_off(std::string why) {
  why_off_ = std::move(why);
  waiting_ = {};
}

void LogWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::vector<Waiting> records = std::exchange(waiting_, {});
    n_waiting_tokens_ = 0;
    busy_ = true;
    lock.unlock();
    write(records);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void LogWriter::write(const std::vector<Waiting>& records) {
  for (const Waiting& record : records) {
    std::span<const TokenId> rest = record.tokens;
    do {  // once for a document that has ended
      const auto part = rest.first(std::min(rest.size(), kMaxRecordTokens));
      rest = rest.subspan(part.size());
      const auto written =
          folder_.append(record.salt, {.document = record.document, .tokens = part});
      if (written.ok()) continue;
      const std::lock_guard lock(mutex_);
      return turn_off(written.error().message);
    } while (!rest.empty());
  }
}

}  // namespace foretoken
