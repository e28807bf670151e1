// An NVIDIA GPU as a device. Ops are queued on one stream; working space is taken once and grows
// but never moves while a recording may hold its address. Kernels are in the .cu files of their
// ops; they are reached through the functions below, so that this class is plain C++ and runs on
// an emulated device in the tests. One thread uses a backend.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/device/runtime.h"
#include "kernels/include/backend.h"

namespace foretoken::cuda {

// Device memory that only grows; what it outgrew lives on for recordings that hold its address.
class Scratch {
 public:
  explicit Scratch(Runtime& runtime) : runtime_(runtime) {}
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* at_least(std::size_t bytes);
  template <class T>
  T* at_least(std::int64_t n) {
    return static_cast<T*>(at_least(static_cast<std::size_t>(n) * sizeof(T)));
  }

 private:
  Runtime& runtime_;
  std::vector<void*> pieces_;
  std::size_t size_ = 0;
};

struct MatmulArgs;
struct PrepareArgs;
struct FinishArgs;

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::unique_ptr<Runtime> runtime, CudaPath path, Record record = Record::kAuto);
  ~CudaBackend() override;

  std::string numerics() const override;
  bool holds(DType weights) const override { return weights != DType::kI4; }
  std::string description() const override;
  std::size_t free_bytes() const override;
  bool gains_by_recording() const override { return record_ != Record::kOff; }

 private:
  void* do_allocate(std::size_t bytes) override;
  void do_free(void* address, std::size_t bytes) noexcept override;
  void do_upload(void* to_device, const void* from_host, std::size_t bytes) override;
  void do_download(void* to_host, const void* from_device, std::size_t bytes) override;
  void do_copy(void* to_device, const void* from_device, std::size_t bytes) override;
  void do_synchronize() override;
  Linear do_pack(std::span<const LinearSource> sources, Stacking stacking) override;
  void do_embed(const EmbedArgs& args) override;
  void do_qkv_rope_append(const QkvRopeAppendArgs& args) override;
  void do_attn_paged(const AttnPagedArgs& args) override;
  void do_matmul_residual(const MatmulResidualArgs& args) override;
  void do_gate_up_swiglu(const GateUpSwigluArgs& args) override;
  void do_lm_head(const LmHeadArgs& args) override;
  void do_spread(const SpreadArgs& args) override;
  void do_choose(const ChooseArgs& args) override;
  void do_accept(const AcceptArgs& args) override;
  void do_advance(const AdvanceArgs& args) override;
  std::unique_ptr<Recording> do_record(const std::function<void()>& calls) override;
  void do_replay(Recording& recording) override;
  std::unique_ptr<RankSums> do_join_ranks(const RankLinks& links) override;

  // Rows normalised (norm not null), picked (rows not null) and rounded, then multiplied, in
  // passes of at most kPassRows; `finish` says what becomes of the products.
  struct Product;
  void multiply(const Product& product);
  bool is_ring(const Linear& weight, std::int32_t n_rows) const;
  void multiply_ring(const Launch& plain,
                     const Product& product,
                     std::int32_t first,
                     MatmulArgs& matmul,
                     PrepareArgs& prepare,
                     const FinishArgs& finish);

  std::unique_ptr<Runtime> runtime_;
  DeviceInfo info_;
  CudaPath path_;
  Record record_;
  bool recording_ = false;
  Scratch rows_;   // prepared rows, and rows moved out of a product's way
  Scratch parts_;  // partial sums of products and of attention
  Scratch qkv_;
  Scratch squares_;   // of rows whose squares no op left
  Scratch arrivals_;  // counters of attention, zero between launches
  Scratch choose_;
};

}  // namespace foretoken::cuda
