// Where a link through shared memory begins: the socket file of shm:///PATH. One process serves a
// door and is called by others. The file is for this user alone and goes with its door; the lock
// beside it keeps a door that a process serves from being taken away, and tells one that was left
// by a dead process. It uses no link; descriptors belong to their receiver. Never waits.
#pragma once

#include <string>
#include <string_view>

#include "common/base/fd.h"
#include "common/transport/file_lock.h"

namespace foretoken {

class MemoryDoor {
 public:
  static constexpr std::string_view kScheme = "shm://";

  explicit MemoryDoor(const std::string& endpoint);  // throws FatalError: another serves it
  ~MemoryDoor();
  MemoryDoor(const MemoryDoor&) = delete;
  MemoryDoor& operator=(const MemoryDoor&) = delete;

  // A connection to another's door. Throws FatalError: no process serves it.
  static Fd call(const std::string& endpoint);

  int fd() const { return socket_.get(); }  // readable when a connection waits
  Fd accept() const;                        // the next of those who came; none if there is none

 private:
  FileLock lock_;  // no process takes another's door
  std::string path_;
  Fd socket_;
};

}  // namespace foretoken
