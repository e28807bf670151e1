#include "services/edge/warm_models.h"

#include <algorithm>
#include <utility>

namespace foretoken::edge {

std::vector<std::string> WarmModels::to_ask(const wire::StatusReply& status) {
  std::vector<std::string> names;
  for (const auto& model : status.model_states)
    if (model.ready && !warm_.contains(model.name) && asked_.insert(model.name).second)
      names.push_back(model.name);
  return names;
}

void WarmModels::note(const std::string& model, std::optional<std::string> problem) {
  asked_.erase(model);
  problems_.erase(model);
  if (problem)
    problems_.emplace(model, std::move(*problem));
  else
    warm_.insert(model);
}

bool WarmModels::is_warm(const wire::ModelStatus& model) const {
  return model.ready && warm_.contains(model.name);
}

bool WarmModels::is_ready(const wire::StatusReply& status) const {
  return status.ready && std::any_of(status.model_states.begin(), status.model_states.end(),
                                     [this](const auto& model) { return is_warm(model); });
}

WarmModels::Reason WarmModels::why_not_ready(const wire::StatusReply& status) const {
  Reason reason{.sentence = "the models are being loaded"};
  for (const auto& model : status.model_states) {
    if (!model.ready) continue;
    if (const auto found = problems_.find(model.name); found != problems_.end())
      return {"failing", "model " + model.name + " does not answer: " + found->second};
    reason.sentence = "the first token of model " + model.name + " is awaited";
  }
  return reason;
}

std::vector<std::string> WarmModels::not_ready(const wire::StatusReply& status) const {
  std::vector<std::string> names;
  for (const auto& model : status.model_states)
    if (!is_warm(model)) names.push_back(model.name);
  return names;
}

}  // namespace foretoken::edge
