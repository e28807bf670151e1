// Names by which clients ask for a model. An alias may end in a star: it stands for every name that
// begins with what is before the star.
#pragma once

#include <string_view>

namespace foretoken {

// True if `alias` is `name` or stands for it.
inline bool stands_for(std::string_view alias, std::string_view name) {
  if (!alias.ends_with('*')) return alias == name;
  return name.starts_with(alias.substr(0, alias.size() - 1));
}

// True if a name exists that both stand for.
inline bool overlap(std::string_view a, std::string_view b) {
  if (!a.ends_with('*')) return stands_for(b, a);
  const std::string_view prefix = a.substr(0, a.size() - 1);
  if (!b.ends_with('*')) return b.starts_with(prefix);
  const std::string_view other = b.substr(0, b.size() - 1);
  return prefix.starts_with(other) || other.starts_with(prefix);
}

}  // namespace foretoken
