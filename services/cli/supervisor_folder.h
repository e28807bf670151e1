// The folder by which a supervisor is found: its lock, which holds its pid, the socket on which its
// services notify it, and the last recorded state of each. With what other processes do with it:
// look, and ask the supervisor to stop. Must not know how services are started or watched.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/json.h"

namespace foretoken::cli {

// ---- by the supervisor. make_folder(), make_private_folder() and open_lock() throw FatalError
// where the folder does not allow it.

// With all that is above it.
void make_folder(const std::filesystem::path& folder);
// For its owner alone.
void make_private_folder(const std::filesystem::path& folder);
// Holds the lock until the descriptor is closed. The file stays: unlinking a locked file would let
// two supervisors hold "the" lock.
int open_lock(const std::filesystem::path& folder);
int open_notify_socket(const std::string& path);
// `services`: of each an object with the fields of ServiceState at least.
void write_supervisor_state(const std::filesystem::path& folder, const OrderedJson& services);
void remove_supervisor_state(const std::filesystem::path& folder);

// ---- by others

// The pid of the live supervisor that holds `runtime_folder`, or 0.
int supervisor_pid(const std::filesystem::path& runtime_folder);

// The last recorded state of each service of `runtime_folder`; empty if there is no record.
struct ServiceState {
  std::string name, role;
  std::string state;  // the name of a ProcessState
  std::string note;   // how often it was restarted and how it ended last; empty if it never did
  int pid = 0;        // 0: it does not run
};
std::vector<ServiceState> supervisor_state(const std::filesystem::path& runtime_folder);

// Whether that supervisor, or one of its services, runs a program whose file has been replaced or
// removed since it was started.
bool runs_replaced_program(const std::filesystem::path& runtime_folder);

// Asks that supervisor to stop and waits for its end; asked a second time it ends at once. False if
// it is still there after `timeout`.
bool stop_supervisor(int pid, std::chrono::seconds timeout);
bool await_supervisor(int pid, std::chrono::seconds timeout);

}  // namespace foretoken::cli
