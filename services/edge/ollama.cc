#include "services/edge/ollama.h"

#include <algorithm>
#include <utility>

#include "common/base/tool_formats.h"
#include "services/edge/listed_model.h"
#include "services/edge/model_named.h"
#include "services/edge/router_request.h"

namespace foretoken::edge {
namespace {

using enum FieldUse;

constexpr BodyField kShowFields[] = {
    {"model", kHonoured, "", "a served name; another is 404"},
    {"name", kHonoured, "", "the same, older"},
    {"verbose", kIgnored},
};

// A ready service of the model of a name or an alias.
const wire::ServiceStatus* service_of(const wire::StatusReply& status,
                                      const std::string& name,
                                      wire::Role role) {
  const wire::ModelStatus* meant = model_named(status, name);
  const std::string& model = meant == nullptr ? name : meant->name;
  const auto& services = status.services;
  const auto found = std::find_if(services.begin(), services.end(), [&](const auto& service) {
    return service.role == name_of(role) && service.state == name_of(wire::WorkerState::kReady) &&
           service.model == model;
  });
  return found == services.end() ? nullptr : &*found;
}

const wire::ServiceStatus* target_of(const wire::StatusReply& status, const std::string& name) {
  return service_of(status, name, wire::Role::kTarget);
}

// Calls of tools are read in the format that the tokenizer found.
Json capabilities(const wire::StatusReply& status, const std::string& name) {
  Json all = Json::array({"completion"});
  const wire::ServiceStatus* tokenizer = service_of(status, name, wire::Role::kTokenizer);
  const std::string format = tokenizer == nullptr ? std::string() : tokenizer->tool_format;
  if (!format.empty() && format != name_of(ToolFormat::kNone)) all.push_back("tools");
  return all;
}

// How many parameters it has is not known here.
Json details(const wire::ServiceStatus* target) {
  return {{"parent_model", ""},    {"format", "safetensors"},
          {"family", "foretoken"}, {"families", {"foretoken"}},
          {"parameter_size", ""},  {"quantization_level", target == nullptr ? "" : target->dtype}};
}

Json model_json(const wire::StatusReply& status, const std::string& name, std::int64_t since) {
  const wire::ServiceStatus* target = target_of(status, name);
  return {{"name", name},
          {"model", name},
          {"modified_at", rfc3339(since)},
          {"size", target == nullptr ? 0 : target->rss_bytes},
          {"digest", target == nullptr ? "" : target->fingerprint},
          {"details", details(target)}};
}

}  // namespace

std::span<const BodyField> show_fields() { return kShowFields; }

Result<ShowAsk> read_show(const Json& body, bool strict) {
  auto sorted = sort_fields(body, kShowFields, strict);
  if (!sorted.ok()) return sorted.error();
  const Json* model = given(body, "model");
  if (model == nullptr) model = given(body, "name");
  if (model == nullptr) return Error{ErrorCode::kInvalidRequest, "model is required", "model"};
  if (!model->is_string()) return invalid_value("model must be a name", "model");
  return ShowAsk{model->get<std::string>(), std::move(sorted->ignored)};
}

Json ollama_tags(const wire::StatusReply& status, std::int64_t since) {
  Json models = Json::array();
  for (const auto& name : status.models) models.push_back(model_json(status, name, since));
  return {{"models", std::move(models)}};
}

Json ollama_ps(const wire::StatusReply& status, std::int64_t since) {
  Json models = Json::array();
  for (const auto& name : status.models) {
    Json model = model_json(status, name, since);
    const wire::ServiceStatus* target = target_of(status, name);
    model["size_vram"] = 0;
    model["expires_at"] = "9999-12-31T23:59:59Z";  // a model stays while its target runs
    model["context_length"] = target == nullptr ? 0 : target->max_model_len;
    models.push_back(std::move(model));
  }
  return {{"models", std::move(models)}};
}

Result<Json> ollama_show(const wire::StatusReply& status,
                         const std::string& model,
                         std::int64_t since) {
  if (model_named(status, model) == nullptr)
    return Error{ErrorCode::kModelNotFound, "model \"" + model + "\" not found", "model"};
  const wire::ServiceStatus* target = target_of(status, model);
  return Json{{"modelfile", ""},
              {"parameters", ""},
              {"template", ""},
              {"details", details(target)},
              {"model_info",
               {{"general.architecture", "foretoken"},
                {"foretoken.context_length", target == nullptr ? 0 : target->max_model_len}}},
              {"capabilities", capabilities(status, model)},
              {"modified_at", rfc3339(since)}};
}

}  // namespace foretoken::edge
