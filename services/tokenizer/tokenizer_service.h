// The tokenizer as a service: prompts to ids, ids back to text as they come, stop strings found.
// What it keeps of a stream can be computed again from its first token, so a stream may be
// forgotten at any time: the router replays it. Answers name positions and byte offsets, which
// makes repeated and late ones harmless. Work thread only.
//
// Decoding goes before encoding: text of running answers is decoded as it comes; prompts wait in an
// EncodeQueue, short ones for a turn of the work thread, long ones for the thread beside it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/config/sections.h"
#include "common/runtime/worker_service.h"
#include "common/tokenizer/stream_decoder.h"
#include "common/tokenizer/tokenizer.h"
#include "common/wire/codec.h"
#include "services/tokenizer/encode_queue.h"
#include "services/tokenizer/encode_thread.h"
#include "services/tokenizer/encoder.h"
#include "services/tokenizer/model_form.h"

namespace foretoken {

// Where prompts are encoded that are too long for a turn of the work thread: in turns of their own,
// for simulations, or on a thread.
enum class LongEncodings : std::uint8_t { kInTurns, kOnThread };

struct TokenizerServiceOptions {
  std::string router;  // endpoint
  Duration heartbeat = std::chrono::milliseconds(250);
  std::size_t max_streams = 8192;  // the one untouched longest makes room
  Duration keep_stream =
      std::chrono::minutes(5);  // untouched; the router replays it should it still want it
  LongEncodings long_encodings = LongEncodings::kInTurns;
  EncodeQueue::Limits encode_queue;
  ModelForm form;  // what the tokenizer's model writes
};

TokenizerServiceOptions tokenizer_options(const Config& config);
wire::Hello tokenizer_hello(const Config& config,
                            const std::string& name,
                            const Tokenizer& tokenizer,
                            const ModelForm& form);

class TokenizerService final : public WorkerService {
 public:
  TokenizerService(const TokenizerServiceOptions& options,
                   const wire::Hello& hello,
                   const Tokenizer& tokenizer,
                   ChatRenderer render,
                   wire::Speaker& speaker,
                   Metrics& metrics);

  void on_end() override { thread_.reset(); }
  std::string status() const override;

 private:
  struct Stream {
    StreamDecoder decoder;
    std::vector<std::string> stops;
    bool with_ends = false;     // TEXT says where each token's text ends
    Position next = 0;          // absolute position of the next token
    std::uint32_t n_bytes = 0;  // of text given out
    TimePoint touched{};
  };

  // What the thread encodes now.
  struct Running {
    RequestId id;
    std::uint64_t content = 0;
    bool holds_template = false;
    bool wanted = true;
    TimePoint since{};
  };
  // An answer that may have got lost: asked again it is not encoded again.
  struct Answered {
    RequestId id;
    std::uint64_t content = 0;
    wire::Message answer;
    std::size_t bytes = 0;
    TimePoint at{};
  };

  void open(Bus& bus, wire::Hello& hello) override;
  bool on_router_message(const wire::Header& header, wire::Message& message) override;
  void on_new_router() override;
  TimePoint work(TimePoint now) override;
  wire::Heartbeat own_load() const override;
  void list_metrics(Metrics& metrics) override;

  void on_encode(RequestId id, wire::Encode encode, TimePoint now);
  void encode_some(TimePoint now);
  bool is_short(const EncodeQueue::WaitingPrompt& prompt) const;
  void encode_short(TimePoint now);
  void encode_long(TimePoint now);
  void answer(RequestId id, std::uint64_t content, Result<wire::Encoded> result, TimePoint now);
  void forget_prompt(RequestId id);
  void forget_prompts();
  void on_stream_open(RequestId id, const wire::StreamOpen& open, TimePoint now);
  void on_decode(RequestId id, const wire::Decode& decode, TimePoint now);
  void forget_old(TimePoint now);

  TokenizerServiceOptions options_;
  const Tokenizer& tokenizer_;
  PromptEncoder encoder_;
  std::unordered_map<RequestId, Stream> streams_;
  EncodeQueue prompts_;
  std::vector<RequestId> unacknowledged_;  // of this turn, perhaps waiting
  std::deque<Answered> answered_;
  std::size_t answered_bytes_ = 0;
  std::optional<Running> running_;
  TimePoint rest_until_{};  // of the thread
  bool more_short_ = false;
  TimePoint next_sweep_{};
  std::uint64_t n_encoded_ = 0, n_repeated_ = 0, n_unwanted_ = 0, n_prompt_tokens_ = 0,
                n_decoded_ = 0, n_stops_ = 0, n_lost_ = 0;
  std::unique_ptr<EncodeThread> thread_;  // last: it uses the encoder until it ends, and the bus
};

}  // namespace foretoken
