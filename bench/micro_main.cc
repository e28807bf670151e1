// usage: foretoken-bench-micro [--json] [--processor-time] [--threads N] [--rounds N] [--isa
// scalar|avx2|avx512|avx512_bf16|amx]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "bench/micro.h"

int main(int argc, char** argv) {
  using namespace foretoken;
  bench::MicroOptions options;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
    } else if (std::strcmp(argv[i], "--processor-time") == 0) {
      options.processor_time = true;
    } else if (std::strcmp(argv[i], "--threads") == 0) {
      options.n_threads = std::atoi(value), ++i;
    } else if (std::strcmp(argv[i], "--rounds") == 0) {
      options.n_rounds = std::atoi(value), ++i;
    } else if (std::strcmp(argv[i], "--isa") == 0) {
      options.isa = std::strcmp(value, "scalar") == 0   ? CpuIsa::kScalar
                    : std::strcmp(value, "avx2") == 0   ? CpuIsa::kAvx2
                    : std::strcmp(value, "avx512") == 0 ? CpuIsa::kAvx512
                    : std::strcmp(value, "amx") == 0    ? CpuIsa::kAmx
                                                        : CpuIsa::kAvx512Bf16;
      ++i;
    } else {
      std::fprintf(stderr, "unknown option %s\n", argv[i]);
      return 2;
    }
  }
  try {
    const bench::MicroReport report = bench::run_micro(options);
    std::fputs((json ? to_text(report.to_json()) + "\n" : report.to_table()).c_str(), stdout);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "foretoken-bench-micro: %s\n", error.what());
    return 1;
  }
  return 0;
}
