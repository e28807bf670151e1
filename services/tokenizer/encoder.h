// What a tokenizer service does to a prompt: chat template, then ids; bad words and prediction
// beside it. A function of its argument alone, safe to call from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/messages/messages.h"
#include "common/tokenizer/tokenizer.h"
#include "services/tokenizer/model_form.h"

namespace foretoken {

// Messages (JSON array), whether to open the assistant's turn, extra variables (JSON object or
// empty) -> the prompt's text. Called from two threads.
using ChatRenderer = std::function<Result<std::string>(
    const std::string& messages, bool add_generation_prompt, const std::string& variables)>;

class PromptEncoder {
 public:
  PromptEncoder(const Tokenizer& tokenizer, ChatRenderer render, ModelForm form)
      : tokenizer_(tokenizer), render_(std::move(render)), form_(std::move(form)) {}

  // One that takes more memory than there is fails by itself: kOutOfMemory.
  Result<wire::Encoded> operator()(const wire::Encode& encode) const;
  // Bytes to be encoded: what the work grows with.
  static std::size_t size_of(const wire::Encode& encode);
  const ModelForm& form() const { return form_; }
  // Code points in prompts so far that our Unicode tables do not know.
  std::uint64_t n_unassigned() const { return n_unassigned_; }

 private:
  Result<wire::Encoded> encoded(const wire::Encode& encode) const;
  // The prompt's tokens, and with messages how the answer is to be read.
  Result<void> add_prompt(const wire::Encode& encode, wire::Encoded& result) const;
  Result<void> add_messages(const wire::Encode& encode, wire::Encoded& result) const;
  Result<void> add_bad_word(const std::string& word, wire::Encoded& result) const;
  // The tokens that it adds to a text before it that has no space at its end; none where it changes
  // that text's own.
  std::vector<TokenId> ids_behind_text(const std::string& word) const;

  const Tokenizer& tokenizer_;
  ChatRenderer render_;
  ModelForm form_;
  mutable std::atomic<std::uint64_t> n_unassigned_{0};
};

}  // namespace foretoken
