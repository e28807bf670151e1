// Places of boards on a real device, by CUDA IPC. A handle opens the whole allocation it lies in,
// so a board has one of its own, of the size in which the driver hands out memory.
#include <algorithm>
#include <cstring>

#include "kernels/cuda/board_place.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/identity.h"

namespace foretoken::cuda {
namespace {

constexpr std::size_t kLeastBytes = std::size_t{2} << 20;

static_assert(sizeof(MemoryHandle) == sizeof(cudaIpcMemHandle_t));
static_assert(sizeof(EventHandle) == sizeof(cudaIpcEventHandle_t));

// Whether it went well; otherwise `why` says what did not, and later calls do not hear of it.
bool went_well(cudaError_t status, const char* call, std::string& why) {
  if (status == cudaSuccess) return true;
  cudaGetLastError();
  why =
      std::string(call) + ": " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")";
  return false;
}

// Where a place ends there may be another device at hand than its own.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    if (cudaGetDevice(&before_) == cudaSuccess && before_ != device) {
      is_changed_ = true;
      cudaSetDevice(device);
    }
  }
  ~OnDevice() {
    if (is_changed_) cudaSetDevice(before_);
    cudaGetLastError();  // whatever failed here is not an error of later calls
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool is_changed_ = false;
};

class CudaPlace : public BoardPlace {
 public:
  ~CudaPlace() override {
    const OnDevice here(device_);
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  void* memory() const override { return memory_; }
  void mark(Runtime& runtime) override {
    runtime.bind();
    cuda_check(cudaEventRecord(event_, static_cast<cudaStream_t>(runtime.stream())), "a board",
               "cudaEventRecord");
  }
  void wait(Runtime& runtime) override {
    runtime.bind();
    cuda_check(cudaStreamWaitEvent(static_cast<cudaStream_t>(runtime.stream()), event_, 0),
               "a board", "cudaStreamWaitEvent");
  }

 protected:
  bool find_device(Runtime& runtime, std::string& why) {
    runtime.bind();
    return went_well(cudaGetDevice(&device_), "cudaGetDevice", why);
  }
  int device_ = 0;
  void* memory_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

class OwnPlace final : public CudaPlace {
 public:
  ~OwnPlace() override {
    const OnDevice here(device_);
    // Whoever waits for an event that is destroyed under way may wait for ever.
    if (event_ != nullptr) cudaEventSynchronize(event_);
    if (memory_ != nullptr) cudaFree(memory_);
  }
  bool make(Runtime& runtime, std::size_t n_bytes, PlaceHandles& handles, std::string& why) {
    int has_events = 0;
    if (!find_device(runtime, why) ||
        !went_well(cudaDeviceGetAttribute(&has_events, cudaDevAttrIpcEventSupport, device_),
                   "cudaDeviceGetAttribute", why))
      return false;
    if (has_events == 0) {
      why = "this device's driver has no events between processes";
      return false;
    }
    memory_ = runtime.allocate(std::max(n_bytes, kLeastBytes));
    if (memory_ == nullptr) {
      why = "the device has no memory for a board";
      return false;
    }
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t event;
    if (!went_well(
            cudaEventCreateWithFlags(&event_, cudaEventInterprocess | cudaEventDisableTiming),
            "cudaEventCreateWithFlags", why) ||
        !went_well(cudaIpcGetMemHandle(&memory, memory_), "cudaIpcGetMemHandle", why) ||
        !went_well(cudaIpcGetEventHandle(&event, event_), "cudaIpcGetEventHandle", why))
      return false;
    std::memcpy(handles.memory.data(), &memory, sizeof memory);
    std::memcpy(handles.event.data(), &event, sizeof event);
    return true;
  }
};

class OthersPlace final : public CudaPlace {
 public:
  ~OthersPlace() override {
    const OnDevice here(device_);
    if (memory_ != nullptr) cudaIpcCloseMemHandle(memory_);
  }
  bool open(Runtime& runtime, const PlaceHandles& handles, std::string& why) {
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t event;
    std::memcpy(&memory, handles.memory.data(), sizeof memory);
    std::memcpy(&event, handles.event.data(), sizeof event);
    return find_device(runtime, why) &&
           went_well(cudaIpcOpenMemHandle(&memory_, memory, cudaIpcMemLazyEnablePeerAccess),
                     "cudaIpcOpenMemHandle", why) &&
           went_well(cudaIpcOpenEventHandle(&event_, event), "cudaIpcOpenEventHandle", why);
  }
};

}  // namespace

std::shared_ptr<BoardPlace> make_place(Runtime& runtime,
                                       std::size_t n_bytes,
                                       PlaceHandles& handles,
                                       std::string& why) {
  auto place = std::make_shared<OwnPlace>();
  if (!place->make(runtime, n_bytes, handles, why)) return nullptr;
  return place;
}

std::shared_ptr<BoardPlace> open_place(Runtime& runtime,
                                       const PlaceHandles& handles,
                                       std::string& why) {
  auto place = std::make_shared<OthersPlace>();
  if (!place->open(runtime, handles, why)) return nullptr;
  return place;
}

bool is_idle(Runtime& runtime) {
  runtime.bind();
  const cudaError_t status = cudaStreamQuery(static_cast<cudaStream_t>(runtime.stream()));
  if (status == cudaErrorNotReady) {
    cudaGetLastError();  // no error, and not one of later calls
    return false;
  }
  cuda_check(status, "queued work", "cudaStreamQuery");
  return true;
}

std::string device_of(Runtime& runtime) {
  runtime.bind();
  int index = 0;
  cuda_check(cudaGetDevice(&index), "a board", "cudaGetDevice");
  return device_uuid(index);
}

}  // namespace foretoken::cuda
