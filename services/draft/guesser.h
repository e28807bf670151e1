// The interface of DraftService to what makes guesses, a model or a memory of texts: messages of
// targets attach, extend and detach sequences, and a step makes the answers that are due. Called by
// the work thread.
#pragma once

#include <optional>

#include "common/engine/draft_events.h"
#include "common/runtime/metrics.h"

namespace foretoken {

class Guesser {
 public:
  virtual ~Guesser() = default;

  // As of DraftEngine.
  virtual DraftOutcome attach(const TargetKey& from, wire::Attach attach, TimePoint now) = 0;
  virtual DraftOutcome follow(const TargetKey& from,
                              const wire::ProposeRecord& record,
                              TimePoint now) = 0;
  virtual void detach(const TargetKey& from, const wire::CloseSequence& close) = 0;
  virtual void detach_all(WorkerId target, Incarnation except) = 0;
  virtual void set_run_ahead(const TargetKey& target, std::optional<std::uint32_t> n_tokens) = 0;
  virtual void renew(const TargetKey& target, TimePoint now) = 0;
  virtual bool has_work() const = 0;
  virtual const DraftOutput& step(TimePoint now) = 0;
  virtual void record_step_time(Duration took) = 0;
  virtual DraftSnapshot snapshot() const = 0;

  // Between steps; FatalError where it cannot go on.
  virtual void check(TimePoint now) = 0;
  // Those of its own kind.
  virtual void list_metrics(Metrics& metrics) const = 0;
};

}  // namespace foretoken
