#include "common/spec/finish.h"

#include <algorithm>
#include <iterator>

#include "common/base/check.h"

namespace foretoken {

std::vector<TokenId> choosable(std::span<const TokenId> ids, TokenId n_ids) {
  std::vector<TokenId> out;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(out),
               [n_ids](TokenId id) { return id >= 0 && id < n_ids; });
  return out;
}

FinishRules::FinishRules(const SamplingParams& params,
                         std::span<const TokenId> eos_ids,
                         Position n_prompt,
                         Position max_model_len)
    : endings_(ending_tokens(params, eos_ids)),
      limit_(std::min(params.max_tokens, max_model_len > n_prompt ? max_model_len - n_prompt : 0)) {
  if (limit_ == 0) reason_ = FinishReason::kLength;
}

std::optional<FinishReason> FinishRules::on_token(TokenId token, bool is_complete) {
  FORETOKEN_CHECK(!reason_, "no token is committed after the finish");
  ++n_output_;
  // A stop that is also the last allowed token is a stop: the earlier rule names the reason.
  ended_by_token_ = std::binary_search(endings_.begin(), endings_.end(), token);
  if (ended_by_token_ || is_complete) {
    reason_ = FinishReason::kStop;
  } else if (n_output_ >= limit_) {
    reason_ = FinishReason::kLength;
  }
  return reason_;
}

}  // namespace foretoken
