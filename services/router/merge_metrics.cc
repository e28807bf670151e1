#include "services/router/merge_metrics.h"

#include <algorithm>
#include <map>

namespace foretoken {

std::string merge_metrics(const std::vector<std::string>& texts) {
  struct Family {
    std::string about;
    std::string samples;
  };
  std::map<std::string, Family> families;
  for (const std::string& text : texts) {
    std::string family;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::string line = text.substr(begin, end - begin);
      begin = end + 1;
      if (line.empty()) continue;
      if (line.starts_with("# HELP ") || line.starts_with("# TYPE ")) {
        const std::string name = line.substr(7, line.find(' ', 7) - 7);
        Family& of = families[name];
        // The first service to name a family describes it.
        if (of.about.find(line.substr(0, 7)) == std::string::npos) of.about += line + "\n";
        family = name;
      } else {
        families[family].samples += line + "\n";
      }
    }
  }
  std::string merged;
  for (const auto& [name, family] : families) merged += family.about + family.samples;
  return merged;
}

}  // namespace foretoken
