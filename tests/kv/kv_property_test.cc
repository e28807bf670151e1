// Random lives of many sequences against a simulated device memory. A slot holds a hash of all
// tokens up to its position, as keys and values do; every valid position of every sequence must
// read back its own text's hash after every step, whatever was shared, copied, rolled back, evicted
// or found again. The ledger's invariants are checked after each step too.
#include <gmock/gmock.h>

#include <map>
#include <random>

#include "common/kv/invariants.h"
#include "common/kv/kv_cache.h"

namespace foretoken {
namespace {

using testing::IsEmpty;

class Life {
 public:
  Life(std::uint32_t seed, const KvCacheConfig& config)
      : config_(config),
        cache_(config),
        random_(seed),
        memory_(static_cast<std::size_t>(config.n_blocks * config.block_tokens), 0) {}

  void step() {
    const std::uint32_t what = below(100);
    if (what < 12 || texts_.empty()) {
      open();
    } else if (what < 62) {
      write();
    } else if (what < 72) {
      write_two_at_once();
    } else if (what < 82) {
      truncate();
    } else if (what < 90) {
      fork();
    } else {
      close(any());
    }
    check();
  }

  void close_all() {
    while (!texts_.empty()) close(texts_.begin()->first);
    check();
    EXPECT_EQ(cache_.free_blocks(), config_.n_blocks) << "blocks leaked";
    EXPECT_EQ(cache_.stats().n_used, 0);
  }

  std::uint64_t n_refused = 0, n_hits = 0, n_copies = 0, n_rollbacks = 0;
  KvStats stats() const { return cache_.stats(); }

 private:
  struct Text {
    std::uint64_t salt = 0;
    std::vector<TokenId> tokens;  // those whose slots are valid
    std::vector<TokenId> prompt;  // what is still to be fed comes from here first
  };

  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
  SeqId any() {
    return std::next(texts_.begin(), below(static_cast<std::uint32_t>(texts_.size())))->first;
  }

  // Few distinct prompts over few tokens, so that prefixes meet.
  std::vector<TokenId> prompt() {
    std::vector<TokenId> tokens(1 + below(24));
    const TokenId family = static_cast<TokenId>(below(3));
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = family * 100 + static_cast<TokenId>(i);
    if (below(3) == 0) tokens.back() = static_cast<TokenId>(below(4));
    return tokens;
  }

  void open() {
    const SeqId seq{++last_seq_};
    Text text{.salt = below(2), .tokens = {}, .prompt = prompt()};
    const auto found = cache_.open(seq, text.prompt, text.salt);
    ASSERT_TRUE(found.ok());
    ASSERT_LT(*found, text.prompt.size());
    n_hits += *found > 0 ? 1 : 0;
    text.tokens.assign(text.prompt.begin(), text.prompt.begin() + *found);
    texts_[seq] = std::move(text);
    if (texts_.size() > 7) close(any());
  }

  std::vector<TokenId> next_tokens(const Text& text, std::uint32_t n) {
    std::vector<TokenId> next;
    for (std::size_t at = text.tokens.size(); next.size() < n; ++at)
      next.push_back(at < text.prompt.size() ? text.prompt[at] : static_cast<TokenId>(below(3)));
    return next;
  }

  static std::uint64_t hash(std::uint64_t h, TokenId token) {
    return (h ^ static_cast<std::uint64_t>(token + 1)) * 0x9E3779B97F4A7C15ull + 1;
  }
  static std::vector<std::uint64_t> hashes(std::uint64_t salt, const std::vector<TokenId>& tokens) {
    std::vector<std::uint64_t> out;
    std::uint64_t h = salt + 12345;
    for (const TokenId token : tokens) out.push_back(h = hash(h, token));
    return out;
  }

  void copy_blocks(const Reservation& reservation) {
    const auto n = static_cast<std::ptrdiff_t>(config_.block_tokens);
    for (const BlockCopy& copy : reservation.copies()) {
      ++n_copies;
      std::copy_n(memory_.begin() + copy.src_block * n, n, memory_.begin() + copy.dst_block * n);
    }
  }

  // The forward writes all reserved positions, proposed tokens included; then some are kept.
  void run_forward(const Text& text,
                   const Reservation& reservation,
                   const std::vector<TokenId>& fed) {
    std::vector<TokenId> all = text.tokens;
    all.insert(all.end(), fed.begin(), fed.end());
    const auto values = hashes(text.salt, all);
    for (std::size_t i = 0; i < fed.size(); ++i)
      memory_[static_cast<std::size_t>(reservation.slots()[i])] = values[text.tokens.size() + i];
  }

  void keep_some(Text& text, Reservation& reservation, const std::vector<TokenId>& fed) {
    if (below(6) == 0) {
      ++n_rollbacks;
      reservation = Reservation();
      return;
    }
    const std::size_t kept = below(static_cast<std::uint32_t>(fed.size()) + 1);
    text.tokens.insert(text.tokens.end(), fed.begin(),
                       fed.begin() + static_cast<std::ptrdiff_t>(kept));
    reservation.commit(static_cast<std::uint32_t>(kept), text.tokens);
  }

  bool reserve(SeqId seq, std::vector<TokenId>& fed, Reservation& reservation) {
    const std::uint32_t n = 1 + below(below(4) == 0 ? 30 : 6);
    fed = next_tokens(texts_[seq], n);
    const std::int32_t needed = cache_.blocks_needed(seq, n);
    const std::int32_t free = cache_.free_blocks();
    auto result = cache_.reserve(seq, n);
    EXPECT_EQ(result.ok(), needed <= free);
    if (!result.ok()) {
      ++n_refused;
      EXPECT_EQ(cache_.free_blocks(), free) << "a refusal changed something";
      return false;
    }
    EXPECT_EQ(cache_.free_blocks(), free - needed);
    reservation = std::move(result).value();
    check();
    return true;
  }

  void write() {
    const SeqId seq = any();
    std::vector<TokenId> fed;
    Reservation reservation;
    if (!reserve(seq, fed, reservation)) return;
    if (below(8) == 0) return;  // the step was never run: no copy was made, nothing written
    copy_blocks(reservation);
    run_forward(texts_[seq], reservation, fed);
    keep_some(texts_[seq], reservation, fed);
  }

  // Two sequences in one batch: all copies first, then both write.
  void write_two_at_once() {
    const SeqId first = any(), second = any();
    if (first == second) return;
    std::vector<TokenId> fed_first, fed_second;
    Reservation a, b;
    if (!reserve(first, fed_first, a) || !reserve(second, fed_second, b)) return;
    copy_blocks(a);
    copy_blocks(b);
    run_forward(texts_[first], a, fed_first);
    run_forward(texts_[second], b, fed_second);
    keep_some(texts_[second], b, fed_second);
    check();
    keep_some(texts_[first], a, fed_first);
  }

  void truncate() {
    const SeqId seq = any();
    Text& text = texts_[seq];
    text.tokens.resize(below(static_cast<std::uint32_t>(text.tokens.size()) + 1));
    cache_.truncate(seq, static_cast<Position>(text.tokens.size()));
    if (below(2) == 0) text.prompt.clear();  // goes on with something else
  }

  void fork() {
    const SeqId parent = any(), child{++last_seq_};
    ASSERT_TRUE(
        cache_.fork(parent, child, below(2) == 0 ? Publishing::kOn : Publishing::kOff).ok());
    texts_[child] = texts_[parent];
    if (texts_.size() > 7) close(parent);
  }

  void close(SeqId seq) {
    cache_.close(seq);
    texts_.erase(seq);
  }

  void check() {
    const KvSnapshot snapshot = cache_.snapshot();
    KvTexts texts;
    for (const auto& [seq, text] : texts_) texts[seq] = text.tokens;
    ASSERT_THAT(kv_violations(snapshot, texts), IsEmpty());
    ASSERT_EQ(snapshot.sequences.size(), texts_.size());
    const auto n = static_cast<std::size_t>(config_.block_tokens);
    for (const auto& sequence : snapshot.sequences) {
      const Text& text = texts_.at(sequence.seq);
      ASSERT_EQ(sequence.length, text.tokens.size());
      const auto values = hashes(text.salt, text.tokens);
      for (std::size_t at = 0; at < values.size(); ++at) {
        // While a copy is owed, its source is what holds the tokens.
        const bool is_owed = sequence.copy_source >= 0 && at / n == sequence.length / n;
        const std::int32_t block = is_owed ? sequence.copy_source : sequence.blocks[at / n];
        ASSERT_EQ(memory_[static_cast<std::size_t>(block) * n + at % n], values[at])
            << "sequence " << sequence.seq.value << " position " << at;
      }
    }
  }

  KvCacheConfig config_;
  KvCache cache_;
  std::mt19937 random_;
  std::vector<std::uint64_t> memory_;  // [n_blocks * block_tokens]
  std::map<SeqId, Text> texts_;
  std::uint64_t last_seq_ = 0;
};

class KvProperty : public testing::TestWithParam<std::uint32_t> {};

TEST_P(KvProperty, EveryPositionReadsBackItsOwnText) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  Life life(GetParam(), {.n_blocks = 24, .block_tokens = 4});
  for (int i = 0; i < 25000 && !HasFatalFailure(); ++i) life.step();
  EXPECT_GT(life.n_refused, 100u);
  EXPECT_GT(life.n_hits, 100u);
  EXPECT_GT(life.n_copies, 100u);
  EXPECT_GT(life.n_rollbacks, 100u);
  EXPECT_GT(life.stats().n_evicted_blocks, 100u);
  life.close_all();
}

INSTANTIATE_TEST_SUITE_P(Seeds, KvProperty, testing::Values(1u, 2u, 3u, 4u));

TEST(KvProperty, HoldsWithoutPrefixCacheAndWithBlocksOfOne) {
  Life off(5, {.n_blocks = 24, .block_tokens = 4, .prefix_cache = PrefixCaching::kOff});
  Life one(6, {.n_blocks = 60, .block_tokens = 1});
  for (int i = 0; i < 5000 && !HasFatalFailure(); ++i) off.step(), one.step();
  off.close_all();
  one.close_all();
  EXPECT_EQ(off.n_hits, 0u) << "there is no cache to hit";
  EXPECT_GT(one.n_hits, 0u);
}

}  // namespace
}  // namespace foretoken
