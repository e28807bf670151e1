#include "tests/simulation/world.h"

#include <algorithm>

#include "common/base/log.h"
#include "common/engine/draft_engine.h"
#include "common/engine/target_engine.h"
#include "common/spec/ngram_proposer.h"
#include "common/spec/prefix_hash.h"
#include "common/tokenizer/stream_decoder.h"
#include "services/draft/draft_service.h"
#include "services/router/request_table.h"
#include "services/router/router_service.h"
#include "services/target/draft_proposer.h"
#include "services/target/target_service.h"
#include "services/tokenizer/tokenizer_service.h"
#include "tests/support/plain_decode.h"

namespace foretoken::test {
namespace {

constexpr const char* kRouter = "ipc://router";
constexpr const char* kClients = "ipc://clients";
constexpr std::int32_t kBlockTokens = 8;
constexpr Duration kAskAgain = std::chrono::seconds(4);
constexpr Duration kStepTime = std::chrono::microseconds(500);  // what a turn with work takes

// Ids 1 .. 47 are one character each; 0 ends the text.
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

ScriptedOptions target_text() {
  return {.vocab_size = World::kVocabulary, .max_model_len = World::kMaxLen};
}
ScriptedOptions draft_text() {
  ScriptedOptions options = target_text();
  options.error_seed = 5;
  options.error = 0.4f;
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
  hello.vocab_size = World::kVocabulary;
  hello.max_sequences = 16;
  if (model != nullptr) {
    hello.max_model_len = static_cast<std::uint32_t>(model->config().max_model_len);
    hello.end_tokens = model->config().eos_token_ids;
  }
  return hello;
}

// Members in order of dependence: what the service borrows comes before it.
struct RouterProcess final : Process {
  RouterProcess(wire::Speaker me)
      : speaker(me), router({.client = kClients, .router = kRouter}, speaker, metrics) {}
  Service& service() override { return router; }
  Metrics metrics;
  wire::Speaker speaker;
  RouterService router;
};

struct TokenizerProcess final : Process {
  TokenizerProcess(wire::Speaker me, const std::string& name, const Tokenizer& tokenizer)
      : speaker(me),
        tokens({.router = kRouter},
               hello_of(wire::Role::kTokenizer, name, tokenizer, nullptr),
               tokenizer,
               nullptr,
               speaker,
               metrics) {}
  Service& service() override { return tokens; }
  Metrics metrics;
  wire::Speaker speaker;
  TokenizerService tokens;
};

struct DraftProcess final : Process {
  DraftProcess(wire::Speaker me,
               const std::string& name,
               const Tokenizer& tokenizer,
               Backend& backend)
      : speaker(me),
        model(draft_text()),
        engine(model,
               backend,
               // The first guesses step by step, others as GPUs do, all in one pass.
               {.kv = {.n_blocks = 400, .block_tokens = kBlockTokens},
                .max_sequences = 16,
                .max_chained = name == "draft-0" ? 1 : kMaxDraftTokens}),
        draft({.router = kRouter,
               .endpoint = "ipc://" + name,
               .vocabulary = tokenizer.vocabulary_fingerprint(),
               .memory_endpoint = "shm:///world/" + name,
               .machine = "world",
               .open_board = [&backend](auto card,
                                        auto& why) { return backend.open_board(card, why); }},
              hello_of(wire::Role::kDraft, name, tokenizer, &model),
              engine,
              speaker,
              metrics) {}
  Service& service() override { return draft; }
  Metrics metrics;
  wire::Speaker speaker;
  ScriptedModel model;
  DraftEngine engine;
  DraftService draft;
};

constexpr std::int32_t kPlaces = 8;

std::unique_ptr<VerdictBoard> board_of(Backend& backend) {
  std::string why;
  auto board = backend.make_board(TargetEngine::kBoardEntriesPerSequence * kPlaces, why);
  FORETOKEN_CHECK(board != nullptr, "a board between CPUs is memory");
  return board;
}

std::vector<std::uint8_t> card_of(const VerdictBoard& board) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(board.card().data());
  return {bytes, bytes + board.card().size()};
}

struct TargetProcess final : Process {
  TargetProcess(wire::Speaker me,
                const std::string& name,
                const Tokenizer& tokenizer,
                Backend& backend)
      : speaker(me),
        model(target_text()),
        board(board_of(backend)),
        drafts({.vocabulary = tokenizer.vocabulary_fingerprint(),
                .prefix_root = root_of(model, tokenizer.vocabulary_fingerprint()),
                .end_tokens = model.config().eos_token_ids,
                // A second way, with delays and losses of its own: what takes it changes places
                // with what does not.
                // And verdicts on a board, of which drafts are told in time, late or never.
                .link = {.choice = LinkChoice::kAuto,
                         .machine = "world",
                         .folder = "/world",
                         .card = card_of(*board)}},
               speaker),
        engine(model,
               backend,
               {&drafts, &ngram, nullptr, &drafts},
               {.kv = {.n_blocks = 400, .block_tokens = kBlockTokens},
                .max_running = kPlaces,
                .max_waiting = 64,
                .prefill_chunk = 24,
                .prefix_root = root_of(model, tokenizer.vocabulary_fingerprint()),
                .draft_length = {.mode = LengthMode::kFixed}}),
        target({.router = kRouter, .adaptive = false},
               hello_of(wire::Role::kTarget, name, tokenizer, &model),
               engine,
               drafts,
               speaker,
               metrics) {
    engine.use_board(*board, drafts);
  }
  Service& service() override { return target; }
  Metrics metrics;
  wire::Speaker speaker;
  ScriptedModel model;
  std::unique_ptr<VerdictBoard> board;
  DraftProposer drafts;
  NgramProposer ngram;
  TargetEngine engine;
  TargetService target;
};

}  // namespace

World::World(std::uint64_t seed)
    : network_(clock_, seed), dice_(seed), backend_(make_backend({.n_threads = 1})) {
  configure_log(LogLevel::kError, LogFormat::kText, "simulation");
  clock_.set(TimePoint{} + std::chrono::hours(1));
  folder_.write("tokenizer.json", tokenizer_json());
  folder_.write("tokenizer_config.json",
                R"({"tokenizer_class":"PreTrainedTokenizerFast","eos_token":"<|end|>"})");
  tokenizer_ = value_or_throw(Tokenizer::load(folder_.path()));
  client_ = network_.make_transport("client");
  client_socket_ = client_->connect(kClients);
}

World::~World() { processes_.clear(); }

World::Counts World::counts_of_running_router() const {
  const auto it = processes_.find("router");
  if (it == processes_.end()) return {};
  const auto& counters = static_cast<RouterProcess&>(*it->second).router.table().counters();
  return {counters.migrated, counters.replayed, counters.joined};
}

std::uint64_t World::sent_beside() const {
  std::uint64_t sum = 0;
  for (const auto& [name, process] : processes_)
    if (name.starts_with("target"))
      sum += static_cast<const TargetProcess&>(*process).drafts.counters().sent_beside;
  return sum;
}

std::uint64_t World::taken_early() const {
  std::uint64_t sum = 0;
  for (const auto& [name, process] : processes_)
    if (name.starts_with("draft"))
      sum += static_cast<const DraftProcess&>(*process).engine.snapshot().n_taken;
  return sum;
}

World::Counts World::counts() const {
  const Counts running = counts_of_running_router();
  return {counts_.migrated + running.migrated, counts_.replayed + running.replayed,
          counts_.joined + running.joined};
}

void World::start(const std::string& name) {
  crash(name);
  const std::string role = name.substr(0, name.find('-'));
  const wire::Speaker me(WorkerId{std::hash<std::string>{}(name)}, Incarnation{++n_lives_});
  std::unique_ptr<Process> process;
  if (role == "router") process = std::make_unique<RouterProcess>(me);
  if (role == "tokenizer") process = std::make_unique<TokenizerProcess>(me, name, *tokenizer_);
  if (role == "draft") process = std::make_unique<DraftProcess>(me, name, *tokenizer_, *backend_);
  if (role == "target") process = std::make_unique<TargetProcess>(me, name, *tokenizer_, *backend_);
  process->transport = network_.make_transport(name);
  process->bus = std::make_unique<DirectBus>(*process->transport, clock_);
  process->service().start(*process->bus);
  processes_[name] = std::move(process);
}

void World::crash(const std::string& name) {
  if (name == "router") counts_ = counts();
  processes_.erase(name);
}

// ---- clients

void World::send(Asked& asked) {
  asked.asked_at = clock_.now();
  wire::ClientRequest request = asked.request;
  request.request_id = asked.id;
  (void)client_->send({.socket = client_socket_, .routing = {}},
                      {wire::write_client_request(request)});
}

std::size_t World::ask(wire::ClientRequest request) {
  Asked& asked = asked_.emplace_back();
  asked.request = std::move(request);
  asked.id = {0xABCDEF, asked_.size()};
  send(asked);
  return asked_.size() - 1;
}

void World::cancel(std::size_t index) {
  wire::ClientRequest request{.op = wire::ClientOp::kCancel, .request_id = asked_[index].id};
  (void)client_->send({.socket = client_socket_, .routing = {}},
                      {wire::write_client_request(request)});
}

bool World::all_answered() const {
  return std::all_of(asked_.begin(), asked_.end(),
                     [](const Asked& asked) { return asked.answered; });
}

void World::pump_client() {
  while (auto delivery = client_->receive(TimePoint::min())) {
    if (delivery->kind != DeliveryKind::kMessage) continue;
    auto answer = wire::read_client_answer(delivery->frames.at(0));
    if (!answer.ok()) continue;
    const auto take = [&](const std::string& id, auto&& what) {
      for (Asked& asked : asked_) {
        if (wire::hex_of(asked.id) != id || asked.answered) continue;
        asked.answered = true;
        ++asked.n_finals;
        what(asked);
      }
    };
    if (const auto* reply = std::get_if<wire::ClientReply>(&*answer))
      take(reply->id, [&](Asked& asked) { asked.reply = *reply; });
    if (const auto* error = std::get_if<wire::ClientError>(&*answer))
      take(error->id, [&](Asked& asked) { asked.error = error->code; });
  }
  for (Asked& asked : asked_)
    if (!asked.answered && clock_.now() - asked.asked_at >= kAskAgain) send(asked);
}

// ---- time

void World::turn() {
  TimePoint next = clock_.now() + std::chrono::milliseconds(100);
  bool worked = false;
  for (auto& [name, process] : processes_) {
    for (int i = 0; i < 256; ++i) {
      auto delivery = process->transport->receive(TimePoint::min());
      if (!delivery) break;
      dispatch(process->service(), std::move(*delivery));
    }
    const TimePoint due = process->service().on_turn(clock_.now());
    worked = worked || due <= clock_.now();
    next = std::min(next, due);
  }
  pump_client();
  if (const auto arrival = network_.next_arrival()) next = std::min(next, *arrival);
  clock_.set(worked ? clock_.now() + kStepTime
                    : std::max(next, clock_.now() + std::chrono::microseconds(10)));
}

bool World::run_until(const std::function<bool()>& done, Duration at_most) {
  const TimePoint end = clock_.now() + at_most;
  while (!done()) {
    if (clock_.now() >= end) return false;
    turn();
  }
  return true;
}

std::pair<std::vector<TokenId>, std::string> World::expected(const wire::ClientRequest& request,
                                                             RequestId id) {
  ScriptedModel model(target_text());
  OpenRequest plain{.seq = SeqId{1}, .params = request.params};
  plain.prompt = *tokenizer_->encode(request.prompt, AddSpecialTokens::kYes);
  if (!request.has_seed) plain.params.seed = seed_of(id);
  PlainAnswer answer = plain_decode(model, *backend_, plain, kMaxLen);
  StreamDecoder decoder(*tokenizer_, {.stop = request.stop});
  std::string text;
  for (std::size_t i = 0; i < answer.ids.size(); ++i) {
    const StreamDecoder::Piece piece = decoder.push(answer.ids[i]);
    text += piece.text;
    if (!piece.stopped) continue;
    answer.ids.resize(i + 1);
    return {answer.ids, text};
  }
  return {answer.ids, text + decoder.finish().text};
}

}  // namespace foretoken::test
