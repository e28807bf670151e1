#include "services/edge/trace_context.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "common/client/client.h"

namespace foretoken::edge {
namespace {

constexpr std::size_t kMaxState = 512;

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::uint64_t number_of(std::string_view hex) {
  std::uint64_t value = 0;
  std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
  return value;
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

}  // namespace

std::string hex_of(SpanId id) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(id));
  return text.data();
}

std::string hex_of(TraceId id) { return hex_of(SpanId{id.high}) + hex_of(SpanId{id.low}); }

TraceId new_trace_id() {
  const RequestId id = new_request_id();
  return {id.high, id.low == 0 ? 1 : id.low};  // all zeros is no id
}

SpanId new_span_id() {
  const SpanId id = new_request_id().low;
  return id == 0 ? 1 : id;
}

std::optional<TraceContext> read_traceparent(std::string_view parent, std::string_view state) {
  constexpr std::size_t kLength = 55;
  if (parent.size() < kLength || parent[2] != '-' || parent[35] != '-' || parent[52] != '-')
    return std::nullopt;
  const std::string_view version = parent.substr(0, 2), trace = parent.substr(3, 32),
                         span = parent.substr(36, 16), flags = parent.substr(53, 2);
  if (!is_hex(version) || !is_hex(trace) || !is_hex(span) || !is_hex(flags) || version == "ff")
    return std::nullopt;
  if (parent.size() > kLength && (version == "00" || parent[kLength] != '-')) return std::nullopt;
  TraceContext context{.trace = {number_of(trace.substr(0, 16)), number_of(trace.substr(16))},
                       .span = number_of(span),
                       .is_sampled = (number_of(flags) & 1) != 0};
  if (context.trace == TraceId{} || context.span == 0) return std::nullopt;
  if (state.size() <= kMaxState && is_printable(state)) context.state = state;
  return context;
}

std::string write_traceparent(const TraceContext& context) {
  return "00-" + hex_of(context.trace) + "-" + hex_of(context.span) +
         (context.is_sampled ? "-01" : "-00");
}

Result<Sampler> Sampler::named(std::string_view name, std::string_view ratio) {
  constexpr std::string_view kByParent = "parentbased_";
  Sampler sampler;
  std::string_view own = name;
  sampler.heeds_parent_ = own.starts_with(kByParent);
  if (sampler.heeds_parent_) own.remove_prefix(kByParent.size());
  if (own == "always_on") return sampler;
  if (own == "always_off") {
    sampler.ratio_ = 0;
    return sampler;
  }
  if (own != "traceidratio")
    return Error{ErrorCode::kConfig,
                 "no sampler \"" + std::string(name) +
                     "\"; there is always_on, always_off, traceidratio, and each as "
                     "parentbased_always_on"};
  if (ratio.empty()) return sampler;
  double share = 0;
  const auto [end, error] = std::from_chars(ratio.data(), ratio.data() + ratio.size(), share);
  if (error != std::errc{} || end != ratio.data() + ratio.size() || !(share >= 0 && share <= 1))
    return Error{ErrorCode::kConfig, "a sampler's ratio is \"" + std::string(ratio) +
                                         "\"; it must be a number from 0 to 1"};
  sampler.ratio_ = share;
  return sampler;
}

// By the trace id, so that all parts of a system take the same traces.
bool Sampler::takes(TraceId trace, const std::optional<TraceContext>& parent) const {
  if (heeds_parent_ && parent) return parent->is_sampled;
  if (ratio_ >= 1) return true;
  constexpr double kAll = 9223372036854775808.0;  // 2^63
  return static_cast<double>(trace.low >> 1) < ratio_ * kAll;
}

}  // namespace foretoken::edge
