#include "common/base/control_groups.h"

#include <algorithm>
#include <fstream>
#include <limits>

namespace foretoken {
namespace {

// "cpu" in "cpu,cpuacct", and not in "cpuset".
bool has_controller(std::string_view list, std::string_view controller) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == controller) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

// Microseconds of each period; 0: no limit ("max", -1), or no such file.
struct Quota {
  std::int64_t quota_us = 0;
  std::int64_t period_us = 0;
};

Quota quota_in(const std::string& folder, GroupVersion version) {
  Quota found;
  if (version == GroupVersion::kTwo) {
    std::ifstream file(folder + "cpu.max");
    if (!(file >> found.quota_us >> found.period_us)) return {};
  } else {
    std::ifstream quota(folder + "cpu.cfs_quota_us"), period(folder + "cpu.cfs_period_us");
    if (!(quota >> found.quota_us) || !(period >> found.period_us)) return {};
  }
  return found;
}

}  // namespace

void visit_groups(
    std::istream& groups,
    const std::string& root,
    std::string_view controller,
    const std::function<void(const std::string& folder, GroupVersion version)>& look) {
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string group = line.substr(second + 1);
    const bool is_second = controllers.empty();
    if (!group.starts_with("/") || (!is_second && !has_controller(controllers, controller)))
      continue;
    const std::string mount = is_second ? root : root + "/" + std::string(controller);
    for (;; group.erase(group.rfind('/'))) {
      if (group == "/") group.clear();
      look(mount + group + "/", is_second ? GroupVersion::kTwo : GroupVersion::kOne);
      if (group.empty()) break;
    }
  }
}

int cpus_of_groups(std::istream& groups, const std::string& root) {
  constexpr std::int64_t kNoLimit = std::numeric_limits<int>::max();
  std::int64_t least = kNoLimit;
  visit_groups(groups, root, "cpu", [&](const std::string& folder, GroupVersion version) {
    const auto [quota_us, period_us] = quota_in(folder, version);
    if (quota_us > 0 && period_us > 0)
      least = std::min(least, std::max<std::int64_t>(1, quota_us / period_us));
  });
  return least == kNoLimit ? 0 : static_cast<int>(least);
}

}  // namespace foretoken
