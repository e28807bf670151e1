// Traces: headers in and out, samplers, what the environment says, the spans of a request, and
// their JSON. tests/http/traces_test.py has the whole way to a collector.
#include <gmock/gmock.h>

#include <set>

#include "common/base/json.h"
#include "services/edge/otlp.h"
#include "services/edge/request_trace.h"
#include "services/edge/trace_context.h"
#include "services/edge/tracer.h"
#include "tests/support/generated_page.h"

namespace foretoken::edge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(Traceparent, IsReadAndWritten) {
  const auto context = read_traceparent(kParent, "vendor=1");
  ASSERT_TRUE(context);
  EXPECT_EQ("0af7651916cd43dd8448eb211c80319c", hex_of(context->trace));
  EXPECT_EQ("b7ad6b7169203331", hex_of(context->span));
  EXPECT_TRUE(context->is_sampled);
  EXPECT_EQ("vendor=1", context->state);
  EXPECT_EQ(kParent, write_traceparent(*context));
  EXPECT_FALSE(
      read_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02", "")->is_sampled);
}

TEST(Traceparent, OfALaterVersionIsReadAsFarAsItIsKnown) {
  EXPECT_TRUE(read_traceparent("42" + std::string(kParent).substr(2) + "-more", ""));
}

TEST(Traceparent, OfAnythingElseIsNone) {
  const std::string good = kParent;
  for (const std::string& bad : std::vector<std::string>{
           std::string(), good.substr(1), good + "0", good + "-more", "ff" + good.substr(2),
           "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
           "00-00000000000000000000000000000000-b7ad6b7169203331-01",
           "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
           "00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01"})
    EXPECT_FALSE(read_traceparent(bad, "")) << bad;
  EXPECT_EQ("", read_traceparent(good, "a\nb")->state);
  EXPECT_EQ("", read_traceparent(good, std::string(513, 'a'))->state);
}

Sampler sampler(std::string_view name, std::string_view ratio = "") {
  return value_or_throw(Sampler::named(name, ratio));
}

TEST(Samplers, DecideByTheParentByTheTraceOrAlways) {
  TraceContext yes = *read_traceparent(kParent, ""), no = yes;
  no.is_sampled = false;
  const TraceId low{1, 1}, high{1, ~std::uint64_t{0}};
  EXPECT_TRUE(sampler("always_on").takes(low, no));
  EXPECT_FALSE(sampler("always_off").takes(low, yes));
  EXPECT_TRUE(sampler("parentbased_always_off").takes(low, yes));
  EXPECT_FALSE(sampler("parentbased_always_off").takes(low, {}));
  EXPECT_FALSE(sampler("parentbased_always_on").takes(low, no));
  EXPECT_TRUE(sampler("parentbased_always_on").takes(low, {}));
  EXPECT_TRUE(sampler("traceidratio", "0.5").takes(low, no));
  EXPECT_FALSE(sampler("traceidratio", "0.5").takes(high, yes));
  EXPECT_TRUE(sampler("parentbased_traceidratio", "0.5").takes(high, yes));
  EXPECT_FALSE(sampler("traceidratio", "0").takes({0, 0}, {}));
  EXPECT_TRUE(sampler("traceidratio").takes(high, {}));
}

TEST(Samplers, ARatioTakesItsShareOfTraces) {
  const Sampler quarter = sampler("traceidratio", "0.25");
  int n = 0;
  for (int i = 0; i < 4000; ++i) n += quarter.takes(new_trace_id(), {}) ? 1 : 0;
  // Six standard deviations of 4000 draws at 1/4.
  EXPECT_NEAR(1000, n, 165);
}

TEST(Samplers, AreRefusedByName) {
  EXPECT_THAT(Sampler::named("jaeger_remote", "").error().message, HasSubstr("jaeger_remote"));
  for (const char* ratio : {"1.5", "-0.1", "x", "nan", "0.5x"})
    EXPECT_THAT(Sampler::named("traceidratio", ratio).error().message, HasSubstr("from 0 to 1"))
        << ratio;
}

TEST(TracerOptions, ComeFromTheKeyOrTheEnvironment) {
  const auto of = [](const std::string& key,
                     const std::map<std::string, std::string>& environment) {
    const auto options = value_or_throw(tracer_options(key, environment));
    if (!options.collector) return std::string("none");
    return options.collector->host + " " + options.collector->port + " " +
           options.collector->target;
  };
  EXPECT_EQ("none", of("", {}));
  EXPECT_EQ("h 4318 /v1/traces", of("http://h:4318", {}));
  EXPECT_EQ("h 80 /base/v1/traces", of("", {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://h/base/"}}));
  EXPECT_EQ("::1 4318 /x", of("", {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://other:1"},
                                   {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://[::1]:4318/x"}}));
  EXPECT_EQ("none", of("none", {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://h"}}));
  EXPECT_EQ("none",
            of("", {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://h"}, {"OTEL_SDK_DISABLED", "true"}}));
  EXPECT_EQ("none", of("", {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://h"},
                            {"OTEL_TRACES_EXPORTER", "none"}}));
}

TEST(TracerOptions, SayHeadersResourceAndText) {
  const auto options = value_or_throw(
      tracer_options("http://h", {{"OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x, a=b"},
                                  {"OTEL_SERVICE_NAME", "door"},
                                  {"OTEL_RESOURCE_ATTRIBUTES", "service.name=other,host.name=n1"},
                                  {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true"}}));
  EXPECT_THAT(options.headers,
              ElementsAre(std::pair("Content-Type", "application/json"),
                          std::pair("authorization", "Bearer x"), std::pair("a", "b")));
  EXPECT_THAT(options.resource,
              ElementsAre(std::pair("host.name", "n1"), std::pair("service.name", "door")));
  EXPECT_TRUE(options.captures_text);
  const auto usual = value_or_throw(tracer_options("http://h", {}));
  EXPECT_THAT(usual.resource, ElementsAre(std::pair("service.name", "foretoken-edge")));
  EXPECT_FALSE(usual.captures_text);
}

TEST(TracerOptions, AreRefusedWithWhatSaysThem) {
  const auto why = [](const std::string& key,
                      const std::map<std::string, std::string>& environment) {
    const auto options = tracer_options(key, environment);
    return options.ok() ? "nothing" : options.error().message;
  };
  EXPECT_THAT(why("https://h", {}), HasSubstr("edge.traces_endpoint"));
  EXPECT_THAT(why("https://h", {}), HasSubstr("TLS"));
  for (const char* url : {"h:4318", "http://", "http://h:0", "http://h:99999", "http://h:x",
                          "http://[::1", "http://u@h", "http://h h", "ftp://h"})
    EXPECT_THAT(why(url, {}), HasSubstr("http://HOST")) << url;
  EXPECT_THAT(why("http://h", {{"OTEL_TRACES_SAMPLER", "x"}}), HasSubstr("OTEL_TRACES_SAMPLER"));
  EXPECT_THAT(why("http://h", {{"OTEL_EXPORTER_OTLP_HEADERS", "novalue"}}), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(why("", {{"OTEL_EXPORTER_OTLP_ENDPOINT", "grpc://h"}}),
              HasSubstr("OTEL_EXPORTER_OTLP_ENDPOINT"));
}

// ---- the spans of a request

struct Traced {
  explicit Traced(bool captures_text = false, std::size_t n_choices = 1) {
    http.method = "POST";
    http.path = "/chat/completions";
    http.headers = {{"User-Agent", "test"}};
    http.id = "r-1";
    trace.emplace(http, *read_traceparent(kParent, "v=1"), SpanId{7}, captures_text,
                  [this](std::vector<Span> all) { spans = std::move(all); });
    Generation generation;
    generation.choices.resize(n_choices);
    for (auto& choice : generation.choices) {
      choice.model = "demo";
      choice.prompt_kind = wire::PromptKind::kMessages;
      choice.messages = {{"user", "hello"}};
      choice.params.temperature = 0.5f;
      choice.given = {"temperature", "messages", "model"};
    }
    trace->ask(generation);
  }
  static wire::ClientReply reply() {
    wire::ClientReply reply{.id = "abc", .model = "demo", .text = "there", .finish_reason = "stop"};
    reply.usage = {.prompt_tokens = 3, .completion_tokens = 9, .total_tokens = 12};
    reply.metrics.tokenize_time_ms = 1e-5;  // 10 ns, so that all parts end within the answer
    reply.metrics.queue_time_ms = 2e-5;
    reply.metrics.time_to_first_token_ms = 7e-5;
    reply.metrics.generation_time_ms = 4e-5;
    reply.metrics.speculative_decoding.num_draft_tokens = 8;
    reply.metrics.speculative_decoding.num_accepted_draft_tokens = 6;
    reply.metrics.speculative_decoding.num_spec_steps = 2;
    reply.metrics.speculative_decoding.proposer = "draft";
    return reply;
  }
  const Span& named(const std::string& name) const {
    for (const Span& span : spans)
      if (span.name == name) return span;
    ADD_FAILURE() << "no span " << name;
    return spans.front();
  }
  static std::string attribute(const Span& span, TraceKey key) {
    for (const auto& [k, value] : span.attributes) {
      if (k != key) continue;
      if (const auto* text = std::get_if<std::string>(&value)) return *text;
      if (const auto* n = std::get_if<std::int64_t>(&value)) return std::to_string(*n);
      if (const auto* x = std::get_if<double>(&value)) return std::to_string(*x);
      return "a list";
    }
    return "none";
  }

  HttpRequest http;
  std::optional<RequestTrace> trace;
  std::vector<Span> spans;
};

TEST(RequestTraces, AnAnswerHasItsPartsEndToEnd) {
  Traced traced;
  traced.trace->on_answer(0, Traced::reply());
  traced.trace->end(200, false);
  const Span& request = traced.named("POST /v1/chat/completions");
  const Span& model = traced.named("chat demo");
  const Span& decode = traced.named("decode");
  EXPECT_EQ(7u, request.parent);
  EXPECT_TRUE(request.has_remote_parent);
  EXPECT_EQ(SpanKind::kServer, request.kind);
  EXPECT_EQ(request.context.span, model.parent);
  EXPECT_EQ(model.context.span, decode.parent);
  const std::int64_t t0 = model.begin_ns;
  EXPECT_GE(t0, request.begin_ns);
  EXPECT_LE(model.end_ns, request.end_ns);
  const auto part = [&](const char* name) {
    const Span& span = traced.named(name);
    return std::pair(span.begin_ns - t0, span.end_ns - t0);
  };
  EXPECT_EQ(std::pair(std::int64_t{0}, std::int64_t{10}), part("tokenize"));
  EXPECT_EQ(std::pair(std::int64_t{10}, std::int64_t{30}), part("queue"));
  EXPECT_EQ(std::pair(std::int64_t{30}, std::int64_t{70}), part("prefill"));
  EXPECT_EQ(std::pair(std::int64_t{70}, std::int64_t{110}), part("decode"));
  for (const Span& span : traced.spans) {
    EXPECT_EQ(request.context.trace, span.context.trace);
    EXPECT_EQ("v=1", span.context.state);
    EXPECT_FALSE(span.has_failed);
  }
  EXPECT_EQ("200", Traced::attribute(request, TraceKey::kHttpStatus));
  EXPECT_EQ("9", Traced::attribute(model, TraceKey::kOutputTokens));
  EXPECT_EQ("0.500000", Traced::attribute(model, TraceKey::kTemperature));
  EXPECT_EQ("none", Traced::attribute(model, TraceKey::kTopP)) << "not given";
  EXPECT_EQ("draft", Traced::attribute(model, TraceKey::kProposer));
  EXPECT_EQ("none", Traced::attribute(model, TraceKey::kInputMessages)) << "text only on request";
}

TEST(RequestTraces, PartsNeverEndAfterTheAnswer) {
  Traced traced;
  auto reply = Traced::reply();
  reply.metrics.time_to_first_token_ms = reply.metrics.generation_time_ms = 1e6;
  traced.trace->on_answer(0, reply);
  traced.trace->end(200, false);
  const Span& model = traced.named("chat demo");
  for (const char* name : {"tokenize", "queue", "prefill", "decode"}) {
    EXPECT_LE(traced.named(name).end_ns, model.end_ns) << name;
    EXPECT_LE(traced.named(name).begin_ns, traced.named(name).end_ns) << name;
  }
}

TEST(RequestTraces, TextIsThereOnlyIfItIsAskedFor) {
  Traced traced(/*captures_text=*/true);
  traced.trace->on_answer(0, wire::ClientPiece{.text = "he said "});
  traced.trace->on_answer(0, Traced::reply());
  traced.trace->end(200, false);
  const Span& model = traced.named("chat demo");
  EXPECT_EQ(R"([{"role":"user","parts":[{"type":"text","content":"hello"}]}])",
            Traced::attribute(model, TraceKey::kInputMessages));
  EXPECT_EQ(R"([{"role":"assistant","parts":[{"type":"text","content":"he said there"}]}])",
            Traced::attribute(model, TraceKey::kOutputMessages));
}

TEST(RequestTraces, AStreamHasAtMostThirtyTwoEventsEvenlyTaken) {
  for (const int n : {5, 32, 33, 1000}) {
    Traced traced;
    for (int i = 0; i < n; ++i)
      traced.trace->on_answer(0, wire::ClientPiece{.token_ids = std::vector<TokenId>(1),
                                                   .accepted = static_cast<std::uint32_t>(i)});
    traced.trace->on_answer(0, Traced::reply());
    traced.trace->end(200, false);
    const auto& events = traced.named("decode").events;
    ASSERT_GE(events.size(), std::min<std::size_t>(static_cast<std::size_t>(n), 16)) << n;
    ASSERT_LE(events.size(), 32u) << n;
    const auto index = [&](std::size_t i) {
      return std::get<std::int64_t>(events[i].attributes.at(1).value);
    };
    for (std::size_t i = 2; i < events.size(); ++i)
      ASSERT_EQ(index(1) - index(0), index(i) - index(i - 1)) << n << " " << i;
  }
}

TEST(RequestTraces, EachChoiceHasItsSpan) {
  Traced traced(false, 2);
  traced.trace->on_answer(1, Traced::reply());
  traced.trace->on_answer(0, Traced::reply());
  traced.trace->end(200, false);
  EXPECT_EQ(1 + 2 + 8, static_cast<int>(traced.spans.size()));
  EXPECT_EQ("1", Traced::attribute(traced.spans[2], TraceKey::kChoice));
  EXPECT_EQ("2", Traced::attribute(traced.spans[2], TraceKey::kChoiceCount));
}

TEST(RequestTraces, AnErrorFailsTheModelAndTheServersOwnTheRequest) {
  wire::ClientError error;
  error.error = {.code = "model_not_found", .message = "no such model"};
  for (const unsigned status : {404u, 503u}) {
    Traced traced;
    traced.trace->on_answer(0, error);
    traced.trace->end(status, false);
    const Span& request = traced.named("POST /v1/chat/completions");
    EXPECT_EQ(std::to_string(status), Traced::attribute(request, TraceKey::kErrorType));
    EXPECT_EQ(status >= 500, request.has_failed);
    EXPECT_TRUE(traced.named("chat demo").has_failed);
    EXPECT_EQ("model_not_found",
              Traced::attribute(traced.named("chat demo"), TraceKey::kErrorType));
  }
}

TEST(RequestTraces, AClientThatLeavesEndsAllSpans) {
  Traced traced;
  traced.trace->on_answer(0, wire::ClientPiece{});
  traced.trace->end(200, true);
  for (const char* name : {"POST /v1/chat/completions", "chat demo"}) {
    EXPECT_EQ("abandoned", Traced::attribute(traced.named(name), TraceKey::kErrorType));
    EXPECT_GE(traced.named(name).end_ns, traced.named(name).begin_ns);
  }
}

TEST(RequestTraces, ARouteHasNoModelInItsName) {
  HttpRequest http{.method = "POST", .path = "/v2/models/demo/generate_stream"};
  std::vector<Span> spans;
  RequestTrace trace(http, *read_traceparent(kParent, ""), 0, false,
                     [&](std::vector<Span> all) { spans = std::move(all); });
  trace.end(400, false);
  ASSERT_EQ(1u, spans.size());
  EXPECT_EQ("POST /v2/models/{model}/generate_stream", spans[0].name);
  EXPECT_FALSE(spans[0].has_remote_parent);
}

TEST(Tracers, RecordWhatTheSamplerTakes) {
  TracerOptions options;
  options.sampler = sampler("parentbased_always_off");
  const Tracer tracer(options, [](const std::vector<Span>&) {});
  HttpRequest http{.method = "POST", .path = "/v1/completions"};
  EXPECT_EQ(nullptr, tracer.begin(http));
  http.headers = {{"traceparent", kParent}, {"tracestate", "a=b"}};
  const auto trace = tracer.begin(http);
  ASSERT_NE(nullptr, trace);
  EXPECT_EQ("0af7651916cd43dd8448eb211c80319c", hex_of(trace->context().trace));
  EXPECT_NE("b7ad6b7169203331", hex_of(trace->context().span)) << "a span of its own";
  EXPECT_EQ("a=b", trace->context().state);
}

// ---- JSON

TEST(Otlp, SpellsIdsNumbersAndKindsAsCollectorsTakeThem) {
  Span span{.context = *read_traceparent(kParent, "v=1"),
            .parent = 7,
            .has_remote_parent = true,
            .name = "a \"name\"",
            .kind = SpanKind::kServer,
            .begin_ns = 1'700'000'000'000'000'001,
            .end_ns = 1'700'000'000'000'000'002};
  span.attributes = {{TraceKey::kInputTokens, std::int64_t{5}},
                     {TraceKey::kTemperature, 0.5},
                     {TraceKey::kFinishReasons, std::vector<std::string>{"stop"}}};
  span.events.push_back(
      {.name = "tokens", .at_ns = 3, .attributes = {{TraceKey::kTokens, std::int64_t{2}}}});
  span.has_failed = true;
  span.failure = "why";
  const auto json = parse_json(otlp_json(std::vector{span}, {{"service.name", "edge"}}, "1.2"));
  ASSERT_TRUE(json.ok());
  const Json& process = (*json)["resourceSpans"][0];
  EXPECT_EQ(Json::parse(R"([{"key": "service.name", "value": {"stringValue": "edge"}}])"),
            process["resource"]["attributes"]);
  EXPECT_EQ(kTraceSchema, process["schemaUrl"].get<std::string>());
  EXPECT_EQ(Json::parse(R"({
    "traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331",
    "parentSpanId": "0000000000000007", "traceState": "v=1", "flags": 769,
    "name": "a \"name\"", "kind": 2,
    "startTimeUnixNano": "1700000000000000001", "endTimeUnixNano": "1700000000000000002",
    "attributes": [
      {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "5"}},
      {"key": "gen_ai.request.temperature", "value": {"doubleValue": 0.5}},
      {"key": "gen_ai.response.finish_reasons",
       "value": {"arrayValue": {"values": [{"stringValue": "stop"}]}}}],
    "events": [{"timeUnixNano": "3", "name": "tokens",
                "attributes": [{"key": "foretoken.tokens", "value": {"intValue": "2"}}]}],
    "status": {"code": 2, "message": "why"}})"),
            process["scopeSpans"][0]["spans"][0]);
}

TEST(TraceNames, AreOneEachAndOnThePage) {
  std::set<std::string_view> names;
  for (const TraceName& each : trace_names())
    EXPECT_TRUE(names.insert(each.name).second) << each.name;
  EXPECT_EQ("foretoken.tokens", trace_name(TraceKey::kTokens).name);
  EXPECT_EQ("http.request.method", trace_name(TraceKey::kHttpMethod).name);
}

TEST(TraceNames, ThePageIsTheOneInDocs) {
  test::expect_page("docs/reference/traces.md", traces_document());
}

}  // namespace
}  // namespace foretoken::edge
