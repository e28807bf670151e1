// Client maps <-> structs. Strict in what comes in: unknown keys, wrong types, numbers out of
// range, not-a-number, invalid UTF-8 and trailing bytes are refused by name. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/base/bytes.h"
#include "common/base/result.h"
#include "common/messages/client.h"

namespace foretoken::wire {

// Error::param names the key to blame. A bad map still yields its request id if it has one, so that
// the answer can name it.
struct ClientRequestOutcome {
  Result<ClientRequest> request;
  std::optional<RequestId> request_id;
};
ClientRequestOutcome read_client_request(std::string_view bytes);
Bytes write_client_request(const ClientRequest& request);  // only what differs from the defaults

Bytes write_client_answer(const ClientAnswer& answer);
Result<ClientAnswer> read_client_answer(std::string_view bytes);
// An Error as the client sees it.
ClientError client_error(RequestId id, const Error& error, std::uint32_t retry_after_ms);

// [{"role": ..., "content": ...}, ...], as ENCODE carries messages to a chat template, and what the
// template sees beside them; "" = nothing.
std::string messages_json(std::span<const ChatMessage> messages);
std::string variables_json(const ClientRequest& request);
// Without tools there is nothing to choose.
ToolChoice tool_choice_of(const ClientRequest& request);
// What is wrong with them, as the rest of a sentence.
std::optional<std::string> problem_of(const JsonList& list);
std::optional<std::string> problem_of(const JsonObject& object);

std::string hex_of(std::uint64_t value);  // 16 digits; of a fingerprint
std::string hex_of(RequestId id);         // 32 digits
std::optional<RequestId> request_id_from_hex(std::string_view hex);

std::string client_document();  // docs/reference/client.md
std::string python_types();     // clients/python/foretoken/messages.py

}  // namespace foretoken::wire
