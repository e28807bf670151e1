// One run of the whole system drawn from a seed: how many of each service, their settings and
// paces, what clients want, and what goes wrong when. After the troubles everything heals, clients
// get what they still want, the services come to rest and are drained. The history of it is judged.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace foretoken::test {

struct Outcome {
  std::vector<std::string> violations;
  std::uint64_t trace = 0;  // hash of every message sent and received, with time and fate
  // What happened, so that a set of seeds can be seen to have met what it is to meet.
  struct Counts {
    std::uint64_t requests = 0, asks = 0, sent = 0, lost = 0, busy = 0, no_peer = 0;
    std::uint64_t kills = 0, stops = 0, cuts = 0, breaks = 0, jumps = 0, slow = 0;
    std::uint64_t migrated = 0, replayed = 0, joined = 0, accepted = 0, cut = 0;
    std::uint64_t remembered = 0;  // answers with guesses from a memory
    std::uint64_t scored = 0;      // requests for the log-probabilities of their prompt
    double simulated_s = 0;
  } counts;
};

// `trace`: every event of the run, one a line; null for none.
Outcome run_seed(std::uint64_t seed, std::FILE* trace = nullptr);

}  // namespace foretoken::test
