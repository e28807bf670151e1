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

TEST(MergeMetrics, TextWithoutAnEndOfLineOrWithoutAnythingIsHarmless) {
  EXPECT_EQ("", merge_metrics({}));
  EXPECT_EQ("", merge_metrics({"", "\n\n"}));
  EXPECT_EQ("x 1\n", merge_metrics({"x 1"}));
}

}  // namespace
}  // namespace foretoken
