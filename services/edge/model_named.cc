#include "services/edge/model_named.h"

#include <algorithm>

#include "common/base/model_name.h"

namespace foretoken::edge {

const wire::ModelStatus* model_named(const wire::StatusReply& status, const std::string& name) {
  const auto is_meant = [&](const wire::ModelStatus& model) {
    return model.n_targets > 0 &&
           (model.name == name || (model.is_default && name == "default") ||
            std::any_of(model.aliases.begin(), model.aliases.end(),
                        [&](const std::string& alias) { return stands_for(alias, name); }));
  };
  const auto& models = status.model_states;
  const auto found = std::find_if(models.begin(), models.end(), is_meant);
  return found == models.end() ? nullptr : &*found;
}

const wire::ModelStatus* model_named(const Result<wire::StatusReply>& status,
                                     const std::string& name) {
  return status.ok() ? model_named(*status, name) : nullptr;
}

std::string name_or_default(const std::string& model) { return model.empty() ? "default" : model; }

std::vector<std::string> listed_names(const wire::ModelStatus& model) {
  std::vector<std::string> names{model.name};
  for (const std::string& alias : model.aliases)
    if (!alias.ends_with('*')) names.push_back(alias);
  return names;
}

}  // namespace foretoken::edge
