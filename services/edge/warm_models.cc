#include "services/edge/warm_models.h"

#include <algorithm>

namespace foretoken::edge {

std::vector<std::string> WarmModels::to_ask(const wire::StatusReply& status) {
  std::vector<std::string> names;
  for (const auto& model : status.model_states)
    if (model.ready && !warm_.contains(model.name) && asked_.insert(model.name).second)
      names.push_back(model.name);
  return names;
}

void WarmModels::note(const std::string& model, bool has_answered) {
  asked_.erase(model);
  if (has_answered) warm_.insert(model);
}

bool WarmModels::is_warm(const wire::ModelStatus& model) const {
  return model.ready && warm_.contains(model.name);
}

bool WarmModels::is_ready(const wire::StatusReply& status) const {
  return status.ready && std::any_of(status.model_states.begin(), status.model_states.end(),
                                     [this](const auto& model) { return is_warm(model); });
}

std::vector<std::string> WarmModels::not_ready(const wire::StatusReply& status) const {
  std::vector<std::string> names;
  for (const auto& model : status.model_states)
    if (!is_warm(model)) names.push_back(model.name);
  return names;
}

}  // namespace foretoken::edge
