#include "common/base/failpoint.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>

namespace foretoken {
namespace {

struct Place {
  FailAction action = FailAction::kNone;
  double probability = 1;
};

struct Places {
  std::map<std::string, Place, std::less<>> by_name;
  std::mt19937_64 random{1};
  std::mutex mutex;
};

FailAction action_of(const std::string& word) {
  if (word == "error") return FailAction::kError;
  if (word == "delay") return FailAction::kDelay;
  if (word == "abort") return FailAction::kAbort;
  if (word == "stop") return FailAction::kStop;
  std::fprintf(stderr, "FORETOKEN_FAILPOINTS: \"%s\" is not error, delay, abort or stop\n",
               word.c_str());
  std::exit(64);
}

Places& places() {
  static Places instance;
  static std::once_flag once;
  std::call_once(once, [] {
    const char* text = std::getenv("FORETOKEN_FAILPOINTS");
    if (text == nullptr) return;
    if (const char* seed = std::getenv("FORETOKEN_FAILPOINT_SEED"))
      instance.random.seed(std::strtoull(seed, nullptr, 10));
    std::string rest = text;
    while (!rest.empty()) {
      const auto comma = rest.find(',');
      const std::string item = rest.substr(0, comma);
      rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
      const auto equals = item.find('=');
      if (equals == std::string::npos) continue;
      const auto colon = item.find(':', equals);
      Place place{action_of(item.substr(equals + 1,
                                        colon == std::string::npos ? colon : colon - equals - 1)),
                  1};
      if (colon != std::string::npos)
        place.probability = std::strtod(item.c_str() + colon + 1, nullptr);
      instance.by_name[item.substr(0, equals)] = place;
    }
  });
  return instance;
}

}  // namespace

bool failpoints_armed() {
  static const bool armed = !places().by_name.empty();
  return armed;
}

FailAction failpoint_hit(std::string_view name) {
  Places& all = places();
  FailAction action = FailAction::kNone;
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_name.find(name);
    if (found == all.by_name.end()) return FailAction::kNone;
    if (std::uniform_real_distribution<double>(0, 1)(all.random) >= found->second.probability)
      return FailAction::kNone;
    action = found->second.action;
  }
  std::fprintf(stderr, "failpoint %.*s hit\n", static_cast<int>(name.size()), name.data());
  if (action == FailAction::kAbort) std::abort();
  if (action == FailAction::kStop) std::raise(SIGSTOP);
  if (action == FailAction::kDelay) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return action;
}

}  // namespace foretoken
