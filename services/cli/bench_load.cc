#include "services/cli/bench_load.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "services/cli/ask.h"

namespace foretoken::cli {
namespace {

using namespace std::chrono_literals;

constexpr Duration kOverduePause = 100ms;  // overdue ones are looked for this often
constexpr Duration kOverdueGrace = 2s;     // beyond the timeout that the server knows

double milliseconds_between(TimePoint from, TimePoint to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// There is no service, or one that is about to stop: a router that drains names a time to ask the
// next one at its address, which is not the one that is measured. One without targets may be asked
// again: other requests may fare better.
bool ends_load(const Error& error, std::uint32_t retry_after_ms) {
  return error.code == ErrorCode::kDraining ||
         (error.code == ErrorCode::kUnavailable && retry_after_ms == 0);
}

class LoadRun {
 public:
  LoadRun(BenchDoor& door, const BenchLoad& load)
      : door_(door), load_(load), begun_(steady_now()), next_arrival_(begun_) {
    samples_.records.resize(load.n_requests);
  }

  BenchSamples run() {
    const std::uint64_t asked_again_before = door_.n_asked_again();
    while (has_more() || !outstanding_.empty()) {
      send_due();
      if (!has_more() && outstanding_.empty()) break;
      const bool waits_to_send = has_more() && has_place();
      const TimePoint look = steady_now() + kOverduePause;
      if (auto news = door_.next(waits_to_send ? std::min(next_arrival_, look) : look))
        take(std::move(*news));
      drop_overdue();
    }
    samples_.n_asked_again = door_.n_asked_again() - asked_again_before;
    samples_.seconds = milliseconds_between(begun_, steady_now()) / 1000;
    return std::move(samples_);
  }

 private:
  struct Outstanding {
    TimePoint sent, last;
    std::optional<TimePoint> first;
  };

  // Requests to send.
  bool has_more() const { return !samples_.unreachable && n_sent_ < load_.n_requests; }
  bool has_place() const {
    return load_.concurrency == 0 || outstanding_.size() < load_.concurrency;
  }

  void send_due() {
    while (has_more() && has_place() && steady_now() >= next_arrival_) {
      const std::size_t index = n_sent_++;
      const DemoPrompt& prompt = load_.prompts[index % load_.prompts.size()];
      wire::ClientRequest request = load_.base;
      request.messages = prompt.messages;
      request.token_ids = prompt.token_ids;
      if (!prompt.token_ids.empty()) request.prompt_kind = wire::PromptKind::kTokens;
      request.params.seed = load_.base.params.seed + index;
      request.given.insert("seed");
      if (load_.request_rate > 0)
        next_arrival_ += std::chrono::duration_cast<Duration>(
            std::chrono::duration<double>(gap_(random_) / load_.request_rate));
      const TimePoint now = steady_now();
      samples_.records[index].kind = prompt.kind;
      samples_.records[index].at_ms = milliseconds_between(begun_, now);
      outstanding_[index] = {.sent = now, .last = now, .first = {}};
      if (const auto sent = door_.send(index, std::move(request)); !sent.ok()) {
        samples_.unreachable |= ends_load(sent.error(), 0);
        fail(index, sent.error().message, CutOff::kNo);
      }
    }
  }

  void take(Result<BenchNews> news) {
    if (!news.ok()) return note_error(news.error().message, CutOff::kNo);
    const auto found = outstanding_.find(news->request);
    if (found == outstanding_.end()) return;
    if (const auto* error = std::get_if<wire::ClientError>(&news->answer)) {
      const Error why = error_from(*error);
      samples_.unreachable |= ends_load(why, error->error.retry_after_ms);
      return fail(news->request, error->error.code + ": " + error->error.message,
                  why.code == ErrorCode::kDeadlineExceeded ? CutOff::kYes : CutOff::kNo);
    }
    if (const auto* piece = std::get_if<wire::ClientPiece>(&news->answer))
      return add_piece(news->request, piece->text, piece->token_ids);
    if (const auto* reply = std::get_if<wire::ClientReply>(&news->answer))
      finish(news->request, *reply);
  }

  void add_piece(std::size_t index, const std::string& text, const std::vector<TokenId>& ids) {
    Outstanding& request = outstanding_.at(index);
    BenchRecord& record = samples_.records[index];
    const TimePoint now = steady_now();
    if (request.first)
      record.itl_ms.push_back(milliseconds_between(request.last, now));
    else
      request.first = now;
    request.last = now;
    record.answer += text;
    record.token_ids.insert(record.token_ids.end(), ids.begin(), ids.end());
  }

  void finish(std::size_t index, const wire::ClientReply& reply) {
    // Half an answer is none: its times and tokens would flatter the rest.
    if (const auto why = cut_off(reply, load_.base.params.max_tokens))
      return fail(index, why->message, CutOff::kYes);
    // The end brings what no piece has carried, if anything.
    const bool has_more = !reply.text.empty() || !reply.token_ids.empty();
    if (has_more || !outstanding_.at(index).first) add_piece(index, reply.text, reply.token_ids);
    const Outstanding request = outstanding_.extract(index).mapped();
    BenchRecord& record = samples_.records[index];
    record.is_done = true;
    record.ttft_ms = milliseconds_between(request.sent, *request.first);
    record.e2el_ms = milliseconds_between(request.sent, steady_now());
    record.prompt_tokens = reply.usage.prompt_tokens;
    record.cached_tokens = reply.usage.cached_tokens;
    record.output_tokens = reply.usage.completion_tokens;
    if (record.output_tokens > 1)
      record.tpot_ms = milliseconds_between(*request.first, request.last) /
                       static_cast<double>(record.output_tokens - 1);
    count_rounds(record, reply.metrics.speculative_decoding);
    ended(record);
  }

  void ended(const BenchRecord& record) const {
    if (load_.on_end) load_.on_end(record);
  }

  void count_rounds(BenchRecord& record, const wire::SpeculativeDecoding& s) {
    record.rounds = s.num_spec_steps;
    record.drafted = s.num_draft_tokens;
    record.accepted = s.num_accepted_draft_tokens;
    record.judged = n_judged(s);
    record.by_position = tally_positions(s);
    auto& histogram = samples_.histogram;
    histogram.resize(std::max(histogram.size(), s.acceptance_histogram.size()));
    for (std::size_t i = 0; i < s.acceptance_histogram.size(); ++i)
      histogram[i] += s.acceptance_histogram[i];
  }

  void drop_overdue() {
    const TimePoint limit =
        steady_now() - std::chrono::milliseconds(load_.base.timeout_ms) - kOverdueGrace;
    for (auto it = outstanding_.begin(); it != outstanding_.end();) {
      const std::size_t index = it->first;
      const bool is_overdue = it->second.sent < limit;
      ++it;
      if (!is_overdue) continue;
      door_.forget(index);
      fail(index, "no answer within the timeout", CutOff::kYes);
    }
  }

  // The reason that is shown is the first one that is not the clock's, if there is any.
  enum class CutOff { kNo, kYes };
  void fail(std::size_t index, const std::string& why, CutOff cut_off) {
    outstanding_.erase(index);
    samples_.records[index].answer.clear();
    samples_.records[index].token_ids.clear();
    note_error(why, cut_off);
    ended(samples_.records[index]);
  }
  void note_error(const std::string& why, CutOff cut_off) {
    const bool only_cut_off = samples_.n_failed == samples_.n_cut_off;
    ++samples_.n_failed;
    if (cut_off == CutOff::kYes) ++samples_.n_cut_off;
    if (samples_.first_error.empty() || (only_cut_off && cut_off == CutOff::kNo))
      samples_.first_error = why;
  }

  BenchDoor& door_;
  const BenchLoad& load_;
  const TimePoint begun_;
  TimePoint next_arrival_;
  std::map<std::size_t, Outstanding> outstanding_;  // by request
  std::size_t n_sent_ = 0;
  std::mt19937_64 random_{1};
  std::exponential_distribution<double> gap_{1.0};
  BenchSamples samples_;
};

}  // namespace

BenchSamples run_load(BenchDoor& door, const BenchLoad& load) { return LoadRun(door, load).run(); }

}  // namespace foretoken::cli
