#include "services/edge/answer_parser.h"

#include <algorithm>
#include <utility>

#include "common/base/hash.h"

namespace foretoken::edge {
namespace {

constexpr std::size_t kMaxCallNameBytes = 256;

// Mistral's templates take nine characters and no others.
std::string call_id(ToolFormat format, std::uint64_t key, std::size_t index) {
  static constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const bool is_short = format == ToolFormat::kMistral;
  std::string id = is_short ? "" : "call_";
  std::uint64_t state = mix64(key + kGoldenRatio64 * (index + 1));
  for (int i = 0; i < (is_short ? 9 : 24); ++i) {
    id += kDigits[state % kDigits.size()];
    state = mix64(state + kGoldenRatio64);
  }
  return id;
}

}  // namespace

AnswerParser::AnswerParser(const AnswerRules& rules, const wire::AnswerForm& form)
    : rules_(rules),
      form_(form),
      format_(value_named<ToolFormat>(form.tool_format).value_or(ToolFormat::kNone)),
      may_call_(rules.may_call && format_ != ToolFormat::kNone) {}

void AnswerParser::begin(std::string_view begun, AnswerEvents& events) {
  events_ = &events;
  // The markers of a prompt are tokens where they can be.
  while (!begun.empty()) {
    std::size_t at = begun.size();
    std::string_view first;
    for (const std::string_view marker : kMarkers)
      if (const std::size_t found = begun.find(marker); found < at) at = found, first = marker;
    for (const char byte : begun.substr(0, at)) on_byte(byte);
    if (!first.empty()) on_marker(first);
    begun.remove_prefix(at + first.size());
  }
}

void AnswerParser::token(std::string_view text, AnswerEvents& events) {
  events_ = &events;
  const bool was_thinking = at_ == At::kThinking;
  if (const std::string_view marker = marker_token_at_end(text); !marker.empty()) {
    pending_ += text.substr(0, text.size() - marker.size());
    drain(true);
    ++n_tokens_;  // what stood before the marker is of the tokens before it
    if (is_awaited(marker))
      on_marker(marker);
    else
      for (const char byte : marker) on_byte(byte);
  } else {
    ++n_tokens_;
    pending_ += text;
    drain(false);
  }
  if (was_thinking || at_ == At::kThinking) ++n_reasoning_tokens_;
  // One without a text has it in the next token's.
  const bool is_decided = pending_.empty() && space_.empty() && raw_.empty() && !text.empty();
  if (is_decided) open_from_ = n_tokens_;
}

void AnswerParser::end(AnswerEvents& events) {
  events_ = &events;
  drain(true);
  if (at_ == At::kObject || at_ == At::kName || at_ == At::kCalls || at_ == At::kCallId ||
      at_ == At::kArguments) {
    end_early();
  } else if (at_ == At::kText || at_ == At::kStart || at_ == At::kBroken) {
    text({});
  }
}

// Bytes of tokens before it may come with it: a decoder holds them back until it has a character.
std::string_view AnswerParser::marker_token_at_end(std::string_view text) const {
  for (const std::string& marker : form_.marker_tokens)
    if (text.ends_with(marker)) return text.substr(text.size() - marker.size());
  return {};
}

bool AnswerParser::is_marker_token(std::string_view text) const {
  return std::find(form_.marker_tokens.begin(), form_.marker_tokens.end(), text) !=
         form_.marker_tokens.end();
}

bool AnswerParser::is_awaited(std::string_view marker) const {
  using namespace markers;
  const bool is_call = may_call_ && ((format_ == ToolFormat::kHermes && marker == kToolCall) ||
                                     (format_ == ToolFormat::kMistral && marker == kToolCalls));
  switch (at_) {
    case At::kStart:
      return is_call || (form_.reasons && !has_thought_ && marker == kThink) ||
             (may_call_ && format_ == ToolFormat::kLlama && marker == kPythonTag);
    case At::kThinking:
      return marker == kEndThink;
    case At::kText:
      return is_call;
    case At::kCallNext:
    case At::kBroken:
      return is_call || (format_ == ToolFormat::kHermes && marker == kEndToolCall);
    case At::kName:
      return marker == kCallId || marker == kArgs;
    case At::kCallId:
      return marker == kArgs;
    case At::kObject:  // its end marker comes too early
      return format_ == ToolFormat::kHermes && marker == kEndToolCall && !object_.is_in_string();
    case At::kCalls:
    case At::kArguments:
    case At::kListNext:
      return false;
  }
  return false;
}

// Reads what is pending, but for what may become a marker that is no token.
void AnswerParser::drain(bool is_end) {
  std::size_t n = 0;
  while (n < pending_.size()) {
    const std::string_view rest = std::string_view(pending_).substr(n);
    std::string_view whole;
    bool may_become = false;
    for (const std::string_view marker : kMarkers) {
      if (!is_awaited(marker) || is_marker_token(marker)) continue;
      if (rest.starts_with(marker)) whole = marker;
      if (marker.starts_with(rest)) may_become = true;
    }
    if (!whole.empty()) {
      on_marker(whole);
      n += whole.size();
    } else if (may_become && !is_end) {
      break;
    } else {
      on_byte(rest.front());
      ++n;
    }
  }
  pending_.erase(0, n);
}

void AnswerParser::on_marker(std::string_view marker) {
  using namespace markers;
  if (marker == kThink) {
    drop_space();
    at_ = At::kThinking;
    skips_space_ = true;
  } else if (marker == kEndThink) {
    drop_space();
    has_thought_ = true;
    at_ = At::kStart;
    skips_space_ = true;
  } else if (marker == kPythonTag) {
    drop_space();
  } else if (marker == kToolCall || marker == kToolCalls) {
    raw_ = marker;
    if (marker == kToolCall)
      start_object(At::kCallNext);
    else
      at_ = At::kCalls;
  } else if (marker == kEndToolCall) {
    if (at_ == At::kObject) raw_ += marker, end_early();
    drop_space();
    leave_call(At::kText);
  } else if (marker == kCallId) {
    raw_ += marker;
    at_ = At::kCallId;
  } else if (marker == kArgs) {
    raw_ += marker;
    arguments_ = {};
    at_ = At::kArguments;
  }
}

void AnswerParser::on_byte(char byte) {
  switch (at_) {
    case At::kStart:
      if (may_call_ && format_ == ToolFormat::kLlama && byte == '{') {
        start_object(At::kCallNext);
        return on_object(byte);
      }
      if (!is_json_space(byte)) at_ = At::kText;
      return on_text(byte);
    case At::kThinking:
    case At::kText:
    case At::kBroken:
      return on_text(byte);
    case At::kObject:
      return on_object(byte);
    case At::kCalls:
    case At::kListNext:
      raw_ += byte;
      if (is_json_space(byte)) return;
      if (byte == '[' && at_ == At::kCalls) return start_object(At::kListNext);
      if (byte == ',' && at_ == At::kListNext) return start_object(At::kListNext);
      if (byte == '{' && at_ == At::kCalls) {
        raw_.pop_back();
        start_object(At::kCallNext);
        return on_object(byte);
      }
      if (at_ == At::kListNext && byte == ']') return leave_call(At::kCallNext);
      if (at_ == At::kListNext) return break_call(byte);
      name_.assign(1, byte);
      at_ = At::kName;
      return;
    case At::kName:
      raw_ += byte;
      name_ += byte;
      if (byte == '\n' || byte == '{' || name_.size() > kMaxCallNameBytes) give_up_call();
      return;
    case At::kCallId:
      raw_ += byte;
      return;
    case At::kArguments:
      return on_arguments(byte);
    case At::kCallNext:
      if (is_json_space(byte)) return;
      if (format_ == ToolFormat::kLlama && byte == ';') {
        raw_ = byte;
        return start_object(At::kCallNext);
      }
      at_ = format_ == ToolFormat::kHermes ? At::kBroken : At::kText;
      return on_text(byte);
  }
}

void AnswerParser::on_text(char byte) {
  if (is_json_space(byte)) {
    if (!skips_space_) space_ += byte;
    return;
  }
  skips_space_ = false;
  const std::string_view one(&byte, 1);
  if (at_ == At::kThinking)
    think(one);
  else
    text(one);
}

void AnswerParser::start_object(At after) {
  object_ = {};
  after_object_ = after;
  has_begun_call_ = false;
  at_ = At::kObject;
}

void AnswerParser::on_object(char byte) {
  if (!has_begun_call_) raw_ += byte;
  const auto state = object_.feed(byte);
  const bool has_name = object_.name() && is_tool(*object_.name());
  // An object without arguments calls nothing where calls have no marker.
  const bool is_call =
      has_name && (object_.has_arguments() ||
                   (state == CallObject::State::kWhole && format_ != ToolFormat::kLlama));
  if (is_call && !has_begun_call_) begin_call(*object_.name());
  if (has_begun_call_) {
    std::string more = object_.take_arguments();
    if (!object_.has_arguments()) more = "{}";
    if (!more.empty()) events_->add(CallArguments{n_calls_, std::move(more)});
  }
  if (state == CallObject::State::kOpen) return;
  if (!has_begun_call_) return give_up_call();
  const bool is_whole = state == CallObject::State::kWhole;
  if (is_whole || object_.arguments_are_whole()) end_call();
  if (!is_whole) return break_call(byte);
  at_ = after_object_;
}

void AnswerParser::on_arguments(char byte) {
  if (!has_begun_call_) {
    raw_ += byte;
    if (is_json_space(byte)) return;
    name_.erase(name_.find_last_not_of(" \t") + 1);
    if (byte != '{' || !is_tool(name_)) return give_up_call();
    begin_call(name_);
  }
  std::string json = arguments_.as_json(byte);
  const auto says = arguments_.feed(byte);
  if (says == JsonValueEnd::Says::kBroken) return break_call(byte);
  events_->add(CallArguments{n_calls_, std::move(json)});
  if (says != JsonValueEnd::Says::kLast) return;
  end_call();
  at_ = At::kCallNext;
}

void AnswerParser::begin_call(const std::string& name) {
  drop_space();
  raw_.clear();
  has_begun_call_ = true;
  events_->add(CallBegin{n_calls_, call_id(format_, rules_.key, n_calls_), name});
}

void AnswerParser::end_call() {
  events_->add(CallEnd{n_calls_});
  leave_call(At::kCallNext);
}

// An object whose last bracket is missing is a call if its arguments are there.
void AnswerParser::end_early() {
  if (!has_begun_call_)
    give_up_call();
  else if (at_ == At::kObject && object_.arguments_are_whole())
    end_call();
}

void AnswerParser::leave_call(At next) {
  // One that broke has its number, too: clients join what has one number.
  if (std::exchange(has_begun_call_, false)) ++n_calls_;
  raw_.clear();
  skips_space_ = true;
  at_ = next;
}

// What follows is text, from the byte on that cannot be read.
void AnswerParser::break_call(char byte) {
  leave_call(At::kBroken);
  on_text(byte);
}

void AnswerParser::give_up_call() {
  at_ = At::kText;
  skips_space_ = false;
  text(std::exchange(raw_, {}));
}

// Where a marker says that it is a call, the name is the model's own, unless the request lists what
// may be called.
bool AnswerParser::is_tool(std::string_view name) const {
  if (name.empty()) return false;
  if (format_ != ToolFormat::kLlama && !rules_.checks_names) return true;
  return std::find(rules_.tool_names.begin(), rules_.tool_names.end(), name) !=
         rules_.tool_names.end();
}

void AnswerParser::drop_space() {
  space_.clear();
  close_tokens_before();
}

// The tokens before the one that is read are no text.
void AnswerParser::close_tokens_before() {
  if (n_tokens_ > 0) open_from_ = std::max(open_from_, n_tokens_ - 1);
}

void AnswerParser::text(std::string_view text) {
  TextEvent event{std::exchange(space_, {})};
  event.text += text;
  if (event.text.empty()) return;
  while (open_from_ < n_tokens_) event.tokens.push_back(open_from_++);
  events_->add(std::move(event));
}

void AnswerParser::think(std::string_view text) {
  close_tokens_before();
  std::string all = std::exchange(space_, {});
  all += text;
  events_->add(ThinkingEvent{std::move(all)});
}

}  // namespace foretoken::edge
