// What `foretoken top` computes of two texts of metrics, and how it shows that.
#include <gmock/gmock.h>

#include "services/cli/metric_samples.h"
#include "services/cli/top_figures.h"
#include "services/cli/top_page.h"

namespace foretoken::cli {
namespace {

using namespace std::chrono_literals;
using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;
using ::testing::Pair;
using ::testing::StartsWith;

// ---- samples

TEST(MetricSamples, AreReadWithTheirLabels) {
  const auto samples = read_samples(
      "# HELP foretoken_a_total What.\n# TYPE foretoken_a_total counter\n"
      "foretoken_a_total{service=\"target-0\",why=\"a \\\"b\\\", {c}\\n\\\\\"} 1.5e3\n"
      "foretoken_b 7\n"
      "foretoken_c_bucket{le=\"+Inf\"} +Inf\n"
      "broken{a=\"\n{} 1\nfoo\nbar x\n");
  ASSERT_EQ(3u, samples.size());
  EXPECT_EQ("foretoken_a_total", samples[0].name);
  EXPECT_EQ("a \"b\", {c}\n\\", samples[0].labels.at("why"));
  EXPECT_EQ(1500, samples[0].value);
  EXPECT_EQ(7, samples[1].value);
  EXPECT_TRUE(samples[1].labels.empty());
  EXPECT_GT(samples[2].value, 1e300);
}

Growth growth(const std::string& before, const std::string& now) {
  return {read_samples(before), read_samples(now)};
}

TEST(MetricGrowth, IsTheSumOfWhatEachSeriesGrew) {
  const auto grown = growth(
      "foretoken_a_total{service=\"x\",r=\"1\"} 10\nforetoken_a_total{service=\"y\",r=\"1\"} 5\n",
      "foretoken_a_total{service=\"x\",r=\"1\"} 14\nforetoken_a_total{service=\"y\",r=\"1\"} 6\n"
      "foretoken_a_total{service=\"y\",r=\"2\"} 3\n");
  EXPECT_EQ(4 + 1 + 3, grown.of({"a_total"})) << "a new series of a service began at zero";
  EXPECT_EQ(4, grown.of({"a_total", {{"service", "x"}}}));
  EXPECT_THAT(grown.by("r", {"a_total"}), ElementsAre(Pair("1", 5), Pair("2", 3)));
  EXPECT_EQ(0, grown.of({"b_total"}));
}

TEST(MetricGrowth, ACounterThatIsSmallerBeganAnew) {
  EXPECT_EQ(3,
            growth("foretoken_a_total{service=\"x\"} 10\n", "foretoken_a_total{service=\"x\"} 3\n")
                .of({"a_total"}));
}

TEST(MetricGrowth, WhatAServiceCountedBeforeItWasSeenIsNotInIt) {
  EXPECT_EQ(0, growth("foretoken_a_total{service=\"x\"} 1\n",
                      "foretoken_a_total{service=\"x\"} 1\nforetoken_a_total{service=\"y\"} 1000\n")
                   .of({"a_total"}));
}

TEST(MetricGrowth, NumbersAreInTheirOrder) {
  const auto by = growth("foretoken_p{i=\"0\"} 0\n",
                         "foretoken_p{i=\"10\"} 1\nforetoken_p{i=\"2\"} 1\n"
                         "foretoken_p{i=\"0\"} 1\n")
                      .by("i", {"p"});
  EXPECT_THAT(by, ElementsAre(Pair("0", 1), Pair("2", 1), Pair("10", 1)));
}

TEST(MetricGrowth, QuantilesAreInterpolatedWithinTheBucketsOfTheInterval) {
  const std::string before =
      "foretoken_h_bucket{le=\"1\"} 100\nforetoken_h_bucket{le=\"2\"} 100\n"
      "foretoken_h_bucket{le=\"4\"} 100\nforetoken_h_bucket{le=\"+Inf\"} 100\n"
      "foretoken_h_sum 50\nforetoken_h_count 100\n";
  const std::string now =
      "foretoken_h_bucket{le=\"1\"} 100\nforetoken_h_bucket{le=\"2\"} 110\n"
      "foretoken_h_bucket{le=\"4\"} 120\nforetoken_h_bucket{le=\"+Inf\"} 120\n"
      "foretoken_h_sum 100\nforetoken_h_count 120\n";
  const auto grown = growth(before, now);
  EXPECT_THAT(grown.quantile(0.25, {"h"}), Optional(DoubleEq(1.5)));
  EXPECT_THAT(grown.quantile(0.5, {"h"}), Optional(DoubleEq(2)));
  EXPECT_THAT(grown.quantile(0.75, {"h"}), Optional(DoubleEq(3)));
  EXPECT_THAT(grown.mean({"h"}), Optional(DoubleEq(2.5)));
  EXPECT_EQ(std::nullopt, growth(now, now).quantile(0.5, {"h"})) << "nothing was observed";
  EXPECT_EQ(std::nullopt, growth(now, now).mean({"h"}));
}

TEST(MetricGrowth, AQuantileBeyondTheLastBoundIsThatBound) {
  const auto grown = growth("foretoken_h_bucket{le=\"2\"} 0\nforetoken_h_bucket{le=\"+Inf\"} 0\n",
                            "foretoken_h_bucket{le=\"2\"} 0\nforetoken_h_bucket{le=\"+Inf\"} 5\n");
  EXPECT_THAT(grown.quantile(0.5, {"h"}), Optional(DoubleEq(2)));
}

// ---- figures

Look look(int second, const std::string& samples) {
  Look look{TimePoint{} + std::chrono::seconds(second), {}, read_samples(samples)};
  look.status.ready = true;
  look.status.services.push_back(
      {.role = "router", .name = "router-0", .state = "ready", .uptime_s = 3600});
  look.status.services.push_back({.role = "draft",
                                  .name = "draft-0",
                                  .state = "ready",
                                  .model = "small",
                                  .rss_bytes = std::uint64_t{212} << 20});
  look.status.services.push_back({.role = "target",
                                  .name = "target-0",
                                  .state = "ready",
                                  .model = "demo",
                                  .rss_bytes = std::uint64_t{1126} << 20,
                                  .queued = 2,
                                  .kv_blocks_total = 100,
                                  .kv_blocks_free = 46,
                                  .links = "draft-0 shared_memory"});
  return look;
}

std::string target(const std::string& name, double value, const std::string& more = "") {
  return "foretoken_" + name + "{service=\"target-0\"" + (more.empty() ? "" : "," + more) + "} " +
         std::to_string(value) + "\n";
}

// Two seconds with 10 rounds, 40 guesses, 30 accepted.
Look before() {
  return look(10, target("generation_tokens_total", 1000) +
                      target("spec_decode_num_drafts_total", 5) +
                      target("spec_decode_num_draft_tokens_total", 7) +
                      target("spec_decode_num_accepted_tokens_total", 3) +
                      target("process_cpu_seconds_total", 9) +
                      target("spec_decode_fallback_total", 4, "reason=\"late\""));
}
Look now() {
  const auto phase = [](const std::string& name, double sum, double n) {
    return target("spec_decode_round_seconds_sum", sum, "phase=\"" + name + "\"") +
           target("spec_decode_round_seconds_count", n, "phase=\"" + name + "\"");
  };
  return look(
      12, target("generation_tokens_total", 1040) + target("spec_decode_num_drafts_total", 15) +
              target("spec_decode_num_draft_tokens_total", 47) +
              target("spec_decode_num_accepted_tokens_total", 33) +
              target("spec_decode_num_accepted_tokens_per_pos_total", 9, "position=\"0\"") +
              target("spec_decode_num_accepted_tokens_per_pos_total", 5, "position=\"1\"") +
              target("process_cpu_seconds_total", 10.5) + target("spec_decode_asking_gain", 2.5) +
              target("num_requests_running", 3) + target("num_requests_waiting", 1) +
              target("spec_decode_fallback_total", 6, "reason=\"late\"") +
              phase("wait", 0.010, 10) + phase("verify", 0.030, 10) + phase("commit", 0.005, 10) +
              "foretoken_draft_tokens_total{service=\"draft-0\"} 5\n");
}

TEST(TopFigures, AreDifferencesByTheTimeBetween) {
  const auto f = top_figures(before(), now());
  EXPECT_EQ(2, f.seconds);
  EXPECT_EQ(20, f.tokens_per_second);
  EXPECT_THAT(f.tokens_per_round, Optional(DoubleEq(4)));
  EXPECT_THAT(f.accepted, Optional(DoubleEq(0.75)));
  EXPECT_THAT(f.accepted_by_position, ElementsAre(DoubleEq(0.9), DoubleEq(0.5)));
  EXPECT_THAT(f.round_s, Optional(DoubleNear(0.0045, 1e-12)));
  EXPECT_EQ(2.5, f.asking_gain);
  EXPECT_EQ(3u, f.n_running);
  EXPECT_DOUBLE_EQ(0.54, f.kv_used);
  EXPECT_THAT(f.fallbacks, ElementsAre(Pair("late", 2)));
  EXPECT_THAT(f.models, ElementsAre("demo"));
  EXPECT_THAT(f.draft_models, ElementsAre("small"));
  ASSERT_EQ(3u, f.services.size());
  EXPECT_THAT(f.services[2].cpu, Optional(DoubleEq(0.75)));
  EXPECT_THAT(f.services[2].tokens_per_second, Optional(DoubleEq(20)));
}

TEST(TopFigures, WithoutAnInterval) {
  const auto f = top_figures(now(), now());
  EXPECT_EQ(0, f.tokens_per_second);
  EXPECT_EQ(std::nullopt, f.tokens_per_round);
  EXPECT_EQ(std::nullopt, f.services[2].cpu);
  EXPECT_EQ(std::nullopt, f.services[0].cpu) << "a service without samples";
}

TEST(TopFigures, AsJsonHaveEveryNumber) {
  const auto json = top_json(top_figures(before(), now()));
  EXPECT_EQ("foretoken.top/1", json["schema"].get<std::string>());
  EXPECT_EQ(20, json["tokens_per_second"].get<double>());
  EXPECT_TRUE(json["phases_s"]["propose"].is_null()) << "not observed";
  EXPECT_EQ(0.003, json["phases_s"]["verify"].get<double>());
  EXPECT_EQ(2, json["fallbacks"]["late"].get<double>());
  EXPECT_EQ("target-0", json["services"][2]["name"].get<std::string>());
  EXPECT_EQ("draft-0", json["drafts"][0]["name"].get<std::string>());
}

// A memory of texts, which counts neither guesses kept and cut nor blocks.
TEST(TopFigures, ShowNothingOfADraftThatItDoesNotCount) {
  const auto guessed = [](const std::string& kept, int n) {
    return look(10 + n, kept + "foretoken_draft_tokens_total{service=\"draft-0\"} " +
                            std::to_string(100 * n) + "\n");
  };
  const std::string none_kept = "foretoken_draft_tokens_kept_total{service=\"draft-0\"} 0\n";
  EXPECT_THAT(top_figures(guessed(none_kept, 1), guessed(none_kept, 2)).drafts.at(0).kept,
              Optional(DoubleEq(0)));
  const auto f = top_figures(guessed("", 1), guessed("", 2));
  const TopDraft& memory = f.drafts.at(0);
  EXPECT_EQ(100, memory.guesses_per_second);
  EXPECT_EQ(std::nullopt, memory.kept);
  EXPECT_EQ(std::nullopt, memory.cut);
  EXPECT_EQ(std::nullopt, memory.kv_used);
  EXPECT_TRUE(top_json(f)["drafts"][0]["kv_used"].is_null());
}

// ---- the page

std::string text_of(const std::vector<PageLine>& lines) {
  std::string text;
  for (const auto& line : lines) text += line.text + "\n";
  return text;
}

TEST(TopPage, OfEightyColumnsHasAllPanelsInSixteenRows) {
  const auto page = top_page(top_figures(before(), now()), {.size = {80, 16}});
  EXPECT_LE(page.size(), 16u);
  const std::string text = text_of(page);
  for (const char* part :
       {"foretoken top  demo <- small  up 1h 0m", "20 tok/s (2.5 x plain)  running 3  waiting 1",
        "kv #####..... 54 %", " 1 ################   0.90", " 2 #########          0.50",
        "round 4.5ms", "verify    ########   3.0ms",
        "tokens/round 4.0  accepted 0.75  fallbacks 2 (late)", "target-0", "1.1G", "75 %",
        "q quit  s sort (role)  space pause  d drafts"})
    EXPECT_THAT(text, HasSubstr(part)) << text;
  for (const auto& line : page) EXPECT_LE(line.text.size(), 80u) << line.text;
}

TEST(TopPage, OfAWideScreenHasThePanelsBesideTheServices) {
  const auto page = top_page(top_figures(before(), now()), {.size = {140, 16}});
  EXPECT_THAT(page[1].text, StartsWith("service"));
  EXPECT_THAT(page[1].text, HasSubstr("accepted by position"));
  EXPECT_EQ(1 + 6 + 1, static_cast<int>(page.size()));
}

TEST(TopPage, CutsServicesThatFindNoRoomAndSaysSo) {
  auto many = now();
  for (int i = 1; i < 20; ++i)
    many.status.services.push_back({.role = "draft", .name = "draft-" + std::to_string(i)});
  const auto page = top_page(top_figures(before(), many), {.size = {80, 16}});
  EXPECT_EQ(16u, page.size());
  EXPECT_THAT(text_of(page), HasSubstr("more"));
  EXPECT_THAT(page.back().text, StartsWith("q quit"));
}

TEST(TopPage, SortsAndShowsDraftsAndWhatWentWrong) {
  const auto f = top_figures(before(), now());
  const auto first_of = [&](SortBy sort) {
    return top_page(f, {.size = {80, 20}, .sort = sort}).at(3).text;
  };
  EXPECT_THAT(first_of(SortBy::kName), StartsWith("router-0"));
  EXPECT_THAT(first_of(SortBy::kMemory), StartsWith("target-0"));
  EXPECT_THAT(first_of(SortBy::kCpu), StartsWith("target-0"));
  EXPECT_THAT(first_of(SortBy::kQueue), StartsWith("target-0"));
  const auto drafts = text_of(top_page(f, {.shows_drafts = true}));
  EXPECT_THAT(drafts, HasSubstr("guess/s"));
  EXPECT_THAT(drafts, Not(HasSubstr("accepted by position")));
  const auto paused = text_of(top_page(f, {.is_paused = true, .note = "no router answers"}));
  EXPECT_THAT(paused, HasSubstr("PAUSED"));
  EXPECT_THAT(paused, HasSubstr("space go on"));
  EXPECT_THAT(paused, HasSubstr("no router answers"));
}

TEST(TopPage, AnyNameIsCutBetweenCharacters) {
  auto named = now();
  named.status.services[2].model =
      std::string("m") + "\xe6\xbc\xa2\xe5\xad\x97 " + std::string(90, 'x');
  for (int columns = 80; columns < 90; ++columns)
    for (const auto& line : top_page(top_figures(before(), named), {.size = {columns, 16}}))
      EXPECT_THAT(to_text(Json(line.text)), Not(HasSubstr("\xef\xbf\xbd"))) << columns;
}

TEST(TopLine, SaysTheSameInOne) {
  EXPECT_EQ(
      "demo <- small  20 tok/s (2.5 x plain)  running 3  waiting 1  kv 54 %  tokens/round 4.0  "
      "accepted 0.75  fallbacks 2  round 4.5ms",
      top_line(top_figures(before(), now())));
}

}  // namespace
}  // namespace foretoken::cli
