// A link with a delay: takes connections on a port of the loopback address and hands every byte on
// to another address, and back, each a fixed time after it came. It does not look at the bytes, so
// encrypted ones pass. It adds no loss and no limit of bandwidth, and keeps the order of a
// connection's bytes; what waits in it is bounded, and a sender waits beyond that. Its own thread
// does the work; the other functions are for the thread that made it.
#pragma once

#include <string>
#include <thread>

#include "common/base/clock.h"
#include "common/base/fd.h"

namespace foretoken::bench {

class DelayRelay {
 public:
  // `to`: tcp://ADDRESS:PORT with a numeric address of version 4, or ipc://PATH. Throws FatalError
  // where `to` is no such address or no port can be had; whether something listens there shows with
  // the first connection, which is closed if nothing does.
  DelayRelay(const std::string& to, Duration one_way);
  ~DelayRelay();
  DelayRelay(const DelayRelay&) = delete;
  DelayRelay& operator=(const DelayRelay&) = delete;

  const std::string& endpoint() const { return endpoint_; }  // tcp://127.0.0.1:PORT

 private:
  std::string endpoint_;
  Fd stop_;  // readable: the thread ends
  std::thread thread_;
};

}  // namespace foretoken::bench
