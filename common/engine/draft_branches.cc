#include "common/engine/draft_branches.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/engine/runners_up.h"

namespace foretoken {
namespace {

constexpr double kLeastWorth = 0.02;  // probability that a guess comes to be used
constexpr std::size_t kMostBranches = 16;
constexpr std::uint32_t kMostOwn = 16;  // tokens of a branch
// A pass may become so much dearer for the sake of branches.
constexpr double kDearer = 1.2;
// Of passes without them, so that it is known what they cost now.
constexpr std::uint32_t kTriedEvery = 128;
// Passes whose guesses have runners-up: before that one, so that there is something to try, and
// after one that had room for them, as a chain has long passes and short ones.
constexpr std::uint32_t kPrepared = 16;
// Of their names in the cache the first: beyond those of sequences, which count from 1.
constexpr std::uint64_t kFirstName = std::uint64_t{1} << 63;

// Of a chain's branches that one, or null.
template <class Branches>
auto* find_branch(Branches& branches, Position position, std::size_t rank) {
  const auto at = std::ranges::find_if(branches, [&](const DraftBranch& branch) {
    return branch.position == position && branch.rank == rank;
  });
  return at == branches.end() ? nullptr : &*at;
}

TokenId runner_up_at(const BranchedSequence& sequence, Position position, std::size_t rank) {
  return sequence.chain.guesses()[position - sequence.chain.known()].runners_up[rank];
}

}  // namespace

DraftBranches::DraftBranches(KvCache& kv, Step& step, const StepCost& cost, BranchLimits limits)
    : kv_(kv), step_(step), cost_(cost), limits_(limits) {}

// ---- which texts are worth a row

// Calls visit(worth, position, rank) for each text that a row would bring forward, until it
// returns false.
template <class Visitor>
void DraftBranches::each_row(const BranchedSequence& sequence, Visitor&& visit) const {
  if (!are_on() || sequence.lacks_branch_room || !sequence.has_cache) return;
  const std::span<const Guess> guesses = sequence.chain.guesses();
  double reached = 1;
  for (std::uint32_t i = 0; i < guesses.size() && reached >= kLeastWorth; ++i) {
    const double stands = outcomes_.stands(guesses[i].confidence);
    const Position position = sequence.chain.known() + i;
    if (position > kv_.length(sequence.cache_name)) return;
    for (std::size_t rank = 0; rank < GuessOutcomes::kRanks; ++rank) {
      if (guesses[i].runners_up[rank] < 0) break;
      const double comes = reached * (1 - stands) * outcomes_.comes_instead(rank);
      const double worth = comes * outlook(sequence, position, rank);
      if (worth >= kLeastWorth && !visit(worth, position, rank)) return;
    }
    reached *= stands;
  }
}

bool DraftBranches::may_begin(const BranchedSequence& sequence,
                              Position position,
                              std::size_t rank) const {
  return sequence.branches.size() < kMostBranches && position + 1 < limits_.max_len &&
         !std::ranges::binary_search(sequence.endings, runner_up_at(sequence, position, rank));
}

// P(the next guess of the branch is reached, where its runner-up comes); 0 if it has none.
double DraftBranches::outlook(const BranchedSequence& sequence,
                              Position position,
                              std::size_t rank) const {
  const DraftBranch* branch = find_branch(sequence.branches, position, rank);
  if (branch == nullptr) return may_begin(sequence, position, rank) ? 1 : 0;
  if (branch->is_over || branch->n_own() > kMostOwn || branch->length() >= limits_.max_len)
    return 0;
  double reached = 1;
  for (std::uint32_t own = 1; own < branch->n_own(); ++own)
    reached *= outcomes_.stands(branch->guesses[own].confidence);
  return reached;
}

bool DraftBranches::wants_rows(const BranchedSequence& sequence) const {
  bool wants = false;
  each_row(sequence, [&](double, Position, std::size_t) {
    wants = true;
    return false;
  });
  return wants;
}

// ---- a pass

// How many fit a pass with so many others.
std::uint32_t DraftBranches::n_rows_beside(std::uint32_t n_others) const {
  if (!are_on()) return 0;
  const std::uint32_t least = std::max(1u, n_others);
  const double plain = cost_.seconds(least);
  if (plain == 0) return limits_.n_rows;
  const std::uint32_t n = cost_.rows_within(kDearer * plain, least + limits_.n_rows);
  return n > least ? n - least : 0;
}

void DraftBranches::plan(std::span<BranchedSequence* const> sequences, std::uint32_t n_others) {
  rows_.clear();
  in_step_.clear();
  if (!are_on() || sequences.empty()) return;
  std::uint32_t n_rows = n_rows_beside(n_others);
  const std::uint32_t n_since_tried = n_rows == 0 ? ++n_too_dear_ % kTriedEvery : 0;
  n_since_room_ = n_rows == 0 ? n_since_room_ + 1 : 0;
  may_be_used_ =
      n_since_tried == 0 || n_since_room_ < kPrepared || n_since_tried >= kTriedEvery - kPrepared;
  if (n_since_tried != 0) return;
  if (n_rows == 0) n_rows = limits_.n_rows;
  for (BranchedSequence* sequence : sequences)
    each_row(*sequence, [&](double worth, Position position, std::size_t rank) {
      rows_.push_back({worth, sequence, position, rank});
      return true;
    });
  const auto n_taken = std::min<std::size_t>(n_rows, rows_.size());
  std::partial_sort(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(n_taken),
                    rows_.end(), [](const Row& a, const Row& b) { return a.worth > b.worth; });
  rows_.resize(n_taken);
  std::erase_if(rows_, [&](const Row& row) {
    if (find_branch(row.of->branches, row.position, row.rank) != nullptr) return false;
    if (row.of->branches.size() >= kMostBranches) return true;
    begin(row);
    return false;
  });
}

// A text with a runner-up at this position goes on after it, or there is none.
std::int32_t DraftBranches::pool_at(Position position) const {
  return position + 1 < limits_.max_len ? kRunnerUpPool : 0;
}

std::int32_t DraftBranches::n_likeliest(const BranchedSequence& sequence) const {
  return are_on() && may_be_used_ ? pool_at(sequence.chain.length()) : 0;
}

void DraftBranches::begin(const Row& row) {
  BranchedSequence& sequence = *row.of;
  const Guess& wrong = sequence.chain.guesses()[row.position - sequence.chain.known()];
  const double comes = (1 - outcomes_.stands(wrong.confidence)) * outcomes_.comes_instead(row.rank);
  DraftBranch& branch = sequence.branches.emplace_back();
  branch.cache_name = SeqId{kFirstName + n_named_++};
  branch.position = row.position;
  branch.rank = row.rank;
  branch.tokens.push_back(wrong.runners_up[row.rank]);
  branch.guesses.push_back({.confidence = static_cast<std::uint8_t>(255 * comes)});
  // Few of these texts come: others are not to find them in the cache in the place of prompts.
  FORETOKEN_CHECK(kv_.fork(sequence.cache_name, branch.cache_name, Publishing::kOff).ok());
  kv_.truncate(branch.cache_name, row.position);
  ++stats_.n_begun;
}

// Its tokens that were not fed yet.
std::span<const TokenId> DraftBranches::pending(const DraftBranch& branch) const {
  return std::span(branch.tokens).subspan(kv_.length(branch.cache_name) - branch.position);
}

void DraftBranches::add_rows(std::uint32_t rows_left) {
  for (const Row& row : rows_) {
    DraftBranch& branch = *find_branch(row.of->branches, row.position, row.rank);
    const std::span<const TokenId> tokens = pending(branch);
    if (tokens.size() > rows_left) continue;
    rows_left -= static_cast<std::uint32_t>(tokens.size());
    if (add_row(*row.of, branch, tokens))
      in_step_.push_back({row.of, &branch});
    else
      row.of->lacks_branch_room = true;
  }
}

// False where blocks lack.
bool DraftBranches::add_row(BranchedSequence& sequence,
                            DraftBranch& branch,
                            std::span<const TokenId> pending) {
  const auto before = sequence.chain.guessed().first(branch.position - sequence.chain.known());
  guessed_.assign(before.begin(), before.end());
  guessed_.insert(guessed_.end(), branch.tokens.begin(), branch.tokens.end());
  return step_
      .add({.seq = branch.cache_name,
            .known = pending,
            .rules = &sequence.rules,
            .guessed = guessed_,
            .endings = sequence.endings,
            .n_top = pool_at(branch.length())})
      .ok();
}

void DraftBranches::extend() {
  const std::size_t first = step_.n_slices() - in_step_.size();
  for (std::size_t i = 0; i < in_step_.size(); ++i)
    extend(*in_step_[i].of, *in_step_[i].branch, first + i);
  in_step_.clear();
}

void DraftBranches::extend(const BranchedSequence& sequence,
                           DraftBranch& branch,
                           std::size_t slice) {
  const Choice& choice = step_.choices(slice).back();
  if (choice.token >= 0) {
    branch.tokens.push_back(choice.token);
    branch.guesses.push_back(guess_of(step_, slice, choice));
    branch.has_grown = true;
    ++stats_.n_tokens;
  }
  branch.is_over = choice.token < 0 || std::ranges::binary_search(sequence.endings, choice.token);
  // Where no token may follow the last row is asked again, should this become the chain.
  const std::uint32_t n_fed = step_.plan().slices[slice].n_known;
  step_.commit(slice, choice.token < 0 ? n_fed - 1 : n_fed, {});
}

// ---- what becomes of them

std::uint32_t DraftBranches::take(BranchedSequence& sequence,
                                  std::uint32_t n_agreed,
                                  TokenId token) {
  const Position position = sequence.chain.known() + n_agreed;
  const auto at = std::ranges::find_if(sequence.branches, [&](const DraftBranch& branch) {
    return branch.position == position && branch.tokens.front() == token;
  });
  if (at == sequence.branches.end()) return 0;
  const DraftBranch branch = std::move(*at);
  sequence.branches.erase(at);
  drop(sequence);
  ++stats_.n_taken;
  // Under the name of the sequence, which says how old it is.
  kv_.close(sequence.cache_name);
  FORETOKEN_CHECK(kv_.fork(branch.cache_name, sequence.cache_name).ok());
  kv_.close(branch.cache_name);
  sequence.chain.replace(n_agreed, branch.tokens, branch.guesses);
  return branch.n_own();
}

void DraftBranches::observe(const BranchedSequence& sequence, std::span<const TokenId> committed) {
  const std::span<const Guess> guesses = sequence.chain.guesses();
  const std::uint32_t n_agreed = sequence.chain.n_agreed(committed);
  for (std::uint32_t i = 0; i < n_agreed; ++i) outcomes_.observe(guesses[i].confidence, true);
  if (n_agreed == committed.size() || n_agreed == guesses.size()) return;
  outcomes_.observe(guesses[n_agreed].confidence, false);
  const RunnersUp& others = guesses[n_agreed].runners_up;
  if (others.front() < 0) return;
  const auto found = std::ranges::find(others, committed[n_agreed]);
  outcomes_.observe_instead(
      found == others.end() ? std::nullopt : std::optional<std::size_t>(found - others.begin()));
}

void DraftBranches::drop(BranchedSequence& sequence, Position position) {
  const auto is_dropped = [&](Position of) { return of < position; };
  std::erase_if(rows_,
                [&](const Row& row) { return row.of == &sequence && is_dropped(row.position); });
  std::erase_if(sequence.branches, [&](const DraftBranch& branch) {
    if (!is_dropped(branch.position)) return false;
    kv_.close(branch.cache_name);
    return true;
  });
}

void DraftBranches::drop_cache(BranchedSequence& sequence) {
  drop(sequence);
  if (sequence.has_cache) kv_.close(sequence.cache_name);
  sequence.has_cache = false;
}

bool DraftBranches::give_way(BranchedSequence& sequence) {
  const bool had_any = !sequence.branches.empty();
  drop(sequence);
  sequence.lacks_branch_room = true;
  return had_any;
}

}  // namespace foretoken
