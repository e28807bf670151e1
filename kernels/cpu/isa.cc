#include "kernels/cpu/isa.h"

#if defined(FORETOKEN_X86)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <string>

#include "common/base/result.h"

namespace foretoken::cpu {

#if !defined(FORETOKEN_X86)
const Isa* isa_avx2() { return nullptr; }
const Isa* isa_avx512() { return nullptr; }
const Isa* isa_avx512_bf16() { return nullptr; }
const Isa* isa_amx() { return nullptr; }
#endif

namespace {

#if defined(FORETOKEN_X86)
// The kernel keeps the matrix unit's large state only for processes that ask, once, before they use
// it.
bool ask_for_amx() {
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool granted = syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  return granted;
}

// As AMX below: not every compiler knows its name in __builtin_cpu_supports.
bool cpuid_has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kF16c = 1u << 29;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kF16c) != 0;
}

bool cpuid_has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;
  return (d & (kBf16 | kTile | kInt8)) == (kBf16 | kTile | kInt8);
}
#endif

struct Known {
  CpuIsa isa;
  const char* name;
  const Isa* (*table)();
};
constexpr Known kKnown[] = {
    {CpuIsa::kAmx, "amx", isa_amx},          {CpuIsa::kAvx512Bf16, "avx512_bf16", isa_avx512_bf16},
    {CpuIsa::kAvx512, "avx512", isa_avx512}, {CpuIsa::kAvx2, "avx2", isa_avx2},
    {CpuIsa::kScalar, "scalar", isa_scalar},
};

}  // namespace

bool machine_has(CpuIsa isa) {
  if (isa == CpuIsa::kScalar || isa == CpuIsa::kAuto) return true;
#if defined(FORETOKEN_X86)
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpuid_has_f16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (isa == CpuIsa::kAvx2) return avx2;
  if (isa == CpuIsa::kAvx512) return avx512;
  const bool bf16 =
      avx512 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
  if (isa == CpuIsa::kAvx512Bf16) return bf16;
  return bf16 && cpuid_has_amx() && ask_for_amx();
#else
  return false;
#endif
}

const Isa& select_isa(CpuIsa wanted) {
  for (const Known& known : kKnown) {  // best first
    if (wanted != CpuIsa::kAuto && wanted != known.isa) continue;
    if (machine_has(known.isa)) return *known.table();
    if (wanted == known.isa)
      throw FatalError(ErrorCode::kUnavailable,
                       std::string("this machine's processor lacks the instruction set ") +
                           known.name + " that was asked for");
  }
  return *isa_scalar();
}

}  // namespace foretoken::cpu

namespace foretoken {

std::optional<CpuIsa> cpu_isa_from_name(std::string_view name) {
  if (name == "auto") return CpuIsa::kAuto;
  for (const cpu::Known& known : cpu::kKnown)
    if (known.name == name) return known.isa;
  return std::nullopt;
}

}  // namespace foretoken
