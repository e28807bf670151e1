#include "bench/memory.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>

#include "bench/timing.h"
#include "common/memory/tenant_memories.h"

namespace foretoken::bench {
namespace {

using Documents = std::vector<std::vector<TokenId>>;

constexpr std::size_t kApart = 20;       // every so many-th document is looked up
constexpr std::size_t kSideBySide = 32;  // documents that grow at the same time
constexpr std::size_t kTail = 4;         // tokens that each grows by
constexpr std::size_t kContext = 64;     // tokens of a look-up
constexpr std::size_t kGuesses = 16;     // scored, at most
constexpr TenantSalt kTenant = 1;

// As they come from targets: many at a time, a few tokens of each in turn.
void fill(TenantMemories& memories, const std::vector<const std::vector<TokenId>*>& documents) {
  struct Open {
    TenantMemories::Document document;
    std::span<const TokenId> rest;
  };
  std::vector<Open> open;
  for (std::size_t next = 0; next < documents.size() || !open.empty();) {
    while (open.size() < kSideBySide && next < documents.size())
      open.push_back({memories.open(kTenant), *documents[next++]});
    for (Open& each : open) {
      const auto tail = each.rest.first(std::min(kTail, each.rest.size()));
      memories.append(each.document, tail);
      each.rest = each.rest.subspan(tail.size());
      if (each.rest.empty()) memories.close(each.document);
    }
    std::erase_if(open, [](const Open& each) { return each.rest.empty(); });
  }
}

struct Lookups {
  std::vector<double> us;
  std::uint64_t n_hits = 0, n_looked = 0, n_guessed = 0, n_accepted = 0;
};

void look_up(TenantMemories& memories, std::span<const TokenId> text, Lookups& lookups) {
  Recollection found;
  const RecallRules rules{.max_len = kGuesses};
  // Contexts at uneven distances, the same in each run.
  for (std::size_t at = kContext; at + kGuesses < text.size(); at += 1 + (at * 7) % 31) {
    const auto query = text.subspan(at - kContext, kContext);
    lookups.us.push_back(1e6 * seconds_of([&] { memories.recall(kTenant, query, rules, found); }));
    std::size_t n_right = 0;
    while (n_right < found.n_chain && found.tokens[n_right] == text[at + n_right]) ++n_right;
    lookups.n_hits += found.n_chain > 0;
    lookups.n_looked += found.n_looked;
    lookups.n_guessed += found.n_chain;
    lookups.n_accepted += n_right;
  }
}

double quantile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
}

double in_decimals(double x, int decimals) {
  const double scale = std::pow(10, decimals);
  return std::round(x * scale) / scale;
}

std::string line(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

}  // namespace

MemoryReport run_memory(const MemoryOptions& options) {
  clock_of_choice = CLOCK_THREAD_CPUTIME_ID;
  MemoryReport report;
  std::vector<const std::vector<TokenId>*> taken, apart;
  for (std::size_t i = 0; i < options.documents.size(); ++i)
    (i % kApart == kApart - 1 ? apart : taken).push_back(&options.documents[i]);
  for (const auto* document : taken) report.n_tokens += document->size();
  report.n_documents = taken.size();
  // A place for each token and each boundary, and half a chunk for each open document.
  TenantMemories memories(
      {.n_places = report.n_tokens + report.n_documents + (kSideBySide + 16) * 256,
       .tenant_share = 1});
  report.fill_s = seconds_of([&] { fill(memories, taken); });
  const TenantMemoriesStats stats = memories.stats();
  report.mtok_s = 1e-6 * static_cast<double>(report.n_tokens) / report.fill_s;
  report.bytes_per_token = static_cast<double>(stats.size_bytes) /
                           static_cast<double>(std::max<std::uint64_t>(1, stats.n_tokens));
  Lookups lookups;
  for (const auto* document : apart)
    if (lookups.us.size() < options.n_lookups) look_up(memories, *document, lookups);
  report.n_lookups = lookups.us.size();
  const auto n = static_cast<double>(std::max<std::size_t>(1, lookups.us.size()));
  for (const double us : lookups.us) report.mean_us += us / n;
  std::sort(lookups.us.begin(), lookups.us.end());
  report.p50_us = quantile(lookups.us, 0.5);
  report.p99_us = quantile(lookups.us, 0.99);
  report.hit_share = static_cast<double>(lookups.n_hits) / n;
  report.n_looked = static_cast<double>(lookups.n_looked) / n;
  report.n_guessed = static_cast<double>(lookups.n_guessed) / n;
  report.n_accepted = static_cast<double>(lookups.n_accepted) / n;
  std::vector<double> nothing(1001);
  for (double& each : nothing) each = 1e6 * seconds_of([] {});
  report.clock_us = median(nothing);
  ::getloadavg(&report.load_average, 1);
  return report;
}

OrderedJson MemoryReport::to_json() const {
  return {{"schema", "foretoken.bench_memory/1"},
          {"machine", machine},
          {"load_average", in_decimals(load_average, 2)},
          {"clock", "processor time of the thread"},
          {"n_documents", n_documents},
          {"n_tokens", n_tokens},
          {"fill_s", in_decimals(fill_s, 3)},
          {"mtok_s", in_decimals(mtok_s, 3)},
          {"bytes_per_token", in_decimals(bytes_per_token, 2)},
          {"n_lookups", n_lookups},
          {"hit_share", in_decimals(hit_share, 4)},
          {"p50_us", in_decimals(p50_us, 2)},
          {"p99_us", in_decimals(p99_us, 2)},
          {"mean_us", in_decimals(mean_us, 2)},
          {"clock_us", in_decimals(clock_us, 2)},
          {"looked_per_lookup", in_decimals(n_looked, 2)},
          {"guessed_per_lookup", in_decimals(n_guessed, 3)},
          {"accepted_per_lookup", in_decimals(n_accepted, 3)}};
}

std::string MemoryReport::to_table() const {
  const auto bar = [](bool is_met) { return is_met ? "met" : "missed"; };
  std::string out = line("%s, load %.1f\n", machine.c_str(), load_average);
  out += "times are processor time of the one thread\n\n";
  out += line("taken in      %llu tokens of %llu documents, %zu side by side\n",
              static_cast<unsigned long long>(n_tokens),
              static_cast<unsigned long long>(n_documents), kSideBySide);
  out += line("              %.2f Mtok/s              at least %.0f: %s\n", mtok_s, kLeastMtokS,
              bar(mtok_s >= kLeastMtokS));
  out += line("              %.1f bytes a token        at most %.0f: %s\n", bytes_per_token,
              kMostBytes, bar(bytes_per_token <= kMostBytes));
  out += line("look-ups      %llu, %.1f %% with a guess, %.1f links followed\n",
              static_cast<unsigned long long>(n_lookups), 100 * hit_share, n_looked);
  out += line("              p50 %.1f us, p99 %.1f us    at most %.0f: %s (the clock takes %.1f)\n",
              p50_us, p99_us, kMostP99Us, bar(p99_us <= kMostP99Us), clock_us);
  out += line("accepted      %.2f of %.2f guesses of a look-up, which makes at most %zu",
              n_accepted, n_guessed, kGuesses);
  return out;
}

}  // namespace foretoken::bench
