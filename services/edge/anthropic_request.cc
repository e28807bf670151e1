// Anthropic's bodies -> requests to the router.
#include <algorithm>
#include <set>
#include <utility>

#include "services/edge/answer_constraint.h"
#include "services/edge/anthropic.h"
#include "services/edge/router_request.h"
#include "services/edge/tools.h"

namespace foretoken::edge {
namespace {

using enum FieldUse;

// Of messages and of the count of their tokens.
constexpr BodyField kPromptFields[] = {
    {"model", kHonoured, "model", "a served name; another is 404"},
    {"messages", kHonoured, "",
     "roles user, assistant, system; content: a text, or blocks of type text, tool_use, "
     "tool_result, thinking; the answer continues a last message of the assistant"},
    {"system", kHonoured, "",
     "a text, or blocks of type text; lines of x-anthropic-billing-header are left out"},
    {"tools", kHonoured, "",
     "with input_schema; those of a server are left out, and strict has no effect", "",
     kToolsLimit},
    {"tool_choice", kHonoured, "",
     "auto, none; any, tool: the answer begins with a call, without reasoning; "
     "disable_parallel_tool_use"},
    {"thinking", kHonoured, "",
     "enabled, adaptive or disabled: the template's enable_thinking; budget_tokens has no effect"},
    {"output_config", kHonoured, "",
     "effort: the template's reasoning_effort; format json_schema: the answer is what the schema "
     "allows, without thinking"},
    {"output_format", kHonoured, "", "of older clients: as output_config.format"},
    {"metadata", kIgnored},
    {"cache_control", kIgnored, "", "prefixes are found by their tokens"},
    {"context_management", kIgnored},
    {"service_tier", kIgnored},
    {"speed", kIgnored},
    {"container", kIgnored},
    {"inference_geo", kIgnored},
    {"user_profile_id", kIgnored},
    {"workspace_id", kIgnored},
    {"diagnostics", kIgnored},
};

constexpr BodyField kAnswerFields[] = {
    {"max_tokens", kHonoured, "max_tokens",
     "required; at least 1; beyond the context = to its end"},
    {"stop_sequences", kHonoured, "stop"},
    {"temperature", kHonoured, "temperature"},
    {"top_p", kHonoured, "top_p"},
    {"top_k", kHonoured, "top_k"},
    {"stream", kHonoured, "", "server-sent events"},
    {"speculation", kHonoured, "", kSpeculationNote},
    {"seed", kHonoured, "seed", kOwnSeedNote},
};

// A body of a message may be counted as it is.
std::vector<BodyField> count_table() {
  std::vector<BodyField> fields = joined_fields(kPromptFields, kAnswerFields);
  for (BodyField& field : fields)
    for (const BodyField& of_answer : kAnswerFields)
      if (field.name == of_answer.name) field = {field.name, kIgnored, "", "of the answer alone"};
  return fields;
}

// A client writes here what changes with every request, at the head of the prompt: no prefix of it
// would ever be found again.
constexpr std::string_view kBillingLine = "x-anthropic-billing-header:";

Error bad_block(const std::string& place, const OrderedJson& block, const char* allowed) {
  return {ErrorCode::kUnsupportedParameter,
          place + " is a block of type " + to_text(member(block, "type")) + "; here only " +
              allowed + " is read",
          place};
}

// A text, or blocks of type text, joined by `between`.
Result<std::string> joined_text(const OrderedJson& content,
                                const std::string& where,
                                std::string_view between) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array())
    return invalid_value(where + " must be a text or a list of blocks", where);
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    if (member(content[i], "type") != "text" || !member(content[i], "text").is_string())
      return bad_block(where + "." + std::to_string(i), content[i], "text");
    text += (i > 0 ? std::string(between) : "") + text_or_empty(member(content[i], "text"));
  }
  return text;
}

std::string without_billing(const std::string& system) {
  std::string kept;
  for (std::size_t at = 0; at < system.size();) {
    const std::size_t end = std::min(system.find('\n', at), system.size() - 1) + 1;
    const std::string_view line = std::string_view(system).substr(at, end - at);
    if (!line.starts_with(kBillingLine)) kept += line;
    at = end;
  }
  return kept;
}

// The turns of a conversation as a chat template has them: answers of tools are turns of their own.
class Conversation {
 public:
  Result<void> add(const OrderedJson& message, const std::string& where) {
    if (!message.is_object()) return invalid_value(where + " is no message", where);
    const OrderedJson& role = member(message, "role");
    if (role != "user" && role != "assistant" && role != "system")
      return invalid_value(
          where + ".role is " + to_text(role) + "; it must be user, assistant or system",
          where + ".role");
    const OrderedJson& content = member(message, "content");
    Turn turn{.role = text_or_empty(role), .content = {}};
    std::string text;
    if (content.is_string()) {
      text = content.get<std::string>();
    } else if (content.is_array()) {
      for (std::size_t i = 0; i < content.size(); ++i) {
        const auto added =
            add_block(content[i], where + ".content." + std::to_string(i), turn, text);
        if (!added.ok()) return added.error();
      }
    } else {
      return invalid_value(where + ".content must be a text or a list of blocks",
                           where + ".content");
    }
    turn.content = text;
    ends_with_assistant_ = turn.role == "assistant";
    const bool has_results = content.is_array() && has_result_;
    has_result_ = false;
    if (!text.empty() || !has_results) turns_.push_back(turn_json(turn));
    return {};
  }
  void add_system(const std::string& text) {
    turns_.push_back(turn_json({.role = "system", .content = text}));
  }
  bool ends_with_assistant() const { return ends_with_assistant_; }
  Json take() { return std::move(turns_); }

 private:
  Result<void> add_block(const OrderedJson& block,
                         const std::string& place,
                         Turn& turn,
                         std::string& text) {
    const std::string type = text_or_empty(member(block, "type"));
    const bool is_assistant = turn.role == "assistant";
    if (type == "text" && member(block, "text").is_string()) {
      text += text_or_empty(member(block, "text"));
    } else if (type == "redacted_thinking") {  // encrypted by another server: dropped
    } else if (type == "thinking" && is_assistant) {
      turn.reasoning += text_or_empty(member(block, "thinking"));
    } else if (type == "tool_use" && is_assistant) {
      PastCall call{.id = text_or_empty(member(block, "id")),
                    .name = text_or_empty(member(block, "name")),
                    .arguments = member(block, "input")};
      if (call.id.empty() || call.name.empty() || !call.arguments.is_object())
        return invalid_value(place + " needs id, name and an object input", place);
      call_ids_.insert(call.id);
      turn.calls.push_back(std::move(call));
    } else if (type == "tool_result" && turn.role == "user") {
      return add_result(block, place);
    } else {
      return bad_block(place, block,
                       is_assistant ? "text, tool_use or thinking" : "text or tool_result");
    }
    return {};
  }
  Result<void> add_result(const OrderedJson& block, const std::string& place) {
    const std::string id = text_or_empty(member(block, "tool_use_id"));
    if (!call_ids_.contains(id))
      return invalid_value(
          place + ".tool_use_id is \"" + id + "\"; no tool_use before it has this id",
          place + ".tool_use_id");
    const OrderedJson& content = member(block, "content");
    auto text = content.is_null() ? Result<std::string>(std::string())
                                  : joined_text(content, place + ".content", "");
    if (!text.ok()) return text.error();
    const bool is_error = member(block, "is_error") == true;
    turns_.push_back(turn_json(
        {.role = "tool", .content = (is_error ? "Error: " : "") + *text, .tool_call_id = id}));
    has_result_ = true;
    return {};
  }

  Json turns_ = Json::array();
  std::set<std::string> call_ids_;
  bool has_result_ = false;  // of the message that is being read
  bool ends_with_assistant_ = false;
};

Result<void> add_messages(const OrderedJson& body, Json& request) {
  Conversation conversation;
  if (const OrderedJson& system = member(body, "system"); !system.is_null()) {
    const auto text = joined_text(system, "system", "\n");
    if (!text.ok()) return text.error();
    if (const std::string kept = without_billing(*text); !kept.empty())
      conversation.add_system(kept);
  }
  const OrderedJson& given = member(body, "messages");
  if (!given.is_array() || given.empty())
    return Error{ErrorCode::kInvalidRequest, "messages must be a list that is not empty",
                 "messages"};
  for (std::size_t i = 0; i < given.size(); ++i)
    if (const auto done = conversation.add(given[i], "messages." + std::to_string(i)); !done.ok())
      return done.error();
  if (conversation.ends_with_assistant()) request["continue_final_message"] = true;
  request["messages"] = conversation.take();
  return {};
}

Result<void> read_wanted_call(const OrderedJson& choice, ToolUse& use) {
  if (choice.is_null()) return {};
  if (const auto good = check_object(choice, "tool_choice"); !good.ok()) return good.error();
  const std::string type = text_or_empty(member(choice, "type"));
  if (type == "none") {
    use.choice = ToolChoice::kNone;
  } else if (type == "any") {
    use.choice = ToolChoice::kRequired;
  } else if (type == "tool") {
    auto name = read_wanted_name(member(choice, "name"), "tool_choice.name");
    if (!name.ok()) return name.error();
    use.choice = ToolChoice::kRequired;
    use.name = std::move(*name);
  } else if (type != "auto") {
    return invalid_value("tool_choice.type is " + to_text(member(choice, "type")) +
                             "; it must be auto, any, tool "
                             "or none",
                         "tool_choice");
  }
  use.parallel = member(choice, "disable_parallel_tool_use") != true;
  return {};
}

Result<AnswerRules> add_tools(const OrderedJson& body,
                              Json& request,
                              std::vector<std::string>& ignored) {
  ToolUse use;
  const OrderedJson& tools = member(body, "tools");
  if (!tools.is_null() && !tools.is_array()) return invalid_value("tools must be a list", "tools");
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const std::string place = "tools." + std::to_string(i);
    const OrderedJson& type = member(tools[i], "type");
    if (!type.is_null() && type != "custom") {  // a tool that Anthropic's servers have
      ignored.push_back(place);
      continue;
    }
    const OrderedJson& schema = member(tools[i], "input_schema");
    if (!schema.is_object()) return invalid_value(place + " needs name and input_schema", place);
    if (member(tools[i], "strict") == true) ignored.push_back(place + ".strict");
    use.tools.push_back({.name = text_or_empty(member(tools[i], "name")),
                         .description = text_or_empty(member(tools[i], "description")),
                         .parameters = schema});
  }
  if (const auto done = read_wanted_call(member(body, "tool_choice"), use); !done.ok())
    return done.error();
  if (const auto good = check_tools(use, "tools"); !good.ok()) return good.error();
  if (use.choice == ToolChoice::kRequired && request.contains("continue_final_message"))
    return invalid_value("a call cannot be asked for where the answer continues a message",
                         "tool_choice");
  return use_tools(use, request);
}

// thinking and output_config -> variables of the chat template.
Result<bool> add_variables(const OrderedJson& body,
                           Json& request,
                           std::vector<std::string>& ignored) {
  OrderedJson variables = OrderedJson::object();
  const OrderedJson& thinking = member(body, "thinking");
  const OrderedJson& output = member(body, "output_config");
  for (const char* name : {"thinking", "output_config"})
    if (const auto good = check_object(member(body, name), name); !good.ok()) return good.error();
  if (!thinking.is_null()) {
    const std::string type = text_or_empty(member(thinking, "type"));
    if (type != "enabled" && type != "adaptive" && type != "between_tools" && type != "disabled")
      return invalid_value("thinking.type is " + to_text(member(thinking, "type")) +
                               "; it must be enabled, adaptive or disabled",
                           "thinking");
    variables["enable_thinking"] = type != "disabled";
    if (!member(thinking, "budget_tokens").is_null()) ignored.push_back("thinking.budget_tokens");
  }
  const OrderedJson& effort = member(output, "effort");
  if (!effort.is_null() && !effort.is_string())
    return invalid_value("output_config.effort must be a text", "output_config.effort");
  if (effort.is_string()) variables["reasoning_effort"] = effort;
  if (!variables.empty()) request["chat_template_kwargs"] = to_text(variables);
  return member(thinking, "display") == "omitted";
}

// The field that constrains the answer; "" = none does. It begins without a thought then.
Result<std::string> add_format(const OrderedJson& body,
                               Json& request,
                               std::vector<std::string>& ignored) {
  const OrderedJson& newer = member(member(body, "output_config"), "format");
  const OrderedJson& older = member(body, "output_format");
  if (!newer.is_null() && !older.is_null())
    return invalid_value("output_config.format and output_format are both given; one of them may",
                         "output_format");
  auto constraint = older.is_null() ? read_format(newer, "output_config.format")
                                    : read_format(older, "output_format");
  if (!constraint.ok()) return constraint.error();
  const OrderedJson& thinking = member(member(body, "thinking"), "type");
  if (*constraint && !thinking.is_null() && thinking != "disabled") ignored.push_back("thinking");
  return use_constraint(std::move(*constraint), request);
}

}  // namespace

std::span<const BodyField> message_fields() {
  static const std::vector<BodyField> fields =
      joined_fields(joined_fields(kPromptFields, kAnswerFields), kForeignConstraints);
  return fields;
}

std::span<const BodyField> count_fields() {
  static const std::vector<BodyField> fields = joined_fields(count_table(), kForeignConstraints);
  return fields;
}

Result<AnthropicAsk> read_messages(const OrderedJson& in_order, bool strict) {
  const Json body(in_order);
  auto sorted = sort_fields(body, message_fields(), strict);
  if (!sorted.ok()) return sorted.error();
  AnthropicAsk ask;
  ask.ignored = std::move(sorted->ignored);
  Json request = std::move(sorted->request);
  if (!request.contains("max_tokens"))
    return Error{ErrorCode::kInvalidRequest, "max_tokens is required", "max_tokens"};
  const auto max_tokens = number(body, "max_tokens", kAnswerTokens, 1);
  if (!max_tokens.ok()) return max_tokens.error();
  const auto stream = flag(body, "stream");
  if (!stream.ok()) return stream.error();
  ask.generation.stream = *stream;
  if (const auto done = read_speculation(body, request); !done.ok()) return done.error();
  if (const auto done = add_messages(in_order, request); !done.ok()) return done.error();
  auto rules = add_tools(in_order, request, ask.ignored);
  if (!rules.ok()) return rules.error();
  ask.rules = std::move(*rules);
  const auto hides = add_variables(in_order, request, ask.ignored);
  if (!hides.ok()) return hides.error();
  ask.hides_thoughts = *hides;
  auto format = add_format(in_order, request, ask.ignored);
  if (!format.ok()) return format.error();
  ask.generation.constraint_field = std::move(*format);
  auto whole = router_request(request, message_fields());
  if (!whole.ok()) return whole.error();
  ask.model = whole->model;
  // Clients name the most that any model of Anthropic writes.
  whole->fit_max_tokens = true;
  ask.max_tokens = whole->params.max_tokens;
  ask.rules.key = answer_key(*whole);
  ask.generation.choices.push_back(std::move(*whole));
  return ask;
}

Result<TokensAsk> read_count(const OrderedJson& in_order, bool strict) {
  auto sorted = sort_fields(Json(in_order), count_fields(), strict);
  if (!sorted.ok()) return sorted.error();
  Json request = std::move(sorted->request);
  std::vector<std::string>& ignored = sorted->ignored;
  request["op"] = "tokenize";
  if (const auto done = add_messages(in_order, request); !done.ok()) return done.error();
  if (const auto rules = add_tools(in_order, request, ignored); !rules.ok()) return rules.error();
  if (const auto hides = add_variables(in_order, request, ignored); !hides.ok())
    return hides.error();
  if (const auto format = add_format(in_order, request, ignored); !format.ok())
    return format.error();
  auto whole = router_request(request, count_fields());
  if (!whole.ok()) return whole.error();
  return TokensAsk{std::move(*whole), std::move(ignored)};
}

}  // namespace foretoken::edge
