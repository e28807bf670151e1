#include "services/router/token_questions.h"

#include <algorithm>
#include <utility>

#include "common/wire/client_codec.h"
#include "common/wire/limits.h"
#include "services/router/placement.h"

namespace foretoken {
namespace {

// Tokens are checked by having them "encoded": then only those of the vocabulary are decoded.
wire::Encode encode_of(const wire::ClientRequest& request) {
  return {.kind = request.prompt_kind,
          .text = request.prompt_kind == wire::PromptKind::kMessages ? request.messages_json
                                                                     : request.prompt,
          .tokens = request.token_ids,
          .add_special_tokens = request.add_special_tokens,
          .add_generation_prompt = request.add_generation_prompt};
}

std::size_t size_of(const wire::ClientRequest& request) {
  return request.prompt.size() + request.messages_json.size() +
         request.token_ids.size() * sizeof(TokenId);
}

}  // namespace

void TokenQuestions::submit(const Peer& peer,
                            RequestId id,
                            RequestId own,
                            wire::ClientRequest request,
                            TimePoint now,
                            Actions& out) {
  const std::size_t bytes = size_of(request);
  if (open_.size() >= rules_.max_open || bytes_ + bytes > rules_.max_bytes) {
    out.push_back(ToClient{
        peer, id,
        wire::client_error(id,
                           {ErrorCode::kQueueFull,
                            "the router holds " + std::to_string(open_.size()) +
                                " questions for tokens with " + std::to_string(bytes_) +
                                " bytes; " + std::to_string(rules_.max_open) + " with " +
                                std::to_string(rules_.max_bytes) + " bytes are the most allowed"},
                           500)});
    return;
  }
  Question question{.peer = peer, .id = id, .request = std::move(request)};
  const Duration asked = std::chrono::milliseconds(question.request.timeout_ms);
  question.until = now + (asked > Duration{0} ? std::min(asked, rules_.patience) : rules_.patience);
  const auto [it, is_new] = open_.emplace(own, std::move(question));
  if (!is_new) return;
  bytes_ += bytes;
  ask(*it, now, out);
}

// The tokenizer of the model that is meant; without targets, one that bears its name.
Result<std::optional<WorkerId>> TokenQuestions::choose(Question& question, TimePoint now) const {
  auto tokenizers = pool_.ready(wire::Role::kTokenizer);
  if (tokenizers.empty()) tokenizers = pool_.draining(wire::Role::kTokenizer);
  auto models = pool_.models(now);
  std::string& asked = question.request.model;
  if (models.empty())
    for (const Worker* tokenizer : tokenizers) models.push_back(&tokenizer->hello);
  if (asked.empty()) {  // settled once, as a request's is
    auto meant = model_of_request_without(models, rules_.default_model);
    if (!meant.ok()) return meant.error();
    if (!*meant) return std::optional<WorkerId>();
    asked = **meant;
  }
  for (const Worker* tokenizer : tokenizers) models.push_back(&tokenizer->hello);
  const auto meant = std::find_if(models.begin(), models.end(), [&](const wire::Hello* model) {
    return answers_to(*model, asked);
  });
  if (meant != models.end()) {
    const wire::Fingerprints& of_model = (*meant)->fingerprints;
    return place_tokenizer(tokenizers, {.vocabulary = of_model.vocabulary, .text = of_model.text},
                           question.tokenizer);
  }
  if (models.empty()) return std::optional<WorkerId>();
  return Error{ErrorCode::kModelNotFound,
               "model \"" + asked + "\" is not served; there is " + names_of(models), "model"};
}

void TokenQuestions::ask(Entry& entry, TimePoint now, Actions& out) {
  auto& [own, question] = entry;
  question.interval = std::max(rules_.silence, 2 * question.interval);
  question.again = now + question.interval;
  auto chosen = choose(question, now);
  if (!chosen.ok()) return answer(own, wire::client_error(question.id, chosen.error(), 0), out);
  question.tokenizer = *chosen;
  if (*chosen) out.push_back(ToWorker{**chosen, own, encode_of(question.request)});
}

void TokenQuestions::answer(RequestId own, wire::ClientAnswer answer, Actions& out) {
  const auto it = open_.find(own);
  out.push_back(ToClient{it->second.peer, it->second.id, std::move(answer)});
  erase(it);
}

void TokenQuestions::erase(std::map<RequestId, Question>::iterator it) {
  bytes_ -= size_of(it->second.request);
  open_.erase(it);
}

void TokenQuestions::give_up(RequestId own, const Error& error, Actions& out) {
  if (const auto it = open_.find(own); it != open_.end())
    answer(own, wire::client_error(it->second.id, error, 0), out);
}

bool TokenQuestions::needs(WorkerId worker) const {
  return std::any_of(open_.begin(), open_.end(), [&](const auto& entry) {
    return !entry.second.tokenizer || entry.second.tokenizer == worker;
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
  if (const auto* encoded = std::get_if<wire::Encoded>(&message)) {
    if (question.request.op == wire::ClientOp::kTokenize)
      return answer(own,
                    wire::TokensReply{.id = wire::hex_of(question.id),
                                      .token_ids = encoded->tokens,
                                      .n_tokens = static_cast<std::uint32_t>(encoded->tokens.size())},
                    out);
    if (!question.tokenizer) return;
    question.again = now + question.interval;
    out.push_back(ToWorker{
        *question.tokenizer, own,
        wire::StreamOpen{.skip_special_tokens = question.request.skip_special_tokens}});
    out.push_back(ToWorker{*question.tokenizer, own,
                           wire::Decode{.ids = encoded->tokens, .final = true}});
  } else if (const auto* text = std::get_if<wire::Text>(&message)) {
    if (question.request.op != wire::ClientOp::kDetokenize) return;
    if (!text->final)  // the first of several: one string does not hold it
      return give_up(own,
                     {ErrorCode::kInvalidValue,
                      "the text of token_ids has more than " +
                          std::to_string(wire::kMaxStringBytes) + " bytes, the limit",
                      "token_ids"},
                     out);
    const auto n = static_cast<std::uint32_t>(question.request.token_ids.size());
    answer(own,
           wire::TokensReply{
               .id = wire::hex_of(question.id), .text = text->text, .n_tokens = n},
           out);
  } else if (const auto* failed = std::get_if<wire::Failed>(&message)) {
    // Not found: a stream was forgotten between two messages; the silence begins it anew.
    if (failed->code == ErrorCode::kNotFound) return;
    answer(own,
           wire::client_error(question.id, {failed->code, failed->message, failed->param},
                              failed->retry_after_ms),
           out);
  }
}

void TokenQuestions::worker_lost(WorkerId worker, TimePoint now, Actions& out) {
  std::vector<RequestId> affected;
  for (const auto& [own, question] : open_)
    if (question.tokenizer == worker) affected.push_back(own);
  for (const RequestId own : affected) ask(*open_.find(own), now, out);
}

void TokenQuestions::client_gone(const Peer& peer) {
  for (auto it = open_.begin(); it != open_.end();) {
    const auto question = it++;
    if (question->second.peer.socket == peer.socket &&
        question->second.peer.routing == peer.routing)
      erase(question);
  }
}

TimePoint TokenQuestions::tick(TimePoint now, Actions& out) {
  std::vector<RequestId> due;
  TimePoint next = TimePoint::max();
  for (const auto& [own, question] : open_)
    if (now >= std::min(question.until, question.again)) due.push_back(own);
  for (const RequestId own : due) {
    Entry& entry = *open_.find(own);
    if (now >= entry.second.until)
      answer(own,
             wire::client_error(entry.second.id,
                                {ErrorCode::kUnavailable,
                                 "no tokenizer of the model's vocabulary and chat template answers"},
                                1000),
             out);
    else
      ask(entry, now, out);
  }
  for (const auto& [own, question] : open_)
    next = std::min({next, question.until, question.again});
  return next;
}

}  // namespace foretoken
