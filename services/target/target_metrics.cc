#include "services/target/target_metrics.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "common/base/proposer_set.h"

namespace foretoken {

void TargetMetrics::list(const wire::Hello& hello, Metrics& metrics) {
  const TargetSnapshot now = engine_.snapshot();
  metrics.gauge("num_requests_running", now.n_running);
  metrics.gauge("num_requests_waiting", now.n_waiting);
  metrics.gauge("kv_cache_usage_perc", now.kv.usage());
  metrics.gauge("kv_cache_blocks", now.kv.n_free, {{"state", "free"}});
  metrics.gauge("kv_cache_blocks", now.kv.n_used, {{"state", "used"}});
  metrics.gauge("kv_cache_blocks", now.kv.n_cached, {{"state", "cached"}});
  metrics.gauge("drafts_assigned", n_drafts());
  list_links(metrics);
  metrics.counter("generation_tokens_total", now.n_tokens);
  metrics.counter("prompt_tokens_total", now.n_prompt_rows);
  metrics.gauge("cache_config_info", 1,
                {{"block_size", std::to_string(hello.block_tokens)},
                 {"num_gpu_blocks", std::to_string(hello.kv_blocks_total)}});
  metrics.histogram("request_prefill_time_seconds", tally.prefill);
  metrics.histogram("request_decode_time_seconds", tally.decode);
  metrics.histogram("request_time_per_output_token_seconds", tally.per_token);
  metrics.histogram("spec_decode_round_seconds", transport(), {{"phase", "transport"}});
  metrics.histogram("spec_decode_round_seconds", tally.wait, {{"phase", "wait"}});
  metrics.histogram("spec_decode_round_seconds", tally.verify, {{"phase", "verify"}});
  metrics.histogram("spec_decode_round_seconds", tally.commit, {{"phase", "commit"}});
  metrics.counter("num_preemptions_total", now.n_preemptions);
  metrics.counter("prefix_cache_queries_total", now.n_looked_up_tokens);
  metrics.counter("prefix_cache_hits_total", now.n_found_tokens);
  metrics.counter("spec_decode_num_drafts_total", now.spec.n_rounds);
  metrics.counter("spec_decode_num_draft_tokens_total", now.spec.n_drafted);
  metrics.counter("spec_decode_num_accepted_tokens_total", now.spec.n_accepted);
  metrics.counter("spec_decode_silent_passes_total", now.n_silent_steps);
  for (std::size_t i = 0; i < kProposerKinds; ++i) {
    const auto& [n_right, n_wrong] = now.proposals[i];
    if (n_right + n_wrong == 0) continue;
    const std::string source(kProposerNames[i]);
    metrics.counter("proposals_total", n_right, {{"source", source}, {"outcome", "right"}});
    metrics.counter("proposals_total", n_wrong, {{"source", source}, {"outcome", "wrong"}});
  }
  metrics.counter("proposals_agreed_total", now.n_agreed);
  metrics.gauge("spec_decode_asking_gain", engine_.drafting_gate().gain());
  for (std::size_t i = 0; i < now.spec.by_depth.size() && now.spec.by_depth[i].n_drafted > 0; ++i)
    metrics.counter("spec_decode_num_accepted_tokens_per_pos_total",
                    now.spec.by_depth[i].n_accepted, {{"position", std::to_string(i)}});
  for (std::size_t i = 0; i < kFallbackReasons; ++i)
    metrics.counter("spec_decode_fallback_total", now.spec.fallbacks[i],
                    {{"reason", std::string(kFallbackNames[i])}});
}

std::size_t TargetMetrics::n_drafts() const {
  std::size_t n = 0;
  pools_.for_each([&](const DraftProposer& pool) { n += pool.n_drafts(); });
  return n;
}

std::vector<std::pair<std::string, std::string_view>> TargetMetrics::links() const {
  std::vector<std::pair<std::string, std::string_view>> all;
  pools_.for_each(
      [&](const DraftProposer& pool) { std::ranges::move(pool.links(), std::back_inserter(all)); });
  return all;
}

std::vector<wire::DraftSetAside> TargetMetrics::set_aside() const {
  std::vector<wire::DraftSetAside> all;
  pools_.for_each([&](const DraftProposer& pool) {
    std::ranges::move(pool.set_aside(), std::back_inserter(all));
  });
  return all;
}

std::uint64_t TargetMetrics::total(std::uint64_t DraftCounters::*counter) const {
  std::uint64_t n = 0;
  pools_.for_each([&](const DraftProposer& pool) { n += pool.counters().*counter; });
  return n;
}

Histogram TargetMetrics::transport() const {
  Histogram all(round_bounds());
  pools_.for_each([&](const DraftProposer& pool) { all.add(pool.transport()); });
  return all;
}

void TargetMetrics::list_links(Metrics& metrics) {
  // A draft that is gone, or has another tier, is at zero.
  const auto here = links();
  const std::set<std::pair<std::string, std::string>> now(here.begin(), here.end());
  links_seen_.insert(now.begin(), now.end());
  for (const auto& link : links_seen_)
    metrics.gauge("draft_link", now.contains(link) ? 1 : 0,
                  {{"draft", link.first}, {"tier", link.second}});
  metrics.counter("draft_link_fallbacks_total", total(&DraftCounters::fallbacks));
  metrics.counter("drafts_set_aside_total", total(&DraftCounters::set_aside));
  metrics.gauge("drafts_aside", set_aside().size());
}

}  // namespace foretoken
