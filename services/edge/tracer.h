// The traces of the edge's requests: which are recorded, and where they go. HTTP thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "services/edge/http_client.h"
#include "services/edge/http_types.h"
#include "services/edge/otlp.h"
#include "services/edge/request_trace.h"
#include "services/edge/trace_context.h"

namespace foretoken::edge {

struct TracerOptions {
  std::optional<HttpUrl> collector;  // nothing: no traces
  HttpHeaders headers;
  Sampler sampler;
  ResourceAttributes resource;
  bool captures_text = false;
};

// From the key edge.traces_endpoint and the environment, by OpenTelemetry's names. An Error: what
// cannot be, with the name that says it.
Result<TracerOptions> tracer_options(const std::string& endpoint,
                                     const std::map<std::string, std::string>& environment);

class Tracer {
 public:
  using Sink = std::function<void(std::vector<Span>)>;
  Tracer(const TracerOptions& options, Sink sink)
      : sampler_(options.sampler), captures_text_(options.captures_text), sink_(std::move(sink)) {}

  // Null: this one is not recorded.
  std::unique_ptr<RequestTrace> begin(const HttpRequest& request) const;

 private:
  Sampler sampler_;
  bool captures_text_;
  Sink sink_;
};

}  // namespace foretoken::edge
