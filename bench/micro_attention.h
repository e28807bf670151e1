// Attention of the layers against the arithmetic peak: few rows over a long context,
// as decoding and verifying have it, and the rows of a prompt.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/micro.h"
#include "bench/probe.h"
#include "kernels/cpu/parallel.h"
#include "kernels/include/backend.h"

namespace foretoken::bench {

// 10^9 operations a second that the team reaches with operands in registers, measured once.
double peak_gop_s(double (*peak)(std::int64_t), cpu::Team& team);

// Few rows over each of the contexts, rows of several sequences, and a prompt chunk of 512 rows
// that ends at each.
std::vector<AttentionCost> measure_attention(Backend& backend,
                                             const MicroOptions& options,
                                             const Probe& probe,
                                             cpu::Team& team);

}  // namespace foretoken::bench
