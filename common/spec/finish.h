// When an answer ends. Every committed token, plain or accepted, passes through on_token one at a
// time and in order; after a finish the rest of a round is dropped. Order of the rules: end or stop
// token, then the end of a constraint's grammar, then max_tokens and the model's length. Stop
// strings need text and live with the tokenizer service. Pure; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "common/base/sampling_params.h"
#include "common/base/vocabulary.h"

namespace foretoken {

// The ids a row can choose, those in [0, n_ids). End tokens come from a model's files or from a
// peer, and a mask on an id beyond the vocabulary would name a column that is not there.
std::vector<TokenId> choosable(std::span<const TokenId> ids, TokenId n_ids);

class FinishRules {
 public:
  // max_model_len counts prompt and answer together. An answer of no tokens has ended.
  FinishRules(const SamplingParams& params,
              std::span<const TokenId> eos_ids,
              Position n_prompt,
              Position max_model_len);

  // Whether the next committed token, which is part of the answer in any case, is the last one:
  // kStop or kLength if it is. `is_complete`: no more text may follow it (RowRules::is_complete).
  // Not after a finish.
  std::optional<FinishReason> on_token(TokenId token, bool is_complete = false);

  std::optional<FinishReason> reason() const { return reason_; }
  bool ended_by_token() const { return ended_by_token_; }  // an end or stop token, the last one
  std::uint32_t n_output() const { return n_output_; }
  std::uint32_t n_remaining() const { return n_output_ < limit_ ? limit_ - n_output_ : 0; }

 private:
  std::vector<TokenId> endings_;
  std::uint32_t limit_ = 0;
  std::uint32_t n_output_ = 0;
  bool ended_by_token_ = false;
  std::optional<FinishReason> reason_;
};

}  // namespace foretoken
