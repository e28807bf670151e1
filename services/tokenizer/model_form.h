// How a model marks calls of tools and thoughts in what it writes: found in the text of its chat
// template (of that for tools, where there are two), or named by model.tool_format. What it means
// in an answer is read at the edge; here is what only the vocabulary and the template can say.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/tool_formats.h"
#include "common/tokenizer/tokenizer.h"

namespace foretoken {

struct ModelForm {
  ToolFormat tool_format = ToolFormat::kNone;
  bool reasons = false;  // it writes what it thinks
  // Of the markers those that are one token.
  std::vector<std::string> marker_tokens = {};
  std::vector<TokenId> marker_ids = {};
  // What an answer begins with that calls a tool, around the tool's name.
  std::string before_name = {};
  std::string after_name = {};

  // `tool_format` as configured: auto, or one of the names.
  static ModelForm of(const Tokenizer& tokenizer, std::string_view tool_format);
};

ToolFormat tool_format_in(std::string_view chat_template);

}  // namespace foretoken
