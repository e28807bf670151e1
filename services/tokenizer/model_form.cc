#include "services/tokenizer/model_form.h"

#include <algorithm>
#include <array>

namespace foretoken {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

ToolFormat tool_format_in(std::string_view chat_template) {
  // Other formats share this marker, with tags of their own in place of JSON.
  if (has(chat_template, markers::kToolCall) && !has(chat_template, "<function=") &&
      !has(chat_template, "<arg_key>"))
    return ToolFormat::kHermes;
  if (has(chat_template, markers::kToolCalls)) return ToolFormat::kMistral;
  // Llama 3.1 and 3.3 name the tag; 3.2 describes the object alone.
  if (has(chat_template, markers::kPythonTag) ||
      has(chat_template, R"("parameters": dictionary of argument name and its value)"))
    return ToolFormat::kLlama;
  return ToolFormat::kNone;
}

ModelForm ModelForm::of(const Tokenizer& tokenizer, std::string_view tool_format) {
  ModelForm form;
  const std::string usual = tokenizer.chat_template().value_or("");
  const std::string source = tokenizer.tool_template().value_or(usual);
  form.tool_format = value_named<ToolFormat>(tool_format).value_or(tool_format_in(source));
  for (const std::string_view marker : kMarkers) {
    const auto id = tokenizer.token_to_id(marker);
    if (!id) continue;
    form.marker_tokens.emplace_back(marker);
    form.marker_ids.push_back(*id);
  }
  const auto is_token = [&](std::string_view marker) {
    return std::find(form.marker_tokens.begin(), form.marker_tokens.end(), marker) !=
           form.marker_tokens.end();
  };
  form.reasons = has(usual, markers::kEndThink) || has(source, markers::kEndThink) ||
                 (is_token(markers::kThink) && is_token(markers::kEndThink));
  switch (form.tool_format) {
    case ToolFormat::kNone:
      break;
    case ToolFormat::kHermes:
      form.before_name = std::string(markers::kToolCall) + "\n{\"name\": \"";
      form.after_name = "\", \"arguments\":";
      break;
    case ToolFormat::kLlama:
      form.before_name = "{\"name\": \"";
      form.after_name = "\", \"parameters\":";
      break;
    case ToolFormat::kMistral:
      form.before_name = markers::kToolCalls;
      if (is_token(markers::kArgs)) {
        form.after_name = has(source, markers::kCallId) ? markers::kCallId : markers::kArgs;
      } else {
        form.before_name +=
            std::string(has(source, "[TOOL_CALLS] [") ? " " : "") + "[{\"name\": \"";
        form.after_name = "\", \"arguments\":";
      }
      break;
  }
  return form;
}

}  // namespace foretoken
