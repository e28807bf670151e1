// model compare: what a type of weights in memory does to the logits of a folder.
#include <iostream>

#include "common/config/resolve.h"
#include "common/model/head_ids.h"
#include "common/model/hf_folder.h"
#include "services/cli/model_logits.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {

int run_model_compare(const CliOptions& options) {
  const ModelOptions& m = options.model;
  const std::string folder = model_folder(m.folder, "target");
  const std::vector<TokenId> tokens = sample_tokens(folder, m.text);
  LogitComparison comparison;
  try {
    refuse_trimmed_head(read_model_config(folder), folder, "a comparison");
    comparison = compare_logits_of(folder, weight_dtype_from_name(m.dtype).value(), tokens);
  } catch (const FatalError& error) {
    return report_error({error.code(), error.what()}), kExitModel;
  }
  if (options.output.json) {
    OrderedJson json{{"schema", "foretoken.model_compare/1"},
                     {"folder", folder},
                     {"dtype", m.dtype},
                     {"logits", as_json(comparison)}};
    std::cout << to_text(json, 2) << "\n";
    return kExitOk;
  }
  std::cout << folder << " in " << m.dtype << ": " << sentence_of(comparison) << "\n";
  return kExitOk;
}

}  // namespace foretoken::cli
