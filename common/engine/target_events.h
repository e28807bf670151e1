// What a target engine is asked and what it answers, as plain data: requests to open a sequence,
// and the events of a step. Every opened sequence ends in exactly one Done or one Failed; each
// position is delivered once, in order.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/base/sampling_params.h"
#include "common/base/vocabulary.h"
#include "common/kv/kv_cache.h"
#include "common/messages/request.h"
#include "common/spec/draft_length.h"
#include "common/spec/proposal.h"
#include "common/spec/spec_stats.h"
#include "kernels/include/ops.h"

namespace foretoken {

struct OpenRequest {
  SeqId seq{};
  std::vector<TokenId> prompt;
  // Tokens of the answer delivered elsewhere; they count, and are not sent again.
  std::vector<TokenId> resume;
  SamplingParams params;  // params.choice tells n parallel answers apart: open each of them
  // With params.n_prompt_logprobs: tokens of the prompt before this position need none.
  Position prompt_logprobs_from = 0;
  std::vector<TokenId> end_tokens;               // empty: the model's own
  ProposerSet proposers = ProposerKind::kDraft;  // none: plain decoding
  std::uint32_t draft_len = 4;  // most proposed tokens per round; 0 = plain decoding
  // Likewise, of sources other than a draft where the length is adaptive; counts if it is more.
  std::uint32_t lookup_len = 0;
  LengthMode length = LengthMode::kAdaptive;
  std::vector<TokenId> prediction;  // for ProposerKind::kPrediction
  TimePoint deadline = TimePoint::max();
  std::int32_t priority = 0;      // higher goes first
  std::uint64_t tenant_salt = 0;  // separates prefix caches
  std::uint64_t flow = 0;         // flows share a pass, see fair_rows()
  double flow_weight = 1;         // above 0
};

struct SequenceStats {
  std::uint32_t n_prompt = 0;
  std::uint32_t n_output = 0;  // of the whole answer, resumed tokens included
  std::uint32_t n_cached = 0;  // prompt tokens found in the prefix cache when it was first admitted
  std::uint32_t n_steps = 0;   // passes that committed tokens of it
  std::uint32_t n_preemptions = 0;
  std::uint32_t draft_len = 0;  // most proposed tokens per round that it was allowed
  TimePoint opened{};
  TimePoint admitted{};  // first rows; zero if never
  SpecStats spec;
  // Its rounds, by verified tokens and by accepted ones of these: [n_verified][n_accepted].
  std::vector<std::vector<std::uint32_t>> rounds_by_length;

  void record_length(std::size_t n_verified, std::size_t n_accepted) {
    if (rounds_by_length.size() <= n_verified) rounds_by_length.resize(n_verified + 1);
    rounds_by_length[n_verified].resize(n_verified + 1);
    ++rounds_by_length[n_verified][n_accepted];
  }
};

struct TokensEvent {
  SeqId seq{};
  wire::Tokens tokens;  // what the router is sent of them
};

struct DoneEvent {
  SeqId seq{};
  FinishReason reason = FinishReason::kStop;
  TokenId stop_token = -1;  // the id that ended it, if one did
  SequenceStats stats;
};

struct FailedEvent {
  SeqId seq{};
  Error error;
  SequenceStats stats;
};

struct StepOutput {
  // Tokens of prompts whose log-probabilities were asked for, in order, with these; before the
  // first tokens of the same sequence.
  std::vector<TokensEvent> prompts;
  std::vector<TokensEvent> tokens;  // before the Done of the same sequence
  std::vector<DoneEvent> done;
  std::vector<FailedEvent> failed;
  std::uint32_t n_rows = 0;  // 0: nothing was run
  std::uint32_t n_committed = 0;
  std::uint32_t n_verified = 0;  // proposed tokens that the pass had rows for
  std::uint32_t n_accepted = 0;  // of those, delivered
  std::uint32_t n_sequences = 0;
};

struct ProposalTally {
  std::uint64_t n_right = 0;  // the text went on so
  std::uint64_t n_wrong = 0;
  bool operator==(const ProposalTally&) const = default;
};

// Totals since the engine was made, except where "now".
struct TargetSnapshot {
  std::uint32_t n_running = 0;         // now
  std::uint32_t n_waiting = 0;         // now, preempted ones included
  std::uint32_t n_held_back = 0;       // now, of those: for a prompt that another one computes
  std::uint64_t n_waiting_tokens = 0;  // now: tokens to be prefilled, without those held back
  KvStats kv;
  std::uint64_t n_opened = 0;
  std::uint64_t n_refused = 0;
  std::uint64_t n_done = 0;
  std::uint64_t n_failed = 0;
  std::uint64_t n_steps = 0;
  std::uint64_t n_rows = 0;
  std::uint64_t n_prompt_rows = 0;       // of prompts, those computed again not counted
  std::uint64_t n_looked_up_tokens = 0;  // of prompts when they were first admitted
  std::uint64_t n_found_tokens = 0;      // of these, in the prefix cache
  std::uint64_t n_tokens = 0;            // committed
  std::uint64_t n_preemptions = 0;
  std::uint64_t n_cut_steps = 0;     // in which a flow had fewer rows than it wanted
  std::uint64_t n_silent_steps = 0;  // after which no draft was asked, as that had not paid
  SpecStats spec;
  // What became of the proposals of each kind, verified or not; and how many of the proposed tokens
  // several of them had said.
  std::array<ProposalTally, kProposerKinds> proposals{};
  std::uint64_t n_agreed = 0;
};

}  // namespace foretoken
