// Messages between a target and its drafts. The target owns the truth: under coupled acceptance
// nothing a draft says can change a token. Everything towards the draft is cumulative and may be
// repeated or lost. Part of messages.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/sampling_params.h"
#include "common/messages/types.h"

namespace foretoken::wire {

struct Attach {
  static constexpr MessageType kType = MessageType::kAttach;
  static constexpr std::string_view kName = "Attach";
  static constexpr std::string_view kDuty =
      "target -> draft. Opens a sequence, or refreshes it. Answer: Proposal, DraftBusy, "
      "Need(refused) or nothing yet.";
  SeqId seq;
  Lease lease;
  Fingerprint vocabulary = 0;
  AcceptanceRule acceptance = AcceptanceRule::kCoupled;
  std::uint8_t noise_version = 0;
  SamplingParams params;
  std::uint32_t n_prompt = 0;
  std::vector<TokenId> tokens;
  PrefixHash prefix = 0;
  std::uint32_t budget = 0;
  std::uint64_t tenant_salt = 0;
  PrefixHash root = 0;
  std::vector<TokenId> end_tokens;
  bool operator==(const Attach&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "seq", m.seq, "the sequence, as the target numbers it");
    v(2, "lease", m.lease, "this attachment; a higher one replaces it, a lower one is dead");
    v(3, "vocabulary", m.vocabulary, "fingerprint of the vocabulary the ids mean");
    v(4, "acceptance", m.acceptance,
      "coupled: guess with the same noise; rejection: state the distribution");
    v(5, "noise_version", m.noise_version,
      "of the counter-based noise; a draft that has another refuses");
    v(6, "params", m.params, "how the target chooses its tokens");
    v(7, "n_prompt", m.n_prompt,
      "how many of tokens are the prompt: penalties and min_tokens need it");
    v(8, "tokens", m.tokens, "all committed tokens");
    v(9, "prefix", m.prefix, "hash of all of them");
    v(10, "budget", m.budget, "most tokens wanted ahead; 0 = only keep current");
    v(11, "tenant_salt", m.tenant_salt, "separates prefix caches of tenants");
    v(12, "root", m.root,
      "hash of no tokens at all, as the target computes it: where its prefix hashes begin");
    v(13, "end_tokens", m.end_tokens, "ids that end the answer; empty = the draft model's own");
  }
};

struct ProposeRecord {
  static constexpr std::string_view kName = "ProposeRecord";
  SeqId seq;
  Lease lease;
  Epoch epoch;
  Position from = 0;
  std::vector<TokenId> tail;
  PrefixHash prefix = 0;
  std::uint32_t budget = 0;
  bool operator==(const ProposeRecord&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "seq", m.seq, "the sequence, as the target numbers it");
    v(2, "lease", m.lease, "other leases are dead: drop and count");
    v(3, "epoch", m.epoch, "number of this record within the lease; echoed in the answer");
    v(4, "from", m.from, "position of the first token of tail");
    v(5, "tail", m.tail, "tokens committed since the position the draft last confirmed");
    v(6, "prefix", m.prefix, "hash of everything up to and including tail");
    v(7, "budget", m.budget, "most tokens wanted ahead; 0 = only keep current");
  }
};

struct Propose {
  static constexpr MessageType kType = MessageType::kPropose;
  static constexpr std::string_view kName = "Propose";
  static constexpr std::string_view kDuty =
      "target -> draft, after each step, all its sequences there. Answer per record: Proposal, "
      "Need, DraftBusy or nothing.";
  std::vector<ProposeRecord> records;
  bool operator==(const Propose&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "records", m.records, "one per sequence");
  }
};

struct ProposalRecord {
  static constexpr std::string_view kName = "ProposalRecord";
  SeqId seq;
  Lease lease;
  Epoch epoch;
  Position base = 0;
  PrefixHash prefix = 0;
  std::vector<TokenId> tokens;
  std::vector<std::uint16_t> parents;
  std::vector<std::uint8_t> confidence;
  Position known = 0;
  std::uint32_t took_us = 0;
  bool is_partial = false;
  bool operator==(const ProposalRecord&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "seq", m.seq, "as in the record it answers");
    v(2, "lease", m.lease, "as in the record it answers");
    v(3, "epoch", m.epoch, "of the last record applied; 0 before the first");
    v(4, "base", m.base, "a position the draft knows as committed: the first guess is for it");
    v(5, "prefix", m.prefix, "hash of the tokens before base");
    v(6, "tokens", m.tokens, "guesses, parents before children");
    v(7, "parents", m.parents,
      "index of each guess's parent, 65535 = base; empty = a chain; later ones of a parent are "
      "runners-up");
    v(8, "confidence", m.confidence,
      "per guess, 255 x probability that it is right given its parent; may be empty");
    v(9, "known", m.known, "committed length the draft has applied");
    v(10, "took_us", m.took_us,
      "from the record it answers coming to the draft until this left; 0 = the sender does not say",
      2);
    v(11, "is_partial", m.is_partial,
      "more tokens of this answer follow; the record that has them all says false", 6);
  }
};

// How many of the tokens, from the first on, follow one another.
inline std::uint32_t chain_length(const ProposalRecord& record) {
  std::size_t n = record.parents.empty() ? record.tokens.size() : 0;
  while (n < record.parents.size() && record.parents[n] == (n == 0 ? 0xFFFF : n - 1)) ++n;
  return static_cast<std::uint32_t>(n);
}

struct Proposal {
  static constexpr MessageType kType = MessageType::kProposal;
  static constexpr std::string_view kName = "Proposal";
  static constexpr std::string_view kDuty =
      "draft -> target, when ready, also unasked. A hint: may be lost, late or wrong.";
  std::vector<ProposalRecord> records;
  bool operator==(const Proposal&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "records", m.records, "of sequences of this target");
  }
};

struct Need {
  static constexpr MessageType kType = MessageType::kNeed;
  static constexpr std::string_view kName = "Need";
  static constexpr std::string_view kDuty =
      "draft -> target. Answer: Propose from known, or Attach.";
  SeqId seq;
  Lease lease;
  Position known = 0;
  PrefixHash prefix = 0;
  NeedReason reason = NeedReason::kUnknown;
  bool operator==(const Need&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "seq", m.seq, "as the target numbers it");
    v(2, "lease", m.lease, "as in the record it answers");
    v(3, "known", m.known, "committed length the draft has; 0 = nothing");
    v(4, "prefix", m.prefix, "hash of those tokens");
    v(5, "reason", m.reason,
      "unknown, gap, mismatch, evicted, or refused: it will never serve this sequence");
  }
};

struct CloseSequence {
  static constexpr MessageType kType = MessageType::kCloseSequence;
  static constexpr std::string_view kName = "CloseSequence";
  static constexpr std::string_view kDuty =
      "target -> draft. Forget this sequence; unknown ones too. No answer.";
  SeqId seq;
  Lease lease;
  Position from = 0;
  std::vector<TokenId> tail;
  bool operator==(const CloseSequence&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "seq", m.seq, "as the target numbers it");
    v(2, "lease", m.lease, "the attachment that ends");
    v(3, "from", m.from, "position of the first token of tail", 6);
    v(4, "tail", m.tail,
      "tokens of the last round, which no Propose has; only a memory takes them in", 6);
  }
};

struct DraftBusy {
  static constexpr MessageType kType = MessageType::kDraftBusy;
  static constexpr std::string_view kName = "DraftBusy";
  static constexpr std::string_view kDuty =
      "draft -> target. No room for this sequence: plain rounds until later.";
  SeqId seq;
  Lease lease;
  std::uint32_t retry_after_us = 0;
  bool operator==(const DraftBusy&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "seq", m.seq, "as the target numbers it");
    v(2, "lease", m.lease, "as in the message it answers");
    v(3, "retry_after_us", m.retry_after_us, "when to ask again");
  }
};

struct LinkAsk {
  static constexpr MessageType kType = MessageType::kLinkAsk;
  static constexpr std::string_view kName = "LinkAsk";
  static constexpr std::string_view kDuty =
      "target -> draft. Asks for a link through shared memory. Answer: LinkOffer. "
      "Asked again after a silence.";
  std::string machine;
  std::string cpus;
  std::uint32_t threads = 0;
  bool operator==(const LinkAsk&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "machine", m.machine,
      "boot id of the asker's machine; empty = not known, then trying decides");
    v(2, "cpus", m.cpus, "processors of it that the asker may use, like 0-3,8; empty = not known",
      6);
    v(3, "threads", m.threads, "threads with which the asker computes; 0 = not known", 6);
  }
};

struct LinkOffer {
  static constexpr MessageType kType = MessageType::kLinkOffer;
  static constexpr std::string_view kName = "LinkOffer";
  static constexpr std::string_view kDuty = "Answer to LinkAsk, over the same connection.";
  std::string endpoint;
  std::uint64_t token = 0;
  std::string reason;
  bool operator==(const LinkOffer&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "endpoint", m.endpoint, "shm:///PATH to connect to; empty = there is none");
    v(2, "token", m.token, "random, for this asker and one LinkOpen");
    v(3, "reason", m.reason, "why there is none, for the log");
  }
};

struct LinkOpen {
  static constexpr MessageType kType = MessageType::kLinkOpen;
  static constexpr std::string_view kName = "LinkOpen";
  static constexpr std::string_view kDuty =
      "target -> draft, first on a new link: names the sender. Answer on the link: the same, from "
      "then on it is used.";
  std::uint64_t token = 0;
  bool operator==(const LinkOpen&) const = default;

  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "token", m.token, "that of the offer");
  }
};

}  // namespace foretoken::wire
