#include "kernels/include/types.h"

namespace foretoken {

std::string weight_type_name(DType dtype, std::int64_t group, Int4Kind kind) {
  if (dtype != DType::kI4) return dtype_name(dtype);
  static constexpr const char* kNames[kInt4Kinds] = {"int4/", "int4z/", "e2m1/", "int4n/"};
  return kNames[static_cast<int>(kind)] + std::to_string(group);
}

}  // namespace foretoken
