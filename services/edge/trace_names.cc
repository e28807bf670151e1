#include "services/edge/trace_names.h"

#include <cstddef>

namespace foretoken::edge {
namespace {

constexpr std::string_view kOfRequest = "request";
constexpr std::string_view kOfModel = "model";
constexpr std::string_view kOfBoth = "request, model";

// In the order of TraceKey.
constexpr TraceName kNames[] = {
    {"http.request.method", kOfRequest, "POST"},
    {"http.route", kOfRequest, "the endpoint: /v1/chat/completions"},
    {"url.path", kOfRequest, "the path as it was asked for"},
    {"url.scheme", kOfRequest, "http"},
    {"http.response.status_code", kOfRequest,
     "of the reply; absent if the client went away before"},
    {"user_agent.original", kOfRequest, "what the client calls itself"},
    {"foretoken.request_id", kOfRequest, "x-request-id of the reply"},
    {"error.type", kOfBoth, "the status of an error, its code, or abandoned: the client went away"},
    {"gen_ai.operation.name", kOfModel, "chat or text_completion"},
    {"gen_ai.provider.name", kOfModel, "foretoken"},
    {"gen_ai.request.model", kOfModel, "as asked for; absent if the request names none"},
    {"gen_ai.request.max_tokens", kOfModel, "if the request says; so the next ones"},
    {"gen_ai.request.temperature", kOfModel, ""},
    {"gen_ai.request.top_p", kOfModel, ""},
    {"gen_ai.request.top_k", kOfModel, ""},
    {"gen_ai.request.seed", kOfModel, ""},
    {"gen_ai.request.choice.count", kOfModel, "answers that were asked for, if several"},
    {"gen_ai.request.stop_sequences", kOfModel, ""},
    {"gen_ai.request.frequency_penalty", kOfModel, ""},
    {"gen_ai.request.presence_penalty", kOfModel, ""},
    {"gen_ai.response.id", kOfModel, "the request id at the router"},
    {"gen_ai.response.model", kOfModel, "the model that answered"},
    {"gen_ai.response.finish_reasons", kOfModel, "stop, length, cancelled or deadline"},
    {"gen_ai.usage.input_tokens", kOfModel, "tokens of the prompt"},
    {"gen_ai.usage.output_tokens", kOfModel, "tokens of the answer"},
    {"gen_ai.input.messages", kOfModel,
     "the prompt; only with OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true"},
    {"gen_ai.output.messages", kOfModel, "the answer; likewise"},
    {"foretoken.choice", kOfModel, "which of several answers, from 0"},
    {"foretoken.usage.cached_tokens", kOfModel, "prompt tokens found in the prefix cache"},
    {"foretoken.spec.drafted", kOfModel, "guesses verified"},
    {"foretoken.spec.accepted", "model, tokens", "guesses that were delivered"},
    {"foretoken.spec.rounds", kOfModel, "rounds that verified guesses"},
    {"foretoken.spec.proposer", kOfModel, "who guessed: draft, ngram, prediction, memory or none"},
    {"foretoken.tokens", "tokens", "tokens that arrived together"},
};
static_assert(std::size(kNames) == static_cast<std::size_t>(TraceKey::kTokens) + 1);

}  // namespace

const TraceName& trace_name(TraceKey key) { return kNames[static_cast<std::size_t>(key)]; }

std::span<const TraceName> trace_names() { return kNames; }

std::string traces_document() {
  std::string page =
      "<!-- Generated from services/edge/trace_names.cc; a test compares. Rewrite with "
      "FORETOKEN_UPDATE_GOLDEN=1. -->\n"
      "# Traces\n\n"
      "What the edge sends to a collector of OpenTelemetry, over HTTP as JSON "
      "([how to turn it on](../operations.md#traces)). One request is one tree of spans:\n\n"
      "| span | kind | from | to |\n|---|---|---|---|\n"
      "| `POST /v1/chat/completions` | server | the request was read whole | its answer was "
      "written, or its client went away |\n"
      "| `chat demo`, `text_completion demo`, one for each choice | internal | the request left "
      "for the router | its last answer is here |\n"
      "| `tokenize` | internal | its arrival at the router, taken as the beginning of the span "
      "above | the prompt's tokens were at the router |\n"
      "| `queue` | internal | the end of `tokenize` | after the time that it waited for a place at "
      "a target: `queue_time_ms` of the answer |\n"
      "| `prefill` | internal | the end of `queue` | the first token was at the router |\n"
      "| `decode` | internal | the end of `prefill` | the last token: `generation_time_ms` of the "
      "answer |\n\n"
      "The last four are made from the times in the answer's `metrics`, which the router and the "
      "target measured; `prefill` is what they leave until the first token. `decode` of a streamed "
      "answer has events `tokens`, at most 32: pieces as "
      "they arrived, of many of them some at equal distances.\n\n"
      "Names follow " +
      std::string(kTraceSchema) +
      ", whose conventions for generative AI are in development.\n\n"
      "| attribute | on | says |\n|---|---|---|\n";
  for (const TraceName& each : kNames)
    page += "| `" + std::string(each.name) + "` | " + std::string(each.spans) + " | " +
            std::string(each.means) + " |\n";
  return page;
}

}  // namespace foretoken::edge
