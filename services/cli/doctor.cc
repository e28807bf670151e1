// doctor, version: is this machine fit, and what is this program.
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/host_and_port.h"
#include "common/base/json.h"
#include "common/client/client.h"
#include "common/config/check.h"
#include "common/config/models.h"
#include "common/config/resolve.h"
#include "common/messages/types.h"
#include "common/runtime/process_limits.h"
#include "common/runtime/service_main.h"
#include "common/transport/endpoint.h"
#include "kernels/include/backend.h"
#include "kernels/include/device_identity.h"
#include "services/cli/bench_door.h"
#include "services/cli/start_checks.h"
#include "services/cli/supervisor_folder.h"
#include "services/cli/text_width.h"
#include "services/cli/verbs.h"
#include "services/cli/voice.h"
#include "services/edge/access_policy.h"
#include "services/edge/api_keys.h"

namespace foretoken::cli {
namespace {

struct Finding {
  enum class Level { kOk, kWarn, kBad } level;
  std::string subject;
  std::string sentence;
};

Finding cpu_finding() {
  const auto backend = make_backend({.n_threads = 1});
  std::ifstream info("/proc/cpuinfo");
  const std::string text{std::istreambuf_iterator<char>(info), {}};
  const bool fast = text.find("avx512_bf16") != std::string::npos;
  return {
      fast ? Finding::Level::kOk : Finding::Level::kWarn, "cpu",
      machine_description() + "; kernels: " + backend->numerics() +
          (fast ? "" : "; without avx512_bf16 a 16-bit model decodes slower than memory allows")};
}

Paint paint_of(Finding::Level level) {
  if (level == Finding::Level::kOk) return Paint::kGood;
  return level == Finding::Level::kWarn ? Paint::kWarning : Paint::kBad;
}

Finding limits_finding() {
  constexpr const char* kSubject = "open files";
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  // A service raises its soft limit (claim_descriptors).
  const auto most = std::min<rlim_t>(limit.rlim_max, kMostDescriptors);
  const std::string may_have = "a service started from here may have " + std::to_string(most);
  constexpr const char* kAdvice =
      ": raise the limit (LimitNOFILE= of a unit, --ulimit nofile= of a container)";
  if (most < kLeastDescriptors)
    return {Finding::Level::kBad, kSubject,
            may_have + " and needs " + std::to_string(kLeastDescriptors) + " at least" + kAdvice};
  if (most < 1024)
    return {Finding::Level::kWarn, kSubject, may_have + "; a client takes three" + kAdvice};
  return {Finding::Level::kOk, kSubject, may_have};
}

// Nothing: a service could listen there now; else why not.
std::optional<std::string> why_not_free(const std::string& address, const std::string& port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), port.c_str(), &wanted, &found) != 0)
    return "is no numeric address";
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> place(found, ::freeaddrinfo);
  const Fd probe(::socket(place->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(probe.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(probe.get(), place->ai_addr, place->ai_addrlen) == 0) return std::nullopt;
  if (errno == EADDRINUSE) return "is taken by another program";
  if (errno == EADDRNOTAVAIL) return "is no address of this machine";
  return std::string("cannot be used: ") + std::strerror(errno);
}

// Who started the services does not matter: `up`, a service manager, another user.
bool router_answers(const BusSection& bus) {
  try {
    return Client(bus).status(steady_now() + std::chrono::seconds(2)).ok();
  } catch (const FatalError&) {  // no keys: it cannot be asked
    return false;
  }
}

std::string in_mib(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

// As loading a model compares them. A system that runs has its weights already.
Finding memory_finding(const LoadedConfig& loaded) {
  constexpr const char* kSubject = "memory";
  // More than the five services of the demo pair take, weights included.
  constexpr std::uint64_t kBesideWeights = std::uint64_t{256} << 20;
  const std::uint64_t free = make_backend({.n_threads = 1})->free_bytes();
  std::uint64_t weights = 0;
  std::string sentence = in_mib(free) + " free";
  try {
    weights = weight_bytes_here(loaded);
    sentence += "; the weights of the configured models take " + in_mib(weights);
  } catch (const FatalError&) {  // the findings about models say why
  }
  if (weights + kBesideWeights <= free) return {Finding::Level::kOk, kSubject, sentence};
  if (router_answers(loaded.config.bus))
    return {Finding::Level::kOk, kSubject, in_mib(free) + " free beside the system that runs"};
  return {Finding::Level::kBad, kSubject,
          sentence + "; the services need some " + in_mib(kBesideWeights) + " more"};
}

bool edge_answers(const HttpAddress& address) {
  const auto reply = http_get(address, "/live");  // at metrics.listen an error of the edge
  return reply.ok() && reply->server == "foretoken";
}

// Without a router of this configuration the edge that answers is one of another system.
bool own_edge_answers(const Config& config, const HttpAddress& address) {
  return edge_answers(address) && router_answers(config.bus);
}

// `shown`: the address as its user knows it, by the key it comes from. `is_served`: whether
// services of this installation answer there; asked where the address is not free.
Finding port_finding(const std::string& subject,
                     const std::string& shown,
                     const std::string& key,
                     const std::optional<std::string>& why_not,
                     const std::function<bool()>& is_served) {
  if (!why_not) return {Finding::Level::kOk, subject, shown + " is free"};
  if (is_served()) return {Finding::Level::kOk, subject, shown + " is served by this installation"};
  return {Finding::Level::kBad, subject, shown + " " + *why_not + "; choose another with " + key};
}

Finding client_port_finding(const Config& config) {
  constexpr const char* kSubject = "client port";
  const std::string endpoint = client_endpoint(config.bus);
  const auto parsed = parse_endpoint(endpoint);
  if (!parsed.ok() || parsed->scheme != Scheme::kTcp || parsed->port == "*")
    return {Finding::Level::kOk, kSubject, endpoint};
  const std::string& place = parsed->place;
  const bool is_v6 = place.starts_with('[');
  return port_finding(kSubject, endpoint, "bus.client",
                      why_not_free(is_v6 ? place.substr(1, place.size() - 2) : place, parsed->port),
                      [&] { return router_answers(config.bus); });
}

std::optional<std::string> why_edge_port_is_not_free(const HttpAddress& address) {
  return why_not_free(address.host == "localhost" ? "127.0.0.1" : address.host, address.port);
}

Finding metrics_port_finding(const Config& config) {
  constexpr const char* kSubject = "metrics port";
  const auto address = host_and_port_in(config.metrics.listen);
  if (!address) return {Finding::Level::kOk, kSubject, "none: metrics.listen is \"\""};
  const std::string url = "http://" + config.metrics.listen + "/metrics";
  if (!edge::is_loopback(address->host) && config.edge.key_file.empty())
    return {Finding::Level::kBad, kSubject,
            "metrics.listen " + config.metrics.listen +
                " is reachable from other machines and there are no keys: set edge.key_file"};
  const HttpAddress place{.host = address->host, .port = std::to_string(address->port)};
  return port_finding(kSubject, url, "metrics.listen", why_edge_port_is_not_free(place),
                      [&] { return own_edge_answers(config, place); });
}

Finding http_port_finding(const Config& config) {
  constexpr const char* kSubject = "HTTP port";
  const EdgeSection& edge = config.edge;
  if (edge.port == 0)
    return {Finding::Level::kOk, kSubject,
            "any free one of " + edge.host + ", which the log names"};
  const HttpAddress place{.host = edge.host, .port = std::to_string(edge.port)};
  return port_finding(kSubject, "http://" + host_and_port(place.host, place.port),
                      "edge.host and edge.port", why_edge_port_is_not_free(place),
                      [&] { return own_edge_answers(config, place); });
}

// Who may ask over HTTP; what the edge would refuse to start with.
Finding http_keys_finding(const EdgeSection& edge) {
  constexpr const char* kSubject = "HTTP keys";
  if (!edge.key_file.empty()) {
    const auto keys = edge::ApiKeys::read(edge.key_file);
    if (!keys.ok()) return {Finding::Level::kBad, kSubject, keys.error().message};
    return {Finding::Level::kOk, kSubject, "clients need a key of " + edge.key_file};
  }
  if (!edge::is_loopback(edge.host))
    return {Finding::Level::kBad, kSubject,
            "edge.host " + edge.host +
                " is reachable from other machines and there are no keys: set edge.key_file"};
  return {Finding::Level::kOk, kSubject, "none: any client on this machine may ask"};
}

// Nothing where no memory is configured and none runs. All requests without a tenant are one
// tenant, which matters where clients that should not see one another may come.
std::optional<Finding> texts_finding(const LoadedConfig& loaded) {
  constexpr const char* kSubject = "memory of texts";
  const auto services = supervisor_state(runtime_directory(loaded.config.bus));
  const bool runs = std::ranges::any_of(
      services, [](const ServiceState& service) { return service.name.ends_with("-memory"); });
  std::vector<std::string> shares;
  for (const ModelInstances& model : models_of(loaded))
    if (runs || model.config.memory.start) shares.push_back(model.config.memory.share);
  if (shares.empty()) return std::nullopt;
  const auto is_set = [&](const char* share) { return std::ranges::count(shares, share) > 0; };
  if (is_set("all"))
    return Finding{Finding::Level::kWarn, kSubject,
                   "all tenants share it (memory.share is \"all\")"};
  if (!is_set("tenant"))
    return Finding{Finding::Level::kOk, kSubject, "each sequence has its own text alone"};
  // A key of HTTP has a name, which is the tenant of its requests.
  const bool is_over_tcp = client_endpoint(loaded.config.bus).starts_with("tcp://") ||
                           loaded.config.edge.key_file.empty();
  if (!is_over_tcp) return Finding{Finding::Level::kOk, kSubject, "each tenant has its own"};
  return Finding{Finding::Level::kWarn, kSubject,
                 "clients come over TCP, and requests without a tenant share one memory: give "
                 "clients that should not see one another tenants, or set memory.share to \"off\""};
}

Finding programs_finding() {
  for (const wire::Role role : wire::kServiceRoles) {
    const std::string program = "foretoken-" + std::string(name_of(role));
    if (!std::filesystem::exists(program_folder() + "/" + program))
      return {Finding::Level::kBad, "programs", program + " is not beside this command"};
  }
  return {Finding::Level::kOk, "programs", "all five services are beside this command"};
}

// Variables of other libraries that change speed, and so every comparison.
Finding environment_finding() {
  std::string found;
  for (const char* name :
       {"OPENBLAS_CORETYPE", "OMP_NUM_THREADS", "GOMP_CPU_AFFINITY", "MALLOC_ARENA_MAX"})
    if (const char* value = std::getenv(name))
      found += std::string(found.empty() ? "" : ", ") + name + "=" + value;
  return {found.empty() ? Finding::Level::kOk : Finding::Level::kWarn, "environment",
          found.empty()
              ? "nothing that changes speed"
              : found + " in force: changes the speed of libraries one might compare with"};
}

std::vector<Finding> models_findings(const LoadedConfig& loaded) {
  std::vector<Finding> findings;
  for (ModelRefusal& refusal : model_refusals(loaded))
    findings.push_back({Finding::Level::kBad, "models", std::move(refusal.sentence)});
  if (findings.empty())
    findings.push_back(
        {Finding::Level::kOk, "models", "the services can load them with these settings"});
  return findings;
}

// Whether each configured device is there, with the library that drives it.
Finding devices_finding(const LoadedConfig& loaded) {
  std::string found;
  const auto look = [&](const std::string& role, const std::string& configured) {
    const DeviceList devices = value_or_throw(device_list_of(configured));
    if (!found.empty()) found += "; ";
    found += role + ": " + configured;
    if (!devices.is_cuda) return;
    const std::vector<int> first{0};
    for (const int number : devices.numbers.empty() ? first : devices.numbers)
      found += " " + device_identity("cuda:" + std::to_string(number));
  };
  try {
    for (const ModelInstances& model : models_of(loaded)) {
      const std::string of = model.name.empty() ? "" : model.name + " ";
      look(of + "target", model.config.target.device);
      if (has_draft(model.config.model)) look(of + "draft", model.config.draft.device);
    }
  } catch (const FatalError& error) {
    return {Finding::Level::kBad, "devices", error.what()};
  }
  return {Finding::Level::kOk, "devices", found};
}

}  // namespace

int run_doctor(const CliOptions& options) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  const Config& config = loaded->config;
  std::vector<Finding> findings = {cpu_finding(),
                                   memory_finding(*loaded),
                                   limits_finding(),
                                   client_port_finding(config),
                                   http_port_finding(config),
                                   http_keys_finding(config.edge),
                                   metrics_port_finding(config),
                                   programs_finding()};
  for (Finding& models : models_findings(*loaded)) findings.push_back(std::move(models));
  findings.push_back(devices_finding(*loaded));
  findings.push_back(environment_finding());
  if (auto texts = texts_finding(*loaded)) findings.push_back(std::move(*texts));
  for (std::string& warning : warnings_about(*loaded))
    findings.push_back({Finding::Level::kWarn, "settings", std::move(warning)});
  bool fit = true;
  OrderedJson document = {{"schema", "foretoken.doctor/1"}, {"findings", OrderedJson::array()}};
  for (const auto& finding : findings) {
    fit = fit && finding.level != Finding::Level::kBad;
    const char* level = finding.level == Finding::Level::kOk     ? "ok"
                        : finding.level == Finding::Level::kWarn ? "warning"
                                                                 : "bad";
    document["findings"].push_back(
        {{"subject", finding.subject}, {"level", level}, {"sentence", finding.sentence}});
    if (!options.output.json)
      std::printf("%s %-12s %s\n",
                  painted_out(filled_to(level, 8), paint_of(finding.level)).c_str(),
                  finding.subject.c_str(), finding.sentence.c_str());
  }
  document["fit"] = fit;
  if (options.output.json) std::cout << to_text(document, 2) << "\n";
  return fit ? kExitOk : kExitEnvironment;
}

int run_version(const CliOptions& options) {
  const auto backend = make_backend({.n_threads = 1});
  if (options.output.json)
    std::cout << to_text(OrderedJson{{"schema", "foretoken.version/1"},
                                     {"build", build_text()},
                                     {"numerics", backend->numerics()}},
                         2)
              << "\n";
  else
    std::cout << "foretoken " << build_text() << ", kernels " << backend->numerics() << "\n";
  return kExitOk;
}

}  // namespace foretoken::cli
