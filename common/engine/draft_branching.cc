// Texts beside the chains: which are worth a row, and what becomes of them.
//
// Where a guess is wrong the target writes something else in its place, often the next likeliest
// token of the same row, and a draft would begin anew from there half a round trip later. A branch
// is the text with that token; its guesses are made beside the chain's, in passes that read the
// weights anyway, and are sent with them. When the target goes on so they are there already, and
// the branch is the chain.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/check.h"
#include "common/engine/leased_sequence.h"
#include "common/spec/proposal.h"
#include "kernels/include/numerics.h"

namespace foretoken {
namespace {

constexpr std::int32_t kLikeliest = 8;  // of a row, among which runners-up are looked for
constexpr double kLeastWorth = 0.02;    // probability that a guess comes to be used
constexpr std::size_t kMostBranches = 16;
constexpr std::uint32_t kMostOwn = 16;  // tokens of a branch
// A pass may become so much dearer for the sake of branches.
constexpr double kDearer = 1.2;
// Of passes without them, so that it is known what they cost now.
constexpr std::uint32_t kTriedEvery = 128;

// What is added to its logit; minus infinity where it is forbidden.
double addition_to(TokenId token, std::span<const Adjustment> sorted) {
  const auto at = std::ranges::lower_bound(sorted, token, {}, &Adjustment::id);
  return at != sorted.end() && at->id == token ? at->add : 0;
}

// Of a chain's branches that one, or null.
template <class Branches>
auto* find_branch(Branches& branches, Position position, std::size_t rank) {
  const auto at = std::ranges::find_if(branches, [&](const DraftBranch& branch) {
    return branch.position == position && branch.rank == rank;
  });
  return at == branches.end() ? nullptr : &*at;
}

// By which a row would choose it, but for a repetition penalty; minus infinity if it never would.
double score_of(const TopLogprob& each, const RowRule& rule, const StepPlan& plan) {
  const std::span masks(plan.masks);
  if (rule.mask_begin >= 0 &&
      !is_allowed(masks.subspan(static_cast<std::size_t>(rule.mask_begin)), each.token))
    return -std::numeric_limits<double>::infinity();
  const auto begin = plan.adjustments.begin();
  const double logit =
      each.logprob + addition_to(each.token, {begin + rule.adjust_begin, begin + rule.adjust_end});
  if (rule.temperature <= 0) return logit;
  return logit / rule.temperature + gumbel(noise_word(rule.seed, rule.choice, rule.position,
                                                      static_cast<std::uint32_t>(each.token)));
}

}  // namespace

std::int32_t DraftEngine::n_likeliest(const LeasedSequence& sequence) const {
  return may_branch(sequence) ? kLikeliest : 0;
}

// The likeliest tokens of a row beside the chosen one.
RunnersUp DraftEngine::runners_up(std::size_t slice, TokenId chosen) const {
  struct Scored {
    double score = 0;
    TokenId token = -1;
  };
  std::array<Scored, kLikeliest> scored;
  std::size_t n = 0;
  const StepPlan& plan = step_.plan();
  const RowRule& rule = plan.rules[plan.slices[slice].first_choice];
  for (const TopLogprob& each : step_.top(slice, 0)) {
    if (each.token < 0 || each.token == chosen || n == scored.size()) continue;
    const double score = score_of(each, rule, plan);
    if (std::isfinite(score)) scored[n++] = {score, each.token};
  }
  const std::size_t n_kept = std::min(n, RunnersUp{}.size());
  std::partial_sort(scored.begin(), scored.begin() + static_cast<std::ptrdiff_t>(n_kept),
                    scored.begin() + static_cast<std::ptrdiff_t>(n),
                    [](const Scored& a, const Scored& b) { return a.score > b.score; });
  RunnersUp best = kNoRunnersUp;
  for (std::size_t i = 0; i < n_kept; ++i) best[i] = scored[i].token;
  return best;
}

bool DraftEngine::may_branch(const LeasedSequence& sequence) const {
  return options_.branch_rows > 0 && !may_chain_ && sequence.run_ahead > 0 && sequence.budget > 0 &&
         !sequence.is_outgrown;
}

// ---- which are worth a row

// Calls visit(worth, position, rank) for each text that a row would bring forward, until it
// returns false.
template <class Visitor>
void DraftEngine::each_branch_row(const LeasedSequence& sequence, Visitor&& visit) const {
  if (!may_branch(sequence) || sequence.lacks_branch_room || !sequence.has_cache) return;
  double reached = 1;
  for (std::uint32_t i = 0; i < sequence.n_chain() && reached >= kLeastWorth; ++i) {
    const double stands = outcomes_.stands(sequence.confidences[i]);
    const Position position = sequence.known + i;
    if (position > kv_.length(sequence.cache_name)) return;
    for (std::size_t rank = 0; rank < GuessOutcomes::kRanks; ++rank) {
      if (sequence.runners_up[i][rank] < 0) break;
      const double comes = reached * (1 - stands) * outcomes_.comes_instead(rank);
      const double worth = comes * outlook_of_branch(sequence, position, rank);
      if (worth >= kLeastWorth && !visit(worth, position, rank)) return;
    }
    reached *= stands;
  }
}

bool DraftEngine::may_begin(const LeasedSequence& sequence,
                            Position position,
                            std::size_t rank) const {
  const TokenId runner_up = sequence.runners_up[position - sequence.known][rank];
  return sequence.branches.size() < kMostBranches && position + 1 < max_len_ &&
         !std::ranges::binary_search(sequence.endings, runner_up);
}

// P(the next guess of the branch is reached, where its runner-up comes); 0 if it has none.
double DraftEngine::outlook_of_branch(const LeasedSequence& sequence,
                                      Position position,
                                      std::size_t rank) const {
  const DraftBranch* branch = find_branch(sequence.branches, position, rank);
  if (branch == nullptr) return may_begin(sequence, position, rank) ? 1 : 0;
  if (branch->is_over || branch->n_own() > kMostOwn || branch->length() >= max_len_) return 0;
  double reached = 1;
  for (std::uint32_t own = 1; own < branch->n_own(); ++own)
    reached *= outcomes_.stands(branch->confidences[own]);
  return reached;
}

bool DraftEngine::wants_branch_rows(const LeasedSequence& sequence) const {
  bool wants = false;
  each_branch_row(sequence, [&](double, Position, std::size_t) {
    wants = true;
    return false;
  });
  return wants;
}

DraftBranch* DraftEngine::branch_of(const BranchRow& row) {
  return find_branch(row.of->branches, row.position, row.rank);
}

// How many fit a pass with so many others.
std::uint32_t DraftEngine::n_branch_rows(std::uint32_t n_others) const {
  if (options_.branch_rows == 0) return 0;
  const std::uint32_t least = std::max(1u, n_others);
  const double plain = cost_.seconds(least);
  if (plain == 0) return options_.branch_rows;
  const std::uint32_t n = cost_.rows_within(kDearer * plain, least + options_.branch_rows);
  return n > least ? n - least : 0;
}

// Before the pass has rows of the chains: a sequence with rows under way cannot be forked.
void DraftEngine::plan_branches() {
  branch_rows_.clear();
  if (options_.branch_rows == 0 || may_chain_) return;
  std::uint32_t n_others = 0;
  for (const LeasedSequence* sequence : order_) {
    n_others += n_pending(*sequence);
    if (n_pending(*sequence) > kFewBehind) return;  // prompts come first
  }
  std::uint32_t n_rows = n_branch_rows(n_others);
  if (n_rows == 0 && ++n_without_branches_ % kTriedEvery != 0) return;
  if (n_rows == 0) n_rows = options_.branch_rows;
  for (LeasedSequence* sequence : order_) gather_branch_rows(*sequence);
  if (order_.empty())
    for (const auto& [key, sequence] : sequences_) gather_branch_rows(*sequence);
  const auto n_taken = std::min<std::size_t>(n_rows, branch_rows_.size());
  std::partial_sort(branch_rows_.begin(),
                    branch_rows_.begin() + static_cast<std::ptrdiff_t>(n_taken), branch_rows_.end(),
                    [](const BranchRow& a, const BranchRow& b) { return a.worth > b.worth; });
  branch_rows_.resize(n_taken);
  std::erase_if(branch_rows_, [&](const BranchRow& row) {
    if (branch_of(row) != nullptr) return false;
    if (row.of->branches.size() >= kMostBranches) return true;
    begin_branch(row);
    return false;
  });
}

void DraftEngine::gather_branch_rows(LeasedSequence& sequence) {
  each_branch_row(sequence, [&](double worth, Position position, std::size_t rank) {
    branch_rows_.push_back({worth, &sequence, position, rank});
    return true;
  });
}

void DraftEngine::begin_branch(const BranchRow& row) {
  LeasedSequence& sequence = *row.of;
  const std::uint32_t at = row.position - sequence.known;
  DraftBranch& branch = sequence.branches.emplace_back();
  branch.cache_name = SeqId{++n_opened_};
  branch.position = row.position;
  branch.rank = row.rank;
  branch.tokens.push_back(sequence.runners_up[at][row.rank]);
  const double comes =
      (1 - outcomes_.stands(sequence.confidences[at])) * outcomes_.comes_instead(row.rank);
  branch.confidences.push_back(static_cast<std::uint8_t>(255 * comes));
  branch.runners_up.push_back(kNoRunnersUp);
  // Few of these texts come: others are not to find them in the cache in the place of prompts.
  FORETOKEN_CHECK(kv_.fork(sequence.cache_name, branch.cache_name, Publishing::kOff).ok());
  kv_.truncate(branch.cache_name, row.position);
  ++totals_.n_branches;
}

void DraftEngine::add_branch_rows(std::uint32_t rows_left) {
  std::vector<TokenId> guessed;
  for (const BranchRow& row : branch_rows_) {
    DraftBranch& branch = *branch_of(row);
    const auto pending = std::span<const TokenId>(branch.tokens)
                             .subspan(kv_.length(branch.cache_name) - branch.position);
    if (pending.size() > rows_left) continue;
    rows_left -= static_cast<std::uint32_t>(pending.size());
    const auto before = row.of->chain().first(branch.position - row.of->known);
    guessed.assign(before.begin(), before.end());
    guessed.insert(guessed.end(), branch.tokens.begin(), branch.tokens.end());
    const bool added = step_
                           .add({.seq = branch.cache_name,
                                 .known = pending,
                                 .rules = &row.of->rules,
                                 .guessed = guessed,
                                 .endings = row.of->endings,
                                 .n_top = kLikeliest})
                           .ok();
    if (added)
      in_step_.push_back({row.of, &branch});
    else
      row.of->lacks_branch_room = true;
  }
}

void DraftEngine::extend_branch(const LeasedSequence& sequence,
                                DraftBranch& branch,
                                std::size_t slice) {
  const Choice& choice = step_.choices(slice).back();
  if (choice.token >= 0) {
    branch.tokens.push_back(choice.token);
    branch.confidences.push_back(confidence_byte(choice.logprob));
    branch.runners_up.push_back(runners_up(slice, choice.token));
    branch.has_grown = true;
    ++totals_.n_branch_tokens;
  }
  branch.is_over = choice.token < 0 || std::binary_search(sequence.endings.begin(),
                                                          sequence.endings.end(), choice.token);
  // Where no token may follow the last row is asked again, should this become the chain.
  const std::uint32_t n_fed = step_.plan().slices[slice].n_known;
  step_.commit(slice, choice.token < 0 ? n_fed - 1 : n_fed, {});
}

// Those that have grown since they were last sent, after the chain.
void DraftEngine::append_branches(LeasedSequence& sequence, wire::ProposalRecord& record) {
  const auto n_chain = static_cast<std::uint16_t>(record.tokens.size());
  for (DraftBranch& branch : sequence.branches) {
    if (!std::exchange(branch.has_grown, false)) continue;
    const auto at = static_cast<std::uint16_t>(branch.position - sequence.known);
    if (record.parents.empty())
      for (std::uint16_t i = 0; i < n_chain; ++i)
        record.parents.push_back(i == 0 ? kParentIsBase : static_cast<std::uint16_t>(i - 1));
    for (std::uint32_t own = 0; own < branch.n_own(); ++own) {
      const auto before = static_cast<std::uint16_t>(record.tokens.size() - 1);
      record.parents.push_back(own > 0   ? before
                               : at == 0 ? kParentIsBase
                                         : static_cast<std::uint16_t>(at - 1));
      record.tokens.push_back(branch.tokens[own]);
      record.confidence.push_back(branch.confidences[own]);
    }
  }
}

// ---- what becomes of them

// The chain is the branch from here on, if there is one that goes on with this token.
bool DraftEngine::take_branch(LeasedSequence& sequence, std::uint32_t n_agreed, TokenId token) {
  const Position position = sequence.known + n_agreed;
  const auto at = std::find_if(
      sequence.branches.begin(), sequence.branches.end(), [&](const DraftBranch& branch) {
        return branch.position == position && branch.tokens.front() == token;
      });
  if (at == sequence.branches.end()) return false;
  DraftBranch branch = std::move(*at);
  sequence.branches.erase(at);
  drop_branches(sequence);
  totals_.n_cut += sequence.n_chain() - n_agreed;
  totals_.n_drafted += branch.n_own();
  ++totals_.n_branches_taken;
  // Under the name of the sequence, which says how old it is.
  kv_.close(sequence.cache_name);
  FORETOKEN_CHECK(kv_.fork(branch.cache_name, sequence.cache_name).ok());
  kv_.close(branch.cache_name);
  sequence.tokens.resize(position);
  sequence.tokens.insert(sequence.tokens.end(), branch.tokens.begin(), branch.tokens.end());
  const auto join = [n_agreed](auto& of_chain, const auto& own) {
    of_chain.resize(n_agreed);
    of_chain.insert(of_chain.end(), own.begin(), own.end());
  };
  join(sequence.confidences, branch.confidences);
  join(sequence.runners_up, branch.runners_up);
  return true;
}

// What came in the place of guesses is what their confidences are worth.
void DraftEngine::note_outcomes(const LeasedSequence& sequence,
                                std::span<const TokenId> committed,
                                std::uint32_t n_agreed) {
  for (std::uint32_t i = 0; i < n_agreed; ++i) outcomes_.observe(sequence.confidences[i], true);
  if (n_agreed == committed.size() || n_agreed == sequence.n_chain()) return;
  outcomes_.observe(sequence.confidences[n_agreed], false);
  const RunnersUp& others = sequence.runners_up[n_agreed];
  if (others.front() < 0) return;
  const auto found = std::find(others.begin(), others.end(), committed[n_agreed]);
  outcomes_.observe_instead(
      found == others.end() ? std::nullopt : std::optional<std::size_t>(found - others.begin()));
}

void DraftEngine::drop_branches(LeasedSequence& sequence, Position below) {
  std::erase_if(sequence.branches, [&](const DraftBranch& branch) {
    if (branch.position >= below) return false;
    kv_.close(branch.cache_name);
    return true;
  });
}

// Blocks are short: those of branches are the first to go.
bool DraftEngine::drop_all_branches() {
  branch_rows_.clear();
  bool has_dropped = false;
  for (const auto& [key, sequence] : sequences_) {
    has_dropped = has_dropped || !sequence->branches.empty();
    drop_branches(*sequence);
    sequence->lacks_branch_room = true;
  }
  return has_dropped;
}

}  // namespace foretoken
