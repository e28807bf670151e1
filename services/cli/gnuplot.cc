#include "services/cli/gnuplot.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>

#include "services/cli/options.h"

namespace foretoken::cli {
namespace {

constexpr int kNoSuchCommand = 127;  // of the shell

int say_it_is_not_installed() {
  std::cerr << "error: gnuplot draws the pictures and is not installed\n"
               "  try: apt install gnuplot-nox\n";
  return kExitEnvironment;
}

constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73",
                                    "#cc79a7", "#e69f00", "#56b4e9"};

}  // namespace

std::string gnuplot_text(std::string_view text) {
  std::string inside = "'";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) continue;
    inside += c == '\'' ? "''" : std::string(1, c);
  }
  return inside + "'";
}

std::string gnuplot_number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string gnuplot_colour(std::size_t curve) {
  return gnuplot_text(kColours[curve % std::size(kColours)]);
}

int find_gnuplot() {
  std::FILE* shell = ::popen("command -v gnuplot >/dev/null", "w");
  const bool is_there = shell != nullptr && ::pclose(shell) == 0;
  return is_there ? kExitOk : say_it_is_not_installed();
}

// The script through gnuplot's standard input.
int draw_by_gnuplot(const std::string& script) {
  std::signal(SIGPIPE, SIG_IGN);  // a gnuplot that ends early is an error, and not this one's end
  std::FILE* gnuplot = ::popen("gnuplot -d -", "w");
  const bool is_written = gnuplot != nullptr && std::fputs(script.c_str(), gnuplot) >= 0;
  const int status = gnuplot == nullptr ? -1 : ::pclose(gnuplot);
  if (is_written && status == 0) return kExitOk;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoSuchCommand) return say_it_is_not_installed();
  std::cerr << "error: gnuplot could not draw this; what it says is above\n";
  return kExitFailed;
}

}  // namespace foretoken::cli
