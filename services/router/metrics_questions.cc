#include "services/router/metrics_questions.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include "common/messages/limits.h"
#include "common/wire/client_codec.h"
#include "services/router/cut_passes.h"
#include "services/router/merge_metrics.h"

namespace foretoken {
namespace {

constexpr Duration kMetricsPatience = std::chrono::milliseconds(500);
constexpr std::size_t kMaxQuestions = 64;
// The part of an answer, less its other keys.
constexpr std::size_t kMaxListBytes = wire::kMaxInternalPartBytes - 1024;

wire::ServicePasses passes_of(const wire::Hello& hello, wire::Passes all) {
  return {.role = std::string(name_of(hello.role)),
          .name = hello.name,
          .model = hello.model_name,
          .passes = std::move(all)};
}

// Passes are those of models.
bool has_some(wire::Role role, MetricsAsked what) {
  return what == MetricsAsked::kMetrics || role == wire::Role::kTarget ||
         role == wire::Role::kDraft;
}

}  // namespace

bool MetricsQuestions::has_room() const { return open_.size() < kMaxQuestions; }

void MetricsQuestions::submit(const MetricsQuestion& question,
                              RequestId own,
                              std::string own_text,
                              TimePoint now,
                              Actions& out) {
  if (!has_room()) {
    const Error error{ErrorCode::kQueueFull, "too many questions for metrics at a time"};
    out.push_back(ToClient{.peer = question.peer,
                           .request = question.id,
                           .answer = wire::client_error(question.id, error, 500)});
    return;
  }
  Open& open = open_[own];
  open = {.by = question, .until = now + kMetricsPatience};
  if (question.what == MetricsAsked::kMetrics) open.texts.push_back(std::move(own_text));
  const wire::MetricsRequest request{.passes = question.what == MetricsAsked::kPasses};
  for (const wire::Role role : kWorkerRoles) {
    if (!has_some(role, question.what)) continue;
    for (const Worker* worker : pool_.alive(role)) {
      open.awaited.insert(worker->id);
      out.push_back(ToWorker{.worker = worker->id, .request = own, .message = request});
    }
  }
  if (open.awaited.empty()) finish(own, out);
}

void MetricsQuestions::on_reply(const Worker& from,
                                RequestId own,
                                wire::MetricsReply reply,
                                Actions& out) {
  // A late reply, too, is better than the one before it.
  if (!reply.text.empty()) last_[from.id] = {from.incarnation, reply.text};
  const auto it = open_.find(own);
  if (it == open_.end() || it->second.awaited.erase(from.id) == 0) return;
  if (it->second.by.what == MetricsAsked::kPasses)
    it->second.passes.push_back(passes_of(from.hello, std::move(reply.passes)));
  else
    it->second.texts.push_back(std::move(reply.text));
  if (it->second.awaited.empty()) finish(own, out);
}

void MetricsQuestions::worker_lost(WorkerId worker, Actions& out) {
  last_.erase(worker);
  for (auto it = open_.begin(); it != open_.end();) {
    const auto at = it++;
    if (at->second.awaited.erase(worker) > 0 && at->second.awaited.empty()) finish(at->first, out);
  }
}

TimePoint MetricsQuestions::tick(TimePoint now, Actions& out) {
  TimePoint due = TimePoint::max();
  for (auto it = open_.begin(); it != open_.end();) {
    const auto at = it++;
    due = std::min(due, at->second.until);
    if (now >= at->second.until) finish(at->first, out);
  }
  return due;
}

void MetricsQuestions::add_last_texts(Open& question) const {
  for (const WorkerId id : question.awaited) {
    const auto last = last_.find(id);
    const Worker* worker = pool_.find(id);
    if (last != last_.end() && worker != nullptr && worker->incarnation == last->second.incarnation)
      question.texts.push_back(last->second.text);
  }
}

void MetricsQuestions::finish(RequestId own, Actions& out) {
  auto node = open_.extract(own);
  if (node.empty()) return;
  Open& question = node.mapped();
  const auto answer = [&](wire::ClientAnswer reply) {
    out.push_back(
        ToClient{.peer = question.by.peer, .request = question.by.id, .answer = std::move(reply)});
  };
  const auto refuse = [&](const std::string& what, std::size_t n_services, std::size_t n_bytes) {
    answer(wire::client_error(
        question.by.id,
        {ErrorCode::kInternal, what + " of " + std::to_string(n_services) + " services have " +
                                   std::to_string(n_bytes) + " bytes; the limit of an answer is " +
                                   std::to_string(kMaxListBytes)},
        0));
  };
  if (question.by.what == MetricsAsked::kPasses) {
    const std::size_t n_services = question.passes.size();
    const std::size_t n_bytes = cut_passes(question.passes, kMaxListBytes);
    if (n_bytes > kMaxListBytes) return refuse("the passes", n_services, n_bytes);
    return answer(wire::PassesReply{.id = wire::hex_of(question.by.id),
                                    .passes = std::move(question.passes)});
  }
  add_last_texts(question);
  std::string text = merge_metrics(question.texts);
  if (text.size() > kMaxListBytes) return refuse("the metrics", question.texts.size(), text.size());
  answer(wire::MetricsText{.id = wire::hex_of(question.by.id), .metrics_text = std::move(text)});
}

}  // namespace foretoken
