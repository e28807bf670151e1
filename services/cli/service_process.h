// A service as a process: started in a group of its own, with its output in a log, under the notify
// protocol of systemd, and ended with the process that started it. Must not know what it serves, or
// when it is started again.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace foretoken::cli {

struct ProcessSetup {
  std::vector<std::string> argv;  // argv[0] is the program's path
  std::filesystem::path log;      // of both outputs
  // A log begins with its run: what an earlier one said would be shown as the reason of a failure.
  enum class Log : std::uint8_t { kBegin, kGoOn } how = Log::kBegin;
  std::string notify_path;               // of the socket that it notifies
  std::chrono::milliseconds watchdog{};  // longest silence once it is ready; 0 = any
};

// Throws std::runtime_error where the log cannot be written or no process can be made. A program
// that is not there ends with 127, and its log says why.
pid_t start_process(ProcessSetup setup);

}  // namespace foretoken::cli
