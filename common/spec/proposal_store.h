// All proposals for all sequences, by content: prefix hash -> tokens that may follow. Inserting is
// a set union (the same edge twice keeps the larger confidence and names both sources), so order,
// repetition and loss of proposals change nothing but the candidates at hand; a stale one is simply
// never found. Must not know who sends or how, and prefers no source by name. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/base/ids.h"
#include "common/spec/calibration.h"
#include "common/spec/committed_tokens.h"
#include "common/spec/proposal.h"

namespace foretoken {

enum class Insertion : std::uint8_t {
  kInserted,
  kUnknownSequence,
  kAhead,      // base is beyond what is committed
  kDivergent,  // the prefix is not ours
  kMalformed,  // sizes, parents or token ids that cannot be
};

class ProposalStore {
 public:
  static constexpr std::size_t kMaxEdges = 4096;  // per sequence; the least confident go first

  explicit ProposalStore(std::int32_t vocab_size) : vocab_size_(vocab_size) {}

  void open(SeqId seq, const CommittedTokens& text);  // lent until close()
  void drop_committed(SeqId seq);                     // edges below the length of its text
  void close(SeqId seq);
  bool contains(SeqId seq) const { return sequences_.contains(seq); }

  Insertion insert(SeqId seq, const Proposal& proposal);

  // What became of the proposals that continued the first `from` tokens of the text: each node that
  // the text has passed, right ones and those it did not go on with, in the order of their depth.
  std::vector<ScoredToken> score(SeqId seq, Position from) const;

  // What best_path() follows from, as far as it is the store's: equal states of a sequence are
  // equal edges after a text of equal length.
  struct State {
    std::uint64_t change = 0;  // number of the last one
    Position length = 0;
    bool operator==(const State&) const = default;
  };
  State state(SeqId seq) const;

  // The path after the committed tokens with the largest expected number of accepted ones, at most
  // n long. `odds`: as for Calibration::acceptance(). PathCache keeps it between changes.
  std::vector<PathToken> best_path(SeqId seq,
                                   std::uint32_t n,
                                   const Calibration& calibration,
                                   double odds = 1) const;
  // Likewise, of what other sources than this one say too.
  std::vector<PathToken> best_path_without(ProposerKind source,
                                           SeqId seq,
                                           std::uint32_t n,
                                           const Calibration& calibration) const;

  struct TreeEdge {
    PrefixHash prefix = 0;  // of the tokens before
    Position position = 0;  // of the token
    TokenId token = -1;
    std::uint8_t confidence = 0;
    ProposerKind source = ProposerKind::kNone;  // who is surest of it
    ProposerSet sources;                        // who says it
    bool is_runner_up = false;                  // all who say it say another first
    bool operator==(const TreeEdge&) const = default;
  };
  // By (prefix, token): equal sets are equal spans.
  std::span<const TreeEdge> edges(SeqId seq) const;

 private:
  struct Continuations {
    const CommittedTokens* text = nullptr;
    std::vector<TreeEdge> edges;
    std::uint64_t last_change = 0;
  };
  struct Walk;
  struct PathLimits {
    std::uint32_t n = 0;
    double odds = 1;
  };
  static std::vector<PathToken> best_path_of(ProposerSet sources,
                                             const PathLimits& limits,
                                             const Continuations& known,
                                             const Calibration& calibration);
  template <class Sequences>
  static auto& find_in(Sequences& sequences, SeqId seq);
  const Continuations& find(SeqId seq) const;
  bool well_formed(const Proposal& proposal) const;
  static std::span<const TreeEdge> after(const Continuations& known, PrefixHash prefix);
  void add_edge(Continuations& known, const TreeEdge& edge);

  std::int32_t vocab_size_;
  std::uint64_t n_changes_ = 0;
  std::unordered_map<SeqId, Continuations> sequences_;
};

}  // namespace foretoken
