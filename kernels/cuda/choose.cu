// Choosing tokens on the device: the rule of kernels/ref/choose.cc. A row without truncation is a
// maximum of noisy scores, cut into slices of the vocabulary (a maximum is exact in any order); a
// row with top-k, top-p or min-p is one block's work: thresholds by selection on the bits of the
// logits, then the same maximum over what is left. Scores and noise have the bits of every other
// device; sums of weights are taken in an order of this device's own.
#include <algorithm>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"

namespace foretoken::cuda {
namespace {

constexpr int kSliceThreads = 256;
constexpr int kSlice = kSliceThreads * 16;  // ids of a block
constexpr int kRowThreads = 512;            // of a truncated or finished row
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
  Best* name = reinterpret_cast<Best*>(name##_bytes)

struct ChooseKernelArgs {
  const float* logits;
  const RowRule* rules;
  const Adjustment* adjustments;
  Choice* choices;
  TopLogprob* top;
  Best* bests;      // [n_rows][n_slices]
  float* adjusted;  // [n_rows][n_valid], truncated rows only
  double* weights;  // [n_rows][n_valid], likewise
  std::int32_t vocab;
  std::int32_t n_valid;
  std::int32_t n_slices;
};

__device__ __forceinline__ bool truncates(const RowRule& rule, std::int32_t n) {
  if (!(rule.temperature > 0)) return false;
  return (rule.top_k > 0 && rule.top_k < n) || rule.top_p < 1 || rule.min_p > 0;
}

__device__ __forceinline__ float adjusted_logit(const ChooseKernelArgs& p,
                                                const RowRule& rule,
                                                const float* row,
                                                std::int32_t id) {
  const float l = row[id];
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

// Grid: slices, rows.
__global__ void __launch_bounds__(kSliceThreads) choose_slice_kernel(ChooseKernelArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  FORETOKEN_SHARED_BESTS(room, kSliceThreads / 32);
  const auto row = static_cast<std::int64_t>(blockIdx.y);
  const RowRule rule = p.rules[row];
  if (truncates(rule, p.n_valid)) return;
  const float* logits = p.logits + row * p.vocab;
  const auto begin = static_cast<std::int32_t>(blockIdx.x) * kSlice;
  const std::int32_t end = begin + kSlice < p.n_valid ? begin + kSlice : p.n_valid;
  Best best;
  for (std::int32_t id = begin + static_cast<std::int32_t>(threadIdx.x); id < end;
       id += kSliceThreads) {
    const float l = adjusted_logit(p, rule, logits, id);
    if (l > kLeast) best = better(best, Best{static_cast<double>(l), id});
  }
  best = block_best(best, room, kSliceThreads / 32);
  if (rule.temperature > 0 && best.token >= 0) {
    const double inverse = inverse_of(rule);
    // The likeliest id's own score is where every thread's filter starts.
    best.score = noisy_score(static_cast<float>(best.score), inverse, word_of(rule, best.token));
    for (std::int32_t four = begin + 4 * static_cast<std::int32_t>(threadIdx.x); four < end;
         four += 4 * kSliceThreads) {
      const Philox4 noise = philox(static_cast<std::uint32_t>(four) >> 2, rule.position,
                                   rule.choice, static_cast<std::uint32_t>(NoiseDomain::kTarget),
                                   static_cast<std::uint32_t>(rule.seed),
                                   static_cast<std::uint32_t>(rule.seed >> 32));
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (four + i < end)
          best = with_candidate(best, adjusted_logit(p, rule, logits, four + i), four + i, inverse,
                                noise.word[i]);
    }
    best = block_best(best, room, kSliceThreads / 32);
  }
  if (threadIdx.x == 0) p.bests[row * p.n_slices + blockIdx.x] = best;
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
__device__ std::uint32_t select(std::uint32_t rank,
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
__device__ Cut cut_top_k(const float* logits, std::int32_t n, std::uint32_t k, const RowSpace& s) {
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

// Where the shortest prefix ends whose weight reaches p of the total. weights: zero for what is
// out.
__device__ Cut
cut_top_p(const float* logits, const double* weights, std::int32_t n, double p, const RowSpace& s) {
  const auto weight_from = [&](std::uint32_t key) {
    double sum = 0;
    for (std::int32_t id = static_cast<std::int32_t>(threadIdx.x); id < n; id += kRowThreads)
      if (logits[id] > kLeast && key_of(logits[id]) >= key) sum += weights[id];
    return block_sum(sum, s.sums, kRowThreads / 32);
  };
  const double wanted = p * weight_from(0);
  Cut cut;
  for (int bit = 31; bit >= 0; --bit) {  // the largest key from which on the weight is enough
    const std::uint32_t tried = cut.key | std::uint32_t{1} << bit;
    if (weight_from(tried) >= wanted) cut.key = tried;
  }
  const double above = cut.key == 0xffffffffu ? 0.0 : weight_from(cut.key + 1);
  const auto tied = [&](std::int32_t id) {
    return logits[id] > kLeast && key_of(logits[id]) == cut.key && weights[id] > 0;
  };
  Best first;
  double n_tied = 0;
  for (std::int32_t id = static_cast<std::int32_t>(threadIdx.x); id < n; id += kRowThreads)
    if (tied(id)) {
      n_tied += 1;
      first = better(first, Best{weights[id], id});
    }
  n_tied = block_sum(n_tied, s.sums, kRowThreads / 32);
  first = block_best(first, s.bests, kRowThreads / 32);
  if (first.token < 0) return cut;
  double sum = above;  // all ties weigh the same; one by one, as the rule says
  std::uint32_t n_kept = 0;
  while (n_kept < static_cast<std::uint32_t>(n_tied) && sum < wanted) {
    sum += first.score;
    ++n_kept;
  }
  if (n_kept == 0) n_kept = 1;
  cut.id = static_cast<std::int32_t>(
      select(n_kept, n, s, tied, [](std::int32_t id) { return static_cast<std::uint32_t>(id); }));
  return cut;
}

// Grid: rows.
__global__ void __launch_bounds__(kRowThreads) choose_truncated_kernel(ChooseKernelArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  __shared__ std::uint32_t counts[256], found[2];
  __shared__ double sums[kRowThreads / 32];
  FORETOKEN_SHARED_BESTS(bests, kRowThreads / 32);
  const RowSpace space{counts, found, sums, bests};
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  const RowRule rule = p.rules[row];
  if (!truncates(rule, p.n_valid)) return;
  const std::int32_t n = p.n_valid, first = static_cast<std::int32_t>(threadIdx.x);
  float* logits = p.adjusted + row * n;
  double* weights = p.weights + row * n;
  double n_found = 0;
  Best highest;
  for (std::int32_t id = first; id < n; id += kRowThreads) {
    const float l = adjusted_logit(p, rule, p.logits + row * p.vocab, id);
    logits[id] = l;
    if (!(l > kLeast)) continue;
    n_found += 1;
    highest = better(highest, Best{static_cast<double>(l), id});
  }
  n_found = block_sum(n_found, sums, kRowThreads / 32);
  highest = block_best(highest, bests, kRowThreads / 32);
  Best best;
  if (highest.token >= 0) {
    const double inverse = inverse_of(rule);
    Cut by_count, by_weight;
    if (rule.top_k > 0 && static_cast<double>(rule.top_k) < n_found)
      by_count = cut_top_k(logits, n, static_cast<std::uint32_t>(rule.top_k), space);
    if (rule.top_p < 1) {
      const double shift = highest.score * inverse;
      for (std::int32_t id = first; id < n; id += kRowThreads) {
        const bool in = logits[id] > kLeast && by_count.keeps(key_of(logits[id]), id);
        weights[id] = in ? exp_poly(fma64(static_cast<double>(logits[id]), inverse, -shift)) : 0.0;
      }
      by_weight = cut_top_p(logits, weights, n, static_cast<double>(rule.top_p), space);
    }
    const double least = rule.min_p > 0
                             ? highest.score + static_cast<double>(rule.temperature) *
                                                   log_poly(static_cast<double>(rule.min_p))
                             : static_cast<double>(kLeast);
    for (std::int32_t id = first; id < n; id += kRowThreads) {
      const float l = logits[id];
      if (!(l > kLeast) || !(static_cast<double>(l) >= least)) continue;
      const std::uint32_t key = key_of(l);
      if (by_count.keeps(key, id) && by_weight.keeps(key, id))
        best = with_candidate(best, l, id, inverse, word_of(rule, id));
    }
    best = block_best(best, bests, kRowThreads / 32);
  }
  if (threadIdx.x == 0)
    for (std::int32_t slice = 0; slice < p.n_slices; ++slice)
      p.bests[row * p.n_slices + slice] = slice == 0 ? best : Best{};
}

// Grid: rows. Best of the slices; log probabilities where asked for.
__global__ void __launch_bounds__(kRowThreads) choose_finish_kernel(ChooseKernelArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  __shared__ double sums[kRowThreads / 32];
  FORETOKEN_SHARED_BESTS(bests, kRowThreads / 32);
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  const RowRule rule = p.rules[row];
  const std::int32_t n = p.n_valid, first = static_cast<std::int32_t>(threadIdx.x);
  const float* raw = p.logits + row * p.vocab;
  Best best;
  for (std::int32_t slice = first; slice < p.n_slices; slice += kRowThreads)
    best = better(best, p.bests[row * p.n_slices + slice]);
  best = block_best(best, bests, kRowThreads / 32);
  Choice choice{best.token >= 0 ? best.score : 0.0, best.token, 0.0f};
  if (rule.n_top_logprobs >= 0) {
    Best highest;
    for (std::int32_t id = first; id < n; id += kRowThreads)
      if (raw[id] > kLeast) highest = better(highest, Best{static_cast<double>(raw[id]), id});
    highest = block_best(highest, bests, kRowThreads / 32);
    double total = 0;
    for (std::int32_t id = first; id < n; id += kRowThreads)
      if (raw[id] > kLeast) total += exp_poly(static_cast<double>(raw[id]) - highest.score);
    total = block_sum(total, sums, kRowThreads / 32);
    const double log_total = highest.token >= 0 ? highest.score + log_poly(total) : 0.0;
    choice.logprob = best.token >= 0
                         ? static_cast<float>(static_cast<double>(raw[best.token]) - log_total)
                         : kLeast;
    Best previous{__builtin_inf(), -1};
    for (int i = 0; i < rule.n_top_logprobs; ++i) {
      Best next;
      for (std::int32_t id = first; id < n; id += kRowThreads) {
        const double l = static_cast<double>(raw[id]);
        if (raw[id] > kLeast &&
            (l < previous.score || (l == previous.score && id > previous.token)))
          next = better(next, Best{l, id});
      }
      next = block_best(next, bests, kRowThreads / 32);
      if (threadIdx.x == 0)
        p.top[row * kMaxTopLogprobs + i] = {
            next.token, next.token >= 0 ? static_cast<float>(next.score - log_total) : kLeast};
      if (next.token >= 0)
        previous = next;
      else
        previous = {static_cast<double>(kLeast), 0x7fffffff};
    }
  }
  if (threadIdx.x == 0) p.choices[row] = choice;
}

constexpr std::int64_t padded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

std::int32_t slices_of(const ChooseArgs& args) { return (args.n_valid + kSlice - 1) / kSlice; }

}  // namespace

std::int64_t choose_space_bytes(const ChooseArgs& args) {
  const std::int64_t rows = std::min(args.n_rows, kChooseRows), n = args.n_valid;
  return padded(rows * slices_of(args) * static_cast<std::int64_t>(sizeof(Best))) +
         padded(rows * n * 4) + padded(rows * n * 8);
}

void choose(const Launch& launch_in, const ChooseArgs& args, void* space) {
  const std::int64_t most_rows = std::min(args.n_rows, kChooseRows), n = args.n_valid;
  ChooseKernelArgs p{args.logits, args.rules,   args.adjustments, args.choices,
                     args.top,    nullptr,      nullptr,          nullptr,
                     args.vocab,  args.n_valid, slices_of(args)};
  auto* at = static_cast<std::byte*>(space);
  p.bests = reinterpret_cast<Best*>(at);
  at += padded(most_rows * p.n_slices * static_cast<std::int64_t>(sizeof(Best)));
  p.adjusted = reinterpret_cast<float*>(at);
  at += padded(most_rows * n * 4);
  p.weights = reinterpret_cast<double*>(at);
  for (std::int32_t first = 0; first < args.n_rows; first += kChooseRows) {
    const std::int32_t rows = std::min(kChooseRows, args.n_rows - first);
    p.logits = args.logits + std::int64_t{first} * args.vocab;
    p.rules = args.rules + first;
    p.choices = args.choices + first;
    p.top = args.top != nullptr ? args.top + std::int64_t{first} * kMaxTopLogprobs : nullptr;
    Launch l = launch_in;
    l.x = static_cast<unsigned>(p.n_slices);
    l.y = static_cast<unsigned>(rows);
    l.n_threads = kSliceThreads;
    launch(l, "choose_slice", choose_slice_kernel, p);
    l.x = static_cast<unsigned>(rows);
    l.y = 1;
    l.n_threads = kRowThreads;
    launch(l, "choose_truncated", choose_truncated_kernel, p);
    launch(l, "choose_finish", choose_finish_kernel, p);
  }
}

}  // namespace foretoken::cuda
