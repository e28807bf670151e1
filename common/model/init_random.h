// Writes Hugging Face folders with random weights, for tests and benches: the same bytes for the
// same recipe, on every machine. Any shape: kilobytes for tests, a 1B shape for a bench. Such a
// model has learnt nothing; say "synthetic" beside every number that comes from one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "common/model/config.h"

namespace foretoken {

struct RandomModelRecipe {
  ModelConfig config;  // tiny_config() is a start; max_model_len is ignored
  std::uint64_t seed = 1;
  float weight_scale = 1.0f;  // 1: rows of about unit gain, so that logits differ by a few units
  DType dtype = DType::kF32;  // kF32, kBf16 or kF16 on disk
  std::int32_t n_shards = 1;  // > 1: model-0000i-of-0000n.safetensors with an index
};

// A small valid config of a family: 2 layers, hidden 64, 4 heads, 2 KV heads, vocabulary 256, 2048
// positions.
ModelConfig tiny_config(Family family);

// Writes config.json, generation_config.json and the weights; creates the folder. No tokenizer
// files. Throws FatalError(kIo) or kUnsupportedModel for a config we could not read back.
void write_random_model(const std::filesystem::path& folder, const RandomModelRecipe& recipe);

// Copies a folder, adding to every weight amplitude * (the tensor's root mean square) * normal
// noise. A small amplitude makes a draft that often agrees with `source`: 0 gives the same
// function, 0.05 most greedy tokens, 1 few.
void write_perturbed_model(const std::filesystem::path& source,
                           const std::filesystem::path& folder,
                           float amplitude,
                           std::uint64_t seed);

}  // namespace foretoken
