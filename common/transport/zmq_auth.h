// CURVE keys and what their owners may do. A key file holds this process's pair; a peers file lists
// public keys with roles, and for services that take connections also the endpoint at which that
// key answers:
//
//   secret file:   public = "<40 characters>"      peers file:  <40 characters> draft:draft-0
//   tcp://10.0.0.7:5601
//                  secret = "<40 characters>"                   <40 characters> client:alice
//
// Who a peer is follows from its key, never from what it says. Files are read once.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/transport/transport.h"

namespace foretoken {

struct CurveKeys {
  std::string public_key;  // Z85, 40 characters
  std::string secret_key;
};

struct CurvePeer {
  std::string key;
  std::string user;      // "role:name"
  std::string endpoint;  // empty if it takes no connections
};

Result<CurveKeys> read_curve_keys(const std::string& file);
Result<std::vector<CurvePeer>> read_curve_peers(const std::string& file);
CurveKeys new_curve_keys();
std::string curve_key_file(const CurveKeys& keys);  // its text

// May the owner of this role use that door? Services use the internal one; clients, tools and edges
// the other.
bool role_may_enter(std::string_view role, Door door);

// Answers one ZAP 1.0 request for a CURVE handshake: parts in, parts out. Anything it does not
// understand is refused.
Frames answer_zap(const Frames& request, const std::vector<CurvePeer>& peers);

}  // namespace foretoken
