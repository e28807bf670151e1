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

// Several answers to one request, as reproducible as one: they share a seed and differ by their
// number.
inline constexpr std::size_t kMaxAnswers = 8;
static_assert(kMaxAnswers <= kMaxChoice + 1);
inline constexpr Limit kAnswersLimit = from_to(1, kMaxAnswers);
Result<std::vector<wire::ClientRequest>> router_requests(Json request,
                                                         std::size_t n,
                                                         std::span<const BodyField> fields);

}  // namespace foretoken::edge
