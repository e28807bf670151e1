// A page of the repository that a program prints: it is what the program says.
// FORETOKEN_UPDATE_GOLDEN=1 rewrites it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace foretoken::test {

// `path` from the root of the repository.
inline void expect_page(const std::string& path, const std::string& text) {
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

}  // namespace foretoken::test
