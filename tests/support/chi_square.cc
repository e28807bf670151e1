#include "tests/support/chi_square.h"

#include <cmath>
#include <cstddef>
#include <vector>

namespace foretoken::test {

double chi_square_tail(double x, double degrees) {
  const double a = degrees / 2, z = x / 2;
  if (z <= 0) return 1;
  const double front = std::exp(-z + a * std::log(z) - std::lgamma(a));
  if (z < a + 1) {  // series of the lower function
    double term = 1 / a, sum = term;
    for (int n = 1; n < 10000 && term > sum * 1e-15; ++n) sum += term *= z / (a + n);
    return 1 - front * sum;
  }
  double b = z + 1 - a, c = 1e300, d = 1 / b, h = d;  // continued fraction of the upper function
  for (int n = 1; n < 10000; ++n) {
    const double an = -n * (n - a);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    h *= d * c;
    if (std::fabs(d * c - 1) < 1e-15) break;
  }
  return front * h;
}

double p_value_of_counts(std::span<const long> counts, std::span<const double> probabilities) {
  double total = 0;
  for (const long n : counts) total += static_cast<double>(n);
  double statistic = 0, rest_expected = 0, rest_seen = 0;
  int n_cells = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = total * probabilities[i], seen = static_cast<double>(counts[i]);
    if (probabilities[i] == 0 && counts[i] > 0) return 0;
    if (expected < 5) {
      rest_expected += expected;
      rest_seen += seen;
      continue;
    }
    statistic += (seen - expected) * (seen - expected) / expected;
    ++n_cells;
  }
  if (rest_expected >= 1) {
    statistic += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
    ++n_cells;
  }
  return n_cells > 1 ? chi_square_tail(statistic, n_cells - 1) : 1;
}

double p_value_of_independence(std::span<const long> counts,
                               std::size_t n_rows,
                               std::size_t n_columns) {
  std::vector<double> row(n_rows), column(n_columns);
  double total = 0;
  for (std::size_t i = 0; i < n_rows; ++i)
    for (std::size_t j = 0; j < n_columns; ++j) {
      const double n = static_cast<double>(counts[i * n_columns + j]);
      row[i] += n;
      column[j] += n;
      total += n;
    }
  double statistic = 0;
  for (std::size_t i = 0; i < n_rows; ++i)
    for (std::size_t j = 0; j < n_columns; ++j) {
      const double expected = row[i] * column[j] / total;
      const double seen = static_cast<double>(counts[i * n_columns + j]);
      if (expected > 0) statistic += (seen - expected) * (seen - expected) / expected;
    }
  return chi_square_tail(statistic, static_cast<double>((n_rows - 1) * (n_columns - 1)));
}

}  // namespace foretoken::test
