// doctor, version: is this machine fit, and what is this program.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "common/base/json.h"
#include "common/config/models.h"
#include "common/config/resolve.h"
#include "common/runtime/service_main.h"
#include "kernels/include/backend.h"
#include "kernels/include/device_identity.h"
#include "services/cli/supervisor.h"
#include "services/cli/verbs.h"

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

std::uint64_t meminfo_kib(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key + ":"))
      return std::strtoull(line.c_str() + key.size() + 1, nullptr, 10);
  return 0;
}

Finding memory_finding() {
  const auto available = meminfo_kib("MemAvailable") >> 10;
  const bool enough = available >= 1024;
  return {
      enough ? Finding::Level::kOk : Finding::Level::kBad, "memory",
      std::to_string(available) + " MiB free" + (enough ? "" : "; the demo pair wants 1024 MiB")};
}

Finding limits_finding() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const bool enough = limit.rlim_cur >= 1024;
  return {enough ? Finding::Level::kOk : Finding::Level::kWarn, "open files",
          "limit " + std::to_string(limit.rlim_cur) +
              (enough ? "" : "; ZeroMQ needs one for every peer, raise it with ulimit -n")};
}

Finding port_finding(const Config& config) {
  const std::string endpoint = client_endpoint(config.bus);
  if (supervisor_pid(runtime_directory(config.bus)) != 0)
    return {Finding::Level::kOk, "client port", endpoint + " is served by this installation"};
  const auto colon = endpoint.rfind(':');
  if (!endpoint.starts_with("tcp://") || colon == std::string::npos)
    return {Finding::Level::kOk, "client port", endpoint};
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(endpoint.c_str() + colon + 1)));
  ::inet_pton(AF_INET, endpoint.substr(6, colon - 6).c_str(), &address.sin_addr);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool free = ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  ::close(fd);
  return {
      free ? Finding::Level::kOk : Finding::Level::kBad, "client port",
      endpoint + (free ? " is free" : " is taken by another program; choose one with bus.client")};
}

Finding programs_finding() {
  for (const char* role : {"router", "tokenizer", "draft", "target"})
    if (!std::filesystem::exists(program_folder() + "/foretoken-" + role))
      return {Finding::Level::kBad, "programs",
              "foretoken-" + std::string(role) + " is not beside this command"};
  return {Finding::Level::kOk, "programs", "all four services are beside this command"};
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

Finding models_finding(const LoadedConfig& loaded) {
  for (const ModelInstances& model : models_of(loaded)) {
    const ModelSection& section = model.config.model;
    for (const auto& [configured, role] :
         {std::pair{section.target, "target"}, std::pair{section.draft, "draft"}}) {
      if (configured.empty()) continue;
      const std::filesystem::path folder = model_folder(configured, role);
      if (!std::filesystem::exists(folder / "config.json"))
        return {Finding::Level::kBad, "models",
                std::string("the ") + role + (model.name.empty() ? "" : " of model " + model.name) +
                    " " + folder.string() + " has no config.json"};
    }
  }
  return {Finding::Level::kOk, "models", "target and draft folders are there"};
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
      if (!model.config.model.draft.empty()) look(of + "draft", model.config.draft.device);
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
  const std::vector<Finding> findings = {
      cpu_finding(),      memory_finding(),        limits_finding(),         port_finding(config),
      programs_finding(), models_finding(*loaded), devices_finding(*loaded), environment_finding()};
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
      std::printf("%-8s %-12s %s\n", level, finding.subject.c_str(), finding.sentence.c_str());
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
