// An answer that may be told more than once, from its beginning: by a router that was asked again,
// on the same connection or after it was lost. Pieces of both tellings may come; where each belongs
// is in its position. Passes on what is new and checks that the rest is what was told before. Pure;
// one request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/messages/client.h"

namespace foretoken {

class ResumedAnswer {
 public:
  // The request was sent on a new connection: what comes from here on begins at the first token. It
  // matters for routers that give no positions only.
  void begin_again();
  // What is new in a piece or a reply; nothing if a piece holds nothing new. An error where it
  // differs from what was told before. Errors pass as they are.
  std::optional<wire::ClientAnswer> new_part(wire::ClientAnswer answer);

 private:
  enum class Placed : std::uint8_t { kTaken, kDiffers, kBeyond };
  // If `part` agrees, cuts what was told before from its front, and remembers the rest.
  template <class Part>
  Placed take(Part& part);

  std::string text_;  // passed on so far
  std::vector<TokenId> token_ids_;
  std::size_t n_logprobs_ = 0;
  bool has_prompt_logprobs_ = false;
  bool has_form_ = false;
  bool has_model_ = false;
  bool has_prompt_token_ids_ = false;
  std::size_t text_at_ = 0, tokens_at_ = 0, logprobs_at_ = 0;  // how much of it was told again
};

}  // namespace foretoken
