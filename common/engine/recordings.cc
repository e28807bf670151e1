#include "common/engine/recordings.h"

#include <algorithm>

namespace foretoken {

void Recordings::run(const PassShape& shape, const std::function<void()>& calls) {
  if (!backend_.gains_by_recording() || shape.n_rows > kMostRows) return calls();
  auto at = entries_.find(shape);
  if (at == entries_.end()) {
    make_room();
    entries_[shape].used = ++n_uses_;
    return calls();
  }
  Entry& entry = at->second;
  entry.used = ++n_uses_;
  if (entry.recording == nullptr) {
    entry.recording = backend_.record(calls);
    ++stats_.n_recorded;
  }
  backend_.replay(*entry.recording);
  ++stats_.n_replayed;
}

void Recordings::make_room() {
  if (entries_.size() < most_) return;
  entries_.erase(
      std::min_element(entries_.begin(), entries_.end(),
                       [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
  ++stats_.n_forgotten;
}

}  // namespace foretoken
