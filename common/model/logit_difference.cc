#include "common/model/logit_difference.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/result.h"
#include "common/model/config.h"
#include "common/model/sequence_reader.h"

namespace foretoken {
namespace {

double log_sum_exp(std::span<const float> logits) {
  const double largest = static_cast<double>(*std::ranges::max_element(logits));
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

void add_row(std::span<const float> reference, std::span<const float> other, LogitDifference& d) {
  const auto top = [](std::span<const float> row) {
    return std::ranges::max_element(row) - row.begin();
  };
  ++d.n_positions;
  d.n_same_top += top(reference) == top(other);
  const double reference_total = log_sum_exp(reference), other_total = log_sum_exp(other);
  double mean = 0;
  for (float logit : reference) mean += static_cast<double>(logit);
  mean /= static_cast<double>(reference.size());
  for (std::size_t v = 0; v < reference.size(); ++v) {
    const auto p = static_cast<double>(reference[v]), q = static_cast<double>(other[v]);
    d.rms += (q - p) * (q - p);
    d.rms_reference += (p - mean) * (p - mean);
    d.largest = std::max(d.largest, std::abs(q - p));
    d.mean_kl += std::exp(p - reference_total) * ((p - reference_total) - (q - other_total));
  }
}

// An infinite logit would count as the likeliest one on both sides, and make NaN of every sum.
void require_finite(std::span<const float> logits, std::size_t position, const char* whose) {
  if (std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); })) return;
  throw FatalError(ErrorCode::kMalformed,
                   std::string("the logits of ") + whose + " at position " +
                       std::to_string(position) +
                       " of the text are not all finite: there is nothing to compare");
}

}  // namespace

LogitDifference compare_logits(Model& reference,
                               Model& other,
                               Backend& backend,
                               std::span<const TokenId> tokens) {
  FORETOKEN_CHECK(reference.config().vocab_size == other.config().vocab_size);
  const auto vocab = static_cast<std::size_t>(reference.config().vocab_size);
  const auto chunk =
      static_cast<std::size_t>(std::min({reference.max_rows(), other.max_rows(), 64}));
  SequenceReader one(reference, backend, tokens.size()), two(other, backend, tokens.size());
  LogitDifference d;
  for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const auto part = tokens.subspan(begin, std::min(chunk, tokens.size() - begin));
    const std::span<const float> p = one.next(part, LogitRows::kAll),
                                 q = two.next(part, LogitRows::kAll);
    for (std::size_t row = 0; row < part.size(); ++row) {
      const auto of_one = p.subspan(row * vocab, vocab), of_two = q.subspan(row * vocab, vocab);
      require_finite(of_one, begin + row, "the reference");
      require_finite(of_two, begin + row, "the model beside it");
      add_row(of_one, of_two, d);
    }
  }
  const double n_rows = std::max(1.0, static_cast<double>(d.n_positions));
  const double n_logits = n_rows * static_cast<double>(vocab);
  d.rms = std::sqrt(d.rms / n_logits);
  d.rms_reference = std::sqrt(d.rms_reference / n_logits);
  d.mean_kl /= n_rows;
  return d;
}

}  // namespace foretoken
