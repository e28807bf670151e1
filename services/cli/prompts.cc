#include "services/cli/prompts.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "common/base/json.h"
#include "common/config/resolve.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {

namespace {

std::vector<wire::ChatMessage> messages_of(const Json& list, const std::string& where) {
  const auto is_message = [](const Json& each) {
    return each.is_object() && each.size() == 2 && each.contains("role") &&
           each["role"].is_string() && each.contains("content") && each["content"].is_string();
  };
  if (!list.is_array() || list.empty() || !std::all_of(list.begin(), list.end(), is_message))
    throw FatalError(
        ErrorCode::kMalformed,
        where + ": \"messages\" must be an array of {\"role\": text, \"content\": text}");
  std::vector<wire::ChatMessage> messages;
  for (const Json& each : list)
    messages.push_back({each["role"].get<std::string>(), each["content"].get<std::string>()});
  return messages;
}

}  // namespace

std::vector<DemoPrompt> load_prompts(const std::string& path) {
  const std::filesystem::path file =
      path.empty()
          ? std::filesystem::path(model_folder("demo", "target")).parent_path() / "prompts.json"
          : std::filesystem::path(path);
  std::ifstream in(file);
  if (!in)
    throw FatalError(ErrorCode::kInvalidValue, "cannot read the prompts in " + file.string());
  const auto parsed = parse_json(std::string(std::istreambuf_iterator<char>(in), {}));
  if (!parsed.ok())
    throw FatalError(ErrorCode::kMalformed, file.string() + ": " + parsed.error().message);
  if (!parsed->is_array())
    throw FatalError(ErrorCode::kMalformed, file.string() + ": expected an array of prompts");
  std::vector<DemoPrompt> prompts;
  for (const auto& entry : *parsed) {
    const auto text = [&](const char* key) {
      return entry.is_object() && entry.contains(key) && entry[key].is_string()
                 ? entry[key].get<std::string>()
                 : "";
    };
    const std::string where = file.string() + ": entry " + std::to_string(prompts.size());
    std::vector<wire::ChatMessage> messages;
    if (entry.is_object() && entry.contains("messages")) {
      messages = messages_of(entry["messages"], where);
    } else if (!text("prompt").empty()) {
      messages = chat_messages(text("system"), text("prompt"));
    } else {
      throw FatalError(ErrorCode::kMalformed, where + " has neither \"prompt\" nor \"messages\"");
    }
    prompts.push_back(
        {.kind = text("kind").empty() ? "text" : text("kind"), .messages = std::move(messages)});
  }
  if (prompts.empty()) throw FatalError(ErrorCode::kMalformed, file.string() + ": no prompts");
  return prompts;
}

std::vector<DemoPrompt> take_per_kind(const std::vector<DemoPrompt>& prompts,
                                      std::size_t per_kind) {
  std::map<std::string, std::size_t> taken;
  std::vector<DemoPrompt> some;
  for (const auto& prompt : prompts)
    if (taken[prompt.kind]++ < per_kind) some.push_back(prompt);
  return some;
}

}  // namespace foretoken::cli
