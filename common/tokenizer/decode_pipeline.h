// Token texts in, text out, one token at a time: the decoder of a tokenizer.json as a chain of
// stages that each hold back only what the next token could still change. Decoding everything at
// once is the same pipeline run to its end. One pipeline per stream; one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/tokenizer/spec.h"

namespace foretoken {

// Whether the tokens follow on others that have text. If so, no space is taken off the beginning of
// the first one: the pipeline begins as if a token had come before.
enum class TextBefore { kNo, kYes };

class DecodePipeline {
 public:
  explicit DecodePipeline(const DecoderSpec& spec, TextBefore before = TextBefore::kNo);
  ~DecodePipeline();
  DecodePipeline(const DecodePipeline&) = delete;
  DecodePipeline& operator=(const DecodePipeline&) = delete;

  // Appends the text that is now certain: whole code points only. Returns the size of `out` up to
  // which the tokens before this one have made it: a run of byte tokens waits for its end.
  std::size_t push(std::string_view token, std::string& out);
  void finish(std::string& out);

  class Stage;

 private:
  std::vector<std::unique_ptr<Stage>> stages_;  // each knows the next; the last one writes
};

// The raw bytes one token contributes under this decoder, apart from what depends on its
// neighbours.
std::string token_bytes_under(const DecoderSpec& spec, std::string_view token);

}  // namespace foretoken
