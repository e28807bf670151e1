#include "kernels/cpu/matmul.h"

#include <cstring>

namespace foretoken::cpu {
namespace {

std::int64_t prepared_bytes(const PackedView& view) {
  return view.n_padded * activation_bytes(view.product->activation);
}

// Codes of a row become its numbers of 16 bits, a group at a time, so that `to` may end with them.
void widen_codes(const std::int8_t* codes, std::int64_t n, std::byte* to) {
  for (std::int64_t i = 0; i < n; i += kGroupValues) {
    std::int16_t wide[kGroupValues];
    std::copy_n(codes + i, kGroupValues, wide);
    std::memcpy(to + 2 * i, wide, sizeof wide);
  }
}

// As Activation::kI16Pairs describes; a group's start is over its low weights alone.
void pair_codes(const std::int8_t* codes, std::int64_t n, RowGroup* groups, std::byte* to) {
  for (std::int64_t i = 0; i < n; i += kGroupValues, ++groups) {
    std::int16_t pairs[kGroupValues];
    std::int32_t sum = 0;
    for (int k = 0; k < kGroupValues; k += 4) {
      const std::int8_t* four = codes + i + k;
      for (int half = 0; half < 2; ++half) {
        static_assert(256 * kMostRowCode + kMostRowCode <= 32767);
        const int low = four[2 * half], high = four[2 * half + 1];
        pairs[k + half] = static_cast<std::int16_t>(low);
        pairs[k + half + 2] = static_cast<std::int16_t>(high - 256 * low);
        sum += low;
      }
    }
    groups->start = -128 * sum;
    std::memcpy(to + 2 * i, pairs, sizeof pairs);
  }
}

// While the sums are in the first cache.
void scale_outputs(const PackedView& view, std::int64_t panel, std::int32_t n_rows, float* c) {
  if (view.scales == nullptr && view.bias == nullptr) return;
  const auto of_panel = [&](const float* all) {
    return all == nullptr ? nullptr : all + panel * kPanel;
  };
  view.product->scale(of_panel(view.scales), of_panel(view.bias), n_rows, c);
}

// As even as can be and no more than `most` steps, whole groups: what a short last chunk asks for
// ahead of time is little of the next panel. most: a multiple of kChunkMultiple.
std::int64_t even_chunk(std::int64_t n_steps, std::int64_t most) {
  const std::int64_t n = (n_steps + most - 1) / most, steps = (n_steps + n - 1) / n;
  return (steps + kChunkMultiple - 1) / kChunkMultiple * kChunkMultiple;
}

// Where chunks of k of a block's panels lie.
struct Chunks {
  const PackedView& view;
  const PanelBlock& block;
  // Of a panel counted from the block's first one, from step `begin` on.
  const std::byte* at(std::int64_t panel, std::int64_t begin) const {
    return view.weights + (block.first_panel + panel) * view.panel_bytes() +
           view.strip_bytes_of(begin);
  }
  // What is read after the chunk that ends before step `end`.
  const std::byte* after(std::int64_t panel, std::int64_t end) const {
    return end < view.n_steps ? at(panel, end) : at(panel + block.n_panels, 0);
  }
};

// Of tile t of several: the first ones ask for a half or a quarter of the next chunk each.
Prefetch share_of_ahead(std::int32_t t, std::int32_t n_tiles) {
  if (n_tiles < 4) return t < 2 ? Prefetch::kTwoLines : Prefetch::kNone;
  return t < 4 ? Prefetch::kOneLine : Prefetch::kNone;
}

// From a quarter of the chunk at `next` on.
void ask_for_share(const PackedView& view,
                   const std::byte* next,
                   std::int64_t quarter,
                   TileArgs& args) {
  const bool has_strips = view.product->strip_outputs < kPanel;
  args.ahead = next + quarter * (has_strips ? args.strip_bytes : args.n_steps * kStepBytes / 4);
}

// One tile asks for its own stream. Of two panels that take turns, each asks for a half of both;
// one that is left over, for its own halves.
void ask_for_stream(const Chunks& chunks, int panel, std::int64_t end, TileArgs& args) {
  const PackedView& view = chunks.view;
  args.ahead = chunks.after(panel, end);
  if (!view.product->pairs_panels || args.n_rows > 1) return;
  const std::int64_t half = view.bytes_of(args.n_steps) / 2;
  args.pair_bytes = chunks.block.n_panels == 1 ? half : view.panel_bytes();
  args.ahead = chunks.after(0, end) + panel * half;
}

// Rows in tiles, as even as can be. One tile: one panel after the other, or two by turns, whole or
// in chunks of k, asking for its own stream. Several: in chunks of k; while later tiles work on a
// chunk, the first ones ask for the next. A tile goes over all panels of a chunk before the next
// tile does, so that its rows are still near.
void run_tiles(const PackedView& view,
               const PreparedRows& rows,
               const PanelBlock& block,
               const WhenDone& done) {
  const std::int32_t n_rows = block.n_rows;
  const std::int32_t n_tiles = (n_rows + view.product->tile_rows - 1) / view.product->tile_rows;
  const int steps =
      n_tiles > 1 ? view.product->chunk_steps : view.product->stream_steps[n_rows - 1];
  const std::int64_t chunk = steps == 0 ? view.n_steps : even_chunk(view.n_steps, steps);
  const std::int64_t step_bytes = prepared_bytes(view) / view.n_steps;
  const Chunks chunks{view, block};
  for (std::int64_t begin = 0; begin < view.n_steps; begin += chunk) {
    const std::int64_t end = std::min(begin + chunk, view.n_steps);
    const bool is_last = end == view.n_steps;
    TileArgs args;
    args.n_steps = end - begin;
    args.a_stride = rows.stride;
    args.strip_bytes = view.strip_bytes_of(view.n_steps);
    args.table = view.product->int4_table;
    args.first = begin == 0;
    const std::int64_t first_group = begin * view.product->k_per_step / view.product->row_group;
    std::int32_t row = 0;
    for (std::int32_t t = 0; t < n_tiles; ++t) {
      args.n_rows = n_rows / n_tiles + (t < n_rows % n_tiles ? 1 : 0);
      args.a = rows.row(block.first_row + row) + begin * step_bytes;
      if (is_integer(view.product->activation))
        args.groups = rows.groups(block.first_row + row) + first_group;
      const Prefetch prefetch = n_tiles == 1 ? Prefetch::kStream : share_of_ahead(t, n_tiles);
      const std::int64_t quarter = prefetch == Prefetch::kTwoLines ? 2 * t : t;
      for (int panel = 0; panel < block.n_panels; ++panel) {
        args.w = chunks.at(panel, begin);
        if (n_tiles == 1)
          ask_for_stream(chunks, panel, end, args);
        else
          ask_for_share(view, chunks.after(panel, end), quarter, args);
        args.c = block.c + (std::int64_t{panel} * n_rows + row) * kPanel;
        view.product->tile[args.n_rows - 1][static_cast<int>(prefetch)](args);
        if (is_last) scale_outputs(view, block.first_panel + panel, args.n_rows, args.c);
      }
      if (is_last) done.call(done.context, row, args.n_rows);
      row += args.n_rows;
    }
  }
}

}  // namespace

PreparedRows MatmulSpace::prepare(const PackedView& view, std::int32_t n_rows) {
  PreparedRows prepared;
  std::int64_t bytes = prepared_bytes(view);
  if (is_integer(view.product->activation)) {
    prepared.groups_offset = bytes;  // a multiple of 32
    bytes += view.n_padded / view.product->row_group * static_cast<std::int64_t>(sizeof(RowGroup));
  }
  prepared.stride = (bytes + 63) / 64 * 64 + 64;
  if (prepared.stride % 4096 == 0) prepared.stride += 64;
  prepared.data = rows.at_least<std::byte>(static_cast<std::size_t>(n_rows * prepared.stride));
  return prepared;
}

void MatmulSpace::reserve_members(int n_members, std::int64_t n) {
  member_stride = (n + 15) / 16 * 16 + 16;
  member_base = members.at_least<float>(static_cast<std::size_t>(member_stride * n_members));
}

void prepare_row(const Isa& isa,
                 const PackedView& view,
                 const float* x,
                 std::int32_t row,
                 const PreparedRows& rows) {
  std::byte* to = rows.row(row);
  const std::int64_t padded = view.n_padded;
  switch (view.product->activation) {
    case Activation::kF32: {
      float* out = reinterpret_cast<float*>(to);
      std::memcpy(out, x, static_cast<std::size_t>(view.n_in) * sizeof(float));
      std::fill(out + view.n_in, out + padded, 0.0f);
      break;
    }
    case Activation::kBf16: {
      std::uint16_t* out = reinterpret_cast<std::uint16_t*>(to);
      isa.to_bf16(x, view.n_in, out);
      std::fill(out + view.n_in, out + padded, std::uint16_t{0});
      break;
    }
    case Activation::kI8:
    case Activation::kI16:
    case Activation::kI16Pairs: {
      // Codes that are widened lie in the upper half of the row first.
      const bool wide = view.product->activation != Activation::kI8;
      std::int8_t* codes = reinterpret_cast<std::int8_t*>(to) + (wide ? padded : 0);
      const int group = view.product->row_group;
      RowGroup* groups = rows.groups(row);
      isa.to_i8(x, view.n_in, group, codes, groups);
      std::fill(codes + view.n_in, codes + padded, std::int8_t{0});
      std::fill(groups + (view.n_in + group - 1) / group, groups + padded / group, RowGroup{});
      if (view.product->activation == Activation::kI16)
        widen_codes(codes, padded, to);
      else if (wide)
        pair_codes(codes, padded, groups, to);
      break;
    }
  }
}

void multiply_panels(const PackedView& view,
                     const PreparedRows& rows,
                     const PanelBlock& block,
                     const WhenDone& done) {
  const bool share_chunks =
      block.n_rows > view.product->tile_rows || (view.product->pairs_panels && block.n_rows == 1);
  if (share_chunks) return run_tiles(view, rows, block, done);
  const WhenDone later{[](const void*, std::int32_t, std::int32_t) {}, nullptr};
  PanelBlock one = block;
  one.n_panels = 1;
  for (int i = 0; i < block.n_panels; ++i, ++one.first_panel, one.c += one.n_rows * kPanel)
    run_tiles(view, rows, one, later);
  done.call(done.context, 0, block.n_rows);
}

}  // namespace foretoken::cpu
