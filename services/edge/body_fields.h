// What an endpoint does with each field of a JSON body: one line a field. From these lines come the
// refusals, what is named as ignored, and docs/reference/http.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/limit.h"
#include "common/base/result.h"

namespace foretoken::edge {

enum class FieldUse : std::uint8_t {
  kHonoured,
  kIgnored,  // accepted, without an effect on the answer, and named as ignored
  kRefused,  // an error if it says anything
};

struct BodyField {
  std::string_view name;
  FieldUse use = FieldUse::kHonoured;
  // kHonoured: the key of a request to the router that takes the value as it is; "" = the endpoint
  // reads it itself.
  std::string_view key = {};
  // For the page, in place of the key's sentence; of a refused one, the error says it too.
  std::string_view note = {};
  // For the page, of one that the endpoint reads itself: the key that has its limit, or a limit of
  // the endpoint's own.
  std::string_view limit_key = {};
  Limit limit = {};
};

// The fields of a body, sorted by their use.
struct BodyOutcome {
  Json request = Json::object();     // key of a request to the router -> value
  std::vector<std::string> ignored;  // unknown names, and known ones without an effect
};
// `body` is an object. A null counts as not given, and so does the -1 of a seed. With `strict` an
// unknown name is an error.
Result<BodyOutcome> sort_fields(const Json& body, std::span<const BodyField> fields, bool strict);

// null, and -1, by which vLLM, llama.cpp and their clients ask for a random seed. Other negative
// numbers are seeds.
bool is_no_seed(const Json& seed);

// The fields of an endpoint that has those of another and some of its own.
std::vector<BodyField> joined_fields(std::span<const BodyField> own,
                                     std::span<const BodyField> common);

// The field that gives a key of the request to the router, for an error about that key.
std::string field_of(std::string_view key, std::span<const BodyField> fields);

}  // namespace foretoken::edge
