// Scripts of gnuplot's: the words that pictures share, and the program that draws them.
#pragma once

#include <string>
#include <string_view>

namespace foretoken::cli {

// A text in gnuplot's single quotes, in which nothing but the quote has a meaning.
std::string gnuplot_text(std::string_view text);
std::string gnuplot_number(double value);
// The colour of a curve, in quotes. People who see few colours can distinguish them too.
std::string gnuplot_colour(std::size_t curve);

// Before work whose end is a picture: the exit code, after an error message.
int find_gnuplot();

// Returns the exit code; what went wrong is said on standard error.
int draw_by_gnuplot(const std::string& script);

}  // namespace foretoken::cli
