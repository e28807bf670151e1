// What the readers of all protocols share: values of a JSON body, and a request to the router made
// of the router's own keys.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/limit.h"
#include "common/base/result.h"
#include "common/base/sampling_params.h"
#include "common/messages/client.h"
#include "services/edge/body_fields.h"
#include "services/edge/request_keys.h"

namespace foretoken::edge {

// A value out of its range, or of another type than the field has.
Error invalid_value(std::string message, std::string param);

// The member of this name; nullptr where it is absent or null.
const Json* given(const Json& body, const char* name);
// The same of a body in the order of its keys; null where it is absent.
const OrderedJson& member(const OrderedJson& object, const char* name);
std::string text_or_empty(const OrderedJson& value);  // "" of what is no text
// An error for what must be an object, or null, and is not. `name` is its path.
Result<void> check_object(const OrderedJson& value, const std::string& name);
// true or false; the default where it is absent.
Result<bool> flag(const Json& body, const char* name, bool otherwise = false);
// An integer within this limit; the value that means off is the lowest.
Result<std::int64_t> number(const Json& body,
                            const char* name,
                            const Limit& limit,
                            std::int64_t otherwise);

// Of an answer in tokens, where a protocol has no answer of none.
inline constexpr Limit kAnswerTokens = from_to(1, kToEndOfContext);

// What the page says of "speculation".
inline constexpr std::string_view kSpeculationNote =
    "of Foretoken: enabled, draft_len, proposer, adaptive, acceptance";
// What it says of a seed; then the same where the protocol itself has none.
inline constexpr std::string_view kSeedNote =
    "same seed and request, same answer, with any draft; -1 = not given";
inline constexpr std::string_view kOwnSeedNote =
    "of Foretoken: same answer with or without speculation; -1 = not given";
// {"enabled", "draft_len", "proposer", "adaptive", "acceptance"} of "speculation" -> keys of the
// request.
Result<void> read_speculation(const Json& body, Json& request);

// A request whose answer counts tokens or is their text.
struct TokensAsk {
  wire::ClientRequest request;
  std::vector<std::string> ignored;  // fields without an effect
};

// Checked as the router checks it. An error names the field that gave the key.
Result<wire::ClientRequest> router_request(const Json& request, std::span<const BodyField> fields);

// What of the configuration holds for a body.
struct BodyRules {
  bool strict = false;          // edge.strict
  std::size_t max_choices = 8;  // edge.max_choices
  // Of the requests that one body becomes, together: edge.max_bodies_mib.
  std::size_t max_request_bytes = std::size_t{64} << 20;
};

inline constexpr std::size_t kMostChoices = 16;  // that edge.max_choices may be
static_assert(kMostChoices <= kMaxChoice + 1);
inline constexpr Limit kChoicesLimit = from_to(1, kMostChoices);
// The number of answers that a field asks for.
Result<std::size_t> n_choices(const Json& body, const char* name, const BodyRules& rules);

// Several answers, as reproducible as one: those to one prompt share a seed and differ by their
// number.
struct WantedAnswers {
  Json shared;                // keys of every request
  std::vector<Json> prompts;  // and those that each prompt has beside them
  std::size_t n = 1;          // answers to each
};
// The answers to one prompt stand beside one another. An error: together they are larger than
// rules.max_request_bytes, for each has all that they share.
Result<std::vector<wire::ClientRequest>> router_requests(const WantedAnswers& wanted,
                                                         std::span<const BodyField> fields,
                                                         const BodyRules& rules);
// For a body that becomes more than it may.
Error too_large(std::size_t max_request_bytes);
// What requests take of the memory: their texts and lists.
std::size_t bytes_of(std::span<const wire::ClientRequest> requests);

}  // namespace foretoken::edge
