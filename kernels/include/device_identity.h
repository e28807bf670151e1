// Which device stands behind a name, so that processes can tell whether they have the same one.
#pragma once

#include <string>

namespace foretoken {

// The same for every process that has this device, under whatever number it sees it. "" for the
// CPU, which any number of processes may have. Of a device that make_backend() has opened; throws
// FatalError otherwise.
std::string device_identity(const std::string& device);

}  // namespace foretoken
