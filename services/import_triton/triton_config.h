// A config.pbtxt of a Triton model repository, read as protobuf's text format: the fields that have
// a meaning for Foretoken, and the names of those that were skipped. Knows nothing of our
// configuration.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"

namespace foretoken::import_triton {

struct TritonConfig {
  std::string name;
  std::string backend;  // or the platform, as for ensembles
  std::int64_t max_batch_size = 0;
  std::vector<std::pair<std::string, std::string>> parameters;  // in the file's order
  std::uint64_t max_queue_size = 0;                             // 0 = no limit
  std::uint64_t timeout_us = 0;                                 // 0 = none
  std::vector<std::string> skipped;                             // fields that are not read
};

// The error says line and column.
Result<TritonConfig> parse_triton_config(std::string_view text);

}  // namespace foretoken::import_triton
