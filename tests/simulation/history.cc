#include "tests/simulation/history.h"

#include <algorithm>
#include <map>
#include <utility>

namespace foretoken::test {
namespace {

// One id over one connection.
struct Lane {
  std::size_t n_asks = 0, n_ends = 0;
  std::size_t n_cancels = 0;   // without an answer of their own so far
  std::size_t n_restarts = 0;  // at most one for each further ask
  std::size_t n_ids = 0;       // of the answer that has come so far
  std::size_t n_bytes = 0;
  bool is_wrong = false;  // and it was said: what follows is wrong, too
};

class Checker {
 public:
  explicit Checker(const History& history) : history_(history) {
    for (const Promise& promise : history.promises)
      if (!promises_.emplace(promise.id, &promise).second)
        broken_.push_back("request " + promise.id + " is promised twice");
  }

  std::vector<std::string> run() {
    for (const Sight& sight : history_.sights) look_at(sight);
    for (const Promise& promise : history_.promises)
      if (!promise.is_abandoned && !ended_.contains(promise.id))
        broken_.push_back("request " + promise.id + " has no end");
    for (const std::string& left : history_.leftovers) broken_.push_back("left behind: " + left);
    return std::move(broken_);
  }

 private:
  void complain(const Sight& sight, const std::string& what) {
    const auto ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(sight.at.time_since_epoch()).count();
    broken_.push_back("request " + sight.id + " over connection " +
                      std::to_string(sight.connection) + " at " + std::to_string(ms) +
                      " ms: " + what);
  }

  void look_at(const Sight& sight) {
    const auto found = promises_.find(sight.id);
    if (found == promises_.end()) return complain(sight, "nobody asked for this id");
    const Promise& promise = *found->second;
    Lane& lane = lanes_[{sight.id, sight.connection}];
    if (sight.what == Saw::kAsked) {
      ++lane.n_asks;
      return;
    }
    if (sight.what == Saw::kCancelled) {
      ++lane.n_cancels;
      cancelled_.insert(sight.id);
      return;
    }
    if (lane.n_cancels > 0 && is_of_a_cancel(sight, lane)) {
      --lane.n_cancels;
      return;
    }
    if (lane.n_asks == 0) return complain(sight, "it was not asked over this connection");
    if (lane.n_ends >= lane.n_asks)
      return complain(sight,
                      sight.what == Saw::kPiece ? "a piece after the end" : "more ends than asks");
    switch (sight.what) {
      case Saw::kPiece:
        if (!promise.is_stream) complain(sight, "a piece of an answer that was asked for whole");
        take(sight, promise, lane);
        return;
      case Saw::kReply:
        ++lane.n_ends;  // of an error, too: it may be of an earlier ask, and a later telling goes
                        // on
        return on_reply(sight, promise, lane);
      case Saw::kError:
        ++lane.n_ends;
        return on_error(sight, promise);
      case Saw::kAsked:
      case Saw::kCancelled:
        return;
    }
  }

  static bool is_of_a_cancel(const Sight& sight, const Lane& lane) {
    if (sight.what == Saw::kError) return sight.code == "not_found";
    return sight.what == Saw::kReply && sight.finish_reason == "cancelled" && sight.ids.empty() &&
           lane.n_ends >= lane.n_asks;
  }

  bool may_be_cut(const Promise& promise) const {
    return promise.may_be_cut || cancelled_.contains(promise.id);
  }

  // The next tokens and text of the answer. False if they are not.
  bool take(const Sight& sight, const Promise& promise, Lane& lane) {
    if (!promise.refusal.empty()) {
      complain(sight, "an answer to a request that deserves " + promise.refusal);
      return false;
    }
    if (lane.is_wrong) return false;
    const bool is_end = sight.what == Saw::kReply;
    // A whole answer begins at its first token, and so does the answer to a cancel alone.
    const bool is_whole =
        is_end && !sight.position && (!promise.is_stream || sight.finish_reason == "cancelled");
    if (is_whole) lane.n_ids = lane.n_bytes = 0;
    const std::size_t position = sight.position.value_or(lane.n_ids);
    const std::size_t offset = sight.offset.value_or(lane.n_bytes);
    if (position == 0 && offset == 0 && lane.n_ids > 0 && lane.n_restarts + 1 < lane.n_asks) {
      ++lane.n_restarts;
      lane.n_ids = lane.n_bytes = 0;
    } else if (is_end && lane.n_asks > 1 && position <= lane.n_ids && offset <= lane.n_bytes) {
      lane.n_ids = position;  // the end of an earlier telling, that waited while another came
      lane.n_bytes = offset;
    }
    const bool is_beyond = position > lane.n_ids && offset >= lane.n_bytes;
    if (sight.what == Saw::kPiece && is_beyond) return false;
    if (position != lane.n_ids || offset != lane.n_bytes) {
      complain(sight, "it begins at position " + std::to_string(position) + ", byte " +
                          std::to_string(offset) + " where " + std::to_string(lane.n_ids) + ", " +
                          std::to_string(lane.n_bytes) + " is due");
      lane.is_wrong = true;
      return false;
    }
    const auto ids_left = static_cast<std::size_t>(promise.ids.size() - lane.n_ids);
    const bool same_ids = sight.ids.size() <= ids_left &&
                          std::equal(sight.ids.begin(), sight.ids.end(),
                                     promise.ids.begin() + static_cast<std::ptrdiff_t>(lane.n_ids));
    if (!same_ids)
      complain(sight, "tokens from position " + std::to_string(lane.n_ids) +
                          " are not those of plain decoding");
    const bool same_text = promise.text.compare(lane.n_bytes, sight.text.size(), sight.text) == 0;
    if (!same_text)
      complain(sight,
               "text from byte " + std::to_string(lane.n_bytes) + " is not that of plain decoding");
    const bool is_cut =
        is_end && (sight.finish_reason == "cancelled" || sight.finish_reason == "deadline");
    const bool begins = position == 0 && offset == 0;
    const bool same_prompt =
        sight.prompt == (begins ? promise.prompt : std::vector<wire::LogprobEntry>()) ||
        (is_cut && sight.prompt.empty());
    if (!same_prompt)
      complain(sight, "it has log-probabilities of " + std::to_string(sight.prompt.size()) +
                          " tokens of the prompt that are not the reference's, or not due here");
    lane.is_wrong = !same_ids || !same_text || !same_prompt;
    if (lane.is_wrong) return false;
    lane.n_ids += sight.ids.size();
    lane.n_bytes += sight.text.size();
    return true;
  }

  void on_reply(const Sight& sight, const Promise& promise, Lane& lane) {
    const bool as_reference = take(sight, promise, lane);
    if (!as_reference) return;
    if (sight.completion_tokens != lane.n_ids)
      complain(sight, "usage says " + std::to_string(sight.completion_tokens) + " tokens of " +
                          std::to_string(lane.n_ids));
    ended_.insert(sight.id);
    if (sight.finish_reason == "cancelled" || sight.finish_reason == "deadline") {
      if (!may_be_cut(promise)) complain(sight, "it ended with " + sight.finish_reason);
      return;
    }
    if (sight.finish_reason != promise.finish_reason)
      complain(sight, "it finished with " + sight.finish_reason + ", plain decoding with " +
                          promise.finish_reason);
    if (lane.n_ids != promise.ids.size() || lane.n_bytes != promise.text.size())
      complain(sight, "it ended after " + std::to_string(lane.n_ids) + " tokens and " +
                          std::to_string(lane.n_bytes) + " bytes; plain decoding gives " +
                          std::to_string(promise.ids.size()) + " and " +
                          std::to_string(promise.text.size()));
  }

  void on_error(const Sight& sight, const Promise& promise) {
    if (!promise.refusal.empty()) {
      if (sight.code == promise.refusal) {
        ended_.insert(sight.id);
        return;
      }
      if (!promise.errors.contains(sight.code))
        complain(sight, "refused with " + sight.code + " instead of " + promise.refusal);
      return;
    }
    if (may_be_cut(promise) && (sight.code == "deadline_exceeded" || sight.code == "cancelled")) {
      ended_.insert(sight.id);
      return;
    }
    if (!promise.errors.contains(sight.code)) complain(sight, "it failed with " + sight.code);
  }

  const History& history_;
  std::map<std::string, const Promise*> promises_;
  std::map<std::pair<std::string, std::size_t>, Lane> lanes_;
  std::set<std::string> ended_, cancelled_;
  std::vector<std::string> broken_;
};

}  // namespace

std::vector<std::string> violations(const History& history) { return Checker(history).run(); }

}  // namespace foretoken::test
