// What the router says of itself, of every service and of every model (op status), for people and
// for what balances load. Remembers the services that were refused lately, as they are in no pool.
// One thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/messages/client.h"
#include "common/messages/messages.h"
#include "services/router/pool.h"
#include "services/router/request_table.h"
#include "services/router/router_options.h"

namespace foretoken {

// The router's own part.
struct RouterState {
  std::string client_endpoint;
  TimePoint started{};
  bool draining = false;
};

class StatusReplies {
 public:
  // Borrows all three.
  StatusReplies(const RouterServiceOptions& options, const Pool& pool, const RequestTable& table)
      : options_(options), pool_(pool), table_(table) {}

  // A flood of questions may not take the time that requests need: beyond a few of them within a
  // moment the answer is that of a moment ago. Valid until the next call.
  const wire::StatusReply& recent(RequestId id, const RouterState& self, TimePoint now);
  void remember_refused(WorkerId id,
                        const wire::Hello& hello,
                        const std::string& reason,
                        TimePoint now);

 private:
  struct Refused {
    wire::Hello hello;
    std::string reason;
    TimePoint at{};
  };
  wire::StatusReply make(RequestId id, const RouterState& self, TimePoint now) const;
  wire::ServiceStatus of_router(const RouterState& self, TimePoint now) const;
  void add_refused(std::vector<wire::ServiceStatus>& services, TimePoint now) const;

  const RouterServiceOptions& options_;
  const Pool& pool_;
  const RequestTable& table_;
  wire::StatusReply last_;
  TimePoint moment_{};
  int n_made_ = 0;  // within that moment
  std::map<WorkerId, Refused> refused_;
};

}  // namespace foretoken
