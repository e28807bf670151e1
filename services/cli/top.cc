// top: what a system does now. A page on a terminal, else a line or a JSON document an interval.
#include <ctime>
#include <iostream>
#include <thread>

#include "common/client/client.h"
#include "services/cli/ask.h"
#include "services/cli/terminal_screen.h"
#include "services/cli/text_width.h"
#include "services/cli/top_figures.h"
#include "services/cli/top_page.h"
#include "services/cli/verbs.h"
#include "services/cli/voice.h"

namespace foretoken::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 3s;

Result<Look> look(Client& client) {
  auto status = client.status(steady_now() + kPatience);
  if (!status.ok()) return status.error();
  const auto text = ask_for<wire::MetricsText>(client, {.op = wire::ClientOp::kMetrics}, kPatience);
  if (!text.ok()) return text.error();
  return Look{steady_now(), std::move(*status), read_samples(text->metrics_text)};
}

Duration interval_of(const CliOptions& options) {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(options.watch.interval_s));
}

bool fits_page(TerminalSize size) {
  return size.columns >= kSmallestPage.columns && size.rows >= kSmallestPage.rows;
}

std::string clock_text() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  char text[16];
  localtime_r(&now, &local);
  return {text, std::strftime(text, sizeof text, "%H:%M:%S", &local)};
}

void print_once(const TopFigures& figures, const CliOptions& options) {
  if (options.output.json) {
    std::cout << to_text(top_json(figures)) << std::endl;
  } else if (const TerminalSize size = terminal_size(); options.watch.once && fits_page(size)) {
    for (const auto& line : top_page(figures, {.size = size})) std::cout << line.text << "\n";
    std::cout << std::flush;
  } else {
    std::cout << clock_text() << "  " << top_line(figures) << std::endl;
  }
}

int in_lines(Client& client, Look before, const CliOptions& options) {
  while (std::cout) {
    std::this_thread::sleep_until(before.at + interval_of(options));
    auto now = look(client);
    if (!now.ok()) {
      if (options.watch.once) return report_error(now.error());
      say_note(now.error().message);
      // A router that is started again answers later.
      std::this_thread::sleep_for(interval_of(options));
      continue;
    }
    print_once(top_figures(before, *now), options);
    if (options.watch.once) return kExitOk;
    before = std::move(*now);
  }
  return kExitFailed;
}

// The page, between two looks.
class TopScreen {
 public:
  TopScreen(Client& client, Look first, Duration interval)
      : client_(client), interval_(interval), before_(std::move(first)) {
    figures_ = top_figures(before_, before_);
    layout_.note = "the first figures come after " + wait_text();
  }

  int run() {
    TimePoint next = before_.at + interval_;
    while (true) {
      draw();
      if (const auto pressed = screen_.key(next)) {
        const int key = *pressed;
        if (key == TerminalScreen::kInterrupted) return kExitInterrupted;
        if (key == 'q' || key == 'Q') return kExitOk;
        obey(key);
        continue;
      }
      next = steady_now() + interval_;
      if (!layout_.is_paused) take_look();
    }
  }

 private:
  void obey(int pressed) {
    if (pressed == 's')
      layout_.sort = static_cast<SortBy>((static_cast<int>(layout_.sort) + 1) % kSortOrders);
    if (pressed == 'd') layout_.shows_drafts = !layout_.shows_drafts;
    if (pressed == ' ') layout_.is_paused = !layout_.is_paused;
  }

  void take_look() {
    auto now = look(client_);
    if (!now.ok()) {
      layout_.note = now.error().message;
      return;
    }
    layout_.note.clear();
    figures_ = top_figures(before_, *now);
    before_ = std::move(*now);
  }

  void draw() {
    layout_.size = screen_.size();
    if (fits_page(layout_.size))
      screen_.draw(top_page(figures_, layout_));
    else
      screen_.draw({{cut_to(top_line(figures_), static_cast<std::size_t>(layout_.size.columns))}});
  }

  std::string wait_text() const {
    const double seconds = std::chrono::duration<double>(interval_).count();
    return std::to_string(seconds).substr(0, std::to_string(seconds).find('.') + 2) + " s";
  }

  Client& client_;
  Duration interval_;
  Look before_;
  TopFigures figures_;
  TopLayout layout_;
  TerminalScreen screen_;
};

}  // namespace

int run_top(const CliOptions& options) {
  const auto loaded = load_configuration(options.config);
  if (!loaded) return kExitUsage;
  Client client(loaded->config.bus);
  auto first = look(client);
  if (!first.ok()) {
    Error error = first.error();
    if (error.code == ErrorCode::kDeadlineExceeded) error.code = ErrorCode::kUnavailable;
    return report_error(error);
  }
  const bool has_keys = ::isatty(STDIN_FILENO) == 1;
  if (options.output.json || options.watch.once || !has_keys || !fits_page(terminal_size()))
    return in_lines(client, std::move(*first), options);
  return TopScreen(client, std::move(*first), interval_of(options)).run();
}

}  // namespace foretoken::cli
