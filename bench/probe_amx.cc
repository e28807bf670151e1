// The matrix unit's peak: four independent sums of full tiles, all operands in tiles.
#include <immintrin.h>

#include "bench/probe.h"

namespace foretoken::bench {
namespace {

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

void load_tiles() {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.row_bytes[i] = 64;
    config.rows[i] = 16;
  }
  alignas(64) std::uint8_t data[1024];
  for (int i = 0; i < 1024; ++i) data[i] = i % 2 == 1 ? 0x3e : 0x10;
  asm volatile("" : : "r"(data) : "memory");
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, data, 64);
  _tile_loadd(5, data, 64);
}

double peak_bf16(std::int64_t n) {
  n /= 4;  // a round here is worth more
  load_tiles();
  for (std::int64_t round = 0; round < n; ++round) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_release();
  return static_cast<double>(n) * 4 * 16 * 16 * 32 * 2;
}

double peak_i8(std::int64_t n) {
  n /= 4;
  load_tiles();
  for (std::int64_t round = 0; round < n; ++round) {
    _tile_dpbsud(0, 4, 5);
    _tile_dpbsud(1, 4, 5);
    _tile_dpbsud(2, 4, 5);
    _tile_dpbsud(3, 4, 5);
  }
  _tile_release();
  return static_cast<double>(n) * 4 * 16 * 16 * 64 * 2;
}

}  // namespace

Probe probe_amx() {
  Probe probe = probe_avx512_bf16();
  probe.name = "amx";
  probe.peak_bf16 = peak_bf16;
  probe.peak_i8 = peak_i8;
  return probe;
}

}  // namespace foretoken::bench
