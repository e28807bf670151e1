// The Runtime of a real device: one stream, plain cudaMalloc memory, graphs by stream capture.
// What a pass brings and takes is small and goes through pinned memory of the Runtime's own: from
// and to the caller's pageable memory the driver would copy it too, and wait where it need not.
// Larger things, and all where there is nothing to pin, go as they are.
#include <cstring>
#include <string>

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/identity.h"
#include "kernels/cuda/upload_ring.h"
#include "kernels/device/runtime.h"

namespace foretoken::cuda {
namespace {

constexpr int kLeastMajor = 8;  // the kernels are compiled for sm_80 and sm_90
// Of pinned memory: uploads go through the first part, up to half of it each, downloads through the
// second.
constexpr std::size_t kUploadBytes = std::size_t{2} << 20;
constexpr std::size_t kDownloadBytes = std::size_t{1} << 20;

[[noreturn]] void unavailable(const std::string& sentence) {
  throw FatalError(ErrorCode::kUnavailable, sentence);
}

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(cudaGraphExec_t exec) : exec_(exec) {}
  ~CudaGraph() override { cudaGraphExecDestroy(exec_); }
  cudaGraphExec_t exec() const { return exec_; }

 private:
  cudaGraphExec_t exec_;
};

class CudaRuntime final : public Runtime {
 public:
  explicit CudaRuntime(int index) : index_(index) {
    bind();
    cudaDeviceProp properties;
    cuda_check(cudaGetDeviceProperties(&properties, index), device().c_str(),
               "cudaGetDeviceProperties");
    info_ = {properties.name, properties.major, properties.minor, properties.multiProcessorCount};
    if (info_.major < kLeastMajor)
      unavailable(device() + " (" + info_.name + ") has compute capability " +
                  std::to_string(info_.major) + "." + std::to_string(info_.minor) +
                  "; the kernels need 8.0 or newer");
    for (cudaStream_t* stream : {&stream_, &setup_})
      cuda_check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), device().c_str(),
                 "cudaStreamCreate");
    for (cudaEvent_t& mark : marks_)
      cuda_check(cudaEventCreateWithFlags(&mark, cudaEventDisableTiming), device().c_str(),
                 "cudaEventCreate");
    void* pinned = nullptr;
    if (cudaHostAlloc(&pinned, kUploadBytes + kDownloadBytes, cudaHostAllocDefault) == cudaSuccess)
      pinned_ = static_cast<std::byte*>(pinned);
    else
      cudaGetLastError();  // it is not an error of later calls
  }
  ~CudaRuntime() override {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
    cudaStreamDestroy(setup_);
    for (cudaEvent_t mark : marks_) cudaEventDestroy(mark);
    if (pinned_ != nullptr) cudaFreeHost(pinned_);
  }
  DeviceInfo info() const override { return info_; }
  void bind() const override {
    static thread_local int bound = -1;
    if (bound == index_) return;
    cuda_check(cudaSetDevice(index_), device().c_str(), "cudaSetDevice");
    bound = index_;
  }
  std::size_t free_bytes() const override {
    bind();
    std::size_t free = 0, total = 0;
    cuda_check(cudaMemGetInfo(&free, &total), device().c_str(), "cudaMemGetInfo");
    return free;
  }
  void* allocate(std::size_t bytes) override {
    bind();
    void* address = nullptr;
    const cudaError_t status = cudaMalloc(&address, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // it is not an error of later calls
      return nullptr;
    }
    cuda_check(status, device().c_str(), "cudaMalloc");
    // On a stream of its own: the other one may be recording.
    cuda_check(cudaMemsetAsync(address, 0, bytes, setup_), device().c_str(), "cudaMemset");
    cuda_check(cudaStreamSynchronize(setup_), device().c_str(), "cudaMemset");
    return address;
  }
  void free(void* address) noexcept override {
    cudaStreamSynchronize(stream_);
    cudaFree(address);
  }
  // Pageable memory is staged before the call returns, by us or by the driver, so `from` may change
  // at once.
  void upload(void* to, const void* from, std::size_t bytes) override {
    bind();
    if (pinned_ != nullptr && bytes <= uploads_.most()) from = stage(from, bytes);
    cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "an upload",
               "cudaMemcpyAsync");
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    bind();
    const bool is_staged = pinned_ != nullptr && bytes <= kDownloadBytes;
    void* room = is_staged ? pinned_ + kUploadBytes : to;
    cuda_check(cudaMemcpyAsync(room, from, bytes, cudaMemcpyDeviceToHost, stream_), "a download",
               "cudaMemcpyAsync");
    synchronize();
    if (is_staged) std::memcpy(to, room, bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    bind();
    cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "a copy",
               "cudaMemcpyAsync");
  }
  void synchronize() override {
    bind();
    cuda_check(cudaStreamSynchronize(stream_), "queued work", "cudaStreamSynchronize");
  }
  // Relaxed: scratch that grows while capturing is allocated, not recorded.
  std::unique_ptr<Graph> capture(const std::function<void()>& calls) override {
    bind();
    cuda_check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), "a recording",
               "cudaStreamBeginCapture");
    calls();
    cudaGraph_t graph = nullptr;
    cuda_check(cudaStreamEndCapture(stream_, &graph), "a recording", "cudaStreamEndCapture");
    cudaGraphExec_t exec = nullptr;
    const cudaError_t status = cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    cuda_check(status, "a recording", "cudaGraphInstantiate");
    return std::make_unique<CudaGraph>(exec);
  }
  void replay(Graph& graph) override {
    bind();
    cuda_check(cudaGraphLaunch(static_cast<CudaGraph&>(graph).exec(), stream_), "a recording",
               "cudaGraphLaunch");
  }
  void* stream() const override { return stream_; }

 private:
  std::string device() const { return "device cuda:" + std::to_string(index_); }
  const void* stage(const void* from, std::size_t bytes) {
    const std::size_t at = uploads_.take(
        bytes,
        [this](int half) {
          cuda_check(cudaEventRecord(marks_[half], stream_), "an upload", "cudaEventRecord");
        },
        [this](int half) {
          cuda_check(cudaEventSynchronize(marks_[half]), "an upload", "cudaEventSynchronize");
        });
    return std::memcpy(pinned_ + at, from, bytes);
  }
  int index_;
  DeviceInfo info_;
  cudaStream_t stream_ = nullptr;
  cudaStream_t setup_ = nullptr;
  std::byte* pinned_ = nullptr;  // null: none could be had
  UploadRing uploads_{kUploadBytes};
  cudaEvent_t marks_[2] = {};  // of its halves
};

}  // namespace

std::unique_ptr<Runtime> make_runtime(int index) {
  int n_devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&n_devices);
  if (status == cudaErrorInsufficientDriver)
    unavailable(
        "no usable NVIDIA driver: it is missing, or older than the CUDA 13 this library was built "
        "with (nvidia-smi names the driver)");
  if (status != cudaSuccess)
    unavailable(std::string("no CUDA device: ") + cudaGetErrorString(status) + " (" +
                cudaGetErrorName(status) + ")");
  if (index >= n_devices)
    unavailable("device cuda:" + std::to_string(index) + " was asked for, but this machine shows " +
                std::to_string(n_devices) + (n_devices == 1 ? " CUDA device" : " CUDA devices") +
                "; CUDA_VISIBLE_DEVICES may hide some");
  return std::make_unique<CudaRuntime>(index);
}

std::string device_uuid(int index) {
  cudaDeviceProp properties;
  cuda_check(cudaGetDeviceProperties(&properties, index), "a device", "cudaGetDeviceProperties");
  std::string text;
  for (const char byte : properties.uuid.bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[(byte >> 4) & 15];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace foretoken::cuda
