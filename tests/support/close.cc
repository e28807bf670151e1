#include "tests/support/close.h"

#include <bit>
#include <cmath>
#include <cstdint>

namespace foretoken::test {
namespace {

// Slack above this share of the result's scale proves nothing.
constexpr double kUseless = 0.5;

}  // namespace

::testing::AssertionResult close(std::span<const float> got, std::span<const ref::Real> want) {
  if (got.size() != want.size())
    return ::testing::AssertionFailure() << got.size() << " values, expected " << want.size();
  double squares = 0, slack_squares = 0, worst = 0;
  std::size_t worst_at = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    squares += want[i].value * want[i].value;
    slack_squares += want[i].slack * want[i].slack;
    const double distance = std::fabs(static_cast<double>(got[i]) - want[i].value);
    const double ratio = distance <= want[i].slack ? distance / (want[i].slack + 1e-300) : 1e30;
    if (!(distance <= want[i].slack) || ratio > worst) {
      worst = std::isnan(distance) ? 1e30 : ratio;
      worst_at = i;
      if (worst >= 1e30) break;
    }
  }
  if (worst > 1)
    return ::testing::AssertionFailure()
           << "element " << worst_at << " is " << got[worst_at] << ", expected "
           << want[worst_at].value << " within " << want[worst_at].slack;
  if (slack_squares > kUseless * kUseless * squares && squares > 0 && got.size() >= 16)
    return ::testing::AssertionFailure()
           << "the computed slack is too wide to tell right from wrong";
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult same_bits(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size())
    return ::testing::AssertionFailure() << got.size() << " values, expected " << want.size();
  for (std::size_t i = 0; i < got.size(); ++i)
    if (std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(want[i]))
      return ::testing::AssertionFailure()
             << "element " << i << " is " << got[i] << ", expected the bits of " << want[i];
  return ::testing::AssertionSuccess();
}

}  // namespace foretoken::test
