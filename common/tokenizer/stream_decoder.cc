#include "common/tokenizer/stream_decoder.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/tokenizer/limits.h"

namespace foretoken {
namespace {

bool has(std::span<const TokenId> ids, TokenId token) {
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

}  // namespace

StopMatcher::StopMatcher(std::span<const std::string> stops) {
  for (std::size_t i = 0; i < stops.size(); ++i) trie_.add(stops[i], static_cast<std::int32_t>(i));
  states_.resize(trie_.size());
  std::vector<std::int32_t> queue{0};
  for (std::size_t head = 0; head < queue.size();
       ++head) {  // breadth first: a fallback is always shallower
    const std::int32_t node = queue[head];
    State& state = states_[static_cast<std::size_t>(node)];
    state.match = trie_.value(node) != ByteTrie::kNone || node == 0
                      ? trie_.value(node)
                      : states_[static_cast<std::size_t>(state.fallback)].match;
    for (const auto& [byte, child] : trie_.children(node)) {
      State& next = states_[static_cast<std::size_t>(child)];
      next.depth = state.depth + 1;
      std::int32_t from = node;
      while (from != 0) {
        from = states_[static_cast<std::size_t>(from)].fallback;
        const std::int32_t target = trie_.child(from, byte);
        if (target == ByteTrie::kNone) continue;
        next.fallback = target;
        break;
      }
      queue.push_back(child);
    }
  }
}

std::optional<std::size_t> StopMatcher::feed(char byte) {
  std::int32_t next;
  while ((next = trie_.child(state_, byte)) == ByteTrie::kNone && state_ != 0)
    state_ = states_[static_cast<std::size_t>(state_)].fallback;
  state_ = next == ByteTrie::kNone ? 0 : next;
  const std::int32_t match = states_[static_cast<std::size_t>(state_)].match;
  return match == ByteTrie::kNone ? std::nullopt : std::optional(static_cast<std::size_t>(match));
}

void StopMatcher::pass_over_match() {
  while (state_ != 0 && trie_.children(state_).empty())
    state_ = states_[static_cast<std::size_t>(state_)].fallback;
}

Result<void> StreamDecoder::check_stops(std::span<const std::string> stops) {
  namespace limits = tokenizer_limits;
  const auto refuse = [](std::string message) {
    return Error{ErrorCode::kInvalidValue, std::move(message), "stop"};
  };
  if (stops.size() > limits::kMaxStopStrings)
    return refuse(std::to_string(stops.size()) + " stop strings; the limit is " +
                  std::to_string(limits::kMaxStopStrings));
  for (const std::string& stop : stops) {
    if (stop.empty()) return refuse("a stop string is empty");
    if (stop.size() > limits::kMaxStopBytes)
      return refuse("a stop string has " + std::to_string(stop.size()) + " bytes; the limit is " +
                    std::to_string(limits::kMaxStopBytes));
    if (const auto at = utf8::first_invalid(stop))
      return refuse("a stop string is not valid UTF-8 at byte " + std::to_string(*at));
  }
  return {};
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, const StreamOptions& options)
    : tokenizer_(&tokenizer),
      pipeline_(tokenizer.make_decode_pipeline(options.before)),
      matcher_(options.stop),
      stops_(options.stop),
      include_stop_(options.include_stop),
      skip_special_(options.skip_special),
      kept_(options.kept),
      ends_(options.ends),
      min_tokens_(options.min_tokens) {
  FORETOKEN_CHECK(check_stops(options.stop).ok(), "stop strings must be checked first");
}

StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;

StreamDecoder::Piece StreamDecoder::push(TokenId token) {
  FORETOKEN_CHECK(!finished_, "push after finish");
  if (stop_index_) return emit({}, 0);
  ++n_tokens_;
  std::string fresh;
  std::size_t n_earlier = 0;
  if (leaves_text(token)) {
    n_before_ = std::exchange(n_with_text_, n_tokens_);
    n_earlier = pipeline_->push(tokenizer_->decoder_input(token), fresh);
  }
  return emit(fresh, n_earlier);
}

// By id alone, so that what ends an answer has no text whatever became of the tokens before it.
bool StreamDecoder::leaves_text(TokenId token) const {
  if (!tokenizer_->is_token(token)) return false;
  if (has(kept_, token)) return true;
  if (include_stop_ == IncludeStop::kNo && has(ends_, token)) return false;
  return skip_special_ == SkipSpecialTokens::kNo || !tokenizer_->is_skipped(token);
}

StreamDecoder::Piece StreamDecoder::finish() {
  std::string fresh;
  if (!finished_ && !stop_index_) pipeline_->finish(fresh);
  finished_ = true;
  Piece piece = emit(fresh, 0);
  if (!stop_index_) piece.text.append(held_);
  held_.clear();
  return piece;
}

// Passes fresh text through the matcher: everything but a suffix that may still become a stop
// string goes out. The first n_earlier bytes are of tokens before the last one.
StreamDecoder::Piece StreamDecoder::emit(std::string_view fresh, std::size_t n_earlier) {
  Piece piece;
  n_made_ += fresh.size();
  if (stops_.empty()) {
    piece.text = fresh;
  } else if (!stop_index_) {
    for (std::size_t i = 0; i < fresh.size(); ++i) {
      held_.push_back(fresh[i]);
      stop_index_ = matcher_.feed(fresh[i]);
      if (!stop_index_) continue;
      const std::size_t n_tokens = i < n_earlier ? n_before_ : n_with_text_;
      if (n_tokens <= min_tokens_) {
        stop_index_.reset();
        matcher_.pass_over_match();
        continue;
      }
      const std::size_t stop_length =
          include_stop_ == IncludeStop::kYes ? 0 : stops_[*stop_index_].size();
      piece.text.assign(held_, 0, held_.size() - stop_length);
      held_.clear();
      n_tokens_ = n_tokens;
      break;
    }
    if (!stop_index_) {
      const std::size_t n_free = held_.size() - matcher_.open_bytes();
      piece.text.assign(held_, 0, n_free);
      held_.erase(0, n_free);
    }
  }
  piece.stopped = stop_index_.has_value();
  piece.stop_index = stop_index_;
  piece.end = n_made_;
  piece.n_tokens = n_tokens_;
  return piece;
}

}  // namespace foretoken
