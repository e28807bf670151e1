// The processes that bench schedule measures: router, tokenizer, and the programs that run target
// and draft around timed models, in a folder of their own that is gone afterwards. One at a time in
// a process, as it blocks signals.
#pragma once

#include <filesystem>
#include <optional>

#include "bench/schedule/timed_setting.h"
#include "common/client/client.h"
#include "services/cli/options.h"
#include "services/cli/schedule_conditions.h"
#include "services/cli/supervisor.h"

namespace foretoken::cli {

class ScheduleSystem {
 public:
  // Returns when a request can be served with a draft. Throws FatalError where a program is missing
  // or does not start.
  ScheduleSystem(const ScheduleConditions& conditions, const ConfigOptions& config);
  ~ScheduleSystem();
  ScheduleSystem(const ScheduleSystem&) = delete;
  ScheduleSystem& operator=(const ScheduleSystem&) = delete;

  Client& client() { return *client_; }
  // SIGKILL; it is not started again. Throws FatalError where there is none.
  void kill_draft();

 private:
  class Folder {
   public:
    Folder();
    ~Folder();
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    const std::filesystem::path& path() const { return path_; }

   private:
    std::filesystem::path path_;
  };

  void wait_for_draft();
  wire::StatusReply status();

  Folder folder_;  // the last to go
  std::optional<Supervisor> supervisor_;
  std::optional<Client> client_;  // its threads must not take the supervisor's signals
};

}  // namespace foretoken::cli
