#include "services/cli/conversation.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "common/base/file.h"
#include "common/base/nearest.h"
#include "services/cli/request_flags.h"
#include "services/cli/request_json.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

constexpr std::string_view kSchema = "foretoken.chat/1";

// The shell is not there to do it.
std::string expanded(const std::string& file) {
  const char* home = std::getenv("HOME");
  return file.starts_with("~/") && home != nullptr ? home + file.substr(1) : file;
}

Json json_of(const std::vector<wire::ChatMessage>& messages) {
  Json list = Json::array();
  for (const auto& message : messages) {
    list.push_back({{"role", message.role}, {"content", message.content}});
    // Of a conversation that was loaded: calls of tools, and what they answered.
    if (!message.extra.text.empty()) list.back()["extra"] = message.extra.text;
  }
  return list;
}

// Their values may look like JSON, and a schema is JSON.
bool is_text_key(std::string_view key) {
  return key == "model" || key == "tenant" || key == "prediction" || key == "acceptance" ||
         is_constraint_key(key);
}

// 0.5, true, on, ["a", "b"], {"5": -1}; anything else is a text.
Json value_of(const std::string& key, const std::string& text) {
  if (is_text_key(key)) return text;
  if (text == "on" || text == "off") return text == "on";
  const auto json = parse_json(text);
  return json.ok() ? *json : Json(text);
}

Error unknown(const std::string& key) {
  const auto near = nearest(key, Conversation::keys());
  return {ErrorCode::kInvalidValue,
          "there is no setting " + key +
              (near ? "; did you mean " + *near + "?" : "; /set and Tab show them")};
}

}  // namespace

const std::vector<std::string>& Conversation::keys() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> keys{"timeout_ms"};
    for (const auto& key : wire::request_keys())
      if (!kNoFlags.contains(key) && !kNotInChat.contains(key)) keys.push_back(key);
    return keys;
  }();
  return all;
}

Conversation::Conversation(const wire::ClientRequest& flags, std::string system)
    : settings_(json_of_request(flags)) {
  set_system(std::move(system));
  // What the flags of a verb leave out is not for a conversation.
  for (const char* key : {"prompt", "messages", "token_ids"}) settings_.erase(key);
}

void Conversation::set_system(std::string text) {
  system_.reset();
  if (!text.empty()) system_ = wire::ChatMessage{"system", std::move(text)};
}

void Conversation::add(std::string role, std::string content) {
  messages_.push_back({std::move(role), std::move(content)});
}

Result<void> Conversation::set(const std::string& key, const std::string& value) {
  if (std::find(keys().begin(), keys().end(), key) == keys().end()) return unknown(key);
  Json tried = settings_;
  tried[key] = value_of(key, value);
  return take_settings(std::move(tried));
}

Result<void> Conversation::unset(const std::string& key) {
  if (std::find(keys().begin(), keys().end(), key) == keys().end()) return unknown(key);
  Json tried = settings_;
  tried.erase(key);  // another setting may need it
  return take_settings(std::move(tried));
}

Result<void> Conversation::take_settings(Json tried) {
  Json request = tried;
  request["prompt"] = "";
  if (const auto good = request_of_json(request); !good.ok()) return good.error();
  settings_ = std::move(tried);
  return {};
}

wire::ClientRequest Conversation::request_for(const std::string& text) const {
  Json request = settings_;
  request["prompt"] = "";
  wire::ClientRequest made = value_or_throw(request_of_json(request));
  if (!made.given.contains("max_tokens")) {
    made.params.max_tokens = kToEndOfContext;
    made.given.insert("max_tokens");
  }
  made.prompt_kind = wire::PromptKind::kMessages;
  made.messages = all_messages();
  made.messages.push_back({"user", text});
  made.stream = true;
  return made;
}

std::vector<wire::ChatMessage> Conversation::all_messages() const {
  std::vector<wire::ChatMessage> all = messages_;
  if (system_) all.insert(all.begin(), *system_);
  return all;
}

Result<void> Conversation::save(const std::string& file) {
  const std::string path = expanded(file);
  const Json document = {
      {"schema", kSchema}, {"settings", settings_}, {"messages", json_of(all_messages())}};
  const auto existing = path == file_ ? Existing::kReplace : Existing::kKeep;
  if (const auto done = write_whole_file(path, to_text(document, 2) + "\n", existing, 0600);
      !done.ok())
    return Error{done.error().code, done.error().message};
  file_ = path;
  return {};
}

Result<void> Conversation::load(const std::string& file) {
  const std::string path = expanded(file);
  const auto text = read_text_file(path, std::size_t{16} << 20);
  if (!text.ok()) return text.error();
  const auto wrong = [&](const std::string& why) {
    return Error{ErrorCode::kInvalidValue, path + " is no conversation: " + why};
  };
  const auto json = parse_json(*text);
  if (!json.ok()) return wrong(json.error().message);
  if (!json->is_object() || !json->contains("messages") || json->value("schema", Json()) != kSchema)
    return wrong("its schema is not " + std::string(kSchema));
  Json request = json->value("settings", Json::object());
  if (!request.is_object()) return wrong("settings is not an object");
  Json settings = request;
  request["prompt"] = "";  // the settings alone, as request_for() reads them
  if (const auto good = request_of_json(request); !good.ok()) return wrong(good.error().message);
  request.erase("prompt");
  request["messages"] = (*json)["messages"];
  auto read = request_of_json(request);
  if (!read.ok()) return wrong(read.error().message);
  settings_ = std::move(settings);
  messages_ = std::move(read->messages);
  system_.reset();
  if (!messages_.empty() && messages_.front().role == "system") {
    system_ = std::move(messages_.front());
    messages_.erase(messages_.begin());
  }
  file_ = path;
  return {};
}

}  // namespace foretoken::cli
