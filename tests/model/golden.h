// A reference's logits for one sequence of tokens, as the scripts of fixtures write them.
#pragma once

#include <cstring>
#include <filesystem>
#include <vector>

#include "common/base/ids.h"
#include "common/model/safetensors.h"

namespace foretoken::test {

struct Golden {
  std::vector<TokenId> tokens;
  std::vector<float> logits;  // [tokens.size(), vocab]
};

// folder/golden.safetensors: "tokens" and one tensor of logits.
inline Golden golden_of(const std::filesystem::path& folder) {
  const SafetensorsFile file(folder / "golden.safetensors");
  Golden golden;
  for (const TensorInfo& tensor : file.tensors()) {
    const auto bytes = file.bytes(tensor);
    void* to = nullptr;
    if (tensor.name == "tokens") {
      golden.tokens.resize(tensor.n_elements());
      to = golden.tokens.data();
    } else {
      golden.logits.resize(tensor.n_elements());
      to = golden.logits.data();
    }
    std::memcpy(to, bytes.data(), bytes.size());
  }
  return golden;
}

}  // namespace foretoken::test
