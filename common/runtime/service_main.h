// All that surrounds a service: flags, configuration, log, signals, readiness, watchdog, draining,
// exit code, in that order and nowhere else. A main constructs its objects and calls
// runtime.serve(service).
//
// Exit codes: 0 drained or asked for help · 64 usage · 70 we are wrong · 75 a peer, rank or device
// is gone, or a file or address is not available now · 78 configuration or model. Nothing fatal
// exits 0.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/config/load.h"
#include "common/runtime/args.h"
#include "common/runtime/metrics.h"
#include "common/runtime/service.h"
#include "common/wire/envelope.h"

namespace foretoken {

inline constexpr int kExitOk = 0;
inline constexpr int kExitUsage = 64;
inline constexpr int kExitInternal = 70;
inline constexpr int kExitGone = 75;
inline constexpr int kExitConfig = 78;

struct ServiceInfo {
  std::string role;  // "target": also the name of the executable, foretoken-target
  int argc = 0;
  char** argv = nullptr;
  std::string summary;  // one sentence for --help
  // Its configuration is that of the model which --id names, where several are declared.
  bool serves_one_model = false;
  std::vector<ServiceSwitch> switches = {};
};

class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual const LoadedConfig& loaded() const = 0;
  virtual const std::string& id() const = 0;    // --id, "0" unless given
  virtual const std::string& name() const = 0;  // "draft-0"
  virtual WorkerId worker() const = 0;  // the same after a restart, different on another host
  virtual Incarnation incarnation() const = 0;  // random for each process
  // One per service: it numbers frames.
  wire::Speaker speaker() const { return {worker(), incarnation()}; }
  virtual Metrics& metrics() = 0;
  // While loading: the text goes to STATUS= and the log (a percentage once a second), and the start
  // timeout begins anew.
  virtual void progress(const std::string& text) = 0;
  // While loading, where there is no progress to report: throws, for the process to end with 0, if
  // a signal has asked it to stop.
  virtual void check_stop() = 0;
  // Runs until drained; returns the exit code. Once per process.
  virtual int serve(Service& service) = 0;
};

int service_main(const ServiceInfo& info, const std::function<int(const Config&, Runtime&)>& body);

std::string version_text();  // "0.1.0"
// Version, commit, compiler and instruction set, for --version and Hello.
std::string build_text();

}  // namespace foretoken
