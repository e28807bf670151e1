#include "common/transport/zmq_auth.h"

#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

#include "common/base/check.h"

namespace foretoken {
namespace {

constexpr std::size_t kZ85KeyChars = 40;
constexpr std::size_t kMaxKeyFileBytes = std::size_t{1}
                                         << 20;  // thousands of peers; anything larger is a mistake

Error bad_key_file(const std::string& file, const std::string& what) {
  return {ErrorCode::kConfig, file + ": " + what};
}

bool is_key(const std::string& text) {
  std::array<std::uint8_t, 32> raw{};
  return text.size() == kZ85KeyChars && zmq_z85_decode(raw.data(), text.c_str()) != nullptr;
}

Result<std::vector<std::string>> lines_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return bad_key_file(file, "cannot be read");
  std::vector<std::string> lines;
  std::size_t total = 0;
  for (std::string line; std::getline(in, line);) {
    total += line.size();
    if (total > kMaxKeyFileBytes) return bad_key_file(file, "is larger than 1 MiB");
    const auto end = line.find_last_not_of(" \t\r");
    lines.push_back(end == std::string::npos ? "" : line.substr(0, end + 1));
  }
  return lines;
}

// name = "value"
std::optional<std::string> setting(const std::string& line, const std::string& name) {
  std::istringstream words(line);
  std::string key, equals, value;
  words >> key >> equals >> value;
  if (key != name || equals != "=" || value.size() < 2 || value.front() != '"' ||
      value.back() != '"')
    return std::nullopt;
  return value.substr(1, value.size() - 2);
}

}  // namespace

// A credential of systemd belongs to root, and its group bits are the mask of an access list.
Result<CurveKeys> read_curve_keys(const std::string& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) == 0) {
    const unsigned others = info.st_uid == ::geteuid() ? 0077 : 0007;
    if ((info.st_mode & others) != 0) {
      std::ostringstream mode;
      mode << std::oct << (info.st_mode & 07777);
      return bad_key_file(file,
                          "holds a secret key and has mode 0" + mode.str() +
                              ", so others may read or change it; it must be 0600 (chmod 600)");
    }
  }
  auto lines = lines_of(file);
  if (!lines.ok()) return std::move(lines).error();
  CurveKeys keys;
  for (const auto& line : *lines) {
    if (const auto value = setting(line, "public")) keys.public_key = *value;
    if (const auto value = setting(line, "secret")) keys.secret_key = *value;
  }
  // Never print what was found: it may be most of a secret.
  if (!is_key(keys.public_key))
    return bad_key_file(file, "has no line: public = \"<40 characters of Z85>\"");
  if (!is_key(keys.secret_key))
    return bad_key_file(file, "has no line: secret = \"<40 characters of Z85>\"");
  return keys;
}

Result<std::vector<CurvePeer>> read_curve_peers(const std::string& file) {
  auto lines = lines_of(file);
  if (!lines.ok()) return std::move(lines).error();
  std::vector<CurvePeer> peers;
  for (std::size_t i = 0; i < lines->size(); ++i) {
    std::istringstream words((*lines)[i]);
    CurvePeer peer;
    std::string extra;
    if (!(words >> peer.key) || peer.key.front() == '#') continue;
    words >> peer.user >> peer.endpoint;
    const auto at = "line " + std::to_string(i + 1) + ": ";
    if (!is_key(peer.key))
      return bad_key_file(file, at + "the first word is not a public key of 40 characters of Z85");
    if (peer.user.find(':') == std::string::npos || peer.user.size() > 128)
      return bad_key_file(file, at + "the second word must be role:name, such as draft:draft-0");
    if (words >> extra) return bad_key_file(file, at + "more than three words");
    peers.push_back(std::move(peer));
  }
  return peers;
}

CurveKeys new_curve_keys() {
  std::array<char, kZ85KeyChars + 1> public_key{};
  std::array<char, kZ85KeyChars + 1> secret_key{};
  FORETOKEN_CHECK(zmq_curve_keypair(public_key.data(), secret_key.data()) == 0,
                  "libzmq without CURVE");
  return {public_key.data(), secret_key.data()};
}

std::string curve_key_file(const CurveKeys& keys) {
  return "public = \"" + keys.public_key + "\"\nsecret = \"" + keys.secret_key + "\"\n";
}

bool role_may_enter(std::string_view role, Door door) {
  static constexpr std::array<std::string_view, 6> kInternal{"router", "tokenizer", "draft",
                                                             "target", "edge",      "tool"};
  static constexpr std::array<std::string_view, 3> kClient{"client", "edge", "tool"};
  const auto among = [&](const auto& roles) {
    return std::find(roles.begin(), roles.end(), role) != roles.end();
  };
  return door == Door::kClient ? among(kClient) : among(kInternal);
}

// Request: version, request id, domain, address, identity, mechanism, credentials. The domain names
// the door.
Frames answer_zap(const Frames& request, const std::vector<CurvePeer>& peers) {
  const std::string id = request.size() > 1 ? request[1] : "";
  const auto refuse = [&](const char* why) { return Frames{"1.0", id, "400", why, "", ""}; };
  if (request.size() != 7 || request[0] != "1.0") return refuse("not a ZAP 1.0 request for CURVE");
  if (request[5] != "CURVE" || request[6].size() != 32) return refuse("only CURVE is taken here");
  const Door door = request[2] == "client" ? Door::kClient : Door::kInternal;
  std::array<char, kZ85KeyChars + 1> key{};
  zmq_z85_encode(key.data(), reinterpret_cast<const std::uint8_t*>(request[6].data()),
                 request[6].size());
  for (const auto& peer : peers) {
    if (peer.key != key.data()) continue;
    const auto role = std::string_view(peer.user).substr(0, peer.user.find(':'));
    if (!role_may_enter(role, door)) return refuse("this role may not use this door");
    return {"1.0", id, "200", "OK", peer.user, ""};
  }
  return refuse("this key is not listed");
}

}  // namespace foretoken
