// foretoken-tokenizer: chat templates, encoding, incremental decoding, stop strings.
#include "common/base/log.h"
#include "common/config/resolve.h"
#include "common/runtime/service_main.h"
#include "services/chat_template/chat_template.h"
#include "services/tokenizer/tokenizer_service.h"

int main(int argc, char** argv) {
  using namespace foretoken;
  return service_main(
      {"tokenizer", argc, argv, "Turns text into tokens and tokens into text.", true},
      [](const Config& config, Runtime& runtime) {
        const auto tokenizer = value_or_throw(
            Tokenizer::load(model_folder(config.model.target, "target"),
                            {.patterns = regex_policy_from_name(config.model.patterns)}));
        if (!tokenizer->untested_pattern().empty())
          log_warning("a pattern of the tokenizer has not been compared with the reference",
                      {{"pattern", tokenizer->untested_pattern()}});
        std::unique_ptr<ChatTemplate> chat;
        ChatRenderer render;
        if (tokenizer->chat_template()) {
          chat = value_or_throw(ChatTemplate::compile(*tokenizer->chat_template(),
                                                      tokenizer->named_tokens(), {},
                                                      tokenizer->tool_template()));
          render = [&chat](const std::string& messages, bool add_generation_prompt,
                           const std::string& variables) {
            return chat->render(messages, add_generation_prompt, variables);
          };
        } else {
          log_warning("the model has no chat template: messages will be refused");
        }
        TokenizerServiceOptions options = tokenizer_options(config);
        options.form = ModelForm::of(*tokenizer, config.model.tool_format);
        wire::Speaker speaker = runtime.speaker();
        TokenizerService service(options,
                                 tokenizer_hello(config, runtime.name(), *tokenizer, options.form),
                                 *tokenizer, render, speaker, runtime.metrics());
        return runtime.serve(service);
      });
}
