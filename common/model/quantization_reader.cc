#include "common/model/quantization_reader.h"

#include "common/model/config.h"
#include "common/model/int4.h"

namespace foretoken {

std::string QuantizationReader::shown(const Json& value) { return to_text(value).substr(0, 60); }

// A number beyond int64 is no group either.
std::int64_t stored_group_of(const Json& size,
                             const std::string& key,
                             const QuantizationReader& reader) {
  const auto group = size.is_number_unsigned() && size.get<std::uint64_t>() > kWholeRow
                         ? 0
                         : size.get<std::int64_t>();
  if (!is_stored_int4_group(group))
    reader.refuse(
        key, "is " + QuantizationReader::shown(size) + "; supported: 32, 64 and multiples of 128");
  return group;
}

}  // namespace foretoken
