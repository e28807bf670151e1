// docs/reference/http.md is what the tables of the edge say.
#include "services/edge/http_document.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace foretoken::edge {
namespace {

TEST(HttpDocument, ThePageIsWhatTheTablesSay) {
  const std::string path = FORETOKEN_SOURCE_DIR "/docs/reference/http.md";
  if (std::getenv("FORETOKEN_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << http_document();
  std::ostringstream page;
  page << std::ifstream(path).rdbuf();
  EXPECT_EQ(page.str(), http_document()) << "run edge_test with FORETOKEN_UPDATE_GOLDEN=1";
}

}  // namespace
}  // namespace foretoken::edge
