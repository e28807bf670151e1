#include "tests/simulation/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/check.h"

// Present where a sanitizer is linked, whether or not this file is instrumented.
// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming): the sanitizers' names
extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** fake_stack_save,
                                                          const void* bottom,
                                                          std::size_t size);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* fake_stack_save,
                                                           const void** bottom_old,
                                                           std::size_t* size_old);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void* at, std::size_t size);
__attribute__((weak)) void* __tsan_get_current_fiber(void);
__attribute__((weak)) void* __tsan_create_fiber(unsigned flags);
__attribute__((weak)) void __tsan_destroy_fiber(void* fiber);
__attribute__((weak)) void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)

namespace foretoken::test {
namespace {

constexpr std::size_t kStackBytes = std::size_t{1} << 20;

std::vector<void*>& spare_stacks() {
  static std::vector<void*> spare;
  return spare;
}

}  // namespace

// Taken from those of fibers that are over: a process that starts again costs no new mapping.
struct Fiber::Stack {
  Stack() {
    if (!spare_stacks().empty()) {
      memory = spare_stacks().back();
      spare_stacks().pop_back();
      return;
    }
    memory = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    FORETOKEN_CHECK(memory != MAP_FAILED, "no memory for a stack");
    // The lowest page catches who needs more.
    FORETOKEN_CHECK(::mprotect(memory, 4096, PROT_NONE) == 0);
  }
  ~Stack() {
    if (__asan_unpoison_memory_region != nullptr)
      __asan_unpoison_memory_region(memory, kStackBytes);
    spare_stacks().push_back(memory);
  }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  void* memory = nullptr;
};

Fiber::Fiber(std::function<void()> body)
    : body_(std::move(body)), stack_(std::make_unique<Stack>()) {
  FORETOKEN_CHECK(::getcontext(&here_) == 0);
  here_.uc_stack.ss_sp = stack_->memory;
  here_.uc_stack.ss_size = kStackBytes;
  here_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  ::makecontext(&here_, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  if (__tsan_create_fiber != nullptr) tsan_here_ = __tsan_create_fiber(0);
}

Fiber::~Fiber() {
  if (begun_ && !over_) {
    unwinding_ = true;
    switch_in();
    FORETOKEN_CHECK(over_, "a fiber that is destroyed does not pause again");
  }
  if (tsan_here_ != nullptr) __tsan_destroy_fiber(tsan_here_);
}

void Fiber::enter(unsigned high, unsigned low) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): makecontext passes ints alone
  reinterpret_cast<Fiber*>((std::uintptr_t{high} << 32) | low)->run();
}

void Fiber::run() {
  if (__sanitizer_finish_switch_fiber != nullptr)
    __sanitizer_finish_switch_fiber(nullptr, &caller_bottom_, &caller_size_);
  try {
    body_();
  } catch (const Unwind&) {
  } catch (...) {
    thrown_ = std::current_exception();
  }
  over_ = true;
  // Null: this stack is not needed any more.
  if (__sanitizer_start_switch_fiber != nullptr)
    __sanitizer_start_switch_fiber(nullptr, caller_bottom_, caller_size_);
  if (tsan_caller_ != nullptr) __tsan_switch_to_fiber(tsan_caller_, 0);
  ::setcontext(&caller_);
}

void Fiber::switch_in() {
  if (__tsan_get_current_fiber != nullptr) tsan_caller_ = __tsan_get_current_fiber();
  if (__sanitizer_start_switch_fiber != nullptr)
    __sanitizer_start_switch_fiber(&caller_fake_stack_, stack_->memory, kStackBytes);
  if (tsan_here_ != nullptr) __tsan_switch_to_fiber(tsan_here_, 0);
  ::swapcontext(&caller_, &here_);
  if (__sanitizer_finish_switch_fiber != nullptr)
    __sanitizer_finish_switch_fiber(caller_fake_stack_, nullptr, nullptr);
}

void Fiber::switch_out() {
  if (__sanitizer_start_switch_fiber != nullptr)
    __sanitizer_start_switch_fiber(&fake_stack_, caller_bottom_, caller_size_);
  if (tsan_caller_ != nullptr) __tsan_switch_to_fiber(tsan_caller_, 0);
  ::swapcontext(&here_, &caller_);
  if (__sanitizer_finish_switch_fiber != nullptr)
    __sanitizer_finish_switch_fiber(fake_stack_, &caller_bottom_, &caller_size_);
}

void Fiber::resume() {
  FORETOKEN_CHECK(!over_, "a fiber that is over cannot go on");
  begun_ = true;
  switch_in();
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void Fiber::pause() {
  switch_out();
  if (unwinding_) throw Unwind{};
}

}  // namespace foretoken::test
