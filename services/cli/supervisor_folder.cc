#include "services/cli/supervisor_folder.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace foretoken::cli {
namespace {

constexpr auto kPidFile = "up.pid";
constexpr auto kStateFile = "up.json";

FatalError cannot_write(const std::filesystem::path& path, const std::string& why) {
  return FatalError(
      ErrorCode::kIo,
      "up keeps its files and logs in bus.runtime_dir, and " + path.string() +
          " cannot be written: " + why +
          "; make it writable, or name another folder (--set bus.runtime_dir=/FOLDER)");
}

// A zombie counts as ended: where process 1 of a container does not call wait(), its entry stays in
// the process table.
bool has_ended(int pid) {
  if (::kill(pid, 0) != 0) return true;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string stat(std::istreambuf_iterator<char>(file), {});
  const auto name_end = stat.rfind(") ");
  return name_end != std::string::npos && stat.compare(name_end + 2, 1, "Z") == 0;
}

// The kernel marks the path of a file that has no name any more.
bool is_program_replaced(int pid) {
  std::error_code cannot_see;
  return std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", cannot_see)
      .string()
      .ends_with(" (deleted)");
}

}  // namespace

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw cannot_write(folder, error.message());
}

void make_private_folder(const std::filesystem::path& folder) {
  make_folder(folder);
  std::error_code error;
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  if (error) throw cannot_write(folder, error.message());
}

int open_lock(const std::filesystem::path& folder) {
  const auto path = folder / kPidFile;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) throw cannot_write(path, std::strerror(errno));
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    ::close(fd);
    throw FatalError(ErrorCode::kIo,
                     "already running here: " + path.string() + " is held by another foretoken up");
  }
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(fd, 0) != 0 ||
      ::write(fd, pid.data(), pid.size()) != static_cast<ssize_t>(pid.size()))
    throw cannot_write(path, std::strerror(errno));
  return fd;
}

int open_notify_socket(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    throw std::system_error(errno, std::generic_category(), "cannot create the notify socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    throw FatalError(ErrorCode::kIo, "bus.runtime_dir: " + path + " has " +
                                         std::to_string(path.size()) +
                                         " bytes; a socket's path has at most 107");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  ::unlink(path.c_str());
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    throw cannot_write(path, std::strerror(errno));
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
  return fd;
}

void write_supervisor_state(const std::filesystem::path& folder, const OrderedJson& services) {
  const auto path = folder / kStateFile;
  const auto fresh = path.string() + ".new";
  std::ofstream(fresh) << to_text(OrderedJson{{"schema", "foretoken.up/1"}, {"services", services}})
                       << "\n";
  // A full disk costs `ps` a note and nothing else.
  std::error_code ignored;
  std::filesystem::rename(fresh, path, ignored);
}

void remove_supervisor_state(const std::filesystem::path& folder) {
  ::unlink((folder / kStateFile).c_str());
}

int supervisor_pid(const std::filesystem::path& runtime_folder) {
  const auto path = runtime_folder / kPidFile;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  // Only a held lock means a live one: a pid in a file may belong to any process by now.
  const bool held = ::flock(fd, LOCK_SH | LOCK_NB) != 0;
  char text[32] = {};
  const ssize_t size = ::read(fd, text, sizeof(text) - 1);
  ::close(fd);
  return held && size > 0 ? std::atoi(text) : 0;
}

std::vector<ServiceState> supervisor_state(const std::filesystem::path& runtime_folder) {
  std::ifstream file(runtime_folder / kStateFile);
  const auto parsed = parse_json(std::string(std::istreambuf_iterator<char>(file), {}));
  std::vector<ServiceState> states;
  if (!parsed.ok() || !parsed->is_object() || !parsed->contains("services") ||
      !(*parsed)["services"].is_array())
    return states;
  for (const auto& each : (*parsed)["services"]) {
    const auto text = [&](const char* key) {
      return each.is_object() && each.contains(key) && each[key].is_string()
                 ? each[key].get<std::string>()
                 : "";
    };
    const bool has_pid =
        each.is_object() && each.contains("pid") && each["pid"].is_number_integer();
    states.push_back({.name = text("name"),
                      .role = text("role"),
                      .state = text("state"),
                      .note = text("note"),
                      .pid = has_pid ? each["pid"].get<int>() : 0});
  }
  return states;
}

bool runs_replaced_program(const std::filesystem::path& runtime_folder) {
  if (is_program_replaced(supervisor_pid(runtime_folder))) return true;
  return std::ranges::any_of(supervisor_state(runtime_folder), [](const ServiceState& service) {
    return is_program_replaced(service.pid);
  });
}

bool stop_supervisor(int pid, std::chrono::seconds timeout) {
  return ::kill(pid, SIGTERM) != 0 || await_supervisor(pid, timeout);
}

bool await_supervisor(int pid, std::chrono::seconds timeout) {
  const auto deadline = steady_now() + timeout;
  while (steady_now() < deadline) {
    if (has_ended(pid)) return true;
    ::poll(nullptr, 0, 50);
  }
  return has_ended(pid);
}

}  // namespace foretoken::cli
