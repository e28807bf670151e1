// Who gets a request: pure policy over what the pool knows. The next idea about load goes here and
// nowhere else.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

#include "services/router/pool.h"

namespace foretoken {

// What a request needs of its target.
struct TargetNeed {
  std::string_view model;  // a name or an alias
  // Minor version of the protocol. One that is older is chosen where there is no other, to be named
  // in the error.
  std::uint8_t least_minor = 0;
  // A migration: only targets that continue with the same tokens.
  const wire::Hello* like = nullptr;
  std::span<const WorkerId> not_these = {};  // those that have just refused
  // When the request was accepted. A target that drains finishes what was accepted before.
  TimePoint accepted = TimePoint::min();
};

// True for the model's name and its aliases.
bool answers_to(const wire::Hello& hello, std::string_view model);

// What clients that must name a model write for one that they do not choose.
inline constexpr std::string_view kDefaultModel = "default";

// The name that a request without one means: the configured one, or that of the model that is
// called "default", or that of the only model there is. Nothing: no target is known yet. An error
// with all names: there are several.
Result<std::optional<std::string>> model_of_request_without(
    std::span<const wire::Hello* const> models, const std::string& configured);
// The same for a request of now. Nothing also while a target of another model may still register:
// unless the name is the configured one or `only_model` (RequestRules).
Result<std::optional<std::string>> settled_model_without(const Pool& pool,
                                                         std::span<const wire::Hello* const> models,
                                                         const std::string& configured,
                                                         const std::string& only_model);
// Their names, each once, joined by commas.
std::string names_of(std::span<const wire::Hello* const> models);

// Whether a draft was configured for the model of this target; one that does not say is for all.
bool is_meant_for(const wire::Hello& draft, const wire::Hello& target);
// Why a draft or tokenizer, `other`, does not work with a target, where that is worth a note.
// Between two models it is expected, as long as there is one of all targets that the other works
// with.
std::string why_not_together(const wire::Hello& target,
                             const wire::Hello& other,
                             std::span<const Worker* const> targets);
// Those that a target is to use, of the drafts of its vocabulary: the ones that are meant for its
// model; where there is none of these, all. Of another model's draft fewer guesses are right.
// Memories of texts guess beside a model, and for targets of their own model alone; a target that
// takes them for models has none.
std::vector<const Worker*> drafts_of(const Worker& target, std::span<const Worker* const> drafts);

// Among ready targets that fit: fewest queued tokens (placed ones included), then the emptiest,
// then the lowest id, so that equal facts give equal choices. Nothing: none fits now.
std::optional<WorkerId> place_target(std::span<const Worker* const> targets,
                                     const TargetNeed& need);
// Among the ready targets; where none would do, refusals apart, among those that have begun to
// drain since the request was accepted.
std::optional<WorkerId> place_target(const Pool& pool, const TargetNeed& need);

// A tokenizer of the wanted vocabulary and text (0: any), the one with the fewest streams; not the
// one that has just failed, if there is another.
std::optional<WorkerId> place_tokenizer(std::span<const Worker* const> tokenizers,
                                        const wire::Fingerprints& wanted,
                                        std::optional<WorkerId> not_this);
// Among the ready ones, or else among those that drain: a tokenizer serves until it leaves.
std::optional<WorkerId> place_tokenizer(const Pool& pool,
                                        const wire::Fingerprints& wanted,
                                        std::optional<WorkerId> not_this);

}  // namespace foretoken
