#include "bench/schedule/timed_text.h"

#include "bench/schedule/runner_up_coverage.h"
#include "common/base/hash.h"

namespace foretoken::bench {
namespace {

constexpr std::uint64_t kTextSeed = 0x7e87;
constexpr std::uint64_t kMistakeSeed = 0x315a;
constexpr std::uint64_t kRunnerUpSeed = 0x52a1;

std::uint64_t hash_of(std::span<const TokenId> tokens) {
  std::uint64_t hash = kTextSeed;
  for (const TokenId token : tokens) {
    const auto word = static_cast<std::uint64_t>(static_cast<std::uint32_t>(token));
    hash = mix64(hash ^ (word * kGoldenRatio64 + 1));
  }
  return hash;
}

double uniform(std::uint64_t hash) { return static_cast<double>(hash >> 11) * 0x1p-53; }

}  // namespace

TokenId another_token(TokenId token, std::uint64_t hash) {
  constexpr auto n = static_cast<std::uint64_t>(kTimedVocabulary);
  return static_cast<TokenId>((static_cast<std::uint64_t>(token) + 1 + hash % (n - 1)) % n);
}

// Where the best is a mistake the right one may be a runner-up; all others are noise.
Likeliest likeliest_after(std::span<const TokenId> last, double acceptance) {
  const std::uint64_t hash = hash_of(last);
  const auto right = static_cast<TokenId>(hash % kTimedVocabulary);
  const std::uint64_t chance = mix64(hash ^ kMistakeSeed);
  const bool is_right = uniform(chance) < acceptance;
  Likeliest all{.best = is_right ? right : another_token(right, mix64(chance)),
                .is_right = is_right};
  std::uint64_t noise = mix64(hash ^ kRunnerUpSeed);
  const double u = uniform(noise);
  bool has_right = is_right;
  for (std::size_t rank = 0; rank < kTimedRunnersUp; ++rank) {
    noise = mix64(noise);
    const bool comes = !has_right && u < runner_up_coverage(acceptance, rank);
    has_right = has_right || comes;
    all.runners_up[rank] = comes ? right : another_token(all.best, noise);
  }
  return all;
}

}  // namespace foretoken::bench
