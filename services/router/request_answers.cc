#include "services/router/request_answers.h"

#include <algorithm>
#include <string>

#include "common/base/hash.h"
#include "common/wire/client_codec.h"

namespace foretoken {
namespace {

double millis(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

wire::LogprobEntry entry_of(TokenId token, const TokenLogprobs& from) {
  return {.token_id = token,
          .logprob = static_cast<double>(from.logprob),
          .top_ids = from.top_ids,
          .top_logprobs = {from.top_logprobs.begin(), from.top_logprobs.end()}};
}

void add(std::vector<wire::LogprobEntry>& to,
         const std::vector<TokenId>& output,
         const std::vector<TokenLogprobs>& logprobs,
         std::uint32_t from,
         std::uint32_t until) {
  for (std::uint32_t i = from; i < until && i < logprobs.size(); ++i)
    to.push_back(entry_of(output[i], logprobs[i]));
}

wire::ReplyMetrics metrics_of(const RequestRow& row, std::uint32_t default_draft_len) {
  wire::ReplyMetrics metrics;
  if (row.first_token != TimePoint{})
    metrics.time_to_first_token_ms = millis(row.first_token - row.arrived);
  metrics.generation_time_ms = millis(row.last_token - row.first_token);
  wire::SpeculativeDecoding& spec = metrics.speculative_decoding;
  spec.num_spec_tokens = row.request.num_draft_tokens < 0
                             ? default_draft_len
                             : static_cast<std::uint32_t>(row.request.num_draft_tokens);
  if (row.done) {
    metrics.queue_time_ms = row.done->queue_us / 1e3;
    if (row.done->decode_us > 0)
      metrics.generation_time_ms = static_cast<double>(row.done->decode_us) / 1e3;
    spec.fallback_reason = row.done->fallback_reason;
    spec.acceptance_histogram = row.done->acceptance_histogram;
    std::string names;
    std::uint32_t rounds = 0;
    for (const wire::ProposerStats& proposer : row.done->proposers) {
      spec.num_draft_tokens += proposer.drafted;
      spec.num_accepted_draft_tokens += proposer.accepted;
      rounds = std::max(rounds, proposer.rounds);
      if (proposer.rounds > 0)
        names += (names.empty() ? "" : "+") + std::string(name_of(proposer.proposer));
    }
    for (const std::uint32_t count : spec.acceptance_histogram) spec.num_spec_steps += count;
    spec.num_spec_steps = std::max(spec.num_spec_steps, rounds);
    if (!names.empty()) spec.proposer = names;
  }
  if (metrics.generation_time_ms > 0 && row.output.size() > 1)
    metrics.tokens_per_second =
        static_cast<double>(row.output.size() - 1) / metrics.generation_time_ms * 1e3;
  spec.mean_acceptance_length =
      1.0 + (spec.num_spec_steps == 0
                 ? 0.0
                 : static_cast<double>(spec.num_accepted_draft_tokens) / spec.num_spec_steps);
  spec.draft_acceptance_rate =
      spec.num_draft_tokens == 0
          ? 0.0
          : static_cast<double>(spec.num_accepted_draft_tokens) / spec.num_draft_tokens;
  return metrics;
}

}  // namespace

wire::ClientPiece next_piece(RequestId id, const RequestRow& row) {
  wire::ClientPiece piece{.id = wire::hex_of(id),
                          .text = row.text.substr(row.delivered_bytes),
                          .position = row.delivered_tokens,
                          .offset = static_cast<std::uint32_t>(row.delivered_bytes)};
  const std::uint32_t from = row.delivered_tokens;
  const std::uint32_t until = std::max(from, row.n_detokenized);
  piece.token_ids.assign(row.output.begin() + from, row.output.begin() + until);
  for (std::uint32_t i = from; i < until; ++i) piece.accepted += row.guessed[i];
  add(piece.logprobs, row.output, row.logprobs, from, until);
  return piece;
}

wire::ClientReply whole_reply(RequestId id,
                              const RequestRow& row,
                              FinishReason reason,
                              std::uint32_t default_draft_len) {
  wire::ClientReply reply{.id = wire::hex_of(id),
                          .text = row.text,
                          .token_ids = row.output,
                          .position = 0,
                          .offset = 0};
  reply.finish_reason = std::string(name_of(reason));
  if (row.stop_string)
    reply.stop_reason = *row.stop_string;
  else if (row.done && row.done->stop_token >= 0 && row.target_hello &&
           std::find(row.target_hello->end_tokens.begin(), row.target_hello->end_tokens.end(),
                     row.done->stop_token) == row.target_hello->end_tokens.end())
    reply.stop_reason = row.done->stop_token;
  reply.usage.prompt_tokens = static_cast<std::uint32_t>(row.encoded.tokens.size());
  reply.usage.completion_tokens = static_cast<std::uint32_t>(row.output.size());
  reply.usage.total_tokens = reply.usage.prompt_tokens + reply.usage.completion_tokens;
  add(reply.logprobs, row.output, row.logprobs, 0, reply.usage.completion_tokens);
  if (row.target_hello) {
    reply.model = row.target_hello->model_name;
    reply.system_fingerprint = wire::hex_of(mix64(row.target_hello->fingerprints.model ^
                                                  mix64(row.target_hello->fingerprints.numerics)));
  }
  reply.metrics = metrics_of(row, default_draft_len);
  if (row.done) reply.usage.cached_tokens = row.done->n_cached;
  return reply;
}

wire::ClientReply without_pieces(wire::ClientReply whole, const RequestRow& row) {
  whole.position = row.delivered_tokens;
  whole.offset = static_cast<std::uint32_t>(row.delivered_bytes);
  whole.text.erase(0, row.delivered_bytes);
  whole.token_ids.erase(whole.token_ids.begin(), whole.token_ids.begin() + row.delivered_tokens);
  // A target may have left some out.
  const auto n_logprobs = std::min<std::size_t>(whole.logprobs.size(), row.delivered_tokens);
  whole.logprobs.erase(whole.logprobs.begin(),
                       whole.logprobs.begin() + static_cast<std::ptrdiff_t>(n_logprobs));
  return whole;
}

}  // namespace foretoken
