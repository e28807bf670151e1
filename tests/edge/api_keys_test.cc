// The file of clients' keys: what is read, what is refused, and who has which name.
#include "services/edge/api_keys.h"

#include <gmock/gmock.h>

#include <fstream>

#include "tests/support/temp_folder.h"

namespace foretoken::edge {
namespace {

using ::testing::HasSubstr;

// printf %s secret | sha256sum
constexpr const char* kSecret = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

struct ApiKeysFile : ::testing::Test {
  Result<ApiKeys> read(const std::string& text) {
    const std::string file = (folder.path() / "keys").string();
    std::ofstream(file) << text;
    return ApiKeys::read(file);
  }
  test::TempFolder folder;
};

TEST_F(ApiKeysFile, AKeyHasTheNameOfItsLine) {
  const auto keys = read(std::string("# who\n\nalice ") + kSecret + "  # her first\n");
  ASSERT_TRUE(keys.ok()) << keys.error().message;
  EXPECT_EQ(keys->name_of("secret"), "alice");
  EXPECT_EQ(keys->name_of("Secret"), std::nullopt);
  EXPECT_EQ(keys->name_of(""), std::nullopt);
  EXPECT_EQ(keys->name_of(kSecret), std::nullopt) << "a digest is no key";
}

TEST_F(ApiKeysFile, WhatIsNoLineIsRefusedByItsNumber) {
  for (const std::string& line :
       {std::string("alice"), std::string("alice abc"), std::string("alice ") + kSecret + "00",
        std::string("alice ") + kSecret + " more", std::string("alice x") + (kSecret + 1)}) {
    const auto keys = read("\n" + line + "\n");
    ASSERT_FALSE(keys.ok()) << line;
    EXPECT_THAT(keys.error().message, HasSubstr("line 2"));
  }
  const std::string twice = std::string("alice ") + kSecret + "\nbob " + kSecret + "\n";
  EXPECT_THAT(read(twice).error().message, HasSubstr("line 2: this key is listed twice"));
  EXPECT_THAT(read("# nothing\n").error().message, HasSubstr("lists no key"));
  EXPECT_EQ(ApiKeys::read((folder.path() / "none").string()).error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace foretoken::edge
