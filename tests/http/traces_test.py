"""Traces as a collector gets them: the edge's OTLP/HTTP JSON, parsed into OpenTelemetry's own protobuf messages, from a real HTTP server."""

import base64
import contextlib
import http.server
import json
import pathlib
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from edge_system import EdgeSystem, bin_folder, wait_for  # noqa: E402

bin_folder()
from google.protobuf.json_format import ParseDict  # noqa: E402
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: E402
from opentelemetry.proto.trace.v1.trace_pb2 import Span  # noqa: E402

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector:
    """Keeps what it is sent. `wait`: an event before which it answers nothing; `statuses`: of its first answers."""

    def __init__(self):
        self.posts, self.statuses, self.wait = [], [], None
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.posts.append((self.path, dict(self.headers), body))
                if collector.wait:
                    collector.wait.wait(60)
                self.send_response(collector.statuses.pop(0) if collector.statuses else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "2")
                self.end_headers()
                with contextlib.suppress(BrokenPipeError):  # the edge has given up
                    self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def parsed(body):
    """The message of OpenTelemetry. Its JSON has ids in hexadecimal where protobuf's own has base64; any unknown field is an error."""
    document = json.loads(body)

    def rewrite(value):
        if isinstance(value, dict):
            for key in ("traceId", "spanId", "parentSpanId"):
                if key in value:
                    value[key] = base64.b64encode(bytes.fromhex(value[key])).decode()
            for each in value.values():
                rewrite(each)
        elif isinstance(value, list):
            for each in value:
                rewrite(each)

    rewrite(document)
    return ParseDict(document, ExportTraceServiceRequest())


def plain(value):
    which = value.WhichOneof("value")
    return [plain(each) for each in value.array_value.values] if which == "array_value" else getattr(value, which)


def attributes(item):
    return {each.key: plain(each.value) for each in item.attributes}


class Traces(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.collector = Collector()
        cls.system = EdgeSystem().__enter__()
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": cls.collector.endpoint, "OTEL_SERVICE_NAME": "door",
                       "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test"}
        cls.system.start("router", "tokenizer", "draft", "target").start("edge", environment=environment)
        cls.system.wait_ready()
        wait_for(lambda: cls.system.http("GET", "/health")[0] == 200, "the edge is healthy")

    @classmethod
    def tearDownClass(cls):
        cls.system.assert_alive()
        cls.system.__exit__(None, None, None)
        cls.collector.close()

    def spans(self, trace):
        """{name: span} of a trace, once its request's span is there."""
        def look():
            found = [span for _, _, body in self.collector.posts for resource in parsed(body).resource_spans
                     for scope in resource.scope_spans for span in scope.spans if span.trace_id.hex() == trace]
            return found if any(span.kind == Span.SPAN_KIND_SERVER for span in found) else None
        return wait_for(look, f"trace {trace}")

    def ask(self, path, body, **headers):
        status, answered, text = self.system.http("POST", path, body, headers)
        return status, answered["traceparent"].split("-")[1], text

    def test_a_chat_is_one_tree_in_the_callers_trace(self):
        status, trace, text = self.ask("/v1/chat/completions", {
            "model": "tiny", "messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 40, "temperature": 0.5,
            "seed": 7, "top_p": 0.9, "speculation": {"proposer": "ngram"}, "stop": ["never such a thing"], "ignore_eos": True},
            traceparent=f"00-{TRACE}-{PARENT}-01", tracestate="vendor=1")
        self.assertEqual((200, TRACE), (status, trace))
        spans = self.spans(TRACE)
        by_name = {span.name: span for span in spans}
        self.assertEqual({"POST /v1/chat/completions", "chat tiny", "tokenize", "queue", "prefill", "decode"}, set(by_name))
        request, model = by_name["POST /v1/chat/completions"], by_name["chat tiny"]
        self.assertEqual((PARENT, Span.SPAN_KIND_SERVER, "vendor=1"), (request.parent_span_id.hex(), request.kind, request.trace_state))
        self.assertEqual((request.span_id, Span.SPAN_KIND_INTERNAL), (model.parent_span_id, model.kind))
        last = model.start_time_unix_nano
        for name in ("tokenize", "queue", "prefill", "decode"):
            part = by_name[name]
            self.assertEqual(model.span_id, part.parent_span_id)
            self.assertEqual(last, part.start_time_unix_nano, name)
            last = part.end_time_unix_nano
            self.assertGreaterEqual(last, part.start_time_unix_nano)
        self.assertLessEqual(last, model.end_time_unix_nano)
        self.assertLessEqual(model.end_time_unix_nano, request.end_time_unix_nano)
        self.assertLess(abs(request.end_time_unix_nano / 1e9 - time.time()), 3600)
        self.assertGreater(by_name["prefill"].end_time_unix_nano, by_name["prefill"].start_time_unix_nano)
        self.assertGreater(by_name["tokenize"].end_time_unix_nano, by_name["tokenize"].start_time_unix_nano)
        answer = json.loads(text)
        got = attributes(model)
        self.assertEqual({
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "foretoken", "gen_ai.request.model": "tiny",
            "gen_ai.request.max_tokens": 40, "gen_ai.request.temperature": 0.5, "gen_ai.request.top_p": 0.9, "gen_ai.request.seed": 7,
            "gen_ai.request.stop_sequences": ["never such a thing"], "gen_ai.response.model": "tiny",
            "gen_ai.response.finish_reasons": ["length"], "gen_ai.usage.input_tokens": answer["usage"]["prompt_tokens"],
            "gen_ai.usage.output_tokens": 40},
            {k: round(v, 6) if isinstance(v, float) else v for k, v in got.items()
             if not k.startswith("foretoken.") and k != "gen_ai.response.id"})
        spec = answer["metrics"]["speculative_decoding"]
        self.assertEqual([spec[k] for k in ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens", "proposer")],
                         [got[f"foretoken.spec.{k}"] for k in ("rounds", "drafted", "accepted", "proposer")])
        self.assertEqual(200, attributes(request)["http.response.status_code"])

    def test_the_collector_is_told_who_sends(self):
        self.ask("/v1/completions", {"prompt": "a", "max_tokens": 1})
        path, headers, body = wait_for(lambda: self.collector.posts, "spans")[0]
        self.assertEqual(("/v1/traces", "application/json"), (path, headers["Content-Type"]))
        resource = parsed(body).resource_spans[0]
        self.assertEqual({"service.name": "door", "deployment.environment.name": "test"}, attributes(resource.resource))
        self.assertIn("opentelemetry.io/schemas", resource.schema_url)

    def test_a_stream_has_events_as_its_tokens_arrived(self):
        _, trace, _ = self.ask("/v1/completions", {"prompt": "in the winter", "max_tokens": 200, "stream": True, "ignore_eos": True})
        by_name = {span.name: span for span in self.spans(trace)}
        decode = by_name["decode"]
        self.assertIn("text_completion", by_name)
        self.assertTrue(0 < len(decode.events) <= 32)
        times = [event.time_unix_nano for event in decode.events]
        self.assertEqual(sorted(times), times)
        self.assertTrue(all(event.name == "tokens" and attributes(event)["foretoken.tokens"] > 0 for event in decode.events))
        self.assertNotIn("gen_ai.input.messages", attributes(by_name["text_completion"]))

    def test_a_refused_request_is_one_span(self):
        status, trace, _ = self.ask("/v1/chat/completions", {"messages": "no"})
        (span,) = self.spans(trace)
        self.assertEqual((status, str(status)), (attributes(span)["http.response.status_code"], attributes(span)["error.type"]))

    def test_what_the_caller_does_not_sample_is_not_sent(self):
        status, headers, _ = self.system.http("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1},
                                              {"traceparent": f"00-{'1' * 32}-{PARENT}-00"})
        self.assertEqual(200, status)
        self.assertNotIn("traceparent", headers)

    def test_spans_are_counted(self):
        self.ask("/v1/completions", {"prompt": "a", "max_tokens": 1})
        def sent():
            lines = self.system.http("GET", "/metrics")[2].splitlines()
            return next(float(l.split()[-1]) for l in lines if l.startswith("foretoken_trace_spans_total") and 'outcome="sent"' in l) > 0
        wait_for(sent, "spans were sent")


class ABadCollector(unittest.TestCase):
    def answers(self, endpoint, n=40):
        """Requests of a system whose collector is that: all are answered. Returns the edge's counts of spans."""
        with EdgeSystem(settings=[f"edge.traces_endpoint={endpoint}"]) as system:
            system.start_all()
            for i in range(n):
                status, _, _ = system.http("POST", "/v1/completions", {"prompt": f"a {i}", "max_tokens": 2})
                self.assertEqual(200, status)
            self.assertEqual(0, system.kill("edge", 15), "it ends within its time")
            return None

    def test_that_cannot_be_reached_delays_no_request(self):
        self.answers("http://127.0.0.1:1")

    def test_that_never_answers_delays_no_request(self):
        collector = Collector()
        collector.wait = threading.Event()  # set only at the end: an answer that waited for it would never come
        try:
            self.answers(collector.endpoint)
        finally:
            collector.wait.set()
            collector.close()

    def test_that_is_no_address_is_refused_by_name(self):
        with EdgeSystem(settings=["edge.traces_endpoint=https://collector"]) as system:
            system.start("router", "edge")
            self.assertEqual(78, wait_for(lambda: system.processes["edge"].poll(), "the edge has ended"))
            with open(f"{system.folder}/edge.log") as log:
                self.assertIn("edge.traces_endpoint", log.read())
            system.processes.pop("edge")


if __name__ == "__main__":
    unittest.main()
