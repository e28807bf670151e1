#include "tests/simulation/programs.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/kv/invariants.h"
#include "common/spec/prefix_hash.h"

namespace foretoken::test {
namespace {

constexpr std::int32_t kBlockTokens = 8;
constexpr Duration kLongestPass = std::chrono::seconds(5);

ScriptedOptions draft_text(const Settings& settings) {
  ScriptedOptions options = target_text();
  options.error_seed = 5;
  options.error = settings.draft_error;
  return options;
}

PrefixHash root_of(const Model& model, Fingerprint vocabulary) {
  return prefix_hash_root(model.fingerprint(), vocabulary);
}

wire::Hello hello_of(wire::Role role,
                     const std::string& name,
                     const Tokenizer& tokenizer,
                     const Model* model) {
  wire::Hello hello{.role = role, .name = name, .model_name = "scripted"};
  hello.fingerprints = {tokenizer.vocabulary_fingerprint(), tokenizer.text_fingerprint(),
                        model == nullptr ? 0 : model->fingerprint(), 1};
  hello.vocab_size = kVocabulary;
  hello.max_sequences = 16;
  if (model != nullptr) {
    hello.max_model_len = static_cast<std::uint32_t>(model->config().max_model_len);
    hello.end_tokens = model->config().eos_token_ids;
  }
  return hello;
}

DraftServiceOptions draft_options(const std::string& name,
                                  const Ground& ground,
                                  const Settings& settings) {
  return {.router = kRouterEndpoint,
          .endpoint = "ipc://" + name,
          .vocabulary = ground.tokenizer.vocabulary_fingerprint(),
          .memory_endpoint = settings.has_link ? "shm:///world/" + name : "",
          .cores = {.machine = "world"}};
}

DraftPoolOptions draft_pool_options(ProposerKind kind,
                                    const Ground& ground,
                                    const Settings& settings) {
  return {.kind = kind,
          .vocabulary = ground.tokenizer.vocabulary_fingerprint(),
          .end_tokens = ScriptedModel(target_text()).config().eos_token_ids,
          .link = {.choice = settings.has_link ? LinkChoice::kAuto : LinkChoice::kZeroMq,
                   .cores = {.machine = "world"},
                   .folder = "/world"}};
}

// As in services/draft/setup.cc: it has nothing of a model.
wire::Hello memory_hello(const std::string& name, const Tokenizer& tokenizer) {
  return {.role = wire::Role::kDraft,
          .name = name,
          .fingerprints = {.vocabulary = tokenizer.vocabulary_fingerprint()},
          .model_name = "memory",
          .vocab_size = kVocabulary,
          .max_sequences = 64,
          .source = wire::DraftSource::kMemory};
}

// A draft that is let go takes its blocks with it, a finished sequence too: what is left in the
// cache is what prefix reuse keeps, and can be taken from.
std::string blocks_left(const KvCache& kv) {
  const std::int32_t n_used = kv.stats().n_used;
  return n_used == 0 ? std::string() : std::to_string(n_used) + " blocks held";
}

std::string broken_kv_rule(const KvCache& kv) {
  const auto broken = kv_violations(kv.snapshot());
  return broken.empty() ? std::string() : broken.front();
}

void add(std::string& list, const std::string& what) {
  if (!what.empty()) list += (list.empty() ? "" : ", ") + what;
}

void add(std::string& list, std::size_t n, const char* what) {
  if (n > 0) add(list, std::to_string(n) + " " + what);
}

}  // namespace

std::string tokenizer_json() {
  std::string vocab;
  const std::string letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTU";
  for (std::size_t i = 0; i < letters.size(); ++i)
    vocab += (i == 0 ? "" : ",") + std::string("\"") + letters[i] + "\":" + std::to_string(i + 1);
  return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[{"id":0,"content":"<|end|>",)"
         R"("single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],"normalizer":null,)"
         R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},)"
         R"("post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},)"
         R"("model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,)"
         R"("fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{)" +
         vocab + R"(},"merges":[]}})";
}

ScriptedOptions target_text() { return {.vocab_size = kVocabulary, .max_model_len = kMaxLen}; }

void PacedModel::forward(const StagedBatch& batch, const PagedKv& kv, float* logits) {
  std::uniform_real_distribution<double> chance(0, 1);
  auto took =
      std::chrono::duration_cast<Duration>(pace_.factor * (pace_.pass + batch.n_rows * pace_.row));
  if (pace_.slow_chance > 0 && chance(dice_) < pace_.slow_chance)
    took += std::chrono::duration_cast<Duration>(chance(dice_) * pace_.slowest);
  host_.work(std::min<Duration>(took, kLongestPass));
  model_.forward(batch, kv, logits);
}

// ---- router, tokenizer

RouterProgram::RouterProgram(wire::Speaker me, const RequestRules& rules)
    : speaker(me),
      router({.client = kClientEndpoint, .router = kRouterEndpoint, .rules = rules},
             speaker,
             metrics) {}

std::string RouterProgram::leftovers() {
  std::string left;
  add(left, router.table().size(), "requests");
  return left;
}

TokenizerProgram::TokenizerProgram(wire::Speaker me, const std::string& name, const Ground& ground)
    : speaker(me),
      tokens({.router = kRouterEndpoint, .keep_stream = std::chrono::seconds(15)},
             hello_of(wire::Role::kTokenizer, name, ground.tokenizer, nullptr),
             ground.tokenizer,
             nullptr,
             speaker,
             metrics) {}

std::string TokenizerProgram::leftovers() {
  const std::string status = tokens.status();
  return status == "0 streams" ? "" : status;
}

// ---- draft

DraftProgram::DraftProgram(wire::Speaker me,
                           const std::string& name,
                           const Ground& ground,
                           const Settings& settings,
                           Host& host)
    : speaker(me),
      model(draft_text(settings), settings.pace, host, me.incarnation().value),
      engine(model,
             ground.backend,
             {.kv = {.n_blocks = settings.n_blocks, .block_tokens = kBlockTokens},
              .max_sequences = 2 * settings.max_running,
              .prefill_chunk = settings.prefill_chunk,
              .run_ahead = settings.run_ahead,
              .branch_rows = settings.branch_rows,
              .max_chained = settings.max_chained}),
      guesser(engine),
      draft(draft_options(name, ground, settings),
            hello_of(wire::Role::kDraft, name, ground.tokenizer, &model),
            guesser,
            speaker,
            metrics) {}

std::string DraftProgram::leftovers() {
  std::string left;
  add(left, engine.snapshot().n_attached, "sequences attached");
  add(left, blocks_left(engine.kv()));
  return left;
}

std::string DraftProgram::broken_rule() { return broken_kv_rule(engine.kv()); }

// ---- memory

MemoryProgram::MemoryProgram(wire::Speaker me,
                             const std::string& name,
                             const Ground& ground,
                             const Settings& settings)
    : speaker(me),
      guesser({.memories = {.n_places = std::uint64_t{1} << 14},
               .n_ids = kVocabulary,
               .max_sequences = 64,
               .clock = [] { return TimePoint{}; }}),
      draft(draft_options(name, ground, settings),
            memory_hello(name, ground.tokenizer),
            guesser,
            speaker,
            metrics) {}

std::string MemoryProgram::leftovers() {
  std::string left;
  add(left, guesser.snapshot().n_attached, "sequences attached");
  return left;
}

// ---- target

TargetProgram::TargetProgram(wire::Speaker me,
                             const std::string& name,
                             const Ground& ground,
                             const Settings& settings,
                             Host& host)
    : speaker(me),
      model(target_text(), settings.pace, host, me.incarnation().value),
      drafts(draft_pool_options(ProposerKind::kDraft, ground, settings), speaker),
      memories(draft_pool_options(ProposerKind::kMemory, ground, settings), speaker),
      engine(model,
             ground.backend,
             {{&drafts, &memories, &ngram, &prediction}, &drafts, &memories},
             {.kv = {.n_blocks = settings.n_blocks, .block_tokens = kBlockTokens},
              .max_running = settings.max_running,
              .max_waiting = settings.max_waiting,
              .prefill_chunk = settings.prefill_chunk,
              .prefix_root = root_of(model, ground.tokenizer.vocabulary_fingerprint()),
              .draft_length = {.mode = settings.length}}),
      target({.router = kRouterEndpoint, .adaptive = settings.length == LengthMode::kAdaptive},
             hello_of(wire::Role::kTarget, name, ground.tokenizer, &model),
             engine,
             {drafts, &memories},
             speaker,
             metrics) {}

std::string TargetProgram::leftovers() {
  const TargetSnapshot now = engine.snapshot();
  std::string left;
  add(left, now.n_running, "sequences running");
  add(left, now.n_waiting, "sequences waiting");
  add(left, blocks_left(engine.kv()));
  return left;
}

std::string TargetProgram::broken_rule() { return broken_kv_rule(engine.kv()); }

}  // namespace foretoken::test
