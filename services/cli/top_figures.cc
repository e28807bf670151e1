#include "services/cli/top_figures.h"

#include <algorithm>
#include <array>

namespace foretoken::cli {
namespace {

constexpr std::array kPhases{"propose", "transport", "wait", "verify", "commit"};

// The parts that follow one another at a target; what a draft does lies beside them.
constexpr std::array kPartsOfRound{"wait", "verify", "commit"};

Choice phase_of(const std::string& phase) {
  return {"spec_decode_round_seconds", {{"phase", phase}}};
}

std::optional<double> part_of(double part, double whole) {
  if (whole <= 0) return std::nullopt;
  return part / whole;
}

// What a service's own latency is, where it counts one.
std::pair<std::string, Choice> timing_of(const std::string& role) {
  if (role == name_of(wire::Role::kTarget)) return {"verify", phase_of("verify")};
  if (role == name_of(wire::Role::kDraft)) return {"propose", phase_of("propose")};
  if (role == name_of(wire::Role::kRouter))
    return {"token gap", {"inter_token_latency_seconds", {}}};
  return {"", {}};
}

TopService service_of(const wire::ServiceStatus& now,
                      const Growth& growth,
                      const std::vector<MetricSample>& samples,
                      double seconds) {
  const std::string joint = now.note.empty() || now.links.empty() ? "" : "; ";
  TopService service{.role = now.role,
                     .name = now.name,
                     .state = now.state,
                     .model = now.model,
                     .note = now.note + joint + now.links,
                     .rss_bytes = now.rss_bytes,
                     .n_active = now.active,
                     .n_queued = now.queued};
  const std::map<std::string, std::string> own{{"service", now.name}};
  const bool is_counted = std::any_of(samples.begin(), samples.end(), [&](const auto& sample) {
    const auto found = sample.labels.find("service");
    return found != sample.labels.end() && found->second == now.name;
  });
  if (is_counted) {
    service.cpu = part_of(growth.of({"process_cpu_seconds_total", own}), seconds);
    const char* tokens = now.role == name_of(wire::Role::kTarget)  ? "generation_tokens_total"
                         : now.role == name_of(wire::Role::kDraft) ? "draft_tokens_total"
                         : now.role == name_of(wire::Role::kTokenizer)
                             ? "tokenizer_decoded_tokens_total"
                             : nullptr;
    if (tokens != nullptr) service.tokens_per_second = part_of(growth.of({tokens, own}), seconds);
  }
  auto [what, histogram] = timing_of(now.role);
  histogram.labels.insert(own.begin(), own.end());
  service.p50_s = growth.quantile(0.5, histogram);
  service.p99_s = growth.quantile(0.99, histogram);
  if (service.p50_s) service.timed = what;
  return service;
}

TopDraft draft_of(const wire::ServiceStatus& now,
                  const Growth& growth,
                  const std::vector<MetricSample>& samples,
                  double seconds) {
  const std::map<std::string, std::string> own{{"service", now.name}};
  const double guessed = growth.of({"draft_tokens_total", own});
  const auto share_of = [&](const char* name) -> std::optional<double> {
    if (!has_sample(samples, {name, own})) return std::nullopt;
    return part_of(growth.of({name, own}), guessed);
  };
  const Choice kv{"draft_kv_cache_usage_perc", own};
  std::optional<double> kv_used;
  if (has_sample(samples, kv)) kv_used = sum_of(samples, kv);
  Choice propose = phase_of("propose");
  propose.labels.insert(own.begin(), own.end());
  return {.name = now.name,
          .model = now.model,
          .note = now.note,
          .guesses_per_second = seconds > 0 ? guessed / seconds : 0,
          .kept = share_of("draft_tokens_kept_total"),
          .cut = share_of("draft_tokens_cut_total"),
          .kv_used = kv_used,
          .n_sequences = static_cast<std::uint64_t>(sum_of(samples, {"draft_sequences", own})),
          .p50_s = growth.quantile(0.5, propose),
          .p99_s = growth.quantile(0.99, propose)};
}

// Of the targets that have compared.
double mean_gain(const std::vector<MetricSample>& samples) {
  double sum = 0, n = 0;
  for (const auto& sample : samples)
    if (sample.name == "foretoken_spec_decode_asking_gain" && sample.value > 0)
      sum += sample.value, ++n;
  return part_of(sum, n).value_or(0);
}

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end())
    names.push_back(name);
}

void add_rounds(TopFigures& figures, const Growth& growth) {
  figures.n_rounds = growth.of({"spec_decode_num_drafts_total"});
  const double accepted = growth.of({"spec_decode_num_accepted_tokens_total"});
  if (const auto more = part_of(accepted, figures.n_rounds)) figures.tokens_per_round = 1 + *more;
  figures.accepted = part_of(accepted, growth.of({"spec_decode_num_draft_tokens_total"}));
  if (figures.n_rounds > 0)
    for (const auto& [position, n] :
         growth.by("position", {"spec_decode_num_accepted_tokens_per_pos_total"}))
      figures.accepted_by_position.push_back(n / figures.n_rounds);
  for (auto& reason : growth.by("reason", {"spec_decode_fallback_total"}))
    if (reason.second > 0) figures.fallbacks.push_back(std::move(reason));
  for (const char* phase : kPhases) figures.phases.push_back({phase, growth.mean(phase_of(phase))});
  double of_target = 0;
  for (const char* phase : kPartsOfRound)
    of_target += growth.of({"spec_decode_round_seconds_sum", {{"phase", phase}}});
  figures.round_s =
      part_of(of_target, growth.of({"spec_decode_round_seconds_count", {{"phase", "verify"}}}));
}

OrderedJson json_of(const std::optional<double>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson json_of(const TopService& s) {
  return {{"role", s.role},
          {"name", s.name},
          {"state", s.state},
          {"model", s.model},
          {"cpu", json_of(s.cpu)},
          {"rss_bytes", s.rss_bytes},
          {"active", s.n_active},
          {"queued", s.n_queued},
          {"tokens_per_second", json_of(s.tokens_per_second)},
          {"timed", s.timed},
          {"p50_s", json_of(s.p50_s)},
          {"p99_s", json_of(s.p99_s)},
          {"note", s.note}};
}

OrderedJson json_of(const TopDraft& d) {
  return {{"name", d.name},
          {"model", d.model},
          {"guesses_per_second", d.guesses_per_second},
          {"kept", json_of(d.kept)},
          {"cut", json_of(d.cut)},
          {"sequences", d.n_sequences},
          {"kv_used", json_of(d.kv_used)},
          {"p50_s", json_of(d.p50_s)},
          {"p99_s", json_of(d.p99_s)},
          {"note", d.note}};
}

}  // namespace

TopFigures top_figures(const Look& before, const Look& now) {
  const Growth growth(before.samples, now.samples);
  TopFigures figures;
  figures.seconds = std::chrono::duration<double>(now.at - before.at).count();
  figures.ready = now.status.ready;
  double n_used = 0, n_blocks = 0;
  for (const auto& service : now.status.services) {
    if (service.role == name_of(wire::Role::kRouter)) figures.uptime_s = service.uptime_s;
    if (service.role == name_of(wire::Role::kTarget)) {
      add_once(figures.models, service.model);
      n_blocks += service.kv_blocks_total;
      n_used += service.kv_blocks_total - std::min(service.kv_blocks_total, service.kv_blocks_free);
    }
    if (service.role == name_of(wire::Role::kDraft)) {
      add_once(figures.draft_models, service.model);
      figures.drafts.push_back(draft_of(service, growth, now.samples, figures.seconds));
    }
    figures.services.push_back(service_of(service, growth, now.samples, figures.seconds));
  }
  figures.kv_used = part_of(n_used, n_blocks).value_or(0);
  figures.tokens_per_second =
      part_of(growth.of({"generation_tokens_total"}), figures.seconds).value_or(0);
  figures.asking_gain = mean_gain(now.samples);
  figures.n_running = static_cast<std::uint64_t>(sum_of(now.samples, {"num_requests_running"}));
  figures.n_waiting = static_cast<std::uint64_t>(sum_of(now.samples, {"num_requests_waiting"}));
  add_rounds(figures, growth);
  return figures;
}

OrderedJson top_json(const TopFigures& f) {
  OrderedJson document = {{"schema", "foretoken.top/1"},
                          {"seconds", f.seconds},
                          {"ready", f.ready},
                          {"models", f.models},
                          {"draft_models", f.draft_models},
                          {"uptime_s", f.uptime_s},
                          {"tokens_per_second", f.tokens_per_second},
                          {"asking_gain", f.asking_gain},
                          {"running", f.n_running},
                          {"waiting", f.n_waiting},
                          {"kv_used", f.kv_used},
                          {"rounds", f.n_rounds},
                          {"tokens_per_round", json_of(f.tokens_per_round)},
                          {"accepted", json_of(f.accepted)},
                          {"accepted_by_position", f.accepted_by_position},
                          {"round_s", json_of(f.round_s)}};
  document["phases_s"] = OrderedJson::object();
  for (const auto& phase : f.phases) document["phases_s"][phase.name] = json_of(phase.mean_s);
  document["fallbacks"] = OrderedJson::object();
  for (const auto& [reason, n] : f.fallbacks) document["fallbacks"][reason] = n;
  document["services"] = OrderedJson::array();
  for (const auto& service : f.services) document["services"].push_back(json_of(service));
  document["drafts"] = OrderedJson::array();
  for (const auto& draft : f.drafts) document["drafts"].push_back(json_of(draft));
  return document;
}

}  // namespace foretoken::cli
