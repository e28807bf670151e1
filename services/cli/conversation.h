// A conversation: what was said, the system message, and what /set says of the requests. As a file
// too. No terminal, no socket.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"
#include "common/messages/client.h"

namespace foretoken::cli {

class Conversation {
 public:
  // `flags`: the request as the command line has it.
  Conversation(const wire::ClientRequest& flags, std::string system);

  void clear() { messages_.clear(); }
  void set_system(std::string text);  // none: ""
  void add(std::string role, std::string content);

  // A key of a request with its value as JSON, as text, or as on or off. The error says what the
  // key takes.
  Result<void> set(const std::string& key, const std::string& value);
  Result<void> unset(const std::string& key);  // as it is by default
  const Json& settings() const { return settings_; }
  static const std::vector<std::string>& keys();  // that can be set

  // What to ask for an answer to `text`; to the end of the context where no length is set.
  wire::ClientRequest request_for(const std::string& text) const;

  Result<void> save(const std::string& file);  // an existing one only if it is this one's own
  Result<void> load(const std::string& file);

 private:
  Result<void> take_settings(Json tried);               // if a request may have them
  std::vector<wire::ChatMessage> all_messages() const;  // the system message first

  Json settings_;  // of requests: key -> value
  std::optional<wire::ChatMessage> system_;
  std::vector<wire::ChatMessage> messages_;
  std::string file_;  // saved to, or loaded from
};

}  // namespace foretoken::cli
