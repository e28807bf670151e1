// Which drafts each target is told to use, and which not. Holds what the log has said of pairs;
// else a function of the pool. Must not know connections or requests. Work thread only.
#pragma once

#include <set>
#include <span>
#include <string>

#include "services/router/pool.h"
#include "services/router/request.h"

namespace foretoken {

class Pairing {
 public:
  // To each target of the pool: ASSIGN of the drafts that it is to use, UNASSIGN of the others of
  // its vocabulary. `needed`: the drafts of the pool that are used still. May be said again at any
  // time, so that a message that was lost is healed by the next round.
  void pair_all(const Pool& pool, std::span<const Worker* const> needed, Actions& actions);
  // To each target: UNASSIGN of a draft that is gone.
  static void unassign(const Pool& pool,
                       const Worker& draft,
                       const std::string& why,
                       Actions& actions);

 private:
  void log_refused(const wire::Hello& target, const wire::Hello& draft, const std::string& reason);

  std::set<std::string> refused_;  // reasons, each logged once
};

}  // namespace foretoken
