#include "common/runtime/mps.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/transport/folder.h"

namespace foretoken {
namespace {

// The folder of a daemon, as the driver's makes it.
class MpsTest : public testing::Test {
 protected:
  void make_control_socket() {
    const std::string path = folder / "control";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ::close(fd);
  }
  void write_pid(const std::string& text) { folder.write("nvidia-cuda-mps-control.pid", text); }
  MpsState state() { return mps_in(folder / "."); }
  Folder folder;
};

TEST_F(MpsTest, IsAbsentWithoutAControlSocket) {
  EXPECT_EQ(mps_in(folder / "none"), MpsState::kAbsent);
  EXPECT_EQ(state(), MpsState::kAbsent);
  write_pid(std::to_string(::getpid()));
  EXPECT_EQ(state(), MpsState::kAbsent);
  folder.write("control", "an ordinary file");
  EXPECT_EQ(state(), MpsState::kAbsent);
}

TEST_F(MpsTest, RunsWhereTheDaemonLives) {
  make_control_socket();
  write_pid(std::to_string(::getpid()) + "\n");
  EXPECT_EQ(state(), MpsState::kRunning);
  write_pid("1\n");
  EXPECT_EQ(state(), MpsState::kRunning) << "another user's is one, too";
}

TEST_F(MpsTest, IsTakenForAPipeOfAnOldDriverToo) {
  ASSERT_EQ(::mkfifo((folder / "control").c_str(), 0600), 0);
  write_pid(std::to_string(::getpid()));
  EXPECT_EQ(state(), MpsState::kRunning);
}

TEST_F(MpsTest, IsNotVisibleWhereTheSocketIsAllThatIsLeft) {
  make_control_socket();
  EXPECT_EQ(state(), MpsState::kNotVisible);
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ::waitpid(gone, nullptr, 0);
  for (const std::string& text : {std::to_string(gone), std::string("nonsense"), std::string("-1"),
                                  std::string("0"), std::string("99999999999999999999")}) {
    write_pid(text);
    EXPECT_EQ(state(), MpsState::kNotVisible) << text;
  }
}

TEST_F(MpsTest, IsLookedForWhereTheEnvironmentSays) {
  ASSERT_EQ(::setenv("CUDA_MPS_PIPE_DIRECTORY", (folder / ".").c_str(), 1), 0);
  EXPECT_EQ(find_mps().state, MpsState::kAbsent);
  EXPECT_EQ(find_mps().folder, folder / ".");
  make_control_socket();
  write_pid(std::to_string(::getpid()));
  EXPECT_EQ(find_mps().state, MpsState::kRunning);
  ASSERT_EQ(::setenv("CUDA_MPS_PIPE_DIRECTORY", "", 1), 0);
  EXPECT_EQ(find_mps().folder, "/tmp/nvidia-mps");
  ASSERT_EQ(::unsetenv("CUDA_MPS_PIPE_DIRECTORY"), 0);
  EXPECT_EQ(find_mps().folder, "/tmp/nvidia-mps");
}

}  // namespace
}  // namespace foretoken
