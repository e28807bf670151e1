#include "common/messages/client.h"

#include <algorithm>

#include "common/base/check.h"

namespace foretoken::wire {

const std::vector<std::string>& request_keys() {
  static const auto all = [] {
    std::vector<std::string> names;
    const ClientRequest example;
    ClientRequest::fields(example, [&](const char* key, const auto&, const Limit&, Topic,
                                       const char*) { names.emplace_back(key); });
    return names;
  }();
  return all;
}

bool GivenKeys::contains(std::string_view key) const {
  const auto& keys = request_keys();
  FORETOKEN_CHECK(std::find(keys.begin(), keys.end(), key) != keys.end());
  return keys_.contains(key);
}

void GivenKeys::insert(std::string_view key) {
  const auto& keys = request_keys();
  const auto known = std::find(keys.begin(), keys.end(), key);
  FORETOKEN_CHECK(known != keys.end());
  keys_.insert(*known);
}

}  // namespace foretoken::wire
