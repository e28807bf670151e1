// Choosing the token of one row: adjustments, mask, truncation, noise. Pure functions of a row and
// its rule, for one member of the team; choose.cc shares rows, or slices of one row, among members.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/cpu/isa.h"
#include "kernels/include/ops.h"

namespace foretoken::cpu {

// Below every logit; what a token that is ruled out has.
inline constexpr float kLeast = -std::numeric_limits<float>::infinity();

struct Candidate {
  float logit = 0;
  std::int32_t id = 0;
};

// The order of truncation: logit descending, id ascending.
inline bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// Working space of one member; only ever grows.
struct ChooseSpace {
  std::vector<float> adjusted;
  std::vector<double> weights;
  std::vector<Candidate> candidates;
  std::vector<Candidate> best;
};

// What changes a row's logits before they are ranked.
struct RowChanges {
  std::span<const Adjustment> adjustments;  // by column
  const std::uint32_t* mask = nullptr;      // by id; null: none
  std::int32_t first_id = 0;                // of column 0
};

inline const std::uint32_t* mask_of(const ChooseArgs& args, const RowRule& rule) {
  return rule.mask_begin < 0 ? nullptr : args.masks + rule.mask_begin;
}

// The row with its adjustments and its mask applied: `logits` itself if there are none, else a copy
// in space.adjusted.
const float* adjusted_row(const Isa& isa,
                          const float* logits,
                          std::int32_t n,
                          const RowChanges& changes,
                          ChooseSpace& space);

bool truncates(const RowRule& rule, std::int32_t n);

// The k first candidates above -infinity in rank order, unsorted, into space.candidates.
void top_candidates(const float* logits, std::int32_t n, std::int32_t k, ChooseSpace& space);

// Token of a row under a rule that truncates. logits: adjusted, [n].
Best choose_truncated(
    const Isa& isa, const float* logits, std::int32_t n, const RowRule& rule, ChooseSpace& space);

// Token of columns [begin, end) under a rule that does not; the column's number, not the id where
// the first one is another.
Best choose_slice(const Isa& isa,
                  const float* logits,
                  std::int32_t begin,
                  std::int32_t end,
                  const RowRule& rule,
                  std::int32_t first_id = 0);

// How the team shares rows. Each of `whole` is one member's. Of each of `sliced`, every member
// takes a slice: rows that are a plain maximum, which is exact in any order, where there are fewer
// rows than members and enough logits.
struct RowShares {
  std::vector<std::int32_t> whole, sliced;
};
RowShares share_rows(const ChooseArgs& args, int n_members);

// What one rank tells of its slice of a row: everything in ChooseArgs that `slices` asks for.
void describe_slice(const Isa& isa, const ChooseArgs& args, std::int32_t row, ChooseSpace& space);

inline Best better(const Best& a, const Best& b) {
  if (b.token < 0) return a;
  if (a.token < 0 || b.score > a.score || (b.score == a.score && b.token < a.token)) return b;
  return a;
}

// Log probabilities of the raw row: of `token`, and of the n likeliest into top.
float log_probabilities(const Isa& isa,
                        const float* raw,
                        std::int32_t n,
                        std::int32_t token,
                        std::int32_t n_top,
                        TopLogprob* top,
                        ChooseSpace& space);

}  // namespace foretoken::cpu
