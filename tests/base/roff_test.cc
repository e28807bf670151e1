#include "common/base/roff.h"

#include <gmock/gmock.h>

#include <cstdlib>

namespace foretoken {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Roff, EscapesWhatItWouldReadAsACommand) {
  EXPECT_EQ("\\-\\-draft\\-len", roff_escaped("--draft-len"));
  EXPECT_EQ("a\\eb \\(aqc\\(aq \\(gad\\(ga \\(dqe\\(dq \\(ti \\(ha",
            roff_escaped("a\\b 'c' `d` \"e\" ~ ^"));
  EXPECT_EQ("\\&.TH", roff_escaped(".TH"));
}

TEST(Roff, BreaksLinesAndNoneBeginsWithAFullStop) {
  setenv("SOURCE_DATE_EPOCH", "0", 1);
  RoffPage page("x-y", 1, "X 1", "does things");
  EXPECT_THAT(page.text(), StartsWith(".TH \"X\\-Y\" 1 1970-01-01 \"X 1\" \"Foretoken manual\"\n"));
  page.section("Text");
  std::string text;
  for (int i = 0; i < 100; ++i) text += ".word ";
  page.paragraph(text);
  std::size_t longest = 0, at = page.text().find("TEXT");
  while ((at = page.text().find('\n', at)) != std::string::npos && ++at < page.text().size()) {
    EXPECT_NE('.', page.text()[at]) << page.text().substr(at, 20);
    longest = std::max(longest, page.text().find('\n', at) - at);
  }
  EXPECT_GT(longest, 60u);
  EXPECT_LE(longest, 80u);
}

TEST(Roff, AnEmptyLineOfAnExampleIsNoParagraph) {
  RoffPage page("x", 1, "X 1", "does things");
  page.section("Examples");
  page.example("a\n\n.b");
  EXPECT_THAT(page.text(), HasSubstr(".EX\na\n\\&\n\\&.b\n.EE\n"));
}

}  // namespace
}  // namespace foretoken
