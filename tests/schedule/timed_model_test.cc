// The timed model and its settings.
#include "bench/timed/timed_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "bench/schedule/row_curve.h"
#include "bench/schedule/timed_text.h"
#include "kernels/include/backend.h"

namespace foretoken::bench {
namespace {

// One sequence whose tokens lie in the blocks of a table, first row at `start`.
class Pass {
 public:
  Pass(TimedModel& model, Backend& backend)
      : model_(model),
        kv_{.geometry = model.kv_geometry(kBlockTokens), .n_blocks = 8},
        memory_(backend.allocate(kv_.geometry.block_bytes() * 8)) {
    kv_.blocks = memory_.as<std::byte>();
  }

  // The likeliest token after each row.
  std::vector<TokenId> run(std::vector<std::int32_t> tokens, std::int32_t start) {
    const auto n = static_cast<std::int32_t>(tokens.size());
    std::vector<std::int32_t> positions, slots, rows;
    for (std::int32_t i = 0; i < n; ++i) {
      const std::int32_t at = start + i;
      positions.push_back(at);
      slots.push_back(table_[static_cast<std::size_t>(at / kBlockTokens)] * kBlockTokens +
                      at % kBlockTokens);
      rows.push_back(i);
    }
    const std::array row_begin{0, n};
    std::vector<float> logits(tokens.size() * kTimedVocabulary);
    model_.forward({.n_rows = n,
                    .n_sequences = 1,
                    .n_logit_rows = n,
                    .max_blocks = static_cast<std::int32_t>(table_.size()),
                    .tokens = tokens.data(),
                    .positions = positions.data(),
                    .slots = slots.data(),
                    .row_begin = row_begin.data(),
                    .logit_rows = rows.data(),
                    .block_tables = table_.data()},
                   kv_, logits.data());
    std::vector<TokenId> best;
    for (auto row = logits.begin(); row != logits.end(); row += kTimedVocabulary)
      best.push_back(static_cast<TokenId>(std::max_element(row, row + kTimedVocabulary) - row));
    return best;
  }

  std::vector<std::int32_t> table_{5, 2, 7};

 private:
  static constexpr std::int32_t kBlockTokens = 4;
  TimedModel& model_;
  PagedKv kv_;
  Buffer memory_;
};

TEST(TimedModel, ReadsItsTokensBackThroughTheBlockTable) {
  const auto backend = make_backend({.n_threads = 1});
  TimedModel model({.pass_ms = 0}, Draws::kRight);
  Pass pass(model, *backend);
  const std::vector<TokenId> whole = pass.run({10, 11, 12, 13, 14, 15}, 0);
  EXPECT_EQ(whole[4], likeliest_after(std::array{11, 12, 13, 14}, 1).best);
  EXPECT_EQ(pass.run({14, 15}, 4), std::vector(whole.end() - 2, whole.end()));
  pass.table_[0] = 1;  // where nothing of this text is
  EXPECT_NE(pass.run({14}, 4).front(), whole[4]);
}

TEST(TimedModel, PassTakesAtLeastTheTimeOfItsRows) {
  const auto backend = make_backend({.n_threads = 1});
  TimedModel model({.pass_ms = 10}, Draws::kRight);
  Pass pass(model, *backend);
  const TimePoint begun = steady_now();
  pass.run({1, 2, 3, 4, 5}, 0);
  EXPECT_GE(in_seconds(steady_now() - begun), 0.010 * row_cost(5));
}

TEST(TimedModel, DrawsWronglyWhereItVerifiesIfATestAsksForIt) {
  const auto backend = make_backend({.n_threads = 1});
  TimedModel right({.pass_ms = 0}, Draws::kRight);
  TimedModel wrong({.pass_ms = 0}, Draws::kWrongWhenVerifying);
  Pass one(right, *backend), other(wrong, *backend);
  EXPECT_EQ(one.run({1, 2, 3}, 0), other.run({1, 2, 3}, 0));
  EXPECT_EQ(one.run({4}, 3), other.run({4}, 3));
  const auto expected = one.run({5, 6, 7}, 4), drawn = other.run({5, 6, 7}, 4);
  EXPECT_EQ(std::vector(drawn.begin(), drawn.end() - 1),
            std::vector(expected.begin(), expected.end() - 1));
  EXPECT_NE(drawn.back(), expected.back());
}

TEST(TimedSetting, IsReadAsItWasWritten) {
  const TimedSetting setting{.pass_ms = 0.3, .acceptance = 0.8, .rtt_ms = 5, .lock = "/a \"path\""};
  const auto read = timed_setting(text_of(setting));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->pass_ms, 0.3);
  EXPECT_EQ(read->acceptance, 0.8);
  EXPECT_EQ(read->rtt_ms, 5);
  EXPECT_EQ(read->lock, "/a \"path\"");
}

TEST(TimedSetting, SaysWhichValueIsWrong) {
  const auto error_of = [](TimedSetting setting) {
    const auto read = timed_setting(text_of(setting));
    return read.ok() ? "" : read.error().message;
  };
  EXPECT_NE(error_of({.pass_ms = -1}).find("pass_ms"), std::string::npos);
  EXPECT_NE(error_of({.acceptance = 1.5}).find("acceptance"), std::string::npos);
  EXPECT_NE(error_of({.rtt_ms = 1e9}).find("rtt_ms"), std::string::npos);
  EXPECT_FALSE(timed_setting("{").ok());
  EXPECT_FALSE(timed_setting("[]").ok());
}

}  // namespace
}  // namespace foretoken::bench
