// Appends to a memory's log on a thread of its own, so that the caller never waits for a disk. The
// queue has a bound: a disk that is full, or slower than what comes for long, ends writing for
// good, and the memory goes on without its log. A log with a hole would join texts that never stood
// together. All but the writing itself is called from one thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/memory_log/log_folder.h"

namespace foretoken {

class LogWriter {
 public:
  static constexpr std::size_t kMaxWaitingTokens = std::size_t{4} << 20;

  explicit LogWriter(LogFolder folder);
  ~LogWriter();  // writes what waits

  // Waits for nothing. Tokens are copied.
  void append(std::uint64_t salt, const LogRecord& record);
  // Waits until all is with the operating system: for tests.
  void flush();

  // Why nothing is written any more; empty while it is.
  std::string why_off() const;

 private:
  struct Waiting {
    std::uint64_t salt = 0;
    std::uint64_t document = 0;
    std::vector<TokenId> tokens;
  };

  void run();
  void write(const std::vector<Waiting>& records);
  void turn_off(std::string why);  // with the mutex held

  LogFolder folder_;  // of the thread
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  bool busy_ = false;
  std::string why_off_;
  std::size_t n_waiting_tokens_ = 0;
  std::vector<Waiting> waiting_;
  std::thread thread_;
};

}  // namespace foretoken
