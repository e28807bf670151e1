// How far a long verb is, on standard error: a bar that moves at a terminal, elsewhere a line each
// 10 %.
#pragma once

#include <cstddef>
#include <string>

#include "common/base/clock.h"

namespace foretoken::cli {

class ProgressLine {
 public:
  enum class Kind { kNone, kLines, kBar };
  static Kind kind_here(bool quiet);

  ProgressLine(Kind kind, std::size_t n_all, std::size_t n_done);
  ~ProgressLine();  // takes the bar away: before a table or an error is written
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // `words`: what else is to be said now. Draws at most ten times a second.
  void show(std::size_t n_done, const std::string& words, TimePoint now);

 private:
  void draw_bar(std::size_t n_done, const std::string& words) const;

  const Kind kind_;
  const std::size_t n_all_;
  std::size_t tenths_;  // said so far
  TimePoint drawn_{};
};

// "42 s", "3:07 min", "2:15 h"
std::string duration_text(Duration duration);

}  // namespace foretoken::cli
