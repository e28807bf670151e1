#include "services/edge/tracer.h"

#include <algorithm>
#include <utility>

namespace foretoken::edge {
namespace {

using Environment = std::map<std::string, std::string>;

std::string value_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

Error blaming(const Error& error, const std::string& name) {
  return {ErrorCode::kConfig, name + ": " + error.message};
}

std::string with_path(std::string base, const std::string& path) {
  while (base.ends_with('/')) base.pop_back();
  return base + path;
}

// "key=value,key=value", values with %XX.
Result<HttpHeaders> read_pairs(const std::string& text, const std::string& name) {
  HttpHeaders pairs;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string pair = text.substr(begin, end - begin);
    begin = end + 1;
    pair.erase(0, pair.find_first_not_of(' '));
    if (pair.empty()) continue;
    const std::size_t equals = pair.find('=');
    const auto value =
        equals == std::string::npos ? std::nullopt : decoded_path(pair.substr(equals + 1));
    if (!value || equals == 0)
      return Error{ErrorCode::kConfig,
                   name + ": \"" + pair + "\" is not KEY=VALUE; pairs are separated by commas"};
    pairs.emplace_back(pair.substr(0, equals), *value);
  }
  return pairs;
}

struct Endpoint {
  std::string name;  // who says it
  std::string url;
};

// The key is stronger than the environment, and traces' own variable than that of all signals.
Endpoint endpoint_of(const std::string& key, const Environment& environment) {
  if (key == "none") return {};
  if (!key.empty()) return {"edge.traces_endpoint", with_path(key, "/v1/traces")};
  if (value_of(environment, "OTEL_SDK_DISABLED") == "true" ||
      value_of(environment, "OTEL_TRACES_EXPORTER") == "none")
    return {};
  const std::string own = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
  if (const auto url = value_of(environment, own); !url.empty()) return {own, url};
  const std::string all = "OTEL_EXPORTER_OTLP_ENDPOINT";
  if (const auto url = value_of(environment, all); !url.empty())
    return {all, with_path(url, "/v1/traces")};
  return {};
}

Result<HttpHeaders> headers_of(const Environment& environment) {
  HttpHeaders headers{{"Content-Type", "application/json"}};
  for (const std::string name :
       {"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"}) {
    auto pairs = read_pairs(value_of(environment, name), name);
    if (!pairs.ok()) return pairs.error();
    headers.insert(headers.end(), pairs->begin(), pairs->end());
  }
  return headers;
}

Result<ResourceAttributes> resource_of(const Environment& environment) {
  const std::string name = "OTEL_RESOURCE_ATTRIBUTES";
  auto pairs = read_pairs(value_of(environment, name), name);
  if (!pairs.ok()) return pairs.error();
  std::map<std::string, std::string> all(pairs->begin(), pairs->end());
  if (const auto service = value_of(environment, "OTEL_SERVICE_NAME"); !service.empty())
    all["service.name"] = service;
  all.try_emplace("service.name", "foretoken-edge");
  return ResourceAttributes(all.begin(), all.end());
}

}  // namespace

Result<TracerOptions> tracer_options(const std::string& endpoint,
                                     const std::map<std::string, std::string>& environment) {
  TracerOptions options;
  const Endpoint to = endpoint_of(endpoint, environment);
  if (to.url.empty()) return options;
  auto url = read_url(to.url);
  if (!url.ok()) return blaming(url.error(), to.name);
  options.collector = std::move(*url);
  std::string sampler = value_of(environment, "OTEL_TRACES_SAMPLER");
  if (sampler.empty()) sampler = "parentbased_always_on";
  auto named = Sampler::named(sampler, value_of(environment, "OTEL_TRACES_SAMPLER_ARG"));
  if (!named.ok()) return blaming(named.error(), "OTEL_TRACES_SAMPLER");
  options.sampler = *named;
  auto headers = headers_of(environment);
  if (!headers.ok()) return headers.error();
  options.headers = std::move(*headers);
  auto resource = resource_of(environment);
  if (!resource.ok()) return resource.error();
  options.resource = std::move(*resource);
  options.captures_text =
      value_of(environment, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT") == "true";
  return options;
}

std::unique_ptr<RequestTrace> Tracer::begin(const HttpRequest& request) const {
  const auto parent = read_traceparent(request.header("traceparent"), request.header("tracestate"));
  TraceContext context{
      .trace = parent ? parent->trace : new_trace_id(), .span = new_span_id(), .is_sampled = true};
  if (!sampler_.takes(context.trace, parent)) return nullptr;
  if (parent) context.state = parent->state;
  const SpanId parent_span = parent ? parent->span : 0;
  return std::make_unique<RequestTrace>(request, context, parent_span, captures_text_, sink_);
}

}  // namespace foretoken::edge
