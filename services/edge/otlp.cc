#include "services/edge/otlp.h"

#include <cmath>

#include "common/base/json.h"

namespace foretoken::edge {
namespace {

constexpr std::uint32_t kSampled = 1, kParentKnown = 0x100, kParentIsRemote = 0x200;
constexpr int kStatusError = 2;

Json string_value(const std::string& text) { return {{"stringValue", text}}; }

Json value_of(const AttributeValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return string_value(*text);
  if (const auto* whole = std::get_if<std::int64_t>(&value))
    return {{"intValue", std::to_string(*whole)}};
  if (const auto* flag = std::get_if<bool>(&value)) return {{"boolValue", *flag}};
  if (const auto* number = std::get_if<double>(&value))
    return {{"doubleValue", std::isfinite(*number) ? *number : 0.0}};
  Json values = Json::array();
  for (const auto& each : std::get<std::vector<std::string>>(value))
    values.push_back(string_value(each));
  return {{"arrayValue", {{"values", std::move(values)}}}};
}

Json attributes_of(const std::vector<Attribute>& attributes) {
  Json list = Json::array();
  for (const auto& [key, value] : attributes)
    list.push_back({{"key", trace_name(key).name}, {"value", value_of(value)}});
  return list;
}

Json span_json(const Span& span) {
  const std::uint32_t remote = span.has_remote_parent ? kParentIsRemote : 0;
  Json json = {{"traceId", hex_of(span.context.trace)},
               {"spanId", hex_of(span.context.span)},
               {"flags", kSampled | kParentKnown | remote},
               {"name", span.name},
               {"kind", static_cast<int>(span.kind)},
               {"startTimeUnixNano", std::to_string(span.begin_ns)},
               {"endTimeUnixNano", std::to_string(span.end_ns)},
               {"attributes", attributes_of(span.attributes)}};
  if (span.parent != 0) json["parentSpanId"] = hex_of(span.parent);
  if (!span.context.state.empty()) json["traceState"] = span.context.state;
  for (const SpanEvent& event : span.events)
    json["events"].push_back({{"timeUnixNano", std::to_string(event.at_ns)},
                              {"name", event.name},
                              {"attributes", attributes_of(event.attributes)}});
  if (span.has_failed) {
    json["status"] = {{"code", kStatusError}};
    if (!span.failure.empty()) json["status"]["message"] = span.failure;
  }
  return json;
}

}  // namespace

std::string otlp_json(std::span<const Span> spans,
                      const ResourceAttributes& resource,
                      const std::string& version) {
  Json about = Json::array();
  for (const auto& [key, value] : resource)
    about.push_back({{"key", key}, {"value", string_value(value)}});
  Json list = Json::array();
  for (const Span& span : spans) list.push_back(span_json(span));
  Json scope = Json::object();
  scope["scope"] = {{"name", kTraceScope}, {"version", version}};
  scope["schemaUrl"] = kTraceSchema;
  scope["spans"] = std::move(list);
  Json of_process = Json::object();
  of_process["resource"]["attributes"] = std::move(about);
  of_process["schemaUrl"] = kTraceSchema;
  of_process["scopeSpans"] = Json::array({std::move(scope)});
  Json document = Json::object();
  document["resourceSpans"] = Json::array({std::move(of_process)});
  return to_text(document);
}

}  // namespace foretoken::edge
