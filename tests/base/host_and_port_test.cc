#include "common/base/host_and_port.h"

#include <gmock/gmock.h>

namespace foretoken {
namespace {

TEST(HostAndPort, AnAddressOfIPv6StandsInBrackets) {
  EXPECT_EQ(host_and_port("127.0.0.1", "8000"), "127.0.0.1:8000");
  EXPECT_EQ(host_and_port("gpu1", "8000"), "gpu1:8000");
  EXPECT_EQ(host_and_port("::1", "8000"), "[::1]:8000");
}

TEST(HostAndPort, IsReadAsItIsWritten) {
  for (const char* host : {"127.0.0.1", "localhost", "::1"}) {
    const auto parts = host_and_port_in(host_and_port(host, "8002"));
    ASSERT_TRUE(parts) << host;
    EXPECT_EQ(parts->host, host);
    EXPECT_EQ(parts->port, 8002);
  }
  for (const char* text : {"", ":", ":8002", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0",
                           "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:80x", "::1:8002", "[::1]",
                           "[localhost]:1", "[]:1", "[:1", "]:1"})
    EXPECT_FALSE(host_and_port_in(text)) << text;
}

}  // namespace
}  // namespace foretoken
