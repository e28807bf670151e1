// usage: foretoken-gpu-handoff [--device N]
// What two processes on one device cost each other, and what a recording costs the host: lines of
// JSON. A program of its own, because it speaks to the CUDA runtime and forks. Ends with status 3
// without a device. Forks before CUDA wakes up: a context does not survive it.
#include <cuda_runtime.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "common/base/json_writer.h"

namespace {

constexpr int kRounds = 400;

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void print_line(foretoken::JsonWriter& object) {
  std::printf("%s\n", object.end_object().text().c_str());
}

bool failed(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return false;
  print_line(foretoken::JsonWriter()
                 .begin_object()
                 .field("what", what)
                 .field("not_there", cudaGetErrorName(status)));
  return true;
}

__global__ void touch(int* at) {
  if (threadIdx.x == 0) *at += 1;
}

void print(const char* what, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  print_line(foretoken::JsonWriter()
                 .begin_object()
                 .field("what", what)
                 .field("n", times.size())
                 .field("us_median", times[times.size() / 2], 2)
                 .field("us_p99", times[times.size() * 99 / 100], 2));
}

// Host time of a launch and device time of a node, of a graph as long as a draft of ten steps.
void graph_launch() {
  constexpr int kNodes = 830;
  cudaStream_t stream;
  int* at = nullptr;
  if (failed(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream")) return;
  if (failed(cudaMalloc(&at, 256), "memory")) return;
  std::vector<double> launches;
  for (int i = 0; i < kRounds; ++i) {
    const double begin = now_us();
    touch<<<1, 32, 0, stream>>>(at);
    launches.push_back(now_us() - begin);
    if (i % 50 == 49) cudaStreamSynchronize(stream);
  }
  cudaStreamSynchronize(stream);
  print("kernel launch, host", launches);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
  for (int i = 0; i < kNodes; ++i) touch<<<1, 32, 0, stream>>>(at);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  const double begin = now_us();
  if (failed(cudaStreamEndCapture(stream, &graph), "capture")) return;
  if (failed(cudaGraphInstantiate(&exec, graph, 0), "instantiate")) return;
  print("graph of 830 kernels, instantiate", {now_us() - begin});
  std::vector<double> host, nodes;
  for (int i = 0; i < kRounds; ++i) {
    const double start = now_us();
    cudaGraphLaunch(exec, stream);
    host.push_back(now_us() - start);
    cudaStreamSynchronize(stream);
    nodes.push_back((now_us() - start) / kNodes);
  }
  print("graph of 830 kernels, launch, host", host);
  print("graph of 830 kernels, a node", nodes);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaFree(at);
  cudaStreamDestroy(stream);
}

// What both processes see.
struct Shared {
  cudaIpcEventHandle_t events[2];
  std::atomic<int> ready[2];
  std::atomic<int> turn;  // how many halves of rounds have been enqueued; negative: given up
};

pid_t child = 0;  // 0 in the child itself, which the kernel ends with its parent

bool child_has_ended() {
  siginfo_t info{};
  return child > 0 &&
         waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == child;
}

// However long the other side takes, as long as it is there: CUDA may need a while to wake up.
bool wait_until(const std::atomic<int>& value, int wanted) {
  for (unsigned spins = 1;; ++spins) {
    const bool has_ended = spins % 65536 == 0 && child_has_ended();  // its last word came before
    const int seen = value.load(std::memory_order_acquire);
    if (seen >= wanted) return true;
    if (seen < 0 || has_ended) return false;
  }
}

// Side 0 begins a round, side 1 answers: each waits on the device for the other's event, runs a
// small kernel and records its own. The word that work is enqueued goes through shared memory, as a
// message would that runs ahead of the data.
int side(Shared& shared, int me, int device) {
  const auto gone = [&] {
    shared.turn.store(-1);
    return 1;
  };
  cudaEvent_t own, others;
  cudaStream_t stream;
  int* at = nullptr;
  if (failed(cudaSetDevice(device), "device") ||
      failed(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream") ||
      failed(cudaMalloc(&at, 256), "memory") ||
      failed(cudaEventCreateWithFlags(&own, cudaEventInterprocess | cudaEventDisableTiming),
             "interprocess event") ||
      failed(cudaIpcGetEventHandle(&shared.events[me], own), "event handle"))
    return gone();
  shared.ready[me].store(1, std::memory_order_release);
  if (!wait_until(shared.ready[1 - me], 1)) return gone();
  if (failed(cudaIpcOpenEventHandle(&others, shared.events[1 - me]), "event of the other process"))
    return gone();
  shared.ready[me].store(2, std::memory_order_release);
  if (!wait_until(shared.ready[1 - me], 2)) return gone();
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) {
    const double begin = now_us();
    if (me == 1 && !wait_until(shared.turn, 2 * i + 1)) return gone();
    if (me == 1) cudaStreamWaitEvent(stream, others, 0);
    touch<<<1, 32, 0, stream>>>(at);
    cudaEventRecord(own, stream);
    shared.turn.store(2 * i + 1 + me, std::memory_order_release);
    if (me == 0) {
      if (!wait_until(shared.turn, 2 * i + 2)) return gone();
      cudaStreamWaitEvent(stream, others, 0);
      touch<<<1, 32, 0, stream>>>(at);
    }
    if (failed(cudaStreamSynchronize(stream), "a round")) return gone();
    times.push_back((now_us() - begin) / 2);
  }
  if (me == 0) print("event handoff between two processes, one way", times);
  shared.ready[me].store(3, std::memory_order_release);
  wait_until(shared.ready[1 - me], 3);  // an event must outlive those who wait for it
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int device = argc > 2 && std::strcmp(argv[1], "--device") == 0 ? std::atoi(argv[2]) : 0;
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto* shared = new (memory) Shared{};
  std::fflush(stdout);
  const pid_t parent = getpid();
  child = fork();
  if (child < 0) return 1;
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) std::_Exit(1);
    // Silent: what one side reports the other need not.
    if (std::freopen("/dev/null", "w", stdout) == nullptr) std::_Exit(1);
    std::_Exit(wait_until(shared->ready[0], 1) ? side(*shared, 1, device) : 1);
  }
  int n_devices = 0, ipc = 0, status = 0;
  const cudaError_t found = cudaGetDeviceCount(&n_devices);
  if (found != cudaSuccess || device >= n_devices) {
    shared->ready[0].store(-1);
    waitpid(child, nullptr, 0);
    std::fprintf(stderr, "foretoken-gpu-handoff: no CUDA device %d: %s\n", device,
                 cudaGetErrorString(found));
    return 3;
  }
  cudaSetDevice(device);
  cudaDeviceGetAttribute(&ipc, cudaDevAttrIpcEventSupport, device);
  print_line(foretoken::JsonWriter()
                 .begin_object()
                 .field("what", "interprocess events")
                 .field("supported", ipc != 0));
  graph_launch();
  status = side(*shared, 0, device);
  std::fflush(stdout);
  if (status != 0) kill(child, SIGKILL);
  int ended = 0;
  waitpid(child, &ended, 0);
  return status;
}
