#include "common/engine/follower.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "common/base/check.h"
#include "common/collective/collective.h"

namespace foretoken {
namespace {

// Every vector of a plan, in one order for both directions.
template <class Plan, class Visitor>
void each_part(Plan& plan, Visitor&& visit) {
  visit(plan.tokens);
  visit(plan.slices);
  visit(plan.block_tables);
  visit(plan.copies);
  visit(plan.logit_rows);
  visit(plan.rules);
  visit(plan.adjustments);
  visit(plan.masks);
}

template <class T>
void put(std::vector<std::byte>& out, std::span<T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto bytes = std::as_bytes(values);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

template <class T>
bool take(std::span<const std::byte>& in, std::span<T> into) {
  if (in.size() < into.size_bytes()) return false;
  if (!into.empty()) std::memcpy(into.data(), in.data(), into.size_bytes());
  in = in.subspan(into.size_bytes());
  return true;
}

// The loop of a service may sleep for half a second beyond it.
Duration check_period(Duration patience) {
  const Duration longest = std::chrono::seconds(1);
  return patience > Duration{} ? std::min(longest, patience / 4) : longest;
}

template <class T>
T taken(std::span<const std::byte>& in) {
  T value{};
  if (!take(in, std::span(&value, 1)))
    throw FatalError(ErrorCode::kInternal, "rank 0 sent a message that is cut short");
  return value;
}

}  // namespace

std::vector<std::byte> pack_plan(const StepPlan& plan) {
  std::vector<std::byte> out;
  const RankWord word = RankWord::kPlan;
  put(out, std::span(&word, 1));
  each_part(plan, [&](const auto& part) {
    const std::uint64_t n = part.size();
    put(out, std::span(&n, 1));
  });
  each_part(plan, [&](const auto& part) { put(out, std::span(part)); });
  return out;
}

Result<void> unpack_plan(std::span<const std::byte> bytes, StepPlan& plan) {
  const Error broken{ErrorCode::kInternal, "what rank 0 sent is no plan of this build"};
  RankWord word{};
  if (!take(bytes, std::span(&word, 1)) || word != RankWord::kPlan) return broken;
  bool fits = true;
  std::uint64_t n_bytes = 0;
  each_part(plan, [&](auto& part) {
    std::uint64_t n = 0;
    fits = fits && take(bytes, std::span(&n, 1)) && n <= bytes.size();
    part.clear();
    if (!fits) return;
    part.resize(n);
    n_bytes += n * sizeof(part[0]);
  });
  if (!fits || n_bytes != bytes.size()) return broken;
  each_part(plan, [&](auto& part) { take(bytes, std::span(part)); });
  return {};
}

Leader::Leader(Collective* ranks, const CacheShape& shape) : ranks_(ranks) {
  if (ranks_ == nullptr) return;
  FORETOKEN_CHECK(ranks_->rank() == 0, "only rank 0 leads");
  const RankWord word = RankWord::kCache;
  put(message_, std::span(&word, 1));
  put(message_, std::span(&shape, 1));
  ranks_->broadcast(message_);
}

void Leader::send(const StepPlan& plan) {
  if (ranks_ == nullptr) return;
  FORETOKEN_CHECK(plan.n_ahead == 0, "a chain would need the ranks' choices on the device");
  message_ = pack_plan(plan);
  ranks_->broadcast(message_);
}

void Leader::check_ranks(TimePoint now) {
  if (ranks_ == nullptr || now - last_call_ < check_period(ranks_->patience())) return;
  last_call_ = now;
  say(RankWord::kCheckRanks);
  ranks_->barrier();
}

Duration Leader::longest_silence() const {
  const bool has_limit = ranks_ != nullptr && ranks_->patience() > Duration::zero();
  return has_limit ? ranks_->patience() / 2 : Duration::max();
}

void Leader::end() {
  if (ranks_ != nullptr) say(RankWord::kEnd);
}

void Leader::say(RankWord word) {
  message_.clear();
  put(message_, std::span(&word, 1));
  ranks_->broadcast(message_);
}

void follow(Model& model, Backend& backend, Duration patience) {
  Collective& ranks = *model.ranks();
  std::vector<std::byte> message;
  ranks.broadcast(message);
  std::span<const std::byte> rest = message;
  if (taken<RankWord>(rest) != RankWord::kCache)
    throw FatalError(ErrorCode::kInternal, "rank 0 did not begin with its cache");
  PlanRunner runner(model, backend, taken<CacheShape>(rest));
  ranks.set_patience(patience);
  StepPlan plan;
  while (true) {
    ranks.broadcast(message);
    rest = message;
    switch (taken<RankWord>(rest)) {
      case RankWord::kPlan:
        if (const auto plain = unpack_plan(message, plan); !plain.ok())
          throw FatalError(plain.error());
        runner.run(plan);
        break;
      case RankWord::kCheckRanks:
        ranks.barrier();
        break;
      case RankWord::kEnd:
        return;
      case RankWord::kCache:
        throw FatalError(ErrorCode::kInternal, "rank 0 began anew");
    }
  }
}

}  // namespace foretoken
