// The boards of verdicts that this draft's device reads: one view for each target that is linked
// through shared memory, offered one and is still there. It judges what targets say of their boards
// before the engine sees it. Views belong to the backend's thread and must not outlive it; the
// engine, which is borrowed, may keep one for as long as a pass that looks at it. Work thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "common/engine/draft_engine.h"
#include "common/wire/messages.h"
#include "kernels/include/verdict_board.h"

namespace foretoken {

// A view of the board that a card names. Null with `why`: it cannot be had, or would be of no use.
using OpenBoard =
    std::function<std::shared_ptr<BoardView>(std::span<const std::byte> card, std::string& why)>;

class BoardReader {
 public:
  using TargetKey = std::pair<WorkerId, Incarnation>;
  // Records of RunAhead: taken up by the engine, of no use to it, and those that cannot be.
  struct Counters {
    std::uint64_t used = 0, useless = 0, refused = 0;
  };

  // `open` may be empty: this draft reads none.
  BoardReader(OpenBoard open, DraftEngine& engine) : open_(std::move(open)), engine_(engine) {}

  // The answer; what the target offered before is dropped in any case. A card may be any bytes.
  wire::BoardReply open(const TargetKey& target, const wire::BoardOffer& offer);
  void drop(const TargetKey& target) { views_.erase(target); }
  void run_ahead(const TargetKey& target, const wire::RunAhead& ahead);

  std::size_t size() const { return views_.size(); }
  const Counters& counters() const { return counters_; }

 private:
  OpenBoard open_;
  DraftEngine& engine_;
  std::map<TargetKey, std::shared_ptr<BoardView>> views_;
  Counters counters_;
};

}  // namespace foretoken
