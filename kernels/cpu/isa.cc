#include "kernels/cpu/isa.h"

#include <string>

#include "common/base/result.h"

namespace foretoken::cpu {

#if !defined(FORETOKEN_X86)
const Isa* isa_avx2() { return nullptr; }
const Isa* isa_avx512() { return nullptr; }
const Isa* isa_avx512_bf16() { return nullptr; }
#endif

bool machine_has(CpuIsa isa) {
  if (isa == CpuIsa::kScalar || isa == CpuIsa::kAuto) return true;
#if defined(FORETOKEN_X86)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (isa == CpuIsa::kAvx2) return avx2;
  if (isa == CpuIsa::kAvx512) return avx512;
  return avx512 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

const Isa& select_isa(CpuIsa wanted) {
  if (wanted == CpuIsa::kAuto) {
    for (const CpuIsa isa : {CpuIsa::kAvx512Bf16, CpuIsa::kAvx512, CpuIsa::kAvx2})
      if (machine_has(isa)) return select_isa(isa);
    return *isa_scalar();
  }
  const Isa* isa = wanted == CpuIsa::kScalar   ? isa_scalar()
                   : wanted == CpuIsa::kAvx2   ? isa_avx2()
                   : wanted == CpuIsa::kAvx512 ? isa_avx512()
                                               : isa_avx512_bf16();
  if (isa == nullptr || !machine_has(wanted)) {
    const char* name = wanted == CpuIsa::kAvx2     ? "avx2"
                       : wanted == CpuIsa::kAvx512 ? "avx512"
                                                   : "avx512_bf16";
    throw FatalError(ErrorCode::kUnavailable,
                     std::string("this machine's processor lacks the instruction set ") + name +
                         " that was asked for");
  }
  return *isa;
}

}  // namespace foretoken::cpu
