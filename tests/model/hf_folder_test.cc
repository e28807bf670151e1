#include "common/model/hf_folder.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <string>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/result.h"
#include "common/model/rope.h"
#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// config.json files in the manner of published models; numbers are theirs.
constexpr const char* kLlama31 = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 128000,
  "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
  "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1,
  "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
  "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.42.3", "use_cache": true,
  "vocab_size": 128256})";
constexpr const char* kQwen25 = R"({
  "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645,
  "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864,
  "max_position_embeddings": 32768, "max_window_layers": 21, "model_type": "qwen2", "num_attention_heads": 14,
  "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
  "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true,
  "use_sliding_window": false, "vocab_size": 151936})";
constexpr const char* kQwen3 = R"({
  "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
  "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 3072,
  "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16,
  "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null,
  "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "use_sliding_window": false, "vocab_size": 151936})";
constexpr const char* kMistral = R"({
  "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
  "hidden_size": 5120, "head_dim": 128, "intermediate_size": 14336, "max_position_embeddings": 131072,
  "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8,
  "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "vocab_size": 131072})";

// A config with members replaced; a null takes one away.
std::string with(const char* config, const char* patch) {
  Json json = *parse_json(config);
  json.merge_patch(*parse_json(patch));
  return to_text(json);
}

std::string refusal(const std::string& config, const std::string& generation = "") {
  try {
    parse_model_config(config, generation, "folder");
    return "accepted";
  } catch (const FatalError& error) {
    return std::string(error_code_name(error.code())) + ": " + error.what();
  }
}

TEST(HfFolder, ReadsLlama31) {
  const ModelConfig c = parse_model_config(kLlama31, "", "folder");
  EXPECT_EQ(c.family, Family::kLlama);
  EXPECT_EQ(c.n_layers, 32);
  EXPECT_EQ(c.n_hidden, 4096);
  EXPECT_EQ(c.n_heads, 32);
  EXPECT_EQ(c.n_kv_heads, 8);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.n_ffn, 14336);
  EXPECT_EQ(c.vocab_size, 128256);
  EXPECT_EQ(c.rms_norm_eps, 1e-5f);
  EXPECT_EQ(c.rope.type, RopeType::kLlama3);
  EXPECT_EQ(c.rope.theta, 500000);
  EXPECT_EQ(c.rope.factor, 8);
  EXPECT_EQ(c.rope.original_max_position_embeddings, 8192);
  EXPECT_FALSE(c.tie_word_embeddings || c.qkv_bias || c.o_bias || c.mlp_bias || c.qk_norm);
  EXPECT_EQ(c.checkpoint_dtype, DType::kBf16);
  EXPECT_EQ(c.bos_token_id, 128000);
  EXPECT_THAT(c.eos_token_ids, ElementsAre(128001, 128008, 128009));
  EXPECT_EQ(c.max_model_len, 131072);
  EXPECT_EQ(kv_bytes_per_token(c, DType::kBf16), 131072u);
  // 4096 x (2 x 4096 + 2 x 1024 + 3 x 14336) multiplications in matrices, 2 x 4096 for each token
  // before, each of those taken for four.
  EXPECT_EQ(equal_attention_context(c), 6656);
}

TEST(HfFolder, QwenTwoHasABiasWithoutAFieldAndAWindowThatIsOff) {
  const ModelConfig c = parse_model_config(kQwen25, "", "folder");
  EXPECT_TRUE(c.qkv_bias);
  EXPECT_FALSE(c.o_bias);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_EQ(c.head_dim, 64);
}

TEST(HfFolder, QwenThreeHasHeadNormsAndItsOwnHeadDim) {
  const ModelConfig c = parse_model_config(kQwen3, "", "folder");
  EXPECT_TRUE(c.qk_norm);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(parse_model_config(with(kQwen3, R"({"head_dim":null})"), "", "f").head_dim, 128)
      << "the family's default";
  EXPECT_TRUE(parse_model_config(with(kQwen3, R"({"attention_bias":true})"), "", "f").o_bias);
}

TEST(HfFolder, MistralWithoutWindowAndWithHeadDim) {
  const ModelConfig c = parse_model_config(kMistral, "", "folder");
  EXPECT_EQ(c.family, Family::kMistral);
  EXPECT_EQ(c.head_dim, 128);
}

TEST(HfFolder, SaysWhetherScalesOfACacheAreForAnE4M3One) {
  const auto scheme = [](const char* patch) {
    return parse_model_config(with(kLlama31, patch), "", "f").kv_scheme;
  };
  EXPECT_EQ(scheme("{}"), KvScheme{});
  EXPECT_EQ(scheme(R"({"quantization_config":{"kv_cache_scheme":null}})"), KvScheme{});
  for (const char* key : {"quantization_config", "compression_config"}) {
    const std::string begin = std::string("{\"") + key + "\":{\"kv_cache_scheme\":";
    const auto of = [&](const std::string& members) {
      return scheme((begin + members + "}}").c_str());
    };
    EXPECT_EQ(of(R"({"type":"float","num_bits":8,"strategy":"tensor","symmetric":true,
                    "dynamic":false,"observer":"minmax"})"),
              KvScheme{.is_given = true});
    EXPECT_EQ(of(R"({"type":"float","strategy":"attn_head"})"), KvScheme{.is_given = true});
    EXPECT_EQ(of(R"({"type":"int"})").unfit, "kv_cache_scheme.type is \"int\"");
    EXPECT_EQ(of(R"({"type":"float","strategy":["x"]})").unfit,
              "kv_cache_scheme.strategy is [\"x\"]");
  }
}

TEST(HfFolder, OldAndNewSpellingGiveTheSameConfig) {
  Json json = *parse_json(kLlama31);
  Json rope = json["rope_scaling"];
  rope["rope_theta"] = json["rope_theta"];
  json.erase("rope_scaling");
  json.erase("rope_theta");
  json["rope_parameters"] = rope;
  json["dtype"] = json["torch_dtype"];
  json.erase("torch_dtype");
  const ModelConfig old_spelling = parse_model_config(kLlama31, "", "f");
  EXPECT_EQ(parse_model_config(to_text(json), "", "f"), old_spelling);
  json["rope_scaling"] = rope;
  json["rope_scaling"].erase("rope_theta");
  json["original_max_position_embeddings"] = rope["original_max_position_embeddings"];
  EXPECT_EQ(parse_model_config(to_text(json), "", "f"), old_spelling) << "both say the same";
  json.erase("rope_scaling");
  json["rope_parameters"] = {{"full_attention", rope}};
  EXPECT_EQ(parse_model_config(to_text(json), "", "f"), old_spelling) << "one map per layer type";
  json = *parse_json(kLlama31);
  json["rope_scaling"]["type"] = json["rope_scaling"]["rope_type"];
  json["rope_scaling"].erase("rope_type");
  EXPECT_EQ(parse_model_config(to_text(json), "", "f"), old_spelling) << "\"type\" is older still";
  json["architectures"] = nullptr;
  EXPECT_EQ(parse_model_config(to_text(json), "", "f"), old_spelling) << "model_type alone";
}

TEST(HfFolder, GenerationConfigOverridesEndTokensAndGivesDefaults) {
  const ModelConfig c = parse_model_config(
      kQwen25,
      R"({"eos_token_id":[151645,151643],"temperature":0.7,"top_p":0.8,"top_k":20,"repetition_penalty":1.1})",
      "f");
  EXPECT_THAT(c.eos_token_ids, ElementsAre(151643, 151645));
  EXPECT_EQ(c.generation.temperature, 0.7f);
  EXPECT_EQ(c.generation.top_p, 0.8f);
  EXPECT_EQ(c.generation.top_k, 20u);
  EXPECT_EQ(c.generation.repetition_penalty, 1.1f);
  EXPECT_EQ(c.generation.min_p, 0.0f);
  EXPECT_EQ(parse_model_config(kQwen25, R"({"do_sample":false,"temperature":0.6})", "f")
                .generation.temperature,
            0.0f);
  EXPECT_THAT(parse_model_config(kQwen25, R"({"bos_token_id":1})", "f").eos_token_ids,
              ElementsAre(151645));
  EXPECT_THAT(refusal(kQwen25, R"({"top_p":1.5})"),
              AllOf(HasSubstr("generation_config.json"), HasSubstr("top_p")));
  EXPECT_THAT(refusal(kQwen25, R"({"temperature":-1})"), HasSubstr("temperature"));
  EXPECT_THAT(refusal(kQwen25, R"({"eos_token_id":[151936]})"), HasSubstr("151935"));
  EXPECT_THAT(refusal(kQwen25, "{"), HasSubstr("generation_config.json: not valid JSON"));
}

TEST(HfFolder, ReadsEveryRopeParameter) {
  const auto rope = [](const char* scaling) {
    return parse_model_config(with(kQwen25, scaling), "", "f");
  };
  ModelConfig c = rope(
      R"({"rope_scaling":{"type":"yarn","factor":4.0,"original_max_position_embeddings":32768}})");
  EXPECT_EQ(c.rope.type, RopeType::kYarn);
  EXPECT_EQ(c.rope.beta_fast, 32);
  EXPECT_TRUE(c.rope.truncate);
  EXPECT_EQ(c.max_model_len, 131072) << "stretched from the trained length";
  c = rope(R"({"max_position_embeddings":131072,"rope_scaling":{"type":"yarn","factor":4.0,
               "original_max_position_embeddings":32768}})");
  EXPECT_EQ(c.max_model_len, 131072) << "given stretched";
  c = rope(
      R"({"rope_scaling":{"rope_type":"yarn","factor":4,"beta_fast":16,"beta_slow":2,"attention_factor":0.5,
               "mscale":0.707,"mscale_all_dim":1,"truncate":false,"original_max_position_embeddings":4096}})");
  EXPECT_EQ(c.rope.beta_fast, 16);
  EXPECT_EQ(c.rope.beta_slow, 2);
  EXPECT_EQ(c.rope.attention_factor, 0.5);
  EXPECT_EQ(c.rope.mscale, 0.707);
  EXPECT_EQ(c.rope.mscale_all_dim, 1);
  EXPECT_FALSE(c.rope.truncate);
  c = rope(R"({"original_max_position_embeddings":4096,"max_position_embeddings":32768,
               "rope_scaling":{"type":"yarn"}})");
  EXPECT_EQ(c.rope.original_max_position_embeddings, 4096) << "beside the parameters";
  EXPECT_EQ(c.rope.factor, 8);
  c = rope(R"({"rope_scaling":{"type":"linear","factor":2.5}})");
  EXPECT_EQ(c.rope.type, RopeType::kLinear);
  EXPECT_EQ(c.max_model_len, 81920);
  EXPECT_EQ(rope(R"({"rope_theta":null})").rope.theta, 10000) << "the default of all families";
}

struct Refused {
  const char* config;
  const char* patch;
  const char* code;
  const char* reason;
};

TEST(HfFolder, RefusesByNameWhatItWouldGetWrong) {
  const Refused cases[] = {
      {kLlama31, R"({"architectures":["Gemma2ForCausalLM"]})", "unsupported_model",
       "Gemma2ForCausalLM is not supported"},
      {kLlama31, R"({"architectures":["LlamaForSequenceClassification"]})", "unsupported_model",
       "LlamaForCausalLM, Qwen2"},
      {kLlama31, R"({"architectures":["MixtralForCausalLM"]})", "unsupported_model",
       "MixtralForCausalLM"},
      {kLlama31, R"({"architectures":null,"model_type":"phi3"})", "unsupported_model",
       "model_type \"phi3\""},
      {kLlama31, R"({"architectures":[]})", "malformed", "architectures must be"},
      {kLlama31, R"({"architectures":"LlamaForCausalLM"})", "malformed", "architectures must be"},
      {kQwen3, R"({"num_experts":128})", "unsupported_model",
       "num_experts is set: mixtures of experts"},
      {kLlama31, R"({"num_local_experts":8})", "unsupported_model", "num_local_experts"},
      {kLlama31, R"({"quantization_config":{"quant_method":"bitsandbytes"}})", "unsupported_model",
       "quantization_config.quant_method is \"bitsandbytes\"; supported: compressed-tensors"},
      {kLlama31, R"({"quantization_config":{"quant_method":"gptq","bits":8}})", "unsupported_model",
       "quantization_config.bits is 8; supported: 4"},
      {kLlama31, R"({"quantization_config":{"quant_method":"awq","bits":4}})", "malformed",
       "quantization_config.group_size must be a whole number"},
      {kLlama31, R"({"quantization_config":{"quant_method":"fp8"}})", "unsupported_model",
       "\"fp8\""},
      {kLlama31, R"({"quantization_config":[]})", "malformed", "must be an object"},
      {kLlama31, R"({"quantization_config":{"kv_cache_scheme":8}})", "malformed",
       "quantization_config.kv_cache_scheme must be an object"},
      {kLlama31,
       R"({"compression_config":{"config_groups":{"a":{"weights":{"num_bits":3,"type":"int"}}}}})",
       "unsupported_model", "config_groups.a.weights.num_bits is 3; supported: 4, 8"},
      {kLlama31,
       R"({"quantization_config":{"config_groups":{"a":{"weights":{"num_bits":8,"strategy":"group"}}}}})",
       "unsupported_model", "strategy is \"group\"; supported for 8 bits: channel, tensor"},
      {kLlama31,
       R"({"quantization_config":{"config_groups":{"a":{"weights":{"num_bits":8,"symmetric":false}}}}})",
       "unsupported_model", "symmetric is false"},
      {kLlama31,
       R"({"quantization_config":{"config_groups":{"a":{"weights":{"num_bits":8,"type":"int"}},
           "b":{"weights":{"num_bits":8,"type":"float"}}}}})",
       "unsupported_model", "config_groups.b.weights.type differs"},
      {kLlama31, R"({"quantization_config":{"format":"marlin-24"}})", "unsupported_model",
       "format is \"marlin-24\""},
      {kLlama31, R"({"quantization_config":{"transform_config":{"config_groups":{"u":{}}}}})",
       "unsupported_model", "transform_config is set"},
      {kLlama31, R"({"hidden_act":"gelu_pytorch_tanh"})", "unsupported_model",
       "hidden_act is \"gelu_pytorch_tanh\""},
      {kLlama31, R"({"partial_rotary_factor":0.5})", "unsupported_model", "partial_rotary_factor"},
      {kLlama31, R"({"rope_interleaved":true})", "unsupported_model", "rope_interleaved is true"},
      {kLlama31, R"({"torch_dtype":"float64"})", "unsupported_model", "torch_dtype is \"float64\""},
      {kMistral, R"({"sliding_window":0})", "malformed", "a whole number from 1"},
      {kMistral, R"({"sliding_window":"4096"})", "malformed", "sliding_window must be"},
      {kQwen3, R"({"layer_types":["sliding_attention"],"num_hidden_layers":1})",
       "unsupported_model", "layer_types has \"sliding_attention\", and no window is switched on"},
      {kQwen3, R"({"layer_types":["chunked_attention"],"num_hidden_layers":1})",
       "unsupported_model", "layer_types has \"chunked_attention\"; supported"},
      {kQwen3, R"({"layer_types":["full_attention"]})", "malformed", "a list of 28"},
      {kLlama31, R"({"rope_scaling":{"rope_type":"dynamic"}})", "unsupported_model",
       "rope_type is \"dynamic\""},
      {kLlama31,
       R"({"rope_scaling":{"rope_type":"longrope","long_factor":[1.5],"short_factor":[1]}})",
       "unsupported_model",
       "rope_scaling.rope_type is \"longrope\"; supported: default, linear, llama3, yarn"},
      {kLlama31, R"({"rope_scaling":{"rope_type":"default","mrope_section":[16,24,24]}})",
       "unsupported_model", "rope_scaling.mrope_section is not a RoPE parameter we know"},
      {kQwen3, R"({"rope_scaling":{"rope_type":"linear","factor":4.0,"attn_factor":0.9}})",
       "unsupported_model", "rope_scaling.attn_factor is not a RoPE parameter we know"},
      {kLlama31, R"({"rope_scaling":{"low_freq_factor":null}})", "malformed",
       "rope_scaling.low_freq_factor must be a number"},
      {kLlama31, R"({"rope_scaling":{"factor":0.5}})", "malformed", "found 0.5"},
      {kLlama31, R"({"rope_scaling":{"high_freq_factor":1}})", "malformed",
       "above low_freq_factor"},
      {kLlama31, R"({"rope_scaling":7})", "malformed", "rope_scaling must be an object; found 7"},
      {kLlama31, R"({"rope_parameters":{"rope_type":"default","rope_theta":1000000.0}})",
       "unsupported_model", "rope_scaling stands beside rope_parameters and says something else"},
      {kLlama31, R"({"original_max_position_embeddings":4096})", "unsupported_model",
       "original_max_position_embeddings is not the 8192 of the RoPE parameters"},
      {kLlama31, R"({"rope_theta":0})", "malformed", "rope_theta"},
      {kLlama31, R"({"rope_theta":"10000"})", "malformed", "rope_theta"},
      {kLlama31, R"({"hidden_size":null})", "malformed",
       "hidden_size must be a whole number from 1 to 131072; it is missing"},
      {kLlama31, R"({"hidden_size":4096.0})", "malformed", "found 4096.0"},
      {kLlama31, R"({"hidden_size":-4096})", "malformed", "found -4096"},
      {kLlama31, R"({"hidden_size":"4096"})", "malformed", "hidden_size"},
      {kLlama31, R"({"hidden_size":4095})", "malformed", "multiple of num_attention_heads"},
      {kLlama31, R"({"num_hidden_layers":0})", "malformed", "num_hidden_layers"},
      {kLlama31, R"({"num_hidden_layers":18446744073709551615})", "malformed", "num_hidden_layers"},
      {kLlama31, R"({"num_key_value_heads":7})", "malformed",
       "a divisor of num_attention_heads, 32"},
      {kLlama31, R"({"num_key_value_heads":64})", "malformed", "num_key_value_heads"},
      {kQwen25, R"({"num_key_value_heads":null})", "malformed", "num_key_value_heads"},
      {kLlama31, R"({"head_dim":127})", "unsupported_model",
       "head_dim is 127; supported: even numbers to 512"},
      {kLlama31, R"({"head_dim":1024})", "unsupported_model", "head_dim is 1024; supported"},
      {kLlama31, R"({"hidden_size":4000})", "unsupported_model",
       "hidden_size divided by num_attention_heads gives heads of 125; supported: even"},
      {kLlama31, R"({"vocab_size":1})", "malformed", "vocab_size"},
      {kLlama31, R"({"max_position_embeddings":100000000})", "malformed",
       "max_position_embeddings"},
      {kLlama31, R"({"rms_norm_eps":-1})", "malformed", "rms_norm_eps"},
      {kLlama31, R"({"tie_word_embeddings":1})", "malformed",
       "tie_word_embeddings must be true or false"},
      {kLlama31, R"({"eos_token_id":128256})", "malformed", "eos_token_id"},
      {kLlama31, R"({"eos_token_id":[-1]})", "malformed", "eos_token_id"},
      {kLlama31, R"({"eos_token_id":"</s>"})", "malformed", "eos_token_id"},
  };
  for (const Refused& c : cases)
    EXPECT_THAT(refusal(with(c.config, c.patch)),
                AllOf(HasSubstr(c.code), HasSubstr(c.reason), HasSubstr("config.json")))
        << c.patch;
  EXPECT_THAT(refusal("[]"), HasSubstr("must be a JSON object"));
  EXPECT_THAT(refusal("{"), HasSubstr("not valid JSON"));
}

// The block of DeepSeek-R1-0528-Qwen3-8B. Transformers warns of an unrecognized key and leaves it
// out: its factor is 0.1 ln 4 + 1 = 1.138629436111989. In vLLM that is multiplied by attn_factor:
// its factor is 1.0.
TEST(HfFolder, SaysWhatToWriteForAttnFactor) {
  const auto yarn = [](const std::string& rest) {
    const std::string patch = R"({"rope_scaling":{"rope_type":"yarn","factor":4.0,
        "original_max_position_embeddings":32768)" +
                              rest + "}}";
    return with(kQwen3, patch.c_str());
  };
  EXPECT_THAT(refusal(yarn(R"(,"attn_factor":0.8782488562869419)")),
              AllOf(HasSubstr("unsupported_model"),
                    HasSubstr("rope_scaling.attn_factor is ignored by Transformers, and vLLM"),
                    HasSubstr("put \"attention_factor\": 1.0 in its place for vLLM's")));
  const auto factor = [](const std::string& config) {
    return rope_attention_factor(parse_model_config(config, "", "f").rope);
  };
  EXPECT_DOUBLE_EQ(factor(yarn("")), 1.138629436111989);
  EXPECT_DOUBLE_EQ(factor(yarn(R"(,"attention_factor":1.0)")), 1.0);
}

TEST(HfFolder, AWindowThatReachesNoLayerIsOff) {
  const auto window = [](const std::string& config) {
    const ModelConfig c = parse_model_config(config, "", "f");
    EXPECT_EQ(c.max_model_len, c.max_position_embeddings);
    return c.sliding_window;
  };
  EXPECT_EQ(window(with(kQwen25, R"({"use_sliding_window":true,"max_window_layers":24})")), 0);
  EXPECT_EQ(window(with(kQwen25, R"({"use_sliding_window":false,"max_window_layers":0})")), 0);
  EXPECT_EQ(window(kMistral), 0) << "null";
  EXPECT_EQ(window(with(kLlama31, R"({"sliding_window":4096})")), 0) << "llama has no such field";
}

// Within its window a row attends to everything, so that as many positions are exact.
TEST(HfFolder, AWindowInForceIsTheLongestContext) {
  const auto positions = [](const std::string& config) {
    return parse_model_config(config, "", "f").max_model_len;
  };
  EXPECT_EQ(positions(with(kMistral, R"({"sliding_window":1000})")), 1000);
  // The patch takes the key away: the reference's class then has 4096.
  EXPECT_EQ(positions(with(kMistral, R"({"sliding_window":null})")), 4096);
  EXPECT_EQ(positions(with(kMistral, R"({"sliding_window":null,"max_position_embeddings":2048})")),
            2048);
  EXPECT_EQ(positions(with(kQwen25, R"({"use_sliding_window":true,"sliding_window":512})")), 512);
  EXPECT_EQ(positions(with(kQwen25, R"({"use_sliding_window":true,"sliding_window":null})")), 4096);
  EXPECT_EQ(positions(with(kQwen3, R"({"use_sliding_window":true,"max_window_layers":0})")), 40960)
      << "switched on and null: no window";
  EXPECT_EQ(positions(with(kQwen3, R"({"num_hidden_layers":2,"use_sliding_window":true,
               "layer_types":["full_attention","sliding_attention"],"sliding_window":64})")),
            64);
  EXPECT_EQ(positions(with(kQwen3, R"({"num_hidden_layers":1,"use_sliding_window":true,
               "layer_types":["full_attention"],"sliding_window":64})")),
            40960);
}

TEST(HfFolder, ReadsItsFixturesInBothSpellings) {
  const std::filesystem::path fixtures =
      std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/fixtures/models";
  const ModelConfig yarn = read_model_config(fixtures / "llama_yarn_mscale");
  EXPECT_EQ(yarn.rope.mscale_all_dim, 0.5);
  EXPECT_FALSE(yarn.rope.truncate);
  const ModelConfig llama3 = read_model_config(fixtures / "llama3");
  EXPECT_EQ(llama3.rope.type, RopeType::kLlama3);
  EXPECT_THAT(llama3.eos_token_ids, ElementsAre(301, 308, 309));
}

TEST(HfFolder, SaysWhichFileIsMissing) {
  test::TempFolder folder;
  const auto message = [](const std::filesystem::path& path) -> std::string {
    try {
      read_model_config(path);
    } catch (const FatalError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message(folder.path()), HasSubstr("config.json: no such file"));
  EXPECT_THAT(message(folder / "nowhere"), HasSubstr("is not a folder"));
  folder.write("config.json", std::string(2u << 20, ' '));
  EXPECT_THAT(message(folder.path()), HasSubstr("at most 1048576 bytes"));
}

TEST(HfFolder, CopiesTheTemplatesBesideTheUsualOne) {
  const test::TempFolder from, to;
  const std::string file = "additional_chat_templates/tool_use.jinja";
  copy_additional_templates(from.path(), to.path());
  EXPECT_TRUE(std::filesystem::is_empty(to.path())) << "there are none";
  std::filesystem::create_directory(from / "additional_chat_templates");
  for (const char* text : {"a", "another"}) {  // the second time in place of the first
    from.write(file, text);
    copy_additional_templates(from.path(), to.path());
    EXPECT_EQ(text, value_or_throw(read_text_file(to / file, 100)));
  }
}

}  // namespace
}  // namespace foretoken
