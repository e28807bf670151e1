// The closed list of error codes, shared by code, wire and clients. Append only; the number is what
// travels.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace foretoken {

enum class ErrorCode : std::uint16_t {
  kInternal = 1,               // our mistake; nothing the caller can change
  kInvalidRequest = 2,         // not a request we can read
  kInvalidValue = 3,           // a field out of its range; Error::param names it
  kUnsupportedParameter = 4,   // a field we know and refuse
  kContextLengthExceeded = 5,  // prompt or prompt + max_tokens too long for the model
  kModelNotFound = 6,
  kQueueFull = 7,  // every place is taken; try again later
  kDeadlineExceeded = 8,
  kCancelled = 9,
  kUnavailable = 10,   // no service that could do it
  kDraining = 11,      // the service is about to stop
  kIncompatible = 12,  // fingerprints or versions that must be equal differ
  kMalformed = 13,     // bytes that are not a valid frame, file or text
  kNotFound = 14,
  kIo = 15,
  kConfig = 16,
  kUnsupportedModel = 17,
  kOutOfMemory = 18,  // memory or KV blocks; the message says which
};

inline constexpr std::array<std::pair<ErrorCode, std::string_view>, 18> kErrorCodeNames{{
    {ErrorCode::kInternal, "internal"},
    {ErrorCode::kInvalidRequest, "invalid_request"},
    {ErrorCode::kInvalidValue, "invalid_value"},
    {ErrorCode::kUnsupportedParameter, "unsupported_parameter"},
    {ErrorCode::kContextLengthExceeded, "context_length_exceeded"},
    {ErrorCode::kModelNotFound, "model_not_found"},
    {ErrorCode::kQueueFull, "queue_full"},
    {ErrorCode::kDeadlineExceeded, "deadline_exceeded"},
    {ErrorCode::kCancelled, "cancelled"},
    {ErrorCode::kUnavailable, "unavailable"},
    {ErrorCode::kDraining, "draining"},
    {ErrorCode::kIncompatible, "incompatible"},
    {ErrorCode::kMalformed, "malformed"},
    {ErrorCode::kNotFound, "not_found"},
    {ErrorCode::kIo, "io"},
    {ErrorCode::kConfig, "config"},
    {ErrorCode::kUnsupportedModel, "unsupported_model"},
    {ErrorCode::kOutOfMemory, "out_of_memory"},
}};

// The name of a code as clients see it; "internal" for a number that is not on the list.
constexpr std::string_view error_code_name(ErrorCode code) {
  for (const auto& [known, name] : kErrorCodeNames)
    if (known == code) return name;
  return "internal";
}

constexpr std::optional<ErrorCode> error_code_from_number(std::uint64_t number) {
  for (const auto& [known, name] : kErrorCodeNames)
    if (static_cast<std::uint64_t>(known) == number) return known;
  return std::nullopt;
}

}  // namespace foretoken
