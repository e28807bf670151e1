// Triton's model configurations: what becomes a key of ours, what is named as left out, and that
// the result is a configuration.
#include "services/import_triton/import_triton.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "common/config/load.h"

namespace foretoken::import_triton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TritonConfig fixture(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(FORETOKEN_SOURCE_DIR "/tests/fixtures/triton/" + name + ".pbtxt").rdbuf();
  auto config = parse_triton_config(text.str());
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.ok() ? *config : TritonConfig{};
}

TritonConfig with_parameter(const std::string& key, const std::string& value) {
  return {.name = "m", .backend = "tensorrtllm", .parameters = {{key, value}}};
}

// The file as a service reads it.
Config loaded(const std::string& toml) {
  const std::string path =
      ::testing::TempDir() + "/import_triton_" + std::to_string(::getpid()) + ".toml";
  std::ofstream(path) << toml;
  const LoadedConfig config = load_config({.file = path});
  std::remove(path.c_str());
  EXPECT_THAT(config.errors, ::testing::IsEmpty()) << toml;
  return config.config;
}

TEST(TritonConfig, ReadsTheFieldsThatMatterAndNamesTheOthers) {
  const TritonConfig config = fixture("tensorrt_llm");
  EXPECT_EQ(config.name, "tensorrt_llm");
  EXPECT_EQ(config.backend, "tensorrtllm");
  EXPECT_EQ(config.max_batch_size, 64);
  EXPECT_EQ(config.max_queue_size, 200U);
  EXPECT_EQ(config.timeout_us, 30'000'000U);
  EXPECT_EQ(config.parameters.size(), 12U);
  EXPECT_EQ(config.parameters[6],
            (std::pair<std::string, std::string>("kv_cache_free_gpu_mem_fraction", "0.85")));
  EXPECT_THAT(config.skipped,
              ElementsAre("model_transaction_policy", "preferred_batch_size",
                          "max_queue_delay_microseconds", "input", "output", "instance_group"));
  EXPECT_EQ(fixture("ensemble").backend, "ensemble");
}

TEST(TritonConfig, AnErrorSaysWhere) {
  const auto broken = parse_triton_config("name: \"a\"\nmax_batch_size: many\n");
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.error().message, HasSubstr("line 2, column 17"));
  const auto unfilled = parse_triton_config("max_batch_size: ${triton_max_batch_size}\n");
  ASSERT_FALSE(unfilled.ok());
  EXPECT_THAT(unfilled.error().message, HasSubstr("fill_template.py"));
  EXPECT_FALSE(parse_triton_config("name: \"a").ok());
}

TEST(TritonConfig, BracketsBeyondTheLimitAreRefused) {
  std::string fields, lists = "a: ";
  for (int i = 0; i < 300'000; ++i) fields += "a{", lists += "[";
  for (const std::string& text : {"name: \"{{{\" # {{{\n" + fields, lists}) {
    const auto deep = parse_triton_config(text);
    ASSERT_FALSE(deep.ok());
    EXPECT_THAT(deep.error().message, HasSubstr("more than 64 brackets are open"));
  }
  EXPECT_TRUE(parse_triton_config("name: \"" + std::string(1000, '{') + "\"").ok());
}

TEST(ImportTriton, AWholePipelineWithADraftModel) {
  const std::string toml =
      imported_toml({fixture("ensemble"), fixture("preprocessing"), fixture("tensorrt_llm"),
                     fixture("tensorrt_llm_bls"), fixture("tensorrt_llm_draft")});
  const Config config = loaded(toml);
  EXPECT_EQ(config.model.target, "/models/llama-8b");
  EXPECT_EQ(config.limits.max_running, 64U);
  EXPECT_EQ(config.limits.max_waiting, 200U);
  EXPECT_EQ(config.limits.request_timeout_s, 30U);
  EXPECT_EQ(config.limits.policy, "guaranteed_no_evict");
  EXPECT_EQ(config.kv_cache.memory, "85%");
  EXPECT_TRUE(config.kv_cache.prefix_cache);
  EXPECT_EQ(config.target.device, "cuda:0,1");
  EXPECT_EQ(config.target.tensor_parallel, 2U);
  EXPECT_EQ(config.draft.device, "cuda:2");
  EXPECT_EQ(config.draft.memory, "10%");
  EXPECT_EQ(config.draft.max_sequences, 128U);
  EXPECT_EQ(config.speculation.proposer, (ProposerSet{ProposerKind::kDraft, ProposerKind::kNgram}));
  EXPECT_TRUE(config.edge.triton_exclude_input);
  for (const char* named :
       {"# draft = \"FOLDER\"  # the Hugging Face folder of tensorrt_llm_draft",
        "tensorrt_llm: gpt_model_path: an engine is no model folder",
        "tensorrt_llm: lora_cache_gpu_memory_fraction: ${lora_cache_gpu_memory_fraction} is not",
        "tensorrt_llm: medusa_choices: nothing here does this",
        "ensemble: ensemble_scheduling: ", "tensorrt_llm_draft: enable_kv_cache_reuse: "})
    EXPECT_THAT(toml, HasSubstr(named));
  EXPECT_THAT(toml, Not(HasSubstr("max_tokens_in_paged_kv_cache")));  // empty: not set
}

TEST(ImportTriton, WithoutADraftModelTheProposerNeedsNone) {
  const std::string toml = imported_toml({fixture("tensorrt_llm")});
  const Config config = loaded(toml);
  EXPECT_EQ(config.model.draft, "");
  EXPECT_EQ(config.speculation.proposer, ProposerKind::kNgram);
  EXPECT_THAT(toml, HasSubstr("# target = \"FOLDER\""));
}

TEST(ImportTriton, ValuesBecomeOurs) {
  for (const auto& [key, value, line] :
       {std::tuple{"max_tokens_in_paged_kv_cache", "56000", "memory = \"56000 tokens\""},
        std::tuple{"kv_cache_free_gpu_memory_fraction", "0.9", "memory = \"90%\""},
        std::tuple{"kv_cache_enable_block_reuse", "False", "prefix_cache = false"},
        std::tuple{"max_queue_size", "7", "max_waiting = 7"},
        std::tuple{"max_num_tokens", "4096", "max_batch_rows = 4096"},
        std::tuple{"decoding_mode", "lookahead", "proposer = \"ngram\""},
        std::tuple{"tokenizer_dir", "/a \"b\"\\c", "target = \"/a \\\"b\\\"\\\\c\""}}) {
    const std::string toml = imported_toml({with_parameter(key, value)});
    EXPECT_THAT(toml, HasSubstr(line));
    loaded(toml);
  }
}

TEST(ImportTriton, DevicesAndRanksAreThoseOfTheFirstInstance) {
  for (const auto& [ids, device, n_ranks, further] :
       {std::tuple{"3", "cuda:3", 1U, ""}, std::tuple{" 0, 1 ", "cuda:0,1", 2U, ""},
        std::tuple{"0,1;2,3", "cuda:0,1", 2U, "gpu_device_ids: 2,3 is of further instances"},
        std::tuple{"4 ; 5;6", "cuda:4", 1U, "gpu_device_ids:  5;6 is of"},
        std::tuple{"0,1;", "cuda:0,1", 2U, ""}}) {
    const std::string toml = imported_toml({with_parameter("gpu_device_ids", ids)});
    const Config config = loaded(toml);
    EXPECT_EQ(config.target.device, device) << ids;
    EXPECT_EQ(config.target.tensor_parallel, n_ranks) << ids;
    EXPECT_EQ(toml.find("Left out") != std::string::npos, *further != '\0') << ids;
    EXPECT_THAT(toml, HasSubstr(further));
  }
}

TEST(ImportTriton, DevicesThatAreNoListSetNoRanks) {
  for (const char* ids : {"0,x", "0,0", "0 1", ",1", "0,", "0,;1", ";1", " ", "0,1000", "-1"}) {
    const std::string toml = imported_toml({with_parameter("gpu_device_ids", ids)});
    const Config config = loaded(toml);
    EXPECT_EQ(config.target.device, "cuda") << ids;
    EXPECT_EQ(config.target.tensor_parallel, 1U) << ids;
    EXPECT_THAT(toml, HasSubstr("\" has no counterpart in target.device\n")) << ids;
  }
}

TEST(ImportTriton, OfTwoParametersForOneKeyTheFirstIsLeftOutByName) {
  TritonConfig config = with_parameter("kv_cache_free_gpu_mem_fraction", "0.5");
  config.parameters.emplace_back("max_tokens_in_paged_kv_cache", "56000");
  const std::string toml = imported_toml({config});
  EXPECT_EQ(loaded(toml).kv_cache.memory, "56000 tokens");
  EXPECT_THAT(toml, HasSubstr("#   m: kv_cache_free_gpu_mem_fraction: m: "
                              "max_tokens_in_paged_kv_cache is given too\n"));
  // Two that agree are one.
  EXPECT_THAT(
      imported_toml({with_parameter("tokenizer_dir", "/a"), with_parameter("tokenizer_dir", "/a")}),
      Not(HasSubstr("Left out")));
}

TEST(ImportTriton, ADecodingModeBesideADraftModelIsLeftOutByName) {
  TritonConfig config = with_parameter("decoding_mode", "lookahead");
  config.parameters.emplace_back("tensorrt_llm_draft_model_name", "small");
  const std::string toml = imported_toml({config});
  EXPECT_EQ(loaded(toml).speculation.proposer,
            (ProposerSet{ProposerKind::kDraft, ProposerKind::kNgram}));
  EXPECT_THAT(toml, HasSubstr("#   decoding_mode: a draft model is named, too\n"));
}

TEST(ImportTriton, WhatIsOutOfOurRangeIsLeftOutWithTheReason) {
  for (const auto& [key, value, reason] :
       {std::tuple{"max_num_tokens", "1000000", "limits.max_batch_rows"},
        std::tuple{"batch_scheduler_policy", "static_batch", "limits.policy"},
        std::tuple{"kv_cache_free_gpu_mem_fraction", "1.5", "has no counterpart"},
        std::tuple{"kv_cache_free_gpu_mem_fraction", "nan", "has no counterpart"},
        std::tuple{"decoding_mode", "medusa", "has no counterpart in speculation.proposer"},
        std::tuple{"gpu_device_ids", "0,x", "has no counterpart in target.device"},
        std::tuple{"never_heard", "x", "nothing here does this"}}) {
    const std::string toml = imported_toml({with_parameter(key, value)});
    EXPECT_THAT(toml, HasSubstr(std::string("#   m: ") + key + ": "));
    EXPECT_THAT(toml, HasSubstr(reason)) << key;
    EXPECT_THAT(toml, Not(HasSubstr("--set"))) << key;
    loaded(toml);
  }
}

TEST(ImportTriton, ABatchHasARowForEachOfItsSequences) {
  TritonConfig config = with_parameter("max_num_tokens", "8192");
  config.max_batch_size = 1024;
  const std::string toml = imported_toml({config});
  EXPECT_THAT(toml, Not(HasSubstr("Left out")));
  EXPECT_EQ(loaded(toml).limits.max_running, 1024U);
  EXPECT_EQ(loaded(toml).limits.max_batch_rows, 8192U);
}

// A comment ends at the end of its line, whatever a file says.
TEST(ImportTriton, NothingOfAFileLeavesItsComment) {
  TritonConfig config = with_parameter("x\n[edge]\nhost = \"0.0.0.0\"", "y\nz");
  config.name = "a\n[bus]\ninsecure = true";
  const Config read = loaded(imported_toml({config}));
  EXPECT_EQ(read.edge.host, "127.0.0.1");
  EXPECT_FALSE(read.bus.insecure);
}

}  // namespace
}  // namespace foretoken::import_triton
