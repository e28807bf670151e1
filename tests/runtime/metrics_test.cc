#include "common/runtime/metrics.h"

#include <gmock/gmock.h>

#include <array>
#include <limits>
#include <memory>
#include <set>
#include <string>

#include "common/runtime/transport_metrics.h"
#include "tests/support/generated_page.h"

namespace foretoken {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::array kBounds{0.1, 1.0};
constexpr std::array<MetricInfo, 5> kTestTable{
    {{"tokens_total", MetricType::kCounter, "draft", "kind", "Tokens."},
     {"x_total", MetricType::kCounter, "draft", "kind", "X.", true},
     {"sequences", MetricType::kGauge, "draft", "", "Sequences."},
     {"asked", MetricType::kGauge, "draft", "", "Asked."},
     {"step_seconds", MetricType::kHistogram, "draft", "", "Steps.", true}}};

TEST(Metrics, WritesPrometheusTextWithPrefixAndConstantLabels) {
  Metrics metrics(Labels{{"service", "draft-0"}}, kTestTable);
  metrics.add_constant_label("model_name", "m");
  metrics.counter("tokens_total", 3, {{"kind", "drafted"}});
  metrics.gauge("sequences", 2);
  Histogram steps(kBounds);
  steps.observe(0.5);
  metrics.histogram("step_seconds", steps);
  const std::string text = metrics.text();
  const std::string labels = "model_name=\"m\",service=\"draft-0\"";
  EXPECT_THAT(text, HasSubstr("# HELP foretoken_tokens_total Tokens."));
  EXPECT_THAT(text, HasSubstr("# TYPE foretoken_tokens_total counter"));
  EXPECT_THAT(text, HasSubstr("foretoken_tokens_total{" + labels + ",kind=\"drafted\"} 3"));
  EXPECT_THAT(text, HasSubstr("foretoken_sequences{" + labels + "} 2"));
  EXPECT_THAT(text, HasSubstr("foretoken_step_seconds_bucket{" + labels + ",le=\"1\"} 1"));
}

TEST(Metrics, ACounterStandsAtTheLargestTotalItWasGivenAndAGaugeAtTheLastValue) {
  Metrics metrics({}, kTestTable);
  for (const int figure : {2, 5, 4}) {
    metrics.counter("x_total", figure);
    metrics.gauge("sequences", figure);
  }
  EXPECT_THAT(metrics.text(), HasSubstr("foretoken_x_total 5\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("foretoken_sequences 4\n"));
}

TEST(Metrics, MetricsOfOtherLabelsAreOthers) {
  Metrics metrics({}, kTestTable);
  metrics.counter("x_total", 2, {{"kind", "a"}});
  metrics.counter("x_total", 7, {{"kind", "b"}});
  EXPECT_THAT(metrics.text(), HasSubstr("foretoken_x_total{kind=\"a\"} 2\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("foretoken_x_total{kind=\"b\"} 7\n"));
}

TEST(Metrics, AHistogramHasAllThatWasObservedHoweverOftenItIsListed) {
  Metrics metrics({}, kTestTable);
  Histogram steps(kBounds);
  for (const double value : {0.05, 0.1, 0.5, 7.0}) {
    steps.observe(value);
    metrics.histogram("step_seconds", steps);
  }
  metrics.histogram("step_seconds", steps);
  const std::string text = metrics.text();
  EXPECT_THAT(text, HasSubstr("foretoken_step_seconds_bucket{le=\"0.1\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("foretoken_step_seconds_bucket{le=\"1\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("foretoken_step_seconds_bucket{le=\"+Inf\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("foretoken_step_seconds_count 4\n"));
  EXPECT_THAT(text, HasSubstr("foretoken_step_seconds_sum 7.65"));
}

TEST(Histogram, ObservesSecondsAndNeverWhatIsNoNumber) {
  Histogram steps(kBounds);
  steps.observe(Duration(std::chrono::milliseconds(200)));
  steps.observe(Duration(std::chrono::seconds(-3)));
  steps.observe(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(steps.counts(), testing::ElementsAre(1, 1, 0));
  EXPECT_DOUBLE_EQ(0.2, steps.sum());
  EXPECT_EQ(2u, steps.count());
}

TEST(Histogram, AddsWhatAnotherOneObserved) {
  Histogram steps(kBounds), others(kBounds);
  steps.observe(0.05);
  others.observe(0.1);
  others.observe(7.0);
  steps.add(others);
  EXPECT_THAT(steps.counts(), testing::ElementsAre(2, 0, 1));
  EXPECT_DOUBLE_EQ(7.15, steps.sum());
  EXPECT_EQ(2u, others.count());
}

TEST(Histogram, BoundsOfEveryKindAscend) {
  for (const auto bounds : {latency_bounds(), round_bounds(), token_bounds()}) {
    ASSERT_FALSE(bounds.empty());
    for (std::size_t i = 1; i < bounds.size(); ++i) EXPECT_LT(bounds[i - 1], bounds[i]);
  }
}

TEST(Metrics, AsksWhoKeepsCountsBeforeItWrites) {
  Metrics metrics({}, kTestTable);
  int n_asked = 0;
  metrics.before_text([&] { metrics.gauge("asked", ++n_asked); });
  EXPECT_THAT(metrics.text(), HasSubstr("foretoken_asked 1\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("foretoken_asked 2\n"));
}

TEST(Metrics, WhatVllmHasIsThereUnderBothNamesWithEqualValues) {
  Metrics metrics({}, kTestTable);
  metrics.counter("x_total", 2, {{"kind", "a"}});
  metrics.gauge("sequences", 3);
  Histogram steps(kBounds);
  steps.observe(0.5);
  metrics.histogram("step_seconds", steps);
  EXPECT_THAT(metrics.text(), Not(HasSubstr("vllm:")));
  metrics.set_names(MetricNames::kOwnAndVllm);
  const std::string text = metrics.text();
  EXPECT_THAT(text, AllOf(HasSubstr("# TYPE vllm:x_total counter\nvllm:x_total{kind=\"a\"} 2\n"),
                          HasSubstr("\nforetoken_x_total{kind=\"a\"} 2\n"),
                          HasSubstr("\nvllm:step_seconds_bucket{le=\"1\"} 1\n"),
                          Not(HasSubstr("vllm:sequences"))));
}

TEST(MetricTable, NamesAreOnceAndSayWhatTheyAre) {
  std::set<std::string_view> names;
  for (const MetricInfo& info : metric_table()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_EQ(info.type == MetricType::kCounter, info.name.ends_with("_total")) << info.name;
    EXPECT_FALSE(info.name.starts_with("foretoken_")) << info.name;
    EXPECT_TRUE(info.help.ends_with(".")) << info.name;
    EXPECT_FALSE(info.services.empty()) << info.name;
    EXPECT_THAT(std::string(info.labels), Not(HasSubstr("request"))) << info.name;
  }
}

std::string_view type_name(MetricType type) {
  return type == MetricType::kCounter ? "counter"
         : type == MetricType::kGauge ? "gauge"
                                      : "histogram";
}

std::string metrics_reference() {
  std::string page =
      "<!-- Generated from common/runtime/metric_table.cc; a test compares. Rewrite with "
      "FORETOKEN_UPDATE_GOLDEN=1. -->\n"
      "# Metrics\n\n"
      "Prometheus text of all services: `foretoken metrics`, or `{\"op\": \"metrics\"}` at the "
      "client door. Every name begins with `foretoken_`, every sample has the label `service`. "
      "Samples of tokenizer, draft and target have `model_name`, and so have those of the router "
      "that are of one model. Counters and histograms count since the start of their service. "
      "With `metrics.compat = [\"vllm\"]` those marked `vllm` are there a second time under "
      "`vllm:`.\n\n"
      "| metric | type | labels | service | means |\n|---|---|---|---|---|\n";
  for (const MetricInfo& info : metric_table()) {
    page += "| `" + std::string(info.name) + "`" + (info.is_in_vllm ? ", `vllm`" : "") + " | " +
            std::string(type_name(info.type)) + " | " +
            (info.labels.empty() ? "" : "`" + std::string(info.labels) + "`") + " | " +
            std::string(info.services) + " | " + std::string(info.help) + " |\n";
  }
  return page;
}

TEST(MetricTable, IsTheReferencePage) {
  test::expect_page("docs/reference/metrics.md", metrics_reference());
}

TEST(Metrics, GaugesThatAreListedNoMoreAreForgotten) {
  Metrics metrics;
  const auto list = [&](std::initializer_list<const char*> peers) {
    metrics.forget_gauges("peer_up");
    for (const char* peer : peers) metrics.gauge("peer_up", 1, {{"peer", peer}});
    return metrics.text();
  };
  EXPECT_THAT(list({"a", "b"}), HasSubstr("foretoken_peer_up{peer=\"a\"} 1\n"));
  const std::string text = list({"b"});
  EXPECT_THAT(text, Not(HasSubstr("peer=\"a\"")));
  EXPECT_THAT(text, HasSubstr("foretoken_peer_up{peer=\"b\"} 1\n"));
  EXPECT_THAT(list({"a"}), HasSubstr("foretoken_peer_up{peer=\"a\"} 1\n"));
}

TEST(TransportMetrics, AreCountedPerLinkAndOutcomeFromTheTotals) {
  Metrics metrics;
  const auto counters = std::make_shared<TransportCounters>();
  publish_transport(metrics, counters);
  counters->of(Door::kClient).received = 5;
  counters->of(Door::kDraft).busy = 2;
  counters->of(Door::kInternal).handshakes_refused = 1;
  (void)metrics.text();
  counters->of(Door::kClient).received = 7;
  const std::string text = metrics.text();
  const std::string family = "foretoken_transport_messages_total";
  EXPECT_THAT(text, HasSubstr(family + "{link=\"client\",outcome=\"received\"} 7\n"));
  EXPECT_THAT(text, HasSubstr(family + "{link=\"draft\",outcome=\"busy\"} 2\n"));
  EXPECT_THAT(text, HasSubstr(family + "{link=\"internal\",outcome=\"malformed\"} 0\n"));
  EXPECT_THAT(text,
              HasSubstr("foretoken_transport_handshakes_refused_total{link=\"internal\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("foretoken_transport_turned_away_total 0\n"));
}

}  // namespace
}  // namespace foretoken
