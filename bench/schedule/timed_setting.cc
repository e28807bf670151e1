#include "bench/schedule/timed_setting.h"

#include "common/base/json.h"

namespace foretoken::bench {
namespace {

constexpr double kMostMs = 60'000;

Error wrong(const std::string& what) {
  return Error{ErrorCode::kInvalidValue, std::string(kTimedFlag) + ": " + what};
}

}  // namespace

std::string text_of(const TimedSetting& setting) {
  return to_text(OrderedJson{{"pass_ms", setting.pass_ms},
                             {"acceptance", setting.acceptance},
                             {"rtt_ms", setting.rtt_ms},
                             {"lock", setting.lock}});
}

Result<TimedSetting> timed_setting(std::string_view text) {
  const auto json = parse_json(text);
  if (!json.ok()) return wrong(json.error().message);
  if (!json->is_object()) return wrong("is no object");
  TimedSetting setting;
  const auto read = [&](const char* key, double& value, double most) {
    const auto at = json->find(key);
    if (at == json->end() || !at->is_number()) return false;
    value = at->get<double>();
    return value >= 0 && value <= most;
  };
  if (!read("pass_ms", setting.pass_ms, kMostMs)) return wrong("pass_ms must be 0 to 60000");
  if (!read("acceptance", setting.acceptance, 1)) return wrong("acceptance must be 0 to 1");
  if (!read("rtt_ms", setting.rtt_ms, kMostMs)) return wrong("rtt_ms must be 0 to 60000");
  const auto lock = json->find("lock");
  if (lock == json->end() || !lock->is_string()) return wrong("lock must be a path or \"\"");
  setting.lock = lock->get<std::string>();
  return setting;
}

}  // namespace foretoken::bench
