// Pearson's test of counts against probabilities. The p-value is exact (regularised incomplete
// gamma), so a test can state the chance at which it would reject a true law.
#pragma once

#include <span>

namespace foretoken::test {

// P(chi-square with `degrees` degrees of freedom >= x).
double chi_square_tail(double x, double degrees);

// p-value of counts under probabilities (which sum to 1). Cells expected to hold fewer than five
// are merged; a count where the probability is zero gives 0.
double p_value_of_counts(std::span<const long> counts, std::span<const double> probabilities);

// p-value of the independence of rows and columns of a table. counts: [n_rows, n_columns].
double p_value_of_independence(std::span<const long> counts,
                               std::size_t n_rows,
                               std::size_t n_columns);

}  // namespace foretoken::test
