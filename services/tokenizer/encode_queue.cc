#include "services/tokenizer/encode_queue.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/hash.h"
#include "services/tokenizer/encoder.h"

namespace foretoken {
namespace {

constexpr double kLeastCost = 256;  // bytes: a message and a turn cost something, too

}  // namespace

std::uint64_t EncodeQueue::content_of(const wire::Encode& encode) {
  std::uint64_t hash =
      mix64((static_cast<std::uint64_t>(encode.kind) << 2) | (encode.add_special_tokens ? 2u : 0u) |
            (encode.add_generation_prompt ? 1u : 0u)) ^
      ((static_cast<std::uint64_t>(encode.tool_choice) << 1) |
       (encode.continue_final_message ? 1u : 0u));
  const auto add = [&](std::string_view bytes) {
    hash = mix64(hash ^ fnv1a(bytes)) + bytes.size();
  };
  add(encode.text);
  add({reinterpret_cast<const char*>(encode.tokens.data()),
       encode.tokens.size() * sizeof(TokenId)});
  add(encode.prediction);
  add(encode.variables);
  add(encode.tool_name);
  for (const std::string& word : encode.bad_words) add(word);
  return hash;
}

Result<EncodeQueue::Added> EncodeQueue::add(RequestId id,
                                            std::uint64_t content,
                                            wire::Encode encode) {
  if (const auto it = waiting_.find(id); it != waiting_.end()) {
    if (it->second.content == content) return Added::kKnown;
    drop(id);
  }
  const std::size_t bytes = PromptEncoder::size_of(encode);
  const FlowPrompts held = held_.contains(encode.flow) ? held_.at(encode.flow) : FlowPrompts{};
  if (held.prompts + 1 > limits_.max_prompts - waiting_.size() ||
      held.bytes + bytes > limits_.max_bytes - bytes_)
    return Error{ErrorCode::kQueueFull,
                 "the tokenizer holds " + std::to_string(waiting_.size()) + " prompts with " +
                     std::to_string(bytes_) + " bytes, of this tenant or connection " +
                     std::to_string(held.prompts) + " with " + std::to_string(held.bytes) +
                     "; one may hold as much as is free of " + std::to_string(limits_.max_prompts) +
                     " with " + std::to_string(limits_.max_bytes) + " bytes"};
  const FlowId flow = encode.flow;
  held_[flow] = {held.prompts + 1, held.bytes + bytes};
  bytes_ += bytes;
  order_.push({.id = id, .flow = flow, .cost = kLeastCost + static_cast<double>(bytes)});
  waiting_.emplace(
      id, WaitingPrompt{.id = id, .content = content, .encode = std::move(encode), .bytes = bytes});
  return Added::kNew;
}

void EncodeQueue::forget(const WaitingPrompt& prompt) {
  bytes_ -= prompt.bytes;
  FlowPrompts& held = held_.at(prompt.encode.flow);
  held.bytes -= prompt.bytes;
  if (--held.prompts == 0) held_.erase(prompt.encode.flow);
}

std::optional<EncodeQueue::WaitingPrompt> EncodeQueue::take(
    const std::function<bool(const WaitingPrompt&)>& fits) {
  const auto next =
      order_.take([&](const FairQueue::Item& item) { return fits(waiting_.at(item.id)); });
  if (!next) return std::nullopt;
  auto node = waiting_.extract(next->id);
  forget(node.mapped());
  return std::move(node.mapped());
}

bool EncodeQueue::drop(RequestId id) {
  const auto it = waiting_.find(id);
  if (it == waiting_.end()) return false;
  order_.erase(id);
  forget(it->second);
  waiting_.erase(it);
  return true;
}

std::size_t EncodeQueue::drop_all() {
  const std::size_t n = waiting_.size();
  order_ = {};
  waiting_.clear();
  held_.clear();
  bytes_ = 0;
  return n;
}

}  // namespace foretoken
