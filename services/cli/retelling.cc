#include "services/cli/retelling.h"

#include <algorithm>
#include <iterator>

#include "common/base/result.h"

namespace foretoken::cli {

void Retelling::begin_again() { text_at_ = tokens_at_ = logprobs_at_ = 0; }

template <class Part>
bool Retelling::take(Part& part) {
  const auto at = [](auto& sequence, std::size_t n) {
    return sequence.begin() + static_cast<std::ptrdiff_t>(n);
  };
  const std::size_t n_text = std::min(part.text.size(), text_.size() - text_at_);
  const std::size_t n_tokens = std::min(part.token_ids.size(), token_ids_.size() - tokens_at_);
  const std::size_t n_logprobs = std::min(part.logprobs.size(), n_logprobs_ - logprobs_at_);
  if (text_.compare(text_at_, n_text, part.text, 0, n_text) != 0 ||
      !std::equal(part.token_ids.begin(), at(part.token_ids, n_tokens), at(token_ids_, tokens_at_)))
    return false;
  part.text.erase(0, n_text);
  part.token_ids.erase(part.token_ids.begin(), at(part.token_ids, n_tokens));
  part.logprobs.erase(part.logprobs.begin(), at(part.logprobs, n_logprobs));
  // What is left is new, so all that was told before has been told again.
  text_ += part.text;
  token_ids_.insert(token_ids_.end(), part.token_ids.begin(), part.token_ids.end());
  n_logprobs_ += part.logprobs.size();
  text_at_ += n_text + part.text.size();
  tokens_at_ += n_tokens + part.token_ids.size();
  logprobs_at_ += n_logprobs + part.logprobs.size();
  return true;
}

std::optional<wire::ClientAnswer> Retelling::news_in(wire::ClientAnswer answer) {
  auto* piece = std::get_if<wire::ClientPiece>(&answer);
  auto* reply = std::get_if<wire::ClientReply>(&answer);
  if ((piece != nullptr && !take(*piece)) || (reply != nullptr && !take(*reply)))
    return wire::ClientError{
        .id = piece != nullptr ? piece->id : reply->id,
        .code = std::string(error_code_name(ErrorCode::kInternal)),
        .message = "the connection was lost, and the request asked again began with another text"};
  if (piece != nullptr && piece->text.empty() && piece->token_ids.empty()) return std::nullopt;
  if (piece != nullptr)
    piece->accepted =
        std::min(piece->accepted, static_cast<std::uint32_t>(piece->token_ids.size()));
  return answer;
}

}  // namespace foretoken::cli
