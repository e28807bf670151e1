#include "common/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

namespace foretoken {
namespace {

Error not_a_list(std::string_view text) {
  return {ErrorCode::kInvalidValue,
          "\"" + std::string(text) + "\" is no list of processors like \"0-3,8\""};
}

// From the front of the text, which it leaves.
Result<int> take_number(std::string_view& text) {
  int number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc{} || number < 0 || number >= CPU_SETSIZE) return not_a_list(text);
  text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
  return number;
}

}  // namespace

CpuList allowed_cpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  CpuList cpus;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(static_cast<unsigned>(cpu), &allowed)) cpus.push_back(cpu);
  return cpus;
}

std::string to_text(const CpuList& cpus) {
  std::string text;
  for (std::size_t begin = 0, end = 0; begin < cpus.size(); begin = end) {
    for (end = begin + 1; end < cpus.size() && cpus[end] == cpus[end - 1] + 1;) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[begin]);
    if (end > begin + 1) text += "-" + std::to_string(cpus[end - 1]);
  }
  return text;
}

Result<CpuList> cpu_list_from(std::string_view text) {
  std::set<int> cpus;
  for (std::string_view rest = text; !rest.empty();) {
    const auto first = take_number(rest);
    if (!first.ok()) return not_a_list(text);
    int last = *first;
    if (rest.starts_with('-')) {
      rest.remove_prefix(1);
      const auto number = take_number(rest);
      if (!number.ok() || *number < last) return not_a_list(text);
      last = *number;
    }
    for (int cpu = *first; cpu <= last; ++cpu) cpus.insert(cpu);
    if (rest.empty()) break;
    if (!rest.starts_with(',') || rest.size() == 1) return not_a_list(text);
    rest.remove_prefix(1);
  }
  return CpuList(cpus.begin(), cpus.end());
}

int physical_cores(const CpuList& cpus) {
  std::set<std::pair<int, int>> cores;
  int n_unknown = 0;
  for (const int cpu : cpus) {
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    int package = 0, core = 0;
    if (std::ifstream(folder + "physical_package_id") >> package &&
        std::ifstream(folder + "core_id") >> core)
      cores.emplace(package, core);
    else
      ++n_unknown;
  }
  return static_cast<int>(cores.size()) + n_unknown;
}

bool have_own_cores(const CoreUse& a, const CoreUse& b) {
  if (a.machine.empty() || b.machine.empty()) return false;
  if (a.machine != b.machine) return true;
  if (a.cpus.empty() || b.cpus.empty()) return false;
  CpuList common, all;
  std::ranges::set_intersection(a.cpus, b.cpus, std::back_inserter(common));
  if (common.empty()) return true;
  std::ranges::set_union(a.cpus, b.cpus, std::back_inserter(all));
  return a.n_threads + b.n_threads <= physical_cores(all);
}

}  // namespace foretoken
