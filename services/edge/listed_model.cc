#include "services/edge/listed_model.h"

#include <ctime>

namespace foretoken::edge {

std::string rfc3339(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  const std::size_t n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return std::string(text, n);
}

}  // namespace foretoken::edge
