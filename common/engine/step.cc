#include "common/engine/step.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/model/config.h"

namespace foretoken {

void* Step::Staging::reserve(Backend& backend, std::size_t n_bytes) {
  if (n_bytes > buffer_.size_bytes()) {
    buffer_ = Buffer();  // first, so that old and new need not fit side by side
    buffer_ = backend.allocate(std::max(n_bytes + n_bytes / 2, std::size_t{4096}));
  }
  return buffer_.as<void>();
}

Step::Step(Model& model, Backend& backend, KvCache& kv, std::int32_t n_valid_ids)
    : model_(model), backend_(backend), kv_(kv), vocab_(model.config().vocab_size) {
  FORETOKEN_CHECK(n_valid_ids >= 0 && n_valid_ids <= vocab_);
  n_valid_ = n_valid_ids > 0 ? n_valid_ids : vocab_;
  paged_.geometry = model.kv_geometry(kv.config().block_tokens);
  paged_.n_blocks = kv.config().n_blocks;
  memory_ =
      backend.allocate(paged_.geometry.block_bytes() * static_cast<std::size_t>(paged_.n_blocks));
  paged_.blocks = memory_.as<std::byte>();
}

void Step::begin() {
  reservations_.clear();
  plan_.clear();
}

Result<std::size_t> Step::add(const SliceRequest& request) {
  FORETOKEN_CHECK(!request.known.empty() && (request.proposed.empty() || request.guessed.empty()));
  const auto n_known = static_cast<std::uint32_t>(request.known.size());
  const auto n_proposed = static_cast<std::uint32_t>(request.proposed.size());
  auto reserved = kv_.reserve(request.seq, n_known + n_proposed);
  if (!reserved.ok()) return reserved.error();

  PlanSlice slice{.seq = request.seq,
                  .start = reserved->first_position(),
                  .n_known = n_known,
                  .n_proposed = n_proposed};
  slice.first_row = static_cast<std::uint32_t>(plan_.tokens.size());
  plan_.tokens.insert(plan_.tokens.end(), request.known.begin(), request.known.end());
  plan_.tokens.insert(plan_.tokens.end(), request.proposed.begin(), request.proposed.end());
  const auto table = kv_.block_table(request.seq);
  slice.first_block = static_cast<std::uint32_t>(plan_.block_tables.size());
  slice.n_blocks = static_cast<std::uint32_t>(table.size());
  plan_.block_tables.insert(plan_.block_tables.end(), table.begin(), table.end());
  const auto copies = reserved->copies();
  plan_.copies.insert(plan_.copies.end(), copies.begin(), copies.end());
  if (request.rules != nullptr) {
    slice.first_choice = static_cast<std::uint32_t>(plan_.rules.size());
    slice.n_choices = n_proposed + 1;
    append_rules(request);
    const std::uint32_t first_wanted = slice.first_row + n_known - 1;
    for (std::uint32_t row = first_wanted; row <= first_wanted + n_proposed; ++row)
      plan_.logit_rows.push_back(static_cast<std::int32_t>(row));
  }
  plan_.slices.push_back(slice);
  reservations_.push_back(std::move(*reserved));
  return plan_.slices.size() - 1;
}

// Where the sequence's rules lag behind its guesses, they make rows for all of these, and only the
// last is wanted.
void Step::append_rules(const SliceRequest& request) {
  if (request.guessed.empty())
    return request.rules->append_rows(request.proposed, plan_.rules, plan_.adjustments);
  const std::size_t n_before = plan_.rules.size();
  request.rules->append_rows(request.guessed, plan_.rules, plan_.adjustments);
  plan_.rules[n_before] = plan_.rules.back();
  plan_.rules.resize(n_before + 1);
}

void Step::run() {
  copy_blocks();
  forward();
  choose();
}

void Step::copy_blocks() {
  const std::size_t n_bytes = paged_.geometry.block_bytes();
  for (const BlockCopy& copy : plan_.copies)
    backend_.copy(paged_.blocks + static_cast<std::size_t>(copy.dst_block) * n_bytes,
                  paged_.blocks + static_cast<std::size_t>(copy.src_block) * n_bytes, n_bytes);
}

void Step::forward() {
  batch_.tokens.assign(plan_.tokens.begin(), plan_.tokens.end());
  batch_.logit_rows.assign(plan_.logit_rows.begin(), plan_.logit_rows.end());
  batch_.slices.clear();
  const std::span<const std::int32_t> tables(plan_.block_tables);
  for (const PlanSlice& slice : plan_.slices)
    batch_.slices.push_back({.first_row = slice.first_row,
                             .n_rows = slice.n_known + slice.n_proposed,
                             .start = slice.start,
                             .block_table = tables.subspan(slice.first_block, slice.n_blocks)});
  float* logits =
      logits_.room<float>(backend_, plan_.logit_rows.size() * static_cast<std::size_t>(vocab_));
  model_.forward(batch_, paged_, logits);
}

void Step::choose() {
  const std::size_t n = plan_.rules.size();
  choices_.resize(n);
  chosen_.resize(n);
  if (n == 0) return;
  const bool wants_top = std::any_of(plan_.rules.begin(), plan_.rules.end(),
                                     [](const RowRule& rule) { return rule.n_top_logprobs > 0; });
  const std::size_t n_top = wants_top ? n * kMaxTopLogprobs : 0;
  ChooseArgs args;
  args.logits = logits_.room<float>(backend_, n * static_cast<std::size_t>(vocab_));
  args.n_rows = static_cast<std::int32_t>(n);
  args.vocab = vocab_;
  args.n_valid = n_valid_;
  args.rules = rules_.fill(backend_, plan_.rules);
  args.adjustments = adjustments_.fill(backend_, plan_.adjustments);
  args.choices = device_choices_.room<Choice>(backend_, n);
  args.top = wants_top ? device_top_.room<TopLogprob>(backend_, n_top) : nullptr;
  backend_.choose(args);
  backend_.download(choices_.data(), args.choices, n * sizeof(Choice));
  top_.resize(n_top);
  if (wants_top) backend_.download(top_.data(), args.top, n_top * sizeof(TopLogprob));
  std::transform(choices_.begin(), choices_.end(), chosen_.begin(),
                 [](const Choice& choice) { return choice.token; });
}

std::span<const Choice> Step::choices(std::size_t slice) const {
  const PlanSlice& s = plan_.slices[slice];
  return std::span(choices_).subspan(s.first_choice, s.n_choices);
}

std::span<const TokenId> Step::chosen(std::size_t slice) const {
  const PlanSlice& s = plan_.slices[slice];
  return std::span(chosen_).subspan(s.first_choice, s.n_choices);
}

std::span<const TopLogprob> Step::top(std::size_t slice, std::size_t choice) const {
  const std::size_t row = plan_.slices[slice].first_choice + choice;
  const std::int32_t n = plan_.rules[row].n_top_logprobs;
  if (n <= 0) return {};
  return std::span(top_).subspan(
      row * kMaxTopLogprobs, static_cast<std::size_t>(std::min({n, kMaxTopLogprobs, n_valid_})));
}

void Step::commit(std::size_t slice, std::uint32_t n) {
  const PlanSlice& s = plan_.slices[slice];
  FORETOKEN_CHECK(n <= s.n_known + s.n_proposed);
  reservations_[slice].commit(std::span<const TokenId>(plan_.tokens).subspan(s.first_row, n));
}

}  // namespace foretoken
