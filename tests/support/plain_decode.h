// Plain decoding written down once more, without engine, cache ledger or scheduler: one sequence,
// one token at a time, its blocks one after another. What every proposer, batch and schedule must
// reproduce. n_valid_ids: ids from here on are never chosen; 0 = all of the model's may be.
// `constraints`: for a request with a grammar.
#pragma once

#include <vector>

#include "common/engine/target_events.h"
#include "common/grammar/constraint.h"
#include "common/model/model.h"
#include "kernels/include/backend.h"

namespace foretoken {

struct PlainAnswer {
  std::vector<TokenId> ids;
  std::vector<float> logprobs;                 // of the ids, if asked for
  std::vector<TokenLogprobs> prompt_logprobs;  // of the prompt from its second token, likewise
  FinishReason reason = FinishReason::kLength;
  bool is_blocked = false;  // no token could follow
  bool ended_by_token = false;
};

PlainAnswer plain_decode(Model& model,
                         Backend& backend,
                         const OpenRequest& request,
                         Position max_model_len,
                         std::int32_t n_valid_ids = 0,
                         Constraints* constraints = nullptr);

}  // namespace foretoken
