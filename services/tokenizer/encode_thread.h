// One encoding at a time on a thread of its own, so that decoding goes on beside it. The thread
// owns no state of the service: a question goes in, an answer comes out. Everything but the work
// itself is called from the work thread.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "common/messages/messages.h"
#include "services/tokenizer/encoder.h"

namespace foretoken {

class EncodeThread {
 public:
  // `finished` is called on the thread after each answer. The encoder must outlive this.
  EncodeThread(const PromptEncoder& encoder, std::function<void()> finished);
  ~EncodeThread();  // waits for the encoding that runs

  // Nothing may be running or unclaimed.
  void start(wire::Encode question);
  // The answer, once, when it is there. Throws what the encoder threw.
  std::optional<Result<wire::Encoded>> take();

 private:
  void run();

  const PromptEncoder& encoder_;
  std::function<void()> finished_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::optional<wire::Encode> question_;
  std::optional<Result<wire::Encoded>> answer_;
  std::exception_ptr failure_;  // instead of an answer
  std::thread thread_;
};

}  // namespace foretoken
