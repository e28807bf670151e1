// Clients' questions for the metrics of all services, or for their last passes (op metrics,
// passes): each goes to all services that have some, and what they say within half a second is the
// answer. A service whose pass takes longer is in the metrics with what it said last, so that its
// series have no gaps. Pure, as the request table is: events come in with the time, actions go out.
// One thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/messages/client.h"
#include "common/messages/messages.h"
#include "services/router/pool.h"
#include "services/router/request.h"

namespace foretoken {

enum class MetricsAsked : std::uint8_t { kMetrics, kPasses };

struct MetricsQuestion {
  Peer peer;
  RequestId id;  // the client's; two clients may have chosen the same
  MetricsAsked what = MetricsAsked::kMetrics;
};

class MetricsQuestions {
 public:
  explicit MetricsQuestions(const Pool& pool) : pool_(pool) {}

  // Whether one more is taken, or refused.
  bool has_room() const;
  // `own` is the id under which services are asked. own_text: the router's metrics; of no use for
  // passes.
  void submit(const MetricsQuestion& question,
              RequestId own,
              std::string own_text,
              TimePoint now,
              Actions& out);
  void on_reply(const Worker& from, RequestId own, wire::MetricsReply reply, Actions& out);
  void worker_lost(WorkerId worker, Actions& out);
  // Answers those whose time is over, with what there is. Returns when to call again.
  TimePoint tick(TimePoint now, Actions& out);

 private:
  struct Open {
    MetricsQuestion by;
    TimePoint until{};
    std::set<WorkerId> awaited = {};
    std::vector<std::string> texts = {};
    std::vector<wire::ServicePasses> passes = {};
  };
  struct LastText {
    Incarnation incarnation;
    std::string text;
  };
  void add_last_texts(Open& question) const;
  void finish(RequestId own, Actions& out);

  const Pool& pool_;
  std::map<RequestId, Open> open_;
  std::map<WorkerId, LastText> last_;  // of workers that are not lost
};

}  // namespace foretoken
