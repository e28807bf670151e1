// What speculation did for one request, or for many added up. Plain counters.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/sampling_params.h"
#include "common/spec/proposal.h"

namespace foretoken {

// Why a round had nothing to verify.
enum class FallbackReason : std::uint8_t {
  kDisabled,    // the request or the service wants plain decoding
  kNoProposer,  // none attached: no draft assigned, or still opening
  kNoProposal,  // asked, but nothing usable had arrived
  kNotWorth,    // there was something, and verifying it would have been slower
  kNoRoom,      // row or block budget
};
inline constexpr std::size_t kFallbackReasons = 5;
inline constexpr std::array<std::string_view, kFallbackReasons> kFallbackNames{
    "disabled", "no_proposer", "no_proposal", "not_worth", "no_room"};

struct SpecStats {
  struct Tally {
    std::uint64_t n_drafted = 0;
    std::uint64_t n_accepted = 0;
    bool operator==(const Tally&) const = default;
  };
  std::uint64_t n_rounds = 0;   // with at least one verified token
  std::uint64_t n_drafted = 0;  // tokens verified
  std::uint64_t n_accepted = 0;
  std::array<Tally, kMaxDraftTokens> by_depth{};
  std::array<Tally, kProposerKinds> by_proposer{};
  std::array<std::uint64_t, kMaxDraftTokens + 1> accepted_histogram{};  // rounds by accepted tokens
  std::array<std::uint64_t, kFallbackReasons> fallbacks{};              // rounds by reason
  bool operator==(const SpecStats&) const = default;

  // One round: the first n_accepted of `verified` stood and were delivered.
  void record_round(std::span<const PathToken> verified, std::uint32_t n_round_accepted) {
    ++n_rounds;
    n_drafted += verified.size();
    n_accepted += n_round_accepted;
    ++accepted_histogram[std::min<std::size_t>(n_round_accepted, kMaxDraftTokens)];
    for (std::size_t i = 0; i < verified.size(); ++i) {
      const std::uint64_t stood = i < n_round_accepted ? 1 : 0;
      Tally& depth = by_depth[std::min<std::size_t>(i, kMaxDraftTokens - 1)];
      Tally& proposer = by_proposer[static_cast<std::size_t>(verified[i].source)];
      ++depth.n_drafted;
      ++proposer.n_drafted;
      depth.n_accepted += stood;
      proposer.n_accepted += stood;
    }
  }
  void record_fallback(FallbackReason reason) { ++fallbacks[static_cast<std::size_t>(reason)]; }

  void add(const SpecStats& other) {
    n_rounds += other.n_rounds;
    n_drafted += other.n_drafted;
    n_accepted += other.n_accepted;
    for (std::size_t i = 0; i < by_depth.size(); ++i) add(by_depth[i], other.by_depth[i]);
    for (std::size_t i = 0; i < by_proposer.size(); ++i) add(by_proposer[i], other.by_proposer[i]);
    for (std::size_t i = 0; i < fallbacks.size(); ++i) fallbacks[i] += other.fallbacks[i];
    for (std::size_t i = 0; i < accepted_histogram.size(); ++i)
      accepted_histogram[i] += other.accepted_histogram[i];
  }

 private:
  static void add(Tally& into, const Tally& other) {
    into.n_drafted += other.n_drafted;
    into.n_accepted += other.n_accepted;
  }
};

}  // namespace foretoken
