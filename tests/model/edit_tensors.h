// A safetensors file with other tensors than it had: what tests of damaged and unusual folders
// edit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/model/safetensors.h"

namespace foretoken::test {

struct Tensor {
  TensorType type = TensorType::kF32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};
using Tensors = std::map<std::string, Tensor>;

template <class T>
std::vector<std::byte> as_bytes(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// Rewrites a file with other tensors.
inline void edit(const std::filesystem::path& path, const std::function<void(Tensors&)>& change) {
  Tensors tensors;
  {
    const SafetensorsFile file(path);
    for (const TensorInfo& info : file.tensors()) {
      const auto bytes = file.bytes(info);
      tensors[info.name] = {info.type, info.shape, {bytes.begin(), bytes.end()}};
    }
  }
  change(tensors);
  std::vector<SafetensorsWriter::Plan> plan;
  for (const auto& [name, tensor] : tensors) plan.push_back({name, tensor.type, tensor.shape});
  std::ranges::stable_sort(plan, std::ranges::greater{},
                           [](const auto& p) { return size_bytes(p.type); });
  SafetensorsWriter writer(path, plan);
  for (const auto& p : plan) writer.append(tensors.at(p.name).bytes);
  writer.finish();
}

}  // namespace foretoken::test
