// What the router knows of one request. Plain state of the RequestTable that owns it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/fair_queue.h"
#include "common/base/ids.h"
#include "common/messages/client.h"
#include "common/messages/messages.h"
#include "common/transport/transport.h"

namespace foretoken {

enum class RequestPhase : std::uint8_t {
  kEncoding,  // a tokenizer has it, or it waits for one
  kPlacing,   // waits for a target, or for others before it
  kRunning,   // a target works on it
  kFlushing,  // all tokens are here; the last text is not
  kCounting,  // a stop string cut it; the target's counts are awaited for a moment
};

// The retry timer of a message to a worker: whether one runs, and when it fires.
struct Retry {
  bool open = false;
  bool loss_suspected = false;  // something seems to be lost: ask soon
  TimePoint again{};
  Duration interval{};
};

// From its first map to its one reply or one error.
struct RequestRow {
  wire::ClientRequest request;
  std::uint64_t content = 0;
  Peer peer;
  FlowId flow = 0;  // whose it is: places are taken in turn
  RequestPhase phase = RequestPhase::kEncoding;
  TimePoint arrived{}, waiting_since{}, deadline{}, first_token{}, last_token{}, counting_until{},
      client_refused_since{};

  std::optional<WorkerId> tokenizer, target;
  std::vector<WorkerId> refused_by;         // since it was last placed or told to wait
  std::optional<wire::Hello> target_hello;  // of the first one: where else it may go on
  wire::Fingerprints encoding;              // vocabulary and text of the tokenizer it needs
  Retry tokenizer_retry, target_retry;
  // Before all services had registered: its model is settled when they have.
  bool came_early = false;
  bool encode_taken = false;                  // the tokenizer has said that it has the prompt
  bool encode_moved = false;                  // since then, to one that was idle: once is enough
  std::optional<TimePoint> encode_elsewhere;  // when that may be
  bool started = false;  // the target has shown tokens since it was given the request
  std::uint32_t migrations = 0;
  std::optional<wire::Busy> refusal;

  wire::Encoded encoded;  // prompt, bad words, prediction
  std::vector<TokenId> output;
  std::vector<TokenLogprobs> logprobs;
  std::vector<std::uint8_t> guessed;  // per output token

  std::string text;                       // all of it so far
  std::uint32_t n_detokenized = 0;        // output tokens the tokenizer has confirmed
  std::uint32_t n_sent_to_tokenizer = 0;  // output tokens it was sent
  bool final_sent = false, final_confirmed = false;
  std::size_t delivered_bytes = 0;  // of text, in pieces
  std::uint32_t delivered_tokens = 0;
  std::optional<std::string> stop_string;
  std::optional<wire::Done> done;
};

}  // namespace foretoken
