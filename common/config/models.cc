#include "common/config/models.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "common/base/model_name.h"
#include "common/base/nearest.h"
#include "common/config/resolve.h"

namespace foretoken {
namespace {

constexpr std::size_t kLongestName = 24;  // an id has 32 characters
constexpr std::string_view kMemorySuffix = "-memory";

constexpr std::array<std::string_view, 6> kSectionsOfModels = {"model",  "speculation", "kv_cache",
                                                               "target", "draft",       "memory"};
// Of the sections that the router or every service reads too.
constexpr std::array<std::string_view, 7> kKeysOfModels = {"limits.max_running",
                                                           "limits.max_waiting",
                                                           "limits.max_batch_rows",
                                                           "limits.prefill_chunk",
                                                           "limits.max_step_ms",
                                                           "limits.policy",
                                                           "bus.draft"};
constexpr std::array<std::string_view, 3> kOwnKeys = {"model.target", "model.name", "model.alias"};

bool is_among(std::span<const std::string_view> list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 4 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Of "chat-1": "chat" and 1; nothing if it ends otherwise.
std::optional<std::pair<std::string, std::size_t>> numbered(const std::string& id) {
  const auto dash = id.rfind('-');
  if (dash == std::string::npos || dash == 0 || !is_number(std::string_view(id).substr(dash + 1)))
    return std::nullopt;
  return std::pair(id.substr(0, dash), static_cast<std::size_t>(std::stoul(id.substr(dash + 1))));
}

bool is_a_key(const std::string& name) {
  bool found = false;
  Config example;
  Config::sections(example, [&](const char*, auto& s, const char*) {
    std::decay_t<decltype(s)>::fields(
        s, [&](const char* key, auto&, const KeyLimit&, const char*) { found |= name == key; });
  });
  return found;
}

std::string joined(const std::vector<std::string>& names) {
  std::string list;
  for (const auto& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

std::vector<std::string> names_clients_use(const Config& config) {
  std::vector<std::string> names = config.model.alias;
  names.insert(names.begin(), served_model_name(config.model));
  return names;
}

std::size_t most_of(const LimitsSection& limits) {
  return std::size_t{limits.max_running} + limits.max_waiting;
}

}  // namespace

bool may_differ_by_model(std::string_view section, std::string_view key) {
  return is_among(kSectionsOfModels, section) ||
         is_among(kKeysOfModels, std::string(section) + "." + std::string(key));
}

bool is_each_models_own(std::string_view section, std::string_view key) {
  return is_among(kOwnKeys, std::string(section) + "." + std::string(key));
}

std::string why_no_model_name(const std::string& name) {
  const bool is_word = !name.empty() && name.size() <= kLongestName && name.front() != '-' &&
                       std::all_of(name.begin(), name.end(), [](char c) {
                         return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                                (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
                       });
  if (!is_word)
    return "it must be 1 to " + std::to_string(kLongestName) +
           " letters, digits, - or _, and not begin with -; what clients call the model is its key "
           "name";
  if (is_number(name)) return "a number alone is the --id of a service without a model's name";
  if (is_a_key(name)) return "that is the name of a key";
  return {};
}

void check_names(const std::map<std::string, Config>& models,
                 const std::string& default_model,
                 std::vector<std::string>& errors) {
  std::map<std::string, std::string> owner;  // a name that clients use -> its model
  std::vector<std::string> known;
  for (const auto& [model, config] : models) {
    const auto clients_names = names_clients_use(config);
    for (const auto& name : std::set(clients_names.begin(), clients_names.end())) {
      const auto other =
          std::find_if(owner.begin(), owner.end(), [&, &model = model](const auto& one) {
            return one.second != model && overlap(one.first, name);
          });
      if (other != owner.end())
        errors.push_back("the name \"" + name + "\" means two models, [model." + other->second +
                         "] and [model." + model + "]: give one of them another name or alias");
      else if (owner.try_emplace(name, model).second)
        known.push_back(name);
    }
    if (const auto parts = numbered(model); parts && models.contains(parts->first))
      errors.push_back("[model." + model + "] has the name of service number " +
                       std::to_string(parts->second) + " of [model." + parts->first +
                       "]: give one of them another");
    if (config.memory.start && models.contains(model + std::string(kMemorySuffix)))
      errors.push_back("[model." + model + std::string(kMemorySuffix) +
                       "] has the name of the memory of [model." + model +
                       "] (memory.start): give one of them another");
  }
  if (models.empty() || default_model.empty()) return;
  const auto of_default = std::find_if(owner.begin(), owner.end(), [&](const auto& one) {
    return stands_for(one.first, default_model);
  });
  if (of_default == owner.end()) {
    const auto near = nearest(default_model, known);
    errors.push_back("router.default_model is \"" + default_model +
                     "\", which is no model's name or alias; there is " + joined(known) +
                     (near ? " (did you mean \"" + *near + "\"?)" : ""));
  } else if (const auto said =
                 std::find_if(owner.begin(), owner.end(),
                              [](const auto& one) { return stands_for(one.first, "default"); });
             said != owner.end() && said->second != of_default->second) {
    errors.push_back("router.default_model is \"" + default_model + "\", and [model." +
                     said->second +
                     "] is called \"default\": a request for \"default\" would mean " +
                     "another model than one that names none");
  }
}

Result<LoadedConfig> config_of_instance(const LoadedConfig& loaded,
                                        const std::string& id,
                                        std::string_view role) {
  if (loaded.models.empty()) return loaded;
  std::string model = id;
  std::size_t number = 0;
  if (!loaded.models.contains(id)) {
    if (const auto parts = numbered(id))
      std::tie(model, number) = *parts;
    else if (role == "draft" && id.ends_with(kMemorySuffix)) {
      model.resize(id.size() - kMemorySuffix.size());
      number = std::numeric_limits<std::size_t>::max();  // no entry of bus.draft is its own
    }
  }
  const auto found = loaded.models.find(model);
  if (found == loaded.models.end()) {
    std::vector<std::string> names;
    for (const auto& [name, config] : loaded.models) names.push_back(name);
    return Error{ErrorCode::kConfig,
                 "--id is \"" + id + "\", and " +
                     (loaded.file.empty() ? "the configuration" : loaded.file) +
                     " has several models: it must be the name of one of them, alone or followed "
                     "by - and a number; there is " +
                     joined(names)};
  }
  LoadedConfig one{.config = found->second, .file = loaded.file};
  for (const auto& [key, origin] : loaded.origin) {
    const auto first = key.find('.'), last = key.rfind('.');
    if (first == last)
      one.origin.try_emplace(key, origin);
    else if (key.substr(first + 1, last - first - 1) == model)
      one.origin[key.substr(0, first) + key.substr(last)] = origin;
  }
  const std::string own_list = "bus." + model + ".draft";
  if (role != "draft" || !loaded.origin.contains(own_list)) return one;
  // It has an entry for each draft of the model, or ends in one for all others.
  std::vector<std::string>& drafts = one.config.bus.draft;
  const bool ends_in_one_for_all =
      !drafts.empty() && drafts.back().find("{id}") != std::string::npos;
  if (number >= drafts.size() && !ends_in_one_for_all)
    return Error{
        ErrorCode::kConfig,
        "--id is \"" + id + "\", " +
            (id.ends_with(kMemorySuffix) ? std::string("a memory")
                                         : "number " + std::to_string(number) + " from 0") +
            ", and " + own_list + " has " + std::to_string(drafts.size()) +
            " entries and none with {id}: there is no endpoint for it"};
  drafts = {drafts[std::min(number, drafts.size() - 1)]};
  return one;
}

std::vector<ModelInstances> models_of(const LoadedConfig& loaded) {
  std::vector<ModelInstances> models;
  for (const auto& [name, config] : loaded.models) models.push_back({name, config});
  if (models.empty()) models.push_back({"", loaded.config});
  return models;
}

std::vector<RequestLimit> request_limits(const LoadedConfig& loaded) {
  std::vector<RequestLimit> limits;
  for (const auto& [model, config] : loaded.models)
    limits.push_back({model, names_clients_use(config), most_of(config.limits)});
  return limits;
}

const RequestLimit* request_limit_of(std::span<const RequestLimit> limits, std::string_view name) {
  if (name.empty()) return nullptr;  // an alias "*" would stand for it
  const auto found = std::find_if(limits.begin(), limits.end(), [&](const RequestLimit& limit) {
    return std::any_of(limit.names.begin(), limit.names.end(),
                       [&](const std::string& known) { return stands_for(known, name); });
  });
  return found == limits.end() ? nullptr : &*found;
}

std::size_t most_requests(const LoadedConfig& loaded) {
  std::size_t n = 0;
  for (const ModelInstances& model : models_of(loaded)) n += most_of(model.config.limits);
  return n;
}

}  // namespace foretoken
