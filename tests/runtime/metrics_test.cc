#include "common/runtime/metrics.h"

#include <gmock/gmock.h>

#include <memory>
#include <string>

#include "common/runtime/transport_metrics.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;

TEST(Metrics, WritesPrometheusTextWithPrefixAndConstantLabels) {
  Metrics metrics(Labels{{"service", "draft-0"}});
  metrics.counter("tokens_total", 3, "Tokens.", {{"kind", "drafted"}});
  metrics.gauge("sequences", 2, "Sequences.");
  metrics.histogram("step_seconds", "Steps.", {0.1, 1}).observe(0.5);
  const std::string text = metrics.text();
  EXPECT_THAT(text, HasSubstr("# TYPE foretoken_tokens_total counter"));
  EXPECT_THAT(text, HasSubstr("foretoken_tokens_total{service=\"draft-0\",kind=\"drafted\"} 3"));
  EXPECT_THAT(text, HasSubstr("foretoken_sequences{service=\"draft-0\"} 2"));
  EXPECT_THAT(text, HasSubstr("foretoken_step_seconds_bucket{service=\"draft-0\",le=\"1\"} 1"));
}

TEST(Metrics, ACounterStandsAtTheLargestTotalItWasGivenAndAGaugeAtTheLastValue) {
  Metrics metrics;
  for (const int figure : {2, 5, 4}) {
    metrics.counter("x_total", figure, "X.");
    metrics.gauge("y", figure, "Y.");
  }
  EXPECT_THAT(metrics.text(), HasSubstr("foretoken_x_total 5\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("foretoken_y 4\n"));
}

TEST(Metrics, MetricsOfOtherLabelsAreOthers) {
  Metrics metrics;
  metrics.counter("x_total", 2, "X.", {{"kind", "a"}});
  metrics.counter("x_total", 7, "X.", {{"kind", "b"}});
  EXPECT_THAT(metrics.text(), HasSubstr("foretoken_x_total{kind=\"a\"} 2\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("foretoken_x_total{kind=\"b\"} 7\n"));
}

TEST(Metrics, WritesWhatWasNeverObservedAsNothing) {
  Metrics metrics;
  Histogram histogram;
  histogram.observe(0.5);
  EXPECT_EQ(metrics.text(), "");
  histogram = metrics.histogram("z", "Z.", {1});
  histogram.observe(0.5);
  EXPECT_THAT(metrics.text(), HasSubstr("foretoken_z_count 1\n"));
}

TEST(Metrics, AsksWhoKeepsCountsBeforeItWrites) {
  Metrics metrics;
  int n_asked = 0;
  metrics.before_text([&] { metrics.gauge("asked", ++n_asked, "Asked."); });
  EXPECT_THAT(metrics.text(), HasSubstr("foretoken_asked 1\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("foretoken_asked 2\n"));
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
}

}  // namespace
}  // namespace foretoken
