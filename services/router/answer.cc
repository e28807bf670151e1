#include "services/router/answer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/hash.h"
#include "common/base/utf8.h"
#include "common/messages/limits.h"
#include "common/wire/client_codec.h"

namespace foretoken {
namespace {

double millis(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

// The counts of the target, as a client reads them.
void add_counts(const wire::Done& done, wire::SpeculativeDecoding& spec) {
  spec.fallback_reason = done.fallback_reason;
  spec.acceptance_histogram = done.acceptance_histogram;
  for (const wire::RoundsOfLength& rounds : done.rounds_by_length)
    spec.acceptance_histogram_by_draft_length[std::to_string(rounds.n_verified)] = rounds.histogram;
  if (done.draft_len >= 0) spec.num_spec_tokens = static_cast<std::uint32_t>(done.draft_len);
  std::string names;
  for (const wire::ProposerStats& proposer : done.proposers) {
    spec.num_draft_tokens += proposer.drafted;
    spec.num_accepted_draft_tokens += proposer.accepted;
    if (proposer.proposer == ProposerKind::kPrediction) {
      spec.num_prediction_tokens += proposer.drafted;
      spec.num_accepted_prediction_tokens += proposer.accepted;
    }
    if (proposer.rounds > 0)
      names += (names.empty() ? "" : "+") + std::string(name_of(proposer.proposer));
  }
  for (const std::uint32_t count : spec.acceptance_histogram) spec.num_spec_steps += count;
  if (!names.empty()) spec.proposer = names;
}

// One number for each count of tokens that a round may accept, as vLLM's clients expect. A target
// that does not say its bound may have had a higher one than this router's configuration.
void pad_histogram(wire::SpeculativeDecoding& spec) {
  std::vector<std::uint32_t>& histogram = spec.acceptance_histogram;
  while (!histogram.empty() && histogram.back() == 0) histogram.pop_back();
  if (!histogram.empty())
    spec.num_spec_tokens =
        std::max(spec.num_spec_tokens, static_cast<std::uint32_t>(histogram.size() - 1));
  histogram.resize(std::size_t{spec.num_spec_tokens} + 1);
}

double ratio(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

void Answer::begin(const std::vector<TokenId>& prompt, const SamplingParams& params) {
  n_prompt_ = static_cast<std::uint32_t>(prompt.size());
  with_logprobs_ = params.n_logprobs >= 0;
  if (params.n_prompt_logprobs >= 0) prompt_ = prompt;
}

Position Answer::prompt_logprobs_from() const {
  return prompt_.empty() ? 0 : static_cast<Position>(1 + prompt_logprobs_.size());
}

Answer::News Answer::add_prompt(const wire::Tokens& tokens) {
  const Position have = prompt_logprobs_from();
  if (tokens.position > have) return have < prompt_.size() ? News::kGap : News::kNone;
  const std::size_t until =
      std::min<std::size_t>({tokens.position + tokens.logprobs.size(),
                             tokens.position + tokens.ids.size(), prompt_.size()});
  if (until <= have) return News::kNone;
  prompt_logprobs_.insert(
      prompt_logprobs_.end(),
      tokens.logprobs.begin() + static_cast<std::ptrdiff_t>(have - tokens.position),
      tokens.logprobs.begin() + static_cast<std::ptrdiff_t>(until - tokens.position));
  return News::kSome;
}

Answer::News Answer::add_tokens(const wire::Tokens& tokens, TimePoint now) {
  if (tokens.position < n_prompt_) return add_prompt(tokens);
  const std::size_t have = n_prompt_ + tokens_.size();
  if (tokens.position > have || !has_all_of_prompt()) return News::kGap;
  const std::size_t known = have - tokens.position;
  if (known >= tokens.ids.size()) return News::kNone;
  const bool with_logprobs = with_logprobs_ && tokens.logprobs.size() == tokens.ids.size();
  for (std::size_t i = known; i < tokens.ids.size(); ++i) {
    // Never one that belongs to another token: where some are missing, so are all behind them.
    if (with_logprobs && logprobs_.size() == tokens_.size())
      logprobs_.push_back(tokens.logprobs[i]);
    tokens_.push_back(tokens.ids[i]);
    guessed_.push_back(i < tokens.accepted.size() ? tokens.accepted[i] : std::uint8_t{0});
  }
  if (first_token_ == TimePoint{}) first_token_ = now;
  last_token_ = now;
  return News::kSome;
}

Answer::News Answer::add_text(const wire::Text& text, std::uint32_t n_sent, TokenEnds ends) {
  if (with_logprobs_ || !prompt_.empty()) add_bytes(text);
  if (text.offset > text_.size()) return News::kGap;
  if (text.next > n_prompt_ + n_sent) return News::kNone;
  if (form_) add_ends(text);
  if (text.next < n_prompt_ + n_detokenized_) return News::kNone;  // overtaken by a replay
  if (form_ && ends == TokenEnds::kSaid && ends_.size() < text.next - n_prompt_) return News::kGap;
  const std::size_t known = text_.size() - text.offset;
  if (known < text.text.size()) text_.append(text.text, known);
  n_detokenized_ = std::min(n_tokens(), text.next - n_prompt_);
  return News::kSome;
}

void Answer::add_ends(const wire::Text& text) {
  if (text.next < n_prompt_ + text.ends.size()) return;
  const std::size_t from = text.next - n_prompt_ - text.ends.size();
  if (from > ends_.size()) return;
  for (std::size_t i = ends_.size() - from; i < text.ends.size(); ++i)
    ends_.push_back(text.ends[i]);
}

std::vector<std::uint32_t> Answer::ends_of(std::uint32_t from, std::uint32_t until) const {
  if (until > ends_.size() || from >= until) return {};
  return {ends_.begin() + from, ends_.begin() + until};
}

void Answer::add_bytes(const wire::Text& text) {
  if (text.bytes_of.size() != text.n_bytes.size()) return;
  std::size_t at = 0;
  for (std::size_t i = 0; i < text.bytes_of.size(); ++i) {
    const std::size_t n = text.n_bytes[i];
    if (n > text.bytes.size() - at) return;
    const auto begin = text.bytes.begin() + static_cast<std::ptrdiff_t>(at);
    bytes_of_.try_emplace(text.bytes_of[i], begin, begin + static_cast<std::ptrdiff_t>(n));
    at += n;
  }
}

std::vector<TokenId> Answer::without_bytes() const {
  std::vector<TokenId> ids;
  if (n_detokenized_ == 0) {
    ids = prompt_;
    for (const TokenLogprobs& each : prompt_logprobs_)
      ids.insert(ids.end(), each.top_ids.begin(), each.top_ids.end());
  }
  for (std::size_t i = n_detokenized_; i < logprobs_.size() && i < tokens_.size(); ++i) {
    ids.push_back(tokens_[i]);
    ids.insert(ids.end(), logprobs_[i].top_ids.begin(), logprobs_[i].top_ids.end());
  }
  std::erase_if(ids, [&](TokenId id) { return bytes_of_.contains(id); });
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  if (ids.size() > wire::kMaxBytesOf) ids.resize(wire::kMaxBytesOf);
  return ids;
}

void Answer::end_at_stop_string(const wire::Text& text) {
  const std::uint32_t n = std::clamp(text.n_tokens, n_delivered_, n_tokens());
  stop_string_ = text.stop_string;
  tokens_.resize(n);
  guessed_.resize(n);
  if (logprobs_.size() > n) logprobs_.resize(n);
  n_detokenized_ = n;
}

std::optional<wire::ClientPiece> Answer::next_piece(RequestId id) {
  if (is_delivered()) return std::nullopt;
  wire::ClientPiece piece{.id = wire::hex_of(id),
                          .text = text_.substr(n_delivered_bytes_),
                          .position = n_delivered_,
                          .offset = static_cast<std::uint32_t>(n_delivered_bytes_)};
  const std::uint32_t from = n_delivered_, until = std::min(n_detokenized_, n_tokens());
  if (from < until) piece.token_ids.assign(tokens_.begin() + from, tokens_.begin() + until);
  for (std::uint32_t i = from; i < until; ++i) piece.accepted += guessed_[i];
  add_logprobs(piece.logprobs, from, until);
  piece.token_ends = ends_of(from, until);
  piece.prompt_tokens = n_prompt_;
  if (!std::exchange(is_begun_, true)) {
    piece.prompt_logprobs = prompt_entries();
    piece.form = form_;
    piece.prompt_token_ids = shown_prompt_;
  }
  n_delivered_bytes_ += piece.text.size();
  n_delivered_ += static_cast<std::uint32_t>(piece.token_ids.size());
  return piece;
}

void Answer::restart_delivery() {
  n_delivered_bytes_ = 0;
  n_delivered_ = 0;
  is_begun_ = false;
}

FinishReason Answer::reason_of(const Ending& ending) const {
  if (ending.cut_short) return *ending.cut_short;
  return stop_string_ || !done_ ? FinishReason::kStop : done_->reason;
}

std::string system_fingerprint_of(const wire::Fingerprints& prints) {
  return wire::hex_of(mix64(prints.model ^ mix64(prints.numerics)));
}

wire::ClientReply Answer::whole_reply(RequestId id, const Ending& ending) {
  if (ending.cut_short) {  // tokens whose text is not known were never delivered
    tokens_.resize(std::max(n_detokenized_, n_delivered_));
    if (logprobs_.size() > tokens_.size()) logprobs_.resize(tokens_.size());
  }
  wire::ClientReply reply{
      .id = wire::hex_of(id), .text = text_, .token_ids = tokens_, .position = 0, .offset = 0};
  reply.finish_reason = std::string(name_of(reason_of(ending)));
  if (stop_string_)
    reply.stop_reason = *stop_string_;
  else if (done_ && done_->stop_token >= 0 && ending.target != nullptr &&
           std::find(ending.target->end_tokens.begin(), ending.target->end_tokens.end(),
                     done_->stop_token) == ending.target->end_tokens.end())
    reply.stop_reason = done_->stop_token;
  reply.usage.prompt_tokens = n_prompt_;
  reply.usage.completion_tokens = n_tokens();
  reply.usage.total_tokens = n_prompt_ + n_tokens();
  if (done_) reply.usage.cached_tokens = done_->n_cached;
  add_logprobs(reply.logprobs, 0, n_tokens());
  reply.prompt_logprobs = prompt_entries();
  reply.token_ends = ends_of(0, n_tokens());
  reply.form = form_;
  reply.prompt_token_ids = shown_prompt_;
  if (ending.target != nullptr) {
    reply.model = ending.target->model_name;
    reply.system_fingerprint = system_fingerprint_of(ending.target->fingerprints);
  }
  reply.metrics = metrics(ending);
  return reply;
}

wire::ClientReply Answer::without_pieces(wire::ClientReply whole) const {
  whole.position = n_delivered_;
  whole.offset = static_cast<std::uint32_t>(n_delivered_bytes_);
  whole.text.erase(0, n_delivered_bytes_);
  whole.token_ids.erase(whole.token_ids.begin(), whole.token_ids.begin() + n_delivered_);
  // A target may have left some out.
  const auto n_logprobs = std::min<std::size_t>(whole.logprobs.size(), n_delivered_);
  whole.logprobs.erase(whole.logprobs.begin(),
                       whole.logprobs.begin() + static_cast<std::ptrdiff_t>(n_logprobs));
  if (!whole.token_ends.empty())
    whole.token_ends.erase(whole.token_ends.begin(), whole.token_ends.begin() + n_delivered_);
  if (is_begun_) {
    whole.prompt_logprobs.clear();
    whole.form.reset();
    whole.prompt_token_ids.clear();
  }
  return whole;
}

void Answer::add_logprobs(std::vector<wire::LogprobEntry>& to,
                          std::uint32_t from,
                          std::uint32_t until) const {
  for (std::uint32_t i = from; i < until && i < logprobs_.size(); ++i)
    to.push_back(logprob_entry(tokens_[i], &logprobs_[i]));
}

// All or none: an answer that was cut short may have come with a part of them.
std::vector<wire::LogprobEntry> Answer::prompt_entries() const {
  std::vector<wire::LogprobEntry> entries;
  if (prompt_.empty() || !has_all_of_prompt()) return entries;
  for (std::size_t i = 0; i < prompt_.size(); ++i)
    entries.push_back(logprob_entry(prompt_[i], i == 0 ? nullptr : &prompt_logprobs_[i - 1]));
  return entries;
}

// of_target: null for a token that follows on nothing.
wire::LogprobEntry Answer::logprob_entry(TokenId token, const TokenLogprobs* of_target) const {
  wire::LogprobEntry entry{.token_id = token};
  if (of_target != nullptr) {
    entry.logprob = static_cast<double>(of_target->logprob);
    entry.top_ids = of_target->top_ids;
    entry.top_logprobs = {of_target->top_logprobs.begin(), of_target->top_logprobs.end()};
  }
  const auto bytes_of = [&](TokenId id) {
    const auto it = bytes_of_.find(id);
    return it == bytes_of_.end() ? std::vector<std::uint8_t>() : it->second;
  };
  const auto text_of = [](const std::vector<std::uint8_t>& bytes) {
    return utf8::text_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  };
  entry.bytes = bytes_of(entry.token_id);
  entry.token = text_of(entry.bytes);
  for (const TokenId id : entry.top_ids) {
    entry.top_bytes.push_back(bytes_of(id));
    entry.top_tokens.push_back(text_of(entry.top_bytes.back()));
  }
  return entry;
}

wire::ReplyMetrics Answer::metrics(const Ending& ending) const {
  wire::ReplyMetrics metrics;
  if (first_token_ != TimePoint{}) metrics.time_to_first_token_ms = millis(first_token_ - arrived_);
  metrics.generation_time_ms = millis(last_token_ - first_token_);
  wire::SpeculativeDecoding& spec = metrics.speculative_decoding;
  spec.num_spec_tokens = ending.n_draft;
  metrics.tokenize_time_ms = millis(ending.tokenized);
  metrics.queue_time_ms = millis(ending.waited);
  if (done_) {
    metrics.queue_time_ms += done_->queue_us / 1e3;
    if (done_->decode_us > 0 && ending.n_migrations == 0)
      metrics.generation_time_ms = static_cast<double>(done_->decode_us) / 1e3;
    add_counts(*done_, spec);
  }
  pad_histogram(spec);
  if (metrics.generation_time_ms > 0 && n_tokens() > 1)
    metrics.tokens_per_second = (n_tokens() - 1) / metrics.generation_time_ms * 1e3;
  spec.mean_acceptance_length = 1.0 + ratio(spec.num_accepted_draft_tokens, spec.num_spec_steps);
  spec.draft_acceptance_rate = ratio(spec.num_accepted_draft_tokens, spec.num_draft_tokens);
  return metrics;
}

}  // namespace foretoken
