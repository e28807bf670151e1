#include "kernels/cuda/backend.h"

#include <algorithm>
#include <utility>

#include "common/base/result.h"
#include "kernels/cuda/kernels.h"

namespace foretoken::cuda {
namespace {

// Part of numerics(): raised whenever the order of additions or a rounding of any op changes.
constexpr int kKernelSet = 1;

class CudaRecording final : public Recording {
 public:
  CudaRecording(const CudaBackend* owner_in, std::unique_ptr<Graph> graph_in)
      : owner(owner_in), graph(std::move(graph_in)) {}
  const CudaBackend* owner;
  std::unique_ptr<Graph> graph;
};

// Until the checks of bench/gpu have passed on a card, the oracle serves.
CudaPath resolve(CudaPath path, const DeviceInfo& info) {
  if (path == CudaPath::kAuto) return CudaPath::kSimple;
  if (path != CudaPath::kSimple && info.major < 9)
    throw FatalError(ErrorCode::kConfig, "the ring kernels need compute capability 9.0; " +
                                             info.name + " has " + std::to_string(info.major) +
                                             "." + std::to_string(info.minor));
  return path;
}

}  // namespace

Scratch::~Scratch() {
  for (void* piece : pieces_) runtime_.free(piece);
}

void* Scratch::at_least(std::size_t bytes) {
  if (bytes > size_ || pieces_.empty()) {
    const std::size_t wanted = std::max({bytes, size_ + size_ / 2, std::size_t{1} << 16});
    void* piece = runtime_.allocate(wanted);
    if (piece == nullptr)
      throw FatalError(
          ErrorCode::kOutOfMemory,
          "the device has no memory for " + std::to_string(wanted) + " bytes of working space");
    pieces_.push_back(piece);
    size_ = wanted;
  }
  return pieces_.back();
}

CudaBackend::CudaBackend(std::unique_ptr<Runtime> runtime, CudaPath path)
    : runtime_(std::move(runtime)),
      info_(runtime_->info()),
      path_(resolve(path, info_)),
      rows_(*runtime_),
      parts_(*runtime_),
      qkv_(*runtime_),
      choose_(*runtime_) {}

CudaBackend::~CudaBackend() { runtime_->synchronize(); }

std::string CudaBackend::numerics() const {
  return "cuda/sm_" + std::to_string(info_.major) + std::to_string(info_.minor) + "/" +
         std::to_string(kKernelSet);
}

std::string CudaBackend::description() const {
  const char* path = path_ == CudaPath::kSimple ? "simple kernels"
                     : path_ == CudaPath::kRing ? "ring kernels"
                                                : "overlapping ring kernels";
  return "cuda, " + info_.name + ", " + path;
}

std::size_t CudaBackend::free_bytes() const { return runtime_->free_bytes(); }

void* CudaBackend::do_allocate(std::size_t bytes) {
  void* address = runtime_->allocate(bytes);
  if (address == nullptr)
    throw FatalError(ErrorCode::kOutOfMemory, "the device has no memory for an allocation of " +
                                                  std::to_string(bytes) + " bytes");
  return address;
}

void CudaBackend::do_free(void* address, std::size_t) noexcept { runtime_->free(address); }

void CudaBackend::do_upload(void* to_device, const void* from_host, std::size_t bytes) {
  FORETOKEN_CHECK(!recording_, "uploads are not recorded");
  runtime_->upload(to_device, from_host, bytes);
}

void CudaBackend::do_download(void* to_host, const void* from_device, std::size_t bytes) {
  FORETOKEN_CHECK(!recording_, "downloads are not recorded");
  runtime_->download(to_host, from_device, bytes);
}

void CudaBackend::do_copy(void* to_device, const void* from_device, std::size_t bytes) {
  runtime_->copy(to_device, from_device, bytes);
}

void CudaBackend::do_synchronize() { runtime_->synchronize(); }

std::unique_ptr<Recording> CudaBackend::do_record(const std::function<void()>& calls) {
  FORETOKEN_CHECK(!recording_, "record() inside record()");
  recording_ = true;
  auto graph = runtime_->capture(calls);
  recording_ = false;
  return std::make_unique<CudaRecording>(this, std::move(graph));
}

void CudaBackend::do_replay(Recording& recording) {
  FORETOKEN_CHECK(!recording_, "replay() inside record()");
  auto* mine = dynamic_cast<CudaRecording*>(&recording);
  FORETOKEN_CHECK(mine != nullptr && mine->owner == this, "a recording of another backend");
  runtime_->replay(*mine->graph);
}

// --- Ops

struct CudaBackend::Product {
  const Linear* weight = nullptr;
  const float* x = nullptr;
  const std::int32_t* rows = nullptr;
  const float* norm = nullptr;
  float norm_eps = 0;
  std::int32_t n_rows = 0;
  Finish finish = Finish::kStore;
  float* out = nullptr;
  std::int64_t n_columns = 0;
};

void CudaBackend::multiply(const Product& p) {
  const Linear& w = *p.weight;
  const Launch plain{.runtime = *runtime_, .overlap = path_ == CudaPath::kRingOverlap};
  const auto n_in = static_cast<std::int32_t>(w.n_in);
  for (std::int32_t first = 0; first < p.n_rows; first += kPassRows) {
    const std::int32_t n = std::min(kPassRows, p.n_rows - first);
    std::int32_t n_groups = (n + 7) / 8;
    n_groups = (n_groups + group_tile(n_groups) - 1) / group_tile(n_groups) * group_tile(n_groups);
    const Input input = input_of(w.dtype);
    const std::int64_t k_blocks = fragment::blocks_of(w.n_in, fragment::kBlockK);
    const std::int64_t row_blocks = fragment::blocks_of(
        w.stacking == Stacking::kGateUp ? fragment::blocks_of(w.n_out / 2, 8) * 16 : w.n_out,
        fragment::kBlockRows);
    MatmulArgs matmul{.dtype = w.dtype,
                      .weights = w.weights.as<std::byte>(),
                      .n_groups = n_groups,
                      .n_row_blocks = static_cast<std::int32_t>(row_blocks),
                      .n_k_blocks = static_cast<std::int32_t>(k_blocks)};
    if (input != Input::kF32) matmul.n_parts = fragment::k_parts(row_blocks, k_blocks);
    PrepareArgs prepare{.x = p.rows != nullptr ? p.x : p.x + std::int64_t{first} * n_in,
                        .rows = p.rows != nullptr ? p.rows + first : nullptr,
                        .norm = p.norm,
                        .norm_eps = p.norm_eps,
                        .n_rows = n,
                        .n_in = n_in,
                        .n_groups = n_groups,
                        .input = input};
    const FinishArgs finish{.finish = p.finish,
                            .scales = w.scales.as<float>(),
                            .bias = w.bias.as<float>(),
                            .out = p.out + first * p.n_columns,
                            .n_columns = static_cast<std::int32_t>(p.n_columns),
                            .n_tokens = n};
    const bool ring = path_ != CudaPath::kSimple && input != Input::kF32 && n <= kRingTokens;
    // A kernel that reads rows while others of its blocks write results must not find them there.
    const bool apart = finish.out + n * p.n_columns <= p.x ||
                       p.x + std::int64_t{p.n_rows} * n_in <= finish.out || p.rows != nullptr;
    if (ring && apart && resident_fits(matmul, n)) {
      matmul_resident(plain, matmul, prepare, finish);
      continue;
    }
    auto* x = rows_.at_least<std::byte>(input == Input::kF32
                                            ? std::int64_t{n_groups} * 8 * n_in * 4
                                            : k_blocks * n_groups * fragment::kGroupBytes);
    matmul.x = x;
    prepare.out = x;
    prepare_rows(plain, prepare);
    if (ring) {
      matmul_ring(plain, matmul, finish);
      continue;
    }
    matmul.parts = parts_.at_least<float>(std::int64_t{matmul.n_parts} * n_groups * 8 * row_blocks *
                                          fragment::kBlockRows);
    if (input == Input::kF32) {
      matmul.n_k_blocks = n_in;
      matmul_f32(plain, matmul);
    } else {
      matmul_simple(plain, matmul);
    }
    finish_parts(plain, matmul, finish);
  }
}

void CudaBackend::do_embed(const EmbedArgs& args) {
  cuda::embed(Launch{.runtime = *runtime_, .overlap = path_ == CudaPath::kRingOverlap}, args,
              args.table->weights.as<std::byte>(), args.table->scales.as<float>());
}

void CudaBackend::do_qkv_rope_append(const QkvRopeAppendArgs& args) {
  float* qkv = qkv_.at_least<float>(args.n_rows * args.qkv->n_out);
  multiply({.weight = args.qkv,
            .x = args.hidden,
            .norm = args.norm,
            .norm_eps = args.norm_eps,
            .n_rows = args.n_rows,
            .finish = Finish::kStore,
            .out = qkv,
            .n_columns = args.qkv->n_out});
  rope_append(Launch{.runtime = *runtime_, .overlap = path_ == CudaPath::kRingOverlap}, args, qkv);
}

void CudaBackend::do_attn_paged(const AttnPagedArgs& args) {
  const AttentionPlan plan = plan_attention(args);
  cuda::attn_paged(Launch{.runtime = *runtime_, .overlap = path_ == CudaPath::kRingOverlap}, args,
                   plan, plan.split ? parts_.at_least<float>(plan.n_floats) : nullptr);
}

void CudaBackend::do_matmul_residual(const MatmulResidualArgs& args) {
  const bool partial = args.partial != nullptr;
  multiply({.weight = args.weight,
            .x = args.x,
            .n_rows = args.n_rows,
            .finish = partial ? Finish::kStore : Finish::kAdd,
            .out = partial ? args.partial : args.residual,
            .n_columns = args.weight->n_out});
}

void CudaBackend::do_gate_up_swiglu(const GateUpSwigluArgs& args) {
  multiply({.weight = args.gate_up,
            .x = args.hidden,
            .norm = args.norm,
            .norm_eps = args.norm_eps,
            .n_rows = args.n_rows,
            .finish = Finish::kSwiglu,
            .out = args.out,
            .n_columns = args.gate_up->n_out / 2});
}

void CudaBackend::do_lm_head(const LmHeadArgs& args) {
  multiply({.weight = args.head,
            .x = args.hidden,
            .rows = args.rows,
            .norm = args.norm,
            .norm_eps = args.norm_eps,
            .n_rows = args.n_rows,
            .finish = Finish::kStore,
            .out = args.logits,
            .n_columns = args.head->n_out});
}

void CudaBackend::do_choose(const ChooseArgs& args) {
  FORETOKEN_CHECK(args.slices == nullptr, "slices of the vocabulary are not built for CUDA");
  void* space = choose_.at_least(static_cast<std::size_t>(choose_space_bytes(args)));
  cuda::choose(Launch{.runtime = *runtime_, .overlap = path_ == CudaPath::kRingOverlap}, args,
               space);
}

void CudaBackend::do_accept(const AcceptArgs& args) {
  cuda::accept(Launch{.runtime = *runtime_, .overlap = path_ == CudaPath::kRingOverlap}, args);
}

}  // namespace foretoken::cuda
