#include "common/runtime/service_main.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <mutex>
#include <optional>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>

#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/config/describe.h"
#include "common/config/models.h"
#include "common/runtime/args.h"
#include "common/runtime/process.h"
#include "common/runtime/process_limits.h"
#include "common/runtime/rank_host.h"
#include "common/runtime/rank_launcher.h"
#include "common/runtime/service_loop.h"
#include "common/runtime/transport_metrics.h"
#include "common/transport/zmq_transport.h"
#include "common/wire/version.h"

#ifndef FORETOKEN_VERSION
#define FORETOKEN_VERSION "0.0.0"
#endif
#ifndef FORETOKEN_COMMIT
#define FORETOKEN_COMMIT "unknown"
#endif

namespace foretoken {
namespace {

// Asked to stop while still loading: nothing was promised, nothing needs draining.
struct StopRequested {};

const char* instruction_set() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return "avx512";
  if (__builtin_cpu_supports("avx2")) return "avx2";
#endif
  return "baseline";
}

int exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kConfig:
    case ErrorCode::kUnsupportedModel:
    case ErrorCode::kIncompatible:
    case ErrorCode::kMalformed:  // a model or key file that is broken stays broken
    case ErrorCode::kModelNotFound:
    case ErrorCode::kNotFound:
    case ErrorCode::kInvalidValue:
      return kExitConfig;
    case ErrorCode::kIo:
    case ErrorCode::kUnavailable:
    case ErrorCode::kOutOfMemory:
      return kExitGone;
    default:
      return kExitInternal;
  }
}

// Keeps the service manager patient while a model is loaded: one stage may take longer than the
// manager waits, above all beside busy neighbours. Stops when no stage has ended for kStuckLoading.
class LoadingPulse {
 public:
  explicit LoadingPulse(Notifier& notifier)
      : notifier_(notifier), thread_([this](const std::stop_token& stop) { run(stop); }) {
    // Not left to the thread: a small model is loaded before it runs.
    notifier_.extend_timeout(kExtension);
  }
  void progress() {
    const std::lock_guard lock(mutex_);
    last_progress_ = steady_now();
  }

 private:
  static constexpr auto kExtension = std::chrono::seconds(20);
  static constexpr auto kStuckLoading = std::chrono::minutes(10);

  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait_for(lock, stop, kExtension / 4, [] { return false; });
      if (stop.stop_requested()) return;
      if (steady_now() - last_progress_ < kStuckLoading) notifier_.extend_timeout(kExtension);
    }
  }

  Notifier& notifier_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  TimePoint last_progress_ = steady_now();
  std::jthread thread_;
};

class RealRuntime final : public Runtime {
 public:
  RealRuntime(const ServiceInfo& info, std::string id, LoadedConfig loaded)
      : loaded_(std::move(loaded)),
        id_(std::move(id)),
        name_(info.role + "-" + id_),
        worker_{mix64(fnv1a(info.role + "-" + id_ + "@" + host_name()))},
        incarnation_{random_u64() | 1},
        metrics_(Labels{{"service", name_}}) {
    const auto& compat = loaded_.config.metrics.compat;
    if (std::find(compat.begin(), compat.end(), "vllm") != compat.end())
      metrics_.set_names(MetricNames::kOwnAndVllm);
    metrics_.before_text([this] {
      metrics_.gauge("build_info", 1,
                     {{"version", FORETOKEN_VERSION},
                      {"commit", FORETOKEN_COMMIT},
                      {"isa", instruction_set()}});
      metrics_.counter("dropped_log_lines_total", dropped_log_lines());
      metrics_.counter("process_cpu_seconds_total", cpu_seconds());
      metrics_.gauge("process_resident_memory_bytes", resident_bytes());
      metrics_.gauge("process_start_time_seconds", started_);
    });
  }

  const LoadedConfig& loaded() const override { return loaded_; }
  const std::string& id() const override { return id_; }
  const std::string& name() const override { return name_; }
  WorkerId worker() const override { return worker_; }
  Incarnation incarnation() const override { return incarnation_; }
  Metrics& metrics() override { return metrics_; }

  void check_stop() override {
    if (const auto signal = signals_.next(); signal && *signal != SIGHUP) throw StopRequested{};
  }

  void progress(const std::string& text) override {
    check_stop();
    if (!loading_) loading_.emplace(notifier_);
    loading_->progress();
    notifier_.status(text);
    // A model says so a hundred times while it is read: percentages of one thing once a second.
    const std::string what = text.substr(0, text.find_first_of("0123456789"));
    const TimePoint now = steady_now();
    if (what == progress_ && now - progress_logged_ < std::chrono::seconds(1)) return;
    progress_ = what;
    progress_logged_ = now;
    log_info(text);
  }

  int serve(Service& service) override {
    const BusSection& bus_config = loaded_.config.bus;
    claim_thread_memory();  // beside what was loaded
    auto transport = std::make_unique<ZmqTransport>(
        ZmqOptions{bus_config.curve_secret, bus_config.curve_peers, bus_config.insecure});
    publish_transport(metrics_, transport->counters());
    ThreadedBus bus(std::move(transport));
    publish_memory_links(metrics_, bus.memory_counters());
    loading_.reset();
    return run_service(service, bus, signals_, notifier_,
                       {.drain_time = std::chrono::seconds(loaded_.config.limits.drain_s),
                        .stuck_time = std::chrono::seconds(loaded_.config.limits.stuck_s)});
  }

 private:
  LoadedConfig loaded_;
  std::string id_;
  std::string name_;
  WorkerId worker_;
  Incarnation incarnation_;
  Metrics metrics_;
  Signals signals_;  // before the first thread
  Notifier notifier_;
  std::optional<LoadingPulse> loading_;  // from the first progress() until serve()
  std::string progress_;
  TimePoint progress_logged_;
  const double started_ =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
};

void start_log(const LogSection& section, const std::string& name) {
  const LogLevel level = section.level == "debug"     ? LogLevel::kDebug
                         : section.level == "warning" ? LogLevel::kWarning
                         : section.level == "error"   ? LogLevel::kError
                                                      : LogLevel::kInfo;
  const bool json =
      section.format == "json" || (section.format == "auto" && ::isatty(STDERR_FILENO) == 0);
  configure_log(level, json ? LogFormat::kJson : LogFormat::kText, name);
}

int internal_error(const std::exception& error) {
  log_error("internal error", {{"reason", error.what()}});
  return kExitInternal;
}

int run_body(const ServiceInfo& info,
             const Args& args,
             LoadedConfig loaded,
             const std::function<int(const Config&, Runtime&)>& body) {
  try {
    RealRuntime runtime(info, args.id, std::move(loaded));
    const Config& config = runtime.loaded().config;
    start_log(config.log, runtime.name());
    log_info("starting",
             {{"build", build_text()}, {"config", runtime.loaded().file}, {"pid", ::getpid()}});
    claim_descriptors();
    claim_thread_memory();
    return body(config, runtime);
  } catch (const StopRequested&) {
    log_info("stopped while starting");
    return kExitOk;
  } catch (const FatalError& error) {
    log_error(error.what(), {{"code", error_code_name(error.code())}});
    return exit_code_of(error.code());
  } catch (const std::bad_alloc&) {
    log_error("out of memory: what the machine or a limit (ulimit -v, MemoryMax=) gives is used up",
              {{"code", error_code_name(ErrorCode::kOutOfMemory)}});
    return kExitGone;
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) return internal_error(error);
    log_error(
        "a thread cannot be started: no memory for its stack (ulimit -v), or too many tasks "
        "(ulimit -u)",
        {{"code", error_code_name(ErrorCode::kOutOfMemory)}});
    return kExitGone;
  } catch (const std::exception& error) {
    return internal_error(error);
  }
}

}  // namespace

int service_main(const ServiceInfo& info, const std::function<int(const Config&, Runtime&)>& body) {
  if (info.argc > 4 &&
      std::string_view(info.argv[1]) == kRankHostWord)  // mpirun's, on another host
    return host_ranks(rank_hosting(info.argc, info.argv));
  const std::string program = "foretoken-" + info.role;
  const ParsedArgs parsed = parse_args(program, info.summary, info.argc, info.argv, info.switches);
  if (!parsed.args) return parsed.exit_code;
  const Args& args = *parsed.args;
  if (args.version) {
    std::cout << program << " " << build_text() << "\n";
    return kExitOk;
  }
  LoadedConfig loaded = load_config({args.config_file, process_environment(), args.settings});
  for (const auto& error : loaded.errors) std::cerr << program << ": " << error << "\n";
  if (!loaded.errors.empty()) return kExitConfig;
  if (info.serves_one_model) {
    auto of_model = config_of_instance(loaded, args.id, info.role);
    if (!of_model.ok()) {
      std::cerr << program << ": " << of_model.error().message << "\n";
      return kExitConfig;
    }
    loaded = std::move(*of_model);
  }
  if (args.print_config) std::cout << print_config(loaded);
  if (args.print_config || args.check_config) return kExitOk;
  const int code = run_body(info, args, std::move(loaded), body);
  report_exit(code);
  return code;
}

std::string version_text() { return FORETOKEN_VERSION; }

std::string build_text() {
  return version_text() + " commit " + FORETOKEN_COMMIT + " g++ " + std::to_string(__GNUC__) + "." +
         std::to_string(__GNUC_MINOR__) + " " + instruction_set() + " protocol " +
         std::to_string(wire::kVersionMajor) + "." + std::to_string(wire::kVersionMinor);
}

}  // namespace foretoken
