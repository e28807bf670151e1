// The draft model as a Guesser. The engine is borrowed.
#pragma once

#include <utility>

#include "common/engine/draft_engine.h"
#include "services/draft/guesser.h"

namespace foretoken {

class ModelGuesser final : public Guesser {
 public:
  explicit ModelGuesser(DraftEngine& engine) : engine_(engine) {}

  DraftOutcome attach(const TargetKey& from, wire::Attach attach, TimePoint now) override {
    return engine_.attach(from, std::move(attach), now);
  }
  DraftOutcome follow(const TargetKey& from,
                      const wire::ProposeRecord& record,
                      TimePoint now) override {
    return engine_.follow(from, record, now);
  }
  void detach(const TargetKey& from, const wire::CloseSequence& close) override {
    engine_.detach(from, close);
  }
  void detach_all(WorkerId target, Incarnation except) override {
    engine_.detach_all(target, except);
  }
  void set_run_ahead(const TargetKey& target, std::optional<std::uint32_t> n_tokens) override {
    engine_.set_run_ahead(target, n_tokens);
  }
  void renew(const TargetKey& target, TimePoint now) override { engine_.renew(target, now); }
  bool has_work() const override { return engine_.has_work(); }
  const DraftOutput& step(TimePoint now) override { return engine_.step(now); }
  void record_step_time(Duration took) override { engine_.record_step_time(took); }
  DraftSnapshot snapshot() const override { return engine_.snapshot(); }
  void check(TimePoint now) override { engine_.check_ranks(now); }
  void list_metrics(Metrics& metrics) const override {
    const DraftSnapshot now = engine_.snapshot();
    metrics.gauge("draft_kv_cache_usage_perc", now.kv.usage());
    metrics.gauge("draft_kv_cache_blocks", now.kv.n_free, {{"state", "free"}});
    metrics.gauge("draft_kv_cache_blocks", now.kv.n_used, {{"state", "used"}});
    metrics.gauge("draft_kv_cache_blocks", now.kv.n_cached, {{"state", "cached"}});
    metrics.counter("draft_steps_total", now.n_steps);
    metrics.counter("draft_tokens_kept_total", now.n_kept);
    metrics.counter("draft_tokens_cut_total", now.n_cut);
    metrics.counter("draft_branches_total", now.n_branches);
    metrics.counter("draft_branches_taken_total", now.n_branches_taken);
    metrics.counter("draft_branch_tokens_total", now.n_branch_tokens);
  }

 private:
  DraftEngine& engine_;
};

}  // namespace foretoken
