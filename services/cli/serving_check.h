// Whether a system that `up` has just started serves: every service is listed by the router, every
// configured model has answered one token, and the edge reports that it can serve. One thread. Must
// not start or end a service (supervisor.h).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/client/client.h"
#include "common/config/load.h"
#include "services/edge/warm_models.h"

namespace foretoken::cli {

class ServingCheck {
 public:
  // folder: the supervisor's, which has the state of its services. `loaded` outlives this.
  ServingCheck(const LoadedConfig& loaded, std::filesystem::path folder);

  // One more look, of some milliseconds; of two seconds while no router answers. True: the system
  // serves, or problem() states why it does not. A model has 30 s to be ready and then as long for
  // its token as any request (limits.request_timeout_s); the edge has 30 s after the last token.
  bool look();

  // Why the system does not serve; nothing if it does.
  const std::optional<Error>& problem() const { return problem_; }
  // Services that run and that the router did not list within 30 s: the others serve without them.
  const std::vector<std::string>& not_listed() const { return not_listed_; }

 private:
  bool end(const std::string& why);
  bool all_answer(const wire::StatusReply& status);
  void take_answers();
  bool edge_serves();

  const LoadedConfig& loaded_;
  const std::filesystem::path folder_;
  // For the state of the system, and for its first tokens: a question for the state takes no answer
  // but its own.
  Client state_, tokens_;
  const TimePoint deadline_;
  std::optional<TimePoint> edge_deadline_;
  edge::WarmModels models_;
  std::map<std::string, std::string> asked_;  // by id of the request: the model
  std::vector<std::string> not_listed_;
  std::optional<Error> problem_;
};

}  // namespace foretoken::cli
