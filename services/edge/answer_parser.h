// What a model wrote, token by token -> events. A marker that is one token of the vocabulary is
// found by its token alone, so that a model may spell it in its text; where the vocabulary has no
// such token, its text is found. The rest is read byte by byte: where a round of tokens ends makes
// no difference. White space beside a marker is layout and no text. One parser for all formats:
// they differ in how a call begins and in what may follow it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/tool_formats.h"
#include "services/edge/answer_events.h"
#include "services/edge/call_object.h"

namespace foretoken::edge {

class AnswerParser {
 public:
  AnswerParser(const AnswerRules& rules, const wire::AnswerForm& form);

  // What the prompt has of the answer; before the first token.
  void begin(std::string_view begun, AnswerEvents& events);
  void token(std::string_view text, AnswerEvents& events);
  void end(AnswerEvents& events);  // nothing follows

  std::uint32_t n_reasoning_tokens() const { return n_reasoning_tokens_; }

 private:
  enum class At : std::uint8_t {
    kStart,  // nothing but white space so far
    kThinking,
    kText,
    kObject,  // a call as a JSON object
    kCalls,   // Mistral, behind its marker: a list, or a name
    kName,
    kCallId,
    kArguments,  // Mistral, a call's arguments behind its name
    kListNext,   // behind a call of a list
    kCallNext,   // behind a call
    kBroken,     // text behind a call or what broke it, until the call's end marker
  };

  std::string_view marker_token_at_end(std::string_view text) const;  // empty: none
  bool is_marker_token(std::string_view text) const;
  bool is_awaited(std::string_view marker) const;
  void drain(bool is_end);
  void on_marker(std::string_view marker);
  void on_byte(char byte);

  void on_text(char byte);
  void on_object(char byte);
  void on_arguments(char byte);
  void start_object(At after);
  void begin_call(const std::string& name);
  void end_call();
  void end_early();
  void give_up_call();  // what was read of it is text
  void leave_call(At next);
  void break_call(char byte);

  bool is_tool(std::string_view name) const;
  void drop_space();
  void close_tokens_before();
  void text(std::string_view text);
  void think(std::string_view text);

  const AnswerRules rules_;
  const wire::AnswerForm form_;
  const ToolFormat format_;
  const bool may_call_;

  AnswerEvents* events_ = nullptr;  // of the call that is under way
  At at_ = At::kStart;
  bool has_thought_ = false;
  bool skips_space_ = false;  // behind a marker
  std::string pending_;       // may become a marker
  std::string space_;         // text if no marker follows
  std::string raw_;           // of a call that is not decided on: text, should it be none

  CallObject object_;
  JsonValueEnd arguments_;
  At after_object_ = At::kCallNext;
  std::string name_;
  bool has_begun_call_ = false;
  std::size_t n_calls_ = 0;
  std::uint32_t n_reasoning_tokens_ = 0;
  std::uint32_t n_tokens_ = 0;   // with the one that is read
  std::uint32_t open_from_ = 0;  // tokens from here on may still turn out to be text
};

}  // namespace foretoken::edge
