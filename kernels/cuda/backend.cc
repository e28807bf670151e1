#include "kernels/cuda/backend.h"

#include <algorithm>
#include <utility>

#include "common/base/result.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/rank_sums.h"

namespace foretoken::cuda {
namespace {

// A product of more bytes than this is not started early: its blocks would be put where the kernel
// in front leaves room first, two on one multiprocessor and none on another, and keep these places.
constexpr std::size_t kMostOverlapped = std::size_t{40} << 20;

// Part of numerics(): raised whenever the order of additions or a rounding of any op changes.
constexpr int kKernelSet = 3;

class CudaRecording final : public Recording {
 public:
  CudaRecording(const CudaBackend* owner_in, std::unique_ptr<Graph> graph_in)
      : owner(owner_in), graph(std::move(graph_in)) {}
  const CudaBackend* owner;
  std::unique_ptr<Graph> graph;
};

// The ring has the bits of the oracle (checked on an H200) and is faster.
CudaPath resolve(CudaPath path, const DeviceInfo& info) {
  if (path == CudaPath::kAuto) return info.major >= 9 ? CudaPath::kRingOverlap : CudaPath::kSimple;
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

CudaBackend::CudaBackend(std::unique_ptr<Runtime> runtime, CudaPath path, Record record)
    : runtime_(std::move(runtime)),
      info_(runtime_->info()),
      path_(resolve(path, info_)),
      record_(record),
      rows_(*runtime_),
      parts_(*runtime_),
      qkv_(*runtime_),
      squares_(*runtime_),
      arrivals_(*runtime_),
      choose_(*runtime_) {}

CudaBackend::~CudaBackend() {
  try {
    runtime_->synchronize();
  } catch (const FatalError&) {  // that the device has failed was said before
  }
}

std::string CudaBackend::numerics() const {
  return "cuda/sm_" + std::to_string(info_.major) + std::to_string(info_.minor) + "/" +
         std::to_string(kKernelSet);
}

std::string CudaBackend::description() const {
  const char* path = path_ == CudaPath::kSimple        ? "simple kernels"
                     : path_ == CudaPath::kRing        ? "ring kernels"
                     : path_ == CudaPath::kRingOverlap ? "overlapping ring kernels"
                                                       : "overlapping ring kernels with prefetch";
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

std::unique_ptr<RankSums> CudaBackend::do_join_ranks(const RankLinks& links) {
  return cuda::join_ranks(*runtime_, links);
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
  const float* squares = nullptr;  // of x
  float* squares_out = nullptr;    // of out
  RopeArgs rope;
  const Linear* next = nullptr;
};

bool CudaBackend::is_ring(const Linear& weight, std::int32_t n_rows) const {
  return path_ != CudaPath::kSimple && input_of(weight.dtype) != Input::kF32 &&
         n_rows <= kRingTokens;
}

// Rows first .. first + prepare.n_rows - 1 by the product that prepares them itself.
void CudaBackend::multiply_ring(const Launch& plain,
                                const Product& p,
                                std::int32_t first,
                                MatmulArgs& matmul,
                                PrepareArgs& prepare,
                                const FinishArgs& finish) {
  const std::int64_t n_pieces = squares_per_row(prepare.n_in);
  const bool of_all = p.rows != nullptr;  // rows of x are picked, and so are their squares
  const float* end = prepare.x + std::int64_t{prepare.n_rows} * prepare.n_in;
  // A kernel that reads rows while others of its blocks write results must not find them there.
  if (!of_all && finish.out != nullptr && finish.out < end &&
      prepare.x < finish.out + finish.n_tokens * p.n_columns) {
    const auto bytes = static_cast<std::size_t>(end - prepare.x) * sizeof(float);
    void* apart = rows_.at_least(bytes);
    runtime_->copy(apart, prepare.x, bytes);
    prepare.x = static_cast<float*>(apart);
  }
  if (p.norm != nullptr && p.squares != nullptr) {
    prepare.squares = p.squares + (of_all ? 0 : first * n_pieces);
  } else if (p.norm != nullptr) {
    prepare.out = squares_.at_least<float>(prepare.n_rows * n_pieces);
    row_squares(plain, prepare);
    prepare.squares = static_cast<float*>(prepare.out);
    prepare.squares_of_tokens = true;
  }
  const auto whole = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; };
  prepare.vectors = prepare.n_in % 4 == 0 && whole(prepare.x) && whole(prepare.norm);
  if (path_ == CudaPath::kRingPrefetch && p.next != nullptr)
    matmul.next = plan_prefetch(*p.next, info_.n_multiprocessors);
  matmul_ring(plain, matmul, prepare, finish);
}

void CudaBackend::multiply(const Product& p) {
  const Linear& w = *p.weight;
  FORETOKEN_CHECK(p.norm == nullptr || w.n_in <= std::int64_t{kSquaresPiece} * 512,
                  "rows too long to be normalised");
  const bool overlap = path_ >= CudaPath::kRingOverlap && w.weights.size_bytes() <= kMostOverlapped;
  const Launch plain{.runtime = *runtime_, .overlap = overlap};
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
    FinishArgs finish{.finish = p.finish,
                      .scales = w.scales.as<float>(),
                      .bias = w.bias.as<float>(),
                      .out = p.out == nullptr ? nullptr : p.out + first * p.n_columns,
                      .squares = p.squares_out == nullptr
                                     ? nullptr
                                     : p.squares_out + first * squares_per_row(p.n_columns),
                      .n_columns = static_cast<std::int32_t>(p.n_columns),
                      .n_tokens = n,
                      .rope = p.rope};
    if (is_ring(w, n)) {
      multiply_ring(plain, p, first, matmul, prepare, finish);
      continue;
    }
    auto* x = rows_.at_least<std::byte>(input == Input::kF32
                                            ? std::int64_t{n_groups} * 8 * n_in * 4
                                            : k_blocks * n_groups * fragment::kGroupBytes);
    matmul.x = x;
    prepare.out = x;
    prepare_rows(plain, prepare);
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
  cuda::embed(Launch{.runtime = *runtime_, .overlap = path_ >= CudaPath::kRingOverlap}, args,
              args.table->weights.as<std::byte>(), args.table->scales.as<float>());
}

void CudaBackend::do_qkv_rope_append(const QkvRopeAppendArgs& args) {
  const RopeArgs rope{.q_norm = args.q_norm,
                      .k_norm = args.k_norm,
                      .cos = args.rope_cos,
                      .sin = args.rope_sin,
                      .positions = args.positions,
                      .slots = args.slots,
                      .geometry = args.kv.geometry,
                      .blocks = args.kv.blocks,
                      .scales = args.kv.scales,
                      .q = args.q,
                      .norm_eps = args.norm_eps,
                      .n_heads = args.n_heads,
                      .layer = args.layer};
  Product product{.weight = args.qkv,
                  .x = args.hidden,
                  .norm = args.norm,
                  .norm_eps = args.norm_eps,
                  .n_rows = args.n_rows,
                  .n_columns = args.qkv->n_out,
                  .squares = args.squares,
                  .rope = rope,
                  .next = args.next};
  if (is_ring(*args.qkv, args.n_rows) && rope_fits(args.kv.geometry.head_dim)) {
    product.finish = Finish::kRope;
    return multiply(product);
  }
  product.out = qkv_.at_least<float>(args.n_rows * args.qkv->n_out);
  multiply(product);
  rope_append(Launch{.runtime = *runtime_, .overlap = path_ >= CudaPath::kRingOverlap}, rope,
              product.out, args.n_rows);
}

void CudaBackend::do_attn_paged(const AttnPagedArgs& args) {
  const AttentionPlan plan = plan_attention(args);
  cuda::attn_paged(Launch{.runtime = *runtime_, .overlap = path_ >= CudaPath::kRingOverlap}, args,
                   plan, plan.split ? parts_.at_least<float>(plan.n_floats) : nullptr,
                   arrivals_.at_least<std::uint32_t>(plan.n_tiles * args.kv.geometry.n_kv_heads));
}

void CudaBackend::do_matmul_residual(const MatmulResidualArgs& args) {
  const bool partial = args.partial != nullptr;
  multiply({.weight = args.weight,
            .x = args.x,
            .n_rows = args.n_rows,
            .finish = partial ? Finish::kStore : Finish::kAdd,
            .out = partial ? args.partial : args.residual,
            .n_columns = args.weight->n_out,
            .squares_out = partial ? nullptr : args.squares,
            .next = args.next});
}

void CudaBackend::do_gate_up_swiglu(const GateUpSwigluArgs& args) {
  multiply({.weight = args.gate_up,
            .x = args.hidden,
            .norm = args.norm,
            .norm_eps = args.norm_eps,
            .n_rows = args.n_rows,
            .finish = Finish::kSwiglu,
            .out = args.out,
            .n_columns = args.gate_up->n_out / 2,
            .squares = args.squares,
            .next = args.next});
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
            .n_columns = args.head->n_out,
            .squares = args.squares,
            .next = args.next});
}

void CudaBackend::do_spread(const SpreadArgs& args) {
  cuda::spread(Launch{.runtime = *runtime_, .overlap = path_ >= CudaPath::kRingOverlap}, args);
}

void CudaBackend::do_choose(const ChooseArgs& args) {
  void* space = choose_.at_least(static_cast<std::size_t>(choose_space_bytes(args)));
  cuda::choose(Launch{.runtime = *runtime_, .overlap = path_ >= CudaPath::kRingOverlap}, args,
               space);
}

void CudaBackend::do_accept(const AcceptArgs& args) {
  cuda::accept(Launch{.runtime = *runtime_, .overlap = path_ >= CudaPath::kRingOverlap}, args);
}

void CudaBackend::do_advance(const AdvanceArgs& args) {
  cuda::advance(Launch{.runtime = *runtime_, .overlap = path_ >= CudaPath::kRingOverlap}, args);
}

}  // namespace foretoken::cuda
