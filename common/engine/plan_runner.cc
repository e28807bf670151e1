#include "common/engine/plan_runner.h"

#include <algorithm>
#include <numeric>

#include "common/base/check.h"
#include "common/model/config.h"
#include "common/spec/acceptance.h"
#include "kernels/include/layout.h"

namespace foretoken {

PlanRunner::PlanRunner(Model& model, Backend& backend, const CacheShape& shape)
    : model_(model), backend_(backend), stage_(model, backend), recordings_(backend) {
  const std::int32_t vocab = model.config().vocab_size;
  FORETOKEN_CHECK(shape.n_valid_ids >= 0 && shape.n_valid_ids <= vocab);
  n_valid_ = shape.n_valid_ids > 0 ? shape.n_valid_ids : vocab;
  slice_ = model.ranks() == nullptr ? VocabularySlice{0, vocab} : model.vocabulary_slice();
  if (model.ranks() != nullptr) slices_.emplace(backend, *model.ranks(), slice_, n_valid_);
  paged_.geometry = model.kv_geometry(shape.block_tokens);
  paged_.n_blocks = shape.n_blocks;
  memory_ =
      backend.allocate(paged_.geometry.block_bytes() * static_cast<std::size_t>(paged_.n_blocks));
  paged_.blocks = memory_.as<std::byte>();
}

void PlanRunner::run(const StepPlan& plan) {
  check_masks(plan);
  copy_blocks(plan);
  const StagedBatch batch = stage(plan);
  if (slices_) {
    float* logits = logits_room(plan);
    model_.forward(batch, paged_, logits);
    slices_->choose(plan, logits, choices_, top_);
  } else {
    run_recorded(plan, batch);
  }
  // Nothing is downloaded of a pass without choices, and its caller times it.
  if (choices_.empty()) backend_.synchronize();
  judge(plan);
}

// A chain's rules go up before its tokens are known, and a mask depends on these.
void PlanRunner::check_masks(const StepPlan& plan) const {
  const std::int64_t n_words = mask_words(n_valid_), n_all = std::ssize(plan.masks);
  for (const RowRule& rule : plan.rules)
    FORETOKEN_CHECK(rule.mask_begin < 0 || rule.mask_begin + n_words <= n_all,
                    "a mask is shorter than the vocabulary");
  for (const RowRule& rule : plan.rules_ahead)
    FORETOKEN_CHECK(rule.mask_begin < 0, "a mask depends on tokens that a chain has yet to choose");
}

void PlanRunner::copy_blocks(const StepPlan& plan) {
  const std::size_t n_bytes = paged_.geometry.block_bytes();
  for (const BlockCopy& copy : plan.copies)
    backend_.copy(paged_.blocks + static_cast<std::size_t>(copy.dst_block) * n_bytes,
                  paged_.blocks + static_cast<std::size_t>(copy.src_block) * n_bytes, n_bytes);
}

StagedBatch PlanRunner::stage(const StepPlan& plan) {
  batch_.tokens.assign(plan.tokens.begin(), plan.tokens.end());
  batch_.logit_rows.assign(plan.logit_rows.begin(), plan.logit_rows.end());
  batch_.slices.clear();
  const std::span<const std::int32_t> tables(plan.block_tables);
  for (const PlanSlice& slice : plan.slices)
    batch_.slices.push_back({.first_row = slice.first_row,
                             .n_rows = slice.n_known + slice.n_proposed,
                             .start = slice.start,
                             .block_table = tables.subspan(slice.first_block, slice.n_blocks),
                             .n_ahead = plan.n_ahead});
  return stage_.upload(batch_, paged_);
}

float* PlanRunner::logits_room(const StepPlan& plan) {
  return logits_.room<float>(backend_,
                             plan.logit_rows.size() * static_cast<std::size_t>(slice_.n_ids));
}

// ---- without ranks: uploads, then one recording or two, then one download ----

void PlanRunner::run_recorded(const StepPlan& plan, const StagedBatch& batch) {
  put_inputs(plan);
  lay_out_results(plan);
  const PassAddresses pass = make_pass(plan, batch);
  forget_recordings_of_moved_memory();
  float* logits = logits_.room<float>(backend_, 0);
  PassShape shape{.n_rows = batch.n_rows,
                  .n_sequences = batch.n_sequences,
                  .n_choices = pass.choose.n_rows,
                  .n_judged = pass.accept.n_sequences,
                  .max_blocks = batch.max_blocks,
                  .wants_top = pass.choose.top != nullptr};
  recordings_.run(shape, [&] {
    model_.forward(pass.batch, paged_, logits);
    backend_.choose(pass.choose);
    backend_.accept(pass.accept);
  });
  if (pass.n_ahead > 0) {  // apart: its shape does not depend on the rows before it
    shape.n_rows = pass.next.n_rows;
    shape.n_steps = pass.n_ahead;
    recordings_.run(shape, [&] { run_chain(pass); });
  }
  fetch();
}

void PlanRunner::put_inputs(const StepPlan& plan) {
  std::vector<std::int32_t> judged, judged_begin{0};
  for (const std::int32_t row : plan.logit_rows)
    judged.push_back(plan.tokens[static_cast<std::size_t>(row)]);
  // Every row is some sequence's to be judged; what is said of forced ones has no meaning.
  for (const PlanSlice& slice : plan.slices)
    for (const std::uint32_t n : {slice.n_forced, slice.n_choices})
      if (n > 0) judged_begin.push_back(judged_begin.back() + static_cast<std::int32_t>(n));
  verdicts_.resize(judged_begin.size() - 1);
  inputs_.clear();
  in_ = {};
  in_.rules = inputs_.add(plan.rules);
  in_.judged = inputs_.add(judged);
  in_.judged_begin = inputs_.add(judged_begin);
  if (plan.n_ahead > 0) put_chain(plan);
}

// Every sequence starts from its last row, which it may repeat without harm.
void PlanRunner::put_chain(const StepPlan& plan) {
  const std::size_t n = plan.slices.size();
  FORETOKEN_CHECK(plan.rules.size() == n && plan.rules_ahead.size() == n * plan.n_ahead);
  std::vector<std::int32_t> rows(n + 1), tokens(n), positions(n), slots(n), end_begin{0};
  std::vector<RowRule> rules(n * plan.n_ahead);
  for (std::size_t s = 0; s < n; ++s) {
    const PlanSlice& slice = plan.slices[s];
    const Position last = slice.start + slice.n_known - 1;
    const auto block_tokens = static_cast<Position>(paged_.geometry.block_tokens);
    tokens[s] = plan.tokens[slice.first_row + slice.n_known - 1];
    positions[s] = static_cast<std::int32_t>(last);
    slots[s] = kv_slot(plan.block_tables[slice.first_block + last / block_tokens],
                       static_cast<std::int32_t>(last % block_tokens), paged_.geometry);
    end_begin.push_back(end_begin.back() + static_cast<std::int32_t>(plan.n_endings[s]));
    for (std::size_t k = 0; k < plan.n_ahead; ++k)
      rules[k * n + s] = plan.rules_ahead[s * plan.n_ahead + k];
  }
  std::iota(rows.begin(), rows.end(), 0);
  in_.rows = inputs_.add(rows);
  in_.tokens = inputs_.add(tokens);
  in_.positions = inputs_.add(positions);
  in_.slots = inputs_.add(slots);
  in_.n_left = inputs_.add(std::vector(n, static_cast<std::int32_t>(plan.n_ahead)));
  in_.end_begin = inputs_.add(end_begin);
  in_.rules_ahead = inputs_.add(rules);
}

void PlanRunner::lay_out_results(const StepPlan& plan) {
  const std::size_t n = plan.rules.size();
  const bool wants_top = std::any_of(plan.rules.begin(), plan.rules.end(),
                                     [](const RowRule& rule) { return rule.n_top_logprobs > 0; });
  choices_.resize(n);
  top_.resize(wants_top ? n * kMaxTopLogprobs : 0);
  ahead_.resize(plan.n_ahead * plan.slices.size());
  out_.choices = 0;
  out_.verdicts = aligned_part(n * sizeof(Choice));
  out_.top = aligned_part(out_.verdicts + verdicts_.size() * sizeof(Verdict));
  out_.ahead = aligned_part(out_.top + top_.size() * sizeof(TopLogprob));
  out_.end = out_.ahead + ahead_.size() * sizeof(Choice);
}

PlanRunner::PassAddresses PlanRunner::make_pass(const StepPlan& plan, const StagedBatch& batch) {
  const std::byte* inputs = device_inputs_.fill(backend_, inputs_.bytes());
  auto* results = device_results_.room<std::byte>(backend_, out_.end);
  const auto n_choices = static_cast<std::int32_t>(choices_.size());
  PassAddresses pass{.batch = batch, .n_ahead = static_cast<std::int32_t>(plan.n_ahead)};
  pass.choose = {.logits = logits_room(plan),
                 .n_rows = n_choices,
                 .vocab = slice_.n_ids,
                 .n_valid = n_valid_,
                 .rules = reinterpret_cast<const RowRule*>(inputs + in_.rules),
                 .adjustments = adjustments_.fill(backend_, plan.adjustments),
                 .masks = masks_.fill(backend_, plan.masks),
                 .choices = reinterpret_cast<Choice*>(results + out_.choices),
                 .top = top_.empty() ? nullptr : reinterpret_cast<TopLogprob*>(results + out_.top)};
  pass.accept = {.choices = pass.choose.choices,
                 .tokens = reinterpret_cast<const std::int32_t*>(inputs + in_.judged),
                 .n_rows = n_choices,
                 .n_sequences = static_cast<std::int32_t>(verdicts_.size()),
                 .row_begin = reinterpret_cast<const std::int32_t*>(inputs + in_.judged_begin),
                 .verdicts = reinterpret_cast<Verdict*>(results + out_.verdicts)};
  if (pass.n_ahead > 0) add_chain(plan, inputs, results, pass);
  return pass;
}

void PlanRunner::add_chain(const StepPlan& plan,
                           const std::byte* inputs,
                           std::byte* results,
                           PassAddresses& pass) {
  const auto ints = [&](std::size_t at) {
    return const_cast<std::int32_t*>(reinterpret_cast<const std::int32_t*>(inputs + at));
  };
  const StagedBatch& first = pass.batch;
  pass.next = {.n_rows = first.n_sequences,
               .n_sequences = first.n_sequences,
               .n_logit_rows = first.n_sequences,
               .max_blocks = first.max_blocks,
               .tokens = ints(in_.tokens),
               .positions = ints(in_.positions),
               .slots = ints(in_.slots),
               .row_begin = ints(in_.rows),
               .logit_rows = ints(in_.rows),
               .block_tables = first.block_tables};
  pass.advance = {.choices = pass.choose.choices,
                  .n_sequences = first.n_sequences,
                  .end_begin = ints(in_.end_begin),
                  .end_tokens = endings_.fill(backend_, plan.endings),
                  .block_tables = first.block_tables,
                  .max_blocks = first.max_blocks,
                  .block_tokens = paged_.geometry.block_tokens,
                  .tokens = ints(in_.tokens),
                  .positions = ints(in_.positions),
                  .slots = ints(in_.slots),
                  .n_left = ints(in_.n_left)};
  pass.rules_ahead = reinterpret_cast<const RowRule*>(inputs + in_.rules_ahead);
  pass.ahead = reinterpret_cast<Choice*>(results + out_.ahead);
}

void PlanRunner::forget_recordings_of_moved_memory() {
  const std::vector<const void*> addresses{stage_.address(),         logits_.address(),
                                           device_inputs_.address(), device_results_.address(),
                                           adjustments_.address(),   masks_.address(),
                                           endings_.address()};
  if (addresses == addresses_) return;
  recordings_.clear();
  addresses_ = addresses;
}

void PlanRunner::run_chain(const PassAddresses& pass) {
  float* logits = logits_.room<float>(backend_, 0);
  AdvanceArgs advance = pass.advance;
  ChooseArgs choose = pass.choose;
  for (std::int32_t k = 0; k < pass.n_ahead; ++k) {
    backend_.advance(advance);
    model_.forward(pass.next, paged_, logits);
    const std::ptrdiff_t at = std::ptrdiff_t{k} * pass.next.n_rows;
    choose.rules = pass.rules_ahead + at;
    advance.choices = choose.choices = pass.ahead + at;
    backend_.choose(choose);
  }
}

void PlanRunner::fetch() {
  if (choices_.empty()) return;
  results_.resize(out_.end);
  backend_.download(results_.data(), device_results_.address(), out_.end);
  const auto take = [&](auto& into, std::size_t at) {
    if (!into.empty())
      std::memcpy(into.data(), results_.data() + at, into.size() * sizeof(into[0]));
  };
  take(choices_, out_.choices);
  take(verdicts_, out_.verdicts);
  take(top_, out_.top);
  take(ahead_, out_.ahead);
}

// Without ranks the device has judged; with them the choices were put together here.
void PlanRunner::judge(const StepPlan& plan) {
  chosen_.resize(choices_.size());
  std::transform(choices_.begin(), choices_.end(), chosen_.begin(),
                 [](const Choice& choice) { return choice.token; });
  accepted_.assign(plan.slices.size(), 0);
  auto verdict = verdicts_.begin();
  for (std::size_t i = 0; i < plan.slices.size(); ++i) {
    const PlanSlice& s = plan.slices[i];
    if (!slices_ && s.n_forced > 0) ++verdict;
    if (s.n_choices == 0) continue;
    if (!slices_) {
      accepted_[i] = static_cast<std::uint32_t>((verdict++)->n_accepted);
      continue;
    }
    const auto drafted =
        std::span<const TokenId>(plan.tokens).subspan(s.first_row + s.n_known, s.n_proposed);
    const auto chosen = std::span<const TokenId>(chosen_).subspan(s.first_choice, s.n_choices);
    accepted_[i] = accept(drafted, chosen).n_accepted;
  }
}

}  // namespace foretoken
