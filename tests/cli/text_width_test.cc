// Columns of a terminal.
#include "services/cli/text_width.h"

#include <gmock/gmock.h>

namespace foretoken::cli {
namespace {

// 1 + 0 + 1 + 2 + 2 + 2 columns; a mark belongs to the character before it.
constexpr const char* kMixed = "e\u0301 漢字🎉";

TEST(TextWidth, CountsColumnsAndNeitherBytesNorCharacters) {
  EXPECT_EQ(0u, width_of(""));
  EXPECT_EQ(5u, width_of("plain"));
  EXPECT_EQ(8u, width_of(kMixed));
}

TEST(TextWidth, ACutLeavesWholeCharactersWithTheirMarks) {
  EXPECT_EQ("", cut_to(kMixed, 0));
  EXPECT_EQ("e\u0301", cut_to(kMixed, 1));
  EXPECT_EQ("e\u0301 ", cut_to(kMixed, 3)) << "half of a wide one is none";
  EXPECT_EQ("e\u0301 漢", cut_to(kMixed, 4));
  EXPECT_EQ(kMixed, cut_to(kMixed, 8));
}

TEST(TextWidth, BlanksFillColumns) {
  EXPECT_EQ("漢  ", filled_to("漢", 4));
  EXPECT_EQ("  漢", right_aligned("漢", 4));
  EXPECT_EQ("漢字", filled_to("漢字", 3)) << "what is wider stays";
}

// What is not UTF-8 comes from no service that we wrote; it must not be read past its end.
TEST(TextWidth, TakesAnyBytes) {
  for (const char* broken : {"\xf0\x9f", "\xff\xff", "a\xe6\xbc", "\x80"})
    EXPECT_EQ(broken, cut_to(broken, 10));
}

}  // namespace
}  // namespace foretoken::cli
