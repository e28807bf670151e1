#include "common/transport/memory_greeting.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace foretoken {
namespace {

// What each side sends once, with the descriptor of its region.
struct Greeting {
  std::array<char, 8> magic{'F', 'T', 'K', 'N', 'S', 'H', 'M', '1'};
  std::uint32_t ring_bytes = 0;
  std::uint32_t unused = 0;
};
static_assert(sizeof(Greeting) == 16);

msghdr message_of(iovec& data, std::span<char> control) {
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  return message;
}

// Every descriptor that came with a message, for there may be more than were asked for.
std::vector<Fd> descriptors_of(msghdr& message) {
  std::vector<Fd> found;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t n = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < n; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      found.emplace_back(fd);
    }
  }
  return found;
}

}  // namespace

bool send_greeting(int socket, std::size_t ring_bytes, int region) {
  Greeting greeting;
  greeting.ring_bytes = static_cast<std::uint32_t>(ring_bytes);
  iovec data{&greeting, sizeof greeting};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message = message_of(data, control);
  cmsghdr* attached = CMSG_FIRSTHDR(&message);
  attached->cmsg_level = SOL_SOCKET;
  attached->cmsg_type = SCM_RIGHTS;
  attached->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(attached), &region, sizeof region);
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof greeting);
}

MemoryGreeting receive_greeting(int socket) {
  using Kind = MemoryGreeting::Kind;
  Greeting greeting;
  iovec data{&greeting, sizeof greeting};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
  msghdr message = message_of(data, control);
  const ssize_t n_bytes = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n_bytes < 0)
    return {.kind = errno == EAGAIN || errno == EINTR ? Kind::kNotYet : Kind::kWrong};
  std::vector<Fd> came = descriptors_of(message);
  if (n_bytes == 0) return {.kind = Kind::kLeft};
  const bool is_sound = n_bytes == static_cast<ssize_t>(sizeof greeting) &&
                        greeting.magic == Greeting{}.magic && is_ring_size(greeting.ring_bytes);
  if (came.size() != 1 || !is_sound) return {.kind = Kind::kWrong};
  return {
      .kind = Kind::kSound, .ring_bytes = greeting.ring_bytes, .region = std::move(came.front())};
}

}  // namespace foretoken
