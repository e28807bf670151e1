// The tokenizer as a service: prompts to ids, ids back to text as they come, stop strings found.
// What it keeps of a stream can be computed again from its first token, so a stream may be
// forgotten at any time: the router replays it. Answers name positions and byte offsets, which
// makes repeated and late ones harmless. Work thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>

#include "common/config/sections.h"
#include "common/runtime/metrics.h"
#include "common/runtime/router_link.h"
#include "common/runtime/service.h"
#include "common/tokenizer/stream_decoder.h"
#include "common/tokenizer/tokenizer.h"
#include "common/wire/codec.h"

namespace foretoken {

// Messages (JSON array), whether to open the assistant's turn, extra variables (JSON object or
// empty) -> the prompt's text.
using ChatRenderer = std::function<Result<std::string>(
    const std::string& messages, bool add_generation_prompt, const std::string& variables)>;

struct TokenizerServiceOptions {
  std::string router;  // endpoint
  Duration heartbeat = std::chrono::milliseconds(250);
  std::size_t max_streams = 8192;  // the one untouched longest makes room
  Duration keep_stream =
      std::chrono::minutes(5);  // untouched; the router replays it should it still want it
};

TokenizerServiceOptions tokenizer_options(const Config& config);
wire::Hello tokenizer_hello(const Config& config,
                            const std::string& name,
                            const Tokenizer& tokenizer);

class TokenizerService final : public Service {
 public:
  TokenizerService(const TokenizerServiceOptions& options,
                   const wire::Hello& hello,
                   const Tokenizer& tokenizer,
                   ChatRenderer render,
                   wire::Speaker& speaker,
                   Metrics& metrics);

  void start(Bus& bus) override;
  void on_message(Delivery delivery) override;
  void on_dropped(const Peer& peer, const Frames& frames) override;
  TimePoint on_turn(TimePoint now) override;
  void drain(TimePoint deadline) override;
  bool drained() const override;
  std::string status() const override;

 private:
  struct Stream {
    StreamDecoder decoder;
    std::vector<std::string> stops;
    Position next = 0;          // absolute position of the next token
    std::uint32_t n_bytes = 0;  // of text given out
    TimePoint touched{};
  };

  void on_encode(RequestId id, const wire::Encode& encode);
  Result<wire::Encoded> encoded(const wire::Encode& encode) const;
  Result<std::vector<TokenId>> prompt_of(const wire::Encode& encode) const;
  void on_stream_open(RequestId id, const wire::StreamOpen& open, TimePoint now);
  void on_decode(RequestId id, const wire::Decode& decode, TimePoint now);
  void forget_old(TimePoint now);
  void leave_if_drained(TimePoint now);
  wire::Heartbeat load() const;

  TokenizerServiceOptions options_;
  const Tokenizer& tokenizer_;
  ChatRenderer render_;
  Metrics& metrics_;
  RouterLink link_;
  Bus* bus_ = nullptr;
  std::unordered_map<RequestId, Stream> streams_;
  TimePoint next_sweep_{};
  std::uint64_t n_encoded_ = 0, n_prompt_tokens_ = 0, n_decoded_ = 0, n_stops_ = 0, n_lost_ = 0,
                n_unassigned_ = 0, malformed_ = 0;
  bool draining_ = false;
  TimePoint drain_deadline_{};
  bool said_goodbye_ = false;
};

}  // namespace foretoken
