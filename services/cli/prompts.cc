#include "services/cli/prompts.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "common/base/json.h"
#include "common/config/resolve.h"

namespace foretoken::cli {

std::vector<DemoPrompt> load_prompts(const std::string& path) {
  const std::filesystem::path file =
      path.empty() ? std::filesystem::path(model_folder("demo", "target")).parent_path() / "prompts.json" : std::filesystem::path(path);
  std::ifstream in(file);
  if (!in) throw FatalError(ErrorCode::kIo, "cannot read the prompts in " + file.string());
  const auto parsed = parse_json(std::string(std::istreambuf_iterator<char>(in), {}));
  if (!parsed.ok()) throw FatalError(ErrorCode::kMalformed, file.string() + ": " + parsed.error().message);
  if (!parsed->is_array()) throw FatalError(ErrorCode::kMalformed, file.string() + ": expected an array of prompts");
  std::vector<DemoPrompt> prompts;
  for (const auto& entry : *parsed) {
    const auto text = [&](const char* key) {
      return entry.is_object() && entry.contains(key) && entry[key].is_string() ? entry[key].get<std::string>() : "";
    };
    OrderedJson messages = OrderedJson::array();
    if (entry.is_object() && entry.contains("messages")) {
      messages = OrderedJson::parse(to_text(entry["messages"]));
    } else {
      if (!text("system").empty()) messages.push_back({{"role", "system"}, {"content", text("system")}});
      messages.push_back({{"role", "user"}, {"content", text("prompt")}});
    }
    if (text("prompt").empty() && !entry.contains("messages"))
      throw FatalError(ErrorCode::kMalformed, file.string() + ": entry " + std::to_string(prompts.size()) +
                                                  " has neither \"prompt\" nor \"messages\"");
    prompts.push_back({.kind = text("kind").empty() ? "text" : text("kind"), .messages_json = to_text(messages)});
  }
  if (prompts.empty()) throw FatalError(ErrorCode::kMalformed, file.string() + ": no prompts");
  return prompts;
}

std::vector<DemoPrompt> take_per_kind(const std::vector<DemoPrompt>& prompts, std::size_t per_kind) {
  std::map<std::string, std::size_t> taken;
  std::vector<DemoPrompt> some;
  for (const auto& prompt : prompts)
    if (taken[prompt.kind]++ < per_kind) some.push_back(prompt);
  return some;
}

}  // namespace foretoken::cli
