// A float checkpoint becomes one whose linears are stored in eight or four bits, in the layout of
// quantization.h. Needs no device: rows are rounded on the host, one tensor at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "common/model/input_squares.h"
#include "kernels/include/types.h"

namespace foretoken {

struct QuantizeOptions {
  DType to = DType::kI8;   // kI8, kF8E4M3, or kI4: linears as is_held_in_int4() says, others kI8
  std::int64_t group = 0;  // of kI4: 32, 64 or 128; 0: int4_group()
  bool with_down_projections = false;  // of kI4: in four bits, too
  // Of kI4: scales are chosen for what it gives. Called once all that can be refused was, as it may
  // take minutes.
  std::function<InputSquares()> measure_inputs = {};
  bool with_lm_head = false;  // an untied head too, never in four bits; others' loaders expect it
                              // in 16 bits
  std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)> on_progress = {};
};

struct QuantizeResult {
  std::uint32_t n_quantised = 0;  // matrices
  std::uint32_t n_in_8_bits = 0;  // of these; beside int4
  std::uint64_t bytes_before = 0;
  std::uint64_t bytes_after = 0;
};

// Reads `source`, writes `folder`, which must not exist: the same files with the same shards, every
// other file copied as it is. Per output channel, symmetric, to nearest even; four bits in groups.
// Scales are of the matrix's float type, those of fp8 in float32. Until it is whole it is
// `folder`.partial, which goes again if this throws. Throws FatalError.
QuantizeResult quantize_model(const std::filesystem::path& source,
                              const std::filesystem::path& folder,
                              const QuantizeOptions& options);

}  // namespace foretoken
