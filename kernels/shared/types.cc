#include "kernels/include/types.h"

namespace foretoken {

std::string weight_type_name(DType dtype, std::int64_t group, Int4Zeros zeros) {
  if (dtype != DType::kI4) return dtype_name(dtype);
  return std::string(dtype_name(dtype)) + (zeros == Int4Zeros::kOfGroup ? "z/" : "/") +
         std::to_string(group);
}

}  // namespace foretoken
