// The keys of a request to the router, as the edge needs them: what the listings of
// common/messages/client.h and common/base/sampling_params.h say about each, without its member.
// Limits and sentences of HTTP fields come from here, so that HTTP and ZeroMQ have the same.
#pragma once

#include <string_view>
#include <vector>

#include "common/base/limit.h"
#include "common/messages/client.h"

namespace foretoken::edge {

struct RequestKey {
  std::string_view name;
  Limit limit;
  wire::Topic topic = wire::Topic::kRequest;
  std::string_view sentence;
  bool is_of_model = false;  // the model has a default of its own for it
};

const std::vector<RequestKey>& listed_keys();
// nullptr of what is no key.
const RequestKey* listed_key(std::string_view name);
// Of a key that there is.
const Limit& limit_of(std::string_view name);

}  // namespace foretoken::edge
