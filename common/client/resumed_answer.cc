#include "common/client/resumed_answer.h"

#include <algorithm>
#include <iterator>
#include <type_traits>

#include "common/base/result.h"

namespace foretoken {

void ResumedAnswer::begin_again() { text_at_ = tokens_at_ = logprobs_at_ = 0; }

template <class Part>
ResumedAnswer::Placed ResumedAnswer::take(Part& part) {
  const auto at = [](auto& sequence, std::size_t n) {
    return sequence.begin() + static_cast<std::ptrdiff_t>(n);
  };
  if (part.position != wire::kNoPosition && part.offset != wire::kNoPosition) {
    if (part.position > token_ids_.size() || part.offset > text_.size()) return Placed::kBeyond;
    tokens_at_ = part.position;
    text_at_ = part.offset;
    logprobs_at_ = std::min<std::size_t>(part.position, n_logprobs_);
  }
  const std::size_t n_text = std::min(part.text.size(), text_.size() - text_at_);
  const std::size_t n_tokens = std::min(part.token_ids.size(), token_ids_.size() - tokens_at_);
  const std::size_t n_logprobs = std::min(part.logprobs.size(), n_logprobs_ - logprobs_at_);
  if (text_.compare(text_at_, n_text, part.text, 0, n_text) != 0 ||
      !std::equal(part.token_ids.begin(), at(part.token_ids, n_tokens), at(token_ids_, tokens_at_)))
    return Placed::kDiffers;
  part.text.erase(0, n_text);
  if (part.token_ends.size() == part.token_ids.size())
    part.token_ends.erase(part.token_ends.begin(), at(part.token_ends, n_tokens));
  part.token_ids.erase(part.token_ids.begin(), at(part.token_ids, n_tokens));
  part.logprobs.erase(part.logprobs.begin(), at(part.logprobs, n_logprobs));
  // What is left is new, so all that was told before has been told again.
  text_at_ += n_text;
  tokens_at_ += n_tokens;
  logprobs_at_ += n_logprobs;
  if (part.position != wire::kNoPosition) {
    part.position = static_cast<std::uint32_t>(tokens_at_);
    part.offset = static_cast<std::uint32_t>(text_at_);
  }
  if (has_prompt_logprobs_) part.prompt_logprobs.clear();
  has_prompt_logprobs_ = has_prompt_logprobs_ || !part.prompt_logprobs.empty();
  if (has_form_) part.form.reset();
  has_form_ = has_form_ || part.form;
  if constexpr (std::is_same_v<Part, wire::ClientPiece>) {
    if (has_model_) part.model.clear(), part.system_fingerprint.clear();
    has_model_ = has_model_ || !part.model.empty();
  }
  if (has_prompt_token_ids_) part.prompt_token_ids.clear();
  has_prompt_token_ids_ = has_prompt_token_ids_ || !part.prompt_token_ids.empty();
  text_ += part.text;
  token_ids_.insert(token_ids_.end(), part.token_ids.begin(), part.token_ids.end());
  n_logprobs_ += part.logprobs.size();
  text_at_ += part.text.size();
  tokens_at_ += part.token_ids.size();
  logprobs_at_ += part.logprobs.size();
  return Placed::kTaken;
}

std::optional<wire::ClientAnswer> ResumedAnswer::new_part(wire::ClientAnswer answer) {
  auto* piece = std::get_if<wire::ClientPiece>(&answer);
  auto* reply = std::get_if<wire::ClientReply>(&answer);
  const Placed placed = piece != nullptr   ? take(*piece)
                        : reply != nullptr ? take(*reply)
                                           : Placed::kTaken;
  // A piece of a telling that began before we were asking: ours begins at the first token.
  if (placed == Placed::kBeyond && piece != nullptr) return std::nullopt;
  if (placed != Placed::kTaken)
    return wire::ClientError{
        .id = piece != nullptr ? piece->id : reply->id,
        .error = {.code = std::string(error_code_name(ErrorCode::kInternal)),
                  .message = placed == Placed::kBeyond
                                 ? "a part of the answer is missing"
                                 : "the request asked again began with another text"}};
  if (piece != nullptr && piece->text.empty() && piece->token_ids.empty()) return std::nullopt;
  if (piece != nullptr)
    piece->accepted =
        std::min(piece->accepted, static_cast<std::uint32_t>(piece->token_ids.size()));
  return answer;
}

}  // namespace foretoken
