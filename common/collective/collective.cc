#include "common/collective/collective.h"

#include <cstdlib>
#include <cstring>

#include "common/base/check.h"

namespace foretoken {

static_assert(sizeof(ScoredId) == 16);

void Collective::gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  FORETOKEN_CHECK(all.size() == mine.size() * static_cast<std::size_t>(size()));
  if (size() == 1) {
    if (!mine.empty()) std::memmove(all.data(), mine.data(), mine.size());
    return;
  }
  if (!mine.empty()) do_gather(mine, all);
}

void Collective::sum_rows(std::span<const float> part, std::span<float> sum) {
  FORETOKEN_CHECK(part.size() == sum.size());
  const std::size_t n = part.size();
  const auto n_ranks = static_cast<std::size_t>(size());
  if (parts_.size() < n * n_ranks) parts_.resize(n * n_ranks);
  const auto parts = std::span(parts_).first(n * n_ranks);
  gather(std::as_bytes(part), std::as_writable_bytes(parts));
  for (std::size_t i = 0; i < n; ++i) sum[i] = parts[i];
  for (std::size_t r = 1; r < n_ranks; ++r) {
    const float* more = parts.data() + r * n;
    for (std::size_t i = 0; i < n; ++i) sum[i] += more[i];
  }
}

void Collective::max_rows(std::span<ScoredId> rows) {
  const std::vector<ScoredId> all = gather(std::span<const ScoredId>(rows));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ScoredId best;
    for (std::size_t r = 0; r < static_cast<std::size_t>(size()); ++r) {
      const ScoredId& other = all[r * rows.size() + i];
      if (other.id < 0) continue;
      if (best.id < 0 || other.score > best.score ||
          (other.score == best.score && other.id < best.id))
        best = other;
    }
    rows[i] = best;
  }
}

void Collective::broadcast(std::vector<std::byte>& bytes) {
  if (size() > 1) do_broadcast(bytes);
}

void Collective::barrier() {
  const std::byte here{};
  gather(std::span<const std::byte>(&here, 1));
}

std::optional<int> started_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"})
    if (const char* number = std::getenv(name)) return std::atoi(number);
  return std::nullopt;
}

}  // namespace foretoken
