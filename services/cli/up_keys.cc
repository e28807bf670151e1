#include "services/cli/up_keys.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/config/models.h"
#include "common/config/resolve.h"
#include "common/transport/endpoint.h"
#include "common/transport/zmq_auth.h"

namespace foretoken::cli {
namespace {

Error trouble(const std::string& why, const std::string& key) {
  return {ErrorCode::kConfig, why, key};
}

bool uses_keys(const std::string& endpoint) {
  const auto parsed = parse_endpoint(endpoint);
  return parsed.ok() && parsed->scheme == Scheme::kTcp;
}

// Where services find one another: the router, and the drafts of each model.
std::vector<std::string> internal_endpoints(const LoadedConfig& loaded) {
  std::vector<std::string> endpoints = {loaded.config.bus.router};
  for (const ModelInstances& model : models_of(loaded))
    endpoints.insert(endpoints.end(), model.config.bus.draft.begin(), model.config.bus.draft.end());
  return endpoints;
}

}  // namespace

std::optional<Error> key_trouble(const LoadedConfig& loaded) {
  const BusSection& bus = loaded.config.bus;
  if (bus.curve_secret.empty()) return std::nullopt;
  for (const auto& endpoint : internal_endpoints(loaded))
    if (endpoint.starts_with("tcp://"))
      return trouble("over " + endpoint +
                         " every service needs a key of its own, and `up` gives all of them " +
                         bus.curve_secret +
                         ": leave bus.router and bus.draft (of each model) at ipc://, or start "
                         "each service by itself (docs/operations.md)",
                     "bus.curve_secret");
  const std::string client = client_endpoint(bus);
  if (!uses_keys(client)) return std::nullopt;

  const auto keys = read_curve_keys(bus.curve_secret);
  if (!keys.ok()) return keys.error();
  const auto peers = read_curve_peers(bus.curve_peers);
  if (!peers.ok()) return peers.error();
  const std::string line = keys->public_key + " tool:up " + client;
  const auto own = std::find_if(peers->begin(), peers->end(),
                                [&](const CurvePeer& p) { return p.key == keys->public_key; });
  if (own == peers->end() ||
      !role_may_enter(own->user.substr(0, own->user.find(':')), Door::kClient))
    return trouble(
        "`up` asks its router as a client does, with " + bus.curve_secret + ", and " +
            bus.curve_peers + " " +
            (own == peers->end() ? "does not list that key"
                                 : "lists that key as " + own->user + ", which is no client") +
            "; the line must be: " + line,
        "bus.curve_peers");
  const auto door = std::find_if(peers->begin(), peers->end(), [&](const CurvePeer& p) {
    return is_same_endpoint(p.endpoint, client);
  });
  if (door == peers->end() || door->key != keys->public_key)
    return trouble(
        bus.curve_peers +
            (door == peers->end() ? " lists no key for " : " lists another key for ") + client +
            ", by which `up` and other clients know the router; the line must be: " + line,
        "bus.curve_peers");
  return std::nullopt;
}

}  // namespace foretoken::cli
