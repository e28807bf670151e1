#include "common/client/listener.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "common/transport/endpoint.h"

namespace foretoken {
namespace {

// On this host the answer is there at once; one from another host is not waited for longer.
constexpr int kAnswerMs = 50;

// 0 or an errno value; ETIMEDOUT without an answer.
int connect_once(const sockaddr* address, socklen_t size) {
  const int fd = ::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  int why = ::connect(fd, address, size) == 0 ? 0 : errno;
  if (why == EINPROGRESS) {
    pollfd answer{fd, POLLOUT, 0};
    socklen_t length = sizeof(why);
    if (::poll(&answer, 1, kAnswerMs) != 1)
      why = ETIMEDOUT;
    else if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &length) != 0)
      why = errno;
  }
  ::close(fd);
  return why;
}

int connect_ipc(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);  // parse_endpoint bounds it
  return connect_once(reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

int connect_tcp(const Endpoint& endpoint) {
  std::string host = endpoint.place;
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), endpoint.port.c_str(), &hints, &found) != 0) return EINVAL;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  return connect_once(found->ai_addr, found->ai_addrlen);
}

}  // namespace

Listener listener_at(const std::string& text) {
  const auto endpoint = parse_endpoint(text);
  if (!endpoint.ok() || endpoint->scheme == Scheme::kInproc) return Listener::kUnknown;
  const int why =
      endpoint->scheme == Scheme::kIpc ? connect_ipc(endpoint->place) : connect_tcp(*endpoint);
  // A full backlog of an ipc socket is EAGAIN: something listens, and does not accept.
  if (why == 0 || why == EAGAIN) return Listener::kSome;
  return why == ECONNREFUSED || why == ENOENT ? Listener::kNone : Listener::kUnknown;
}

}  // namespace foretoken
