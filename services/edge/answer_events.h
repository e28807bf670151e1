// One answer as a list of events: text, thoughts and calls of tools, in the order in which the
// model wrote them. Every protocol's encoder writes these events; none reads what another has
// written. An AnswerReader makes them of the router's pieces, token by token, so that the joined
// events do not depend on how many tokens a round committed, and a whole answer is read as a
// streamed one is. One reader for each answer; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/messages/client.h"

namespace foretoken::edge {

struct TextEvent {
  std::string text;
  std::vector<std::uint32_t> tokens = {};  // whose text it is: their numbers in the answer, from 0
  bool operator==(const TextEvent&) const = default;
};
struct ThinkingEvent {
  std::string text;
  bool operator==(const ThinkingEvent&) const = default;
};
// A call: begin, any number of pieces of its arguments, end. Calls do not interleave. Without an
// end the answer was cut, or the model did not finish the call.
struct CallBegin {
  std::size_t index = 0;  // 0, 1, ... within the answer
  std::string id;
  std::string name;
  bool operator==(const CallBegin&) const = default;
};
struct CallArguments {
  std::size_t index = 0;
  // Of a JSON object, as the model wrote it but for control characters in strings, which are
  // escaped.
  std::string text;
  bool operator==(const CallArguments&) const = default;
};
struct CallEnd {
  std::size_t index = 0;
  bool operator==(const CallEnd&) const = default;
};
using AnswerEvent = std::variant<TextEvent, ThinkingEvent, CallBegin, CallArguments, CallEnd>;

// A list to which what continues its last event is joined.
class AnswerEvents {
 public:
  void add(AnswerEvent event);
  void add(const AnswerEvents& more);
  const std::vector<AnswerEvent>& list() const { return list_; }
  bool operator==(const AnswerEvents&) const = default;

 private:
  std::vector<AnswerEvent> list_;
};

// What the request says of its answer.
struct AnswerRules {
  bool may_call = false;                     // it gave tools, and they may be called
  std::vector<std::string> tool_names = {};  // of those that may be called
  bool checks_names = false;                 // a call of another name is text, in every format
  bool one_call = false;                     // what follows the first whole call is left out
  std::uint64_t key = 0;                     // of the request and choice: ids of calls come from it
};

class AnswerParser;

class AnswerReader {
 public:
  explicit AnswerReader(AnswerRules rules);
  ~AnswerReader();
  AnswerReader(AnswerReader&&) noexcept;

  AnswerEvents on_piece(const wire::ClientPiece& piece);
  AnswerEvents on_reply(const wire::ClientReply& reply);  // the last one

  // Of what was read so far. Calls without an end do not count.
  std::size_t n_calls() const { return n_calls_; }
  std::uint32_t n_reasoning_tokens() const;
  // stop, length ... as the router says it, or tool_calls where an answer with whole calls was not
  // cut.
  std::string finish_reason(const wire::ClientReply& reply) const;

 private:
  void take_form(const wire::AnswerForm& form, AnswerEvents& events);
  void take(const std::string& text,
            const std::vector<TokenId>& tokens,
            const std::vector<std::uint32_t>& ends);
  void add_text(const std::string& text, std::size_t n_tokens, AnswerEvents& events);
  void read_tokens(AnswerEvents& events);
  AnswerEvents kept(const AnswerEvents& events);
  // The one call that is wanted is there: a later cut takes nothing of the answer.
  bool is_complete() const { return rules_.one_call && n_calls_ > 0; }

  AnswerRules rules_;
  std::unique_ptr<AnswerParser> parser_;  // none: all is text
  std::string text_;                      // not read yet
  std::size_t n_read_ = 0;                // bytes before it
  std::vector<std::uint32_t> ends_;       // of the tokens that are not read yet
  std::uint32_t n_tokens_ = 0;            // without a parser
  std::uint32_t n_named_ = 0;             // of them: with an event
  std::size_t n_calls_ = 0;
};

// What says the same whether and how the answer was guessed: of everything in the request but that,
// and of the number of the answer.
std::uint64_t answer_key(const wire::ClientRequest& request);

}  // namespace foretoken::edge
