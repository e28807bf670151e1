#include <gtest/gtest.h>

#include "services/router/merge_metrics.h"

namespace foretoken {
namespace {

TEST(MergeMetrics, EachFamilyOnceWithAllItsSamples) {
  const std::string a =
      "# HELP x How many.\n# TYPE x counter\nx{service=\"a\"} 1\n# HELP y Else.\n# TYPE y gauge\ny "
      "2\n";
  const std::string b = "# HELP x How many.\n# TYPE x counter\nx{service=\"b\"} 3\n";
  EXPECT_EQ(
      "# HELP x How many.\n# TYPE x counter\nx{service=\"a\"} 1\nx{service=\"b\"} 3\n# HELP y "
      "Else.\n# TYPE y gauge\ny 2\n",
      merge_metrics({a, b}));
}

TEST(MergeMetrics, HistogramsOfSeveralServicesKeepTheirLabelsApart) {
  const auto text = [](const std::string& service) {
    return "# HELP t Time.\n# TYPE t histogram\nt_count{service=\"" + service +
           "\"} 1\nt_sum{service=\"" + service + "\"} 0.5\nt_bucket{service=\"" + service +
           "\",le=\"+Inf\"} 1\n";
  };
  EXPECT_EQ(
      "# HELP t Time.\n# TYPE t histogram\n"
      "t_count{service=\"a\"} 1\nt_sum{service=\"a\"} 0.5\nt_bucket{service=\"a\",le=\"+Inf\"} 1\n"
      "t_count{service=\"b\"} 1\nt_sum{service=\"b\"} 0.5\nt_bucket{service=\"b\",le=\"+Inf\"} 1\n",
      merge_metrics({text("a"), text("b")}));
}

TEST(MergeMetrics, TextWithoutAnEndOfLineOrWithoutAnythingIsHarmless) {
  EXPECT_EQ("", merge_metrics({}));
  EXPECT_EQ("", merge_metrics({"", "\n\n"}));
  EXPECT_EQ("x 1\n", merge_metrics({"x 1"}));
}

}  // namespace
}  // namespace foretoken
