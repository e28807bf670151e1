// Stands between clients and the socket that answers them, and copies bytes both ways. Two reasons:
//
// 1. libzmq 4.3.4 aborts when a connection reports its end while a full queue has stopped its input
//    and a PING waits among the bytes read before (stream_engine_base.cpp, out_event: !_io_error),
//    so a client that floods with heartbeats on and vanishes would end the process. The relay's own
//    connection to the socket never reports an end: when a client is gone its sending half is shut
//    down, behind what the client sent, and answers are discarded until the socket has closed.
// 2. What a client costs is bounded here: connections, bytes held for one, the time in which it
//    takes none of them, and the size of a message that has not ended (message_meter.h).
//
// Of ZMTP the relay reads the headers of frames, and of CURVE nothing. One thread of its own;
// everything else is called by the thread that owns the transport.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/transport/endpoint.h"

namespace foretoken {

struct ClientRelayLimits {
  // Further ones wait until one ends. Meanwhile those that have sent no greeting for 2 s are
  // disconnected.
  std::size_t max_connections = 16384;
  // A client that takes none of the bytes waiting for it for this long, while this process runs, is
  // disconnected.
  Duration patience = std::chrono::seconds(30);
  // A client that sends more than this of one message before its last part is disconnected. With
  // keys the parts are sealed, and not counted.
  std::size_t max_message_bytes = std::size_t{2} << 20;
};

// Since start; any thread may read them.
struct ClientRelayCounters {
  std::atomic<std::uint64_t> connections{0};  // now
  std::atomic<std::uint64_t> accepted{0};
  std::atomic<std::uint64_t> cut_slow{0};       // took nothing for as long as the limits say
  std::atomic<std::uint64_t> cut_silent{0};     // sent no greeting, and others waited for room
  std::atomic<std::uint64_t> cut_too_large{0};  // a message larger than the limits say
};

class ClientRelay {
 public:
  // Bytes kept for each direction of a connection when the other side does not take them.
  static constexpr std::size_t kChunk = std::size_t{64} << 10;

  // Listens where clients connect, tcp or ipc; each of them is led to the abstract Unix socket of
  // this name, where another process listens already. Throws FatalError, with `text` for the
  // endpoint.
  ClientRelay(const Endpoint& where,
              const std::string& text,
              std::string inner_name,
              const ClientRelayLimits& limits = {});
  // Delivers what the socket, closed before, had sent, within half a second in which it runs.
  ~ClientRelay();
  ClientRelay(const ClientRelay&) = delete;
  ClientRelay& operator=(const ClientRelay&) = delete;

  // As bound, a wildcard port resolved.
  const std::string& endpoint() const { return endpoint_; }
  // Takes no more clients; those that are here stay.
  void stop_listening();
  const ClientRelayCounters& counters() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
  std::string endpoint_;
};

// How many clients this process has descriptors for, three each, when `n_reserved` are left to
// everything else.
std::size_t clients_within_descriptor_limit(std::size_t n_reserved);

}  // namespace foretoken
