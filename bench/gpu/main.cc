// usage: foretoken-bench-gpu [--device cuda:N] [--json FILE] [--seconds S] [--small] | --shapes
// [--small] Ends with status 0 when everything was measured and every check passed, 1 when a check
// failed, 3 without a device.
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
  bool only_shapes = false;
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
    else if (std::strcmp(argv[i], "--shapes") == 0)
      only_shapes = true;
    else {
      std::fprintf(stderr, "unknown option %s\n", argv[i]);
      return 2;
    }
  }
  if (only_shapes) {
    std::fputs(bench::shapes_json(options.small).c_str(), stdout);
    return 0;
  }
  try {
    const bench::Report report = bench::measure(options, [&](const bench::Report& so_far) {
      write_file(options.json, so_far.to_json());
      std::printf("%s\n", so_far.last_line.c_str());
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
