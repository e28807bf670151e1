#include "common/transport/memory_door.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "common/base/result.h"
#include "tests/transport/folder.h"

namespace foretoken {
namespace {

class MemoryDoorTest : public testing::Test {
 protected:
  Folder folder;
  std::string path = folder / "door";
  std::string endpoint = "shm://" + path;
};

TEST_F(MemoryDoorTest, IsForThisUserAlone) {
  const MemoryDoor door(endpoint);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(MemoryDoorTest, LeavesNoFileBehindAndTakesThePlaceOfADeadOne) {
  {
    const int dead = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    ASSERT_EQ(::bind(dead, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ::close(dead);
    const MemoryDoor next(endpoint);
    EXPECT_NO_THROW(MemoryDoor::call(endpoint));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_THROW(MemoryDoor::call(endpoint), FatalError);
  EXPECT_THROW(MemoryDoor::call("shm://relative"), FatalError);
  EXPECT_THROW(MemoryDoor::call("shm:///" + std::string(200, 'x')), FatalError);
}

TEST_F(MemoryDoorTest, IsNotTakenWhileAnotherServesIt) {
  const MemoryDoor door(endpoint);
  EXPECT_THROW(MemoryDoor{endpoint}, FatalError);
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_FALSE(door.accept()) << "no peer has come";
  const Fd caller = MemoryDoor::call(endpoint);
  EXPECT_TRUE(door.accept());
  EXPECT_FALSE(door.accept());
}

}  // namespace
}  // namespace foretoken
