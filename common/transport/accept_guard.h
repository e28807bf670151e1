// libzmq 4.3.4 ends the process when accept4() at an ipc door finds no free descriptor
// (ipc_listener.cpp tolerates ENFILE, not EMFILE), and at a tcp door it asks again without a pause.
// So a program with this file in it has an accept4() of its own, which libzmq calls instead of the
// C library's: a peer for whom there is no descriptor is turned away, and tries again later as
// after any lost connection.
#pragma once

#include <cstdint>

namespace foretoken {

// Opens the descriptor that is kept in reserve to turn peers away. Idempotent; any thread.
void prepare_to_turn_away();

// Since start. Logged when it begins, and once a minute.
std::uint64_t connections_turned_away();

}  // namespace foretoken
