#include "services/cli/ask.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "common/base/json.h"
#include "common/base/utf8.h"
#include "services/cli/service_table.h"
#include "services/cli/text_width.h"
#include "services/cli/verbs.h"
#include "services/cli/voice.h"

namespace foretoken::cli {
namespace {

using namespace std::chrono_literals;

// In C0, DEL and C1, which terminals obey.
bool is_control(char32_t point) {
  return (point < 0x20 && point != '\n' && point != '\t') || (point >= 0x7f && point < 0xa0);
}

std::string percent(double logprob) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %%", 100 * std::exp(logprob));
  return text.data();
}

std::string fixed(double value, int decimals) {
  std::array<char, 400> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

std::string likeliest_of(const wire::LogprobEntry& entry) {
  std::string text;
  for (std::size_t i = 0; i < entry.top_tokens.size() && i < entry.top_logprobs.size(); ++i)
    text += (i == 0 ? "" : ", ") + to_text(Json(entry.top_tokens[i])) + " " +
            percent(entry.top_logprobs[i]);
  return text;
}

}  // namespace

TimePoint deadline_for(const wire::ClientRequest& request) {
  return steady_now() + std::chrono::milliseconds(request.timeout_ms) +
         std::chrono::milliseconds(1000);
}

Result<std::string> metrics_of(Client& client) {
  // Fails at once where no router listens.
  if (const auto status = client.status(steady_now() + 3s); !status.ok()) return status.error();
  auto reply = ask_for<wire::MetricsText>(client, {.op = wire::ClientOp::kMetrics}, 3s);
  if (!reply.ok()) return reply.error();
  return std::move(reply->metrics_text);
}

Result<std::vector<TokenId>> tokens_of(Client& client,
                                       const std::string& text,
                                       const std::string& model) {
  auto reply = ask_for<wire::TokensReply>(
      client, {.op = wire::ClientOp::kTokenize, .prompt = text, .model = model}, 60s);
  if (!reply.ok()) return reply.error();
  return std::move(reply->token_ids);
}

Result<void> find_router(Client& client) {
  const TimePoint asked = steady_now();
  const auto status = client.status(asked + std::chrono::seconds(5));
  if (!status.ok()) return client.unreachable(status.error());
  const double ms = std::chrono::duration<double, std::milli>(steady_now() - asked).count();
  say_detail("the router at " + client.endpoint() + " answered in " + fixed(ms, 1) +
             " ms: " + summary_of(*status));
  return {};
}

std::optional<Error> cut_off(const wire::ClientReply& reply, std::uint32_t max_tokens) {
  const bool is_late = reply.finish_reason == "deadline";
  if (!is_late && reply.finish_reason != "cancelled") return std::nullopt;
  return Error{is_late ? ErrorCode::kDeadlineExceeded : ErrorCode::kCancelled,
               "cut off (" + reply.finish_reason + ") after " +
                   std::to_string(reply.usage.completion_tokens) + " of " +
                   std::to_string(max_tokens) + " tokens"};
}

void say_times(const wire::ClientReply& reply) {
  const auto& m = reply.metrics;
  say_detail("request " + reply.id + " of model " + reply.model + ", " + reply.system_fingerprint +
             ": tokens of the prompt after " + fixed(m.tokenize_time_ms, 2) + " ms, " +
             fixed(m.queue_time_ms, 2) + " ms in queues, first token after " +
             fixed(m.time_to_first_token_ms, 1) + " ms, the rest in " +
             fixed(m.generation_time_ms, 1) + " ms");
}

std::string plain_number(double value) { return fixed(value, value < 99.95 ? 1 : 0); }

std::string summary_of(const wire::ClientReply& reply) {
  const auto& m = reply.metrics;
  const auto& s = m.speculative_decoding;
  const auto n_tokens = reply.usage.completion_tokens;
  std::string text = std::to_string(n_tokens) + (n_tokens == 1 ? " token, " : " tokens, ") +
                     plain_number(m.tokens_per_second) + " tok/s, " + reply.finish_reason;
  if (s.num_draft_tokens > 0)
    text += "; " + s.proposer + ": " + std::to_string(s.num_accepted_draft_tokens) + " of " +
            std::to_string(s.num_draft_tokens) + " guesses right, " +
            plain_number(s.mean_acceptance_length) + " tokens a round";
  if (!s.fallback_reason.empty()) text += "; not speculative: " + s.fallback_reason;
  return text;
}

std::string logprob_table(const std::vector<wire::LogprobEntry>& entries) {
  struct Row {
    std::string token, logprob, probability, likeliest;
  };
  std::vector<Row> rows{{"token", "logprob", "", ""}};
  for (const auto& entry : entries)
    rows.push_back({to_text(Json(entry.token)), entry.logprob ? fixed(*entry.logprob, 4) : "-",
                    entry.logprob ? percent(*entry.logprob) : "-", likeliest_of(entry)});
  if (std::any_of(rows.begin(), rows.end(), [](const Row& row) { return !row.likeliest.empty(); }))
    rows.front().likeliest = "likeliest";
  std::size_t widest = 0;
  for (const auto& row : rows) widest = std::max(widest, width_of(row.token));
  std::string text;
  for (const auto& row : rows) {
    std::string line = filled_to(row.token, widest + 2) + right_aligned(row.logprob, 9) +
                       right_aligned(row.probability, 10) + "  " + row.likeliest;
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string for_stdout(std::string_view text) {
  if (!stdout_is_terminal() || utf8::first_invalid(text)) return std::string(text);
  std::string clean;
  for (std::size_t at = 0; at < text.size();) {
    const auto point = utf8::code_point_at(text, at);
    clean += is_control(point.value) ? utf8::kReplacement : text.substr(at, point.length);
    at += point.length;
  }
  return clean;
}

}  // namespace foretoken::cli
