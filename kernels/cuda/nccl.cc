#include "kernels/cuda/nccl.h"

#include <dlfcn.h>

#include "common/base/result.h"

namespace foretoken::cuda {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";
constexpr int kSuccess = 0;  // ncclSuccess
constexpr int kFloat = 7;    // ncclFloat32

using Comm = void*;  // ncclComm_t
struct Functions {   // of nccl.h, whose enums are ints
  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(NcclId*) = nullptr;
  int (*comm_init_rank)(Comm*, int, NcclId, int) = nullptr;
  int (*all_gather)(const void*, void*, std::size_t, int, Comm, void*) = nullptr;
  int (*comm_abort)(Comm) = nullptr;
  const char* (*get_error_string)(int) = nullptr;
};

class LoadedNccl final : public Nccl {
 public:
  explicit LoadedNccl(const Functions& f) : f_(f) {}
  ~LoadedNccl() override {
    if (comm_ != nullptr) f_.comm_abort(comm_);  // destroying would wait for the other ranks
  }
  NcclId make_id() override {
    NcclId id{};
    check(f_.get_unique_id(&id), "ncclGetUniqueId");
    return id;
  }
  void join(const NcclId& id, int rank, int n_ranks) override {
    check(f_.comm_init_rank(&comm_, n_ranks, id, rank), "ncclCommInitRank");
  }
  void all_gather(const float* mine, float* all, std::int64_t n, void* stream) override {
    check(f_.all_gather(mine, all, static_cast<std::size_t>(n), kFloat, comm_, stream),
          "ncclAllGather");
  }
  std::string description() const override {
    int v = 0;
    f_.get_version(&v);
    return "NCCL " + std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." +
           std::to_string(v % 100);
  }

 private:
  void check(int code, const char* what) const {
    if (code != kSuccess)
      throw FatalError(ErrorCode::kUnavailable,
                       std::string(what) + ": " + f_.get_error_string(code));
  }
  Functions f_;
  Comm comm_ = nullptr;
};

template <class Function>
bool find(void* library, const char* name, Function& to, std::string& why) {
  to = reinterpret_cast<Function>(dlsym(library, name));
  if (to == nullptr) why = std::string(kLibrary) + " has no " + name;
  return to != nullptr;
}

}  // namespace

std::unique_ptr<Nccl> load_nccl(std::string& why) {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // never closed: it has threads
  if (library == nullptr) {
    why = dlerror();
    return nullptr;
  }
  Functions f;
  if (!find(library, "ncclGetVersion", f.get_version, why) ||
      !find(library, "ncclGetUniqueId", f.get_unique_id, why) ||
      !find(library, "ncclCommInitRank", f.comm_init_rank, why) ||
      !find(library, "ncclAllGather", f.all_gather, why) ||
      !find(library, "ncclCommAbort", f.comm_abort, why) ||
      !find(library, "ncclGetErrorString", f.get_error_string, why))
    return nullptr;
  return std::make_unique<LoadedNccl>(f);
}

}  // namespace foretoken::cuda
