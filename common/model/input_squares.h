// How much an error of a weight counts: the mean square of what its column is multiplied with,
// along a text that the float model reads. Weights are then quantised for what the model sees, not
// for weights that are all alike.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "kernels/include/backend.h"

namespace foretoken {

// Of each linear of a layer, by its name ("model.layers.0.self_attn.q_proj.weight"): one for each
// column.
using InputSquares = std::map<std::string, std::vector<float>, std::less<>>;

// Positions that are read as one sequence.
inline constexpr std::size_t kCalibrationWindow = 512;

// Reads `tokens` in sequences of kCalibrationWindow. Throws FatalError as load_model does.
InputSquares mean_squared_inputs(const std::filesystem::path& folder,
                                 Backend& backend,
                                 std::span<const TokenId> tokens);

}  // namespace foretoken
