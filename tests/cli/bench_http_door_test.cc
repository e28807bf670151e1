// bench over HTTP with more connections at a time than this process may have files open.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "services/cli/bench_door.h"

namespace foretoken::cli {
namespace {

// The port of 127.0.0.1 at which so many connections wait to be accepted.
std::string listening_port(int n_waiting) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* place = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener, place, size) != 0 || ::listen(listener, n_waiting) != 0 ||
      ::getsockname(listener, place, &size) != 0)
    return {};
  return std::to_string(ntohs(address.sin_port));
}

void limit_descriptors(rlim_t soft, bool is_final) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = soft;
  if (is_final) limit.rlim_max = soft;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// In a process of its own: the hard limit cannot be raised again.
[[noreturn]] void send_beyond_the_limit() {
  limit_descriptors(64, false);
  const auto door = http_door({.host = "127.0.0.1", .port = listening_port(128)});
  std::size_t n_sent = 0;
  while (n_sent < 100 && door->send(n_sent, {}).ok()) ++n_sent;
  limit_descriptors(64, true);
  const auto last = door->send(n_sent, {});
  std::fprintf(stderr, "%zu sent; %s", n_sent, last.ok() ? "ok" : last.error().message.c_str());
  std::_Exit(!last.ok() && last.error().code == ErrorCode::kIo ? 0 : 1);
}

TEST(HttpDoor, RaisesTheLimitOfDescriptorsAndNamesIt) {
  EXPECT_EXIT(send_beyond_the_limit(), testing::ExitedWithCode(0),
              "100 sent; this process may have no more than 64 files and sockets open");
}

}  // namespace
}  // namespace foretoken::cli
