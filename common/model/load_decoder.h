// load_model, for those who want to see what the linears of the model are given.
#pragma once

#include <filesystem>
#include <memory>

#include "common/model/decoder.h"
#include "common/model/linear_inputs.h"
#include "common/model/load_model.h"

namespace foretoken {

// The observer, null or one that outlives the model, is asked in every pass.
std::unique_ptr<Decoder> load_decoder(const std::filesystem::path& folder,
                                      Backend& backend,
                                      const LoadOptions& options,
                                      LinearInputObserver* observer);

}  // namespace foretoken
