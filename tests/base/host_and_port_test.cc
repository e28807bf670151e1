#include "common/base/host_and_port.h"

#include <gmock/gmock.h>

namespace foretoken {
namespace {

TEST(HostAndPort, AnAddressOfIPv6StandsInBrackets) {
  EXPECT_EQ(host_and_port("127.0.0.1", "8000"), "127.0.0.1:8000");
  EXPECT_EQ(host_and_port("gpu1", "8000"), "gpu1:8000");
  EXPECT_EQ(host_and_port("::1", "8000"), "[::1]:8000");
}

}  // namespace
}  // namespace foretoken
