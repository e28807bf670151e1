// Rows of a weight matrix on their way from a checkpoint to a backend: this rank's part of each, in
// the type that it is held in. Made one by one while the backend packs, so that no second copy of a
// matrix is in memory and all of the backend's threads convert. Uses no file and no device.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/model/config.h"
#include "common/model/shard.h"
#include "kernels/include/types.h"

namespace foretoken {

// A matrix as a checkpoint has it, in memory that outlives what reads it.
struct StoredMatrix {
  DType dtype = DType::kF32;
  bool packed = false;  // in 32-bit words: StoredTensor
  std::span<const std::byte> bytes;
  std::int64_t n_in = 0;           // columns in the checkpoint
  std::span<const float> scales;   // of the wanted rows, whole ones; quantised types only
  std::int64_t group = kWholeRow;  // columns that share one
};

class RowConverter final : public RowReader {
 public:
  // Rows and columns are those wanted, of the stored ones. group: of int4, a part of the stored
  // one's where that is int4 too, and the columns begin with one.
  RowConverter(const StoredMatrix& stored,
               DType to,
               const Range& rows,
               const Range& columns,
               std::int64_t group = 0)
      : stored_(stored), to_(to), rows_(rows), columns_(columns), group_(group) {}

  float read(std::int64_t row, std::byte* to) const override;

  // Of the rows that were read: a value beyond the range of the type (float16 ends at 65504), and a
  // value that is no finite number. What was written for them is of no use.
  bool went_beyond_range() const { return beyond_range_; }
  bool met_not_finite() const { return not_finite_; }

 private:
  // The wanted elements as they are stored; of packed ones the codes, written to `codes`.
  std::span<const std::byte> elements(std::int64_t row, std::byte* codes) const;
  float read_int4(std::int64_t row, std::byte* to) const;
  float convert(std::span<const float> values, std::byte* to) const;

  const StoredMatrix stored_;
  const DType to_;
  const Range rows_, columns_;
  const std::int64_t group_;
  mutable std::atomic<bool> beyond_range_ = false, not_finite_ = false;
};

}  // namespace foretoken
