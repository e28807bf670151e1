// One line of a batch: a request in OpenAI's batch form, or with the keys of a client's request,
// and the line that answers it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"
#include "common/messages/client.h"
#include "services/edge/openai.h"

namespace foretoken::cli {

// Of a line: the same text with the same flags has the same id, its second occurrence another one.
// Flags that cannot change an answer are not in it. `low` is the same whatever the flags are.
RequestId batch_line_id(std::string_view line, std::size_t occurrence, const Json& flags);

struct BatchAnswers {
  std::int64_t created = 0;  // seconds since 1970, for OpenAI's form
  bool metrics = false;      // what is different each time, too
};

class BatchLine {
 public:
  // `flags`: what holds where the line does not say, as keys of a client's request. Without a seed
  // `id.low` is one: a flag that asks for more output leaves the text as it is.
  BatchLine(std::string_view text, RequestId id, const Json& flags);

  // What to ask the router for: an answer each, in this order. The error is that of the line.
  const Result<std::vector<wire::ClientRequest>>& requests() const { return requests_; }

  // The line that answers it, without its end.
  std::string answer(const std::vector<wire::ClientReply>& replies, const BatchAnswers& how) const;
  std::string failure(const Error& error) const;

 private:
  Result<std::vector<wire::ClientRequest>> read(std::string_view text, const Json& flags);
  Result<std::vector<wire::ClientRequest>> read_openai(const OrderedJson& line, const Json& flags);
  OrderedJson openai_line(unsigned status, const std::string& body) const;

  const RequestId id_;
  Json custom_id_;  // null: none
  bool is_openai_ = false;
  bool is_chat_ = false;
  edge::OpenAiAsk ask_;
  Result<std::vector<wire::ClientRequest>> requests_;
};

// What a line of answers says of itself.
struct AnswerHead {
  RequestId id;
  bool failed = false;
};
// Nothing for what is no such line.
std::optional<AnswerHead> read_answer_head(std::string_view line);

}  // namespace foretoken::cli
