// trace: the passes of all targets and drafts for some seconds, as a file for Perfetto.
#include <filesystem>
#include <iostream>
#include <thread>

#include "common/client/client.h"
#include "services/cli/ask.h"
#include "services/cli/chrome_trace.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

using namespace std::chrono_literals;

// Services keep a bounded number of passes: often enough for the fastest.
constexpr auto kAskAgain = 500ms;

Result<std::vector<wire::ServicePasses>> ask_passes(Client& client) {
  auto reply = ask_for<wire::PassesReply>(client, {.op = wire::ClientOp::kPasses}, 3s);
  if (!reply.ok()) return reply.error();
  return std::move(reply->passes);
}

Result<PassRecord> record_of(Client& client, const TraceOptions& options) {
  if (const auto status = client.status(steady_now() + 3s); !status.ok()) return status.error();
  const auto first = ask_passes(client);
  if (!first.ok()) return first.error();
  const TimePoint answered = steady_now();
  const auto seconds =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(options.seconds));
  const TimePoint begin = options.last ? answered - seconds : answered;
  const auto since_begin = [&](TimePoint now) {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(now - begin).count());
  };
  PassRecord record;
  record.add(*first, since_begin(answered));
  if (options.last) return record;
  for (const TimePoint end = begin + seconds; steady_now() < end;) {
    std::this_thread::sleep_until(std::min<TimePoint>(end, steady_now() + kAskAgain));
    const auto more = ask_passes(client);
    if (!more.ok()) return more.error();
    record.add(*more, since_begin(steady_now()));
  }
  return record;
}

void say_what_is_in_it(const PassRecord& record, const std::string& file) {
  for (const auto& [name, service] : record.services()) {
    std::string line = name + ": " + std::to_string(service.passes.size()) + " passes";
    if (service.n_lost > 0) line += ", " + std::to_string(service.n_lost) + " lost";
    std::cerr << line << "\n";
  }
  std::cerr << file << ": open it at https://ui.perfetto.dev or in chrome://tracing\n";
}

}  // namespace

int run_trace(const CliOptions& options) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  if (const auto out = check_writable(options.trace.out, "--out"); !out.ok())
    return report_error(out.error());
  Client client(loaded->config.bus);
  const auto record = record_of(client, options.trace);
  if (!record.ok()) {
    Error error = record.error();
    if (error.code == ErrorCode::kDeadlineExceeded) error.code = ErrorCode::kUnavailable;
    return report_error(error);
  }
  const auto written =
      write_whole_file(options.trace.out, chrome_trace(*record), Existing::kReplace);
  if (!written.ok()) return report_error(written.error());
  if (!options.output.quiet) say_what_is_in_it(*record, options.trace.out);
  return kExitOk;
}

}  // namespace foretoken::cli
