#include "services/tokenizer/tokenizer_service.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/config/resolve.h"
#include "common/runtime/service_main.h"
#include "common/tokenizer/regex.h"

namespace foretoken {
namespace {

constexpr Duration kSweep = std::chrono::seconds(10);
constexpr Duration kLastWords = std::chrono::milliseconds(250);

}  // namespace

TokenizerServiceOptions tokenizer_options(const Config& config) {
  return {.router = router_endpoint(config.bus),
          .heartbeat = std::chrono::milliseconds(config.bus.heartbeat_ms)};
}

wire::Hello tokenizer_hello(const Config& config,
                            const std::string& name,
                            const Tokenizer& tokenizer) {
  return {.role = wire::Role::kTokenizer,
          .name = name,
          .fingerprints = {.vocabulary = tokenizer.vocabulary_fingerprint(),
                           .text = tokenizer.text_fingerprint()},
          .model_name = served_model_name(config.model),
          .vocab_size = static_cast<std::uint32_t>(tokenizer.vocab_size()),
          .build = build_text(),
          .pid = static_cast<std::uint64_t>(getpid())};
}

TokenizerService::TokenizerService(const TokenizerServiceOptions& options,
                                   const wire::Hello& hello,
                                   const Tokenizer& tokenizer,
                                   ChatRenderer render,
                                   wire::Speaker& speaker,
                                   Metrics& metrics)
    : options_(options),
      tokenizer_(tokenizer),
      render_(std::move(render)),
      metrics_(metrics),
      link_(speaker, hello, options.heartbeat) {}

void TokenizerService::start(Bus& bus) {
  bus_ = &bus;
  link_.start(bus, options_.router);
}

void TokenizerService::on_message(Delivery delivery) {
  auto incoming = wire::decode(delivery.frames);
  if (!incoming.ok()) {
    ++malformed_;
    return;
  }
  const wire::Header& header = incoming->header;
  const wire::Message& message = incoming->message;
  switch (link_.on_message(header, message)) {
    case RouterLink::Event::kHandled:
      return;
    case RouterLink::Event::kNewRouter:
      streams_.clear();
      return;
    case RouterLink::Event::kNotMine:
      break;
  }
  const TimePoint now = bus_->now();
  if (const auto* decode = std::get_if<wire::Decode>(&message))
    return on_decode(header.request, *decode, now);
  if (const auto* encode = std::get_if<wire::Encode>(&message))
    return on_encode(header.request, *encode);
  if (const auto* open = std::get_if<wire::StreamOpen>(&message))
    return on_stream_open(header.request, *open, now);
  if (std::holds_alternative<wire::StreamClose>(message)) {
    streams_.erase(header.request);
    return;
  }
  if (std::holds_alternative<wire::MetricsRequest>(message)) {
    metrics_
        .gauge("frames_dropped", "Frames dropped since start: malformed, stale or without room.")
        .set(static_cast<double>(load().dropped_total));
    metrics_.gauge("tokenizer_streams", "Streams being decoded.")
        .set(static_cast<double>(streams_.size()));
    metrics_.gauge("tokenizer_prompt_tokens", "Prompt tokens encoded since start.")
        .set(static_cast<double>(n_prompt_tokens_));
    metrics_
        .gauge("tokenizer_unassigned_code_points",
               "Code points in prompts since start that our Unicode tables do not know.")
        .set(static_cast<double>(n_unassigned_));
    metrics_.gauge("tokenizer_decoded_tokens", "Tokens decoded since start.")
        .set(static_cast<double>(n_decoded_));
    metrics_.gauge("tokenizer_stop_strings", "Stop strings found since start.")
        .set(static_cast<double>(n_stops_));
    return link_.send(header.request, wire::MetricsReply{.text = metrics_.text()});
  }
  ++malformed_;
}

void TokenizerService::on_dropped(const Peer&, const Frames& frames) { link_.on_dropped(frames); }

// ---- prompts

void TokenizerService::on_encode(RequestId id, const wire::Encode& encode) {
  auto result = encoded(encode);
  if (!result.ok())
    return link_.send(id, wire::Failed{.code = result.error().code,
                                       .message = result.error().message,
                                       .param = result.error().param});
  ++n_encoded_;
  n_prompt_tokens_ += result->tokens.size();
  n_unassigned_ += count_unassigned(encode.text);
  link_.send(id, *result);
}

Result<wire::Encoded> TokenizerService::encoded(const wire::Encode& encode) const {
  wire::Encoded result;
  auto prompt = prompt_of(encode);
  if (!prompt.ok()) return prompt.error();
  result.tokens = std::move(*prompt);
  if (encode.bad_words.size() > kMaxBadWords)
    return Error{ErrorCode::kInvalidValue,
                 "bad_words has " + std::to_string(encode.bad_words.size()) +
                     " entries; the limit is " + std::to_string(kMaxBadWords),
                 "bad_words"};
  for (const std::string& word : encode.bad_words) {
    // Inside a text a word follows a space more often than not, and then it is other tokens.
    for (const std::string& form : {word, " " + word}) {
      auto ids = tokenizer_.encode(form, AddSpecialTokens::kNo);
      if (!ids.ok()) return Error{ids.error().code, ids.error().message, "bad_words"};
      if (ids->empty() || ids->size() > kMaxBadWordTokens)
        return Error{ErrorCode::kInvalidValue,
                     "a bad word has " + std::to_string(ids->size()) + " tokens; 1 to " +
                         std::to_string(kMaxBadWordTokens) + " are allowed",
                     "bad_words"};
      if (std::find(result.bad_word_tokens.begin(), result.bad_word_tokens.end(), *ids) ==
          result.bad_word_tokens.end())
        result.bad_word_tokens.push_back(std::move(*ids));
    }
  }
  if (!encode.prediction.empty()) {
    auto ids = tokenizer_.encode(encode.prediction, AddSpecialTokens::kNo);
    if (!ids.ok()) return Error{ids.error().code, ids.error().message, "prediction"};
    result.prediction_tokens = std::move(*ids);
  }
  // A text's bytes do not bound its tokens: normalisation may make eleven characters of one.
  std::size_t n_tokens = result.tokens.size() + result.prediction_tokens.size();
  for (const auto& word : result.bad_word_tokens) n_tokens += word.size();
  if (n_tokens > wire::kMaxRequestTokens)
    return Error{ErrorCode::kContextLengthExceeded,
                 "prompt, prediction and bad_words have " + std::to_string(n_tokens) +
                     " tokens; the limit is " + std::to_string(wire::kMaxRequestTokens),
                 encode.kind == wire::PromptKind::kTokens     ? "token_ids"
                 : encode.kind == wire::PromptKind::kMessages ? "messages"
                                                              : "prompt"};
  return result;
}

Result<std::vector<TokenId>> TokenizerService::prompt_of(const wire::Encode& encode) const {
  const auto blame = [](const Error& error, const char* param) {
    return Error{error.code, error.message, error.param.empty() ? param : error.param};
  };
  switch (encode.kind) {
    case wire::PromptKind::kTokens:
      for (std::size_t i = 0; i < encode.tokens.size(); ++i)
        if (!tokenizer_.is_token(encode.tokens[i]))
          return Error{ErrorCode::kInvalidValue,
                       "token_ids[" + std::to_string(i) + "] is " +
                           std::to_string(encode.tokens[i]) +
                           ", which names no token; ids go from 0 to " +
                           std::to_string(tokenizer_.vocab_size() - 1),
                       "token_ids"};
      return encode.tokens;
    case wire::PromptKind::kText: {
      auto ids = tokenizer_.encode(
          encode.text, encode.add_special_tokens ? AddSpecialTokens::kYes : AddSpecialTokens::kNo);
      if (!ids.ok()) return blame(ids.error(), "prompt");
      return ids;
    }
    case wire::PromptKind::kMessages: {
      if (!render_)
        return Error{ErrorCode::kUnsupportedParameter,
                     "this model has no chat template; send a prompt", "messages"};
      auto text = render_(encode.text, encode.add_generation_prompt, "");
      if (!text.ok()) return blame(text.error(), "messages");
      // The template writes BOS and the like itself: adding them again would double them.
      auto ids = tokenizer_.encode(*text, AddSpecialTokens::kNo);
      if (!ids.ok()) return blame(ids.error(), "messages");
      return ids;
    }
  }
  return Error{ErrorCode::kInvalidRequest, "unknown kind of prompt", "prompt"};
}

// ---- streams

void TokenizerService::on_stream_open(RequestId id, const wire::StreamOpen& open, TimePoint now) {
  if (const auto good = StreamDecoder::check_stops(open.stop); !good.ok())
    return link_.send(
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
      .min_tokens = open.min_tokens};
  streams_.erase(id);
  streams_.emplace(id, Stream{.decoder = StreamDecoder(tokenizer_, options),
                              .stops = open.stop,
                              .next = open.position,
                              .n_bytes = 0,
                              .touched = now});
}

void TokenizerService::on_decode(RequestId id, const wire::Decode& decode, TimePoint now) {
  const auto it = streams_.find(id);
  if (it == streams_.end() || decode.position > it->second.next) {
    ++n_lost_;
    return link_.send(
        id, wire::Failed{.code = ErrorCode::kNotFound,
                         .message = it == streams_.end() ? "no such stream"
                                                         : "tokens are missing before these"});
  }
  Stream& stream = it->second;
  stream.touched = now;
  wire::Text answer{.offset = stream.n_bytes};
  const auto take = [&](StreamDecoder::Piece piece) {
    // A string has a limit and many tokens have more text: then it goes in several answers.
    if (answer.text.size() + piece.text.size() > wire::kMaxStringBytes) {
      answer.next = stream.next;
      stream.n_bytes += static_cast<std::uint32_t>(answer.text.size());
      link_.send(id, answer);
      answer.text.clear();
      answer.offset = stream.n_bytes;
    }
    answer.text += piece.text;
    answer.n_tokens = static_cast<std::uint32_t>(piece.n_tokens);
    answer.stopped = piece.stopped;
    if (piece.stop_index) answer.stop_string = stream.stops[*piece.stop_index];
  };
  // Positions it has are skipped: the same DECODE twice adds nothing.
  for (std::size_t i = stream.next - decode.position; i < decode.ids.size() && !answer.stopped;
       ++i) {
    take(stream.decoder.push(decode.ids[i]));
    ++stream.next;
    ++n_decoded_;
  }
  if (decode.final && !answer.stopped) take(stream.decoder.finish());
  answer.next = stream.next;
  answer.final = decode.final || answer.stopped;
  stream.n_bytes += static_cast<std::uint32_t>(answer.text.size());
  if (answer.stopped) ++n_stops_;
  if (answer.final)
    streams_.erase(it);  // should this answer get lost, the router replays the stream
  link_.send(id, answer);
}

void TokenizerService::forget_old(TimePoint now) {
  std::erase_if(streams_, [&](const auto& entry) {
    return now - entry.second.touched > options_.keep_stream;
  });
}

// ---- time

TimePoint TokenizerService::on_turn(TimePoint now) {
  if (now >= next_sweep_) {
    next_sweep_ = now + kSweep;
    forget_old(now);
  }
  leave_if_drained(now);
  return std::min(link_.turn(now, [this] { return load(); }), next_sweep_);
}

void TokenizerService::drain(TimePoint deadline) {
  draining_ = true;
  drain_deadline_ = deadline;
  link_.beat_soon();
  link_.turn(bus_->now(), [this] { return load(); });
}

// It serves until the router needs it no more; the router knows its streams better than this does,
// where the end of one may have been lost. The goodbye moves what is unfinished at the deadline
// to another tokenizer, where the router replays it.
void TokenizerService::leave_if_drained(TimePoint now) {
  if (!draining_ || said_goodbye_) return;
  if (link_.is_needed() && now < drain_deadline_ - kLastWords) return;
  link_.goodbye("drained");
  said_goodbye_ = true;
}

bool TokenizerService::drained() const { return said_goodbye_ && link_.n_queued() == 0; }

wire::Heartbeat TokenizerService::load() const {
  return {.active = static_cast<std::uint32_t>(streams_.size()),
          .draining = draining_,
          .tokens_total = n_decoded_,
          .dropped_total = malformed_ + n_lost_ + link_.n_dropped(),
          .state = draining_ ? "draining" : "ready"};
}

std::string TokenizerService::status() const {
  return std::to_string(streams_.size()) + " streams";
}

}  // namespace foretoken
