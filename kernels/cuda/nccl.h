// NCCL, as far as sums need it: an all-gather. Opened by name at run time, since a machine may lack
// it; its declarations are written out here, so that building needs no header of it either. One
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace foretoken::cuda {

using NcclId = std::array<std::byte, 128>;

class Nccl {
 public:
  virtual ~Nccl() = default;
  // Rank 0 makes one and tells the others.
  virtual NcclId make_id() = 0;
  // All ranks at once, each with its device bound; returns when all have come.
  virtual void join(const NcclId& id, int rank, int n_ranks) = 0;
  // all: [n_ranks][n] floats, rank after rank. stream: a cudaStream_t.
  virtual void all_gather(const float* mine, float* all, std::int64_t n, void* stream) = 0;
  virtual std::string description() const = 0;  // "NCCL 2.28.3"
};

// Null where it is not installed, with `why` in words. Calls throw FatalError(kUnavailable).
std::unique_ptr<Nccl> load_nccl(std::string& why);

}  // namespace foretoken::cuda
