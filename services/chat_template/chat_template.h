// A model's chat template: messages in, the prompt text out, by real Jinja2 in an embedded
// interpreter. A template is a program from the folder of a model, so it runs in a sandbox with
// limits on steps, time, and size. One interpreter per process, started by the first compile();
// Debian's, whatever PATH or PYTHONHOME say. Any thread may call, one renders at a time. Knows
// nothing of tokens, sockets or models.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"

namespace foretoken {

struct ChatTemplateLimits {
  std::size_t max_source_bytes = 256u << 10;
  std::size_t max_input_bytes = 8u << 20;  // messages and variables, as JSON
  std::size_t max_output_bytes = 16u << 20;
  std::uint64_t max_steps =
      4'000'000;  // lines of Python, the template's own and those of its filters
  std::chrono::milliseconds max_time{2000};  // one render
};

class ChatTemplate {
 public:
  // Names and texts of special tokens, as templates know them: {"bos_token", "<s>"}, {"eos_token",
  // "</s>"}, …
  using SpecialTokens = std::vector<std::pair<std::string, std::string>>;

  // `tool_source` is rendered in place of `source` where the variables have `tools` that are not
  // null, as in Transformers. Refused: a source that is too long or no Jinja2 (kMalformed), an
  // interpreter that does not start (kUnavailable).
  static Result<std::unique_ptr<ChatTemplate>> compile(
      std::string_view source,
      const SpecialTokens& tokens,
      const ChatTemplateLimits& limits = {},
      std::optional<std::string_view> tool_source = {});
  ~ChatTemplate();

  // `messages_json` is an array of objects. `extra_variables_json` is an object, or empty for none;
  // what it names (tools, documents, date_string, …) the template sees as variables. The time that
  // strftime_now() tells is that of the process's first compile(): equal requests give equal
  // prompts. A template that raises, or goes over a limit, is a kInvalidValue with its message.
  Result<std::string> render(std::string_view messages_json,
                             bool add_generation_prompt,
                             std::string_view extra_variables_json = {}) const;

  // Jinja2 and interpreter that render, for logs: "Jinja2 3.1.2, Python 3.11.2 from
  // /usr/lib/python3.11".
  static Result<std::string> engine();

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace foretoken
