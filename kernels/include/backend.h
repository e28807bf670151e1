// A device: its memory and its ops. Public calls check the contract (kernels/shared/contract.h) and
// hand on to private virtuals that do the work, so that no backend can forget a precondition. Calls
// are queued in order on the device; results are on the host only after download(). One thread uses
// a backend. Blind to layers, requests and ranks.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/include/ops.h"
#include "kernels/include/types.h"

namespace foretoken {

// A recorded sequence of op calls: a list on the CPU, a graph on CUDA. Belongs to the backend that
// made it.
class Recording {
 public:
  virtual ~Recording() = default;
};

// How ranks that share a model come to sum on their devices. One backend of each calls join_ranks()
// at the same time.
enum class RankTier : std::uint8_t {
  kAuto,
  kHost,     // not at all: parts go through host memory
  kOneShot,  // each writes into the memory of the others; NCCL above 512 KiB, where it is there
  kNccl,
};
struct RankLinks {
  int rank = 0;
  int n_ranks = 1;
  std::int64_t most_floats = 0;  // of one sum
  RankTier tier = RankTier::kAuto;
  // All ranks' bytes in rank order, of equal size everywhere; used while joining only.
  std::function<std::vector<std::byte>(std::span<const std::byte> mine)> gather = {};
};
// "auto", "host", "one_shot", "nccl"; nothing for any other word.
std::optional<RankTier> rank_tier_from_name(std::string_view name);

// Queues on the backend that made it, and must not outlive it.
class RankSums {
 public:
  virtual ~RankSums() = default;
  // residual[i] += (part of rank 0 + part of rank 1) + part of rank 2 ...; the same bits on every
  // rank. All ranks call it with the same n, in the same order. Device addresses.
  virtual void add(const float* part, float* residual, std::int64_t n) = 0;
  virtual std::string description() const = 0;  // "NCCL 2.28.3"
};

class Backend {
 public:
  virtual ~Backend() = default;
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // Names what determines a row's bits: device, instruction set, kernel-set version. Part of the
  // numerics fingerprint.
  virtual std::string numerics() const = 0;
  // A sentence for people: "cpu, 2 threads, avx512_bf16".
  virtual std::string description() const = 0;
  // Whether pack() takes weights of this type.
  virtual bool holds(DType weights) const = 0;
  // Bytes an allocation could still get, for sizing the KV cache.
  virtual std::size_t free_bytes() const = 0;

  // Memory. allocate throws FatalError(kOutOfMemory) with the size asked for. New memory is zero.
  Buffer allocate(std::size_t bytes);
  void upload(void* to_device, const void* from_host, std::size_t bytes);
  void download(void* to_host,
                const void* from_device,
                std::size_t bytes);  // waits for queued work
  void copy(void* to_device, const void* from_device, std::size_t bytes);
  void synchronize();

  // Packs one or more matrices that share n_in. Sources are read before the call returns.
  // Mixed dtypes and shapes that do not fit are the caller's mistake; non-finite weights are not
  // looked for here.
  Linear pack(std::span<const LinearSource> sources, Stacking stacking = Stacking::kRows);
  // Names the layout of pack(): where two backends say the same, equal sources become equal bytes,
  // and adopt() takes those of the other. It ends with "/" and the number of this layout, counted
  // from 1. Empty: this backend's packed matrices are of no use elsewhere.
  virtual std::string packed_layout() const { return {}; }
  // The matrix that pack() would make, of bytes that it made of the same sources before. They are
  // used where they lie, aligned to 64 bytes, and `keeper` holds them. Of the sources only types,
  // sizes and whether there is a bias count. Nothing if the bytes are not as many as pack() would
  // make.
  std::optional<Linear> adopt(std::span<const LinearSource> sources,
                              Stacking stacking,
                              const PackedBytes& packed,
                              const std::shared_ptr<const void>& keeper);

  // Ops. n_rows == 0 is legal and does nothing.
  void embed(const EmbedArgs& args);
  void qkv_rope_append(const QkvRopeAppendArgs& args);
  void attn_paged(const AttnPagedArgs& args);
  void matmul_residual(const MatmulResidualArgs& args);
  void gate_up_swiglu(const GateUpSwigluArgs& args);
  void lm_head(const LmHeadArgs& args);
  void spread(const SpreadArgs& args);
  void choose(const ChooseArgs& args);
  void accept(const AcceptArgs& args);
  void advance(const AdvanceArgs& args);

  // Keeps what `calls` asks for, which may only be ops and copies of this backend, without doing
  // it; replay does it with the same addresses and counts. The contents of memory are read at
  // replay. Every Linear must outlive the recording.
  std::unique_ptr<Recording> record(const std::function<void()>& calls);
  void replay(Recording& recording);
  // Whether replaying is faster than calling, and what is asked for again and again worth
  // recording.
  virtual bool gains_by_recording() const = 0;

  // Null: sums over ranks go through the host. Throws FatalError where links.tier asks for what
  // cannot be.
  std::unique_ptr<RankSums> join_ranks(const RankLinks& links);

 private:
  friend class Buffer;
  virtual void* do_allocate(std::size_t bytes) = 0;
  virtual void do_free(void* address, std::size_t bytes) noexcept = 0;
  virtual void do_upload(void* to_device, const void* from_host, std::size_t bytes) = 0;
  virtual void do_download(void* to_host, const void* from_device, std::size_t bytes) = 0;
  virtual void do_copy(void* to_device, const void* from_device, std::size_t bytes) = 0;
  virtual void do_synchronize() = 0;
  virtual Linear do_pack(std::span<const LinearSource> sources, Stacking stacking) = 0;
  virtual std::optional<Linear> do_adopt(std::span<const LinearSource>,
                                         Stacking,
                                         const PackedBytes&,
                                         const std::shared_ptr<const void>&) {
    return std::nullopt;
  }
  virtual void do_embed(const EmbedArgs& args) = 0;
  virtual void do_qkv_rope_append(const QkvRopeAppendArgs& args) = 0;
  virtual void do_attn_paged(const AttnPagedArgs& args) = 0;
  virtual void do_matmul_residual(const MatmulResidualArgs& args) = 0;
  virtual void do_gate_up_swiglu(const GateUpSwigluArgs& args) = 0;
  virtual void do_lm_head(const LmHeadArgs& args) = 0;
  virtual void do_end_pass() {}  // instead of do_lm_head(), where a pass has no logits
  virtual void do_spread(const SpreadArgs& args) = 0;
  virtual void do_choose(const ChooseArgs& args) = 0;
  virtual void do_accept(const AcceptArgs& args) = 0;
  virtual void do_advance(const AdvanceArgs& args) = 0;
  virtual std::unique_ptr<Recording> do_record(const std::function<void()>& calls) = 0;
  virtual void do_replay(Recording& recording) = 0;
  virtual std::unique_ptr<RankSums> do_join_ranks(const RankLinks&) { return nullptr; }
};

// Which instructions the CPU backend may use; kAuto takes the best the machine has. The others pin
// a path, for tests and for fleets that must agree on one numerics fingerprint.
enum class CpuIsa : std::uint8_t { kAuto, kScalar, kAvx2, kAvx512, kAvx512Bf16, kAmx };

// Which kernels the CUDA backend multiplies with. All give the same bits; the simpler ones are the
// oracles of the faster ones.
enum class CudaPath : std::uint8_t {
  kAuto,
  kSimple,        // weights straight from memory, partial sums through a workspace
  kRing,          // sm_90: weights through a ring in shared memory, partial sums through a cluster
  kRingOverlap,   // and each kernel fills its ring while the one before still runs
  kRingPrefetch,  // and a product that has loaded its last fetches the next one's first into L2
};

// Whether steps are recorded. kAuto: where replaying is faster. Both give the same bits.
enum class Record : std::uint8_t { kAuto, kOn, kOff };
// "auto", "on", "off"; nothing for any other word.
std::optional<Record> record_from_name(std::string_view name);

struct BackendOptions {
  std::string device = "cpu";  // "cpu"; "cuda" and "cuda:N" load the CUDA library
  int n_threads = 0;           // CPU: 0 = physical cores, at most max_threads
  int max_threads = 0;         // CPU: 0 = no limit; what a small model pays for
  bool pin = false;            // CPU: bind worker threads to cores
  CpuIsa isa =
      CpuIsa::kAuto;  // CPU: pin a path; kAvx512Bf16 includes VNNI; kAmx adds the matrix unit
  int sharers = 1;  // CPU: like processes on this host; physical cores and free memory are divided
  CudaPath cuda_path = CudaPath::kAuto;
  Record record = Record::kAuto;
};

// "auto", "scalar", "avx2", "avx512", "avx512_bf16", "amx"; nothing for any other word.
std::optional<CpuIsa> cpu_isa_from_name(std::string_view name);

// Throws FatalError with a sentence when the device is not there.
std::unique_ptr<Backend> make_backend(const BackendOptions& options);

}  // namespace foretoken
