// A rank's slice of the vocabulary on the device: what kernels/cpu/choose_slices.cc tells of it.
// The best id is a maximum over blocks of columns; one block a row then adds the sums and puts the
// first candidates in order: the cut by selection on the bits of the logits, the order among what
// is left by counting, for each, how many come before it.
#include <algorithm>

#include "kernels/cuda/choose.cuh"

namespace foretoken::cuda {
namespace {

struct Kept {
  float logit;
  std::int32_t column;
};
static_assert(sizeof(Kept) == sizeof(double), "lies where a row's weights would");

// Grid: blocks of columns, rows.
__global__ void __launch_bounds__(kSliceThreads) describe_best_kernel(ChooseKernelArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  FORETOKEN_SHARED_BESTS(room, kSliceThreads / 32);
  const auto row = static_cast<std::int64_t>(blockIdx.y);
  const RowRule rule = p.rules[row];
  const auto begin = static_cast<std::int32_t>(blockIdx.x) * kSlice;
  const std::int32_t end = begin + kSlice < p.n_valid ? begin + kSlice : p.n_valid;
  const Best best = best_of_columns(p, rule, p.logits + row * p.vocab, begin, end, room);
  if (threadIdx.x == 0) p.bests[row * p.n_slices + blockIdx.x] = best;
}

// Where each thread's part of a list begins, and how long the list is.
__device__ __forceinline__ std::uint32_t list_places(std::uint32_t* counts, std::uint32_t own) {
  sync_block();
  counts[threadIdx.x] = own;
  sync_block();
  if (threadIdx.x == 0) {
    std::uint32_t sum = 0;
    for (int i = 0; i < kRowThreads; ++i) {
      const std::uint32_t n = counts[i];
      counts[i] = sum;
      sum += n;
    }
    counts[kRowThreads] = sum;
  }
  sync_block();
  return counts[threadIdx.x];
}

// The first n_wanted columns of `by` in rank order, both logits of each; -1 where there are no
// more. places: [kRowThreads + 1]; kept: [n].
__device__ __forceinline__ void first_candidates(const ChooseKernelArgs& p,
                                                 const float* by,
                                                 const float* raw,
                                                 const float* adjusted,
                                                 std::int32_t n_wanted,
                                                 SliceCandidate* out,
                                                 const RowSpace& space,
                                                 std::uint32_t* places,
                                                 Kept* kept) {
  const std::int32_t n = p.n_valid, first = static_cast<std::int32_t>(threadIdx.x);
  double found = 0;
  for (std::int32_t i = first; i < n; i += kRowThreads)
    if (by[i] > kLeast) found += 1;
  found = block_sum(found, space.sums, kRowThreads / 32);
  Cut cut;
  if (static_cast<double>(n_wanted) < found)
    cut = cut_top_k(by, n, static_cast<std::uint32_t>(n_wanted), space);
  const auto stays = [&](std::int32_t i) { return by[i] > kLeast && cut.keeps(key_of(by[i]), i); };
  std::uint32_t own = 0;
  for (std::int32_t i = first; i < n; i += kRowThreads) own += stays(i) ? 1 : 0;
  std::uint32_t at = list_places(places, own);
  for (std::int32_t i = first; i < n; i += kRowThreads)
    if (stays(i)) kept[at++] = {by[i], i};
  sync_block();
  const auto n_kept = static_cast<std::int32_t>(places[kRowThreads]);
  for (std::int32_t mine = first; mine < n_kept; mine += kRowThreads) {
    const Kept x = kept[mine];
    std::int32_t n_before = 0;
    for (std::int32_t i = 0; i < n_kept; ++i)
      n_before +=
          kept[i].logit > x.logit || (kept[i].logit == x.logit && kept[i].column < x.column);
    out[n_before] = {adjusted[x.column], raw[x.column], p.first_id + x.column};
  }
  for (std::int32_t i = n_kept + first; i < n_wanted; i += kRowThreads) out[i] = {0, 0, -1};
  sync_block();  // the list is used again
}

// Grid: rows.
__global__ void __launch_bounds__(kRowThreads) describe_slice_kernel(ChooseKernelArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  __shared__ std::uint32_t counts[256], found[2], places[kRowThreads + 1];
  __shared__ double sums[kRowThreads / 32];
  FORETOKEN_SHARED_BESTS(bests, kRowThreads / 32);
  const RowSpace space{counts, found, sums, bests};
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  const RowRule rule = p.rules[row];
  const std::int32_t n = p.n_valid, first = static_cast<std::int32_t>(threadIdx.x);
  const float* raw = p.logits + row * p.vocab;
  float* adjusted = p.adjusted + row * n;
  auto* kept = reinterpret_cast<Kept*>(p.weights + row * n);

  Best best;
  for (std::int32_t block = first; block < p.n_slices; block += kRowThreads)
    best = better(best, p.bests[row * p.n_slices + block]);
  best = block_best(best, bests, kRowThreads / 32);
  Best highest, adjusted_highest;
  for (std::int32_t i = first; i < n; i += kRowThreads) {
    const float l = adjusted_logit(p, rule, raw, i);
    adjusted[i] = l;
    if (l > kLeast) adjusted_highest = better(adjusted_highest, Best{static_cast<double>(l), i});
    if (raw[i] > kLeast) highest = better(highest, Best{static_cast<double>(raw[i]), i});
  }
  highest = block_best(highest, bests, kRowThreads / 32);
  adjusted_highest = block_best(adjusted_highest, bests, kRowThreads / 32);

  double total = 0, adjusted_total = 0;
  if (rule.n_top_logprobs >= 0) {
    for (std::int32_t i = first; i < n; i += kRowThreads)
      if (raw[i] > kLeast) total += exp_poly(static_cast<double>(raw[i]) - highest.score);
    total = block_sum(total, sums, kRowThreads / 32);
  }
  if (rule.temperature > 0 && rule.top_p < 1) {
    const double inverse = inverse_of(rule), shift = adjusted_highest.score * inverse;
    for (std::int32_t i = first; i < n; i += kRowThreads)
      if (adjusted[i] > kLeast)
        adjusted_total += exp_poly(fma64(static_cast<double>(adjusted[i]), inverse, -shift));
    adjusted_total = block_sum(adjusted_total, sums, kRowThreads / 32);
  }
  if (threadIdx.x == 0) {
    SliceChoice slice;
    if (best.token >= 0) {
      slice.score = best.score;
      slice.token = p.first_id + best.token;
      slice.logit = raw[best.token];
    }
    slice.total = total;
    slice.adjusted_total = adjusted_total;
    slice.highest = highest.token >= 0 ? static_cast<float>(highest.score) : kLeast;
    slice.adjusted_highest =
        adjusted_highest.token >= 0 ? static_cast<float>(adjusted_highest.score) : kLeast;
    p.described[row] = slice;
  }
  sync_block();  // all of the adjusted row is there
#pragma unroll 1
  for (int pass = 0; pass < 2; ++pass) {  // one piece of code for both lists
    const bool by_raw = pass == 1;
    const std::int32_t n_wanted = !by_raw                  ? p.n_candidates
                                  : p.likeliest != nullptr ? rule.n_top_logprobs
                                                           : 0;
    if (n_wanted <= 0) continue;
    SliceCandidate* out = by_raw ? p.likeliest + row * kMaxTopLogprobs
                                 : p.candidates + row * std::int64_t{p.n_candidates};
    first_candidates(p, by_raw ? raw : adjusted, raw, adjusted, n_wanted, out, space, places, kept);
  }
}

}  // namespace

void choose_slices(const Launch& launch_in, const ChooseArgs& args, void* space) {
  ChooseKernelArgs p = shared_by_rows(args, space);
  p.first_id = args.first_id;
  p.n_candidates = args.n_candidates;
  for (std::int32_t first = 0; first < args.n_rows; first += kChooseRows) {
    const std::int32_t rows = std::min(kChooseRows, args.n_rows - first);
    p.logits = args.logits + std::int64_t{first} * args.vocab;
    p.rules = args.rules + first;
    p.described = args.slices + first;
    p.candidates = args.candidates + std::int64_t{first} * args.n_candidates;
    p.likeliest = args.likeliest != nullptr ? args.likeliest + std::int64_t{first} * kMaxTopLogprobs
                                            : nullptr;
    Launch l = launch_in;
    l.x = static_cast<unsigned>(p.n_slices);
    l.y = static_cast<unsigned>(rows);
    l.n_threads = kSliceThreads;
    launch(l, "describe_best", describe_best_kernel, p);
    l.x = static_cast<unsigned>(rows);
    l.y = 1;
    l.n_threads = kRowThreads;
    launch(l, "describe_slice", describe_slice_kernel, p);
  }
}

}  // namespace foretoken::cuda
