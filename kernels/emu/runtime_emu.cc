#include "kernels/emu/runtime_emu.h"

#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "kernels/cuda/backend.h"
#include "kernels/emu/machine.h"

namespace foretoken::emu {
namespace {

class EmulatedGraph final : public cuda::Graph {
 public:
  std::vector<std::function<void()>> calls;
};

class EmulatedRuntime final : public cuda::Runtime {
 public:
  explicit EmulatedRuntime(int major) : major_(major) {}
  cuda::DeviceInfo info() const override { return {"emulated device", major_, 0, 132}; }
  void bind() const override {}
  std::size_t free_bytes() const override { return std::size_t{1} << 30; }
  void* allocate(std::size_t bytes) override {
    if (bytes > std::size_t{1} << 40) return nullptr;
    void* address = nullptr;  // not a byte more than asked for, so that a sanitizer sees the end
    if (posix_memalign(&address, 256, bytes) != 0) return nullptr;
    std::memset(address, 0, bytes);
    return address;
  }
  void free(void* address) noexcept override { std::free(address); }
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
  void submit(std::function<void()> call) {
    if (kept_ != nullptr)
      kept_->push_back(std::move(call));
    else
      call();
  }

 private:
  int major_;
  std::vector<std::function<void()>>* kept_ = nullptr;
};

}  // namespace

std::unique_ptr<cuda::Runtime> make_runtime(int major) {
  return std::make_unique<EmulatedRuntime>(major);
}

void submit(cuda::Runtime& runtime, std::function<void()> call) {
  static_cast<EmulatedRuntime&>(runtime).submit(std::move(call));
}

std::unique_ptr<Backend> make_backend(int major, CudaPath path, Record record) {
  return std::make_unique<cuda::CudaBackend>(make_runtime(major), path, record);
}

}  // namespace foretoken::emu
