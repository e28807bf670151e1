// Which device stands behind an index. Defined in runtime_cuda.cu.
#pragma once

#include <string>

namespace foretoken::cuda {

// Its UUID in hexadecimal; a part of a device that was divided (MIG) has its own.
std::string device_uuid(int index);

}  // namespace foretoken::cuda
