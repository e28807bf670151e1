#include "common/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>

#include "common/base/json.h"

namespace foretoken {
namespace {

constexpr std::int64_t kLinesPerSecond = 100;  // beyond, journald would drop lines of all services

struct State {
  std::shared_ptr<spdlog::logger> logger;
  LogFormat format = LogFormat::kText;
  std::string name;
  std::atomic<std::int64_t> second{0};
  std::atomic<std::int64_t> lines{0};
  std::atomic<std::uint64_t> dropped{0};
};

State& state() {
  static State instance;
  static std::once_flag once;
  std::call_once(once, [] {
    instance.logger = std::make_shared<spdlog::logger>(
        "foretoken", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    instance.logger->set_pattern("%Y-%m-%dT%H:%M:%S.%fZ %-7l %v", spdlog::pattern_time_type::utc);
  });
  return instance;
}

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

bool is_bare(std::string_view text) {
  if (text.empty()) return false;
  for (const char c : text)
    if (static_cast<unsigned char>(c) <= 0x20 || c == '"' || c == '=' || c == '\\' || c == 0x7f)
      return false;
  return true;
}

std::string text_line(std::string_view name, std::string_view sentence, LogFields fields) {
  std::string line;
  if (!name.empty()) line.append(name).append(": ");
  line += sentence;
  for (const LogField& field : fields) {
    line.append(" ").append(field.key).append("=");
    if (is_bare(field.value))
      line += field.value;
    else
      line += to_text(Json(field.value));
  }
  return line;
}

std::string json_line(std::string_view name,
                      LogLevel level,
                      std::string_view sentence,
                      LogFields fields) {
  static constexpr std::string_view kNames[] = {"debug", "info", "warning", "error"};
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  OrderedJson line = {{"time", static_cast<double>(us) / 1e6},
                      {"level", kNames[static_cast<std::size_t>(level)]},
                      {"service", name},
                      {"event", sentence}};
  for (const LogField& field : fields)
    line[std::string(field.key)] =
        field.quoted ? OrderedJson(field.value) : OrderedJson::parse(field.value);
  return to_text(line);  // names come from outside: what is not UTF-8 is replaced
}

// Counts this line against its second. Approximate when threads race across a second: a line more
// or less.
bool admitted(State& s) {
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::steady_clock::now().time_since_epoch())
                       .count();
  if (s.second.exchange(now) != now) s.lines = 0;
  if (s.lines.fetch_add(1) < kLinesPerSecond) return true;
  s.dropped.fetch_add(1);
  return false;
}

}  // namespace

LogField::LogField(std::string_view k, double v)
    : key(k), value(fmt::format("{:.6g}", v)), quoted(false) {
  if (value.find_first_not_of("0123456789+-.e") != std::string::npos)
    quoted = true;  // inf and nan are not JSON
}

void configure_log(LogLevel least, LogFormat format, std::string_view name) {
  State& s = state();
  s.format = format;
  s.name = name;
  s.logger->set_level(level_of(least));
  s.logger->flush_on(spdlog::level::debug);
  if (format == LogFormat::kJson) s.logger->set_pattern("%v");
}

void log(LogLevel level, std::string_view sentence, LogFields fields) {
  State& s = state();
  if (!s.logger->should_log(level_of(level)) || !admitted(s)) return;
  s.logger->log(level_of(level), "{}",
                s.format == LogFormat::kJson ? json_line(s.name, level, sentence, fields)
                                             : text_line(s.name, sentence, fields));
}

std::uint64_t dropped_log_lines() { return state().dropped; }

}  // namespace foretoken
