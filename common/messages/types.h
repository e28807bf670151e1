// The numbers on the wire: message types, and the closed lists of which services alone speak.
// Append only.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "common/base/vocabulary.h"

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
// What a draft guesses with: a model, or a memory of texts.
enum class DraftSource : std::uint8_t { kModel, kMemory };
enum class PromptKind : std::uint8_t { kTokens, kText, kMessages };
// What the work thread of a service does: waits, reads messages and looks after timers, or computes
// a step of its model.
enum class Activity : std::uint8_t { kWaiting, kMessages, kStep };

// What lists of services say of a worker: it takes work, takes nothing new, is silent, or was not
// taken into the pool.
enum class WorkerState : std::uint8_t { kReady, kDraining, kGone, kRefused };

inline constexpr std::array<std::string_view, 6> kRoleNames{"router", "tokenizer", "draft",
                                                            "target", "edge",      "tool"};
inline constexpr std::array<std::string_view, 2> kDraftSourceNames{"model", "memory"};
inline constexpr std::array<std::string_view, 3> kPromptNames{"tokens", "text", "messages"};
inline constexpr std::array<std::string_view, 3> kActivityNames{"waiting", "messages", "step"};
inline constexpr std::array<std::string_view, 4> kWorkerStateNames{"ready", "draining", "gone",
                                                                   "refused"};

// Those that are services: a tool is a client.
inline constexpr std::array<Role, 5> kServiceRoles{Role::kRouter, Role::kTokenizer, Role::kDraft,
                                                   Role::kTarget, Role::kEdge};

constexpr const auto& names_of(Role) { return kRoleNames; }
constexpr const auto& names_of(DraftSource) { return kDraftSourceNames; }
constexpr const auto& names_of(PromptKind) { return kPromptNames; }
constexpr const auto& names_of(Activity) { return kActivityNames; }
constexpr const auto& names_of(WorkerState) { return kWorkerStateNames; }
using foretoken::enum_count;
using foretoken::name_of;
using foretoken::value_named;

}  // namespace foretoken::wire
