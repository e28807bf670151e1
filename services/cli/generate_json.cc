#include "services/cli/generate_json.h"

#include <algorithm>
#include <cstdint>

#include "common/client/answer_json.h"

namespace foretoken::cli {
namespace {

// As llama.cpp counts: its prompt_n leaves out what the prefix cache had, and its speed has the
// first token in it, which metrics.tokens_per_second leaves out. One token takes no time: null.
OrderedJson timings_of(const wire::ClientReply& reply) {
  const wire::Usage& usage = reply.usage;
  const wire::ReplyMetrics& metrics = reply.metrics;
  const wire::SpeculativeDecoding& spec = metrics.speculative_decoding;
  const std::uint32_t n_cached = std::min(usage.cached_tokens, usage.prompt_tokens);
  const double predicted_ms = metrics.generation_time_ms;
  OrderedJson timings = {{"prompt_n", usage.prompt_tokens - n_cached},
                         {"prompt_ms", metrics.time_to_first_token_ms},
                         {"predicted_n", usage.completion_tokens},
                         {"predicted_ms", predicted_ms},
                         {"predicted_per_second", nullptr},
                         {"draft_n", spec.num_draft_tokens},
                         {"draft_n_accepted", spec.num_accepted_draft_tokens}};
  if (predicted_ms > 0)
    timings["predicted_per_second"] = usage.completion_tokens * 1e3 / predicted_ms;
  return timings;
}

OrderedJson answer_json(const wire::ClientReply& reply) {
  OrderedJson answer = struct_json(reply);
  answer["timings"] = timings_of(reply);
  return answer;
}

}  // namespace

OrderedJson generate_json(const std::vector<wire::ClientReply>& replies) {
  OrderedJson document = {{"schema", "foretoken.generate/1"}};
  if (replies.size() == 1) {
    document.update(answer_json(replies.front()));
    return document;
  }
  document["answers"] = OrderedJson::array();
  for (const auto& reply : replies) document["answers"].push_back(answer_json(reply));
  return document;
}

}  // namespace foretoken::cli
