// Choosing tokens on the device: the rule of kernels/ref/choose.cc. A row without truncation is a
// maximum of noisy scores, cut into slices of the vocabulary (a maximum is exact in any order); a
// row with top-k, top-p or min-p is one block's work: thresholds by selection on the bits of the
// logits, then the same maximum over what is left. Scores and noise have the bits of every other
// device; sums of weights are taken in an order of this device's own.
#include <algorithm>

#include "kernels/cuda/choose.cuh"

namespace foretoken::cuda {
namespace {

// Grid: slices, rows.
__global__ void __launch_bounds__(kSliceThreads) choose_slice_kernel(ChooseKernelArgs p) {
  wait_for_earlier_kernels();
  let_next_kernel_start();
  FORETOKEN_SHARED_BESTS(room, kSliceThreads / 32);
  const auto row = static_cast<std::int64_t>(blockIdx.y);
  const RowRule rule = p.rules[row];
  if (truncates(rule, p.n_valid)) return;
  const auto begin = static_cast<std::int32_t>(blockIdx.x) * kSlice;
  const std::int32_t end = begin + kSlice < p.n_valid ? begin + kSlice : p.n_valid;
  const Best best = best_of_columns(p, rule, p.logits + row * p.vocab, begin, end, room);
  if (threadIdx.x == 0) p.bests[row * p.n_slices + blockIdx.x] = best;
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

}  // namespace

std::int64_t choose_space_bytes(const ChooseArgs& args) {
  const std::int64_t rows = std::min(args.n_rows, kChooseRows), n = args.n_valid;
  return padded(rows * slices_of(args) * static_cast<std::int64_t>(sizeof(Best))) +
         padded(rows * n * 4) + padded(rows * n * 8);
}

void choose(const Launch& launch_in, const ChooseArgs& args, void* space) {
  if (args.slices != nullptr) return choose_slices(launch_in, args, space);
  ChooseKernelArgs p = shared_by_rows(args, space);
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
