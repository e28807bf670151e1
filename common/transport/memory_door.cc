#include "common/transport/memory_door.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/base/result.h"

namespace foretoken {
namespace {

constexpr int kBacklog = 64;

std::string failure(const std::string& what) { return what + ": " + std::strerror(errno); }

sockaddr_un address_of(const std::string& endpoint) {
  const std::string path = endpoint.substr(MemoryDoor::kScheme.size());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.front() != '/' || path.size() >= sizeof address.sun_path)
    throw FatalError(ErrorCode::kConfig, "\"" + endpoint + "\" must be shm:///PATH with at most " +
                                             std::to_string(sizeof address.sun_path - 1) +
                                             " characters of path");
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Fd new_socket() {
  Fd made(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made) throw FatalError(ErrorCode::kIo, failure("a Unix socket"));
  return made;
}

}  // namespace

MemoryDoor::MemoryDoor(const std::string& endpoint) {
  const sockaddr_un address = address_of(endpoint);
  socket_ = new_socket();
  path_ = address.sun_path;
  lock_ = FileLock(path_ + ".lock");
  // No process serves it: a file of an ended process is in the way.
  ::unlink(path_.c_str());
  // Before binding: the file is never open to others, whatever the umask.
  ::fchmod(socket_.get(), 0600);
  if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw FatalError(ErrorCode::kIo, failure("cannot bind " + endpoint));
  if (::listen(socket_.get(), kBacklog) == 0) return;
  const std::string why = failure("cannot listen at " + endpoint);
  ::unlink(path_.c_str());
  throw FatalError(ErrorCode::kIo, why);
}

MemoryDoor::~MemoryDoor() {
  socket_ = Fd();
  ::unlink(path_.c_str());
}

Fd MemoryDoor::call(const std::string& endpoint) {
  const sockaddr_un address = address_of(endpoint);
  Fd socket = new_socket();
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw FatalError(ErrorCode::kUnavailable, failure("cannot connect to " + endpoint));
  return socket;
}

Fd MemoryDoor::accept() const {
  return Fd(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

}  // namespace foretoken
