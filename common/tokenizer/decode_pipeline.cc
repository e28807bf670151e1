#include "common/tokenizer/decode_pipeline.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/utf8.h"
#include "common/tokenizer/pre_tokenizer.h"

namespace foretoken {

// A token passes as fragments of text, then its end; the stream of tokens has an end of its own.
// Fragments never split a code point. By default a stage passes everything on.
class DecodePipeline::Stage {
 public:
  virtual ~Stage() = default;
  virtual void text(std::string_view fragment) { next->text(fragment); }
  virtual void end_token() { next->end_token(); }
  virtual void finish() { next->finish(); }
  // What was given so far belongs to tokens before the one under way.
  virtual void end_of_earlier() { next->end_of_earlier(); }
  Stage* next = nullptr;
};

namespace {

using Stage = DecodePipeline::Stage;

std::optional<unsigned char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned value = 0;
  for (const char c : token.substr(3, 2)) {
    const unsigned digit = c >= '0' && c <= '9'   ? static_cast<unsigned>(c - '0')
                           : c >= 'A' && c <= 'F' ? static_cast<unsigned>(c - 'A' + 10)
                           : c >= 'a' && c <= 'f' ? static_cast<unsigned>(c - 'a' + 10)
                                                  : 16;
    if (digit == 16) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<unsigned char>(value);
}

// The bytes that characters of GPT-2's alphabet stand for; a token with any other character stands
// for itself.
std::string bytes_of_alphabet(std::string_view token) {
  std::string bytes;
  for (std::size_t at = 0; at < token.size();) {
    const utf8::CodePoint point = utf8::code_point_at(token, at);
    const auto byte = character_to_byte(point.value);
    if (!byte) return std::string(token);
    bytes.push_back(static_cast<char>(*byte));
    at += point.length;
  }
  return bytes;
}

std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t at;
       !pattern.empty() && (at = text.find(pattern, done)) != std::string_view::npos;) {
    out.append(text.substr(done, at - done)).append(content);
    done = at + pattern.size();
  }
  return out.append(text.substr(done));
}

// The end of the chain.
class Sink final : public Stage {
 public:
  void text(std::string_view fragment) override { out->append(fragment); }
  void end_token() override {}
  void finish() override {}
  void end_of_earlier() override { n_earlier = out->size(); }
  std::string* out = nullptr;
  std::size_t n_earlier = 0;
};

// A file without a decoder: tokens stand apart.
class Spaced final : public Stage {
 public:
  explicit Spaced(TextBefore before) : any_(before == TextBefore::kYes) {}

  void text(std::string_view fragment) override {
    begin_token();
    next->text(fragment);
  }
  void end_token() override {
    begin_token();
    open_ = false;
    any_ = true;
    next->end_token();
  }

 private:
  void begin_token() {
    if (!open_ && any_) next->text(" ");
    open_ = true;
  }
  bool open_ = false;
  bool any_;
};

// Stages that look at whole tokens.
class WholeTokens : public Stage {
 public:
  void text(std::string_view fragment) final { token_.append(fragment); }
  void end_token() final {
    take(token_);
    token_.clear();
  }

 protected:
  virtual void take(const std::string& token) = 0;
  void give(std::string_view token) {
    next->text(token);
    next->end_token();
  }

 private:
  std::string token_;
};

class ByteLevelStage final : public WholeTokens {
 public:
  void finish() override {
    text_.clear();
    decoder_.finish(text_);
    give(text_);  // all tokens became one
    next->finish();
  }

 private:
  void take(const std::string& token) override {
    text_.clear();
    decoder_.push(bytes_of_alphabet(token), text_);
    if (!text_.empty()) next->text(text_);
  }
  utf8::LossyDecoder decoder_;
  std::string text_;
};

// Stages that look at whole tokens, of which byte tokens in a row belong together: a run waits for
// its end.
class ByteRuns : public WholeTokens {
 public:
  void finish() final {
    end_run();
    next->finish();
  }

 protected:
  virtual void take_run(const std::string& bytes) = 0;    // never empty
  virtual void take_other(const std::string& token) = 0;  // that is no byte

 private:
  void take(const std::string& token) final {
    if (const auto byte = byte_of_token(token)) {
      run_.push_back(static_cast<char>(*byte));
      return;
    }
    end_run();
    next->end_of_earlier();
    take_other(token);
  }
  void end_run() {
    if (run_.empty()) return;
    take_run(run_);
    run_.clear();
  }
  std::string run_;
};

// A run of byte tokens is text if all of it is; otherwise every byte becomes U+FFFD.
class ByteFallbackStage final : public ByteRuns {
  void take_other(const std::string& token) override { give(token); }
  void take_run(const std::string& bytes) override {
    if (!utf8::first_invalid(bytes)) {
      give(bytes);
    } else {
      for (std::size_t i = 0; i < bytes.size(); ++i) give(utf8::kReplacement);
    }
  }
};

class SentencePieceStage final : public ByteRuns {
 public:
  SentencePieceStage(const decoder::SentencePiece& spec, TextBefore before)
      : leading_(spec.leading), at_start_(before == TextBefore::kNo) {}

 private:
  void take_other(const std::string& token) override {
    std::string_view rest = token;
    if (at_start_ && leading_ != decoder::LeadingSpaces::kKept && rest.starts_with(kSpaceMark)) {
      rest.remove_prefix(kSpaceMark.size());
      at_start_ = leading_ == decoder::LeadingSpaces::kAllStripped;
    }
    at_start_ = at_start_ && rest.empty();
    give(replace_all(rest, kSpaceMark, " "));
  }
  void take_run(const std::string& bytes) override {
    std::string text;
    for (std::string_view rest = bytes; !rest.empty();) {
      const std::size_t length = utf8::sequence_length(static_cast<unsigned char>(rest.front()));
      const bool valid = length <= rest.size() && !utf8::first_invalid(rest.substr(0, length));
      text.append(valid ? rest.substr(0, length) : utf8::kReplacement);
      rest.remove_prefix(valid ? length : 1);
    }
    at_start_ = false;
    give(text);
  }
  static constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
  decoder::LeadingSpaces leading_;
  bool at_start_;
};

class FuseStage final : public Stage {
 public:
  void end_token() override {}
  void finish() override {
    next->end_token();
    next->finish();
  }
};

class StripStage final : public Stage {
 public:
  // before: of the first token.
  StripStage(const decoder::Strip& spec, TextBefore before)
      : spec_(spec), at_start_(before == TextBefore::kNo) {}

  void text(std::string_view fragment) override {
    std::string kept;
    for (std::size_t at = 0; at < fragment.size();) {
      const std::string_view character =
          fragment.substr(at, utf8::code_point_at(fragment, at).length);
      at += character.size();
      if (character != spec_.content) {
        at_start_ = false;
        for (; n_held_ > 0; --n_held_) kept.append(spec_.content);
        kept.append(character);
      } else if (at_start_ && n_cut_ < spec_.start) {
        ++n_cut_;
      } else if (++n_held_ > spec_.stop) {
        --n_held_;
        kept.append(spec_.content);
      }
    }
    if (!kept.empty()) next->text(kept);
  }
  void end_token() override {
    at_start_ = true;
    n_cut_ = n_held_ = 0;  // what was held is what is cut from the end
    next->end_token();
  }

 private:
  decoder::Strip spec_;
  bool at_start_;
  std::size_t n_cut_ = 0;
  std::size_t n_held_ = 0;
};

class ReplaceStage final : public Stage {
 public:
  explicit ReplaceStage(const decoder::Replace& spec) : spec_(spec) {}

  void text(std::string_view fragment) override {
    held_.append(fragment);
    std::string out;
    std::size_t done = 0;
    for (std::size_t at; (at = held_.find(spec_.pattern, done)) != std::string::npos;) {
      out.append(held_, done, at - done).append(spec_.content);
      done = at + spec_.pattern.size();
    }
    const std::size_t keep = longest_open_suffix(done);
    out.append(held_, done, held_.size() - done - keep);
    held_.erase(0, held_.size() - keep);
    if (!out.empty()) next->text(out);
  }
  void end_token() override {
    if (!held_.empty()) next->text(held_);
    held_.clear();
    next->end_token();
  }

 private:
  // Bytes at the end, from `from` on, that may be the beginning of the pattern.
  std::size_t longest_open_suffix(std::size_t from) const {
    std::size_t length = std::min(held_.size() - from, spec_.pattern.size() - 1);
    while (length > 0 &&
           !std::string_view(held_).ends_with(std::string_view(spec_.pattern).substr(0, length)))
      --length;
    return length;
  }
  decoder::Replace spec_;
  std::string held_;
};

class MetaspaceStage final : public WholeTokens {
 public:
  MetaspaceStage(const decoder::Metaspace& spec, TextBefore before)
      : spec_(spec), first_(before == TextBefore::kNo) {}

 private:
  void take(const std::string& token) override {
    const bool drop = first_ && spec_.prepend != PrependScheme::kNever;
    give(replace_all(token, spec_.replacement, drop ? "" : " "));
    first_ = false;
  }
  decoder::Metaspace spec_;
  bool first_;
};

// The suffix means a space, except on the last token: one token waits.
class BpeSuffixStage final : public WholeTokens {
 public:
  explicit BpeSuffixStage(const decoder::BpeSuffix& spec) : spec_(spec) {}
  void finish() override {
    if (waiting_) give(replace_all(*waiting_, spec_.suffix, ""));
    waiting_.reset();
    next->finish();
  }

 private:
  void take(const std::string& token) override {
    if (waiting_) give(replace_all(*waiting_, spec_.suffix, " "));
    waiting_ = token;
  }
  decoder::BpeSuffix spec_;
  std::optional<std::string> waiting_;
};

struct MakeStage {
  TextBefore before;
  bool is_fused = false;  // by a stage before: all tokens are one, of which text may have come

  std::unique_ptr<Stage> operator()(const decoder::ByteLevel&) {
    is_fused = true;
    return std::make_unique<ByteLevelStage>();
  }
  std::unique_ptr<Stage> operator()(const decoder::ByteFallback&) const {
    return std::make_unique<ByteFallbackStage>();
  }
  std::unique_ptr<Stage> operator()(const decoder::SentencePiece& spec) const {
    return std::make_unique<SentencePieceStage>(spec, before);
  }
  std::unique_ptr<Stage> operator()(const decoder::Fuse&) {
    is_fused = true;
    return std::make_unique<FuseStage>();
  }
  std::unique_ptr<Stage> operator()(const decoder::Strip& spec) const {
    return std::make_unique<StripStage>(spec, is_fused ? before : TextBefore::kNo);
  }
  std::unique_ptr<Stage> operator()(const decoder::Replace& spec) const {
    return std::make_unique<ReplaceStage>(spec);
  }
  std::unique_ptr<Stage> operator()(const decoder::Metaspace& spec) const {
    return std::make_unique<MetaspaceStage>(spec, before);
  }
  std::unique_ptr<Stage> operator()(const decoder::BpeSuffix& spec) const {
    return std::make_unique<BpeSuffixStage>(spec);
  }
};

}  // namespace

DecodePipeline::DecodePipeline(const DecoderSpec& spec, TextBefore before) {
  MakeStage make{.before = before};
  for (const DecoderStep& step : spec.steps) stages_.push_back(std::visit(make, step));
  if (!spec.present) stages_.push_back(std::make_unique<Spaced>(before));
  stages_.push_back(std::make_unique<Sink>());
  for (std::size_t i = 0; i + 1 < stages_.size(); ++i) stages_[i]->next = stages_[i + 1].get();
}

DecodePipeline::~DecodePipeline() = default;

std::size_t DecodePipeline::push(std::string_view token, std::string& out) {
  auto& sink = static_cast<Sink&>(*stages_.back());
  sink.out = &out;
  sink.n_earlier = out.size();
  stages_.front()->text(token);
  stages_.front()->end_token();
  return sink.n_earlier;
}

void DecodePipeline::finish(std::string& out) {
  static_cast<Sink&>(*stages_.back()).out = &out;
  stages_.front()->finish();
}

std::string token_bytes_under(const DecoderSpec& spec, std::string_view token) {
  std::string bytes(token);
  for (const DecoderStep& step : spec.steps) {
    if (std::holds_alternative<decoder::ByteLevel>(step)) {
      bytes = bytes_of_alphabet(bytes);
    } else if (std::holds_alternative<decoder::ByteFallback>(step)) {
      if (const auto byte = byte_of_token(bytes)) return std::string(1, static_cast<char>(*byte));
    } else if (std::holds_alternative<decoder::SentencePiece>(step)) {
      if (const auto byte = byte_of_token(bytes)) return std::string(1, static_cast<char>(*byte));
      bytes = replace_all(bytes, "\xE2\x96\x81", " ");
    } else if (const auto* replace = std::get_if<decoder::Replace>(&step)) {
      bytes = replace_all(bytes, replace->pattern, replace->content);
    } else if (const auto* metaspace = std::get_if<decoder::Metaspace>(&step)) {
      bytes = replace_all(bytes, metaspace->replacement, " ");
    } else if (const auto* suffix = std::get_if<decoder::BpeSuffix>(&step)) {
      bytes = replace_all(bytes, suffix->suffix, " ");
    }
  }
  return bytes;
}

}  // namespace foretoken
