// What a client is told of its request, made of what the router knows of it.
#pragma once

#include <cstdint>

#include "common/messages/client.h"
#include "common/messages/messages.h"
#include "services/router/request_row.h"

namespace foretoken {

// The text that no piece has carried yet, and the tokens whose text is in it.
wire::ClientPiece next_piece(RequestId id, const RequestRow& row);

// All of the answer with its counts. default_draft_len: of requests that did not say one.
wire::ClientReply whole_reply(RequestId id,
                              const RequestRow& row,
                              FinishReason reason,
                              std::uint32_t default_draft_len);

// The same for a client that has had the row's pieces: text, tokens and logprobs are those after
// them.
wire::ClientReply without_pieces(wire::ClientReply whole, const RequestRow& row);

}  // namespace foretoken
