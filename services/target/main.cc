// foretoken-target: runs the target model, judges proposals, owns the committed sequences.
#include "common/model/head_ids.h"
#include "common/model/hf_folder.h"
#include "common/runtime/service_main.h"
#include "services/served_model/served_model.h"
#include "services/target/serve_target.h"
#include "services/target/setup.h"

int main(int argc, char** argv) {
  using namespace foretoken;
  return service_main(
      {"target", argc, argv, "Runs the target model and judges what drafts propose.", true},
      [](const Config& config, Runtime& runtime) {
        (void)link_choice(config.target);  // refused before ranks or a model are there
        const ModelPlan plan = target_plan(config);
        refuse_trimmed_head(read_model_config(plan.folder), plan.folder, "a target");
        return serve_model(plan, runtime, [&](const ServedModel& served) {
          return serve_target(config, runtime, served);
        });
      });
}
