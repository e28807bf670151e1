// tokenize, detokenize: the tokenizer of a model folder, without any service.
#include <unistd.h>

#include <iostream>

#include "common/base/json.h"
#include "common/config/models.h"
#include "common/config/resolve.h"
#include "common/tokenizer/tokenizer.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

// The one that is configured. Throws FatalError where there are several: a folder must be named.
const Config& only_model(const LoadedConfig& loaded) {
  const auto models = models_of(loaded);
  if (models.size() > 1)
    throw FatalError(ErrorCode::kConfig, "several models are configured: say --model FOLDER");
  return models.front().config;
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_of(std::string folder, const ConfigOptions& config) {
  RegexPolicy patterns = RegexPolicy::kAny;  // of a folder that is named here
  if (folder.empty()) {
    const auto loaded = load_configuration(config);
    if (!loaded) throw FatalError(ErrorCode::kConfig, "the configuration has errors");
    const ModelSection& model = only_model(*loaded).model;
    folder = model.target;
    patterns = regex_policy_from_name(model.patterns);
  }
  return value_or_throw(Tokenizer::load(model_folder(folder, "target"), {.patterns = patterns}));
}

int run_tokenize(const CliOptions& options) {
  std::string text = options.tokenize.text;
  if (text.empty() && ::isatty(0) == 0) text = read_all_of_stdin();
  const auto tokenizer = tokenizer_of(options.tokenize.model, options.config);
  const auto ids = tokenizer->encode(
      text, options.tokenize.no_special ? AddSpecialTokens::kNo : AddSpecialTokens::kYes);
  if (!ids.ok()) return report_error(ids.error());
  if (options.output.json) {
    OrderedJson document = {
        {"schema", "foretoken.tokenize/1"}, {"ids", *ids}, {"tokens", OrderedJson::array()}};
    for (TokenId id : *ids) document["tokens"].push_back(std::string(tokenizer->token_text(id)));
    std::cout << to_text(document, 2) << "\n";
    return kExitOk;
  }
  for (std::size_t i = 0; i < ids->size(); ++i) std::cout << (i ? " " : "") << (*ids)[i];
  std::cout << "\n";
  return kExitOk;
}

int run_detokenize(const CliOptions& options) {
  const auto tokenizer = tokenizer_of(options.tokenize.model, options.config);
  std::vector<TokenId> ids;
  for (std::int64_t id : options.tokenize.ids) {
    if (id < 0 || id >= static_cast<std::int64_t>(tokenizer->vocab_size()))
      return report_error({ErrorCode::kInvalidValue,
                           "token id " + std::to_string(id) + " is not in the vocabulary of " +
                               std::to_string(tokenizer->vocab_size()) + " tokens",
                           "ids"});
    ids.push_back(static_cast<TokenId>(id));
  }
  const std::string text = tokenizer->decode(ids, SkipSpecialTokens::kNo);
  if (options.output.json)
    std::cout << to_text(OrderedJson{{"schema", "foretoken.detokenize/1"}, {"text", text}}, 2)
              << "\n";
  else
    std::cout << text << "\n";
  return kExitOk;
}

}  // namespace foretoken::cli
