// What the CUDA backend asks of a device, as a class: memory, copies, launches, graphs. One
// implementation speaks to the CUDA runtime (kernels/cuda/runtime_cuda.cu), one runs kernels on the
// CPU for the tests (kernels/emu/runtime_emu.cc). Calls are queued in order; one thread uses a
// Runtime.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace foretoken::cuda {

// A recorded sequence of launches and copies.
class Graph {
 public:
  virtual ~Graph() = default;
};

struct DeviceInfo {
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int n_multiprocessors = 0;
};

class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual DeviceInfo info() const = 0;
  // Makes this the calling thread's device: the one that made a Runtime need not be the one that
  // uses it.
  virtual void bind() const = 0;
  virtual std::size_t free_bytes() const = 0;
  virtual void* allocate(std::size_t bytes) = 0;  // zeroed; null when there is no memory left
  virtual void free(void* address) noexcept = 0;
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;    // `from` is read now
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;  // waits
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual void synchronize() = 0;
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& calls) = 0;
  virtual void replay(Graph& graph) = 0;
  // A cudaStream_t, for launch() alone.
  virtual void* stream() const = 0;
};

// The device with this index. Throws FatalError with a sentence when it is not there or too old.
std::unique_ptr<Runtime> make_runtime(int index);

// A launch: blocks of n_threads, dynamic shared memory, `cluster` blocks along z that share it, and
// whether it may begin while its predecessor ends (then the kernel waits by itself).
struct Launch {
  Runtime& runtime;
  unsigned x = 1, y = 1, z = 1;
  int n_threads = 256;
  std::size_t shared_bytes = 0;
  int cluster = 1;
  bool overlap = false;
};

}  // namespace foretoken::cuda
