#include "common/spec/wait_worth.h"

#include <algorithm>

namespace foretoken {
namespace {

constexpr double kLeastEnd = 0.1;  // of chains end in a round, however well they stood before

bool is_stream(const Expected& expected) { return expected.per_token > Duration::zero(); }

// A sequence while the step is held back: `n` tokens are at hand. Of these a step verifies at most
// `n_of_use`: the rows of more would cost more than they bring.
struct Held {
  const Expected* expected = nullptr;
  std::uint32_t n = 0;
  std::uint32_t n_of_use = 0;
  ChainWorth chain;
  double n_standing = 0;  // expected, of those that are verified
  double outlasting = 0;  // tokens that a chain is worth after this step, beside one that begins

  std::uint32_t n_rows() const { return std::min(n, n_of_use); }
  void extend(const DepthOutcomes& outcomes) {
    chain = outcomes.extended(chain, n, expected->odds);
    if (n++ < n_of_use) n_standing = chain.tokens;
  }

  // Of this step, with what it leaves for the next one.
  double worth(const DepthOutcomes& outcomes) const {
    double tokens = std::max(n_standing, expected->at_hand);
    if (is_stream(*expected) || n < expected->n_in_all)
      tokens += outcomes.extended(chain, n, expected->odds).survival * outlasting;
    return expected->value * tokens;
  }
};

struct Arrival {
  Duration in{};
  std::size_t which = 0;
  std::uint32_t n = 0;  // tokens at hand with it
};

class WaitSearch {
 public:
  WaitSearch(std::span<const Expected> expected,
             const WaitTerms& terms,
             const DepthOutcomes& outcomes,
             const StepCost& cost)
      : expected_(expected), terms_(terms), outcomes_(outcomes), cost_(cost) {
    pass_ = cost.seconds(terms.n_running);
    share_ = terms.tokens_per_second / std::max(1u, terms.n_running);
    n_rows_ = terms.n_running;
    for (const Expected& each : expected) {
      Held held{.expected = &each, .n_of_use = n_of_use(each)};
      while (held.n < each.n_at_hand) held.extend(outcomes);
      if (held.n == 0) held.chain.survival = each.holds;
      held.outlasting = outlasting(each);
      n_rows_ += held.n_rows();
      sum_ += held.worth(outcomes);
      held_.push_back(held);
    }
  }

  WaitFor best() {
    WaitFor best;
    double most = value_after({});
    note(best);
    const std::vector<Arrival> arrivals = all_arrivals();
    for (std::size_t i = 0; i < arrivals.size(); ++i) {
      take(arrivals[i]);
      if (i + 1 < arrivals.size() && arrivals[i + 1].in == arrivals[i].in) continue;
      const double value = value_after(arrivals[i].in);
      if (value <= most) continue;
      most = value;
      best.wait = arrivals[i].in;
      note(best);
    }
    return best;
  }

 private:
  // Tokens, less those that the time would bring at the usual rate.
  double value_after(Duration waited) const {
    return sum_ - terms_.tokens_per_second * (in_seconds(waited) + cost_.seconds(n_rows_));
  }

  void note(WaitFor& into) const {
    into.n_tokens.clear();
    for (const Held& held : held_) into.n_tokens.push_back(held.n);
  }

  void take(const Arrival& arrival) {
    Held& held = held_[arrival.which];
    sum_ -= held.worth(outcomes_);
    n_rows_ -= held.n_rows();
    while (held.n < arrival.n) held.extend(outcomes_);
    n_rows_ += held.n_rows();
    sum_ += held.worth(outcomes_);
  }

  std::vector<Arrival> all_arrivals() const {
    std::vector<Arrival> arrivals;
    for (std::size_t which = 0; which < expected_.size(); ++which) {
      const Expected& each = expected_[which];
      Arrival next{std::max(each.arrives_in, Duration::zero()), which,
                   is_stream(each) ? each.n_at_hand + 1 : each.n_in_all};
      for (; next.in <= terms_.limit && next.n <= each.n_in_all; ++next.n) {
        arrivals.push_back(next);
        next.in += each.per_token;
      }
    }
    std::sort(arrivals.begin(), arrivals.end(),
              [](const Arrival& a, const Arrival& b) { return a.in < b.in; });
    return arrivals;
  }

  // How many of its tokens a step would verify if each sequence had as many.
  std::uint32_t n_of_use(const Expected& each) const {
    ChainWorth chain;
    double most = -share_ * cost_.seconds(terms_.n_running);
    std::uint32_t best = 0;
    for (std::uint32_t n = 1; n <= each.n_in_all; ++n) {
      chain = outcomes_.extended(chain, n - 1, each.odds);
      const double price = share_ * cost_.seconds(terms_.n_running * (n + 1));
      const double value = each.value * chain.tokens - price;
      if (value <= most) continue;
      most = value;
      best = n;
    }
    return best;
  }

  // A chain that goes on beside the pass is there when it ends, for as long as its tokens stand;
  // an answer that goes on is there once, or some time later.
  double outlasting(const Expected& each) const {
    if (is_stream(each)) {
      const double made = pass_ / in_seconds(each.per_token);
      const auto n = static_cast<std::uint32_t>(std::min<double>(made, each.n_in_all));
      const ChainWorth chain = outcomes_.chain(n, each.odds);
      const double ends = 1 - outcomes_.extended(chain, n, each.odds).survival;
      return beyond_usual(chain.tokens, n, 0) / std::max(kLeastEnd, ends);
    }
    const std::uint32_t used = each.n_at_hand + 1;
    const std::uint32_t n = each.n_in_all > used ? each.n_in_all - used : 0;
    const double late = std::max(0.0, in_seconds(each.arrives_in) - pass_);
    return beyond_usual(outcomes_.chain(n, each.odds).tokens, n, late);
  }

  // Tokens of a step that verifies n, beyond those that its time brings at the usual rate.
  double beyond_usual(double n_standing, std::uint32_t n, double late) const {
    const double seconds = cost_.seconds(terms_.n_running * (n + 1)) + late;
    return std::max(0.0, n_standing + 1 - share_ * seconds);
  }

  std::span<const Expected> expected_;
  const WaitTerms& terms_;
  const DepthOutcomes& outcomes_;
  const StepCost& cost_;
  double pass_ = 0;   // seconds
  double share_ = 0;  // of the rate, of one sequence
  std::vector<Held> held_;
  double sum_ = 0;
  std::uint32_t n_rows_ = 0;
};

}  // namespace

WaitFor best_wait(std::span<const Expected> expected,
                  const WaitTerms& terms,
                  const DepthOutcomes& outcomes,
                  const StepCost& cost) {
  return WaitSearch(expected, terms, outcomes, cost).best();
}

}  // namespace foretoken
