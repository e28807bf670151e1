// The last passes of a target or draft, as workers tell them to the router and the router to
// clients: entry i of each list is of pass first + i. Messages between services number the fields,
// answers to clients name them; this listing serves both.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace foretoken::wire {

struct Passes {
  static constexpr std::string_view kName = "Passes";
  std::uint64_t now_us = 0;
  std::uint64_t first = 0;
  std::vector<std::uint32_t> ago_us;
  std::vector<std::uint32_t> wait_us;
  std::vector<std::uint32_t> compute_us;
  std::vector<std::uint32_t> commit_us;
  std::vector<std::uint32_t> sequences;
  std::vector<std::uint32_t> rows;
  std::vector<std::uint32_t> drafted;
  std::vector<std::uint32_t> accepted;
  std::vector<std::uint32_t> tokens;
  bool operator==(const Passes&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "now_us", m.now_us,
      "the wall clock of the service when it answered, microseconds since 1970");
    v(2, "first", m.first, "number of the first pass, counted since the service started");
    v(3, "ago_us", m.ago_us, "how long before now_us each pass began to compute");
    v(4, "wait_us", m.wait_us, "target: for how long it was held back before that, for guesses");
    v(5, "compute_us", m.compute_us, "target: planning and running it; draft: all of it");
    v(6, "commit_us", m.commit_us, "target: from there until its tokens were sent");
    v(7, "sequences", m.sequences, "target: sequences that had rows in it");
    v(8, "rows", m.rows, "token rows, those of prompts included");
    v(9, "drafted", m.drafted, "target: guesses verified; draft: guesses made");
    v(10, "accepted", m.accepted, "target: of those, accepted");
    v(11, "tokens", m.tokens, "target: tokens committed");
  }
};

}  // namespace foretoken::wire
