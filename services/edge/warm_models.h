// Which models have answered one token through all services: what /health says. A model that cannot
// answer is named and keeps no other one back. Knows neither the router nor a clock.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/messages/client.h"

namespace foretoken::edge {

class WarmModels {
 public:
  // Models to be asked for a token now: those that could answer, have not, and are not being asked.
  std::vector<std::string> to_ask(const wire::StatusReply& status);
  // The result of asking it: what kept it from answering, nothing if it has answered.
  void note(const std::string& model, std::optional<std::string> problem);

  // Requests can be served: a model that could answer has answered.
  bool is_ready(const wire::StatusReply& status) const;
  // Why no request can be served, where !is_ready(): a model that fails, by name and error, before
  // those that load or whose first token is awaited.
  struct Reason {
    const char* state = "loading";  // or "failing"
    std::string sentence;
  };
  Reason why_not_ready(const wire::StatusReply& status) const;
  // Models with a target that cannot answer, or have not yet.
  std::vector<std::string> not_ready(const wire::StatusReply& status) const;

 private:
  bool is_warm(const wire::ModelStatus& model) const;

  std::set<std::string> asked_, warm_;
  std::map<std::string, std::string> problems_;  // by model: of the last time it was asked
};

}  // namespace foretoken::edge
