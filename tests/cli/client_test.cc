// The command's connection: which keys it uses where, and how soon it knows that nobody is there.
#include "services/cli/client.h"

#include <gmock/gmock.h>

#include "tests/support/temp_folder.h"

namespace foretoken::cli {
namespace {

using namespace std::chrono_literals;

TEST(ClientOptions, ThisHostNeedsNoKeyAndOthersDo) {
  BusSection bus;
  bus.curve_secret = "/etc/foretoken/tool.key";
  bus.curve_peers = "/etc/foretoken/peers";
  for (const char* here : {"tcp://127.0.0.1:5555", "tcp://[::1]:5555", "ipc:///run/foretoken/client"}) {
    bus.client = here;
    EXPECT_EQ(client_options(bus).curve_secret_file, "") << here;
  }
  bus.client = "tcp://10.1.2.3:5555";
  bus.insecure = true;
  EXPECT_EQ(client_options(bus).curve_secret_file, bus.curve_secret);
  EXPECT_EQ(client_options(bus).curve_peers_file, bus.curve_peers);
  EXPECT_TRUE(client_options(bus).insecure);
}

TEST(Client, RefusesToSpeakBeyondThisHostWithoutKeys) {
  BusSection bus;
  bus.client = "tcp://10.1.2.3:5555";
  EXPECT_THROW(Client{bus}, FatalError);
}

// The deadline is an hour: only the kernel's refusal can end this.
TEST(Client, KnowsThatNobodyListens) {
  test::TempFolder folder;
  BusSection bus;
  for (const std::string& nobody : {std::string("tcp://127.0.0.1:1"), "ipc://" + (folder.path() / "none").string()}) {
    bus.client = nobody;
    Client client(bus);
    const auto status = client.status(std::chrono::steady_clock::now() + 1h);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
    EXPECT_THAT(status.error().message, ::testing::HasSubstr(nobody));
  }
}

}  // namespace
}  // namespace foretoken::cli
