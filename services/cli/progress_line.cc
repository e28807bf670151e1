#include "services/cli/progress_line.h"

#include <algorithm>
#include <iostream>

#include "services/cli/terminal_size.h"
#include "services/cli/verbs.h"
#include "services/cli/voice.h"

namespace foretoken::cli {
namespace {

constexpr std::size_t kLongestBar = 40;
constexpr auto kBetweenDrawings = std::chrono::milliseconds(100);

std::size_t percent(std::size_t part, std::size_t all) { return all == 0 ? 100 : 100 * part / all; }

std::string counts(std::size_t n_done, std::size_t n_all) {
  return std::to_string(n_done) + "/" + std::to_string(n_all) + "  " +
         std::to_string(percent(n_done, n_all)) + " %";
}

}  // namespace

ProgressLine::Kind ProgressLine::kind_here(bool quiet) {
  return quiet ? Kind::kNone : stderr_is_terminal() ? Kind::kBar : Kind::kLines;
}

ProgressLine::ProgressLine(Kind kind, std::size_t n_all, std::size_t n_done)
    : kind_(kind), n_all_(n_all), tenths_(percent(n_done, n_all) / 10) {}

ProgressLine::~ProgressLine() { erase_status_line(); }

void ProgressLine::show(std::size_t n_done, const std::string& words, TimePoint now) {
  if (kind_ == Kind::kBar && now >= drawn_ + kBetweenDrawings) {
    drawn_ = now;
    draw_bar(n_done, words);
  }
  const std::size_t tenths = percent(n_done, n_all_) / 10;
  if (kind_ == Kind::kLines && tenths > tenths_) {
    tenths_ = tenths;
    std::cerr << counts(n_done, n_all_) << "  " << words << std::endl;
  }
}

void ProgressLine::draw_bar(std::size_t n_done, const std::string& words) const {
  const std::string head = counts(n_done, n_all_) + "  ", tail = "  " + words;
  const std::size_t used = head.size() + tail.size() + 1,
                    width = static_cast<std::size_t>(error_width());
  const std::size_t room = std::min(kLongestBar, width > used ? width - used : 0);
  const std::size_t full = n_all_ == 0 ? room : room * n_done / n_all_;
  std::string line = head;
  for (std::size_t i = 0; i < room; ++i) line += i < full ? "█" : "░";
  // A longer line than the terminal would leave its beginnings behind.
  line +=
      width > head.size() ? tail.substr(0, width - std::min(width, head.size() + room + 1)) : "";
  draw_status_line(line);
}

std::string duration_text(Duration duration) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration).count();
  const auto two = [](auto value) { return (value < 10 ? "0" : "") + std::to_string(value); };
  if (seconds < 60) return std::to_string(seconds) + " s";
  if (seconds < 3600) return std::to_string(seconds / 60) + ":" + two(seconds % 60) + " min";
  return std::to_string(seconds / 3600) + ":" + two(seconds / 60 % 60) + " h";
}

}  // namespace foretoken::cli
