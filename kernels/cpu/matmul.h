// The matrix product inside four ops: rows are prepared (normed, converted) once, then every member
// of the team walks its own contiguous run of panels; of many rows two members may share a panel.
// Packed weights: [panel][step][256 bytes], 64 outputs side by side, k outermost, or a panel in
// strips of fewer outputs; n_out padded to 64 and n_in to what the kernel likes with zeros; int8 is
// stored as w + 128 (of which Activation::kI16Pairs makes an exception), int4 as w + 8, with a zero
// point or as a place in a table, and sums begin with what takes that away again. Of int4 scales
// and zero points of a group stand before its steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/parallel.h"
#include "kernels/include/types.h"

namespace foretoken::cpu {

constexpr std::int64_t panels_of(std::int64_t n_out) { return (n_out + kPanel - 1) / kPanel; }

// A packed matrix seen through one instruction set.
struct PackedView {
  PackedView(const Linear& linear, const Isa& isa)
      : product(&isa.product(linear.dtype, linear.group, linear.kind)),
        weights(linear.weights.as<std::byte>()),
        scales(linear.scales.as<float>()),
        bias(linear.bias.as<float>()),
        n_in(linear.n_in),
        n_padded((linear.n_in + product->k_multiple - 1) / product->k_multiple *
                 product->k_multiple),
        n_steps(n_padded / product->k_per_step),
        n_panels(linear.stacking == Stacking::kGateUp ? 2 * panels_of(linear.n_out / 2)
                                                      : panels_of(linear.n_out)) {}
  // Of so many steps of a panel from the start of a weight group.
  std::int64_t bytes_of(std::int64_t steps) const {
    const std::int64_t n_groups =
        product->weight_group == 0 ? 0 : steps * product->k_per_step / product->weight_group;
    return steps * kStepBytes + n_groups * product->group_header_bytes;
  }
  std::int64_t panel_bytes() const { return bytes_of(n_steps); }
  // The same of one strip of a panel.
  std::int64_t strip_bytes_of(std::int64_t steps) const {
    return bytes_of(steps) * product->strip_outputs / kPanel;
  }

  const Product* product;
  const std::byte* weights;
  const float* scales;  // [n_panels * kPanel] or null
  const float* bias;    // [n_panels * kPanel] or null
  std::int64_t n_in;
  std::int64_t n_padded;  // n_in with zeros up to what the kernel likes
  std::int64_t n_steps;
  std::int64_t n_panels;
};

// Rows in the kernel's activation format. The stride is never a multiple of 4096, so rows do not
// fight for cache sets.
struct PreparedRows {
  std::byte* data = nullptr;
  std::int64_t stride = 0;         // bytes
  std::int64_t groups_offset = 0;  // from a row to its RowGroups; integers only

  std::byte* row(std::int64_t r) const { return data + r * stride; }
  RowGroup* groups(std::int64_t r) const {
    return reinterpret_cast<RowGroup*>(row(r) + groups_offset);
  }
};

// Working space of the products of one backend.
struct MatmulSpace {
  Scratch rows, members;
  // Room for n_rows prepared rows of this matrix.
  PreparedRows prepare(const PackedView& view, std::int32_t n_rows);
  // Each member's own floats, `n` of them; call before the team runs.
  void reserve_members(int n_members, std::int64_t n);
  float* member(int index) const { return member_base + index * member_stride; }
  float* member_base = nullptr;
  std::int64_t member_stride = 0;
};

// Writes one row, already normed or plain, in activation format. x: [n_in] f32.
void prepare_row(const Isa& isa,
                 const PackedView& view,
                 const float* x,
                 std::int32_t row,
                 const PreparedRows& rows);

// This member's share of the rows, normed and prepared. row(r): row r of the input, [n_in] f32;
// own: room for one row.
template <class Row>
void norm_and_prepare(const Isa& isa,
                      const PackedView& view,
                      const Share& mine,
                      Row&& row,
                      const float* norm,
                      float norm_eps,
                      float* own,
                      const PreparedRows& rows) {
  for (std::int64_t r = mine.begin; r < mine.end; ++r) {
    isa.rms_norm(row(r), norm, norm_eps, view.n_in, own);
    prepare_row(isa, view, own, static_cast<std::int32_t>(r), rows);
  }
}

inline constexpr std::int32_t kMaxBlockRows = 512;  // rows that pass over a panel together
// Panels that share a pass over many rows, which are then read less often.
inline constexpr int kWidePanels = 4;
inline constexpr std::int32_t kManyRows = 64;

// Panels of a block. Of one row two, so that products with pairs_panels take them by turns; others
// take one after the other. group: 1 or 2.
constexpr int panels_at_once(std::int32_t n_rows, int group) {
  return n_rows > kManyRows ? kWidePanels : n_rows == 1 ? 2 : group;
}

// Floats a member needs for products of n_rows rows whose panels come in groups of `group`.
constexpr std::int64_t member_floats(std::int32_t n_rows, int group) {
  return std::int64_t{panels_at_once(n_rows, group)} * kPanel * std::min(n_rows, kMaxBlockRows);
}

// What follows a product: call(context, row, n) when the sums of the n rows from `row` on are in c,
// counted from first_row.
struct WhenDone {
  void (*call)(const void* context, std::int32_t row, std::int32_t n_rows) = nullptr;
  const void* context = nullptr;
};

// Some panels, some rows, and where their product goes: c[panel][row][kPanel].
struct PanelBlock {
  std::int64_t first_panel = 0;
  int n_panels = 0;
  std::int32_t first_row = 0, n_rows = 0;
  float* c = nullptr;
};

// Rows x panels, times the outputs' scales, bias added.
void multiply_panels(const PackedView& view,
                     const PreparedRows& rows,
                     const PanelBlock& block,
                     const WhenDone& done);

// Part of a product: panel groups [begin, end) for rows [first_row, first_row + n_rows).
struct Part {
  std::int64_t begin = 0, end = 0;
  std::int32_t first_row = 0, n_rows = 0;
};

template <int kGroup, class Finish>
void multiply_part(
    const PackedView& view, const PreparedRows& rows, const Part& part, float* c, Finish&& finish) {
  const std::int32_t end_row = part.first_row + part.n_rows;
  for (std::int32_t first = part.first_row; first < end_row; first += kMaxBlockRows) {
    const std::int32_t n = std::min(end_row - first, kMaxBlockRows);
    const std::int64_t at_once = panels_at_once(n, kGroup) / kGroup;
    for (std::int64_t group = part.begin; group < part.end; group += at_once) {
      const std::int64_t n_groups = std::min(at_once, part.end - group);
      const std::int64_t apart = std::int64_t{n} * kPanel;
      const auto finish_rows = [&](std::int32_t row, std::int32_t n_rows) {
        for (std::int32_t r = row; r < row + n_rows; ++r)
          for (std::int64_t i = 0; i < n_groups; ++i)
            finish(group + i, std::int64_t{first} + r, c + i * kGroup * apart + r * kPanel, apart);
      };
      using FinishRows = decltype(finish_rows);
      multiply_panels(view, rows,
                      {group * kGroup, static_cast<int>(n_groups) * kGroup, first, n, c},
                      {[](const void* context, std::int32_t row, std::int32_t n_rows) {
                         (*static_cast<const FinishRows*>(context))(row, n_rows);
                       },
                       &finish_rows});
    }
  }
}

// Calls finish(group, row, c, apart) for each row of this member's share of the panel groups; their
// sums are at c, c + apart, ... (kGroup times kPanel). Of many rows, two members share the group
// where their shares meet: nine panels on two threads would else take the time of ten. c: the
// member's own space.
template <int kGroup, class Finish>
void multiply(const PackedView& view,
              const PreparedRows& rows,
              std::int32_t n_rows,
              int member,
              int n_members,
              float* c,
              Finish&& finish) {
  const std::int64_t n_groups = view.n_panels / kGroup;
  if (n_rows <= kManyRows) {
    const Share share = share_of(n_groups, member, n_members);
    multiply_part<kGroup>(view, rows, {share.begin, share.end, 0, n_rows}, c, finish);
  } else {
    const Share share = share_of(n_groups * n_rows, member, n_members);
    for (std::int64_t at = share.begin; at < share.end;) {
      const std::int64_t group = at / n_rows, left = share.end - at;
      const auto row = static_cast<std::int32_t>(at % n_rows);
      const bool is_whole = row == 0 && left >= n_rows;
      const std::int64_t n = is_whole ? left / n_rows : 1;
      const auto n_here =
          static_cast<std::int32_t>(is_whole ? n_rows : std::min<std::int64_t>(left, n_rows - row));
      multiply_part<kGroup>(view, rows, {group, group + n, row, n_here}, c, finish);
      at += n * n_here;
    }
  }
  if (view.product->leave != nullptr) view.product->leave();
}

}  // namespace foretoken::cpu
