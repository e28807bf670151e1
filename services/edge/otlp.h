// Spans, and how OpenTelemetry's collectors take them as JSON: names in lowerCamelCase, ids in
// hexadecimal, 64-bit numbers as strings, enumerations as numbers. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "services/edge/trace_context.h"
#include "services/edge/trace_names.h"

namespace foretoken::edge {

using AttributeValue =
    std::variant<std::string, std::int64_t, double, bool, std::vector<std::string>>;
struct Attribute {
  TraceKey key{};
  AttributeValue value;
};

struct SpanEvent {
  std::string name;
  std::int64_t at_ns = 0;
  std::vector<Attribute> attributes;
};

enum class SpanKind : std::uint8_t { kInternal = 1, kServer = 2 };

// Times are nanoseconds since 1970.
struct Span {
  TraceContext context;  // its own
  SpanId parent = 0;
  bool has_remote_parent = false;
  std::string name;
  SpanKind kind = SpanKind::kInternal;
  std::int64_t begin_ns = 0, end_ns = 0;
  std::vector<Attribute> attributes;
  std::vector<SpanEvent> events;
  bool has_failed = false;
  std::string failure;  // a sentence, if there is one
};

// What all spans of this process have: service.name and the like.
using ResourceAttributes = std::vector<std::pair<std::string, std::string>>;

std::string otlp_json(std::span<const Span> spans,
                      const ResourceAttributes& resource,
                      const std::string& version);

}  // namespace foretoken::edge
