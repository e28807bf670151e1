// How models write calls of tools and what they think, as far as services must agree on it: the
// names of the formats, the texts that mark them, and the text that forces a call. Reading what a
// model wrote is services/edge/answer_parser.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/hash.h"
#include "common/base/vocabulary.h"

namespace foretoken {

// kHermes: <tool_call>{"name", "arguments"}</tool_call>, of Qwen2.5, Qwen3 and Hermes. kLlama: the
// answer is {"name", "parameters"}, of Llama 3.1 to 3.3. kMistral: [TOOL_CALLS] and a list, or
// name[ARGS]{...}.
enum class ToolFormat : std::uint8_t { kNone, kHermes, kLlama, kMistral };
inline constexpr std::array<std::string_view, 4> kToolFormatNames{"none", "hermes", "llama",
                                                                  "mistral"};
constexpr const auto& names_of(ToolFormat) { return kToolFormatNames; }

// The text fingerprint of a tokenizer under model.tool_format: with another format than that of its
// template its answers are other ones, and it serves another model.
constexpr std::uint64_t text_under_format(std::uint64_t fingerprint, std::string_view tool_format) {
  return tool_format == "auto" ? fingerprint : mix64(fingerprint ^ fnv1a(tool_format));
}

namespace markers {
inline constexpr std::string_view kThink = "<think>";
inline constexpr std::string_view kEndThink = "</think>";
inline constexpr std::string_view kToolCall = "<tool_call>";
inline constexpr std::string_view kEndToolCall = "</tool_call>";
inline constexpr std::string_view kPythonTag = "<|python_tag|>";
inline constexpr std::string_view kToolCalls = "[TOOL_CALLS]";
inline constexpr std::string_view kCallId = "[CALL_ID]";
inline constexpr std::string_view kArgs = "[ARGS]";
}  // namespace markers

// All of them.
inline constexpr std::array<std::string_view, 8> kMarkers{
    markers::kThink,     markers::kEndThink,  markers::kToolCall, markers::kEndToolCall,
    markers::kPythonTag, markers::kToolCalls, markers::kCallId,   markers::kArgs};

}  // namespace foretoken
