// Which device stands behind an index. Defined in runtime_cuda.cu.
#pragma once

#include <string>

namespace foretoken::cuda {

// Its UUID in hexadecimal, as the runtime tells it; not tried on a device that is divided (MIG).
std::string device_uuid(int index);

}  // namespace foretoken::cuda
