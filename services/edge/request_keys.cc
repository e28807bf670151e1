#include "services/edge/request_keys.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/sampling_params.h"

namespace foretoken::edge {
namespace {

std::vector<RequestKey> all_keys() {
  std::vector<RequestKey> keys;
  const wire::ClientRequest example;
  wire::ClientRequest::fields(example, [&](const char* name, const auto&, const Limit& limit,
                                           wire::Topic topic, const char* sentence) {
    keys.push_back({name, limit, topic, sentence});
  });
  const SamplingDefaults of_model;
  SamplingDefaults::fields(of_model,
                           [&](int, const std::string_view name, const auto&, const char*) {
                             for (RequestKey& key : keys) key.is_of_model |= key.name == name;
                           });
  return keys;
}

}  // namespace

const std::vector<RequestKey>& listed_keys() {
  static const std::vector<RequestKey> keys = all_keys();
  return keys;
}

const RequestKey* listed_key(std::string_view name) {
  const auto& keys = listed_keys();
  const auto found = std::find_if(keys.begin(), keys.end(),
                                  [&](const RequestKey& key) { return key.name == name; });
  return found == keys.end() ? nullptr : &*found;
}

const Limit& limit_of(std::string_view name) {
  const RequestKey* key = listed_key(name);
  FORETOKEN_CHECK(key != nullptr);
  return key->limit;
}

}  // namespace foretoken::edge
