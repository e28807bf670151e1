#include "services/cli/top_page.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "services/cli/service_table.h"
#include "services/cli/text_width.h"

namespace foretoken::cli {
namespace {

// From here on the panels stand beside the services, not below them.
constexpr int kSideBySide = 140;
constexpr std::size_t kPanelColumns = 56;
constexpr std::size_t kPanelRows = 5;  // as many as a round has phases

template <class... Values>
std::string printed(const char* format, Values... values) {
  char text[128];
  const int n = std::snprintf(text, sizeof text, format, values...);
  return {text, static_cast<std::size_t>(std::clamp(n, 0, static_cast<int>(sizeof text) - 1))};
}

std::string fitted(const std::string& text, std::size_t columns) {
  return filled_to(cut_to(text, columns), columns);
}

std::string bar(double share, std::size_t columns, char rest = ' ') {
  const double filled = std::clamp(share, 0.0, 1.0) * static_cast<double>(columns);
  const auto n = static_cast<std::size_t>(std::llround(filled));
  return std::string(n, '#') + std::string(columns - n, rest);
}

std::string names_in(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string in_percent(const std::optional<double>& share) {
  return share ? printed("%.0f %%", 100 * *share) : "-";
}

std::string in_ms(const std::optional<double>& seconds) {
  if (!seconds) return "-";
  const double ms = 1000 * *seconds;
  return printed(ms < 1 ? "%.2fms" : ms < 10 ? "%.1fms" : "%.0fms", ms);
}

std::string in_bytes(std::uint64_t n) {
  const double mebibytes = static_cast<double>(n) / (1 << 20);
  if (n == 0) return "-";
  return mebibytes < 1000 ? printed("%.0fM", mebibytes) : printed("%.1fG", mebibytes / 1024);
}

std::string in_share(const std::optional<double>& value) {
  if (!value) return "-";
  return printed("%.2f", *value);
}

std::string speed_of(const TopFigures& f) {
  std::string text = printed("%.0f tok/s", f.tokens_per_second);
  if (f.asking_gain > 0) text += printed(" (%.1f x plain)", f.asking_gain);
  return text;
}

std::string models_of(const TopFigures& f) {
  const std::string targets = f.models.empty() ? "no model" : names_in(f.models);
  return f.draft_models.empty() ? targets : targets + " <- " + names_in(f.draft_models);
}

double n_fallbacks(const TopFigures& f) {
  double n = 0;
  for (const auto& reason : f.fallbacks) n += reason.second;
  return n;
}

std::string rounds_of(const TopFigures& f) {
  const std::string tokens = f.tokens_per_round ? printed("%.1f", *f.tokens_per_round) : "-";
  return "tokens/round " + tokens + "  accepted " + in_share(f.accepted) +
         printed("  fallbacks %.0f", n_fallbacks(f));
}

std::string main_reason(const TopFigures& f) {
  const auto most =
      std::max_element(f.fallbacks.begin(), f.fallbacks.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == f.fallbacks.end() ? "" : " (" + most->first + ")";
}

// ---- services

std::string name_of(SortBy sort) {
  switch (sort) {
    case SortBy::kName:
      return "role";
    case SortBy::kCpu:
      return "cpu";
    case SortBy::kMemory:
      return "rss";
    case SortBy::kQueue:
      return "queue";
  }
  return "";
}

std::vector<TopService> sorted(std::vector<TopService> services, SortBy sort) {
  const auto by = [&](const auto& value) {
    std::stable_sort(services.begin(), services.end(),
                     [&](const auto& a, const auto& b) { return value(a) > value(b); });
  };
  if (sort == SortBy::kCpu) by([](const TopService& s) { return s.cpu.value_or(0); });
  if (sort == SortBy::kMemory) by([](const TopService& s) { return s.rss_bytes; });
  if (sort == SortBy::kQueue) by([](const TopService& s) { return s.n_queued; });
  return services;  // the router's order is by role
}

std::string service_line(const std::vector<std::string>& cells, const std::string& note) {
  static constexpr std::size_t kWidths[] = {12, 8, 6, 6, 6, 6, 8, 8, 10};
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const bool is_word = i < 2 || i + 1 == cells.size();
    line += is_word ? fitted(cells[i], kWidths[i]) : right_aligned(cells[i], kWidths[i]);
    if (i + 2 == cells.size()) line += "  ";
  }
  return line + note;
}

std::vector<PageLine> service_lines(const TopFigures& f, SortBy sort, std::size_t most) {
  std::vector<PageLine> lines = {
      {service_line({"service", "state", "cpu", "rss", "queue", "tok/s", "p50", "p99", "of"},
                    "note"),
       LineStyle::kHeading}};
  for (const auto& s : sorted(f.services, sort)) {
    const std::string rate = s.tokens_per_second ? printed("%.0f", *s.tokens_per_second) : "-";
    lines.push_back(
        {service_line({s.name, s.state, in_percent(s.cpu), in_bytes(s.rss_bytes),
                       std::to_string(s.n_queued), rate, in_ms(s.p50_s), in_ms(s.p99_s), s.timed},
                      s.note)});
  }
  const std::size_t n_hidden = lines.size() > most ? lines.size() - most + 1 : 0;
  if (n_hidden > 0) {
    lines.resize(most - 1);
    lines.push_back({"... and " + std::to_string(n_hidden) + " more"});
  }
  return lines;
}

// ---- panels

std::vector<PageLine> panel_lines(const TopFigures& f) {
  const std::string round = f.round_s ? "round " + in_ms(f.round_s) : "round -";
  std::vector<PageLine> lines = {{fitted("accepted by position", 30) + round, LineStyle::kHeading}};
  double longest = 0;
  for (const auto& phase : f.phases) longest = std::max(longest, phase.mean_s.value_or(0));
  for (std::size_t i = 0; i < kPanelRows; ++i) {
    std::string line;
    if (i < f.accepted_by_position.size())
      line = right_aligned(std::to_string(i + 1), 2) + " " + bar(f.accepted_by_position[i], 18) +
             " " + in_share(f.accepted_by_position[i]);
    line = fitted(line, 30);
    if (i < f.phases.size()) {
      const double mean = f.phases[i].mean_s.value_or(0);
      line += fitted(f.phases[i].name, 10) + bar(longest > 0 ? mean / longest : 0, 8) +
              right_aligned(in_ms(f.phases[i].mean_s), 8);
    }
    lines.push_back({line});
  }
  return lines;
}

std::vector<PageLine> draft_lines(const TopFigures& f, std::size_t most) {
  const auto line = [](const std::vector<std::string>& cells) {
    std::string text = fitted(cells[0], 12);
    for (std::size_t i = 1; i < cells.size(); ++i) text += right_aligned(cells[i], 8);
    return text;
  };
  std::vector<PageLine> lines = {
      {line({"draft", "guess/s", "kept", "cut", "seqs", "kv"}), LineStyle::kHeading}};
  for (const auto& d : f.drafts)
    lines.push_back(
        {line({d.name, printed("%.0f", d.guesses_per_second), in_percent(d.kept), in_percent(d.cut),
               std::to_string(d.n_sequences), in_percent(d.kv_used)})});
  if (f.drafts.empty()) lines.push_back({"no draft"});
  if (lines.size() > most) lines.resize(most);
  return lines;
}

std::vector<PageLine> beside(std::vector<PageLine> left,
                             const std::vector<PageLine>& panels,
                             std::size_t columns) {
  left.resize(std::max(left.size(), panels.size()));
  for (std::size_t i = 0; i < panels.size(); ++i) {
    left[i].text = fitted(left[i].text, columns) + "  " + panels[i].text;
    left[i].style = panels[i].style;
  }
  return left;
}

std::string keys_of(const TopLayout& layout) {
  return "q quit  s sort (" + name_of(layout.sort) + ")  space " +
         (layout.is_paused ? "go on" : "pause") + "  d " +
         (layout.shows_drafts ? "rounds" : "drafts");
}

}  // namespace

std::vector<PageLine> top_page(const TopFigures& f, const TopLayout& layout) {
  const auto columns = static_cast<std::size_t>(std::max(1, layout.size.columns));
  const auto rows = static_cast<std::size_t>(std::max(1, layout.size.rows));
  const bool is_wide = layout.size.columns >= kSideBySide;
  const std::size_t n_left = is_wide ? columns - kPanelColumns - 2 : columns;
  const std::string state = layout.is_paused ? "  PAUSED" : f.ready ? "" : "  NOT READY";
  const std::string title =
      "foretoken top  " + models_of(f) + "  up " + as_duration(f.uptime_s) + state;
  const std::string load =
      speed_of(f) +
      printed("  running %llu  waiting %llu  kv ", static_cast<unsigned long long>(f.n_running),
              static_cast<unsigned long long>(f.n_waiting)) +
      bar(f.kv_used, 10, '.') + " " + in_percent(f.kv_used);
  std::vector<PageLine> lines;
  if (is_wide) {
    lines = {{title + "  " + load, LineStyle::kTitle}};
  } else {
    lines = {{title, LineStyle::kTitle}, {load, LineStyle::kTitle}};
  }

  const std::vector<PageLine> panels =
      layout.shows_drafts ? draft_lines(f, kPanelRows + 1) : panel_lines(f);
  const std::size_t n_footer = is_wide ? 1 : 2;
  const std::size_t free = rows - std::min(rows, lines.size() + n_footer);
  const std::size_t n_below = is_wide ? 0 : panels.size();
  auto body =
      service_lines(f, layout.sort, std::max<std::size_t>(2, free - std::min(free, n_below)));
  if (is_wide) {
    body = beside(std::move(body), panels, n_left);
  } else {
    body.insert(body.end(), panels.begin(), panels.end());
  }
  lines.insert(lines.end(), body.begin(), body.end());

  const std::string numbers = layout.note.empty() ? rounds_of(f) + main_reason(f) : layout.note;
  if (is_wide) {
    lines.push_back({fitted(keys_of(layout), n_left + 2) + numbers});
  } else {
    lines.push_back({numbers});
    lines.push_back({keys_of(layout)});
  }
  if (lines.size() > rows) lines.resize(rows);
  for (PageLine& line : lines) {
    line.text = cut_to(line.text, columns);
    line.text.erase(line.text.find_last_not_of(' ') + 1);
  }
  return lines;
}

std::string top_line(const TopFigures& f) {
  return models_of(f) + "  " + speed_of(f) +
         printed("  running %llu  waiting %llu  kv %.0f %%",
                 static_cast<unsigned long long>(f.n_running),
                 static_cast<unsigned long long>(f.n_waiting), 100 * f.kv_used) +
         "  " + rounds_of(f) + "  round " + in_ms(f.round_s);
}

}  // namespace foretoken::cli
