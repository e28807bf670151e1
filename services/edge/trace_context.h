// Which trace a request belongs to, and whether it is recorded: the header traceparent of the W3C,
// and the samplers that OpenTelemetry names. Pure but for the ids it draws.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace foretoken::edge {

struct TraceId {
  std::uint64_t high = 0, low = 0;
  bool operator==(const TraceId&) const = default;
};
using SpanId = std::uint64_t;  // 0 = none

std::string hex_of(TraceId id);
std::string hex_of(SpanId id);
TraceId new_trace_id();
SpanId new_span_id();

struct TraceContext {
  TraceId trace;
  SpanId span = 0;
  bool is_sampled = false;
  std::string state;  // tracestate, as it came
};

// 00-<32 hexadecimal digits>-<16>-<2>; of a later version, what it begins with. Nothing: it is not
// one, and the request begins a trace of its own.
std::optional<TraceContext> read_traceparent(std::string_view parent, std::string_view state);
std::string write_traceparent(const TraceContext& context);

class Sampler {
 public:
  // always_on, always_off, traceidratio, each also as parentbased_...; `ratio` of those that say
  // so, from 0 to 1. An error names what is allowed.
  static Result<Sampler> named(std::string_view name, std::string_view ratio);

  bool takes(TraceId trace, const std::optional<TraceContext>& parent) const;

 private:
  bool heeds_parent_ = true;
  double ratio_ = 1;  // of the traces that begin here
};

}  // namespace foretoken::edge
