// The table of keys a request may have: how each is read and what the documentation says of it.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "common/wire/client.h"
#include "common/wire/msgpack_reader.h"

namespace foretoken::wire {

struct RequestKey {
  std::string_view name;
  std::string_view type;
  std::string_view default_value;
  std::string_view sentence;
  std::function<bool(MsgpackReader&, ClientRequest&)> read;
};

const std::vector<RequestKey>& request_keys();

}  // namespace foretoken::wire
