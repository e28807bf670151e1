#include "services/tokenizer/encoder.h"

#include <algorithm>
#include <new>
#include <string_view>
#include <utility>

#include "common/base/json.h"
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

Error blame(const Error& error, const char* param) {
  return {error.code, error.message, error.param.empty() ? param : error.param};
}

// Up to the white space behind it, which templates add.
bool ends_with_marker(std::string_view text, std::string_view marker) {
  const std::size_t last = text.find_last_not_of(" \n");
  return last != std::string_view::npos && text.substr(0, last + 1).ends_with(marker);
}

// A call that is begun for the model has no thought before it, nor has a text that is constrained
// from its first token. What is no object the template's renderer refuses.
std::string without_thinking(const std::string& variables) {
  OrderedJson all =
      variables.empty() ? OrderedJson::object() : OrderedJson::parse(variables, nullptr, false);
  if (!all.is_object()) return variables;
  all["enable_thinking"] = false;
  return to_text(all);
}

Error cannot_be_continued(const char* why) {
  return {ErrorCode::kInvalidValue, std::string("the last message cannot be continued: ") + why,
          "messages"};
}

// Where a continued message ends in the rendered text. Its own words cannot say: they may stand
// in what the template writes behind them. Characters of private use, which templates keep, in a
// row that none of the messages has.
std::string mark_that_is_not_in(std::string_view messages) {
  constexpr std::string_view kEdge = "\uE0F0", kInner = "\uE0F1";
  std::size_t longest = 0, run = 0, end = 0;
  for (auto at = messages.find(kInner); at != std::string_view::npos;
       at = messages.find(kInner, end)) {
    run = at == end ? run + 1 : 1;
    end = at + kInner.size();
    longest = std::max(longest, run);
  }
  std::string mark(kEdge);
  for (std::size_t i = 0; i <= longest; ++i) mark += kInner;
  return mark.append(kEdge);
}

bool has_calls(const OrderedJson& message) {
  const auto calls = message.find("tool_calls");
  return calls != message.end() && !calls->empty();  // null is empty, too
}

struct MarkedMessages {
  std::string json, mark;
};

// The messages with a mark behind the text of the last one, which ends without white space.
Result<MarkedMessages> mark_end_of_final(const std::string& messages) {
  OrderedJson all = OrderedJson::parse(messages, nullptr, false);
  if (!all.is_array() || all.empty() || !all.back().is_object())
    return cannot_be_continued("there is none");
  OrderedJson& last = all.back();
  if (has_calls(last)) return cannot_be_continued("it has calls behind its text");
  std::string content = last.contains("content") && last["content"].is_string()
                            ? last["content"].get<std::string>()
                            : std::string();
  content.erase(content.find_last_not_of(" \n\t\r") + 1);
  if (content.empty()) return cannot_be_continued("it has no text");
  std::string mark = mark_that_is_not_in(to_text(all));
  last["content"] = content.append(mark);
  return MarkedMessages{to_text(all), std::move(mark)};
}

// A template may write the message more than once: it is continued where it was written last.
Result<void> cut_at_mark(std::string& text, const std::string& mark) {
  const std::size_t last = text.rfind(mark);
  if (last == std::string::npos) return cannot_be_continued("the chat template changes its text");
  text.erase(last);
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at))
    text.erase(at, mark.size());
  return {};
}

}  // namespace

Result<wire::Encoded> PromptEncoder::operator()(const wire::Encode& encode) const {
  try {
    return encoded(encode);
  } catch (const std::bad_alloc&) {  // what the trial had is given back by now
    return Error{ErrorCode::kOutOfMemory,
                 "encoding " + std::to_string(size_of(encode)) +
                     " bytes takes more memory than the tokenizer may have (ulimit -v, MemoryMax=)",
                 prompt_param(encode)};
  }
}

Result<wire::Encoded> PromptEncoder::encoded(const wire::Encode& encode) const {
  wire::Encoded result;
  if (const auto done = add_prompt(encode, result); !done.ok()) return done.error();
  n_unassigned_ += count_unassigned(encode.text);
  if (encode.bad_words.size() > kMaxBadWords)
    return Error{ErrorCode::kInvalidValue,
                 "bad_words has " + std::to_string(encode.bad_words.size()) +
                     " entries; the limit is " + std::to_string(kMaxBadWords),
                 "bad_words"};
  for (const std::string& word : encode.bad_words)
    if (const auto done = add_bad_word(word, result); !done.ok()) return done.error();
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

// Inside a text a word follows a space more often than not, and then it is other tokens. Where a
// vocabulary puts a space before every text it is others again behind anything else.
Result<void> PromptEncoder::add_bad_word(const std::string& word, wire::Encoded& result) const {
  std::vector<std::vector<TokenId>> forms;
  for (const std::string& text : {word, " " + word}) {
    auto ids = tokenizer_.encode(text, AddSpecialTokens::kNo);
    if (!ids.ok()) return Error{ids.error().code, ids.error().message, "bad_words"};
    forms.push_back(std::move(*ids));
  }
  if (auto ids = ids_behind_text(word); !ids.empty()) forms.push_back(std::move(ids));
  auto& all = result.bad_word_tokens;
  for (std::vector<TokenId>& ids : forms) {
    if (ids.empty() || ids.size() > kMaxBadWordTokens)
      return Error{ErrorCode::kInvalidValue,
                   "a bad word has " + std::to_string(ids.size()) + " tokens; 1 to " +
                       std::to_string(kMaxBadWordTokens) + " are allowed",
                   "bad_words"};
    if (std::find(all.begin(), all.end(), ids) == all.end()) all.push_back(std::move(ids));
  }
  return {};
}

std::vector<TokenId> PromptEncoder::ids_behind_text(const std::string& word) const {
  const std::string before = "\n";
  const auto of_before = tokenizer_.encode(before, AddSpecialTokens::kNo);
  const auto of_both = tokenizer_.encode(before + word, AddSpecialTokens::kNo);
  if (!of_before.ok() || !of_both.ok()) return {};
  const auto [end_of_before, added] = std::ranges::mismatch(*of_before, *of_both);
  if (end_of_before != of_before->end()) return {};
  return {added, of_both->end()};
}

Result<void> PromptEncoder::add_prompt(const wire::Encode& encode, wire::Encoded& result) const {
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
      result.tokens = encode.tokens;
      return {};
    case wire::PromptKind::kText: {
      auto ids = tokenizer_.encode(
          encode.text, encode.add_special_tokens ? AddSpecialTokens::kYes : AddSpecialTokens::kNo);
      if (!ids.ok()) return blame(ids.error(), "prompt");
      result.tokens = std::move(*ids);
      return {};
    }
    case wire::PromptKind::kMessages:
      return add_messages(encode, result);
  }
  return Error{ErrorCode::kInvalidRequest, "unknown kind of prompt", "prompt"};
}

Result<void> PromptEncoder::add_messages(const wire::Encode& encode, wire::Encoded& result) const {
  if (!render_)
    return Error{ErrorCode::kUnsupportedParameter, "this model has no chat template; send a prompt",
                 "messages"};
  if (encode.tool_choice != ToolChoice::kNone && form_.tool_format == ToolFormat::kNone)
    return Error{ErrorCode::kUnsupportedParameter,
                 "tools are not supported: the model's chat template has no calls that are read "
                 "here (hermes, llama, mistral; model.tool_format names one); tool_choice may be "
                 "\"none\"",
                 "tools"};
  const bool is_forced = encode.tool_choice == ToolChoice::kRequired;
  const bool has_no_thought = is_forced || encode.without_thinking;
  MarkedMessages messages{encode.text, {}};
  if (encode.continue_final_message) {
    auto marked = mark_end_of_final(encode.text);
    if (!marked.ok()) return marked.error();
    messages = std::move(*marked);
  }
  auto text = render_(messages.json, encode.add_generation_prompt && !encode.continue_final_message,
                      has_no_thought ? without_thinking(encode.variables) : encode.variables);
  if (!text.ok()) return blame(text.error(), "messages");
  if (encode.continue_final_message) {
    if (const auto done = cut_at_mark(*text, messages.mark); !done.ok()) return done.error();
  } else if (has_no_thought && ends_with_marker(*text, markers::kThink)) {
    *text += "\n" + std::string(markers::kEndThink) + "\n\n";
  }
  if (is_forced && !encode.continue_final_message) {
    result.begun = form_.before_name;
    if (!encode.tool_name.empty()) result.begun += encode.tool_name + form_.after_name;
    *text += result.begun;
  }
  if (form_.reasons && ends_with_marker(*text, markers::kThink)) result.begun = markers::kThink;
  // The template writes BOS and the like itself: adding them again would double them.
  auto ids = tokenizer_.encode(*text, AddSpecialTokens::kNo);
  if (!ids.ok()) return blame(ids.error(), "messages");
  result.tokens = std::move(*ids);
  result.tool_format = name_of(form_.tool_format);
  result.marker_tokens = form_.marker_tokens;
  result.reasons = form_.reasons;
  return {};
}

std::size_t PromptEncoder::size_of(const wire::Encode& encode) {
  std::size_t bytes = encode.text.size() + encode.variables.size() + encode.prediction.size() +
                      encode.tokens.size() * sizeof(TokenId);
  for (const std::string& word : encode.bad_words) bytes += word.size();
  return bytes;
}

}  // namespace foretoken
