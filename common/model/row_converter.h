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
#include "common/model/int4.h"
#include "common/model/shard.h"
#include "kernels/include/types.h"

namespace foretoken {

// A matrix as a checkpoint has it, in memory that outlives what reads it.
struct StoredMatrix {
  DType dtype = DType::kF32;
  bool packed = false;                    // in 32-bit words: StoredTensor
  Int4Layout layout = Int4Layout::kRows;  // of int4
  std::span<const std::byte> bytes;
  std::int64_t n_out = 0;          // rows in the checkpoint
  std::int64_t n_in = 0;           // columns in the checkpoint
  std::span<const float> scales;   // of the wanted rows, whole ones; quantised types only
  std::int64_t group = kWholeRow;  // columns that share one
  // Of int4. Zero points as scales; empty: all 8. The group of each column; empty: in order.
  std::span<const std::uint8_t> zeros = {};
  std::span<const std::int32_t> group_of = {};
  Int4Kind kind = Int4Kind::kOffset;
};

// What is wanted of it.
struct WantedRows {
  Range rows, columns;
  // Of int4: a part of the stored group where that is int4 too, and the columns begin with one.
  std::int64_t group = 0;
  // Of int4. Stored codes keep theirs, or become kZeroPoints where they are kOffset; floats become
  // any.
  Int4Kind kind = Int4Kind::kOffset;
};

class RowConverter final : public RowReader {
 public:
  RowConverter(const StoredMatrix& stored, DType to, const WantedRows& wanted)
      : stored_(stored),
        to_(to),
        rows_(wanted.rows),
        columns_(wanted.columns),
        group_(wanted.group),
        kind_(wanted.kind) {}

  void read(std::int64_t first, std::int64_t n, std::byte* to, float* scales) const override;

  // Of the rows that were read: a value beyond the range of the type (float16 ends at 65504), and a
  // value that is no finite number. What was written for them is of no use.
  bool went_beyond_range() const { return beyond_range_; }
  bool met_not_finite() const { return not_finite_; }

 private:
  // The wanted elements as they are stored; of packed ones the codes, written to `codes`.
  std::span<const std::byte> elements(std::int64_t row, std::byte* codes) const;
  float read_row(std::int64_t row, std::byte* to) const;
  // words: those of the row, eight codes each.
  float read_int4(std::int64_t row, std::span<const std::byte> words, std::byte* to) const;
  float keep_int4(std::span<const std::uint8_t> codes,
                  const Int4RowGroups& groups,
                  std::byte* to) const;
  float convert(std::span<const float> values, std::byte* to) const;

  const StoredMatrix stored_;
  const DType to_;
  const Range rows_, columns_;
  const std::int64_t group_;
  const Int4Kind kind_;
  mutable std::atomic<bool> beyond_range_ = false, not_finite_ = false;
};

}  // namespace foretoken
