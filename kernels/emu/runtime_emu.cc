#include "kernels/emu/runtime_emu.h"

#include <cstring>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "kernels/emu/machine.h"
#include "kernels/emu/memory.h"

namespace foretoken::emu {
namespace {

class EmulatedGraph final : public cuda::Graph {
 public:
  std::vector<std::function<void()>> calls;
};

class EmulatedRuntime final : public cuda::Runtime {
 public:
  EmulatedRuntime(int major, bool is_watched) : major_(major), is_watched_(is_watched) {}
  cuda::DeviceInfo info() const override { return {"emulated device", major_, 0, 132}; }
  void bind() const override {}
  std::size_t free_bytes() const override { return std::size_t{1} << 30; }
  void* allocate(std::size_t bytes) override {
    return bytes > std::size_t{1} << 40 ? nullptr : emu::allocate(bytes);
  }
  void free(void* address) noexcept override { release(address); }
  void upload(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    submit([=] { std::memmove(to, from, bytes); });
  }
  void synchronize() override {}
  std::unique_ptr<cuda::Graph> capture(const std::function<void()>& calls) override {
    auto graph = std::make_unique<EmulatedGraph>();
    kept_ = &graph->calls;
    calls();
    kept_ = nullptr;
    return graph;
  }
  void replay(cuda::Graph& graph) override {
    for (const auto& call : static_cast<EmulatedGraph&>(graph).calls) call();
  }
  void* stream() const override { return nullptr; }
  bool is_watched() const { return is_watched_; }
  void submit(std::function<void()> call) {
    if (kept_ != nullptr)
      kept_->push_back(std::move(call));
    else
      call();
  }

 private:
  int major_;
  bool is_watched_;
  std::vector<std::function<void()>>* kept_ = nullptr;
};

}  // namespace

std::unique_ptr<cuda::Runtime> make_runtime(int major, bool is_watched) {
  return std::make_unique<EmulatedRuntime>(major, is_watched);
}

bool is_watched(const cuda::Runtime& runtime) {
  return static_cast<const EmulatedRuntime&>(runtime).is_watched();
}

void submit(cuda::Runtime& runtime, std::function<void()> call) {
  static_cast<EmulatedRuntime&>(runtime).submit(std::move(call));
}

}  // namespace foretoken::emu
