// Verbs that start, stop and watch services.
#include "services/cli/flag_checks.h"
#include "services/cli/verb_flags.h"

namespace foretoken::cli {

void add_service_flags(VerbFlags& flags) {
  CLI::App* up = flags.verb(
      &flags.app(), "up",
      "start router, tokenizer, draft, target and edge on this machine: ZeroMQ at "
      "bus.client, HTTP at edge.host and edge.port",
      "  foretoken up --detach\n  foretoken up --target models/big --draft models/small "
      "--draft-len 6\n  foretoken up --detach --port 8080\n  foretoken up --detach --memory\n");
  up->add_flag("-d,--detach", flags.options().up.detach, "return when everything is ready");
  up->add_flag("--supervise", flags.options().up.supervise)->group("");
  up->add_option("--ready-fd", flags.options().up.ready_fd)->group("");
  flags.quiet(up);
  flags.key_flags(up);
  CLI::App* down =
      flags.verb(&flags.app(), "down", "stop what `up --detach` started", "  foretoken down\n");
  flags.quiet(down);
  CLI::App* ps =
      flags.verb(&flags.app(), "ps", "services: state, model, device, type, proposer, load",
                 "  foretoken ps\n  foretoken ps --watch\n  foretoken ps --json\n");
  CLI::Option* watch = ps->add_flag("-w,--watch", flags.options().watch.watch,
                                    "look again and again, with tokens per second; Ctrl-C ends");
  flags.interval(ps)->needs(watch);
  flags.json(ps);
  flags.host(ps);
  CLI::App* top = flags.verb(
      &flags.app(), "top", "what the services do now: speed, acceptance, parts of a round",
      "  foretoken top\n  foretoken top --once --json | jq .tokens_per_second\n");
  top->add_flag("--once", flags.options().watch.once, "one interval, then end");
  flags.interval(top);
  flags.json(top);
  flags.host(top);
  top->get_option("--json")->description("a JSON document of every number an interval");
  CLI::App* trace = flags.verb(
      &flags.app(), "trace",
      "passes of targets and drafts for some seconds, as a file for Perfetto",
      "  foretoken trace --seconds 10 -o trace.json\n  foretoken trace --last --seconds 2\n");
  trace->add_option("--seconds", flags.options().trace.seconds, "for how long")
      ->check(number(from_to(0.1, 3600)))
      ->capture_default_str();
  trace->add_flag("--last", flags.options().trace.last,
                  "the last seconds, as far as services keep them, and not the next");
  trace
      ->add_option("-o,--out", flags.options().trace.out,
                   "file to be written, in place of an older one")
      ->capture_default_str();
  flags.quiet(trace);
  flags.host(trace);
  CLI::App* metrics =
      flags.verb(&flags.app(), "metrics", "Prometheus text of all services; dashboard, alert rules",
                 "  foretoken metrics | grep time_to_first_token\n"
                 "  foretoken metrics --grafana > dashboard.json\n");
  CLI::Option* grafana = metrics->add_flag("--grafana", flags.options().metrics.grafana,
                                           "a Grafana dashboard of them, as JSON; asks no service");
  metrics
      ->add_flag("--alerts", flags.options().metrics.alerts,
                 "Prometheus alert rules over them, as YAML; asks no service")
      ->excludes(grafana);
  flags.host(metrics);
}

}  // namespace foretoken::cli
