#include "services/tokenizer/tokenizer_service.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/tool_formats.h"
#include "common/config/resolve.h"
#include "common/runtime/service_main.h"

namespace foretoken {
namespace {

constexpr Duration kSweep = std::chrono::seconds(10);
constexpr Duration kLastWords = std::chrono::milliseconds(250);
// What a turn encodes itself: 16 KiB of text take about a millisecond, and text of running answers
// waits.
constexpr std::size_t kShortBytes = std::size_t{16} << 10;
constexpr std::size_t kBytesPerTurn = std::size_t{16} << 10;
constexpr std::size_t kQuestionsPerTurn = 64;
constexpr Duration kLongestRest = std::chrono::seconds(1);
constexpr std::uint32_t kRetryAfterMs = 500;
constexpr std::size_t kMaxAnswered = 256;
constexpr std::size_t kMaxAnsweredBytes = std::size_t{8} << 20;
constexpr Duration kKeepAnswered = std::chrono::seconds(10);

// What the message has no room for is left out: its token has no bytes at the client.
void add_bytes(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, wire::Text& answer) {
  for (const TokenId id : ids) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    if (answer.bytes_of.size() == wire::kMaxBytesOf ||
        answer.bytes.size() + bytes.size() > wire::kMaxStringBytes)
      return;
    answer.bytes_of.push_back(id);
    answer.n_bytes.push_back(static_cast<std::uint32_t>(bytes.size()));
    answer.bytes.insert(answer.bytes.end(), bytes.begin(), bytes.end());
  }
}

}  // namespace

TokenizerServiceOptions tokenizer_options(const Config& config) {
  return {.router = router_endpoint(config.bus),
          .heartbeat = std::chrono::milliseconds(config.bus.heartbeat_ms),
          .long_encodings = LongEncodings::kOnThread};
}

wire::Hello tokenizer_hello(const Config& config,
                            const std::string& name,
                            const Tokenizer& tokenizer,
                            const ModelForm& form) {
  return {.role = wire::Role::kTokenizer,
          .name = name,
          .fingerprints = {.vocabulary = tokenizer.vocabulary_fingerprint(),
                           .text = text_under_format(tokenizer.text_fingerprint(),
                                                     config.model.tool_format)},
          .model_name = served_model_name(config.model),
          .aliases = config.model.alias,
          .vocab_size = static_cast<std::uint32_t>(tokenizer.vocab_size()),
          .build = build_text(),
          .pid = static_cast<std::uint64_t>(getpid()),
          .tool_format = std::string(name_of(form.tool_format))};
}

TokenizerService::TokenizerService(const TokenizerServiceOptions& options,
                                   const wire::Hello& hello,
                                   const Tokenizer& tokenizer,
                                   ChatRenderer render,
                                   wire::Speaker& speaker,
                                   Metrics& metrics)
    : WorkerService({options.router, options.heartbeat, kLastWords}, hello, speaker, metrics),
      options_(options),
      tokenizer_(tokenizer),
      encoder_(tokenizer, std::move(render), options.form),
      prompts_(options.encode_queue) {}

void TokenizerService::open(Bus& bus, wire::Hello&) {
  if (options_.long_encodings == LongEncodings::kOnThread)
    thread_ = std::make_unique<EncodeThread>(encoder_, [&bus] { bus.wake(); });
}

bool TokenizerService::on_router_message(const wire::Header& header, wire::Message& message) {
  const TimePoint now = bus().now();
  if (const auto* decode = std::get_if<wire::Decode>(&message)) {
    on_decode(header.request, *decode, now);
  } else if (auto* encode = std::get_if<wire::Encode>(&message)) {
    on_encode(header.request, std::move(*encode), now);
  } else if (const auto* open = std::get_if<wire::StreamOpen>(&message)) {
    on_stream_open(header.request, *open, now);
  } else if (std::holds_alternative<wire::StreamClose>(message)) {
    streams_.erase(header.request);
    forget_prompt(header.request);
  } else {
    return false;
  }
  return true;
}

void TokenizerService::on_new_router() {
  streams_.clear();
  forget_prompts();
}

// ---- prompts

void TokenizerService::on_encode(RequestId id, wire::Encode encode, TimePoint now) {
  const std::uint64_t content = EncodeQueue::content_of(encode);
  if (running_ && running_->id == id && running_->wanted) {
    running_->wanted = running_->content == content;
    if (running_->wanted) {
      ++n_repeated_;
      return router().send(id, wire::Opened{});
    }
  }
  const auto before = std::find_if(answered_.begin(), answered_.end(),
                                   [&](const Answered& answered) { return answered.id == id; });
  if (before != answered_.end()) {
    if (before->content == content) {
      ++n_repeated_;
      before->at = now;
      return router().send(id, before->answer);
    }
    answered_bytes_ -= before->bytes;
    answered_.erase(before);
  }
  const auto added = prompts_.add(id, content, std::move(encode));
  if (!added.ok())
    return router().send(id, wire::Busy{.code = added.error().code,
                                        .message = added.error().message,
                                        .retry_after_ms = kRetryAfterMs});
  if (*added == EncodeQueue::Added::kKnown) ++n_repeated_;
  unacknowledged_.push_back(id);
}

// After the messages of a turn, so after every DECODE among them.
void TokenizerService::encode_some(TimePoint now) {
  if (thread_ && running_)
    if (auto result = thread_->take()) {
      const Running was = *std::exchange(running_, std::nullopt);
      // Half of the time is left to those who decode and write, where prompts are long.
      rest_until_ = now + std::min(now - was.since, kLongestRest);
      if (was.wanted)
        answer(was.id, was.content, std::move(*result), now);
      else
        ++n_unwanted_;
    }
  encode_short(now);
  encode_long(now);
  for (const RequestId id : std::exchange(unacknowledged_, {}))
    if (prompts_.contains(id) || (running_ && running_->id == id))
      router().send(id, wire::Opened{.n_waiting = static_cast<std::uint32_t>(prompts_.size())});
}

bool TokenizerService::is_short(const EncodeQueue::WaitingPrompt& prompt) const {
  // One template renders at a time: this thread does not wait for the other's.
  return prompt.bytes <= kShortBytes && !(running_ && running_->holds_template &&
                                          prompt.encode.kind == wire::PromptKind::kMessages);
}

void TokenizerService::encode_short(TimePoint now) {
  for (std::size_t bytes = 0, n = 0; bytes < kBytesPerTurn && n < kQuestionsPerTurn; ++n) {
    const auto prompt = prompts_.take([&](const auto& waiting) { return is_short(waiting); });
    if (!prompt) return;
    answer(prompt->id, prompt->content, encoder_(prompt->encode), now);
    bytes += prompt->bytes;
  }
  more_short_ = true;
}

void TokenizerService::encode_long(TimePoint now) {
  if (running_ || (now < rest_until_ && !streams_.empty())) return;
  auto prompt = prompts_.take([](const auto& waiting) { return waiting.bytes > kShortBytes; });
  if (!prompt) return;
  if (!thread_) return answer(prompt->id, prompt->content, encoder_(prompt->encode), now);
  running_ = {.id = prompt->id,
              .content = prompt->content,
              .holds_template = prompt->encode.kind == wire::PromptKind::kMessages,
              .since = now};
  thread_->start(std::move(prompt->encode));
}

void TokenizerService::answer(RequestId id,
                              std::uint64_t content,
                              Result<wire::Encoded> result,
                              TimePoint now) {
  Answered answered{.id = id, .content = content, .at = now};
  if (result.ok()) {
    ++n_encoded_;
    n_prompt_tokens_ += result->tokens.size();
    answered.bytes = (result->tokens.size() + result->prediction_tokens.size()) * sizeof(TokenId);
    answered.answer = std::move(*result);
  } else {
    answered.answer = wire::Failed{.code = result.error().code,
                                   .message = result.error().message,
                                   .param = result.error().param};
  }
  router().send(id, answered.answer);
  answered_bytes_ += answered.bytes;
  answered_.push_back(std::move(answered));
  while (answered_.size() > kMaxAnswered || answered_bytes_ > kMaxAnsweredBytes) {
    answered_bytes_ -= answered_.front().bytes;
    answered_.pop_front();
  }
}

// The request is over, or another tokenizer has it.
void TokenizerService::forget_prompt(RequestId id) {
  if (prompts_.drop(id)) ++n_unwanted_;
  if (running_ && running_->id == id) running_->wanted = false;
  const auto it = std::find_if(answered_.begin(), answered_.end(),
                               [&](const Answered& answered) { return answered.id == id; });
  if (it == answered_.end()) return;
  answered_bytes_ -= it->bytes;
  answered_.erase(it);
}

void TokenizerService::forget_prompts() {
  n_unwanted_ += prompts_.drop_all();
  if (running_) running_->wanted = false;
  answered_.clear();
  answered_bytes_ = 0;
}

// ---- streams

void TokenizerService::on_stream_open(RequestId id, const wire::StreamOpen& open, TimePoint now) {
  if (const auto good = StreamDecoder::check_stops(open.stop); !good.ok())
    return router().send(
        id,
        wire::Failed{.code = good.error().code, .message = good.error().message, .param = "stop"});
  if (streams_.size() >= options_.max_streams && !streams_.contains(id)) {
    const auto oldest = std::min_element(
        streams_.begin(), streams_.end(),
        [](const auto& a, const auto& b) { return a.second.touched < b.second.touched; });
    streams_.erase(oldest);
    ++n_lost_;
  }
  const StreamOptions options{
      .stop = open.stop,
      .include_stop = open.include_stop ? IncludeStop::kYes : IncludeStop::kNo,
      .skip_special = open.skip_special_tokens ? SkipSpecialTokens::kYes : SkipSpecialTokens::kNo,
      .kept = open.token_ends ? encoder_.form().marker_ids : std::vector<TokenId>(),
      .ends = open.end_tokens,
      .min_tokens = open.min_tokens,
      .before = open.continues ? TextBefore::kYes : TextBefore::kNo};
  streams_.erase(id);
  streams_.emplace(id, Stream{.decoder = StreamDecoder(tokenizer_, options),
                              .stops = open.stop,
                              .with_ends = open.token_ends,
                              .next = open.position,
                              .n_bytes = 0,
                              .touched = now});
}

void TokenizerService::on_decode(RequestId id, const wire::Decode& decode, TimePoint now) {
  const auto it = streams_.find(id);
  if (it == streams_.end() || decode.position > it->second.next) {
    ++n_lost_;
    return router().send(
        id, wire::Failed{.code = ErrorCode::kNotFound,
                         .message = it == streams_.end() ? "no such stream"
                                                         : "tokens are missing before these"});
  }
  Stream& stream = it->second;
  stream.touched = now;
  wire::Text answer{.offset = stream.n_bytes};
  add_bytes(tokenizer_, decode.bytes_of, answer);
  const auto take = [&](const StreamDecoder::Piece& piece) {
    // A string has a limit and many tokens have more text: then it goes in several answers.
    if (answer.text.size() + piece.text.size() > wire::kMaxStringBytes) {
      answer.next = stream.next;
      stream.n_bytes += static_cast<std::uint32_t>(answer.text.size());
      router().send(id, answer);
      answer = {.n_tokens = answer.n_tokens, .offset = stream.n_bytes};
    }
    answer.text += piece.text;
    answer.n_tokens = static_cast<std::uint32_t>(piece.n_tokens);
    answer.stopped = piece.stopped;
    if (piece.stop_index) answer.stop_string = stream.stops[*piece.stop_index];
  };
  // Positions it has are skipped: the same DECODE twice adds nothing.
  for (std::size_t i = stream.next - decode.position; i < decode.ids.size() && !answer.stopped;
       ++i) {
    const auto piece = stream.decoder.push(decode.ids[i]);
    take(piece);
    ++stream.next;
    if (stream.with_ends) answer.ends.push_back(static_cast<std::uint32_t>(piece.end));
    ++n_decoded_;
  }
  if (decode.final && !answer.stopped) take(stream.decoder.finish());
  answer.next = stream.next;
  answer.final = decode.final || answer.stopped;
  stream.n_bytes += static_cast<std::uint32_t>(answer.text.size());
  if (answer.stopped) ++n_stops_;
  if (answer.final)
    streams_.erase(it);  // should this answer get lost, the router replays the stream
  router().send(id, answer);
}

void TokenizerService::forget_old(TimePoint now) {
  std::erase_if(streams_, [&](const auto& entry) {
    return now - entry.second.touched > options_.keep_stream;
  });
  while (!answered_.empty() && now - answered_.front().at > kKeepAnswered) {
    answered_bytes_ -= answered_.front().bytes;
    answered_.pop_front();
  }
}

// ---- time

TimePoint TokenizerService::work(TimePoint now) {
  more_short_ = false;
  encode_some(now);
  if (now >= next_sweep_) {
    next_sweep_ = now + kSweep;
    forget_old(now);
  }
  if (more_short_ || (!thread_ && prompts_.size() > 0)) return now;
  return prompts_.size() > 0 && !running_ ? std::min(next_sweep_, std::max(now, rest_until_))
                                          : next_sweep_;
}

wire::Heartbeat TokenizerService::own_load() const {
  return {.active = static_cast<std::uint32_t>(streams_.size()),
          .queued = static_cast<std::uint32_t>(prompts_.size() + (running_ ? 1 : 0)),
          .tokens_total = n_decoded_,
          .dropped_total = n_lost_};
}

void TokenizerService::list_metrics(Metrics& metrics) {
  metrics.gauge("tokenizer_streams", streams_.size());
  metrics.counter("tokenizer_prompts_total", n_encoded_);
  metrics.gauge("tokenizer_prompts_waiting", prompts_.size() + (running_ ? 1 : 0));
  metrics.counter("tokenizer_prompts_repeated_total", n_repeated_);
  metrics.counter("tokenizer_prompts_unwanted_total", n_unwanted_);
  metrics.counter("tokenizer_prompt_tokens_total", n_prompt_tokens_);
  metrics.counter("tokenizer_unassigned_code_points_total", encoder_.n_unassigned());
  metrics.counter("tokenizer_decoded_tokens_total", n_decoded_);
  metrics.counter("tokenizer_stop_strings_total", n_stops_);
}

std::string TokenizerService::status() const {
  return std::to_string(streams_.size()) + " streams" +
         (prompts_.size() == 0 ? "" : ", " + std::to_string(prompts_.size()) + " prompts waiting");
}

}  // namespace foretoken
