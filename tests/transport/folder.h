// A folder of this test's own, removed with it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace foretoken {

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/foretoken-test-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(*this / name) << text;
    std::filesystem::permissions(*this / name, std::filesystem::perms(0600));  // some hold keys
    return *this / name;
  }

 private:
  std::string path_;
};

}  // namespace foretoken
