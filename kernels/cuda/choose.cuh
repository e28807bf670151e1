// What choosing from a whole row (choose.cu) and describing a slice of one (choose_slices.cu)
// share: noisy maxima, and the order of truncation with selection in it.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"

namespace foretoken::cuda {

constexpr int kSliceThreads = 256;
constexpr int kSlice = kSliceThreads * 4;  // ids of a block; the noise of a thread's comes at once
constexpr int kRowThreads = 512;           // of a truncated or finished row
constexpr float kLeast = -__builtin_inff();

struct Best {
  double score = 0;
  std::int32_t token = -1;
};

__device__ __forceinline__ Best better(const Best& a, const Best& b) {
  if (b.token < 0) return a;
  if (a.token < 0 || b.score > a.score || (b.score == a.score && b.token < a.token)) return b;
  return a;
}

// room: one Best a warp. Every thread gets the result.
__device__ __forceinline__ Best block_best(Best x, Best* room, int n_warps) {
  for (int step = 16; step > 0; step /= 2)
    x = better(x, Best{shuffle_xor(x.score, step), shuffle_xor(x.token, step)});
  sync_block();
  if (lane_id() == 0) room[warp_id()] = x;
  sync_block();
  Best best = room[0];
  for (int w = 1; w < n_warps; ++w) best = better(best, room[w]);
  return best;
}

// Shared memory holds no objects with initial values; this is room for kWarps of them.
#define FORETOKEN_SHARED_BESTS(name, n_warps)                                \
  __shared__ double name##_bytes[(n_warps) * sizeof(Best) / sizeof(double)]; \
  /* NOLINTNEXTLINE(bugprone-macro-parentheses): a name */                   \
  Best* name = reinterpret_cast<Best*>(name##_bytes)

struct ChooseKernelArgs {
  const float* logits;
  const RowRule* rules;
  const Adjustment* adjustments;
  const std::uint32_t* masks;
  Choice* choices;
  TopLogprob* top;
  Best* bests;      // [n_rows][n_slices]
  float* adjusted;  // [n_rows][n_valid], truncated rows only
  double* weights;  // [n_rows][n_valid], likewise
  std::int32_t vocab;
  std::int32_t n_valid;
  std::int32_t n_slices;  // blocks that share a row
  // A rank's slice of the vocabulary (choose_slices.cu); else zeros.
  std::int32_t first_id;
  std::int32_t n_candidates;
  SliceChoice* described;
  SliceCandidate* candidates;
  SliceCandidate* likeliest;
};

__device__ __forceinline__ bool truncates(const RowRule& rule, std::int32_t n) {
  if (!(rule.temperature > 0)) return false;
  return (rule.top_k > 0 && rule.top_k < n) || rule.top_p < 1 || rule.min_p > 0;
}

__device__ __forceinline__ float adjusted_logit(const ChooseKernelArgs& p,
                                                const RowRule& rule,
                                                const float* row,
                                                std::int32_t column) {
  const float l = row[column];
  const std::int32_t id = p.first_id + column;
  if (rule.mask_begin >= 0 && (p.masks[rule.mask_begin + id / 32] >> id % 32 & 1u) == 0)
    return kLeast;
  std::int32_t begin = rule.adjust_begin, end = rule.adjust_end;
  while (begin < end) {
    const std::int32_t middle = begin + (end - begin) / 2;
    if (p.adjustments[middle].id < id)
      begin = middle + 1;
    else
      end = middle;
  }
  if (begin == rule.adjust_end || p.adjustments[begin].id != id) return l;
  const Adjustment& a = p.adjustments[begin];
  return (l > 0 ? l / a.repetition : l * a.repetition) + a.add;
}

__device__ __forceinline__ double inverse_of(const RowRule& rule) {
  return 1.0 / static_cast<double>(rule.temperature);
}

// The better of `best` and (score of) this candidate; two logarithms only where they could matter.
__device__ __forceinline__ Best
with_candidate(const Best& best, float logit, std::int32_t id, double inverse, std::uint32_t word) {
  if (!(logit > kLeast)) return best;
  if (best.token >= 0) {
    const double z = static_cast<double>(logit) * inverse;
    const double margin = 1e-3 + 0x1p-20 * fabs(best.score);
    if (z + static_cast<double>(gumbel_bound(word)) < best.score - margin) return best;
  }
  return better(best, Best{noisy_score(logit, inverse, word), id});
}

__device__ __forceinline__ std::uint32_t word_of(const RowRule& rule, std::int32_t id) {
  return noise_word(rule.seed, rule.choice, rule.position, static_cast<std::uint32_t>(id));
}

// The best id of columns begin .. end of a row under a rule without truncation: the column, not the
// id. Every thread gets it. room: one Best a warp.
__device__ __forceinline__ Best best_of_columns(const ChooseKernelArgs& p,
                                                const RowRule& rule,
                                                const float* logits,
                                                std::int32_t begin,
                                                std::int32_t end,
                                                Best* room) {
  Best best;
#pragma unroll
  for (std::int32_t i = 0; i < kSlice; i += kSliceThreads) {
    const std::int32_t id = begin + i + static_cast<std::int32_t>(threadIdx.x);
    if (id >= end) break;
    const float l = adjusted_logit(p, rule, logits, id);
    if (l > kLeast) best = better(best, Best{static_cast<double>(l), id});
  }
  best = block_best(best, room, kSliceThreads / 32);
  if (!(rule.temperature > 0) || best.token < 0) return best;
  const double inverse = inverse_of(rule);
  // The likeliest id's own score is where every thread's filter starts.
  best.score =
      noisy_score(static_cast<float>(best.score), inverse, word_of(rule, p.first_id + best.token));
  for (std::int32_t four = begin + 4 * static_cast<std::int32_t>(threadIdx.x); four < end;
       four += 4 * kSliceThreads) {
    const Philox4 noise =
        philox(static_cast<std::uint32_t>(p.first_id + four) >> 2, rule.position, rule.choice,
               static_cast<std::uint32_t>(NoiseDomain::kTarget),
               static_cast<std::uint32_t>(rule.seed), static_cast<std::uint32_t>(rule.seed >> 32));
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (four + i < end)
        best = with_candidate(best, adjusted_logit(p, rule, logits, four + i), four + i, inverse,
                              noise.word[i]);
  }
  return block_best(best, room, kSliceThreads / 32);
}

// Logits as integers of the same order; zeros of both signs are one.
__device__ __forceinline__ std::uint32_t key_of(float logit) {
  const std::uint32_t bits = bits_as<std::uint32_t>(logit + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// A place in rank order (logit descending, id ascending): it and all before it are kept.
struct Cut {
  std::uint32_t key = 0;
  std::int32_t id = 0x7fffffff;
  __device__ __forceinline__ bool keeps(std::uint32_t k, std::int32_t i) const {
    return k > key || (k == key && i <= id);
  }
};

struct RowSpace {
  std::uint32_t* counts;  // [256]
  std::uint32_t* found;   // [2]
  double* sums;           // one a warp
  Best* bests;            // one a warp
};

// The rank-th smallest (from 1) of value(id) over the ids that are in the set. The set is not
// smaller.
template <class InSet, class Value>
__device__ inline std::uint32_t select(std::uint32_t rank,
                                       std::int32_t n,
                                       const RowSpace& s,
                                       const InSet& in_set,
                                       const Value& value) {
  std::uint32_t prefix = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    sync_block();
    for (int i = static_cast<int>(threadIdx.x); i < 256; i += kRowThreads) s.counts[i] = 0;
    sync_block();
    for (std::int32_t id = static_cast<std::int32_t>(threadIdx.x); id < n; id += kRowThreads) {
      if (!in_set(id)) continue;
      const std::uint32_t v = value(id);
      if (shift == 24 || v >> (shift + 8) == prefix >> (shift + 8))
        add_shared_count(s.counts + (v >> shift & 255u), 1);
    }
    sync_block();
    if (threadIdx.x == 0) {
      std::uint32_t before = 0, digit = 0;
      while (digit < 255 && before + s.counts[digit] < rank) before += s.counts[digit++];
      s.found[0] = digit;
      s.found[1] = before;
    }
    sync_block();
    prefix |= s.found[0] << shift;
    rank -= s.found[1];
  }
  return prefix;
}

// Where the first k of the ids above -infinity end.
__device__ inline Cut cut_top_k(const float* logits,
                                std::int32_t n,
                                std::uint32_t k,
                                const RowSpace& s) {
  const auto valid = [&](std::int32_t id) { return logits[id] > kLeast; };
  Cut cut;
  cut.key = ~select(k, n, s, valid, [&](std::int32_t id) { return ~key_of(logits[id]); });
  double above = 0;
  for (std::int32_t id = static_cast<std::int32_t>(threadIdx.x); id < n; id += kRowThreads)
    if (valid(id) && key_of(logits[id]) > cut.key) above += 1;
  above = block_sum(above, s.sums, kRowThreads / 32);
  cut.id = static_cast<std::int32_t>(select(
      k - static_cast<std::uint32_t>(above), n, s,
      [&](std::int32_t id) { return valid(id) && key_of(logits[id]) == cut.key; },
      [](std::int32_t id) { return static_cast<std::uint32_t>(id); }));
  return cut;
}

// One launch after another over rows of the working space that choose_space_bytes() speaks of.
void choose_slices(const Launch& launch, const ChooseArgs& args, void* space);

constexpr std::int64_t padded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }
inline std::int32_t slices_of(const ChooseArgs& args) {
  return (args.n_valid + kSlice - 1) / kSlice;
}
// What is the same for all rows: sizes, and the parts of the working space that
// choose_space_bytes() speaks of.
inline ChooseKernelArgs shared_by_rows(const ChooseArgs& args, void* space) {
  const std::int64_t most_rows = std::min(args.n_rows, kChooseRows), n = args.n_valid;
  ChooseKernelArgs p{};
  p.adjustments = args.adjustments;
  p.masks = args.masks;
  p.vocab = args.vocab;
  p.n_valid = args.n_valid;
  p.n_slices = slices_of(args);
  auto* at = static_cast<std::byte*>(space);
  p.bests = reinterpret_cast<Best*>(at);
  at += padded(most_rows * p.n_slices * static_cast<std::int64_t>(sizeof(Best)));
  p.adjusted = reinterpret_cast<float*>(at);
  at += padded(most_rows * n * 4);
  p.weights = reinterpret_cast<double*>(at);
  return p;
}

}  // namespace foretoken::cuda
