#include "kernels/cpu/choose.h"

#include "kernels/cpu/backend.h"
#include "kernels/shared/contract.h"

namespace foretoken::cpu {
namespace {

// Of a row; fewer are not worth slices.
constexpr std::int32_t kFewLogits = 8192;

RowChanges changes_of(const ChooseArgs& args, const RowRule& rule) {
  return {.adjustments = {args.adjustments + rule.adjust_begin,
                          static_cast<std::size_t>(rule.adjust_end - rule.adjust_begin)},
          .mask = mask_of(args, rule)};
}

void finish_row(const Isa& isa,
                const ChooseArgs& args,
                std::int32_t row,
                const Best& best,
                ChooseSpace& space) {
  const RowRule& rule = args.rules[row];
  Choice& choice = args.choices[row];
  choice = {best.score, best.token, 0.0f};
  if (rule.n_top_logprobs < 0) return;
  TopLogprob* top = args.top != nullptr ? args.top + std::int64_t{row} * kMaxTopLogprobs : nullptr;
  choice.logprob = log_probabilities(isa, args.logits + std::int64_t{row} * args.vocab,
                                     args.n_valid, best.token, rule.n_top_logprobs, top, space);
}

}  // namespace

RowShares share_rows(const ChooseArgs& args, int n_members) {
  const bool all_whole =
      args.slices != nullptr || args.n_rows >= n_members || args.n_valid < kFewLogits;
  RowShares shares;
  for (std::int32_t row = 0; row < args.n_rows; ++row) {
    const bool is_whole = all_whole || truncates(args.rules[row], args.n_valid);
    (is_whole ? shares.whole : shares.sliced).push_back(row);
  }
  return shares;
}

void CpuBackend::choose_now(const ChooseArgs& args) {
  contract::check_contents(args);
  choose_spaces_.resize(static_cast<std::size_t>(team_.capacity()));
  const auto space_of = [&](int member) -> ChooseSpace& {
    return choose_spaces_[static_cast<std::size_t>(member)];
  };
  const auto whole_row = [&](std::int32_t row, int member) {
    if (args.slices != nullptr) return describe_slice(isa_, args, row, space_of(member));
    const RowRule& rule = args.rules[row];
    ChooseSpace& space = space_of(member);
    const float* raw = args.logits + std::int64_t{row} * args.vocab;
    const float* logits = adjusted_row(isa_, raw, args.n_valid, changes_of(args, rule), space);
    const Best best = truncates(rule, args.n_valid)
                          ? choose_truncated(isa_, logits, args.n_valid, rule, space)
                          : choose_slice(isa_, logits, 0, args.n_valid, rule);
    finish_row(isa_, args, row, best, space);
  };
  const RowShares shares = share_rows(args, team_.size());
  if (shares.whole.size() == 1) {
    whole_row(shares.whole.front(), 0);  // the caller's: no other has to wake up
  } else if (!shares.whole.empty()) {
    team_.run([&](int member) {
      const auto step = static_cast<std::size_t>(team_.size());
      for (auto i = static_cast<std::size_t>(member); i < shares.whole.size(); i += step)
        whole_row(shares.whole[i], member);
    });
  }
  for (const std::int32_t row : shares.sliced) {
    const RowRule& rule = args.rules[row];
    const float* raw = args.logits + std::int64_t{row} * args.vocab;
    const float* logits =
        adjusted_row(isa_, raw, args.n_valid, changes_of(args, rule), space_of(0));
    std::vector<Best> bests(static_cast<std::size_t>(team_.size()));
    team_.run([&](int member) {
      const Share share = share_of((args.n_valid + 63) / 64, member, team_.size());
      const auto begin = static_cast<std::int32_t>(share.begin * 64);
      const auto end = std::min(static_cast<std::int32_t>(share.end * 64), args.n_valid);
      bests[static_cast<std::size_t>(member)] = choose_slice(isa_, logits, begin, end, rule);
    });
    Best best;
    for (const Best& b : bests) best = better(best, b);
    finish_row(isa_, args, row, best, space_of(0));
  }
}

}  // namespace foretoken::cpu
