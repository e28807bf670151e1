// Which drafts each target is to use, and which not, as messages to the targets. A function of the
// pool, but for the reasons of refused pairs, of which each is logged once. Must not know
// connections or requests. Work thread only.
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
  // its vocabulary. `needed`: the drafts of the pool that are used still. Repeat at any time; a
  // lost message is replaced by the next call.
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
