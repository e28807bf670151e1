#include "kernels/cpu/backend.h"

#include <algorithm>
#include <cstring>

#include "common/base/cores.h"
#include "common/base/result.h"

namespace foretoken::cpu {
namespace {

// Part of numerics(): raised whenever the order of additions or a rounding of any op changes.
constexpr int kKernelSet = 3;

class CpuRecording final : public Recording {
 public:
  std::vector<std::function<void()>> calls;
};

}  // namespace

std::unique_ptr<Backend> make_backend(const BackendOptions& options) {
  if (options.n_threads < 0 || options.n_threads > 1024)
    throw FatalError(ErrorCode::kConfig,
                     "a CPU backend takes 1 to 1024 threads, or 0 for all cores; not " +
                         std::to_string(options.n_threads));
  const int most = options.max_threads > 0 ? options.max_threads : 1024;
  const int n_cores = std::max(1, usable_cores() / std::max(1, options.sharers));
  const int n_threads = options.n_threads > 0 ? options.n_threads : std::min(n_cores, most);
  return std::make_unique<CpuBackend>(select_isa(options.isa), n_threads, options.pin,
                                      options.sharers, options.record);
}

CpuBackend::CpuBackend(const Isa& isa, int n_threads, bool pin, int sharers, Record record)
    : isa_(isa),
      team_(n_threads, pin),
      team_sizes_{TeamSize(n_threads), TeamSize(n_threads)},
      sharers_(static_cast<std::size_t>(std::max(1, sharers))),
      record_(record) {}

std::string CpuBackend::numerics() const {
  return std::string("cpu/") + isa_.numerics + "/" + std::to_string(kKernelSet);
}

std::string CpuBackend::description() const {
  return "cpu, " + std::to_string(team_.capacity()) +
         (team_.capacity() == 1 ? " thread, " : " threads, ") + isa_.name;
}

// A member that is interrupted for moments holds up the many short ops of a pass of few rows, and
// may still be worth half of the time of a long one.
TeamSize& CpuBackend::team_size(std::int32_t n_rows) {
  return team_sizes_[n_rows > kManyRows ? 1 : 0];
}

void CpuBackend::begin_pass(std::int32_t n_rows) {
  if (team_.capacity() == 1) return;
  pass_rows_ = n_rows;
  pass_begin_ = std::chrono::steady_clock::now();
  team_.set_size(team_size(n_rows).now());
  team_.take_waited();
}

void CpuBackend::end_pass() {
  if (pass_rows_ == 0) return;
  team_size(pass_rows_)
      .passed(pass_rows_, std::chrono::steady_clock::now() - pass_begin_, team_.take_waited());
  pass_rows_ = 0;
}

std::size_t CpuBackend::free_bytes() const { return free_memory_bytes() / sharers_; }

void* CpuBackend::do_allocate(std::size_t bytes) {
  void* address = allocate_zeroed(bytes);
  if (address == nullptr)
    throw FatalError(ErrorCode::kOutOfMemory, "the system has no memory for an allocation of " +
                                                  std::to_string(bytes) + " bytes");
  return address;
}

void CpuBackend::do_free(void* address, std::size_t bytes) noexcept { release(address, bytes); }

void CpuBackend::do_upload(void* to_device, const void* from_host, std::size_t bytes) {
  FORETOKEN_CHECK(recorded_ == nullptr, "uploads are not recorded");
  std::memcpy(to_device, from_host, bytes);
}

void CpuBackend::do_download(void* to_host, const void* from_device, std::size_t bytes) {
  FORETOKEN_CHECK(recorded_ == nullptr, "downloads are not recorded");
  std::memcpy(to_host, from_device, bytes);
}

void CpuBackend::do_copy(void* to_device, const void* from_device, std::size_t bytes) {
  submit([=] { std::memmove(to_device, from_device, bytes); });
}

void CpuBackend::do_embed(const EmbedArgs& args) {
  submit([this, args] { embed_now(args); });
}
void CpuBackend::do_qkv_rope_append(const QkvRopeAppendArgs& args) {
  submit([this, args] { qkv_rope_append_now(args); });
}
void CpuBackend::do_attn_paged(const AttnPagedArgs& args) {
  submit([this, args] { attn_paged_now(args); });
}
void CpuBackend::do_matmul_residual(const MatmulResidualArgs& args) {
  submit([this, args] { matmul_residual_now(args); });
}
void CpuBackend::do_gate_up_swiglu(const GateUpSwigluArgs& args) {
  submit([this, args] { gate_up_swiglu_now(args); });
}
void CpuBackend::do_lm_head(const LmHeadArgs& args) {
  submit([this, args] { lm_head_now(args); });
}
void CpuBackend::do_spread(const SpreadArgs& args) {
  submit([this, args] { spread_now(args); });
}
void CpuBackend::do_choose(const ChooseArgs& args) {
  submit([this, args] { choose_now(args); });
}
void CpuBackend::do_accept(const AcceptArgs& args) {
  submit([this, args] { accept_now(args); });
}

void CpuBackend::do_advance(const AdvanceArgs& args) {
  submit([this, args] { advance_now(args); });
}

std::unique_ptr<Recording> CpuBackend::do_record(const std::function<void()>& calls) {
  FORETOKEN_CHECK(recorded_ == nullptr, "record() inside record()");
  auto recording = std::make_unique<CpuRecording>();
  recorded_ = &recording->calls;
  calls();
  recorded_ = nullptr;
  return recording;
}

void CpuBackend::do_replay(Recording& recording) {
  FORETOKEN_CHECK(recorded_ == nullptr, "replay() inside record()");
  auto* mine = dynamic_cast<CpuRecording*>(&recording);
  FORETOKEN_CHECK(mine != nullptr, "a recording of another backend");
  for (const std::function<void()>& call : mine->calls) call();
}

}  // namespace foretoken::cpu
