#include "services/router/complaints.h"

#include <gtest/gtest.h>

namespace foretoken {
namespace {

const TimePoint kRegistered = TimePoint{} + std::chrono::seconds(100);

wire::Header sent_by(std::uint64_t worker) {
  wire::Header header;
  header.sender = WorkerId{worker};
  header.incarnation = Incarnation{1};
  return header;
}

// Registers it and returns what is wrong with it then.
std::string complaints_of(Pool& pool,
                          std::uint64_t worker,
                          wire::Role role,
                          const std::string& name) {
  const Peer peer{.socket = 1, .routing = std::to_string(worker)};
  EXPECT_TRUE(pool.hello(sent_by(worker), peer, {.role = role, .name = name, .model_name = "m"},
                         kRegistered)
                  .accepted);
  return complaints_about(*pool.find(WorkerId{worker}), pool);
}

TEST(Complaints, TwoServicesOfOneNameAreNamed) {
  Pool pool(std::chrono::milliseconds(250));
  EXPECT_EQ("", complaints_of(pool, 1, wire::Role::kEdge, "edge-0"));
  EXPECT_EQ("", complaints_of(pool, 2, wire::Role::kEdge, "edge-1"));
  const std::string both =
      "another edge-0 runs on another host, and metrics do not distinguish them: give one another "
      "--id";
  EXPECT_EQ(both, complaints_of(pool, 3, wire::Role::kEdge, "edge-0"));
  EXPECT_EQ(both, complaints_about(*pool.find(WorkerId{1}), pool));
  EXPECT_EQ("", complaints_about(*pool.find(WorkerId{2}), pool));
  pool.lose(WorkerId{3});
  EXPECT_EQ("", complaints_about(*pool.find(WorkerId{1}), pool));
}

}  // namespace
}  // namespace foretoken
