#include "services/cli/request_json.h"

#include <utility>

#include "common/base/file.h"
#include "common/wire/client_codec.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {

Result<wire::ClientRequest> request_of_json(const OrderedJson& request) {
  const auto packed = OrderedJson::to_msgpack(request);
  return wire::read_client_request({reinterpret_cast<const char*>(packed.data()), packed.size()})
      .request;
}

Json json_of_request(const wire::ClientRequest& request) {
  const Bytes bytes = wire::write_client_request(request);
  return Json::from_msgpack(bytes);
}

Result<std::vector<wire::ChatMessage>> read_messages(const std::string& file) {
  const auto text = file == "-" ? Result<std::string>(read_all_of_stdin())
                                : read_text_file(file, wire::kMaxClientPartBytes);
  if (!text.ok()) return text.error();
  const auto wrong = [&](const std::string& why) {
    return Error{ErrorCode::kInvalidValue, file + ": " + why, "--messages"};
  };
  const auto json = parse_json(*text);
  if (!json.ok()) return wrong(json.error().message);
  // As `chat` saves it, too.
  const bool is_saved = json->is_object() && json->contains("messages");
  const OrderedJson whole = OrderedJson::parse(*text);  // in its own order
  auto request = request_of_json(OrderedJson{{"messages", is_saved ? whole["messages"] : whole}});
  if (!request.ok()) return wrong(request.error().message);
  return std::move(request->messages);
}

}  // namespace foretoken::cli
