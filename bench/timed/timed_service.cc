#include "bench/timed/timed_service.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <vector>

#include "bench/schedule/timed_text.h"
#include "bench/timed/timed_model.h"
#include "common/base/log.h"
#include "common/collective/collective.h"
#include "common/tokenizer/tokenizer.h"

namespace foretoken::bench {
namespace {

// A test's: shows that the bench sees a text that differs.
Draws draws_asked_for(const ModelPlan& plan) {
  const char* word = std::getenv("FORETOKEN_BENCH_WRONG_DRAWS");
  const bool is_wrong = word != nullptr && std::string_view(word) == "1" && plan.role == "target";
  return is_wrong ? Draws::kWrongWhenVerifying : Draws::kRight;
}

}  // namespace

TimedSetting take_timed_setting(int& argc, char** argv) {
  const auto fail = [&](const std::string& why) {
    std::cerr << argv[0] << ": " << why << "\n  `foretoken bench schedule` starts it\n";
    std::exit(kExitUsage);
  };
  if (argc < 3 || argv[1] != kTimedFlag) fail(std::string(kTimedFlag) + " must come first");
  const auto setting = timed_setting(argv[2]);
  if (!setting.ok()) fail(setting.error().message);
  std::rotate(argv + 1, argv + 3, argv + argc);
  argc -= 2;
  return *setting;
}

int serve_timed(const TimedSetting& setting,
                const ModelPlan& plan,
                Runtime& runtime,
                const std::function<int(const ServedModel&)>& serve) {
  const auto tokenizer = value_or_throw(Tokenizer::load(plan.folder));
  const auto backend = make_backend({.n_threads = 1, .record = Record::kOff});
  const auto ranks = make_self_collective();
  TimedModel model(setting, draws_asked_for(plan));
  log_info("a timed model, not one with weights",
           {{"role", plan.role}, {"setting", text_of(setting)}});
  const std::int32_t n_ids =
      std::min(static_cast<std::int32_t>(tokenizer->vocab_size()), kTimedVocabulary);
  const std::vector<std::string_view> no_bytes(static_cast<std::size_t>(n_ids));
  return serve({.model = model,
                .backend = *backend,
                .vocabulary = {.vocabulary = tokenizer->vocabulary_fingerprint(),
                               .text = tokenizer->text_fingerprint(),
                               .n_ids = n_ids,
                               .constraints = std::make_shared<Constraints>(no_bytes)},
                .free_bytes = backend->free_bytes(),
                .ranks = *ranks,
                .runtime = runtime,
                .patience = std::chrono::seconds(5)});
}

}  // namespace foretoken::bench
