// The one comparison of floating-point results. The permitted distance is the oracle's own slack,
// computed from sizes, magnitudes and roundings; a test cannot bring a tolerance.
#pragma once

#include <gtest/gtest.h>

#include <span>

#include "kernels/ref/real.h"

namespace foretoken::test {

// Fails with the worst element. Also fails if the slack is so wide that the comparison would say
// little.
::testing::AssertionResult close(std::span<const float> got, std::span<const ref::Real> want);

// Equal bits; NaNs of equal bits are equal.
::testing::AssertionResult same_bits(std::span<const float> got, std::span<const float> want);

}  // namespace foretoken::test
