#include "common/base/shared_region.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <utility>

namespace foretoken {
namespace {

TEST(SharedRegion, CanBeWrittenByItsOwnerAlone) {
  auto made = SharedRegion::make("foretoken-test", 8192);
  ASSERT_TRUE(made.ok());
  made->data()[5000] = std::byte{42};
  Fd handed_over(::dup(made->fd()));
  EXPECT_EQ(::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, handed_over.get(), 0),
            MAP_FAILED);
  EXPECT_NE(::ftruncate(handed_over.get(), 0), 0);
  const auto seen = SharedRegion::adopt(std::move(handed_over), 8192);
  ASSERT_TRUE(seen.ok()) << seen.error().message;
  EXPECT_EQ(seen->data()[5000], std::byte{42});
}

}  // namespace
}  // namespace foretoken
