// The services as programs of simulated hosts: each with its engine, its scripted model and its
// settings. The scripted model takes simulated time for a pass.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include "common/base/clock.h"
#include "common/engine/engine_options.h"
#include "common/runtime/metrics.h"
#include "common/spec/ngram_proposer.h"
#include "common/spec/prediction_proposer.h"
#include "common/tokenizer/tokenizer.h"
#include "common/wire/codec.h"
#include "kernels/include/backend.h"
#include "services/draft/draft_service.h"
#include "services/draft/memory_guesser.h"
#include "services/draft/model_guesser.h"
#include "services/router/router_service.h"
#include "services/target/draft_proposer.h"
#include "services/target/target_service.h"
#include "services/tokenizer/tokenizer_service.h"
#include "tests/simulation/host.h"
#include "tests/support/scripted_model.h"

namespace foretoken::test {

inline constexpr std::int32_t kVocabulary = 48;
inline constexpr Position kMaxLen = 400;
inline constexpr const char* kRouterEndpoint = "ipc://router";
inline constexpr const char* kClientEndpoint = "ipc://clients";

// How long passes take: a step now and then takes much longer.
struct Pace {
  Duration pass = std::chrono::microseconds(400);
  Duration row = std::chrono::microseconds(5);
  double slow_chance = 0;  // of a pass to take up to `slowest`
  Duration slowest{};
  double factor = 1;  // a busy neighbour, for a while
};

// What the seed decides of a target or a draft.
struct Settings {
  Pace pace;
  std::int32_t n_blocks = 400;
  std::int32_t max_running = 8;
  std::int32_t max_waiting = 64;
  std::int32_t prefill_chunk = 24;
  LengthMode length = LengthMode::kFixed;
  float draft_error = 0.4f;
  std::uint32_t max_chained = 1;
  std::uint32_t run_ahead = 0;
  std::uint32_t branch_rows = 0;
  bool has_link = true;  // a second way, with delays and losses of its own
};

// What all of them share. Borrowed.
struct Ground {
  const Tokenizer& tokenizer;
  Backend& backend;
};

ScriptedOptions target_text();

// The scripted model, and the time that it takes.
class PacedModel final : public Model {
 public:
  PacedModel(const ScriptedOptions& options, const Pace& pace, Host& host, std::uint64_t seed)
      : model_(options), pace_(pace), host_(host), dice_(seed) {}
  const ModelConfig& config() const override { return model_.config(); }
  KvGeometry kv_geometry(std::int32_t block_tokens) const override {
    return model_.kv_geometry(block_tokens);
  }
  Fingerprint fingerprint() const override { return model_.fingerprint(); }
  std::size_t weight_bytes() const override { return 0; }
  std::int32_t max_rows() const override { return model_.max_rows(); }
  void forward(const StagedBatch& batch, const PagedKv& kv, float* logits) override;

 private:
  ScriptedModel model_;
  const Pace& pace_;
  Host& host_;
  std::mt19937_64 dice_;
};

struct RouterProgram final : Program {
  explicit RouterProgram(wire::Speaker me, const RequestRules& rules = {});
  Service& service() override { return router; }
  std::string leftovers() override;
  Metrics metrics;
  wire::Speaker speaker;
  RouterService router;
};

struct TokenizerProgram final : Program {
  TokenizerProgram(wire::Speaker me, const std::string& name, const Ground& ground);
  Service& service() override { return tokens; }
  std::string leftovers() override;
  Metrics metrics;
  wire::Speaker speaker;
  TokenizerService tokens;
};

struct DraftProgram final : Program {
  DraftProgram(wire::Speaker me,
               const std::string& name,
               const Ground& ground,
               const Settings& settings,
               Host& host);
  Service& service() override { return draft; }
  std::string leftovers() override;
  std::string broken_rule() override;
  Metrics metrics;
  wire::Speaker speaker;
  PacedModel model;
  DraftEngine engine;
  ModelGuesser guesser;
  DraftService draft;
};

// A memory of texts: a draft without a model, which takes no time to guess.
struct MemoryProgram final : Program {
  MemoryProgram(wire::Speaker me,
                const std::string& name,
                const Ground& ground,
                const Settings& settings);
  Service& service() override { return draft; }
  std::string leftovers() override;
  Metrics metrics;
  wire::Speaker speaker;
  MemoryGuesser guesser;
  DraftService draft;
};

struct TargetProgram final : Program {
  TargetProgram(wire::Speaker me,
                const std::string& name,
                const Ground& ground,
                const Settings& settings,
                Host& host);
  Service& service() override { return target; }
  std::string leftovers() override;
  std::string broken_rule() override;
  Metrics metrics;
  wire::Speaker speaker;
  PacedModel model;
  DraftProposer drafts;
  DraftProposer memories;
  NgramProposer ngram;
  PredictionProposer prediction;
  TargetEngine engine;
  TargetService target;
};

// Single characters, and one end token.
std::string tokenizer_json();

}  // namespace foretoken::test
