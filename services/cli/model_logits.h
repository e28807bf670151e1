// How far the logits of a model are from those of another form of it, along a text.
#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/model/load_model.h"
#include "common/model/logit_difference.h"

namespace foretoken::cli {

struct LogitComparison {
  LogitDifference logits;
  std::string held;       // what the other form was computed in
  std::string reference;  // what the folder was, where it could not be as it is stored
};

// Tokens of the text in `file`, or of a built-in page if that is empty. Throws FatalError(kConfig)
// for a file that cannot be compared on.
std::vector<TokenId> sample_tokens(const std::string& folder, const std::string& file);

// The same of a file that scales are chosen for, more of it. Throws FatalError(kConfig).
std::vector<TokenId> calibration_tokens(const std::string& folder, const std::string& file);

// The float folder as it is, the other one as it would be served here; where this device has no
// product of `to`, with its weights widened to float32: the error of the weights alone.
LogitComparison compare_logits_of(const std::string& source,
                                  const std::string& folder,
                                  DType to,
                                  const std::vector<TokenId>& tokens);

// A folder as it is stored and as it is loaded with another dtype. One that no product follows as
// it is stored (groups out of order) is widened to float32, which has its weights to the last bit.
LogitComparison compare_logits_of(const std::string& folder,
                                  WeightDType dtype,
                                  const std::vector<TokenId>& tokens);

std::string sentence_of(const LogitComparison& comparison);
OrderedJson as_json(const LogitComparison& comparison);

}  // namespace foretoken::cli
