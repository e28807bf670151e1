// foretoken-draft: guesses ahead for the sequences of any number of targets, with a model or from
// a memory of texts.
#include "common/config/resolve.h"
#include "common/runtime/process.h"
#include "common/runtime/service_main.h"
#include "common/tokenizer/tokenizer.h"
#include "services/draft/draft_service.h"
#include "services/draft/memory_guesser.h"
#include "services/draft/model_guesser.h"
#include "services/draft/setup.h"
#include "services/served_model/served_model.h"

namespace foretoken {
namespace {

int serve_draft_model(const Config& config, Runtime& runtime) {
  const ModelPlan plan = draft_plan(config);
  return serve_model(plan, runtime, [&](const ServedModel& served) {
    wire::Speaker speaker = runtime.speaker();
    const DraftEngineOptions options =
        draft_engine_options(config, served.model, served.free_bytes, served.vocabulary);
    DraftEngine engine(served.model, served.backend, options);
    ModelGuesser guesser(engine);
    DraftService service(
        draft_service_options(config, runtime.id(), served.vocabulary, served.cores),
        draft_hello(config, plan, runtime.name(), served.model, served.vocabulary, options),
        guesser, speaker, runtime.metrics());
    return served.run(service, engine);
  });
}

int serve_memory(const Config& config, Runtime& runtime) {
  const auto tokenizer =
      value_or_throw(Tokenizer::load(model_folder(config.model.target, "target"),
                                     {.patterns = regex_policy_from_name(config.model.patterns)}));
  const ModelVocabulary vocabulary{.vocabulary = tokenizer->vocabulary_fingerprint(),
                                   .n_ids = static_cast<std::int32_t>(tokenizer->vocab_size())};
  MemoryGuesser guesser(memory_guesser_options(config, vocabulary));
  runtime.progress("reading the memory's texts");
  keep_texts(guesser, config.memory, vocabulary);
  wire::Speaker speaker = runtime.speaker();
  DraftService service(
      draft_service_options(config, runtime.id(), vocabulary, {.machine = boot_id()}),
      memory_hello(config, runtime.name(), vocabulary), guesser, speaker, runtime.metrics());
  return runtime.serve(service);
}

}  // namespace
}  // namespace foretoken

int main(int argc, char** argv) {
  using namespace foretoken;
  bool is_memory = false;
  return service_main(
      {"draft",
       argc,
       argv,
       "Guesses ahead for targets, batched together.",
       true,
       {{"--memory",
         "guess from a memory of texts (section [memory]), without a model: what followed the same "
         "words before, for the same tenant",
         &is_memory}}},
      [&](const Config& config, Runtime& runtime) {
        return is_memory ? serve_memory(config, runtime) : serve_draft_model(config, runtime);
      });
}
