// A memory of texts against a corpus: how fast it takes tokens in, the bytes that each costs, how
// long a look-up takes, and how many of its guesses are right. Every twentieth document is kept
// apart: its contexts are what is looked up. All times are processor time of the one thread, so
// that other work on the machine takes no part in them but for the caches and the memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/json.h"

namespace foretoken::bench {

struct MemoryOptions {
  std::vector<std::vector<TokenId>> documents;
  std::uint64_t n_lookups = 20'000;  // at most
};

struct MemoryReport {
  static constexpr double kLeastMtokS = 2, kMostBytes = 40, kMostP99Us = 25;

  std::string machine;
  double load_average = 0;
  std::uint64_t n_documents = 0, n_tokens = 0;  // taken in
  double fill_s = 0;
  double mtok_s = 0;
  double bytes_per_token = 0;
  std::uint64_t n_lookups = 0;
  double hit_share = 0;  // of look-ups with at least one guess
  double p50_us = 0, p99_us = 0, mean_us = 0;
  double clock_us = 0;                   // of that, what reading the clock takes
  double n_looked = 0;                   // links followed by a look-up
  double n_guessed = 0, n_accepted = 0;  // of its chain of at most 16

  OrderedJson to_json() const;
  std::string to_table() const;
};

MemoryReport run_memory(const MemoryOptions& options);

}  // namespace foretoken::bench
