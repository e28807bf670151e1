#include "common/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "common/base/control_groups.h"

namespace foretoken {
namespace {

constexpr std::size_t kLongestList = 8192;  // characters: each second of all processors alone

// Of each logical processor, read once; nothing where the system does not say. Of a thousand that
// a machine might have most are not there, and looking for each took a start 5 ms.
const std::array<std::optional<int>, CPU_SETSIZE>& all_cores() {
  static const auto cores = [] {
    const std::string root = "/sys/devices/system/cpu/";
    std::array<std::optional<int>, CPU_SETSIZE> found;
    std::map<std::pair<int, int>, int> numbers;  // of packages and their cores
    std::string present;
    std::ifstream(root + "present") >> present;
    const auto cpus = cpu_list_from(present);
    if (!cpus.ok()) return found;
    for (const int cpu : *cpus) {
      const std::string folder = root + "cpu" + std::to_string(cpu) + "/topology/";
      std::pair<int, int> core;
      if (std::ifstream(folder + "physical_package_id") >> core.first &&
          std::ifstream(folder + "core_id") >> core.second)
        found[static_cast<std::size_t>(cpu)] =
            numbers.try_emplace(core, static_cast<int>(numbers.size())).first->second;
    }
    return found;
  }();
  return cores;
}

// Of this machine; a number of its own where the system does not say.
int physical_core(int cpu) { return all_cores()[static_cast<std::size_t>(cpu)].value_or(-1 - cpu); }

// A limit of 0 is none.
int at_most(int limit, int n) { return limit > 0 ? std::min(limit, n) : n; }

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
  if (text.size() > kLongestList)
    return Error{ErrorCode::kInvalidValue, "a list of processors has at most " +
                                               std::to_string(kLongestList) + " characters, not " +
                                               std::to_string(text.size())};
  std::bitset<CPU_SETSIZE> found;
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
    for (int cpu = *first; cpu <= last; ++cpu) found.set(static_cast<std::size_t>(cpu));
    if (rest.empty()) break;
    if (!rest.starts_with(',') || rest.size() == 1) return not_a_list(text);
    rest.remove_prefix(1);
  }
  CpuList cpus;
  for (std::size_t cpu = 0; cpu < found.size(); ++cpu)
    if (found[cpu]) cpus.push_back(static_cast<int>(cpu));
  return cpus;
}

int physical_cores(const CpuList& cpus) {
  std::set<int> cores;
  for (const int cpu : cpus) cores.insert(physical_core(cpu));
  return static_cast<int>(cores.size());
}

int cpu_limit() {
  std::ifstream groups("/proc/self/cgroup");
  return cpus_of_groups(groups, "/sys/fs/cgroup");
}

int usable_cores() {
  const CpuList cpus = allowed_cpus();
  return usable_cores(
      cpus.empty() ? static_cast<int>(std::thread::hardware_concurrency()) : physical_cores(cpus),
      cpu_limit());
}

int usable_cores(int n_cores, int limit) { return std::max(1, at_most(limit, n_cores)); }

CpuList spread_over_cores(const CpuList& cpus, const std::function<int(int cpu)>& core_of) {
  CpuList order, others;
  std::set<int> cores;
  for (const int cpu : cpus) (cores.insert(core_of(cpu)).second ? order : others).push_back(cpu);
  order.insert(order.end(), others.begin(), others.end());
  return order;
}

CpuList spread_over_cores(const CpuList& cpus) { return spread_over_cores(cpus, physical_core); }

CoreUse together(const CoreUse& a, const CoreUse& b) {
  CoreUse both{.machine = a.machine, .n_threads = a.n_threads + b.n_threads};
  std::ranges::set_union(a.cpus, b.cpus, std::back_inserter(both.cpus));
  return both;
}

bool have_own_cores(const CoreUse& a, const CoreUse& b) {
  if (a.n_threads < 1 || b.n_threads < 1 || a.machine.empty() || b.machine.empty()) return false;
  if (a.machine != b.machine) return true;
  if (a.cpus.empty() || b.cpus.empty()) return false;
  CpuList common;
  std::ranges::set_intersection(a.cpus, b.cpus, std::back_inserter(common));
  const int n_cores = physical_cores(together(a, b).cpus);
  return common.empty() ||
         a.n_threads + b.n_threads <= at_most(a.cpu_limit, at_most(b.cpu_limit, n_cores));
}

}  // namespace foretoken
