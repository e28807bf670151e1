// One line per event: a sentence and key=value pairs, as text or JSON, on standard error. Services
// and the runtime log; core rooms return facts instead. Safe from any thread; never blocks for
// long: beyond 100 lines a second lines are dropped and counted. Prompts and keys are never logged.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace foretoken {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError };
enum class LogFormat : std::uint8_t { kText, kJson };

struct LogField {
  std::string_view key;
  std::string value;
  bool quoted = true;  // numbers and booleans stand bare in JSON

  LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
  LogField(std::string_view k, const std::string& v) : key(k), value(v) {}
  LogField(std::string_view k, const char* v) : key(k), value(v) {}
  LogField(std::string_view k, bool v) : key(k), value(v ? "true" : "false"), quoted(false) {}
  LogField(std::string_view k, double v);
  template <std::integral T>
  requires(!std::same_as<T, bool>) LogField(std::string_view k, T v)
      : key(k), value(std::to_string(v)), quoted(false) {}
};

using LogFields = std::initializer_list<LogField>;

// Once, before threads start. Without it: info, text. `name` stands in every line: "draft-0".
void configure_log(LogLevel least, LogFormat format, std::string_view name);
void log(LogLevel level, std::string_view sentence, LogFields fields = {});
std::uint64_t dropped_log_lines();

inline void log_info(std::string_view sentence, LogFields fields = {}) {
  log(LogLevel::kInfo, sentence, fields);
}
inline void log_warning(std::string_view sentence, LogFields fields = {}) {
  log(LogLevel::kWarning, sentence, fields);
}
inline void log_error(std::string_view sentence, LogFields fields = {}) {
  log(LogLevel::kError, sentence, fields);
}

}  // namespace foretoken
