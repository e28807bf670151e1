// The table for any processor. Nothing but inner_*.h may be instantiated here: this file has its
// own compiler flags.
#include "kernels/cpu/isa.h"

#include "kernels/include/numerics.h"

namespace foretoken::cpu {
namespace {

void plain_noise_words(std::uint32_t first_id, const NoiseKey& key, std::uint32_t* words) {
  for (std::uint32_t block = 0; block < 4; ++block) {
    const Philox4 p =
        philox((first_id >> 2) + block, key.position, key.choice,
               static_cast<std::uint32_t>(NoiseDomain::kTarget),
               static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32));
    for (std::uint32_t i = 0; i < 4; ++i) words[4 * block + i] = p.word[i];
  }
}

// The order matters.
// clang-format off
#include "kernels/cpu/simd_scalar.h"
#include "kernels/cpu/inner_matmul.h"
#include "kernels/cpu/inner_int4.h"
#include "kernels/cpu/inner_rows.h"
#include "kernels/cpu/inner_attention.h"
#include "kernels/cpu/inner_table.h"
// clang-format on

}  // namespace

const Isa* isa_scalar() {
  static const Isa table = make_table(CpuIsa::kScalar, "scalar", "scalar");
  return &table;
}

}  // namespace foretoken::cpu
