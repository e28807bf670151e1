#include "services/tokenizer/encoder.h"

#include <algorithm>
#include <new>
#include <utility>

#include "common/base/sampling_params.h"
#include "common/messages/limits.h"
#include "common/tokenizer/regex.h"

namespace foretoken {

namespace {

const char* prompt_param(const wire::Encode& encode) {
  return encode.kind == wire::PromptKind::kTokens     ? "token_ids"
         : encode.kind == wire::PromptKind::kMessages ? "messages"
                                                      : "prompt";
}

}  // namespace

Result<wire::Encoded> Encoder::operator()(const wire::Encode& encode) const {
  try {
    return encoded(encode);
  } catch (const std::bad_alloc&) {  // what the trial had is given back by now
    return Error{ErrorCode::kOutOfMemory,
                 "encoding " + std::to_string(size_of(encode)) +
                     " bytes takes more memory than the tokenizer may have (ulimit -v, MemoryMax=)",
                 prompt_param(encode)};
  }
}

Result<wire::Encoded> Encoder::encoded(const wire::Encode& encode) const {
  wire::Encoded result;
  auto prompt = prompt_of(encode);
  if (!prompt.ok()) return prompt.error();
  result.tokens = std::move(*prompt);
  n_unassigned_ += count_unassigned(encode.text);
  if (encode.bad_words.size() > kMaxBadWords)
    return Error{ErrorCode::kInvalidValue,
                 "bad_words has " + std::to_string(encode.bad_words.size()) +
                     " entries; the limit is " + std::to_string(kMaxBadWords),
                 "bad_words"};
  for (const std::string& word : encode.bad_words) {
    // Inside a text a word follows a space more often than not, and then it is other tokens.
    for (const std::string& form : {word, " " + word}) {
      auto ids = tokenizer_.encode(form, AddSpecialTokens::kNo);
      if (!ids.ok()) return Error{ids.error().code, ids.error().message, "bad_words"};
      if (ids->empty() || ids->size() > kMaxBadWordTokens)
        return Error{ErrorCode::kInvalidValue,
                     "a bad word has " + std::to_string(ids->size()) + " tokens; 1 to " +
                         std::to_string(kMaxBadWordTokens) + " are allowed",
                     "bad_words"};
      if (std::find(result.bad_word_tokens.begin(), result.bad_word_tokens.end(), *ids) ==
          result.bad_word_tokens.end())
        result.bad_word_tokens.push_back(std::move(*ids));
    }
  }
  if (!encode.prediction.empty()) {
    auto ids = tokenizer_.encode(encode.prediction, AddSpecialTokens::kNo);
    if (!ids.ok()) return Error{ids.error().code, ids.error().message, "prediction"};
    result.prediction_tokens = std::move(*ids);
  }
  // A text's bytes do not bound its tokens: normalisation may make eleven characters of one.
  std::size_t n_tokens = result.tokens.size() + result.prediction_tokens.size();
  for (const auto& word : result.bad_word_tokens) n_tokens += word.size();
  if (n_tokens > wire::kMaxRequestTokens)
    return Error{ErrorCode::kContextLengthExceeded,
                 "prompt, prediction and bad_words have " + std::to_string(n_tokens) +
                     " tokens; the limit is " + std::to_string(wire::kMaxRequestTokens),
                 prompt_param(encode)};
  return result;
}

Result<std::vector<TokenId>> Encoder::prompt_of(const wire::Encode& encode) const {
  const auto blame = [](const Error& error, const char* param) {
    return Error{error.code, error.message, error.param.empty() ? param : error.param};
  };
  switch (encode.kind) {
    case wire::PromptKind::kTokens:
      for (std::size_t i = 0; i < encode.tokens.size(); ++i)
        if (!tokenizer_.is_token(encode.tokens[i]))
          return Error{ErrorCode::kInvalidValue,
                       "token_ids[" + std::to_string(i) + "] is " +
                           std::to_string(encode.tokens[i]) +
                           ", which names no token; ids go from 0 to " +
                           std::to_string(tokenizer_.vocab_size() - 1),
                       "token_ids"};
      return encode.tokens;
    case wire::PromptKind::kText: {
      auto ids = tokenizer_.encode(
          encode.text, encode.add_special_tokens ? AddSpecialTokens::kYes : AddSpecialTokens::kNo);
      if (!ids.ok()) return blame(ids.error(), "prompt");
      return ids;
    }
    case wire::PromptKind::kMessages: {
      if (!render_)
        return Error{ErrorCode::kUnsupportedParameter,
                     "this model has no chat template; send a prompt", "messages"};
      auto text = render_(encode.text, encode.add_generation_prompt, "");
      if (!text.ok()) return blame(text.error(), "messages");
      // The template writes BOS and the like itself: adding them again would double them.
      auto ids = tokenizer_.encode(*text, AddSpecialTokens::kNo);
      if (!ids.ok()) return blame(ids.error(), "messages");
      return ids;
    }
  }
  return Error{ErrorCode::kInvalidRequest, "unknown kind of prompt", "prompt"};
}

std::size_t Encoder::size_of(const wire::Encode& encode) {
  std::size_t bytes =
      encode.text.size() + encode.prediction.size() + encode.tokens.size() * sizeof(TokenId);
  for (const std::string& word : encode.bad_words) bytes += word.size();
  return bytes;
}

}  // namespace foretoken
