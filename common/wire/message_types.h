// The numbers on the wire: message types and the closed lists (roles, reasons) that several
// messages share. Append only.
#pragma once

#include <cstdint>
#include <string_view>

namespace foretoken::wire {

enum class MessageType : std::uint16_t {
  kHello = 1,
  kHelloReply = 2,
  kHeartbeat = 3,
  kHeartbeatReply = 4,
  kGoodbye = 5,
  kAssign = 6,
  kUnassign = 7,
  kDraftLost = 8,
  kMetricsRequest = 9,
  kMetricsReply = 10,

  kEncode = 32,
  kEncoded = 33,
  kOpen = 34,
  kOpened = 35,
  kBusy = 36,
  kTokens = 37,
  kDone = 38,
  kClose = 39,
  kFailed = 40,
  kStreamOpen = 48,
  kDecode = 49,
  kText = 50,
  kStreamClose = 51,

  kAttach = 64,
  kPropose = 65,
  kProposal = 66,
  kNeed = 67,
  kCloseSequence = 68,
  kDraftBusy = 69,
  kLinkAsk = 70,
  kLinkOffer = 71,
  kLinkOpen = 72,
};
// Of messages that are gone: a number is never given twice.
inline constexpr MessageType kRetiredTypes[] = {
    static_cast<MessageType>(73), static_cast<MessageType>(74), static_cast<MessageType>(75)};

enum class Role : std::uint8_t { kRouter, kTokenizer, kDraft, kTarget, kEdge, kTool };
enum class FinishReason : std::uint8_t { kStop, kLength, kCancelled, kDeadline };
enum class CloseReason : std::uint8_t {
  kStop,
  kCancelled,
  kDeadline,
  kMigrated,
  kDraining,
  kFinished
};
enum class Acceptance : std::uint8_t { kCoupled, kRejection };
enum class NeedReason : std::uint8_t { kUnknown, kGap, kMismatch, kEvicted, kRefused };
enum class PromptKind : std::uint8_t { kTokens, kText, kMessages };
// What the work thread of a service does: waits, reads messages and looks after timers, or computes
// a step of its model.
enum class Activity : std::uint8_t { kWaiting, kMessages, kStep };

// What a request asks of speculation. kDefault = what the configuration says.
enum class ProposerKind : std::uint8_t { kDefault, kDraft, kNgram, kPrediction, kNone };

// How many values a list has: a number beyond it is malformed.
constexpr std::uint64_t enum_count(Role) { return 6; }
constexpr std::uint64_t enum_count(FinishReason) { return 4; }
constexpr std::uint64_t enum_count(CloseReason) { return 6; }
constexpr std::uint64_t enum_count(Acceptance) { return 2; }
constexpr std::uint64_t enum_count(NeedReason) { return 5; }
constexpr std::uint64_t enum_count(PromptKind) { return 3; }
constexpr std::uint64_t enum_count(Activity) { return 3; }
constexpr std::uint64_t enum_count(ProposerKind) { return 5; }

std::string_view name_of(Role value);  // "router", "tokenizer", "draft", "target", "edge", "tool"
std::string_view name_of(FinishReason value);  // "stop", "length", "cancelled", "deadline"
std::string_view name_of(CloseReason value);
std::string_view name_of(Acceptance value);  // "coupled", "rejection"
std::string_view name_of(NeedReason value);
std::string_view name_of(PromptKind value);
std::string_view name_of(Activity value);      // "waiting", "messages", "step"
std::string_view name_of(ProposerKind value);  // "default", "draft", "ngram", "prediction", "none"

}  // namespace foretoken::wire
