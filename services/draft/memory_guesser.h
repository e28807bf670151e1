// A memory of texts as a Guesser: it keeps the sequences that targets send, and answers with
// what followed the same words before, in any text of the same tenant. No model, no noise: it
// guesses what most places have, and adds runners-up for the rounds after a rejection.
//
// A prompt is taken in by parts, a few thousand tokens a step, so that others need not wait for a
// long one. Of a sequence only its length, its hash and its last tokens are kept beside the memory.
// What a tenant has written continues sequences of that tenant (MemorySharing::kTenant), of all
// tenants (kAll), or only the sequence itself (kOff), as configured. Texts go to a log, if there is
// one, whose thread alone waits for the disk.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "common/base/histogram.h"
#include "common/memory/tenant_memories.h"
#include "common/memory_log/log_writer.h"
#include "services/draft/guesser.h"

namespace foretoken {

enum class MemorySharing : std::uint8_t { kTenant, kAll, kOff };

struct MemoryGuesserOptions {
  TenantMemoriesOptions memories;
  RecallRules rules;
  MemorySharing sharing = MemorySharing::kTenant;
  TokenId n_ids = 0;
  std::size_t max_sequences = 4096;
  std::uint64_t first_document = 0;           // of the log: random, so that no run has another's
  Duration lease = std::chrono::seconds(10);  // a sequence is freed after so long without a message
  Duration retry_after = std::chrono::milliseconds(250);  // sent with Busy
  std::function<TimePoint()> clock;                       // for the times of look-ups
};

class MemoryGuesser final : public Guesser {
 public:
  explicit MemoryGuesser(const MemoryGuesserOptions& options);

  // Before anything is served: reads back what the log has; texts are written there from then on.
  // Returns what was found; an error, that of the folder too, is counted and leaves the memory
  // without a log.
  Result<LogReport> keep_in(Result<LogFolder> folder);

  std::uint64_t most_tenant_tokens() const { return memories_.most_places(); }

  DraftOutcome attach(const TargetKey& from, wire::Attach attach, TimePoint now) override;
  DraftOutcome follow(const TargetKey& from,
                      const wire::ProposeRecord& record,
                      TimePoint now) override;
  void detach(const TargetKey& from, const wire::CloseSequence& close) override;
  void detach_all(WorkerId target, Incarnation except) override;
  void set_run_ahead(const TargetKey&, std::optional<std::uint32_t>) override {}  // answers at once
  void renew(const TargetKey& target, TimePoint now) override;
  bool has_work() const override { return !due_.empty() || !backlog_.empty(); }
  const DraftOutput& step(TimePoint now) override;
  void record_step_time(Duration) override {}
  DraftSnapshot snapshot() const override;
  void check(TimePoint now) override;
  void list_metrics(Metrics& metrics) const override;

 private:
  struct SequenceKey {
    TargetKey target;
    SeqId seq{};
    auto operator<=>(const SequenceKey&) const = default;
  };
  // What a sequence has written. It may outlast the sequence, until all of it is in the memory.
  struct Text {
    TenantSalt salt = 0;         // whose memory it is written to
    std::uint64_t document = 0;  // in the log
    TenantMemories::Document written;
    std::vector<TokenId> waiting;  // committed tokens that are not all in the memory
    std::size_t n_taken = 0;       // of them, those that are
    bool is_closed = false;        // its sequence has gone
  };
  struct Followed {
    Lease lease{};
    Epoch epoch{};
    TenantSalt tenant = 0;  // as in its ATTACH
    std::shared_ptr<Text> text;
    std::vector<TokenId> last;  // of the committed tokens, as many as a look-up reads
    Position known = 0;
    PrefixHash prefix = 0;
    std::uint32_t budget = 0;  // tokens asked for
    bool owes_answer = false;
    TimePoint asked{};
  };
  using Sequences = std::map<SequenceKey, Followed>;

  DraftOutcome attach_anew(const SequenceKey& key, wire::Attach& attach, TimePoint now);
  DraftOutcome apply(const SequenceKey& key,
                     Followed& sequence,
                     const wire::ProposeRecord& record,
                     TimePoint now);
  TenantSalt salt_of(const wire::Attach& attach) const;
  bool are_tokens(std::span<const TokenId> tokens) const;
  void set_budget(const SequenceKey& key, Followed& sequence, std::uint32_t budget);
  void take_in(Followed& sequence, std::span<const TokenId> committed);
  void write(Text& text, std::span<const TokenId> tokens);
  void finish(Text& text);
  void work_off_backlog();
  void answer(const SequenceKey& key, Followed& sequence);
  wire::ProposalRecord proposal_of(const SequenceKey& key, const Followed& sequence) const;
  void forget(Sequences::iterator at);
  bool is_full() const;
  void expire(TimePoint now);

  MemoryGuesserOptions options_;
  TenantMemories memories_;
  std::unique_ptr<LogWriter> log_;
  bool was_log_off_ = false;  // and a warning was logged
  Sequences sequences_;
  std::map<TargetKey, TimePoint> renewed_;     // when a target of sequences sent something last
  std::vector<SequenceKey> due_;               // owe an answer
  std::deque<std::shared_ptr<Text>> backlog_;  // have tokens waiting
  std::size_t n_closed_ = 0;                   // texts of the backlog without a sequence
  std::uint64_t n_documents_ = 0;
  Recollection found_;
  DraftOutput output_;
  DraftSnapshot totals_;
  Histogram lookups_;
  std::uint64_t n_hits_ = 0;
  std::uint64_t n_log_errors_ = 0;
};

}  // namespace foretoken
