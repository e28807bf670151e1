// A model as the lists of models say it, whatever the protocol.
#pragma once

#include <cstdint>
#include <string>

namespace foretoken::edge {

struct ListedModel {
  std::string name;
  std::uint32_t max_len = 0;  // longest prompt and answer in tokens
  std::int64_t since = 0;     // seconds since 1970
};

// "2026-11-23T20:21:43Z"
std::string rfc3339(std::int64_t seconds);

}  // namespace foretoken::edge
