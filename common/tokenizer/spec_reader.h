// tokenizer.json's stages, from JSON to spec.h. What we do not implement is refused by name, never
// ignored: a stage left out gives plausible ids that are wrong.
#pragma once

#include <optional>
#include <vector>

#include "common/tokenizer/bpe.h"
#include "common/tokenizer/json_tree.h"
#include "common/tokenizer/spec.h"
#include "common/tokenizer/tokenizer.h"

namespace foretoken {

struct TokenizerSpec {
  std::vector<AddedToken> added_tokens;  // in file order; no id and no content twice
  std::vector<NormalizerStep> normalizer;
  std::vector<SplitterStep> pre_tokenizer;
  DecoderSpec decoder;
  SurroundSpec surround;
  BpeOptions bpe;
  std::string untested_pattern;  // the first one; empty: all are known
};

Result<TokenizerSpec> read_spec(const JsonTree& tree, std::string_view file, RegexPolicy policy);

}  // namespace foretoken
