#include "services/router/model_states.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/model_name.h"
#include "services/router/placement.h"

namespace foretoken {

// Targets of one model may have different aliases: they answer to all of them.
std::vector<wire::ModelStatus> model_states(const Pool& pool,
                                            const std::string& default_model,
                                            TimePoint now) {
  const auto tokenizers = pool.ready(wire::Role::kTokenizer);
  std::map<std::string, wire::ModelStatus> models;
  for (const Worker* target : pool.alive(wire::Role::kTarget)) {
    wire::ModelStatus& model = models[target->hello.model_name];
    model.name = target->hello.model_name;
    model.max_model_len = target->hello.max_model_len;
    model.sampling = target->hello.sampling;
    for (const std::string& alias : target->hello.aliases)
      if (std::find(model.aliases.begin(), model.aliases.end(), alias) == model.aliases.end())
        model.aliases.push_back(alias);
    if (target->state != wire::WorkerState::kReady) continue;
    ++model.n_targets;
    model.ready = model.ready ||
                  std::any_of(tokenizers.begin(), tokenizers.end(), [&](const Worker* tokenizer) {
                    return why_not_served(tokenizer->hello, target->hello).empty();
                  });
  }
  const auto known = pool.models(now);
  const auto meant = model_of_request_without(known, default_model);
  std::vector<wire::ModelStatus> list;
  for (auto& [name, model] : models) {
    model.is_default = meant.ok() && *meant &&
                       (name == **meant ||
                        std::any_of(model.aliases.begin(), model.aliases.end(),
                                    [&](const auto& alias) { return stands_for(alias, **meant); }));
    list.push_back(std::move(model));
  }
  return list;
}

}  // namespace foretoken
