// Every name of a trace, once: attributes, and what they say. OpenTelemetry's conventions for
// generative AI are still in development, so a change there is a change of this table.
// docs/reference/traces.md is generated from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace foretoken::edge {

// The version of the conventions that the names below are of.
inline constexpr std::string_view kTraceSchema = "https://opentelemetry.io/schemas/1.37.0";
inline constexpr std::string_view kTraceScope = "foretoken.edge";

enum class TraceKey : std::uint8_t {
  // of the request over HTTP
  kHttpMethod,
  kHttpRoute,
  kUrlPath,
  kUrlScheme,
  kHttpStatus,
  kUserAgent,
  kRequestId,
  kErrorType,
  // of an answer of a model
  kOperation,
  kProvider,
  kRequestModel,
  kMaxTokens,
  kTemperature,
  kTopP,
  kTopK,
  kSeed,
  kChoiceCount,
  kStopSequences,
  kFrequencyPenalty,
  kPresencePenalty,
  kResponseId,
  kResponseModel,
  kFinishReasons,
  kInputTokens,
  kOutputTokens,
  kInputMessages,
  kOutputMessages,
  kChoice,
  kCachedTokens,
  kDrafted,
  kAccepted,
  kRounds,
  kProposer,
  kTokens,
};

struct TraceName {
  std::string_view name;
  std::string_view spans;  // where it stands, for the page
  std::string_view means;
};

const TraceName& trace_name(TraceKey key);
std::span<const TraceName> trace_names();
// docs/reference/traces.md
std::string traces_document();

}  // namespace foretoken::edge
