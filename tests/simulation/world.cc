#include "tests/simulation/world.h"

#include <algorithm>

#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/tokenizer/stream_decoder.h"
#include "services/router/request_table.h"
#include "tests/support/plain_decode.h"

namespace foretoken::test {

World::World(std::uint64_t seed)
    : network_(clock_, seed), dice_(seed), backend_(make_backend({.n_threads = 1})) {
  configure_log(LogLevel::kError, LogFormat::kText, "simulation");
  clock_.set(TimePoint{} + std::chrono::hours(1));
  folder_.write("tokenizer.json", tokenizer_json());
  folder_.write("tokenizer_config.json",
                R"({"tokenizer_class":"PreTrainedTokenizerFast","eos_token":"<|end|>"})");
  tokenizer_ = value_or_throw(Tokenizer::load(folder_.path()));
}

World::~World() { hosts_.clear(); }

// ---- processes

World::Counts World::counts_of_running_router() const {
  const auto it = hosts_.find("router");
  if (it == hosts_.end()) return {};
  const auto& counters =
      static_cast<RouterProgram&>(it->second->program()).router.table().counters();
  return {counters.migrated, counters.replayed, counters.joined, it->second->n_lost_series()};
}

World::Counts World::counts() const {
  const Counts running = counts_of_running_router();
  return {counts_.migrated + running.migrated, counts_.replayed + running.replayed,
          counts_.joined + running.joined, counts_.cut + running.cut};
}

std::uint64_t World::sent_beside() const {
  std::uint64_t sum = 0;
  for (const auto& [name, host] : hosts_)
    if (name.starts_with("target"))
      sum += static_cast<const TargetProgram&>(host->program()).drafts.counters().sent_beside;
  return sum;
}

std::vector<std::string> World::names() const {
  std::vector<std::string> names;
  for (const auto& [name, host] : hosts_) names.push_back(name);
  return names;
}

void World::start(const std::string& name) {
  crash(name);
  const std::string role = name.substr(0, name.find('-'));
  const wire::Speaker me(WorkerId{fnv1a(name)}, Incarnation{++n_lives_});
  const Ground ground{*tokenizer_, *backend_};
  const Settings& settings = settings_[name];
  auto host = std::make_unique<Host>(
      clock_, network_, name, std::chrono::microseconds(dice_() % 3'600'000'000), client_limits_);
  std::unique_ptr<Program> program;
  if (role == "router") program = std::make_unique<RouterProgram>(me, rules_);
  if (role == "tokenizer") program = std::make_unique<TokenizerProgram>(me, name, ground);
  if (role == "draft") program = std::make_unique<DraftProgram>(me, name, ground, settings, *host);
  if (role == "memory") program = std::make_unique<MemoryProgram>(me, name, ground, settings);
  if (role == "target")
    program = std::make_unique<TargetProgram>(me, name, ground, settings, *host);
  host->run(std::move(program));
  hosts_[name] = std::move(host);
}

void World::crash(const std::string& name) {
  if (name == "router") counts_ = counts();
  hosts_.erase(name);
}

// ---- time

void World::turn(TimePoint at_most) {
  // Of what is due at one time events go first, then hosts by name, then actors.
  TimePoint next = at_most;
  Host* host = nullptr;
  Actor* actor = nullptr;
  for (const auto& [name, one] : hosts_)
    if (const auto due = one->due(); due && *due < next) next = *due, host = one.get();
  for (Actor* one : actors_)
    if (one->due() < next) next = one->due(), actor = one;
  if (!events_.empty() && events_.begin()->first <= next) {
    clock_.set(std::max(clock_.now(), events_.begin()->first));
    const auto what = std::move(events_.begin()->second);
    events_.erase(events_.begin());
    return what();
  }
  clock_.set(std::max(clock_.now(), next));
  if (actor != nullptr) return actor->act();
  if (host != nullptr) host->go_on();
}

bool World::run_until(const std::function<bool()>& done, Duration at_most) {
  const TimePoint end = clock_.now() + at_most;
  while (!done()) {
    if (clock_.now() >= end) return false;
    turn(end);
  }
  return true;
}

// ---- the truth

World::Reference World::reference(const wire::ClientRequest& request, RequestId id) const {
  ScriptedModel model(target_text());
  OpenRequest plain{.seq = SeqId{1}, .params = request.params};
  plain.prompt = *tokenizer_->encode(request.prompt, AddSpecialTokens::kYes);
  if (!request.given.contains("seed")) plain.params.seed = seed_of(id);
  PlainAnswer answer = plain_decode(model, *backend_, plain, kMaxLen);
  StreamDecoder decoder(
      *tokenizer_,
      {.stop = request.stop, .ends = ending_tokens(plain.params, model.config().eos_token_ids)});
  Reference reference;
  if (plain.params.n_prompt_logprobs >= 0)
    reference.prompt.push_back({.token_id = plain.prompt.front()});
  for (std::size_t i = 0; i < answer.prompt_logprobs.size(); ++i) {
    const TokenLogprobs& one = answer.prompt_logprobs[i];
    reference.prompt.push_back(
        {.token_id = plain.prompt[i + 1],
         .logprob = static_cast<double>(one.logprob),
         .top_ids = one.top_ids,
         .top_logprobs = {one.top_logprobs.begin(), one.top_logprobs.end()}});
  }
  for (std::size_t i = 0; i < answer.ids.size(); ++i) {
    const StreamDecoder::Piece piece = decoder.push(answer.ids[i]);
    reference.ids.push_back(answer.ids[i]);
    reference.text += piece.text;
    if (!piece.stopped) continue;
    reference.finish_reason = "stop";
    return reference;
  }
  reference.text += decoder.finish().text;
  reference.finish_reason = answer.reason == FinishReason::kStop ? "stop" : "length";
  return reference;
}

}  // namespace foretoken::test
