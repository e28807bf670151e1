#include "tests/support/plain_decode.h"

#include <limits>
#include <numeric>

#include "common/grammar/requested_grammar.h"
#include "common/model/batch_stage.h"
#include "common/model/config.h"
#include "common/spec/finish.h"
#include "common/spec/row_rules.h"

namespace foretoken {

PlainAnswer plain_decode(Model& model,
                         Backend& backend,
                         const OpenRequest& request,
                         Position max_model_len,
                         std::int32_t n_valid_ids,
                         Constraints* constraints) {
  const std::vector<TokenId>& end_tokens =
      request.end_tokens.empty() ? model.config().eos_token_ids : request.end_tokens;
  const auto vocab = static_cast<std::size_t>(model.config().vocab_size);
  PagedKv kv{.geometry = model.kv_geometry(16)};
  kv.n_blocks = static_cast<std::int32_t>(max_model_len / 16 + 1);
  const Buffer memory =
      backend.allocate(kv.geometry.block_bytes() * static_cast<std::size_t>(kv.n_blocks));
  kv.blocks = memory.as<std::byte>();
  std::vector<std::int32_t> table(static_cast<std::size_t>(kv.n_blocks));
  std::iota(table.begin(), table.end(), 0);
  const Buffer logits = backend.allocate(vocab * sizeof(float));
  const Buffer device_rule = backend.allocate(sizeof(RowRule));
  const Buffer device_adjustments = backend.allocate(vocab * sizeof(Adjustment));
  const Buffer device_mask = backend.allocate((vocab + 31) / 32 * sizeof(std::uint32_t));
  const Buffer device_choice = backend.allocate(sizeof(Choice));
  const Buffer device_top = backend.allocate(sizeof(TopLogprob) * kMaxTopLogprobs);

  const std::int32_t n_valid = n_valid_ids > 0 ? n_valid_ids : model.config().vocab_size;
  const auto choose = [&](const RowRule& rule, const std::vector<Adjustment>& adjustments,
                          const std::vector<std::uint32_t>& mask) {
    backend.upload(device_rule.as<void>(), &rule, sizeof(RowRule));
    backend.upload(device_adjustments.as<void>(), adjustments.data(),
                   adjustments.size() * sizeof(Adjustment));
    backend.upload(device_mask.as<void>(), mask.data(), mask.size() * sizeof(std::uint32_t));
    backend.choose({.logits = logits.as<float>(),
                    .n_rows = 1,
                    .vocab = model.config().vocab_size,
                    .n_valid = n_valid,
                    .rules = device_rule.as<RowRule>(),
                    .adjustments = device_adjustments.as<Adjustment>(),
                    .masks = device_mask.as<std::uint32_t>(),
                    .choices = device_choice.as<Choice>(),
                    .top = device_top.as<TopLogprob>()});
    Choice choice;
    backend.download(&choice, device_choice.as<void>(), sizeof(choice));
    return choice;
  };
  // Of a token that is chosen because every other is masked.
  const auto logprobs_of = [&](TokenId token) {
    std::vector<Adjustment> masks;
    for (TokenId id = 0; id < n_valid; ++id)
      if (id != token) masks.push_back({.id = id, .add = -std::numeric_limits<float>::infinity()});
    const std::int32_t n_top = request.params.n_prompt_logprobs;
    const RowRule rule{.adjust_end = static_cast<std::int32_t>(masks.size()),
                       .n_top_logprobs = n_top};
    TokenLogprobs out{.logprob = choose(rule, masks, {}).logprob};
    std::vector<TopLogprob> top(static_cast<std::size_t>(n_top));
    backend.download(top.data(), device_top.as<void>(), top.size() * sizeof(TopLogprob));
    for (const TopLogprob& one : top) {
      out.top_ids.push_back(one.token);
      out.top_logprobs.push_back(one.logprob);
    }
    return out;
  };

  BatchStage stage(model, backend);
  RowRules rules(request.params, end_tokens, request.prompt,
                 value_or_throw(open_constraint(request.params, constraints)));
  FinishRules finish(request.params, end_tokens, static_cast<Position>(request.prompt.size()),
                     max_model_len);
  PlainAnswer answer;
  std::vector<TokenId> tokens = request.prompt;
  for (Position at = 0;; ++at) {
    ForwardBatch batch{.tokens = {tokens[at]},
                       .slices = {{.first_row = 0, .n_rows = 1, .start = at, .block_table = table}},
                       .logit_rows = {}};
    const bool samples = at + 1 == tokens.size();
    const bool is_forced = at + 1 < request.prompt.size() && request.params.n_prompt_logprobs >= 0;
    if (samples || is_forced) batch.logit_rows = {0};
    model.forward(stage.upload(batch, kv), kv, logits.as<float>());
    if (is_forced) answer.prompt_logprobs.push_back(logprobs_of(request.prompt[at + 1]));
    if (!samples) continue;
    if (finish.reason()) {
      answer.reason = *finish.reason();
      return answer;
    }
    std::vector<RowRule> row;
    std::vector<Adjustment> adjustments;
    std::vector<std::uint32_t> mask;
    rules.append_rows({}, 0, {row, adjustments, mask});
    const Choice choice = choose(row[0], adjustments, mask);
    if (choice.token < 0) {
      answer.is_blocked = true;
      return answer;
    }
    answer.ids.push_back(choice.token);
    if (request.params.n_logprobs >= 0) answer.logprobs.push_back(choice.logprob);
    tokens.push_back(choice.token);
    rules.commit(choice.token);
    const auto reason = finish.on_token(choice.token, rules.is_complete());
    if (!reason) continue;
    answer.reason = *reason;
    answer.ended_by_token = finish.ended_by_token();
    return answer;
  }
}

}  // namespace foretoken
