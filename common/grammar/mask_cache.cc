#include "common/grammar/mask_cache.h"

namespace foretoken {

std::span<const std::uint32_t> MaskCache::get(
    Key key, const std::function<void(std::span<std::uint32_t>)>& find) {
  if (const auto known = places_.find(key); known != places_.end()) {
    masks_.splice(masks_.begin(), masks_, known->second);
    return masks_.front().second;
  }
  masks_.emplace_front(key, std::vector<std::uint32_t>(n_words_));
  places_.emplace(key, masks_.begin());
  find(masks_.front().second);
  constexpr std::size_t kOtherBytes = 128;  // of an entry
  while (masks_.size() > 1 &&
         masks_.size() * (n_words_ * sizeof(std::uint32_t) + kOtherBytes) > max_bytes_) {
    places_.erase(masks_.back().first);
    masks_.pop_back();
  }
  return masks_.front().second;
}

}  // namespace foretoken
