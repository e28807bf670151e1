// usage: foretoken-bench-gpu [--device cuda:N] [--json FILE] [--seconds S] [--small]
// Ends with status 0 when everything was measured and every check passed, 1 when a check failed, 3
// without a device.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bench/gpu/report.h"
#include "common/base/result.h"

namespace {

void write_file(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  const std::string unfinished = path + ".new";
  std::FILE* file = std::fopen(unfinished.c_str(), "w");
  if (file == nullptr) return;
  std::fputs(text.c_str(), file);
  std::fclose(file);
  std::rename(unfinished.c_str(), path.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  using namespace foretoken;
  bench::GpuOptions options;
  std::string device = "cuda";
  options.backend = [&](CudaPath path) {
    return make_backend({.device = device, .cuda_path = path});
  };
  for (int i = 1; i < argc; ++i) {
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (std::strcmp(argv[i], "--device") == 0)
      device = value, ++i;
    else if (std::strcmp(argv[i], "--json") == 0)
      options.json = value, ++i;
    else if (std::strcmp(argv[i], "--seconds") == 0)
      options.seconds = std::atof(value), ++i;
    else if (std::strcmp(argv[i], "--small") == 0)
      options.small = true;
    else {
      std::fprintf(stderr, "unknown option %s\n", argv[i]);
      return 2;
    }
  }
  try {
    const bench::Report report = bench::measure(options, [&](const bench::Report& so_far) {
      write_file(options.json, so_far.to_json());
      if (so_far.rows.empty()) return;
      const bench::Row& r = so_far.rows.back();
      std::printf("%-14s %-12s %-12s %2d rows %10.2f us %7.1f GB/s %5.1f %%\n", r.what.c_str(),
                  r.dtype.c_str(), r.path.c_str(), r.n_rows, r.microseconds, r.gigabytes_per_second,
                  100 * r.share_of_copy);
      std::fflush(stdout);
    });
    write_file(options.json, report.to_json());
    std::printf("\n%s", report.to_table().c_str());
    return report.failed() ? 1 : 0;
  } catch (const FatalError& error) {
    std::fprintf(stderr, "foretoken-bench-gpu: %s\n", error.what());
    return 3;
  }
}
