// One argument struct per op, shapes beside the fields. Pointers are device addresses; counts are
// host values. A row is one token's worth of work. Invariant of every op: the bits of a row depend
// on that row's inputs alone, never on how many rows share the call, on their order, on threads or
// on where blocks lie (docs/adr/0004-rows-are-their-own.md).
#pragma once

#include <cstdint>

#include "kernels/include/types.h"

namespace foretoken {

// Working space in which a device may hand a row's sum of squares from the op that ends the row to
// the ops that normalise it: `squares`, [n_rows, squares_per_row(n_hidden)] f32 or null, opaque to
// callers. embed and matmul_residual leave there what belongs to the rows they wrote; an op that
// changes a row in another way passes null to the ops that read it next. Never changes a bit.
inline constexpr std::int32_t kSquaresPiece = 128;
constexpr std::int64_t squares_per_row(std::int64_t n) {
  return (n + kSquaresPiece - 1) / kSquaresPiece;
}

// `next` of a product: the matrix the product after it multiplies with, or null. A hint that
// changes no bit: a device may fetch its beginning early.

// hidden[r] = scale * table[tokens[r]], widened to f32. A table that is also the output head is
// packed once and shared.
struct EmbedArgs {
  const Linear* table = nullptr;         // [vocab, n_hidden]
  const std::int32_t* tokens = nullptr;  // [n_rows]
  std::int32_t n_rows = 0;
  float scale = 1.0f;
  float* hidden = nullptr;   // [n_rows, n_hidden]
  float* squares = nullptr;  // of hidden, or null
};

// x = rms_norm(hidden) * norm; q, k, v = x Wᵀ + bias; q and k normalised per head if norms are
// given, then rotated (half-split RoPE); k and v rounded to the cache's dtype and written to their
// slots.
struct QkvRopeAppendArgs {
  const float* hidden = nullptr;  // [n_rows, n_hidden]
  std::int32_t n_rows = 0;
  const float* norm = nullptr;  // [n_hidden]
  float norm_eps = 0;
  const Linear* qkv = nullptr;    // [(n_heads + 2 n_kv_heads) * head_dim, n_hidden]
  const float* q_norm = nullptr;  // [head_dim] or null
  const float* k_norm = nullptr;  // [head_dim] or null
  std::int32_t n_heads = 0;
  const float* rope_cos = nullptr;  // [n_positions, head_dim / 2], attention factor folded in
  const float* rope_sin = nullptr;
  std::int32_t n_positions = 0;             // rows of the RoPE tables
  const std::int32_t* positions = nullptr;  // [n_rows], each < n_positions
  const std::int32_t* slots = nullptr;  // [n_rows]: block * block_tokens + offset, where K and V go
  PagedKv kv;
  std::int32_t layer = 0;
  float* q = nullptr;              // [n_rows, n_heads, head_dim]
  const float* squares = nullptr;  // of hidden, or null
  const Linear* next = nullptr;
};

// out[r] = softmax(scale * q[r] Kᵀ) V over the tokens 0 .. positions[r] of the row's sequence,
// blocks in table order. Queries and weights of the softmax are f32. Where the cache holds bf16,
// AVX512-BF16 takes queries as the sum of two bf16 and weights as one (decision 31).
struct AttnPagedArgs {
  const float* q = nullptr;  // [n_rows, n_heads, head_dim]
  std::int32_t n_rows = 0;
  std::int32_t n_heads = 0;
  const std::int32_t* positions = nullptr;  // [n_rows]
  std::int32_t n_sequences = 0;
  const std::int32_t* row_begin = nullptr;  // [n_sequences + 1]: rows of a sequence are contiguous
  const std::int32_t* block_tables = nullptr;  // [n_sequences, max_blocks]
  std::int32_t max_blocks = 0;
  PagedKv kv;
  std::int32_t layer = 0;
  float scale = 0;
  float* out = nullptr;  // [n_rows, n_heads, head_dim]
};

// residual[r] += x[r] Wᵀ + bias. With `partial`, the product goes there and residual is left alone:
// a rank's share of a sum that the caller adds up in rank order.
struct MatmulResidualArgs {
  const float* x = nullptr;  // [n_rows, n_in]
  std::int32_t n_rows = 0;
  const Linear* weight = nullptr;  // [n_out, n_in]
  float* residual = nullptr;       // [n_rows, n_out]
  float* partial = nullptr;        // [n_rows, n_out] or null
  float* squares = nullptr;        // of residual, or null; untouched with `partial`
  const Linear* next = nullptr;
};

// x = rms_norm(hidden) * norm; out = silu(x Gᵀ) * (x Uᵀ).
struct GateUpSwigluArgs {
  const float* hidden = nullptr;  // [n_rows, n_hidden]
  std::int32_t n_rows = 0;
  const float* norm = nullptr;  // [n_hidden]
  float norm_eps = 0;
  const Linear* gate_up = nullptr;  // Stacking::kGateUp, [2 n_ffn, n_hidden]
  float* out = nullptr;             // [n_rows, n_ffn]
  const float* squares = nullptr;   // of hidden, or null
  const Linear* next = nullptr;
};

// logits[i] = (rms_norm(hidden[rows[i]]) * norm) Wᵀ for the rows that are wanted.
struct LmHeadArgs {
  const float* hidden = nullptr;       // [n_hidden_rows, n_hidden]
  const std::int32_t* rows = nullptr;  // [n_rows] indices into hidden
  std::int32_t n_rows = 0;
  const float* norm = nullptr;  // [n_hidden]
  float norm_eps = 0;
  const Linear* head = nullptr;    // [vocab, n_hidden]
  float* logits = nullptr;         // [n_rows, vocab]
  const float* squares = nullptr;  // of hidden, all its rows, or null
  const Linear* next = nullptr;
};

// Logits of a head that has rows for some ids only, as rows over all ids: out[ids[column]] =
// logits[column], and -infinity, what is never chosen, for every other id.
struct SpreadArgs {
  const float* logits = nullptr;  // [n_rows, n_columns]
  std::int32_t n_rows = 0;
  std::int32_t n_columns = 0;
  const std::int32_t* ids = nullptr;  // [n_columns], ascending, below vocab
  std::int32_t vocab = 0;
  float* out = nullptr;  // [n_rows, vocab]
};

// How one row's token is chosen; kernels/ref/choose.cc is the arithmetic to read. Order:
// adjustments, mask, temperature, top-k, top-p, min-p, then argmax of logit / temperature + Gumbel
// noise keyed by (seed, choice, position, id).
struct RowRule {
  float temperature = 0;   // 0 = greedy
  std::int32_t top_k = 0;  // 0 = off
  float top_p = 1;         // 1 = off
  float min_p = 0;         // 0 = off
  std::uint64_t seed = 0;
  std::uint32_t choice = 0;       // which of n parallel answers
  std::uint32_t position = 0;     // absolute position of the token being chosen
  std::int32_t adjust_begin = 0;  // this row's range in ChooseArgs::adjustments
  std::int32_t adjust_end = 0;
  // First word of this row's mask in ChooseArgs::masks; -1: every id may be chosen.
  std::int32_t mask_begin = -1;
  // -1: no log probabilities; 0: of the chosen token; n: and the n likeliest.
  std::int32_t n_top_logprobs = -1;
};

// l' = (l > 0 ? l / repetition : l * repetition) + add. With add = -infinity the id is not chosen.
// At most one per (row, id), by id.
struct Adjustment {
  std::int32_t id = 0;
  float repetition = 1;
  float add = 0;
};

// A row's mask: bit (id % 32) of word (id / 32) says whether the id may be chosen. An id whose bit
// is 0 is as one with an adjustment of -infinity, whatever else adjusts it. Words that a mask of
// n_ids ids has; bits beyond these are never looked at.
constexpr std::int64_t mask_words(std::int64_t n_ids) { return (n_ids + 31) / 32; }

// What was chosen. Log probabilities are the log-softmax of the row's raw logits, before any rule.
struct Choice {
  // Logit / temperature + noise, or the logit: ranks take the maximum of (score, -token).
  double score = 0;
  std::int32_t token = -1;  // -1: every token was masked
  float logprob = 0;        // only with n_top_logprobs >= 0
};

struct TopLogprob {
  std::int32_t token = -1;
  float logprob = 0;
};

inline constexpr std::int32_t kMaxTopLogprobs = 20;

// What the ranks must tell one another of a row where each has the logits of a slice of the
// vocabulary.
struct SliceChoice {
  double score = 0;         // of the slice's best id under the rule without its truncations
  std::int32_t token = -1;  // -1: every token of the slice was masked
  float logit = 0;          // its raw logit
  double total = 0;  // sum of exp(raw logit - highest), ids in order; with n_top_logprobs >= 0
  // Sum of exp((adjusted logit - adjusted_highest) / temperature); with top_p < 1.
  double adjusted_total = 0;
  float highest = 0;           // of the raw logits, -infinity for none
  float adjusted_highest = 0;  // after the adjustments
};

// An id of a slice, in rank order: by logit descending, of equal ones by id ascending.
struct SliceCandidate {
  float adjusted = 0;
  float raw = 0;
  std::int32_t token = -1;  // -1: the slice has no more
};

struct ChooseArgs {
  const float* logits = nullptr;  // [n_rows, vocab]
  std::int32_t n_rows = 0;
  std::int32_t vocab = 0;    // columns of logits
  std::int32_t n_valid = 0;  // ids >= n_valid are padding: never chosen, no share of probability
  const RowRule* rules = nullptr;           // [n_rows]
  const Adjustment* adjustments = nullptr;  // all rows' adjustments
  // All rows' masks, each of mask_words(n) words for the n ids of the whole vocabulary that may be
  // chosen (n_valid, or first_id + n_valid of the last slice); null if no row has one.
  const std::uint32_t* masks = nullptr;
  Choice* choices = nullptr;  // [n_rows]
  TopLogprob* top = nullptr;  // [n_rows, kMaxTopLogprobs] or null if no row wants any
  // A slice of the vocabulary: columns are ids first_id .. first_id + vocab - 1, of which n_valid
  // count; adjustments and masks still go by ids, so a slice may begin inside a word. choices and
  // top stay as they are: merge_choices (common/spec) makes them of all slices.
  SliceChoice* slices = nullptr;  // [n_rows], or null: the whole vocabulary
  std::int32_t first_id = 0;      // a multiple of 4
  std::int32_t n_candidates = 0;  // of each row with top-k, top-p or min-p
  // [n_rows, n_candidates], by adjusted logit; null if n_candidates is 0.
  SliceCandidate* candidates = nullptr;
  // [n_rows, kMaxTopLogprobs], by raw logit; null if no row wants any.
  SliceCandidate* likeliest = nullptr;
};

// Which of a sequence's proposed tokens stand. Its rows are the last committed token and the
// proposals after it, in order; each row's choice is judged against the token the next row was
// given.
struct Verdict {
  std::int32_t n_accepted = 0;  // proposals that stand: a prefix
  // The choice after them: correction or bonus; -1: every token was masked.
  std::int32_t next_token = -1;
};

struct AcceptArgs {
  const Choice* choices = nullptr;       // [n_rows], as choose left them
  const std::int32_t* tokens = nullptr;  // [n_rows], what the rows were given
  std::int32_t n_rows = 0;
  std::int32_t n_sequences = 0;
  const std::int32_t* row_begin = nullptr;  // [n_sequences + 1]: rows of a sequence are contiguous
  Verdict* verdicts = nullptr;              // [n_sequences]
};

// Makes each sequence's choice its next row, so that steps can follow one another without the host.
// A sequence goes on while n_left > 0, its choice is a token but none of its end tokens, and its
// block table reaches; otherwise n_left becomes 0 and its row stays what it was: running it again
// changes nothing.
struct AdvanceArgs {
  const Choice* choices = nullptr;  // [n_sequences], of each sequence's last row
  std::int32_t n_sequences = 0;
  const std::int32_t* end_begin = nullptr;   // [n_sequences + 1]: a sequence's range in end_tokens
  const std::int32_t* end_tokens = nullptr;  // null if no sequence has any
  const std::int32_t* block_tables = nullptr;  // [n_sequences, max_blocks]
  std::int32_t max_blocks = 0;
  std::int32_t block_tokens = 0;
  std::int32_t* tokens = nullptr;     // [n_sequences], in and out, as all below
  std::int32_t* positions = nullptr;  // [n_sequences]
  std::int32_t* slots = nullptr;      // [n_sequences]: block * block_tokens + offset
  std::int32_t* n_left = nullptr;     // [n_sequences]: steps it may yet take; 0: it rests
};

}  // namespace foretoken
