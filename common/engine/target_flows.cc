// How the flows of a target's sequences share its passes.
#include <algorithm>
#include <cmath>

#include "common/engine/target_engine.h"

namespace foretoken {
namespace {

// Passes for which a flow whose rows were cut keeps to the proposals that its rows left room for,
// while there are other flows. With fewer proposals it wants fewer rows, so the next pass alone
// would not cut it.
constexpr std::uint64_t kLimitedPasses = 16;

}  // namespace

// Numbers the flows and, where there are several, says what each may have of the coming pass. What
// is cached of sequences that wait is looked up on the way: it takes neither rows nor blocks.
void TargetEngine::share_flows() {
  flow_index_.clear();
  flows_.clear();
  flow_rows_.clear();
  for (Sequence* sequence : running_) add_to_flow(*sequence, kv_.length(sequence->id));
  auto n_places = limits_.max_running - static_cast<std::int32_t>(running_.size());
  const bool by_longest = limits_.policy == AdmissionPolicy::kGuaranteedNoEvict;
  const auto blocks = [&](std::uint32_t n_tokens) {
    return static_cast<std::int32_t>(n_tokens) / limits_.block_tokens + 1;
  };
  std::int32_t n_free = by_longest ? limits_.n_blocks : kv_.free_blocks();
  if (by_longest)
    for (const Sequence* sequence : running_) n_free -= blocks(n_longest(*sequence) - 1);
  const bool has_places = n_places > 0;
  for (Sequence* sequence : waiting_) {
    sequence->prefix.reset();
    sequence->waits_for_prefix = false;
    // What cannot be admitted brings no rows, and takes no share; nor does what is behind one that
    // does not fit.
    if (has_places && (n_free >= 0 || running_.empty())) look_up_prefix(*sequence);
    const bool has_place = n_places-- > 0;
    if (sequence->waits_for_prefix) {
      add_to_flow(*sequence, sequence->n_tokens());
      continue;
    }
    const PrefixHit prefix = sequence->prefix.value_or(PrefixHit{});
    n_free -= blocks(by_longest ? n_longest(*sequence) - 1 : sequence->n_tokens()) -
              prefix.n_held_blocks();
    const bool fits = has_place && (n_free >= 0 || running_.empty());
    add_to_flow(*sequence, fits ? prefix.n_tokens : sequence->n_tokens());
  }
  if (flows_.size() < 2) return proposal_limits_.clear();
  std::erase_if(proposal_limits_,
                [&](const auto& limit) { return !flow_index_.contains(limit.first); });
  divide_rows();
  set_token_values();
}

// Its rows beyond those cached are wanted in the coming pass, or one row and proposals if it
// decodes.
void TargetEngine::add_to_flow(Sequence& sequence, std::uint32_t n_cached) {
  const auto [at, is_new] =
      flow_index_.try_emplace(sequence.flow, static_cast<std::uint32_t>(flows_.size()));
  if (is_new) flows_.push_back({.id = sequence.flow});
  sequence.flow_index = at->second;
  FlowOfPass& flow = flows_[at->second];
  flow.weight = sequence.flow_weight;
  const auto n_path = static_cast<std::uint32_t>(sequence.path.size());
  if (!sequence.is_decoding) {
    flow.prompt_work += prefill_.rates().work(n_cached, sequence.n_tokens() - n_cached);
    return;
  }
  ++flow.n_decoding;
  if (sequence.length == LengthMode::kFixed)
    flow.n_fixed_rows += 1 + n_path;
  else
    flow.candidates.push_back(
        {.path = sequence.path, .cap = n_path, .odds = sequence.odds.factor()});
}

void TargetEngine::divide_rows() {
  std::vector<FlowDemand> demands;
  for (const FlowOfPass& flow : flows_) {
    const double prompt = std::min(flow.prompt_work, static_cast<double>(limits_.prefill_chunk));
    demands.push_back({.weight = flow.weight,
                       .rows = flow.n_fixed_rows + length_.rows_alone(flow.candidates) +
                               static_cast<std::uint32_t>(std::ceil(prompt))});
  }
  flow_rows_ = fair_rows(demands, pass_cost_);
  if (!flow_rows_.empty()) ++totals_.n_cut_steps;
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    FlowOfPass& flow = flows_[i];
    if (!flow_rows_.empty() && flow_rows_[i] < demands[i].rows && flow.n_decoding > 0) {
      const std::uint32_t spare = flow_rows_[i] - std::min(flow_rows_[i], flow.n_decoding);
      proposal_limits_[flow.id] = {spare / flow.n_decoding, totals_.n_steps + kLimitedPasses};
    }
    const auto limit = proposal_limits_.find(flow.id);
    if (limit != proposal_limits_.end() && limit->second.until > totals_.n_steps)
      flow.most_proposals = limit->second.most_proposals;
  }
}

// The tokens that a flow's sequences get in a pass are together worth its weight, and a token is
// worth 1 on average: what one flow's only sequence gains by proposals counts as much as what all
// sequences of another gain.
void TargetEngine::set_token_values() {
  double all_weights = 0, n_served = 0;
  const auto served = [&](std::size_t i) {
    const std::uint32_t n = flows_[i].n_decoding;
    return static_cast<double>(flow_rows_.empty() ? n : std::min(n, flow_rows_[i]));
  };
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    if (flows_[i].n_decoding == 0) continue;
    all_weights += flows_[i].weight;
    n_served += served(i);
  }
  for (std::size_t i = 0; i < flows_.size(); ++i)
    if (flows_[i].n_decoding > 0)
      flows_[i].token_value = flows_[i].weight / all_weights * n_served / served(i);
}

// Those of a sequence that opened since the last pass are not known yet, and have no bound.
std::uint32_t TargetEngine::most_proposals(const Sequence& sequence) const {
  const bool known = sequence.flow_index < flows_.size();
  return known ? flows_[sequence.flow_index].most_proposals : kMaxDraftTokens;
}

double TargetEngine::token_value(const Sequence& sequence) const {
  return sequence.flow_index < flows_.size() ? flows_[sequence.flow_index].token_value : 1;
}

}  // namespace foretoken
