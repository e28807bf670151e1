#include "services/cli/prompts.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <utility>

#include "common/base/json.h"
#include "common/config/resolve.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {

namespace {

// A file of ShareGPT's has half a gigabyte.
constexpr JsonLimits kDatasetLimits{
    .max_bytes = std::size_t{2} << 30, .max_depth = 64, .max_nodes = 100'000'000};

std::string text_at(const Json& entry, const char* key) {
  return entry.is_object() && entry.contains(key) && entry[key].is_string()
             ? entry[key].get<std::string>()
             : "";
}

// A text, or parts of type text. Nothing: something else.
std::optional<std::string> content_of(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return std::nullopt;
  std::string text;
  for (const Json& part : content) {
    if (text_at(part, "type") != "text") return std::nullopt;
    text += text_at(part, "text");
  }
  return text;
}

std::vector<wire::ChatMessage> messages_of(const Json& list, const std::string& where) {
  const FatalError refused(
      ErrorCode::kMalformed,
      where + ": \"messages\" must be an array of {\"role\": text, \"content\": text}");
  if (!list.is_array() || list.empty()) throw refused;
  std::vector<wire::ChatMessage> messages;
  for (const Json& each : list) {
    const auto content =
        each.is_object() && each.contains("content") ? content_of(each["content"]) : std::nullopt;
    if (!content || text_at(each, "role").empty()) throw refused;
    messages.push_back({text_at(each, "role"), *content});
  }
  return messages;
}

// ShareGPT's turns up to the first answer. None: it does not begin with a person's.
std::vector<wire::ChatMessage> first_turn_of(const Json& conversation) {
  std::vector<wire::ChatMessage> messages;
  if (!conversation.is_array()) return messages;
  for (const Json& turn : conversation) {
    const std::string from = text_at(turn, "from");
    if (from == "system" && messages.empty()) {
      messages.push_back({"system", text_at(turn, "value")});
    } else if (from == "human" || from == "user") {
      messages.push_back({"user", text_at(turn, "value")});
      return messages;
    } else {
      break;
    }
  }
  return {};
}

// One request of any form. No messages: a conversation that asks nothing.
std::vector<wire::ChatMessage> request_of(const Json& entry, const std::string& where) {
  if (entry.is_object() && entry.contains("conversations"))
    return first_turn_of(entry["conversations"]);
  if (entry.is_object() && entry.contains("body")) return request_of(entry["body"], where);
  if (entry.is_object() && entry.contains("messages")) return messages_of(entry["messages"], where);
  if (const std::string prompt = text_at(entry, "prompt"); !prompt.empty())
    return chat_messages(text_at(entry, "system"), prompt);
  throw FatalError(ErrorCode::kMalformed,
                   where + " has neither \"prompt\" nor \"messages\" nor \"conversations\"");
}

// One array, or one object a line.
std::vector<Json> entries_of(const std::string& text, const std::string& file) {
  const auto parsed_or_throw = [](std::string_view part, const std::string& where) {
    auto parsed = parse_json(part, kDatasetLimits);
    if (!parsed.ok())
      throw FatalError(ErrorCode::kMalformed, where + ": " + parsed.error().message);
    return std::move(*parsed);
  };
  std::vector<Json> entries;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || text[first] != '{') {
    Json all = parsed_or_throw(text, file);
    if (!all.is_array())
      throw FatalError(ErrorCode::kMalformed, file + ": expected an array of prompts");
    for (Json& each : all) entries.push_back(std::move(each));
    return entries;
  }
  std::istringstream lines(text);
  std::size_t n = 0;
  for (std::string line; std::getline(lines, line);) {
    ++n;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    entries.push_back(parsed_or_throw(line, file + ": line " + std::to_string(n)));
  }
  return entries;
}

// Beside the demo's models.
std::filesystem::path demo_prompts() {
  try {
    return std::filesystem::path(model_folder("demo", "target")).parent_path() / "prompts.json";
  } catch (const FatalError&) {
    throw FatalError(ErrorCode::kInvalidValue,
                     "the demo's prompts lie beside its models, which are not on this machine; "
                     "\"foretoken bench serve --compare --dataset FILE\" takes prompts of a file");
  }
}

}  // namespace

std::vector<DemoPrompt> load_prompts(const std::string& path) {
  const std::filesystem::path file = path.empty() ? demo_prompts() : std::filesystem::path(path);
  std::ifstream in(file);
  if (!in)
    throw FatalError(ErrorCode::kInvalidValue, "cannot read the prompts in " + file.string());
  const auto entries =
      entries_of(std::string(std::istreambuf_iterator<char>(in), {}), file.string());
  std::vector<DemoPrompt> prompts;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    auto messages = request_of(entries[i], file.string() + ": entry " + std::to_string(i));
    if (messages.empty()) continue;
    const std::string kind = text_at(entries[i], "kind");
    prompts.push_back({.kind = kind.empty() ? "text" : kind, .messages = std::move(messages)});
  }
  if (prompts.empty()) throw FatalError(ErrorCode::kMalformed, file.string() + ": no prompts");
  return prompts;
}

std::string random_words(const std::vector<DemoPrompt>& prompts,
                         std::size_t n_words,
                         std::uint64_t seed) {
  std::vector<std::string> words;
  for (const auto& prompt : prompts)
    for (const auto& message : prompt.messages) {
      std::istringstream text(message.content);
      words.insert(words.end(), std::istream_iterator<std::string>(text), {});
    }
  std::mt19937_64 random(seed);
  std::string text;
  for (std::size_t i = 0; i < n_words && !words.empty(); ++i)
    text += (i > 0 ? " " : "") + words[random() % words.size()];
  return text;
}

DemoPrompt numbered(DemoPrompt prompt, std::uint64_t seed, std::size_t number) {
  prompt.messages.front().content.insert(
      0, std::to_string(number) + "." + std::to_string(seed) + ". ");
  return prompt;
}

std::vector<DemoPrompt> kinds_in_turn(const std::vector<DemoPrompt>& prompts) {
  std::map<std::string, std::size_t> n_of_kind;
  std::vector<std::pair<std::size_t, const DemoPrompt*>> by_turn;
  for (const auto& prompt : prompts) by_turn.emplace_back(n_of_kind[prompt.kind]++, &prompt);
  std::stable_sort(by_turn.begin(), by_turn.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<DemoPrompt> turned;
  for (const auto& [turn, prompt] : by_turn) turned.push_back(*prompt);
  return turned;
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
