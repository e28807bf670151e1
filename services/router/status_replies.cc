#include "services/router/status_replies.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>

#include "common/messages/named_proposers.h"
#include "common/runtime/process.h"
#include "common/wire/client_codec.h"
#include "services/router/complaints.h"
#include "services/router/model_states.h"

namespace foretoken {
namespace {

constexpr Duration kStatusMoment = std::chrono::milliseconds(50);
constexpr int kFreshStatuses = 16;  // within such a moment
constexpr std::size_t kMaxRefused = 64;
constexpr Duration kRefusedShown = std::chrono::seconds(15);  // a refused worker asks every 5 s

std::string proposer_of(const wire::Hello& hello) {
  if (hello.role != wire::Role::kTarget) return {};
  return names_in(wire::proposers_named(hello.proposer, hello.proposers));
}

wire::ServiceStatus status_of(const Worker& worker, const Pool& pool) {
  const wire::Hello& hello = worker.hello;
  const wire::Heartbeat& load = worker.load;
  return {.role = std::string(name_of(hello.role)),
          .name = hello.name,
          .state = std::string(name_of(worker.state)),
          .endpoint = hello.endpoint,
          .model = hello.model_name,
          .build = hello.build,
          .pid = hello.pid,
          .uptime_s = load.uptime_s,
          .rss_bytes = load.rss_bytes,
          .active = load.active,
          .queued = load.queued,
          .kv_blocks_total = hello.kv_blocks_total,
          .kv_blocks_free = load.kv_blocks_free,
          .tokens_total = load.tokens_total,
          .drafted_total = load.drafted_total,
          .accepted_total = load.accepted_total,
          .note = complaints_about(worker, pool),
          .links = worker.state == wire::WorkerState::kGone ? std::string() : load.links,
          .device = hello.device,
          .dtype = hello.dtype,
          .proposer = proposer_of(hello),
          .draft_len = hello.draft_len,
          .tool_format = hello.tool_format,
          .max_model_len = hello.max_model_len,
          .fingerprint = hello.model_name.empty() ? "" : wire::hex_of(hello.fingerprints.model)};
}

void add_models(wire::StatusReply& reply) {
  for (const wire::ModelStatus& model : reply.model_states) {
    if (model.n_targets == 0) continue;
    reply.models.push_back(model.name);
    std::copy_if(model.aliases.begin(), model.aliases.end(), std::back_inserter(reply.models),
                 [](const std::string& alias) { return !alias.ends_with('*'); });
    reply.ready = reply.ready || model.ready;
  }
  std::sort(reply.models.begin(), reply.models.end());
  reply.models.erase(std::unique(reply.models.begin(), reply.models.end()), reply.models.end());
}

}  // namespace

const wire::StatusReply& StatusReplies::recent(RequestId id,
                                               const RouterState& self,
                                               TimePoint now) {
  if (now >= moment_ + kStatusMoment) {
    moment_ = now;
    n_made_ = 0;
  }
  if (++n_made_ <= kFreshStatuses)
    last_ = make(id, self, now);
  else
    last_.id = wire::hex_of(id);
  return last_;
}

wire::StatusReply StatusReplies::make(RequestId id, const RouterState& self, TimePoint now) const {
  wire::StatusReply reply{.id = wire::hex_of(id)};
  reply.requests_active = static_cast<std::uint32_t>(table_.size());
  reply.requests_total = table_.counters().accepted;
  reply.services.push_back(of_router(self, now));
  for (const Worker* worker : pool_.all()) reply.services.push_back(status_of(*worker, pool_));
  add_refused(reply.services, now);
  reply.model_states = model_states(pool_, options_.rules.default_model, now);
  add_models(reply);
  reply.ready = reply.ready && !self.draining;
  return reply;
}

wire::ServiceStatus StatusReplies::of_router(const RouterState& self, TimePoint now) const {
  return {.role = std::string(name_of(wire::Role::kRouter)),
          .name = options_.name,
          .state = std::string(
              name_of(self.draining ? wire::WorkerState::kDraining : wire::WorkerState::kReady)),
          .endpoint = self.client_endpoint,
          .build = options_.build,
          .pid = static_cast<std::uint64_t>(getpid()),
          .uptime_s = static_cast<std::uint64_t>(
              std::chrono::duration_cast<std::chrono::seconds>(now - self.started).count()),
          .rss_bytes = resident_bytes(),
          .active = static_cast<std::uint32_t>(table_.size()),
          .queued = static_cast<std::uint32_t>(table_.n_waiting()),
          .tokens_total = table_.counters().tokens,
          .drafted_total = table_.counters().drafted,
          .accepted_total = table_.counters().guessed_right};
}

void StatusReplies::add_refused(std::vector<wire::ServiceStatus>& services, TimePoint now) const {
  for (const auto& entry : refused_) {
    const Refused& what = entry.second;
    const auto has_its_name = [&](const Worker* worker) {
      return worker->hello.name == what.hello.name && worker->state != wire::WorkerState::kGone;
    };
    const auto all = pool_.all();
    if (now - what.at > kRefusedShown || std::any_of(all.begin(), all.end(), has_its_name))
      continue;
    std::erase_if(services,
                  [&](const wire::ServiceStatus& s) { return s.name == what.hello.name; });
    services.push_back({.role = std::string(name_of(what.hello.role)),
                        .name = what.hello.name,
                        .state = std::string(name_of(wire::WorkerState::kRefused)),
                        .endpoint = what.hello.endpoint,
                        .model = what.hello.model_name,
                        .build = what.hello.build,
                        .pid = what.hello.pid,
                        .note = what.reason});
  }
}

void StatusReplies::remember_refused(WorkerId id,
                                     const wire::Hello& hello,
                                     const std::string& reason,
                                     TimePoint now) {
  std::erase_if(refused_, [&](const auto& entry) { return now - entry.second.at > kRefusedShown; });
  if (refused_.size() < kMaxRefused || refused_.contains(id)) refused_[id] = {hello, reason, now};
}

}  // namespace foretoken
