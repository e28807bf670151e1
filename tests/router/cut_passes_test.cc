#include "services/router/cut_passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "common/messages/limits.h"
#include "common/wire/client_codec.h"

namespace foretoken {
namespace {

// A service that has run `n` passes more than it keeps, each list with numbers of `value`.
wire::ServicePasses passes_of(const std::string& name, std::size_t n, std::uint32_t value) {
  std::vector<std::uint32_t> list(n, value);
  for (std::size_t i = 0; i < n; ++i) list[i] += static_cast<std::uint32_t>(i);
  return {.role = "target",
          .name = name,
          .model = "m",
          .passes = {.first = 100,
                     .ago_us = list,
                     .wait_us = list,
                     .compute_us = list,
                     .commit_us = list,
                     .sequences = list,
                     .rows = list,
                     .drafted = list,
                     .accepted = list,
                     .tokens = list}};
}

TEST(CutPasses, WhatFitsStaysAsItIs) {
  std::vector<wire::ServicePasses> passes{passes_of("a", 5, 1), passes_of("b", 2048, 70'000)};
  const auto before = passes;
  EXPECT_LE(cut_passes(passes, wire::kMaxInternalPartBytes), wire::kMaxInternalPartBytes);
  EXPECT_EQ(before, passes);
}

TEST(CutPasses, OfManyServicesEachKeepsItsNewest) {
  std::vector<wire::ServicePasses> passes;
  for (int i = 0; i < 100; ++i)
    passes.push_back(passes_of("target-" + std::to_string(i), 2048, 70'000));
  passes.push_back(passes_of("young", 3, 70'000));
  const std::size_t most = wire::kMaxInternalPartBytes - 1024;
  const std::size_t n_bytes = cut_passes(passes, most);
  EXPECT_LE(n_bytes, most);
  EXPECT_GT(n_bytes, most - most / 50) << "no more than needed";
  const wire::PassesReply reply{.id = std::string(32, '0'), .passes = passes};
  EXPECT_LE(wire::write_client_answer(reply).size(), wire::kMaxInternalPartBytes);
  const std::size_t n = passes[0].passes.ago_us.size();
  for (const wire::ServicePasses& each : passes) {
    const bool is_young = each.name == "young";
    EXPECT_EQ(is_young ? 3 : n, each.passes.ago_us.size());
    EXPECT_EQ(is_young ? 100 : 100 + 2048 - n, each.passes.first);
    EXPECT_EQ(70'000U + (is_young ? 2 : 2047), each.passes.ago_us.back());
    EXPECT_EQ(each.passes.ago_us, each.passes.tokens);
    EXPECT_EQ(each.passes.ago_us, each.passes.wait_us);
  }
}

TEST(CutPasses, SaysThatThereAreTooManyServices) {
  std::vector<wire::ServicePasses> passes(100, passes_of("a", 20, 1));
  EXPECT_GT(cut_passes(passes, 1000), 1000U);
  EXPECT_TRUE(passes[0].passes.ago_us.empty());
}

}  // namespace
}  // namespace foretoken
