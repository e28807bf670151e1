// The generated pages are the listing's own words. FORETOKEN_UPDATE_GOLDEN=1 rewrites them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/wire/client_codec.h"
#include "common/wire/describe.h"

namespace foretoken::wire {
namespace {

void expect_page(const std::string& path, const std::string& text) {
  const std::filesystem::path file = std::filesystem::path(FORETOKEN_SOURCE_DIR) / path;
  if (std::getenv("FORETOKEN_UPDATE_GOLDEN") != nullptr) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::ostringstream found;
  found << std::ifstream(file).rdbuf();
  EXPECT_EQ(found.str(), text)
      << path << " is not what the listing says; FORETOKEN_UPDATE_GOLDEN=1 rewrites it";
}

TEST(Document, MessagesPageIsTheListing) { expect_page("docs/reference/messages.md", document()); }
TEST(Document, ClientPageIsTheListing) {
  expect_page("docs/reference/client.md", client_document());
}

}  // namespace
}  // namespace foretoken::wire
