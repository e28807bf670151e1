// How a section lists its keys: `v("draft_len", s.draft_len, in_range(0, 32), "one sentence")`.
// From that line come loading, the range error, "did you mean", --print-config,
// configs/foretoken.toml and the reference page. Keys are bool, integers, double, string, list of
// strings, or a ProposerSet, which a file has as one word or a list; a closed choice is a string
// with one_of(), so that files and code spell it alike.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace foretoken {

struct KeyLimit {
  enum class Kind : std::uint8_t {
    kAny,
    kNotEmpty,
    kRange,
    kOneOf,
    kMemory,
    kDevice,
    kEndpoint,
    kEndpointList,
    kListen,
    kWeights,
    kProposers
  };
  Kind kind = Kind::kAny;
  double low = 0;
  double high = 0;
  std::vector<std::string_view> choices = {};
};

inline KeyLimit anything() { return {}; }
// A text, or each text of a list.
inline KeyLimit not_empty() { return {KeyLimit::Kind::kNotEmpty, 0, 0, {}}; }
inline KeyLimit in_range(double low, double high) {
  return {KeyLimit::Kind::kRange, low, high, {}};
}
inline KeyLimit one_of(std::initializer_list<std::string_view> choices) {
  return {KeyLimit::Kind::kOneOf, 0, 0, choices};
}
// One of them, or a list of several without "none".
inline KeyLimit proposers(std::initializer_list<std::string_view> choices) {
  return {KeyLimit::Kind::kProposers, 0, 0, choices};
}
inline KeyLimit memory_amount() {
  return {KeyLimit::Kind::kMemory, 0, 0, {}};
}  // "60%" of free memory, "8GiB" or "56000 tokens"
inline KeyLimit device_list() {
  return {KeyLimit::Kind::kDevice, 0, 0, {}};
}  // "cpu", "cuda", "cuda:1", "cuda:0,1"
// ipc://name, ipc:///path, tcp://numeric-address:port, inproc://name; "{id}" stands for the
// instance.
inline KeyLimit endpoint() { return {KeyLimit::Kind::kEndpoint, 0, 0, {}}; }
// "ADDRESS:PORT" with a numeric address or localhost, or "".
inline KeyLimit listen_address() { return {KeyLimit::Kind::kListen, 0, 0, {}}; }
inline KeyLimit weights() { return {KeyLimit::Kind::kWeights, 0, 0, {}}; }  // "name=2.5"
inline KeyLimit endpoint_list() { return {KeyLimit::Kind::kEndpointList, 0, 0, {}}; }

}  // namespace foretoken
