// How far the logits of one model are from those of another along a text.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/ids.h"
#include "common/model/model.h"
#include "kernels/include/backend.h"

namespace foretoken {

struct LogitDifference {
  std::uint32_t n_positions = 0;
  std::uint32_t n_same_top = 0;  // positions at which both find the same token likeliest
  double rms = 0;                // of the difference of two logits
  double rms_reference = 0;      // of the reference's logits around their mean
  double largest = 0;
  double mean_kl = 0;  // nats, of softmax(reference) against softmax(other)
};

// Both models read `tokens` as one sequence; each must have room for it. One backend holds both.
// Throws FatalError (kMalformed) if a logit is not finite.
LogitDifference compare_logits(Model& reference,
                               Model& other,
                               Backend& backend,
                               std::span<const TokenId> tokens);

}  // namespace foretoken
