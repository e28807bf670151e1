#include "services/edge/warm_models.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/client/client.h"

namespace foretoken::edge {
namespace {

// What kept a model from answering; nothing if it has answered.
std::optional<Error> problem_of(const wire::ClientAnswer* answer) {
  if (answer == nullptr) return Error{ErrorCode::kInternal, "no answer came"};
  if (const auto* failed = std::get_if<wire::ClientError>(answer)) return error_from(*failed);
  if (std::holds_alternative<wire::ClientReply>(*answer)) return std::nullopt;
  return Error{ErrorCode::kInternal, "its answer is of another kind"};
}

// Of a moment, and not of the model: the same request may be answered when it is sent again.
bool is_passing(const Error& problem) {
  return problem.code == ErrorCode::kQueueFull || problem.code == ErrorCode::kDraining ||
         problem.code == ErrorCode::kUnavailable;
}

}  // namespace

wire::ClientRequest one_token_of(const std::string& model) {
  wire::ClientRequest request;
  request.model = model;
  request.prompt_kind = wire::PromptKind::kText;
  request.prompt = "1";
  request.params.max_tokens = 1;
  request.given = {"prompt", "model", "max_tokens"};
  return request;
}

std::vector<std::string> WarmModels::to_ask(const wire::StatusReply& status) {
  std::vector<std::string> names;
  for (const auto& model : status.model_states)
    if (model.ready && !warm_.contains(model.name) && asked_.insert(model.name).second)
      names.push_back(model.name);
  return names;
}

bool WarmModels::note(const std::string& model, const wire::ClientAnswer* answer) {
  asked_.erase(model);
  problems_.erase(model);
  if (auto problem = problem_of(answer)) {
    problems_.emplace(model, std::move(*problem));
    return false;
  }
  warm_.insert(model);
  return true;
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
    const auto found = problems_.find(model.name);
    const bool has_problem = found != problems_.end();
    if (has_problem && !is_passing(found->second))
      return {UnreadyState::kFailing,
              "model " + model.name + " does not answer: " + found->second.message};
    reason.sentence = "the first token of model " + model.name + " is awaited" +
                      (has_problem ? ": " + found->second.message : "");
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
