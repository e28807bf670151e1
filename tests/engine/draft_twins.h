// What two draft engines that hear the same words are compared by: what each last said of every
// sequence.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <ostream>
#include <vector>

#include "common/engine/draft_engine.h"
#include "common/kv/invariants.h"

namespace foretoken::test {

inline constexpr PrefixHash kRoot = 42;
inline const TimePoint kStart{std::chrono::hours(1)};

inline constexpr TargetKey kTarget{WorkerId{1}, Incarnation{1}};

inline DraftEngineOptions draft_options(std::uint32_t max_chained, std::int32_t block_tokens) {
  DraftEngineOptions options;
  options.kv = {.n_blocks = 400, .block_tokens = block_tokens};
  options.max_batch_rows = 64;
  options.prefill_chunk = 16;
  options.max_model_len = 120;
  options.max_chained = max_chained;
  return options;
}

struct Said {
  std::vector<TokenId> tokens;
  std::vector<std::uint8_t> confidences;
  bool operator==(const Said&) const = default;
};
inline void PrintTo(const Said& said, std::ostream* out) {
  *out << ::testing::PrintToString(said.tokens) << ::testing::PrintToString(said.confidences);
}

using SaidOf = std::map<std::uint64_t, Said>;  // by sequence

// Returns how many steps the device took without the host in between; 0 for a single one.
inline std::uint64_t step(DraftEngine& engine, SaidOf& said) {
  const DraftOutput& output = engine.step(kStart);
  for (const ReadyProposal& ready : output.proposals)
    said[ready.record.seq.value] = {ready.record.tokens, ready.record.confidence};
  EXPECT_TRUE(output.busy.empty());
  return output.n_steps > 1 ? output.n_steps : 0;
}

// Until nothing is left to do. Returns the same, of all steps.
inline std::uint64_t run(DraftEngine& engine, SaidOf& said) {
  std::uint64_t n_chained = 0;
  for (int i = 0; engine.has_work() && i < 2000; ++i) n_chained += step(engine, said);
  EXPECT_FALSE(engine.has_work()) << "no end";
  const auto violations = kv_violations(engine.kv().snapshot());
  EXPECT_TRUE(violations.empty()) << violations.front();
  return n_chained;
}

// Beyond what is wanted each says as much as it has. Texts: by sequence, each with its budget.
template <class Texts>
void keep_what_was_asked_for(SaidOf& all, const Texts& texts) {
  std::erase_if(all, [&](const auto& one) {
    return !texts.contains(one.first) || texts.at(one.first).budget == 0;
  });
  for (auto& [seq, said] : all) {
    const std::size_t n = std::min<std::size_t>(texts.at(seq).budget, said.tokens.size());
    said.tokens.resize(n);
    said.confidences.resize(n);
  }
}

}  // namespace foretoken::test
