#include "services/edge/answer_events.h"

#include <algorithm>
#include <utility>

#include "common/base/hash.h"
#include "common/wire/client_codec.h"
#include "services/edge/answer_parser.h"

namespace foretoken::edge {
namespace {

// The texts of two events of one kind are one text.
bool joins(AnswerEvent& last, const AnswerEvent& event) {
  if (last.index() != event.index()) return false;
  if (auto* text = std::get_if<TextEvent>(&last)) {
    const auto& more = std::get<TextEvent>(event);
    text->text += more.text;
    text->tokens.insert(text->tokens.end(), more.tokens.begin(), more.tokens.end());
    return true;
  }
  if (auto* thinking = std::get_if<ThinkingEvent>(&last)) {
    thinking->text += std::get<ThinkingEvent>(event).text;
    return true;
  }
  auto* arguments = std::get_if<CallArguments>(&last);
  if (arguments == nullptr || arguments->index != std::get<CallArguments>(event).index)
    return false;
  arguments->text += std::get<CallArguments>(event).text;
  return true;
}

}  // namespace

void AnswerEvents::add(AnswerEvent event) {
  if (list_.empty() || !joins(list_.back(), event)) list_.push_back(std::move(event));
}

void AnswerEvents::add(const AnswerEvents& more) {
  for (const AnswerEvent& event : more.list_) add(event);
}

AnswerReader::AnswerReader(AnswerRules rules) : rules_(std::move(rules)) {}
AnswerReader::~AnswerReader() = default;
AnswerReader::AnswerReader(AnswerReader&&) noexcept = default;

std::uint32_t AnswerReader::n_reasoning_tokens() const {
  return parser_ ? parser_->n_reasoning_tokens() : 0;
}

std::string AnswerReader::finish_reason(const wire::ClientReply& reply) const {
  const bool is_cut = reply.finish_reason == "length" && !is_complete();
  return n_calls_ > 0 && !is_cut ? "tool_calls" : reply.finish_reason;
}

void AnswerReader::take_form(const wire::AnswerForm& form, AnswerEvents& events) {
  const bool has_calls = rules_.may_call && form.tool_format != "none" && !form.tool_format.empty();
  if (!has_calls && !form.reasons) return;
  parser_ = std::make_unique<AnswerParser>(rules_, form);
  parser_->begin(form.begun, events);
}

void AnswerReader::take(const std::string& text,
                        const std::vector<TokenId>& tokens,
                        const std::vector<std::uint32_t>& ends) {
  text_ += text;
  if (ends.size() == tokens.size())
    ends_.insert(ends_.end(), ends.begin(), ends.end());
  else  // of a tokenizer that does not say it
    ends_.insert(ends_.end(), tokens.size(), static_cast<std::uint32_t>(n_read_ + text_.size()));
}

// All is text. Tokens that have none yet, as bytes of a character, wait for it.
void AnswerReader::add_text(const std::string& text, std::size_t n_tokens, AnswerEvents& events) {
  n_tokens_ += static_cast<std::uint32_t>(n_tokens);
  if (text.empty()) return;
  TextEvent event{text};
  while (n_named_ < n_tokens_) event.tokens.push_back(n_named_++);
  events.add(std::move(event));
}

void AnswerReader::read_tokens(AnswerEvents& events) {
  const std::string_view text = text_;
  std::size_t at = 0;
  auto next = ends_.begin();
  for (; next != ends_.end() && *next <= n_read_ + text.size(); ++next) {
    const std::size_t end = std::max<std::size_t>(n_read_ + at, *next) - n_read_;
    parser_->token(text.substr(at, end - at), events);
    at = end;
  }
  ends_.erase(ends_.begin(), next);
  text_.erase(0, at);
  n_read_ += at;
}

AnswerEvents AnswerReader::on_piece(const wire::ClientPiece& piece) {
  AnswerEvents events;
  if (piece.form) take_form(*piece.form, events);
  if (!parser_) {
    add_text(piece.text, piece.token_ids.size(), events);
    return events;
  }
  take(piece.text, piece.token_ids, piece.token_ends);
  read_tokens(events);
  return kept(events);
}

AnswerEvents AnswerReader::on_reply(const wire::ClientReply& reply) {
  AnswerEvents events;
  if (reply.form) take_form(*reply.form, events);
  if (!parser_) {
    add_text(reply.text, reply.token_ids.size(), events);
    return events;
  }
  take(reply.text, reply.token_ids, reply.token_ends);
  // A stop string has taken the end of the last tokens' text.
  for (auto& end : ends_) end = std::min(end, static_cast<std::uint32_t>(n_read_ + text_.size()));
  read_tokens(events);
  if (!text_.empty()) parser_->token(std::exchange(text_, {}), events);
  parser_->end(events);
  return kept(events);
}

// Counts calls, and leaves out what follows the first where the request wants one.
AnswerEvents AnswerReader::kept(const AnswerEvents& events) {
  AnswerEvents kept;
  for (const AnswerEvent& event : events.list()) {
    if (is_complete()) break;
    if (std::holds_alternative<CallEnd>(event)) ++n_calls_;
    kept.add(event);
  }
  return kept;
}

std::uint64_t answer_key(const wire::ClientRequest& request) {
  wire::ClientRequest same = request;
  const wire::ClientRequest standard;
  same.stream = standard.stream;
  same.num_draft_tokens = standard.num_draft_tokens;
  same.proposer = standard.proposer;
  same.adaptive = standard.adaptive;
  same.prediction.clear();
  same.request_id.reset();
  same.tenant.clear();
  same.priority = standard.priority;
  same.timeout_ms = standard.timeout_ms;
  wire::GivenKeys given;
  for (const std::string& key : wire::request_keys())
    if (request.given.contains(key) && key != "stream" && key != "num_draft_tokens" &&
        key != "proposer" && key != "adaptive" && key != "prediction" && key != "tenant" &&
        key != "priority" && key != "timeout_ms")
      given.insert(key);
  same.given = given;
  return fnv1a(wire::write_client_request(same));
}

}  // namespace foretoken::edge
