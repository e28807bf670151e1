#include "common/base/file.h"

#include <gmock/gmock.h>

#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

using test::TempFolder;
using testing::HasSubstr;
using testing::StartsWith;

TEST(TextFiles, AreReadUpToTheLimit) {
  const TempFolder folder;
  const auto file = folder.write("a.txt", "twelve bytes");
  EXPECT_EQ(read_text_file(file, 12).value(), "twelve bytes");
  const auto refused = read_text_file(file, 11);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kMalformed);
  EXPECT_EQ(read_text_file(folder / "none", 12).error().code, ErrorCode::kNotFound);
}

TEST(TextFiles, APointerOfGitLfsIsRefusedAsOne) {
  const TempFolder folder;
  const auto file = folder.write("tokenizer.json",
                                 "version https://git-lfs.github.com/spec/v1\n"
                                 "oid sha256:" +
                                     std::string(64, 'a') + "\nsize 9085657\n");
  const auto refused = read_text_file(file, 1 << 20);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kMalformed);
  EXPECT_THAT(refused.error().message, StartsWith(file.string()));
  EXPECT_THAT(refused.error().message, HasSubstr("git lfs pull"));
}

}  // namespace
}  // namespace foretoken
