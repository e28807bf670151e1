// Several models in one configuration: [model.NAME] declares one, and [SECTION.NAME] holds for its
// services alone. Each service runs one model; the one it runs follows from its --id, and it reads
// its configuration as if that were the only model. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/config/load.h"

namespace foretoken {

// Whether [section.NAME] may hold this key: what a tokenizer, draft or target reads. Of these the
// router and the edge read the limits of requests alone, by model (request_limits()).
bool may_differ_by_model(std::string_view section, std::string_view key);
// Whether [section] may not hold it where models are declared: what each has for itself.
bool is_each_models_own(std::string_view section, std::string_view key);

// What is wrong with the names of declared models, alone and together: empty if nothing is.
std::string why_no_model_name(const std::string& name);
void check_names(const std::map<std::string, Config>& models,
                 const std::string& default_model,
                 std::vector<std::string>& errors);

// The configuration of a tokenizer, draft or target (`role`), as if its model were the only one.
// Without declared models that is all of it, whatever the id; with them the id is NAME or
// NAME-NUMBER, and of a draft one that bus.NAME.draft has an entry for, or NAME-memory.
Result<LoadedConfig> config_of_instance(const LoadedConfig& loaded,
                                        const std::string& id,
                                        std::string_view role);

// A model and the ids of its services: "chat-0" and so on, or "0" where no models are declared; of
// its memory "chat-memory" or "memory".
struct ModelInstances {
  std::string name;  // of [model.NAME]; "" = of [model]
  const Config& config;
  std::string id(std::uint32_t number) const { return id_of(std::to_string(number)); }
  std::string memory_id() const { return id_of("memory"); }

 private:
  std::string id_of(const std::string& which) const {
    return (name.empty() ? "" : name + "-") + which;
  }
};
std::vector<ModelInstances> models_of(const LoadedConfig& loaded);

// How many requests of one declared model the router holds at a time.
struct RequestLimit {
  std::string model;               // NAME of [model.NAME]
  std::vector<std::string> names;  // by which requests mean it
  std::size_t most = 0;            // limits.NAME.max_running + limits.NAME.max_waiting
};
// Of each declared model; empty where none is declared.
std::vector<RequestLimit> request_limits(const LoadedConfig& loaded);
// The one of the model that a request calls so; null: that is none of the declared ones, or empty.
const RequestLimit* request_limit_of(std::span<const RequestLimit> limits, std::string_view name);
// How many requests of all models the router holds at a time: the sum of their limits.
std::size_t most_requests(const LoadedConfig& loaded);

}  // namespace foretoken
