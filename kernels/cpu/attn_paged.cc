#include <atomic>

#include "kernels/cpu/backend.h"
#include "kernels/include/layout.h"
#include "kernels/shared/contract.h"

namespace foretoken::cpu {
namespace {

// Rows of a prefill that share one walk over the keys: more of them turn and widen the keys less
// often, fewer leave each member something to do.
constexpr std::int32_t kMostChunkRows = 64, kLeastChunkRows = 16;
constexpr int kItemsOfMember = 4;

// The rows [begin, end) of one sequence.
struct RowChunk {
  std::int32_t sequence = 0;
  std::int32_t begin = 0;
  std::int32_t end = 0;
};

std::int32_t chunk_rows(const AttnPagedArgs& args, int n_members) {
  const std::int64_t n_rows = args.row_begin[args.n_sequences] - args.row_begin[0];
  const std::int64_t wanted = std::int64_t{kItemsOfMember} * n_members;
  std::int32_t rows = kMostChunkRows;
  while (rows > kLeastChunkRows && n_rows / rows * args.kv.geometry.n_kv_heads < wanted) rows /= 2;
  return rows;
}

std::vector<RowChunk> cut_rows(const AttnPagedArgs& args, std::int32_t most) {
  std::vector<RowChunk> chunks;
  for (std::int32_t s = 0; s < args.n_sequences; ++s)
    for (std::int32_t r = args.row_begin[s]; r < args.row_begin[s + 1]; r += most)
      chunks.push_back({s, r, std::min(r + most, args.row_begin[s + 1])});
  return chunks;
}

}  // namespace

// An item is a chunk of rows with one KV head. Which member takes it changes no bit, so members
// help themselves: late chunks of a long prompt cost far more than early ones, and they come first.
void CpuBackend::attn_paged_now(const AttnPagedArgs& args) {
  contract::check_contents(args);
  const KvGeometry& g = args.kv.geometry;
  const std::int32_t group = args.n_heads / g.n_kv_heads;
  const std::int32_t most_rows = chunk_rows(args, team_.size());
  const std::vector<RowChunk> chunks = cut_rows(args, most_rows);
  matmul_space_.reserve_members(team_.size(),
                                attention_scratch_floats(most_rows, group, g.head_dim));
  const std::int64_t n_items = static_cast<std::int64_t>(chunks.size()) * g.n_kv_heads;
  std::atomic<std::int64_t> next{n_items};
  team_.run([&](int member) {
    for (;;) {
      const std::int64_t i = next.fetch_sub(1, std::memory_order_relaxed) - 1;
      if (i < 0) return;
      const RowChunk& chunk = chunks[static_cast<std::size_t>(i / g.n_kv_heads)];
      const auto head = static_cast<std::int32_t>(i % g.n_kv_heads);
      const std::int64_t stride = std::int64_t{args.n_heads} * g.head_dim;
      const std::int64_t at = chunk.begin * stride + std::int64_t{head} * group * g.head_dim;
      AttentionItem item;
      item.q = args.q + at;
      item.q_stride = stride;
      item.out = args.out + at;
      item.out_stride = stride;
      item.n_rows = chunk.end - chunk.begin;
      item.group = group;
      item.positions = args.positions + chunk.begin;
      item.block_table = args.block_tables + std::int64_t{chunk.sequence} * args.max_blocks;
      item.keys = args.kv.blocks + kv_offset(g, 0, 0, args.layer, KvHalf::kKeys, head);
      item.block_stride = static_cast<std::int64_t>(g.block_bytes());
      item.values_offset = static_cast<std::int64_t>(g.plane_bytes());
      item.block_tokens = g.block_tokens;
      item.head_dim = g.head_dim;
      item.scale = args.scale;
      if (args.kv.scales != nullptr) {
        item.key_scale = args.kv.scales[kv_scale_index(g, args.layer, false, head)];
        item.value_scale = args.kv.scales[kv_scale_index(g, args.layer, true, head)];
      }
      item.scratch = matmul_space_.member(member);
      isa_.attention[static_cast<int>(g.dtype)](item);
    }
  });
}

}  // namespace foretoken::cpu
