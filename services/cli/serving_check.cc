#include "services/cli/serving_check.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "common/config/models.h"
#include "common/config/resolve.h"
#include "common/wire/client_codec.h"
#include "services/cli/bench_door.h"
#include "services/cli/supervisor.h"
#include "services/cli/supervisor_folder.h"

namespace foretoken::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kStartPatience = 30s;

// Services that run and that the router does not list yet: one says that it is ready when it can
// serve, a moment before the router has heard of it.
std::vector<std::string> unlisted_services(const std::filesystem::path& folder,
                                           const wire::StatusReply& status) {
  std::vector<std::string> missing;
  for (const ServiceState& service : supervisor_state(folder))
    if (service.state == name_of(ProcessState::kReady) &&
        std::none_of(status.services.begin(), status.services.end(),
                     [&](const wire::ServiceStatus& listed) {
                       return listed.name == service.name &&
                              listed.state != name_of(wire::WorkerState::kGone);
                     }))
      missing.push_back(service.name);
  return missing;
}

// The state of the models that are configured here: services of other hosts may serve others.
wire::StatusReply of_configured(wire::StatusReply status, const LoadedConfig& loaded) {
  std::erase_if(status.model_states, [&](const wire::ModelStatus& model) {
    return std::ranges::none_of(models_of(loaded), [&](const ModelInstances& configured) {
      return served_model_name(configured.config.model) == model.name;
    });
  });
  return status;
}

// Configured models that could not be asked now.
std::string not_ready(const LoadedConfig& loaded, const wire::StatusReply& status) {
  std::string names;
  for (const ModelInstances& model : models_of(loaded)) {
    const std::string name = served_model_name(model.config.model);
    const bool is_ready = std::ranges::any_of(
        status.model_states,
        [&](const wire::ModelStatus& known) { return known.name == name && known.ready; });
    if (!is_ready) names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

}  // namespace

ServingCheck::ServingCheck(const LoadedConfig& loaded, std::filesystem::path folder)
    : loaded_(loaded),
      folder_(std::move(folder)),
      state_(loaded.config.bus),
      tokens_(loaded.config.bus),
      deadline_(steady_now() + kStartPatience) {}

bool ServingCheck::end(const std::string& why) {
  problem_ = Error{ErrorCode::kUnavailable, why};
  return true;
}

bool ServingCheck::look() {
  take_answers();
  const bool is_late = steady_now() >= deadline_;
  const auto status = state_.status(steady_now() + 2s);
  if (!status.ok() || !status->ready) {
    if (is_late && asked_.empty())
      return end("the services run but no request could be served within 30 s");
    return false;
  }
  not_listed_ = unlisted_services(folder_, *status);
  if (!all_answer(of_configured(*status, loaded_)) || (!not_listed_.empty() && !is_late))
    return problem_.has_value();
  if (edge_serves()) return true;
  if (!edge_deadline_) edge_deadline_ = steady_now() + kStartPatience;
  return steady_now() >= *edge_deadline_ &&
         end("the edge cannot serve after 30 s: GET /health has the reason");
}

bool ServingCheck::all_answer(const wire::StatusReply& status) {
  for (const std::string& name : models_.to_ask(status)) {
    const auto id = tokens_.post(edge::one_token_of(name));
    if (id.ok())
      asked_[wire::hex_of(*id)] = name;
    else
      (void)models_.note(name, nullptr);
  }
  if (const auto reason = models_.why_not_ready(status);
      reason.state == edge::UnreadyState::kFailing)
    return end(reason.sentence), false;
  const std::string missing = not_ready(loaded_, status);
  if (!missing.empty() && steady_now() >= deadline_)
    return end("model " + missing + " is not ready after 30 s"), false;
  return missing.empty() && models_.not_ready(status).empty();
}

void ServingCheck::take_answers() {
  if (!asked_.empty()) tokens_.wait(steady_now() + 20ms);
  while (const auto answer = tokens_.next()) {
    if (!answer->ok() || std::holds_alternative<wire::ClientPiece>(**answer)) continue;
    const auto asked = asked_.find(answer_id(**answer));
    if (asked == asked_.end()) continue;
    (void)models_.note(asked->second, &**answer);
    asked_.erase(asked);
  }
}

// True where there is no edge, or none at a known port.
bool ServingCheck::edge_serves() {
  constexpr unsigned kNotYet = 503;
  const EdgeSection& edge = loaded_.config.edge;
  const auto services = supervisor_state(folder_);
  if (edge.port == 0 || std::ranges::none_of(services, [](const ServiceState& service) {
        return service.role == "edge" && service.state == name_of(ProcessState::kReady);
      }))
    return true;
  const auto reply = http_get({.host = edge.host, .port = std::to_string(edge.port)}, "/health");
  return reply.ok() && reply->status != kNotYet;
}

}  // namespace foretoken::cli
