// How the flows of a target's sequences share its passes.
#include <algorithm>
#include <cmath>

#include "common/engine/target_engine.h"

namespace foretoken {

// Passes that a flow whose rows were cut goes without proposals, while there are others: its plain
// rows, of many sequences, are worth more, and proposals that are not verified take the time of a
// draft that the others wait for. Without proposals it may seem small enough, so one pass does not
// decide.
constexpr std::uint64_t kPlainPasses = 16;

// Numbers the flows; where there are several, says what each may have of the coming pass.
void TargetEngine::share_flows() {
  flows_.clear();
  flow_rows_.clear();
  for (const auto* list : {&running_, &waiting_})
    for (const Sequence* sequence : *list)
      flows_.try_emplace(sequence->flow, static_cast<std::uint32_t>(flows_.size()));
  if (flows_.size() < 2) return plain_until_.clear();
  std::erase_if(plain_until_, [&](const auto& flow) { return !flows_.contains(flow.first); });
  std::vector<Candidate> candidates;
  std::vector<FlowDemand> demands(flows_.size());
  for (const auto& [id, flow] : flows_) demands[flow] = demand_of(id, candidates);
  flow_rows_ = fair_rows(demands, length_.step_cost());
  if (flow_rows_.empty()) return;
  for (const auto& [id, flow] : flows_)
    if (flow_rows_[flow] < demands[flow].rows) plain_until_[id] = totals_.n_steps + kPlainPasses;
}

bool TargetEngine::may_propose(const Sequence& sequence) const {
  const auto plain = plain_until_.find(sequence.flow);
  return plain == plain_until_.end() || plain->second <= totals_.n_steps;
}

// What a flow would bring to a pass that it had for itself.
FlowDemand TargetEngine::demand_of(std::uint64_t flow, std::vector<Candidate>& candidates) const {
  FlowDemand demand;
  double prompt_work = 0;
  candidates.clear();
  const auto add_prompt = [&](const Sequence& sequence, std::uint32_t n_cached) {
    prompt_work += prefill_.rates().work(n_cached, sequence.n_tokens() - n_cached);
    demand.weight = sequence.flow_weight;
  };
  for (const Sequence* sequence : running_) {
    if (sequence->flow != flow) continue;
    demand.weight = sequence->flow_weight;
    const auto n_path = static_cast<std::uint32_t>(sequence->path.size());
    if (!sequence->is_decoding)
      add_prompt(*sequence, kv_.length(sequence->id));
    else if (sequence->length == LengthMode::kFixed)
      demand.rows += 1 + n_path;
    else
      candidates.push_back({.path = sequence->path, .cap = n_path});
  }
  for (const Sequence* sequence : waiting_)
    if (sequence->flow == flow) add_prompt(*sequence, 0);
  demand.rows += length_.rows_alone(candidates);
  demand.rows += static_cast<std::uint32_t>(
      std::ceil(std::min(prompt_work, static_cast<double>(limits_.prefill_chunk))));
  return demand;
}

// Of a token of a sequence, 1 on average. Where flows meet, the tokens that a flow's sequences get
// in a pass are together worth its weight: proposals of a lone sequence, and waiting for them, are
// not outvoted by many sequences of another flow.
double TargetEngine::token_value(const Sequence& sequence) const {
  if (flows_.size() < 2) return 1;
  double n_all = 0, n_own = 0;
  std::unordered_map<std::uint64_t, double> weights;
  for (const Sequence* other : running_) {
    if (!other->is_decoding) continue;
    ++n_all;
    n_own += other->flow == sequence.flow ? 1 : 0;
    weights[other->flow] = other->flow_weight;
  }
  double all_weights = 0;
  for (const auto& [flow, weight] : weights) all_weights += weight;
  return n_own == 0 ? 1 : sequence.flow_weight / all_weights * n_all / n_own;
}

}  // namespace foretoken
