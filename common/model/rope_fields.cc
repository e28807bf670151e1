#include "common/model/rope_fields.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "common/model/rope.h"

namespace foretoken {
namespace {

RopeType rope_type_of(const ConfigFields& rope, const char* field) {
  const std::string name = rope.text_or(field, "default");
  for (RopeType type : {RopeType::kDefault, RopeType::kLinear, RopeType::kLlama3, RopeType::kYarn})
    if (rope_type_name(type) == name) return type;
  rope.refuse(ErrorCode::kUnsupportedModel, field,
              "is \"" + name.substr(0, 40) + "\"; supported: default, linear, llama3, yarn");
}

constexpr const char* kAttnFactor = "attn_factor";

// Transformers and vLLM read this key differently: neither of the two is taken without a word.
void refuse_attn_factor(const ConfigFields& rope, double factor) {
  if (!rope.has(kAttnFactor)) return;
  const double of_vllm = rope.number(kAttnFactor, 0, 1e6) *
                         rope_attention_factor({.type = RopeType::kYarn, .factor = factor});
  rope.refuse(
      ErrorCode::kUnsupportedModel, kAttnFactor,
      "is ignored by Transformers, and vLLM multiplies the attention factor by it. Edit "
      "config.json: remove the key for Transformers' values, or put \"attention_factor\": " +
          to_text(Json(of_vllm)) + " in its place for vLLM's");
}

// A key we do not know may change every angle: ignoring it gives text that degrades with length, so
// it is refused.
void refuse_unknown_rope_keys(const ConfigFields& rope, RopeType type) {
  for (const auto& [key, value] : rope.object().items()) {
    static constexpr std::string_view kKnown[] = {"rope_type",
                                                  "type",
                                                  "rope_theta",
                                                  "factor",
                                                  "low_freq_factor",
                                                  "high_freq_factor",
                                                  "original_max_position_embeddings",
                                                  "beta_fast",
                                                  "beta_slow",
                                                  "attention_factor",
                                                  "mscale",
                                                  "mscale_all_dim",
                                                  "truncate",
                                                  "partial_rotary_factor",
                                                  "finetuned"};
    if (type == RopeType::kYarn && key == kAttnFactor) continue;  // has a refusal of its own
    if (std::ranges::find(kKnown, key) == std::end(kKnown)) {
      rope.refuse(ErrorCode::kUnsupportedModel, key.substr(0, 60).c_str(),
                  "is not a RoPE parameter we know; ignoring it could change the text");
    }
  }
  if (rope.number_or("partial_rotary_factor", 0, 1, 1) != 1)
    rope.refuse(ErrorCode::kUnsupportedModel, "partial_rotary_factor",
                "is not 1: partial rotation is not supported");
}

constexpr const char* kOriginalLength = "original_max_position_embeddings";

// original: the length where the parameters have none.
void read_yarn(const ConfigFields& rope,
               std::int64_t max_positions,
               std::int64_t original,
               RopeSpec& spec) {
  spec.original_max_position_embeddings =
      rope.integer_or(kOriginalLength, 1, kMaxPositions, original);
  spec.factor = rope.number_or("factor", 1, 1e6,
                               static_cast<double>(max_positions) /
                                   static_cast<double>(spec.original_max_position_embeddings));
  refuse_attn_factor(rope, spec.factor);
  spec.beta_fast = rope.number_or("beta_fast", 1e-3, 1e6, 32);
  spec.beta_slow = rope.number_or("beta_slow", 1e-3, 1e6, 1);
  if (rope.has("attention_factor"))
    spec.attention_factor = rope.number("attention_factor", 1e-6, 1e6);
  spec.mscale = rope.number_or("mscale", 0, 1e6, 0);
  spec.mscale_all_dim = rope.number_or("mscale_all_dim", 0, 1e6, 0);
  spec.truncate = rope.flag_or("truncate", true);
}

void read_rope_parameters(const ConfigFields& rope,
                          std::int64_t max_positions,
                          std::int64_t original,
                          RopeSpec& spec) {
  spec.type = rope_type_of(rope, rope.has("rope_type") ? "rope_type" : "type");
  refuse_unknown_rope_keys(rope, spec.type);
  spec.theta = rope.number_or("rope_theta", 1.0001, 1e15, spec.theta);
  switch (spec.type) {
    case RopeType::kDefault:
      break;
    case RopeType::kLinear:
      spec.factor = rope.number("factor", 1, 1e6);
      break;
    case RopeType::kLlama3:
      spec.factor = rope.number("factor", 1, 1e6);
      spec.low_freq_factor = rope.number("low_freq_factor", 1e-6, 1e6);
      spec.high_freq_factor = rope.number("high_freq_factor", 1e-6, 1e6);
      if (spec.high_freq_factor <= spec.low_freq_factor)
        rope.expected("high_freq_factor", "above low_freq_factor");
      spec.original_max_position_embeddings = rope.integer(kOriginalLength, 1, kMaxPositions);
      break;
    case RopeType::kYarn:
      read_yarn(rope, max_positions, original, spec);
      break;
  }
}

// Beside both spellings of the other parameters.
double theta_of(const ConfigFields& fields) {
  return fields.number_or("rope_theta", 1.0001, 1e15, RopeSpec{}.theta);
}

// What `key` says, with the theta beside it unless it has its own; nothing where it is not there.
std::optional<RopeSpec> read_spelling(const ConfigFields& fields,
                                      const char* key,
                                      std::int64_t max_positions) {
  const Json* found = fields.find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_object()) fields.expected(key, "an object");
  std::string prefix = std::string(key) + ".";
  if (const auto full = found->find("full_attention"); full != found->end()) {
    if (!full->is_object()) fields.expected(key, "an object with an object for full_attention");
    found = &*full;
    prefix += "full_attention.";
  }
  RopeSpec spec;
  spec.theta = theta_of(fields);
  // One beside the parameters: Transformers takes it before the one among them.
  const std::int64_t original = fields.integer_or(kOriginalLength, 1, kMaxPositions, max_positions);
  read_rope_parameters(ConfigFields(*found, fields.file(), prefix), max_positions, original, spec);
  const std::int64_t taken = spec.original_max_position_embeddings;
  if (taken != 0 && fields.has(kOriginalLength) && taken != original)
    fields.refuse(
        ErrorCode::kUnsupportedModel, kOriginalLength,
        "is not the " + std::to_string(taken) + " of the RoPE parameters; keep one of them");
  return spec;
}

}  // namespace

// New spelling: rope_parameters, perhaps one map per layer type. Old: rope_theta beside
// rope_scaling.
RopeSpec read_rope(const ConfigFields& fields, std::int64_t max_positions) {
  const auto old_spelling = read_spelling(fields, "rope_scaling", max_positions);
  const auto new_spelling = read_spelling(fields, "rope_parameters", max_positions);
  if (new_spelling && old_spelling) {
    RopeSpec other = *old_spelling;
    other.theta = new_spelling->theta;  // beside it, or among the new parameters
    if (other != *new_spelling)
      fields.refuse(ErrorCode::kUnsupportedModel, "rope_scaling",
                    "stands beside rope_parameters and says something else; keep one of them");
  }
  if (new_spelling) return *new_spelling;
  if (old_spelling) return *old_spelling;
  return {.theta = theta_of(fields)};
}

}  // namespace foretoken
