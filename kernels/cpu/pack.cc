// Weights from a checkpoint's rows into panels. Done once at load, by the whole team; the member
// that packs a panel is the one that reads it later, while all take part, so its memory is near.
// The pages of a mapped file are where they were written or first read.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/base/result.h"
#include "kernels/cpu/backend.h"
#include "kernels/shared/unpacked.h"

namespace foretoken::cpu {
namespace {

// Where packed output `i` comes from: a source and its row; null for padding.
struct Origin {
  const LinearSource* source = nullptr;
  std::int64_t row = 0;
};

Origin origin_of(std::span<const LinearSource> sources, Stacking stacking, std::int64_t i) {
  if (stacking == Stacking::kGateUp) {  // panels of gate and up by turns
    const std::int64_t panel = i / kPanel;
    const LinearSource& source = sources[static_cast<std::size_t>(panel % 2)];
    const std::int64_t row = panel / 2 * kPanel + i % kPanel;
    return row < source.n_out ? Origin{&source, row} : Origin{};
  }
  for (const LinearSource& source : sources) {
    if (i < source.n_out) return {&source, i};
    i -= source.n_out;
  }
  return {};
}

// Steps that are packed together: of each output a line of memory.
constexpr std::int64_t kLineSteps = 16;
using Lines = std::uint32_t[kPanel][kLineSteps];

// Bytes [begin, begin + n) of a row, zeros behind its end and where there is no row.
void read_line(const std::byte* row,
               std::int64_t row_bytes,
               std::int64_t begin,
               std::int64_t n,
               std::uint32_t* line) {
  const std::int64_t there = row == nullptr ? 0 : std::clamp<std::int64_t>(row_bytes - begin, 0, n);
  if (there > 0) std::memcpy(line, row + begin, static_cast<std::size_t>(there));
  if (there < n)
    std::memset(reinterpret_cast<std::byte*>(line) + there, 0, static_cast<std::size_t>(n - there));
}

// How steps are written: each word with the bits of `flip` turned over, in strips of `n` outputs
// that are strip_bytes apart.
struct Strips {
  std::uint32_t flip = 0;
  int n = kPanel;
  std::int64_t strip_bytes = 0;
  int halves_of = 0;  // Product::halves_of
};

// Steps of one, two or four values of k beside each other.
void write_steps(const Lines& lines, std::int64_t n_steps, const Strips& strips, std::byte* to) {
  const int n = strips.n;
  for (int first = 0; first < kPanel; first += n, to += strips.strip_bytes)
    for (std::int64_t step = 0; step < n_steps; ++step) {
      std::uint32_t words[kPanel];
      for (int i = 0; i < n; ++i) words[i] = lines[first + i][step] ^ strips.flip;
      std::memcpy(to + step * n * kOutputBytes, words, static_cast<std::size_t>(n * kOutputBytes));
    }
}

// The same with the first halves of halves_of outputs' steps before their second halves.
void write_halves(const Lines& lines, std::int64_t n_steps, const Strips& strips, std::byte* to) {
  const int n = strips.n, halves_of = strips.halves_of;
  for (int first = 0; first < kPanel; first += n, to += strips.strip_bytes)
    for (std::int64_t step = 0; step < n_steps; ++step) {
      std::uint16_t halves[2 * kPanel];
      for (int i = 0; i < n; ++i) {
        const std::uint32_t word = lines[first + i][step] ^ strips.flip;
        std::uint16_t* of_column = halves + i / halves_of * 2 * halves_of + i % halves_of;
        of_column[0] = static_cast<std::uint16_t>(word);
        of_column[halves_of] = static_cast<std::uint16_t>(word >> 16);
      }
      std::memcpy(to + step * n * kOutputBytes, halves, static_cast<std::size_t>(n * kOutputBytes));
    }
}

// Of every output the scale of a group of four-bit weights; zeros where there is no row.
void write_int4_scales(const std::byte* const (&rows)[kPanel], std::int64_t at, std::byte* to) {
  std::uint16_t scales[kPanel] = {};
  for (int column = 0; column < kPanel; ++column)
    if (rows[column] != nullptr)
      std::memcpy(&scales[column], rows[column] + at, sizeof scales[column]);
  std::memcpy(to, scales, sizeof scales);
}

// The same of the zero points.
void write_int4_zeros(const std::byte* const (&rows)[kPanel], std::int64_t at, std::byte* to) {
  std::byte zeros[kPanel] = {};
  for (int column = 0; column < kPanel; ++column)
    if (rows[column] != nullptr) zeros[column] = rows[column][at];
  std::memcpy(to, zeros, sizeof zeros);
}

// The rows of a panel, where they lie, and their scales; null: there is no such row.
struct PanelRows {
  const std::byte* at[kPanel] = {};
  float scales[kPanel] = {};
};

// Rows from `origin` on become the panel's from `column` on, as many as both have; returns their
// number. Those that no memory holds are made in `space`.
std::int64_t take_rows(const Origin& origin,
                       std::int64_t column,
                       PanelRows& rows,
                       std::vector<std::byte>& space) {
  const LinearSource& source = *origin.source;
  const std::int64_t n = std::min<std::int64_t>(kPanel - column, source.n_out - origin.row),
                     bytes = row_bytes(source.dtype, source.n_in, source.group, source.kind);
  const auto* from = static_cast<const std::byte*>(source.data) + origin.row * bytes;
  if (source.rows != nullptr) {
    space.resize(static_cast<std::size_t>(kPanel * bytes));
    source.rows->read(origin.row, n, space.data() + column * bytes, rows.scales + column);
    from = space.data() + column * bytes;
  }
  for (std::int64_t r = 0; r < n; ++r) {
    rows.at[column + r] = from + r * bytes;
    if (source.rows == nullptr)
      rows.scales[column + r] = source.scales == nullptr ? 1.0f : source.scales[origin.row + r];
  }
  return n;
}

// `space`: room for the rows of a panel that no memory holds.
void pack_panel(std::span<const LinearSource> sources,
                const Linear& linear,
                const PackedView& shape,
                std::int64_t panel,
                std::vector<std::byte>& space) {
  const bool is_int4 = linear.dtype == DType::kI4;
  const std::int64_t bytes = row_bytes(linear.dtype, linear.n_in, linear.group, linear.kind);
  PanelRows rows;
  for (std::int64_t column = 0; column < kPanel;) {
    const std::int64_t i = panel * kPanel + column;
    const Origin origin = origin_of(sources, linear.stacking, i);
    if (origin.source == nullptr) break;  // so are all behind it
    const std::int64_t n = take_rows(origin, column, rows, space);
    for (std::int64_t r = 0; r < n; ++r) {
      if (linear.scales) linear.scales.as<float>()[i + r] = rows.scales[column + r];
      if (linear.bias && origin.source->bias != nullptr)
        linear.bias.as<float>()[i + r] = origin.source->bias[origin.row + r];
    }
    column += n;
  }
  const std::int64_t n_steps = shape.n_steps;
  const Strips strips{
      .flip = linear.dtype == DType::kI8 ? i8_flip(shape.product->activation) : 0u,
      .n = shape.product->strip_outputs,
      .strip_bytes = shape.strip_bytes_of(n_steps),
      .halves_of = shape.product->halves_of,
  };
  const std::int64_t group_steps = is_int4 ? linear.group / kInt4StepValues : 0;
  const std::int64_t at_once = is_int4 ? std::min(kLineSteps, group_steps) : kLineSteps;
  const std::int64_t n_groups = is_int4 ? int4_groups_of(linear.n_in, linear.group) : 0;
  const std::int64_t code_bytes = is_int4 ? int4_code_bytes(linear.n_in, linear.group) : bytes;
  std::byte* to = linear.weights.as<std::byte>() + panel * shape.panel_bytes();
  alignas(64) Lines lines;
  for (std::int64_t begin = 0; begin < n_steps; begin += at_once) {
    const std::int64_t n = std::min(at_once, n_steps - begin);
    if (is_int4 && begin % group_steps == 0) {
      const std::int64_t group = begin / group_steps;
      write_int4_scales(rows.at, code_bytes + group * 2, to);
      if (linear.kind == Int4Kind::kZeroPoints)
        write_int4_zeros(rows.at, code_bytes + n_groups * 2 + group, to + kInt4ScaleBytes);
      to += shape.product->group_header_bytes;
    }
    for (int column = 0; column < kPanel; ++column)
      read_line(rows.at[column], code_bytes, begin * kOutputBytes, n * kOutputBytes, lines[column]);
    if (strips.halves_of > 0)
      write_halves(lines, n, strips, to);
    else
      write_steps(lines, n, strips, to);
    to += n * strips.n * kOutputBytes;
  }
}

// What the buffers of a packed matrix hold, in bytes; 0: there is no such buffer.
struct PackedSizes {
  std::size_t weights = 0, scales = 0, bias = 0;
};

PackedSizes sizes_of(const Linear& linear, const PackedView& shape, bool has_bias) {
  const auto n_padded = static_cast<std::size_t>(shape.n_panels * kPanel);
  return {.weights = static_cast<std::size_t>(shape.n_panels * shape.panel_bytes()),
          .scales = is_quantised(linear.dtype) ? n_padded * sizeof(float) : 0,
          .bias = has_bias ? n_padded * sizeof(float) : 0};
}

// Of packed_layout(): raised by one whenever pack() makes other bytes of the same sources.
constexpr int kPackedLayout = 3;

}  // namespace

std::string CpuBackend::packed_layout() const {
  return std::string("cpu/") + isa_.name + "/" + std::to_string(kPackedLayout);
}

Linear CpuBackend::do_pack(std::span<const LinearSource> sources, Stacking stacking) {
  FORETOKEN_CHECK(recorded_ == nullptr, "packing is not recorded");
  if (sources.front().dtype == DType::kF8E4M3)
    throw FatalError(ErrorCode::kUnsupportedModel,
                     "the CPU backend has no float8_e4m3 weights; use bfloat16 or int8");
  Linear linear = unpacked(sources, stacking);
  const PackedView shape(linear, isa_);  // sizes only; its pointers are still null
  const PackedSizes sizes = sizes_of(linear, shape, any_bias(sources));
  linear.weights = allocate(sizes.weights);
  linear.scales = allocate(sizes.scales);
  linear.bias = allocate(sizes.bias);
  const std::int64_t group = stacking == Stacking::kGateUp ? 2 : 1;
  team_.run([&](int member) {
    const Share share = share_of(shape.n_panels / group, member, team_.size());
    std::vector<std::byte> space;
    for (std::int64_t panel = share.begin * group; panel < share.end * group; ++panel)
      pack_panel(sources, linear, shape, panel, space);
  });
  return linear;
}

std::optional<Linear> CpuBackend::do_adopt(std::span<const LinearSource> sources,
                                           Stacking stacking,
                                           const PackedBytes& packed,
                                           const std::shared_ptr<const void>& keeper) {
  Linear linear = unpacked(sources, stacking);
  const PackedSizes sizes = sizes_of(linear, PackedView(linear, isa_), any_bias(sources));
  const auto is_whole = [](std::span<const std::byte> bytes, std::size_t size) {
    return bytes.size() == size && reinterpret_cast<std::uintptr_t>(bytes.data()) % 64 == 0;
  };
  if (!is_whole(packed.weights, sizes.weights) || !is_whole(packed.scales, sizes.scales) ||
      !is_whole(packed.bias, sizes.bias))
    return std::nullopt;
  linear.weights = Buffer(packed.weights, keeper);
  if (sizes.scales > 0) linear.scales = Buffer(packed.scales, keeper);
  if (sizes.bias > 0) linear.bias = Buffer(packed.bias, keeper);
  return linear;
}

}  // namespace foretoken::cpu
