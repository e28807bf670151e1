// Who gets a request: pure policy over what the pool knows. The next idea about load goes here and
// nowhere else.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "services/router/pool.h"

namespace foretoken {

// What a request needs of its target.
struct Need {
  std::string_view model;  // as the client asked; empty = any
  const wire::Hello* like =
      nullptr;  // a migration: only targets that continue with the same tokens
  std::span<const WorkerId> not_these = {};  // those that have just refused
};

// True for the model's name, one of its aliases, or no name at all.
bool answers_to(const wire::Hello& hello, std::string_view model);

// Among ready targets that fit: fewest queued tokens (placed ones included), then the emptiest,
// then the lowest id, so that equal facts give equal choices. Nothing: none fits now.
std::optional<WorkerId> place_target(std::span<const Worker* const> targets, const Need& need);

// A ready tokenizer of the wanted vocabulary (0: any), the one with the fewest streams. `preferred`
// keeps its place if it is ready.
std::optional<WorkerId> place_tokenizer(std::span<const Worker* const> tokenizers,
                                        Fingerprint vocabulary,
                                        std::optional<WorkerId> not_this);

}  // namespace foretoken
