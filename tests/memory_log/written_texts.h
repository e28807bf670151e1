// Records of a log that a number alone decides, so that a test can compute what was written.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/hash.h"
#include "common/base/ids.h"

namespace foretoken {

struct WrittenRecord {
  std::uint64_t salt = 0;
  std::uint64_t document = 0;
  std::vector<TokenId> tokens;
  bool operator==(const WrittenRecord&) const = default;
};

inline constexpr TokenId kWrittenIds = 50;

inline WrittenRecord written_record(std::uint64_t number) {
  WrittenRecord record{.salt = number % 3, .document = number / 40 * 3 + number % 3};
  record.tokens.resize(mix64(number) % 12);  // none: the document has ended
  TokenId token = static_cast<TokenId>(mix64(number + 1) % kWrittenIds);
  for (TokenId& each : record.tokens) each = token++ % kWrittenIds;
  return record;
}

}  // namespace foretoken
