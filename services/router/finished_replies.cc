#include "services/router/finished_replies.h"

#include <utility>

#include "common/wire/packed_reply.h"

namespace foretoken {

void FinishedReplies::keep(RequestId id,
                           std::uint64_t content,
                           const wire::ClientReply& reply,
                           TimePoint now) {
  Finished finished{.content = content, .bytes = wire::pack_reply(reply), .at = now};
  finished.bytes.shrink_to_fit();
  const std::size_t n_bytes = finished.n_bytes();
  if (n_bytes > limits_.n_bytes || !replies_.try_emplace(id, std::move(finished)).second) return;
  n_bytes_ += n_bytes;
  order_.push_back(id);
  forget_old(now);
}

void FinishedReplies::end(RequestId id,
                          std::uint64_t content,
                          std::uint32_t series,
                          TimePoint now) {
  ended_[id] = {content, series, now};
  ends_.emplace_back(id, now);
  forget_old(now);
}

void FinishedReplies::sent_again(RequestId id, std::uint32_t series) {
  if (const auto at = ended_.find(id); at != ended_.end()) at->second.series = series;
}

std::optional<std::uint32_t> FinishedReplies::series_of(RequestId id) const {
  const auto at = ended_.find(id);
  return at == ended_.end() ? std::nullopt : std::optional(at->second.series);
}

void FinishedReplies::forget_old(TimePoint now) {
  while (!ends_.empty()) {
    const auto [id, at] = ends_.front();
    if (now - at <= limits_.age && ends_.size() <= limits_.n_ids) break;
    if (const auto ended = ended_.find(id); ended != ended_.end() && ended->second.at == at)
      ended_.erase(ended);
    ends_.pop_front();
  }
  while (!order_.empty()) {
    const auto oldest = replies_.find(order_.front());
    const bool is_old = now - oldest->second.at > limits_.age;
    if (!is_old && replies_.size() <= limits_.n_replies && n_bytes_ <= limits_.n_bytes) return;
    n_bytes_ -= oldest->second.n_bytes();
    replies_.erase(oldest);
    order_.pop_front();
  }
}

std::optional<wire::ClientReply> FinishedReplies::find(RequestId id) const {
  const auto at = replies_.find(id);
  if (at == replies_.end()) return std::nullopt;
  auto reply = wire::unpack_reply(at->second.bytes);
  if (!reply.ok()) return std::nullopt;
  return std::move(reply).value();
}

std::optional<std::uint64_t> FinishedReplies::content_of(RequestId id) const {
  // The reply first: its id may have left `ended_`, which is bounded on its own.
  if (const auto kept = replies_.find(id); kept != replies_.end()) return kept->second.content;
  const auto at = ended_.find(id);
  return at == ended_.end() ? std::nullopt : std::optional(at->second.content);
}

}  // namespace foretoken
