#include "common/base/json.h"
#include "common/wire/client_codec.h"

namespace foretoken::wire {

std::string messages_json(std::span<const ChatMessage> messages) {
  OrderedJson all = OrderedJson::array();
  for (const auto& [role, content] : messages)
    all.push_back({{"role", role}, {"content", content}});
  return to_text(all);
}

}  // namespace foretoken::wire
