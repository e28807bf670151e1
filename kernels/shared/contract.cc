#include "kernels/shared/contract.h"

#include <cmath>

#include "common/base/check.h"

namespace foretoken::contract {
namespace {

void check_linear(const Linear* linear, Stacking stacking) {
  FORETOKEN_CHECK(linear != nullptr);
  FORETOKEN_CHECK(linear->weights, "the matrix was never packed");
  FORETOKEN_CHECK(linear->n_out > 0 && linear->n_in > 0);
  FORETOKEN_CHECK(linear->stacking == stacking, "packed for another op");
}

void check_kv(const PagedKv& kv, std::int32_t layer) {
  const KvGeometry& g = kv.geometry;
  FORETOKEN_CHECK(kv.blocks != nullptr && kv.n_blocks > 0);
  FORETOKEN_CHECK(is_kv_dtype(g.dtype));
  FORETOKEN_CHECK(kv.scales == nullptr || g.dtype == DType::kF8E4M3, "scales go with fp8 alone");
  FORETOKEN_CHECK(g.n_layers > 0 && g.n_kv_heads > 0 && g.head_dim > 0 && g.block_tokens > 0);
  FORETOKEN_CHECK(layer >= 0 && layer < g.n_layers);
}

}  // namespace

void check_sizes(std::span<const LinearSource> sources, Stacking stacking) {
  FORETOKEN_CHECK(!sources.empty());
  const LinearSource& first = sources.front();
  for (const LinearSource& source : sources) {
    FORETOKEN_CHECK(source.n_out > 0 && source.n_in > 0);
    FORETOKEN_CHECK(source.n_in == first.n_in, "stacked matrices share their input");
    FORETOKEN_CHECK(source.dtype == first.dtype, "stacked matrices share their dtype");
    FORETOKEN_CHECK(source.dtype != DType::kI8 || source.n_in <= kMaxInInt8);
    FORETOKEN_CHECK(source.group == first.group, "stacked matrices share their groups");
    FORETOKEN_CHECK(source.dtype == DType::kI4 ? is_int4_group(source.group) : source.group == 0,
                    "groups of 32, 64 or 128 go with int4, and only with it");
    FORETOKEN_CHECK(source.kind == first.kind,
                    "what stacked matrices' codes stand for is the same");
    FORETOKEN_CHECK(source.dtype == DType::kI4 || source.kind == Int4Kind::kOffset,
                    "kinds of codes go with int4 alone");
  }
  if (stacking == Stacking::kGateUp) {
    FORETOKEN_CHECK(sources.size() == 2, "gate and up");
    FORETOKEN_CHECK(sources[0].n_out == sources[1].n_out);
  }
}

void check(std::span<const LinearSource> sources, Stacking stacking) {
  check_sizes(sources, stacking);
  for (const LinearSource& source : sources) {
    FORETOKEN_CHECK((source.data == nullptr) != (source.rows == nullptr),
                    "a matrix is there or is read row by row");
    const bool needs_scales = is_quantised(source.dtype) && source.rows == nullptr;
    FORETOKEN_CHECK(needs_scales == (source.scales != nullptr),
                    "scales go with quantised dtypes, and only with them");
  }
}

void check(const EmbedArgs& args) {
  FORETOKEN_CHECK(args.n_rows >= 0);
  if (args.n_rows == 0) return;
  check_linear(args.table, Stacking::kRows);
  FORETOKEN_CHECK(args.table->dtype != DType::kI4, "rows of int4 are multiplied, not looked up");
  FORETOKEN_CHECK(args.tokens != nullptr && args.hidden != nullptr);
}

void check(const QkvRopeAppendArgs& args) {
  FORETOKEN_CHECK(args.n_rows >= 0);
  if (args.n_rows == 0) return;
  check_linear(args.qkv, Stacking::kRows);
  check_kv(args.kv, args.layer);
  const KvGeometry& g = args.kv.geometry;
  FORETOKEN_CHECK(args.n_heads > 0 && args.n_heads % g.n_kv_heads == 0,
                  "query heads share KV heads evenly");
  FORETOKEN_CHECK(g.head_dim % 2 == 0, "rotation pairs the halves of a head");
  FORETOKEN_CHECK(args.qkv->n_out == std::int64_t{args.n_heads + 2 * g.n_kv_heads} * g.head_dim);
  FORETOKEN_CHECK(args.hidden != nullptr && args.norm != nullptr && args.q != nullptr);
  FORETOKEN_CHECK(args.rope_cos != nullptr && args.rope_sin != nullptr && args.n_positions > 0);
  FORETOKEN_CHECK(args.positions != nullptr && args.slots != nullptr);
  FORETOKEN_CHECK(args.norm_eps >= 0);
}

void check(const AttnPagedArgs& args) {
  FORETOKEN_CHECK(args.n_rows >= 0 && args.n_sequences >= 0);
  if (args.n_rows == 0) return;
  check_kv(args.kv, args.layer);
  FORETOKEN_CHECK(args.n_heads > 0 && args.n_heads % args.kv.geometry.n_kv_heads == 0);
  FORETOKEN_CHECK(args.n_sequences > 0 && args.n_sequences <= args.n_rows);
  FORETOKEN_CHECK(args.q != nullptr && args.out != nullptr);
  FORETOKEN_CHECK(args.positions != nullptr && args.row_begin != nullptr);
  FORETOKEN_CHECK(args.block_tables != nullptr && args.max_blocks > 0);
  FORETOKEN_CHECK(std::isfinite(args.scale));
}

void check(const MatmulResidualArgs& args) {
  FORETOKEN_CHECK(args.n_rows >= 0);
  if (args.n_rows == 0) return;
  check_linear(args.weight, Stacking::kRows);
  FORETOKEN_CHECK(args.x != nullptr);
  FORETOKEN_CHECK(args.residual != nullptr || args.partial != nullptr);
}

void check(const GateUpSwigluArgs& args) {
  FORETOKEN_CHECK(args.n_rows >= 0);
  if (args.n_rows == 0) return;
  check_linear(args.gate_up, Stacking::kGateUp);
  FORETOKEN_CHECK(args.hidden != nullptr && args.norm != nullptr && args.out != nullptr);
  FORETOKEN_CHECK(args.norm_eps >= 0);
}

void check(const LmHeadArgs& args) {
  FORETOKEN_CHECK(args.n_rows >= 0);
  if (args.n_rows == 0) return;
  check_linear(args.head, Stacking::kRows);
  FORETOKEN_CHECK(args.hidden != nullptr && args.rows != nullptr && args.norm != nullptr &&
                  args.logits != nullptr);
  FORETOKEN_CHECK(args.norm_eps >= 0);
}

void check(const SpreadArgs& args) {
  FORETOKEN_CHECK(args.n_rows >= 0);
  if (args.n_rows == 0) return;
  FORETOKEN_CHECK(args.logits != nullptr && args.ids != nullptr && args.out != nullptr);
  FORETOKEN_CHECK(args.n_columns > 0 && args.n_columns <= args.vocab);
}

void check(const ChooseArgs& args) {
  FORETOKEN_CHECK(args.n_rows >= 0);
  if (args.n_rows == 0) return;
  FORETOKEN_CHECK(args.vocab > 0 && args.n_valid > 0 && args.n_valid <= args.vocab);
  FORETOKEN_CHECK(args.logits != nullptr && args.rules != nullptr);
  FORETOKEN_CHECK(args.choices != nullptr || args.slices != nullptr);
  FORETOKEN_CHECK(args.first_id >= 0 && args.first_id % 4 == 0);
  FORETOKEN_CHECK(args.slices != nullptr || args.first_id == 0, "a slice has no choice of its own");
  FORETOKEN_CHECK(args.n_candidates >= 0 &&
                  (args.n_candidates == 0) == (args.candidates == nullptr));
}

void check(const AcceptArgs& args) {
  FORETOKEN_CHECK(args.n_rows >= 0 && args.n_sequences >= 0);
  if (args.n_rows == 0) return;
  FORETOKEN_CHECK(args.n_sequences > 0 && args.n_sequences <= args.n_rows);
  FORETOKEN_CHECK(args.choices != nullptr && args.tokens != nullptr);
  FORETOKEN_CHECK(args.row_begin != nullptr && args.verdicts != nullptr);
}

void check(const AdvanceArgs& args) {
  FORETOKEN_CHECK(args.n_sequences >= 0);
  if (args.n_sequences == 0) return;
  FORETOKEN_CHECK(args.choices != nullptr && args.end_begin != nullptr);
  FORETOKEN_CHECK(args.block_tables != nullptr && args.max_blocks > 0 && args.block_tokens > 0);
  FORETOKEN_CHECK(args.tokens != nullptr && args.positions != nullptr);
  FORETOKEN_CHECK(args.slots != nullptr && args.n_left != nullptr);
}

void check_contents(const EmbedArgs& args) {
  for (std::int32_t r = 0; r < args.n_rows; ++r)
    FORETOKEN_CHECK(args.tokens[r] >= 0 && args.tokens[r] < args.table->n_out,
                    "token id outside the table");
}

void check_contents(const QkvRopeAppendArgs& args) {
  const std::int64_t n_slots = std::int64_t{args.kv.n_blocks} * args.kv.geometry.block_tokens;
  for (std::int32_t r = 0; r < args.n_rows; ++r) {
    FORETOKEN_CHECK(args.positions[r] >= 0 && args.positions[r] < args.n_positions,
                    "position outside the RoPE tables");
    FORETOKEN_CHECK(args.slots[r] >= 0 && args.slots[r] < n_slots, "slot outside the cache");
  }
}

void check_contents(const AttnPagedArgs& args) {
  FORETOKEN_CHECK(args.row_begin[0] == 0 && args.row_begin[args.n_sequences] == args.n_rows);
  const std::int32_t block_tokens = args.kv.geometry.block_tokens;
  for (std::int32_t s = 0; s < args.n_sequences; ++s) {
    FORETOKEN_CHECK(args.row_begin[s] < args.row_begin[s + 1], "a sequence without rows");
    std::int32_t last = 0;
    for (std::int32_t r = args.row_begin[s]; r < args.row_begin[s + 1]; ++r) {
      FORETOKEN_CHECK(args.positions[r] >= 0);
      last = args.positions[r] > last ? args.positions[r] : last;
    }
    FORETOKEN_CHECK(last / block_tokens < args.max_blocks, "position beyond the block table");
    for (std::int32_t b = 0; b <= last / block_tokens; ++b) {
      const std::int32_t block = args.block_tables[std::int64_t{s} * args.max_blocks + b];
      FORETOKEN_CHECK(block >= 0 && block < args.kv.n_blocks, "block outside the cache");
    }
  }
}

void check_contents(const SpreadArgs& args) {
  for (std::int32_t column = 0; column < args.n_columns; ++column)
    FORETOKEN_CHECK(args.ids[column] > (column > 0 ? args.ids[column - 1] : -1) &&
                        args.ids[column] < args.vocab,
                    "the ids of a head are not ascending and below vocab");
}

void check_contents(const ChooseArgs& args) {
  for (std::int32_t r = 0; r < args.n_rows; ++r) {
    const RowRule& rule = args.rules[r];
    FORETOKEN_CHECK(rule.temperature >= 0 && std::isfinite(rule.temperature));
    FORETOKEN_CHECK(rule.top_k >= 0);
    FORETOKEN_CHECK(rule.top_p > 0 && rule.top_p <= 1);
    FORETOKEN_CHECK(rule.min_p >= 0 && rule.min_p <= 1);
    FORETOKEN_CHECK(rule.n_top_logprobs <= kMaxTopLogprobs);
    FORETOKEN_CHECK(rule.n_top_logprobs <= 0 || args.top != nullptr || args.likeliest != nullptr);
    FORETOKEN_CHECK(rule.adjust_begin >= 0 && rule.adjust_begin <= rule.adjust_end);
    FORETOKEN_CHECK(rule.adjust_begin == rule.adjust_end || args.adjustments != nullptr);
    FORETOKEN_CHECK(rule.mask_begin >= -1);
    FORETOKEN_CHECK(rule.mask_begin < 0 || args.masks != nullptr);
    for (std::int32_t i = rule.adjust_begin; i < rule.adjust_end; ++i) {
      const Adjustment& a = args.adjustments[i];
      FORETOKEN_CHECK(a.id >= 0 && (args.slices != nullptr || a.id < args.n_valid),
                      "adjustment of an id that is not in the vocabulary");
      FORETOKEN_CHECK(i == rule.adjust_begin || args.adjustments[i - 1].id < a.id,
                      "adjustments ascend by id");
      FORETOKEN_CHECK(a.repetition > 0);
    }
  }
}

void check_contents(const AcceptArgs& args) {
  FORETOKEN_CHECK(args.row_begin[0] == 0 && args.row_begin[args.n_sequences] == args.n_rows);
  for (std::int32_t s = 0; s < args.n_sequences; ++s)
    FORETOKEN_CHECK(args.row_begin[s] < args.row_begin[s + 1], "a sequence without rows");
}

void check_contents(const AdvanceArgs& args) {
  FORETOKEN_CHECK(args.end_begin[0] == 0);
  for (std::int32_t s = 0; s < args.n_sequences; ++s) {
    FORETOKEN_CHECK(args.end_begin[s] <= args.end_begin[s + 1], "end tokens of a sequence overlap");
    FORETOKEN_CHECK(args.positions[s] >= 0 && args.n_left[s] >= 0);
  }
  FORETOKEN_CHECK(args.end_begin[args.n_sequences] == 0 || args.end_tokens != nullptr);
}

}  // namespace foretoken::contract
