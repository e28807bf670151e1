// How bench asks a running system: over ZeroMQ as the command does, or over HTTP as any
// client does. Requests are told apart by their number; what comes back is in the words of the
// client door.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/client/client.h"
#include "common/messages/client.h"
#include "services/cli/metric_samples.h"

namespace foretoken::cli {

struct BenchNews {
  std::size_t request = 0;
  wire::ClientAnswer answer;  // a piece, or a reply or an error as the last
};

class BenchDoor {
 public:
  virtual ~BenchDoor() = default;
  virtual std::string name() const = 0;
  // Hands a request over, or says why it cannot. A lost connection may be back within the
  // door's patience, and what waits for it in vain ends as kUnavailable.
  virtual Result<void> send(std::size_t request, wire::ClientRequest asked) = 0;
  // What comes next; nothing by the deadline. An Error belongs to no request that is known.
  virtual std::optional<Result<BenchNews>> next(TimePoint deadline) = 0;
  // It is not waited for any more.
  virtual void forget(std::size_t request) = 0;
  // What the services count; nothing of a server that does not say it.
  virtual std::vector<MetricSample> metrics() { return {}; }
  // Requests sent again after a lost connection.
  virtual std::uint64_t n_asked_again() const { return 0; }
};

// The client outlives it.
std::unique_ptr<BenchDoor> zeromq_door(Client& client);

// Of any server that speaks OpenAI's chat completions. `url`: http://HOST:PORT, with or without
// /v1.
struct HttpAddress {
  std::string host, port;
  std::string key = {};  // what its server wants of clients; "" = nothing is sent
};
Result<HttpAddress> read_url(const std::string& url);
// What a server answers, whatever its status. An Error: no server answers there.
struct HttpText {
  unsigned status = 0;
  std::string server;  // the field of that name
  std::string body;
};
Result<HttpText> http_get(const HttpAddress& address, const std::string& path);
// The first model that /v1/models lists. An Error: no server answers there.
Result<std::string> first_model(const HttpAddress& address);
// Raises this process's limit of descriptors. A request that finds none free is refused as kIo.
std::unique_ptr<BenchDoor> http_door(HttpAddress address);

}  // namespace foretoken::cli
