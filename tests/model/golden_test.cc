// Every family against logits and greedy ids of the reference in float32 (tests/fixtures/models,
// make_goldens.py).
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "common/base/result.h"
#include "common/engine/target_engine.h"
#include "common/model/load_model.h"
#include "common/model/safetensors.h"
#include "tests/model/cpu_backend.h"
#include "tests/model/runner.h"

namespace foretoken {
namespace {

using test::argmax;
using test::Runner;

const char* const kModels[] = {"llama2",        "llama3",     "llama32_tied",      "llama_biased",
                               "llama_linear",  "llama_yarn", "llama_yarn_mscale", "qwen2",
                               "qwen25_untied", "qwen3",      "qwen3_yarn",        "mistral"};

std::filesystem::path folder_of(const std::string& name) {
  return std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/fixtures/models" / name;
}

template <class T>
std::vector<T> values_of(const SafetensorsFile& file, const std::string& name) {
  for (const TensorInfo& tensor : file.tensors()) {
    if (tensor.name != name) continue;
    std::vector<T> values(tensor.n_elements());
    std::memcpy(values.data(), file.bytes(tensor).data(), file.bytes(tensor).size());
    return values;
  }
  ADD_FAILURE() << "no " << name;
  return {};
}

struct FamilyAnswer {
  std::vector<TokenId> prompt;
  std::vector<TokenId> greedy;
  std::vector<std::int32_t> rows;
  std::vector<float> logits;  // [rows.size(), vocab]

  std::vector<TokenId> all() const {
    std::vector<TokenId> tokens = prompt;
    tokens.insert(tokens.end(), greedy.begin(), greedy.end());
    return tokens;
  }
};

std::vector<FamilyAnswer> answers_of(const std::string& name) {
  const SafetensorsFile file(folder_of(name) / "golden.safetensors");
  std::vector<FamilyAnswer> answers;
  for (const char* i : {".0", ".1"}) {
    answers.push_back({values_of<TokenId>(file, std::string("prompt") + i),
                       values_of<TokenId>(file, std::string("greedy") + i),
                       values_of<std::int32_t>(file, std::string("rows") + i),
                       values_of<float>(file, std::string("logits") + i)});
  }
  return answers;
}

struct Agreement {
  double largest_error = 0;
  double rms_error = 0;
  double largest_logit = 0;
  double rms_logit = 0;
  int n_positions = 0;
  int n_same_top = 0;  // of the positions after which a greedy id follows
};

Agreement compare(Model& model, Backend& backend, const std::vector<FamilyAnswer>& answers) {
  Agreement a;
  std::size_t n = 0;
  for (const FamilyAnswer& answer : answers) {
    Runner runner(model, backend);
    const auto logits = runner.run(answer.all(), 64);
    const auto vocab = static_cast<std::size_t>(model.config().vocab_size);
    for (std::size_t r = 0; r < answer.rows.size(); ++r) {
      for (std::size_t v = 0; v < vocab; ++v) {
        const double expected = static_cast<double>(answer.logits[r * vocab + v]);
        const double error =
            static_cast<double>(logits[static_cast<std::size_t>(answer.rows[r])][v]) - expected;
        a.largest_error = std::max(a.largest_error, std::isnan(error) ? 1e9 : std::abs(error));
        a.largest_logit = std::max(a.largest_logit, std::abs(expected));
        a.rms_error += error * error;
        a.rms_logit += expected * expected;
        ++n;
      }
    }
    for (std::size_t i = 0; i < answer.greedy.size(); ++i) {
      ++a.n_positions;
      a.n_same_top += argmax(logits[answer.prompt.size() - 1 + i]) == answer.greedy[i];
    }
  }
  a.rms_error = std::sqrt(a.rms_error / static_cast<double>(n));
  a.rms_logit = std::sqrt(a.rms_logit / static_cast<double>(n));
  return a;
}

// How far logits may be from the float32 reference when every operand carries a relative error of
// `epsilon`. Each of the roundings on the way (of a layer: norm, q/k/v, rotation, scores, weighted
// sum, output, norm, gate and up, product, down; then norm and head) adds independent noise of that
// relative size to the stream, so the deviation grows with the root of their number; attention
// scores turn their own error into one of e^score, which doubles it. Six deviations hold for any
// element; unit of size is the root mean square of the logits.
double bound(const ModelConfig& config, const Agreement& a, double epsilon) {
  const double n_roundings = 10.0 * config.n_layers + 2;
  return 6 * 2 * epsilon * std::sqrt(n_roundings) * a.rms_logit;
}

// In float32 a dot product of n terms adds about sqrt(n) roundings of its own, whatever the order.
double float32_epsilon(const ModelConfig& config) {
  return 0x1p-24 * std::sqrt(static_cast<double>(std::max(config.n_hidden, config.n_ffn)));
}

class FamilyGolden : public testing::TestWithParam<const char*> {};

TEST_P(FamilyGolden, Float32LogitsAreTheReferencesOnEveryPath) {
  const auto answers = answers_of(GetParam());
  for (CpuIsa isa : test::kVectorPaths) {
    auto backend = test::backend_for(isa);
    if (!backend) continue;
    SCOPED_TRACE(backend->description());
    auto model = load_model(folder_of(GetParam()), *backend, {.dtype = WeightDType::kF32});
    const Agreement a = compare(*model, *backend, answers);
    const double limit = bound(model->config(), a, float32_epsilon(model->config()));
    std::cout << GetParam() << " float32 " << backend->numerics() << ": largest error "
              << a.largest_error << ", rms " << a.rms_error << ", limit " << limit << ", rms logit "
              << a.rms_logit << "\n";
    EXPECT_LE(a.largest_error, limit);
    EXPECT_EQ(a.n_same_top, a.n_positions);
  }
}

TEST_P(FamilyGolden, Float32GreedyIdsAreTheReferences) {
  auto backend = make_backend({.n_threads = 2});
  auto model = load_model(folder_of(GetParam()), *backend, {.dtype = WeightDType::kF32});
  for (const FamilyAnswer& answer : answers_of(GetParam())) {
    Runner runner(*model, *backend);
    Runner::Sequence sequence;
    Runner::Part part{&sequence, answer.prompt};
    std::vector<TokenId> ids{argmax(runner.pass(std::span(&part, 1)).back())};
    while (ids.size() < answer.greedy.size()) {
      const TokenId last = ids.back();
      part.tokens = std::span(&last, 1);
      ids.push_back(argmax(runner.pass(std::span(&part, 1)).back()));
    }
    EXPECT_EQ(ids, answer.greedy);
  }
}

// Of prompt and greedy ids, as one prompt that is read in parts.
std::vector<TokenLogprobs> logprobs_of(Model& model, Backend& backend, const FamilyAnswer& answer) {
  TargetEngineOptions options{.kv = {.n_blocks = 64}, .prefill_chunk = 7};
  TargetEngine engine(model, backend, {}, options);
  OpenRequest request{.seq = SeqId{1}, .prompt = answer.all()};
  request.params.n_prompt_logprobs = 1;
  request.params.max_tokens = 0;
  EXPECT_TRUE(engine.open(request, TimePoint{}).ok());
  std::vector<TokenLogprobs> logprobs(1);  // of the first token: none
  while (engine.has_work())
    for (const TokensEvent& event : engine.step(TimePoint{}).prompts)
      logprobs.insert(logprobs.end(), event.tokens.logprobs.begin(), event.tokens.logprobs.end());
  return logprobs;
}

// By the definition, of one row of logits.
double log_softmax(std::span<const float> logits, TokenId token) {
  const auto most = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit) - most);
  return static_cast<double>(logits[static_cast<std::size_t>(token)]) - most - std::log(total);
}

// The logarithm of a sum of exponentials moves by no more than its terms do, so a log-probability
// by twice what a logit may.
TEST_P(FamilyGolden, LogProbabilitiesOfAPromptAreTheReferences) {
  auto backend = make_backend({.n_threads = 2});
  auto model = load_model(folder_of(GetParam()), *backend, {.dtype = WeightDType::kF32});
  const auto answers = answers_of(GetParam());
  const Agreement a = compare(*model, *backend, answers);
  const double limit = 2 * bound(model->config(), a, float32_epsilon(model->config()));
  const auto vocab = static_cast<std::size_t>(model->config().vocab_size);
  for (const FamilyAnswer& answer : answers) {
    const std::vector<TokenId> tokens = answer.all();
    const auto got = logprobs_of(*model, *backend, answer);
    ASSERT_EQ(got.size(), tokens.size());
    int n_compared = 0;
    for (std::size_t r = 0; r < answer.rows.size(); ++r) {
      const auto next = static_cast<std::size_t>(answer.rows[r]) + 1;
      if (next == tokens.size()) continue;
      const auto row = std::span(answer.logits).subspan(r * vocab, vocab);
      EXPECT_NEAR(static_cast<double>(got[next].logprob), log_softmax(row, tokens[next]), limit);
      ++n_compared;
    }
    EXPECT_GT(n_compared, 0);
    for (std::size_t i = answer.prompt.size(); i < tokens.size(); ++i) {
      EXPECT_EQ(got[i].top_ids, std::vector{tokens[i]}) << "a greedy id is the likeliest";
      EXPECT_EQ(got[i].top_logprobs, std::vector{got[i].logprob});
    }
  }
}

struct Precision {
  const char* name;
  WeightDType dtype;
  double epsilon;       // of an operand
  double fewest_equal;  // share of positions whose likeliest token must be the reference's
};

// bf16 keeps 8 bits, f16 11 (with sums in float32); int8 rounds weights and activations to 1/254 of
// a row's largest, which is 3 to 4 deviations of a normal row.
constexpr Precision kPrecisions[] = {{"bfloat16", WeightDType::kBf16, 0x1p-9, 0.9},
                                     {"float16", WeightDType::kF16, 0x1p-12, 0.98},
                                     {"int8", WeightDType::kI8, 3.5 / 254, 0.8}};

TEST_P(FamilyGolden, NarrowerWeightsStayWithinWhatTheirDtypeAllows) {
  const auto answers = answers_of(GetParam());
  for (CpuIsa isa : test::kVectorPaths) {
    auto backend = test::backend_for(isa);
    if (!backend) continue;
    for (const Precision& precision : kPrecisions) {
      SCOPED_TRACE(backend->description() + " " + precision.name);
      auto model = load_model(folder_of(GetParam()), *backend, {.dtype = precision.dtype});
      const Agreement a = compare(*model, *backend, answers);
      const double limit = bound(model->config(), a, precision.epsilon);
      std::cout << GetParam() << " " << precision.name << " " << backend->numerics()
                << ": largest error " << a.largest_error << ", rms " << a.rms_error << ", limit "
                << limit << ", same top " << a.n_same_top << "/" << a.n_positions << "\n";
      EXPECT_LE(a.largest_error, limit);
      EXPECT_GE(a.n_same_top, precision.fewest_equal * a.n_positions);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyGolden, testing::ValuesIn(kModels), [](const auto& model) {
  return std::string(model.param);
});

}  // namespace
}  // namespace foretoken
