#include "services/router/placement.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "common/base/model_name.h"

namespace foretoken {
namespace {

constexpr std::uint8_t kMemoriesSince = 6;  // minor version of the protocol

// Places taken, in 1/1000 of those there are.
std::uint64_t fullness(const Worker& worker) {
  const std::uint64_t places = std::max<std::uint64_t>(1, worker.hello.max_sequences);
  return std::uint64_t{1000} * std::max(worker.n_placed, worker.load.active + worker.load.queued) /
         places;
}

auto target_rank(const Worker& worker) {
  return std::tuple(worker.load.queued_tokens + worker.placed_tokens, fullness(worker),
                    -std::int64_t{worker.load.kv_blocks_free}, worker.id);
}

}  // namespace

bool answers_to(const wire::Hello& hello, std::string_view model) {
  return model == hello.model_name ||
         std::any_of(hello.aliases.begin(), hello.aliases.end(),
                     [&](const std::string& alias) { return stands_for(alias, model); });
}

namespace {

// By its name or an alias without a star: one that stands for many names makes no model the
// default.
bool is_called(const wire::Hello& hello, std::string_view name) {
  return name == hello.model_name ||
         std::find(hello.aliases.begin(), hello.aliases.end(), name) != hello.aliases.end();
}

}  // namespace

Result<std::optional<std::string>> model_of_request_without(
    std::span<const wire::Hello* const> models, const std::string& configured) {
  if (!configured.empty()) return std::optional(configured);
  if (models.empty()) return std::optional<std::string>();
  for (const wire::Hello* model : models)
    if (is_called(*model, kDefaultModel)) return std::optional(model->model_name);
  const bool is_one = std::all_of(models.begin(), models.end(), [&](const wire::Hello* model) {
    return can_continue(*models.front(), *model) &&
           models.front()->fingerprints.text == model->fingerprints.text;
  });
  if (is_one) return std::optional(models.front()->model_name);
  return Error{ErrorCode::kInvalidValue,
               "several models are served, or were a moment ago: " + names_of(models) +
                   "; a request must name one, or router.default_model must be set",
               "model"};
}

Result<std::optional<std::string>> settled_model_without(const Pool& pool,
                                                         std::span<const wire::Hello* const> models,
                                                         const std::string& configured,
                                                         const std::string& only_model) {
  auto meant = model_of_request_without(models, configured);
  const bool is_settled = !configured.empty() || pool.all_here();
  if (!meant.ok() || is_settled || *meant == only_model) return meant;
  return std::optional<std::string>();
}

std::string names_of(std::span<const wire::Hello* const> models) {
  std::set<std::string> names;
  for (const wire::Hello* model : models) names.insert(model->model_name);
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

bool is_meant_for(const wire::Hello& draft, const wire::Hello& target) {
  return draft.drafts_for.empty() || answers_to(target, draft.drafts_for);
}

std::string why_not_together(const wire::Hello& target,
                             const wire::Hello& other,
                             std::span<const Worker* const> targets) {
  const bool is_draft = other.role == wire::Role::kDraft;
  const auto why_not = [&](const wire::Hello& with) {
    return is_draft ? why_not_paired(with, other) : why_not_served(other, with);
  };
  std::string why = why_not(target);
  const bool is_of_its_model =
      is_draft ? is_meant_for(other, target) : answers_to(target, other.model_name);
  if (why.empty() || is_of_its_model) return why;
  const bool works_elsewhere = std::any_of(targets.begin(), targets.end(), [&](const Worker* each) {
    return why_not(each->hello).empty();
  });
  return works_elsewhere ? "" : why;
}

std::vector<const Worker*> drafts_of(const Worker& target, std::span<const Worker* const> drafts) {
  std::vector<const Worker*> all, own, memories;
  for (const Worker* draft : drafts) {
    if (!why_not_paired(target.hello, draft->hello).empty()) continue;
    if (draft->hello.source == wire::DraftSource::kMemory) {
      // Unlike a draft it keeps what it is sent, by the rules of its own model's configuration.
      if (is_meant_for(draft->hello, target.hello)) memories.push_back(draft);
      continue;
    }
    all.push_back(draft);
    if (is_meant_for(draft->hello, target.hello)) own.push_back(draft);
  }
  std::vector<const Worker*> used = own.empty() ? all : own;
  if (target.minor >= kMemoriesSince) used.insert(used.end(), memories.begin(), memories.end());
  return used;
}

std::optional<WorkerId> place_target(std::span<const Worker* const> targets,
                                     const TargetNeed& need) {
  const Worker* best = nullptr;
  for (const Worker* target : targets) {
    if (!answers_to(target->hello, need.model)) continue;
    if (std::find(need.not_these.begin(), need.not_these.end(), target->id) != need.not_these.end())
      continue;
    if (need.like != nullptr && !can_continue(*need.like, target->hello)) continue;
    const auto rank = [&](const Worker& w) {
      return std::pair(w.minor < need.least_minor, target_rank(w));
    };
    if (best == nullptr || rank(*target) < rank(*best)) best = target;
  }
  return best == nullptr ? std::nullopt : std::optional(best->id);
}

std::optional<WorkerId> place_target(const Pool& pool, const TargetNeed& need) {
  const auto ready = pool.ready(wire::Role::kTarget);
  if (const auto chosen = place_target(ready, need)) return chosen;
  TargetNeed any = need;
  any.not_these = {};
  if (place_target(ready, any)) return std::nullopt;
  auto draining = pool.draining(wire::Role::kTarget);
  std::erase_if(draining, [&](const Worker* w) { return w->draining_since < need.accepted; });
  return place_target(draining, need);
}

std::optional<WorkerId> place_tokenizer(const Pool& pool,
                                        const wire::Fingerprints& wanted,
                                        std::optional<WorkerId> not_this) {
  if (const auto ready = place_tokenizer(pool.ready(wire::Role::kTokenizer), wanted, not_this))
    return ready;
  return place_tokenizer(pool.draining(wire::Role::kTokenizer), wanted, not_this);
}

std::optional<WorkerId> place_tokenizer(std::span<const Worker* const> tokenizers,
                                        const wire::Fingerprints& wanted,
                                        std::optional<WorkerId> not_this) {
  const Worker* best = nullptr;
  const auto fits = [](Fingerprint asked, Fingerprint has) { return asked == 0 || asked == has; };
  const auto rank = [](const Worker& w) { return std::tuple(w.n_placed, w.load.active, w.id); };
  for (const Worker* tokenizer : tokenizers) {
    const wire::Fingerprints& has = tokenizer->hello.fingerprints;
    if (!fits(wanted.vocabulary, has.vocabulary) || !fits(wanted.text, has.text)) continue;
    if (tokenizer->id == not_this) continue;
    if (best == nullptr || rank(*tokenizer) < rank(*best)) best = tokenizer;
  }
  // The only one is better than none, even if it failed a moment ago.
  if (best == nullptr && not_this) return place_tokenizer(tokenizers, wanted, std::nullopt);
  return best == nullptr ? std::nullopt : std::optional(best->id);
}

}  // namespace foretoken
