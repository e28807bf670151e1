#include "services/cli/metrics_pages.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/runtime/metric_table.h"

namespace foretoken::cli {
namespace {

// ---- the dashboard

struct Curve {
  std::string expr;
  std::string legend;
};
struct Panel {
  std::string title;
  std::string unit;  // as Grafana names it
  std::vector<Curve> curves;
  std::string type = "timeseries";
};
struct Row {
  std::string title;
  std::vector<Panel> panels;
};

constexpr int kPanelWidth = 8, kPanelHeight = 7, kGridWidth = 24;

// Samples of the chosen models; services without one, as the router's own, are left in.
std::string of(const std::string& name, const std::string& more = "") {
  return "foretoken_" + name + "{model_name=~\"$model|\"" + (more.empty() ? "" : "," + more) + "}";
}
std::string rate(const std::string& name, const std::string& more = "") {
  return "rate(" + of(name, more) + "[$__rate_interval])";
}
std::string total_rate(const std::string& name, const std::string& more = "") {
  return "sum(" + rate(name, more) + ")";
}
std::string rate_by(const std::string& label, const std::string& name) {
  return "sum by (" + label + ") (" + rate(name) + ")";
}
std::string mean(const std::string& name, const std::string& more = "") {
  return total_rate(name + "_sum", more) + " / " + total_rate(name + "_count", more);
}
std::string quantile(const std::string& q, const std::string& name) {
  return "histogram_quantile(" + q + ", " + rate_by("le", name + "_bucket") + ")";
}

std::vector<Curve> spread(const std::string& name) {
  return {{quantile("0.5", name), "median"},
          {quantile("0.95", name), "95 %"},
          {quantile("0.99", name), "99 %"}};
}

std::vector<Row> chosen_rows() {
  const std::string accepted = total_rate("spec_decode_num_accepted_tokens_total");
  const std::string drafted = total_rate("spec_decode_num_draft_tokens_total");
  const std::string rounds = total_rate("spec_decode_num_drafts_total");
  const auto phase = [](const std::string& name) {
    return Curve{mean("spec_decode_round_seconds", "phase=\"" + name + "\""), name};
  };
  return {
      {"Speculation",
       {{"Guesses accepted", "percentunit", {{accepted + " / " + drafted, "accepted"}}},
        {"Tokens per round", "short", {{"1 + " + accepted + " / " + rounds, "tokens"}}},
        {"Speed with drafts asked, of that without",
         "short",
         {{of("spec_decode_asking_gain") + " > 0", "{{service}}"}}},
        {"Guesses accepted per second, by position",
         "short",
         {{rate_by("position", "spec_decode_num_accepted_tokens_per_pos_total"), "{{position}}"}},
         "heatmap"},
        {"Where a round's time goes, mean",
         "s",
         {phase("propose"), phase("transport"), phase("wait"), phase("verify"), phase("commit")}},
        {"Rounds without guesses",
         "ops",
         {{rate_by("reason", "spec_decode_fallback_total"), "{{reason}}"}}}}},
      {"Latency",
       {{"Time to first token", "s", spread("time_to_first_token_seconds")},
        {"Between two arrivals of tokens", "s", spread("inter_token_latency_seconds")},
        {"Time per token of an answer", "s", spread("request_time_per_output_token_seconds")},
        {"Whole answer", "s", spread("e2e_request_latency_seconds")},
        {"Waiting for a place", "s", spread("request_queue_time_seconds")},
        {"Prefill and decoding, mean",
         "s",
         {{mean("request_prefill_time_seconds"), "prefill"},
          {mean("request_decode_time_seconds"), "decoding"}}}}},
      {"Load",
       {{"Requests",
         "short",
         {{"sum(" + of("num_requests_running") + ")", "running"},
          {"sum(" + of("num_requests_waiting") + ")", "waiting"}}},
        {"Tokens per second",
         "short",
         {{total_rate("generation_tokens_total"), "generated"},
          {total_rate("prompt_tokens_total"), "prefilled"}}},
        {"Answers per second, by how they ended",
         "ops",
         {{rate_by("finished_reason", "request_success_total"), "{{finished_reason}}"}}},
        {"Requests that were not answered",
         "ops",
         {{total_rate("request_errors_total"), "error"},
          {total_rate("request_refused_total"), "refused"},
          {total_rate("bad_requests_total"), "unreadable"}}},
        {"Tokens of a request, median",
         "short",
         {{quantile("0.5", "request_prompt_tokens"), "prompt"},
          {quantile("0.5", "request_generation_tokens"), "answer"}}}}},
      {"KV cache",
       {{"Blocks in use", "percentunit", {{of("kv_cache_usage_perc"), "{{service}}"}}},
        {"Blocks", "short", {{"sum by (state) (" + of("kv_cache_blocks") + ")", "{{state}}"}}},
        {"Prompt tokens found in the prefix cache",
         "percentunit",
         {{total_rate("prefix_cache_hits_total") + " / " + total_rate("prefix_cache_queries_total"),
           "found"}}},
        {"Preemptions", "ops", {{rate("num_preemptions_total"), "{{service}}"}}}}},
      {"Services",
       {{"Up", "short", {{of("peer_up"), "{{peer}}"}}},
        {"Up for", "s", {{"time() - " + of("process_start_time_seconds"), "{{service}}"}}},
        {"Processors used", "short", {{rate("process_cpu_seconds_total"), "{{service}}"}}},
        {"Memory", "bytes", {{of("process_resident_memory_bytes"), "{{service}}"}}},
        {"Builds",
         "short",
         {{"count by (version, commit, isa) (" + of("build_info") + ")",
           "{{version}} {{commit}} {{isa}}"}}},
        {"Drafts of a target",
         "short",
         {{of("drafts_assigned"), "{{service}} assigned"},
          {of("drafts_aside"), "{{service}} aside"}}},
        {"Moves to another target", "ops", {{total_rate("request_migrations_total"), "moves"}}},
        {"Frames dropped", "ops", {{rate("frames_dropped_total"), "{{service}}"}}},
        {"Log lines dropped", "ops", {{rate("dropped_log_lines_total"), "{{service}}"}}}}}};
}

bool names(const std::string& expr, std::string_view metric) {
  const std::string whole = "foretoken_" + std::string(metric);
  for (std::size_t at = expr.find(whole); at != std::string::npos; at = expr.find(whole, at + 1)) {
    const std::string_view rest = std::string_view(expr).substr(at + whole.size());
    if (rest.starts_with("{") || rest.starts_with("_bucket{") || rest.starts_with("_sum{"))
      return true;
  }
  return false;
}

Panel panel_of(const MetricInfo& info) {
  const std::string name(info.name);
  const bool is_time = info.name.ends_with("_seconds");
  std::string legend = "{{service}}";
  for (std::size_t begin = 0; begin < info.labels.size();) {
    const std::size_t end = std::min(info.labels.find(", ", begin), info.labels.size());
    legend += " {{" + std::string(info.labels.substr(begin, end - begin)) + "}}";
    begin = end + 2;
  }
  if (info.type == MetricType::kHistogram) return {name, is_time ? "s" : "short", spread(name)};
  if (info.type == MetricType::kCounter) return {name, "ops", {{rate(name), legend}}};
  return {name, "short", {{of(name), legend}}};
}

// Each metric that no other panel shows.
Row row_of_the_rest(const std::vector<Row>& rows) {
  Row rest{"Everything else", {}};
  for (const MetricInfo& info : metric_table()) {
    const bool is_shown = std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
      return std::any_of(row.panels.begin(), row.panels.end(), [&](const Panel& panel) {
        return std::any_of(panel.curves.begin(), panel.curves.end(),
                           [&](const Curve& curve) { return names(curve.expr, info.name); });
      });
    });
    if (!is_shown) rest.panels.push_back(panel_of(info));
  }
  return rest;
}

std::string description_of(const Panel& panel) {
  std::string text;
  for (const MetricInfo& info : metric_table())
    if (std::any_of(panel.curves.begin(), panel.curves.end(),
                    [&](const Curve& curve) { return names(curve.expr, info.name); }))
      text += (text.empty() ? "" : "\n\n") + ("`foretoken_" + std::string(info.name) + "`: ") +
              std::string(info.help);
  return text;
}

OrderedJson prometheus_source() { return {{"type", "prometheus"}, {"uid", "${datasource}"}}; }

OrderedJson panel_json(const Panel& panel, int id, int x, int y) {
  OrderedJson targets = OrderedJson::array();
  for (const Curve& curve : panel.curves)
    targets.push_back({{"refId", std::string(1, static_cast<char>('A' + targets.size()))},
                       {"datasource", prometheus_source()},
                       {"expr", curve.expr},
                       {"legendFormat", curve.legend}});
  return {{"id", id},
          {"type", panel.type},
          {"title", panel.title},
          {"description", description_of(panel)},
          {"datasource", prometheus_source()},
          {"gridPos", {{"x", x}, {"y", y}, {"w", kPanelWidth}, {"h", kPanelHeight}}},
          {"fieldConfig",
           {{"defaults", {{"unit", panel.unit}, {"min", 0}}}, {"overrides", OrderedJson::array()}}},
          {"targets", std::move(targets)}};
}

OrderedJson variables() {
  return OrderedJson::array(
      {{{"name", "datasource"},
        {"label", "Data source"},
        {"type", "datasource"},
        {"query", "prometheus"}},
       {{"name", "model"},
        {"label", "Model"},
        {"type", "query"},
        {"datasource", prometheus_source()},
        {"query", "label_values(foretoken_time_to_first_token_seconds_count, model_name)"},
        {"refresh", 2},
        {"includeAll", true},
        {"allValue", ".*"},
        {"multi", true},
        {"current", {{"text", "All"}, {"value", "$__all"}}}}});
}

// ---- alerts

struct Alert {
  std::string_view name;
  std::string_view expr;
  std::string_view lasts;  // before it is sent
  std::string_view severity;
  std::string_view summary;
  std::string_view advice;
};

constexpr Alert kAlerts[] = {
    {"ForetokenServiceDown", "foretoken_peer_up == 0", "1m", "critical",
     "{{ $labels.peer }} does not answer",
     "A restart takes less than that: see its log, and `foretoken ps`."},
    {"ForetokenRequestErrors",
     "sum(rate(foretoken_request_errors_total[5m])) / sum(rate(foretoken_requests_total[5m])) > "
     "0.01",
     "5m", "warning", "More than 1 % of the accepted requests end in an error",
     "The router's log and the services' have the reasons."},
    {"ForetokenRequestsRefused", "rate(foretoken_request_refused_total[5m]) > 0", "5m", "warning",
     "Requests are refused", "Add targets, or ask for less: limits.max_waiting."},
    {"ForetokenRequestsWait", "sum(foretoken_num_requests_waiting) > 0", "10m", "warning",
     "Requests wait for a place for ten minutes on end",
     "Add targets, or raise limits.max_running."},
    {"ForetokenSlowFirstToken",
     "histogram_quantile(0.99, sum by (le, model_name) "
     "(rate(foretoken_time_to_first_token_seconds_bucket[10m]))) > 10",
     "10m", "warning", "One request in a hundred waits longer than 10 s for its first token",
     "Compare the time that requests queue and that prompts take."},
    {"ForetokenPreemptions", "rate(foretoken_num_preemptions_total[5m]) > 0", "10m", "warning",
     "{{ $labels.service }} takes blocks from running requests",
     "The KV cache is small: raise kv_cache.memory or lower limits.max_running."},
    {"ForetokenKvCacheFull", "foretoken_kv_cache_usage_perc > 0.95", "10m", "warning",
     "The KV cache of {{ $labels.service }} is full",
     "Raise kv_cache.memory or lower limits.max_running."},
    {"ForetokenFewGuessesAccepted",
     "sum by (model_name) (rate(foretoken_spec_decode_num_accepted_tokens_total[15m])) / sum by "
     "(model_name) (rate(foretoken_spec_decode_num_draft_tokens_total[15m])) < 0.33",
     "15m", "info", "Under a third of the guesses for {{ $labels.model_name }} are accepted",
     "Another draft, or a smaller speculation.draft_len."},
    {"ForetokenDraftsCostMoreThanTheyBring",
     "foretoken_spec_decode_asking_gain > 0 and foretoken_spec_decode_asking_gain < 1 and "
     "rate(foretoken_spec_decode_silent_passes_total[15m]) > 0",
     "15m", "info", "{{ $labels.service }} is faster without its drafts",
     "Give the drafts cores of their own, or a faster connection."},
    {"ForetokenDraftSetAside",
     "foretoken_drafts_aside > 0 or increase(foretoken_drafts_set_aside_total[15m]) > 0", "1m",
     "warning", "{{ $labels.service }} has set a draft aside",
     "`foretoken ps` says which and why."},
    {"ForetokenTargetDies", "increase(foretoken_request_migrations_total[15m]) > 0", "0m",
     "warning", "Requests were moved to another target", "A target ended: see its log."},
    {"ForetokenLinksBreak", "increase(foretoken_memory_links_total{event=\"broken\"}[15m]) > 0",
     "0m", "warning", "A link of {{ $labels.service }} through shared memory broke",
     "A peer misbehaves or was killed: see its log."},
    {"ForetokenLinksFallBack", "rate(foretoken_draft_link_fallbacks_total[5m]) > 0", "10m",
     "warning", "Messages of {{ $labels.service }} go over ZeroMQ instead of their link",
     "A peer misbehaves, or does not read: see its log."},
    {"ForetokenNoDescriptorLeft", "increase(foretoken_transport_turned_away_total[15m]) > 0", "0m",
     "warning", "{{ $labels.service }} turns connections away: it has no file descriptor left",
     "Raise its limit (ulimit -n, LimitNOFILE= of a unit)."},
    {"ForetokenFramesDropped", "rate(foretoken_frames_dropped_total[15m]) > 1", "15m", "warning",
     "{{ $labels.service }} drops frames", "A peer sends garbage, or versions differ."},
    {"ForetokenBadRequests", "rate(foretoken_bad_requests_total[5m]) > 1", "10m", "warning",
     "Clients send what cannot be read", "Their errors name what is wrong."},
    {"ForetokenLogLinesDropped", "increase(foretoken_dropped_log_lines_total[15m]) > 0", "0m",
     "info", "{{ $labels.service }} logs more than 100 lines a second", "Its log has holes."},
    {"ForetokenBuildsDiffer", "count(count by (version, commit) (foretoken_build_info)) > 1", "30m",
     "info", "Services of different builds run together", "Finish the upgrade."},
};

// A JSON string is a YAML string.
std::string yaml_string(std::string_view text) { return to_text(OrderedJson(std::string(text))); }

}  // namespace

std::string grafana_dashboard() {
  std::vector<Row> rows = chosen_rows();
  rows.push_back(row_of_the_rest(rows));
  OrderedJson panels = OrderedJson::array();
  int id = 0, y = 0;
  for (const Row& row : rows) {
    panels.push_back({{"id", ++id},
                      {"type", "row"},
                      {"title", row.title},
                      {"collapsed", false},
                      {"gridPos", {{"x", 0}, {"y", y++}, {"w", kGridWidth}, {"h", 1}}},
                      {"panels", OrderedJson::array()}});
    int x = 0;
    for (const Panel& panel : row.panels) {
      panels.push_back(panel_json(panel, ++id, x, y));
      x = (x + kPanelWidth) % kGridWidth;
      if (x == 0) y += kPanelHeight;
    }
    if (x != 0) y += kPanelHeight;
  }
  const OrderedJson dashboard = {
      {"uid", "foretoken"},         {"title", "Foretoken"},
      {"tags", {"foretoken"}},      {"schemaVersion", 39},
      {"editable", true},           {"time", {{"from", "now-1h"}, {"to", "now"}}},
      {"refresh", "10s"},           {"templating", {{"list", variables()}}},
      {"panels", std::move(panels)}};
  return to_text(dashboard, 2) + "\n";
}

std::string alert_rules() {
  std::string text = "groups:\n  - name: foretoken\n    rules:\n";
  for (const Alert& alert : kAlerts) {
    text += "      - alert: " + std::string(alert.name) + "\n";
    text += "        expr: " + yaml_string(alert.expr) + "\n";
    text += "        for: " + std::string(alert.lasts) + "\n";
    text += "        labels:\n          severity: " + std::string(alert.severity) + "\n";
    text += "        annotations:\n          summary: " + yaml_string(alert.summary) + "\n";
    text += "          description: " + yaml_string(alert.advice) + "\n";
  }
  return text;
}

}  // namespace foretoken::cli
