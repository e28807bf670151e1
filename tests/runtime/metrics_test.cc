#include "common/runtime/metrics.h"

#include <gmock/gmock.h>

namespace foretoken {
namespace {

using ::testing::HasSubstr;

TEST(Metrics, WritesPrometheusTextWithPrefixAndConstantLabels) {
  Metrics metrics(Labels{{"service", "draft-0"}});
  metrics.counter("tokens_total", "Tokens.", {{"kind", "drafted"}}).add(3);
  metrics.gauge("sequences", "Sequences.").set(2);
  metrics.histogram("step_seconds", "Steps.", {0.1, 1}).observe(0.5);
  const std::string text = metrics.text();
  EXPECT_THAT(text, HasSubstr("# TYPE foretoken_tokens_total counter"));
  EXPECT_THAT(text, HasSubstr("foretoken_tokens_total{service=\"draft-0\",kind=\"drafted\"} 3"));
  EXPECT_THAT(text, HasSubstr("foretoken_sequences{service=\"draft-0\"} 2"));
  EXPECT_THAT(text, HasSubstr("foretoken_step_seconds_bucket{service=\"draft-0\",le=\"1\"} 1"));
}

TEST(Metrics, GivesTheSameCounterForTheSameNameAndLabels) {
  Metrics metrics;
  metrics.counter("x_total", "X.").add();
  metrics.counter("x_total", "X.").add();
  EXPECT_THAT(metrics.text(), HasSubstr("foretoken_x_total 2"));
}

TEST(Metrics, IgnoresHandlesOfNothing) {
  Metrics metrics;
  Counter counter;
  Gauge gauge;
  Histogram histogram;
  const auto use_all = [&] {
    counter.add(2);
    gauge.set(3);
    histogram.observe(0.5);
  };
  use_all();
  EXPECT_EQ(metrics.text(), "");
  counter = metrics.counter("x_total", "X.");
  gauge = metrics.gauge("y", "Y.");
  histogram = metrics.histogram("z", "Z.", {1});
  use_all();
  const std::string text = metrics.text();
  EXPECT_THAT(text, HasSubstr("foretoken_x_total 2\n")) << "what nothing was given is not made up for";
  EXPECT_THAT(text, HasSubstr("foretoken_y 3\n"));
  EXPECT_THAT(text, HasSubstr("foretoken_z_count 1\n"));
}

}  // namespace
}  // namespace foretoken
