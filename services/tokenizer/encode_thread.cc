#include "services/tokenizer/encode_thread.h"

#include <sys/resource.h>
#include <unistd.h>

#include <utility>

#include "common/base/check.h"

namespace foretoken {
namespace {

// Below the thread that decodes. Where the kernel refuses it, both are equal.
constexpr int kNice = 10;

}  // namespace

EncodeThread::EncodeThread(const PromptEncoder& encoder, std::function<void()> finished)
    : encoder_(encoder), finished_(std::move(finished)), thread_([this] { run(); }) {}

EncodeThread::~EncodeThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void EncodeThread::start(wire::Encode question) {
  {
    const std::lock_guard lock(mutex_);
    FORETOKEN_CHECK(!question_ && !answer_ && !failure_, "one encoding at a time");
    question_ = std::move(question);
  }
  changed_.notify_one();
}

std::optional<Result<wire::Encoded>> EncodeThread::take() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return std::exchange(answer_, std::nullopt);
}

void EncodeThread::run() {
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stop_ || question_; });
    if (stop_) return;
    const wire::Encode question = *std::exchange(question_, std::nullopt);
    lock.unlock();
    std::optional<Result<wire::Encoded>> answer;
    std::exception_ptr failure;
    try {
      answer = encoder_(question);
    } catch (...) {  // out of memory, above all: the work thread ends the process with a sentence
      failure = std::current_exception();
    }
    lock.lock();
    answer_ = std::move(answer);
    failure_ = failure;
    lock.unlock();
    finished_();
  }
}

}  // namespace foretoken
