#include "common/config/check.h"

#include <map>

#include "common/base/host_and_port.h"
#include "common/config/models.h"
#include "common/config/resolve.h"

namespace foretoken {
namespace {

// Of one model; `name` is that of [model.NAME], if there is one.
void check_model(const std::string& name, const Config& c, std::vector<std::string>& errors) {
  const auto wrong = [&](const std::string& sentence) {
    errors.push_back((name.empty() ? "" : "model " + name + ": ") + sentence);
  };
  if (c.speculation.ngram_min > c.speculation.ngram_max)
    wrong("speculation.ngram_min is " + std::to_string(c.speculation.ngram_min) +
          ", above speculation.ngram_max, " + std::to_string(c.speculation.ngram_max));
  if (c.limits.max_batch_rows < c.limits.max_running)
    wrong("limits.max_batch_rows is " + std::to_string(c.limits.max_batch_rows) +
          ", below limits.max_running, " + std::to_string(c.limits.max_running) +
          ": each sequence needs a row");
  if (c.model.max_model_len == 1)
    wrong("model.max_model_len is 1: there is no room for an answer; 0 is what the model allows");
  if (c.model.target.empty()) wrong("model.target is empty: there is nothing to serve");
  if (c.model.draft.starts_with("self:") && c.model.draft != kSelfDraft)
    wrong("model.draft is \"" + c.model.draft + "\"; of the target itself there is \"" +
          kSelfDraft + "\"");
  if (c.model.draft == kSelfDraft && (c.model.dtype == "int8" || c.model.dtype == "int4"))
    wrong("model.draft is \"" + c.model.draft + "\", and model.dtype is \"" + c.model.dtype +
          "\": a draft in four bits is no faster than that; choose a type of 16 bits or more, "
          "another draft, or \"\" for none");
  // A list serves the ranks of each host; how many those are is known when they are started, by
  // hostfile or by Slurm.
  const auto each_its_device = [&](const std::string& section, const auto& s) {
    const auto devices = device_list_of(s.device);
    if (!devices.ok() || devices->numbers.empty()) return;
    const std::size_t n = devices->numbers.size();
    if (n > s.tensor_parallel)
      wrong(section + ".device is \"" + s.device + "\", " + std::to_string(n) +
            (n == 1 ? " device" : " devices") + ", and " + section + ".tensor_parallel is " +
            std::to_string(s.tensor_parallel) + ": each rank takes one");
  };
  const auto sums_on_a_device = [&](const std::string& section, const auto& s) {
    if (s.device == "cpu" && (s.rank_sums == "one_shot" || s.rank_sums == "nccl"))
      wrong(section + ".rank_sums is \"" + s.rank_sums + "\", and " + section +
            ".device is cpu: there ranks add in host memory");
  };
  const auto records_alone = [&](const std::string& section, const auto& s) {
    if (s.record == "on" && s.tensor_parallel > 1)
      wrong(section + ".record is \"on\", and " + section + ".tensor_parallel is " +
            std::to_string(s.tensor_parallel) + ": passes of several ranks are not recorded");
  };
  sums_on_a_device("target", c.target);
  sums_on_a_device("draft", c.draft);
  records_alone("target", c.target);
  records_alone("draft", c.draft);
  each_its_device("target", c.target);
  each_its_device("draft", c.draft);
}

// What a request says of its host has a port and no scheme: an entry with either would never match.
void check_hosts(const std::vector<std::string>& hosts, std::vector<std::string>& errors) {
  for (const std::string& host : hosts)
    if (host.empty() || host.find_first_of("/: ") != std::string::npos)
      errors.push_back("edge.allowed_hosts has \"" + host +
                       "\"; it must be the name of a host, without scheme and port, or *");
}

void check_bodies(const EdgeSection& edge, std::vector<std::string>& errors) {
  if (edge.max_body_mib > edge.max_bodies_mib)
    errors.push_back("edge.max_body_mib is " + std::to_string(edge.max_body_mib) +
                     ", above edge.max_bodies_mib, " + std::to_string(edge.max_bodies_mib) +
                     ": such a body would never find room");
}

// A relative path would mean another folder for each directory that a service is started in.
void check_packed_cache(const ModelInstances& model, std::vector<std::string>& errors) {
  const std::string& folder = model.config.model.packed_cache;
  if (folder == "auto" || folder == "off" || folder.starts_with('/')) return;
  const std::string key = (model.name.empty() ? "model" : "model." + model.name) + ".packed_cache";
  errors.push_back(key + " is \"" + folder +
                   "\"; it must be auto, off or the full path of a folder");
}

// Here a relative path would also be no address: libsystemd takes the full path of a socket alone.
void check_runtime_folder(const BusSection& bus, std::vector<std::string>& errors) {
  if (bus.runtime_dir.empty() || bus.runtime_dir.starts_with('/')) return;
  errors.push_back("bus.runtime_dir is \"" + bus.runtime_dir +
                   "\"; it must be the full path of a folder, or \"\" for the usual one");
}

// A memory has no number, so of bus.draft it needs the entry that any --id fills in; a port cannot
// be filled in with a word.
void check_memories(const LoadedConfig& loaded, std::vector<std::string>& errors) {
  std::map<std::string, std::string> owner;  // a folder of texts -> whose it is
  for (const ModelInstances& model : models_of(loaded)) {
    const MemorySection& memory = model.config.memory;
    if (!memory.start) continue;
    const std::string of = model.name.empty() ? "" : "model " + model.name + ": ";
    const auto& drafts = model.config.bus.draft;
    if (drafts.empty() || !drafts.back().starts_with("ipc://") ||
        drafts.back().find("{id}") == std::string::npos)
      errors.push_back(of +
                       "memory.start is true, and the last entry of bus.draft is no ipc:// name "
                       "with {id}: there is no endpoint for a memory");
    if (memory.folder.empty()) continue;
    if (const auto [other, is_first] = owner.try_emplace(memory.folder, model.name); !is_first)
      errors.push_back("memory.folder is \"" + memory.folder + "\" for the memories of [model." +
                       other->second + "] and [model." + model.name +
                       "]: each needs a folder of its own, by [memory.NAME]");
  }
}

// "draft, ngram"
std::string words_of(ProposerSet proposers) {
  std::string words;
  for (const std::string& name : list_of(proposers)) words += (words.empty() ? "" : ", ") + name;
  return words;
}

void check_metrics_address(const Config& config, std::vector<std::string>& errors) {
  const auto address = host_and_port_in(config.metrics.listen);
  if (address && address->port == config.edge.port && address->host == config.edge.host)
    errors.push_back("metrics.listen is " + config.metrics.listen +
                     ", the address of edge.host and edge.port: the metrics are there already");
}

}  // namespace

void check_together(const LoadedConfig& loaded, std::vector<std::string>& errors) {
  for (const auto& model : models_of(loaded)) {
    check_model(model.name, model.config, errors);
    check_packed_cache(model, errors);
  }
  check_names(loaded.models, loaded.config.router.default_model, errors);
  check_memories(loaded, errors);
  const BusSection& bus = loaded.config.bus;
  check_runtime_folder(bus, errors);
  if (!bus.curve_secret.empty() && bus.curve_peers.empty())
    errors.push_back(
        "bus.curve_secret is set and bus.curve_peers is not: every peer would be refused");
  check_hosts(loaded.config.edge.allowed_hosts, errors);
  check_bodies(loaded.config.edge, errors);
  check_metrics_address(loaded.config, errors);
}

std::vector<std::string> warnings_about(const LoadedConfig& loaded) {
  std::vector<std::string> warnings;
  for (const ModelInstances& model : models_of(loaded)) {
    const ProposerSet proposers = model.config.speculation.proposer;
    if (!model.config.memory.start || proposers.contains(ProposerKind::kMemory)) continue;
    warnings.push_back((model.name.empty() ? "" : "model " + model.name + ": ") +
                       "memory.start is true, but speculation.proposer is " + words_of(proposers) +
                       ": only requests that name memory use it");
  }
  return warnings;
}

}  // namespace foretoken
