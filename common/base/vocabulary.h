// The closed lists that services, engines and speculation share: one type and one spelling for each
// idea. Their numbers are on the wire: append only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace foretoken {

// Who proposes. kDefault = what the configuration says; kNone = plain decoding.
enum class ProposerKind : std::uint8_t { kDefault, kDraft, kNgram, kPrediction, kNone, kMemory };
// How a proposed token is judged: it equals the target's own pick, or by rejection sampling.
enum class AcceptanceRule : std::uint8_t { kCoupled, kRejection };
// Why an answer ended: an end token, stop token or stop string; max_tokens or the model's length;
// the client; its deadline.
enum class FinishReason : std::uint8_t { kStop, kLength, kCancelled, kDeadline };
// Why a sequence or a stream is closed by its owner.
enum class CloseReason : std::uint8_t {
  kStop,  // a stop string was found in the text
  kCancelled,
  kDeadline,
  kMigrated,
  kDraining,
  kFinished
};
// Why a draft needs more tokens of a sequence before it can go on: it does not know the sequence,
// lacks tokens before the record's, has others, or lost its cache. kRefused: it will not serve it.
enum class NeedReason : std::uint8_t { kUnknown, kGap, kMismatch, kEvicted, kRefused };
// Whether an answer may, may not or must call a tool.
enum class ToolChoice : std::uint8_t { kAuto, kNone, kRequired };

inline constexpr std::array<std::string_view, 6> kProposerNames{"default",    "draft", "ngram",
                                                                "prediction", "none",  "memory"};
inline constexpr std::array<std::string_view, 2> kAcceptanceRuleNames{"coupled", "rejection"};
inline constexpr std::array<std::string_view, 4> kFinishNames{"stop", "length", "cancelled",
                                                              "deadline"};
inline constexpr std::array<std::string_view, 6> kCloseNames{"stop",     "cancelled", "deadline",
                                                             "migrated", "draining",  "finished"};
inline constexpr std::array<std::string_view, 5> kNeedNames{"unknown", "gap", "mismatch", "evicted",
                                                            "refused"};
inline constexpr std::array<std::string_view, 3> kToolChoiceNames{"auto", "none", "required"};

constexpr const auto& names_of(ProposerKind) { return kProposerNames; }
constexpr const auto& names_of(AcceptanceRule) { return kAcceptanceRuleNames; }
constexpr const auto& names_of(FinishReason) { return kFinishNames; }
constexpr const auto& names_of(CloseReason) { return kCloseNames; }
constexpr const auto& names_of(NeedReason) { return kNeedNames; }
constexpr const auto& names_of(ToolChoice) { return kToolChoiceNames; }

// How many values a list has: a number beyond it is malformed.
template <class E>
requires requires(E value) { names_of(value); }
constexpr std::uint64_t enum_count(E value) { return names_of(value).size(); }
// As the wire's text, logs and metrics spell it; "unknown" for a number that is none of the list.
template <class E>
requires requires(E value) { names_of(value); }
constexpr std::string_view name_of(E value) {
  const auto index = static_cast<std::size_t>(value);
  return index < names_of(value).size() ? names_of(value)[index] : "unknown";
}

// The value of a list that is spelled so.
template <class E>
requires requires(E value) { names_of(value); }
constexpr std::optional<E> value_named(std::string_view name) {
  const auto& names = names_of(E{});
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<E>(i);
  return {};
}

inline constexpr std::size_t kProposerKinds = kProposerNames.size();

}  // namespace foretoken
