// A function with a stack of its own that runs until it pauses and goes on when it is resumed. One
// thread: it lets a simulated process wait in the middle of a step while others run. A fiber that
// is destroyed before its end unwinds: its pause() throws, and what it holds is released.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>

namespace foretoken::test {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it pauses or ends. What it throws comes out here. Not from inside a fiber.
  void resume();
  bool is_over() const { return over_; }
  // From inside the body: back to who resumed it.
  void pause();

 private:
  struct Unwind {};
  struct Stack;
  static void enter(unsigned high, unsigned low);
  void run();
  void switch_in();
  void switch_out();

  std::function<void()> body_;
  std::unique_ptr<Stack> stack_;
  ucontext_t here_{}, caller_{};
  std::exception_ptr thrown_;
  bool begun_ = false, over_ = false, unwinding_ = false;
  // What the sanitizers keep of the stacks.
  void* fake_stack_ = nullptr;
  void* caller_fake_stack_ = nullptr;
  const void* caller_bottom_ = nullptr;
  std::size_t caller_size_ = 0;
  void* tsan_here_ = nullptr;
  void* tsan_caller_ = nullptr;
};

}  // namespace foretoken::test
