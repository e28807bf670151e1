// Which models have answered one token through all services: what /health says. A model that cannot
// answer is named and keeps no other one back. Knows neither the router nor a clock.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/base/vocabulary.h"
#include "common/messages/client.h"

namespace foretoken::edge {

// Why the edge serves no request: `status` of /health.
enum class UnreadyState : std::uint8_t { kLoading, kFailing, kDraining };
inline constexpr std::array<std::string_view, 3> kUnreadyStateNames{"loading", "failing",
                                                                    "draining"};
constexpr const auto& names_of(UnreadyState) { return kUnreadyStateNames; }

// What a model is asked for: the shortest answer that goes through all services.
wire::ClientRequest one_token_of(const std::string& model);

class WarmModels {
 public:
  // Models to be asked for a token now: those that could answer, have not, and are not being asked.
  std::vector<std::string> to_ask(const wire::StatusReply& status);
  // The answer of a model that was asked; null: none came. True: it has given its token.
  bool note(const std::string& model, const wire::ClientAnswer* answer);

  // Requests can be served: a model that could answer has answered.
  bool is_ready(const wire::StatusReply& status) const;
  // Why no request can be served, where !is_ready(): a model that fails, by name and error, before
  // those that load or whose first token is awaited. One that was refused for want of a place or a
  // service (queue_full, draining, unavailable) does not fail: it is asked again.
  struct Reason {
    UnreadyState state = UnreadyState::kLoading;  // kDraining: of the edge itself
    std::string sentence;
  };
  Reason why_not_ready(const wire::StatusReply& status) const;
  // Models with a target that cannot answer, or have not yet.
  std::vector<std::string> not_ready(const wire::StatusReply& status) const;

 private:
  bool is_warm(const wire::ModelStatus& model) const;

  std::set<std::string> asked_, warm_;
  std::map<std::string, Error> problems_;  // by model: of the last time it was asked
};

}  // namespace foretoken::edge
