#include "services/router/token_questions.h"

#include <algorithm>
#include <utility>

#include "common/messages/limits.h"
#include "common/wire/client_codec.h"
#include "services/router/placement.h"

namespace foretoken {
namespace {

// Tokens are checked by having them "encoded": then only those of the vocabulary are decoded.
wire::Encode encode_of(const wire::ClientRequest& request, FlowId flow) {
  return {.kind = request.prompt_kind,
          .text = request.prompt_kind == wire::PromptKind::kMessages
                      ? wire::messages_json(request.messages)
                      : request.prompt,
          .tokens = request.token_ids,
          .add_special_tokens = request.add_special_tokens,
          .add_generation_prompt = request.add_generation_prompt,
          .flow = flow,
          .variables = wire::variables_json(request),
          .tool_choice = wire::tool_choice_of(request),
          .tool_name = request.tool_name,
          .continue_final_message = request.continue_final_message,
          .without_thinking = !constraint_key(request.params).empty()};
}

constexpr double kLeastCost = 256;  // bytes: a message costs something, too

std::size_t size_of(const wire::ClientRequest& request) {
  std::size_t n = request.prompt.size() + request.token_ids.size() * sizeof(TokenId);
  n += request.tools.text.size() + request.chat_template_kwargs.text.size();
  n += request.params.json_schema.size() + request.params.regex.size() + request.params.gbnf.size();
  for (const auto& message : request.messages)
    n += message.role.size() + message.content.size() + message.extra.text.size();
  return n;
}

}  // namespace

void TokenQuestions::submit(const Peer& peer,
                            FlowId flow,
                            RequestId id,
                            RequestId own,
                            wire::ClientRequest request,
                            TimePoint now,
                            Actions& out) {
  const std::size_t bytes = size_of(request);
  const FlowQuestions held = held_.contains(flow) ? held_.at(flow) : FlowQuestions{};
  if (held.open + 1 > rules_.max_open - open_.size() ||
      held.bytes + bytes > rules_.max_bytes - bytes_) {
    out.push_back(ToClient{
        peer, id,
        wire::client_error(
            id,
            {ErrorCode::kQueueFull,
             "the router holds " + std::to_string(open_.size()) + " questions for tokens with " +
                 std::to_string(bytes_) + " bytes, of this tenant or connection " +
                 std::to_string(held.open) + " with " + std::to_string(held.bytes) +
                 "; one may hold as much as is free of " + std::to_string(rules_.max_open) +
                 " with " + std::to_string(rules_.max_bytes) + " bytes"},
            500)});
    return;
  }
  if (open_.contains(own)) return;
  if (request.model == kDefaultModel) request.model.clear();
  Question question{
      .peer = peer, .id = id, .flow = flow, .bytes = bytes, .request = std::move(request)};
  const Duration said = std::chrono::milliseconds(question.request.timeout_ms);
  question.until = now + (said > Duration{0} ? said : rules_.timeout);
  waiting_.push({.id = own,
                 .flow = flow,
                 .priority = question.request.priority,
                 .cost = kLeastCost + static_cast<double>(bytes)});
  open_.emplace(own, std::move(question));
  FlowQuestions& now_held = held_[flow];
  ++now_held.open;
  now_held.bytes += bytes;
  bytes_ += bytes;
  ask_next(now, out);
}

// As many as each client may have at a tokenizer; clients take turns.
void TokenQuestions::ask_next(TimePoint now, Actions& out) {
  const auto fits = [&](const FairQueue::Item& item) {
    const FlowQuestions& held = held_.at(item.flow);
    return held.asked == 0 ||
           (held.asked < rules_.max_asked &&
            held.asked_bytes + open_.at(item.id).bytes <= rules_.max_asked_bytes);
  };
  while (const auto next = waiting_.take(fits)) {
    Entry& entry = *open_.find(next->id);
    FlowQuestions& held = held_.at(next->flow);
    ++held.asked;
    held.asked_bytes += entry.second.bytes;
    entry.second.asked = true;
    entry.second.patience = now + rules_.patience;
    ask(entry, now, out);
  }
}

// The model that is meant. Without targets the models are those of the tokenizers.
Result<std::optional<std::string>> TokenQuestions::model_of(const Question& question,
                                                            TimePoint now) const {
  if (!question.request.model.empty()) return std::optional(question.request.model);
  auto models = pool_.models(now);
  if (models.empty()) {
    auto tokenizers = pool_.ready(wire::Role::kTokenizer);
    if (tokenizers.empty()) tokenizers = pool_.draining(wire::Role::kTokenizer);
    for (const Worker* tokenizer : tokenizers) models.push_back(&tokenizer->hello);
  }
  return settled_model_without(pool_, models, rules_.default_model, rules_.only_model);
}

// A tokenizer of what the model's target has; without a target, of what one that bears its name
// has.
Result<std::optional<WorkerId>> TokenQuestions::place(const std::string& model,
                                                      std::optional<WorkerId> not_this,
                                                      TimePoint now) const {
  auto models = pool_.models(now);
  for (const auto& tokenizers :
       {pool_.ready(wire::Role::kTokenizer), pool_.draining(wire::Role::kTokenizer)})
    for (const Worker* tokenizer : tokenizers) models.push_back(&tokenizer->hello);
  const auto meant = std::find_if(models.begin(), models.end(), [&](const wire::Hello* each) {
    return answers_to(*each, model);
  });
  if (meant != models.end()) {
    const wire::Fingerprints& of_model = (*meant)->fingerprints;
    return place_tokenizer(pool_, {.vocabulary = of_model.vocabulary, .text = of_model.text},
                           not_this);
  }
  if (models.empty() || !pool_.all_here()) return std::optional<WorkerId>();
  return Error{ErrorCode::kModelNotFound,
               "model \"" + model + "\" is not served; there is " + names_of(models), "model"};
}

Result<std::optional<WorkerId>> TokenQuestions::choose(Question& question, TimePoint now) const {
  auto model = model_of(question, now);
  if (!model.ok()) return model.error();
  if (!*model) return std::optional<WorkerId>();
  question.request.model = **model;  // settled once, as a request's is
  return place(**model, question.tokenizer, now);
}

void TokenQuestions::ask(Entry& entry, TimePoint now, Actions& out) {
  auto& [own, question] = entry;
  question.interval = longer_silence(question.interval, rules_.silence);
  question.again = now + question.interval;
  const Worker* same = question.tokenizer ? pool_.find(*question.tokenizer) : nullptr;
  const bool stays =
      question.acknowledged && same != nullptr && same->state != wire::WorkerState::kGone;
  if (question.acknowledged) question.patience = now + rules_.patience;
  auto chosen = stays ? Result<std::optional<WorkerId>>(question.tokenizer) : choose(question, now);
  if (!chosen.ok()) return answer(own, wire::client_error(question.id, chosen.error(), 0), out);
  if (question.tokenizer != *chosen) forget_at_tokenizer(entry, out);
  question.tokenizer = *chosen;
  if (!*chosen && !pool_.all_here())
    question.again = std::min(question.again, pool_.all_here_after(now));
  question.acknowledged = false;
  if (*chosen) out.push_back(ToWorker{**chosen, own, encode_of(question.request, question.flow)});
}

void TokenQuestions::forget_at_tokenizer(const Entry& entry, Actions& out) const {
  if (entry.second.tokenizer)
    out.push_back(ToWorker{*entry.second.tokenizer, entry.first,
                           wire::StreamClose{.reason = CloseReason::kCancelled}});
}

void TokenQuestions::answer(RequestId own, wire::ClientAnswer answer, Actions& out) {
  const auto it = open_.find(own);
  out.push_back(ToClient{.peer = it->second.peer,
                         .request = it->second.id,
                         .answer = std::move(answer),
                         .is_accepted = true});
  erase(it);
}

void TokenQuestions::erase(std::map<RequestId, Question>::iterator it) {
  const Question& question = it->second;
  FlowQuestions& held = held_.at(question.flow);
  bytes_ -= question.bytes;
  held.bytes -= question.bytes;
  if (question.asked) {
    --held.asked;
    held.asked_bytes -= question.bytes;
  }
  waiting_.erase(it->first);
  if (--held.open == 0) held_.erase(question.flow);
  open_.erase(it);
}

void TokenQuestions::give_up(RequestId own, const Error& error, TimePoint now, Actions& out) {
  const auto it = open_.find(own);
  if (it == open_.end()) return;
  forget_at_tokenizer(*it, out);
  answer(own, wire::client_error(it->second.id, error, 0), out);
  ask_next(now, out);
}

bool TokenQuestions::needs(WorkerId worker, TimePoint now) const {
  return std::any_of(open_.begin(), open_.end(), [&](const auto& entry) {
    const Question& question = entry.second;
    if (question.tokenizer) return question.tokenizer == worker;
    const auto model = model_of(question, now);
    if (!model.ok()) return false;
    if (!*model) return true;  // not known yet: it may be the model of this one
    const auto placed = place(**model, std::nullopt, now);
    return placed.ok() && *placed == worker;
  });
}

void TokenQuestions::fail_all(const Error& error, std::uint32_t retry_after_ms, Actions& out) {
  while (!open_.empty()) {
    const auto& [own, question] = *open_.begin();
    answer(own, wire::client_error(question.id, error, retry_after_ms), out);
  }
}

void TokenQuestions::on_message(RequestId own,
                                const wire::Message& message,
                                TimePoint now,
                                Actions& out) {
  Question& question = open_.at(own);
  if (const auto* opened = std::get_if<wire::Opened>(&message)) {
    question.acknowledged = true;
    question.interval = {};
    question.again = now + silence_behind(opened->n_waiting, rules_.silence.first);
  } else if (const auto* busy = std::get_if<wire::Busy>(&message)) {
    question.acknowledged = true;  // it answered, and has no room
    question.interval = {};
    question.again = now + std::max(rules_.silence.first,
                                    Duration(std::chrono::milliseconds(busy->retry_after_ms)));
  } else if (const auto* encoded = std::get_if<wire::Encoded>(&message)) {
    if (question.request.op == wire::ClientOp::kTokenize) {
      answer(own,
             wire::TokensReply{.id = wire::hex_of(question.id),
                               .token_ids = encoded->tokens,
                               .n_tokens = static_cast<std::uint32_t>(encoded->tokens.size())},
             out);
      return ask_next(now, out);
    }
    if (!question.tokenizer) return;
    question.again = now + std::max(rules_.silence.first, question.interval);
    out.push_back(
        ToWorker{*question.tokenizer, own,
                 wire::StreamOpen{.skip_special_tokens = question.request.skip_special_tokens}});
    out.push_back(
        ToWorker{*question.tokenizer, own, wire::Decode{.ids = encoded->tokens, .final = true}});
  } else if (const auto* text = std::get_if<wire::Text>(&message)) {
    if (question.request.op != wire::ClientOp::kDetokenize) return;
    if (!text->final)  // the first of several: one string does not hold it
      return give_up(own,
                     {ErrorCode::kInvalidValue,
                      "the text of token_ids has more than " +
                          std::to_string(wire::kMaxStringBytes) + " bytes, the limit",
                      "token_ids"},
                     now, out);
    const auto n = static_cast<std::uint32_t>(question.request.token_ids.size());
    answer(own,
           wire::TokensReply{.id = wire::hex_of(question.id), .text = text->text, .n_tokens = n},
           out);
    ask_next(now, out);
  } else if (const auto* failed = std::get_if<wire::Failed>(&message)) {
    // Not found: a stream was forgotten between two messages; the silence begins it anew.
    if (failed->code == ErrorCode::kNotFound) return;
    answer(own,
           wire::client_error(question.id, {failed->code, failed->message, failed->param},
                              failed->retry_after_ms),
           out);
    ask_next(now, out);
  }
}

void TokenQuestions::worker_lost(WorkerId worker, TimePoint now, Actions& out) {
  std::vector<RequestId> affected;
  for (auto& [own, question] : open_)
    if (question.tokenizer == worker) {
      question.tokenizer.reset();
      question.interval = {};
      if (question.acknowledged) question.patience = now + rules_.patience;
      question.acknowledged = false;
      affected.push_back(own);
    }
  for (const RequestId own : affected) ask(*open_.find(own), now, out);
}

void TokenQuestions::client_gone(const Peer& peer, TimePoint now, Actions& out) {
  for (auto it = open_.begin(); it != open_.end();) {
    const auto question = it++;
    if (question->second.peer.socket == peer.socket &&
        question->second.peer.routing == peer.routing) {
      forget_at_tokenizer(*question, out);
      erase(question);
    }
  }
  ask_next(now, out);
}

// When something is due: of one that waits here its end, of others its question anew or its end.
TimePoint TokenQuestions::due(const Question& question) {
  if (!question.asked) return question.until;
  const TimePoint until =
      question.acknowledged ? question.until : std::min(question.until, question.patience);
  return std::min(until, question.again);
}

TimePoint TokenQuestions::tick(TimePoint now, Actions& out) {
  std::vector<RequestId> late;
  TimePoint next = TimePoint::max();
  for (const auto& [own, question] : open_)
    if (now >= due(question)) late.push_back(own);
  for (const RequestId own : late) {
    Entry& entry = *open_.find(own);
    const Question& question = entry.second;
    const bool unanswered = question.asked && !question.acknowledged && now >= question.patience;
    if (now < question.until && !unanswered) {
      ask(entry, now, out);
      continue;
    }
    forget_at_tokenizer(entry, out);
    const std::string message =
        unanswered ? "no tokenizer of the model's vocabulary and chat template answers"
                   : "no tokens within timeout_ms or limits.request_timeout_s";
    answer(own,
           wire::client_error(
               question.id,
               {unanswered ? ErrorCode::kUnavailable : ErrorCode::kDeadlineExceeded, message},
               unanswered ? 1000 : 0),
           out);
  }
  ask_next(now, out);
  for (const auto& [own, question] : open_) next = std::min(next, due(question));
  return next;
}

}  // namespace foretoken
