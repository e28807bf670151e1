"""HTTP without a library of any protocol: health, keys, origins, limits, clients that vanish, services that die."""

import hashlib
import json
import os
import socket
import sys
import threading
import time
import unittest

from edge_system import EdgeSystem, gauge
from harness import free_port, wait_for

PROMPT = {"model": "tiny", "prompt": "the cat sat on the mat", "temperature": 0}
STREAMS = int(os.environ.get("FORETOKEN_TEST_STREAMS", "64"))


def blocks_free(system):
    return sum(service["kv_blocks_free"] for service in system.status()["services"] if service["role"] == "target")


class Raw(unittest.TestCase):
    def setUp(self):
        self.system = None

    def start(self, *settings, **more):
        self.system = EdgeSystem(settings, **more).__enter__()
        self.addCleanup(lambda: self.system.__exit__(None, None, None))
        return self.system.start_all()

    def open_stream(self, **more):
        """A socket behind which a stream has begun."""
        body = json.dumps({**PROMPT, "stream": True, **more}).encode()
        connection = socket.create_connection(("127.0.0.1", self.system.port), timeout=60)
        self.addCleanup(connection.close)
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        return connection

    def test_before_the_models_are_there_health_says_loading(self):
        self.system = EdgeSystem().__enter__()
        self.addCleanup(lambda: self.system.__exit__(None, None, None))
        self.system.start("edge")
        wait_for(lambda: self.system.http("GET", "/live")[0] == 200, "the edge takes connections")
        status, headers, text = self.system.http("GET", "/health")
        self.assertEqual((503, "loading"), (status, json.loads(text)["status"]))
        self.assertIn("Retry-After", headers)
        self.system.start("router", "tokenizer", "draft", "target")
        wait_for(lambda: self.system.http("GET", "/health")[0] == 200, "the edge is healthy")

    def test_routes_methods_and_headers(self):
        system = self.start()
        status, headers, text = system.http("GET", "/nowhere")
        self.assertEqual((404, "invalid_request_error"), (status, json.loads(text)["error"]["type"]))
        self.assertTrue(headers["x-request-id"])
        self.assertEqual("mine-1", system.http("GET", "/live", headers={"X-Request-Id": "mine-1"})[1]["x-request-id"])
        self.assertEqual(405, system.http("GET", "/v1/completions")[0])
        self.assertEqual((200, ""), system.http("HEAD", "/health")[::2])
        self.assertEqual((200, ""), system.http("HEAD", "/api/hello")[::2])
        for path in ("/v1/models", "/models", "/v1/models/tiny"):
            self.assertEqual(200, system.http("GET", path)[0], path)
        self.assertIn("foretoken_requests_total", system.http("GET", "/metrics")[2])
        for body, code in (("{", "invalid_json"), ('{"a": 1, "a": 2}', "invalid_json"), ("[]", None), ("[" * 100, "invalid_json")):
            status, _, text = system.http("POST", "/v1/completions", body)
            self.assertEqual((400, code), (status, json.loads(text)["error"]["code"]), body)
        _, headers, _ = system.http("POST", "/v1/completions", {**PROMPT, "max_tokens": 1, "frobnicate": 1, "zap": 2})
        self.assertEqual("frobnicate, zap", headers["x-foretoken-ignored"])
        status, headers, _ = system.http("POST", "/v1/completions", {**PROMPT, "max_tokens": 1, "a\r\nx-injected: 1": 1, "é": 2})
        self.assertEqual((200, "a??x-injected: 1, ??"), (status, headers["x-foretoken-ignored"]))
        self.assertNotIn("x-injected", headers)
        status, headers, _ = system.http("POST", "/v1/completions", {**PROMPT, "max_tokens": 1, "a\r\nx-injected: 1": 1, "b" * 1100: 2})
        self.assertEqual((200, "a??x-injected: 1, ..."), (status, headers["x-foretoken-ignored"]))
        self.assertNotIn("x-injected", headers)
        many = {f"field{i:05}": 1 for i in range(500)}
        self.assertLess(len(system.http("POST", "/v1/completions", {**PROMPT, "max_tokens": 1, **many})[1]["x-foretoken-ignored"]), 1100)
        for body in ({f"field{i:05}": 1 for i in range(5000)}, {**PROMPT, "metadata": {f"{i}": 1 for i in range(50000)}}):
            status, answer = system.post("/v1/chat/completions", body)
            self.assertEqual(400, status)
            self.assertIn("an object of more than 512 keys", answer["error"]["message"])
        tokens = system.post("/tokenize", {"model": "tiny", "prompt": "the cat"})[1]
        self.assertEqual(tokens["count"], len(tokens["tokens"]))
        model = json.loads(system.http("GET", "/v1/models/tiny")[2])
        for said in ({"model": "tiny"}, {}):
            self.assertEqual(model["max_model_len"], system.post("/tokenize", {**said, "prompt": "the cat"})[1]["max_model_len"])
        self.assertIn("the cat", system.post("/detokenize", {"model": "tiny", "tokens": tokens["tokens"]})[1]["prompt"])

    def test_a_refusal_before_any_route_has_the_form_of_its_protocol(self):
        self.system = EdgeSystem().__enter__()
        self.addCleanup(lambda: self.system.__exit__(None, None, None))
        self.system.start("edge")
        wait_for(lambda: self.system.http("GET", "/live")[0] == 200, "the edge takes connections")
        too_large = {"Content-Length": str(2 << 20), "X-Request-Id": "mine-1", "Origin": "http://localhost:3000"}
        said = {}
        for path in ("/v1/messages", "/v2/models/tiny/generate", "/api/show", "/v1/completions"):
            status, headers, text = self.system.http("POST", path, headers=too_large)
            self.assertEqual((413, "mine-1"), (status, headers["x-request-id"]), path)
            self.assertEqual("http://localhost:3000", headers["Access-Control-Allow-Origin"], path)
            said[path] = json.loads(text)
        self.assertEqual(("error", "mine-1"), (said["/v1/messages"]["type"], said["/v1/messages"]["request_id"]))
        for path in ("/v2/models/tiny/generate", "/api/show"):
            self.assertEqual(["error"], list(said[path]), path)
            self.assertIsInstance(said[path]["error"], str, path)
        self.assertEqual("invalid_request_error", said["/v1/completions"]["error"]["type"])
        with socket.create_connection(("127.0.0.1", self.system.port), timeout=60) as connection:
            connection.sendall(b"nonsense\r\n\r\n")
            answer = b""
            while more := connection.recv(65536):
                answer += more
        self.assertTrue(answer.startswith(b"HTTP/1.1 400"), answer)
        self.assertIn(b"\r\nx-request-id: req-", answer)
        self.assertEqual("invalid_request_error", json.loads(answer.split(b"\r\n\r\n")[1])["error"]["type"])

    def refusal(self, head):
        """Status and sentence of what is answered to these bytes."""
        with socket.create_connection(("127.0.0.1", self.system.port), timeout=60) as connection:
            connection.sendall(head)
            answer = b""
            while more := connection.recv(65536):
                answer += more
        return int(answer.split(b" ", 2)[1]), json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["message"]

    def test_what_is_too_large_or_unread_is_told_with_its_limit(self):
        self.system = EdgeSystem(("edge.max_body_mib=2",)).__enter__()
        self.addCleanup(lambda: self.system.__exit__(None, None, None))
        self.system.start("edge")
        wait_for(lambda: self.system.http("GET", "/live")[0] == 200, "the edge takes connections")
        post = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        for head, status, words in (
                (post + b"Content-Length: 3000000\r\n\r\n", 413, ("2 MiB", "edge.max_body_mib")),
                (post + b"X: " + b"x" * 20000 + b"\r\n\r\n", 431, ("header", "16384 bytes")),
                (post + b"".join(b"X-%d: 1\r\n" % i for i in range(70)) + b"\r\n", 431, ("71 header fields", "64")),
                (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414, ("9001 bytes", "8192 bytes")),
                (post + b"Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", 415, ("Content-Encoding gzip",)),
                (b"GET /live HTTP/1.1\r\n\r\n", 400, ("0 Host headers", "needs one"))):
            with self.subTest(status=status, words=words):
                found = self.refusal(head)
                self.assertEqual(status, found[0], found)
                for word in words:
                    self.assertIn(word, found[1])

    def test_web_pages_of_this_machine_may_ask_and_others_not(self):
        system = self.start()
        _, headers, _ = system.http("OPTIONS", "/v1/completions", headers={
            "Origin": "http://localhost:3000", "Access-Control-Request-Headers": "authorization,x-stainless-os"})
        self.assertEqual("http://localhost:3000", headers["Access-Control-Allow-Origin"])
        self.assertEqual("authorization,x-stainless-os", headers["Access-Control-Allow-Headers"])
        for origin in ("http://localhost.example:3000", "http://localhost:3000.example", "https://example.org", "http://localhos"):
            self.assertNotIn("Access-Control-Allow-Origin", system.http("GET", "/health", headers={"Origin": origin})[1], origin)
        # A form that a browser sends without asking first.
        asked = {**PROMPT, "max_tokens": 1}
        for origin, status in (("https://example.org", 403), ("null", 403), ("http://[::1]:8000", 200), ("http://127.0.0.1", 200)):
            answer = system.http("POST", "/v1/completions", asked, {"Origin": origin, "Content-Type": "text/plain"})
            self.assertEqual(status, answer[0], (origin, answer))
        self.assertEqual("origin_not_allowed", json.loads(system.http("GET", "/v1/models", headers={"Origin": "null"})[2])["error"]["code"])

    def test_a_name_that_is_none_of_this_machine_is_refused(self):
        system = self.start()
        for path in ("/props", "/metrics", "/", "/health"):
            status, _, text = system.http("GET", path, headers={"Host": "evil.example:8000"})
            self.assertEqual((403, "host_not_allowed"), (status, json.loads(text)["error"]["code"]), path)
        self.assertEqual(200, system.http("GET", "/props", headers={"Host": f"localhost:{system.port}"})[0])

    def start_with_keys(self, *settings):
        self.system = EdgeSystem(settings).__enter__()
        self.addCleanup(lambda: self.system.__exit__(None, None, None))
        keys = os.path.join(self.system.folder, "keys")
        with open(keys, "w", encoding="utf-8") as file:
            file.write(f"alice {hashlib.sha256(b'secret').hexdigest()}\n")
        self.system.settings.append(f"edge.key_file={keys}")
        return self.system.start_all()

    def test_with_a_key_file_only_keys_open(self):
        system = self.start_with_keys()
        self.assertEqual(401, system.http("GET", "/v1/models")[0])
        for headers in ({"Authorization": "Bearer wrong"}, {"Authorization": "Bearer"}, {"x-api-key": ""}):
            self.assertEqual(401, system.http("GET", "/v1/models", headers=headers)[0])
        for headers in ({"Authorization": "Bearer secret"}, {"x-api-key": "secret"}):
            self.assertEqual(200, system.http("GET", "/v1/models", headers=headers)[0])
            self.assertEqual(200, system.http("POST", "/v1/completions", {**PROMPT, "max_tokens": 1}, headers)[0])
        self.assertEqual(200, system.http("GET", "/health")[0])

    def test_metrics_have_an_address_of_their_own_that_asks_for_no_key(self):
        port = free_port()
        system = self.start_with_keys(f"metrics.listen=127.0.0.1:{port}")
        self.assertEqual(401, system.http("GET", "/metrics")[0])
        status, headers, text = system.http("GET", "/metrics", port=port)
        self.assertEqual((200, True), (status, headers["Content-Type"].startswith("text/plain; version=0.0.4")))
        self.assertEqual(1, gauge(text, "peer_up", role="target"))
        self.assertEqual((200, ""), system.http("HEAD", "/metrics", port=port)[::2])
        for method, path, refused in (("POST", "/metrics", 405), ("GET", "/", 404), ("GET", "/v1/models", 404),
                                      ("POST", "/v1/completions", 404), ("GET", "/props", 404)):
            self.assertEqual(refused, system.http(method, path, port=port)[0], (method, path))
        self.assertEqual(403, system.http("GET", "/metrics", headers={"Host": "evil.example:8002"}, port=port)[0])

    def test_an_address_for_others_needs_keys(self):
        for setting in ("edge.host=0.0.0.0", f"metrics.listen=0.0.0.0:{free_port()}"):
            system = EdgeSystem((setting,)).__enter__()
            self.addCleanup(lambda system=system: system.__exit__(None, None, None))
            system.start("edge")
            self.assertEqual(78, system.processes.pop("edge").wait(60))
            with open(os.path.join(system.folder, "edge.log"), encoding="utf-8") as log:
                said = log.read()
            self.assertIn(setting.split("=")[0], said)
            self.assertIn("edge.key_file", said)

    def test_a_body_has_the_limits_of_the_configuration(self):
        system = self.start("edge.max_body_mib=2", "edge.max_bodies_mib=2", "edge.max_choices=2")
        status, answer = system.post("/v1/completions", {**PROMPT, "n": 3})
        self.assertEqual((400, "n"), (status, answer["error"]["param"]))
        self.assertIn("edge.max_choices", answer["error"]["message"])
        self.assertEqual(2, len(system.post("/v1/completions", {**PROMPT, "n": 2, "max_tokens": 1})[1]["choices"]))
        long = "the cat " * 90_000
        for prompt, refused in (([long, long], 400), (long * 2, 400), ([long] * 3, 413)):
            self.assertEqual(refused, system.post("/v1/completions", {**PROMPT, "prompt": prompt})[0])
        shared = {"prediction": {"type": "content", "content": "the cat " * 10_000}}
        self.assertEqual(200, system.post("/v1/completions", {**PROMPT, **shared, "max_tokens": 1})[0])
        status, answer = system.post("/v1/completions", {**PROMPT, **shared, "prompt": ["the cat"] * 128, "max_tokens": 1})
        self.assertEqual(400, status)
        self.assertIn("edge.max_bodies_mib", answer["error"]["message"])

    def test_without_the_page_a_line_says_that_it_runs(self):
        system = self.start("edge.web_ui=false")
        status, headers, text = system.http("GET", "/", headers={"Accept": "text/html"})
        self.assertEqual((200, "Foretoken is running"), (status, text))
        self.assertTrue(headers["Content-Type"].startswith("text/plain"))
        self.assertEqual((200, ""), system.http("HEAD", "/")[::2])

    def test_clients_that_vanish_leave_nothing_behind(self):
        system = self.start("limits.max_running=64", "limits.max_waiting=256")
        free = blocks_free(system)
        for _ in range(3):
            connections = [self.open_stream(max_tokens=400) for _ in range(16)]
            for connection in connections:
                connection.recv(100)
            for connection in connections:
                connection.close()
            wait_for(lambda: system.status()["requests_active"] == 0, "the requests of the gone clients end")
        wait_for(lambda: blocks_free(system) >= free - 16, "their blocks are free")  # but for what the prefix cache keeps
        self.assertEqual(200, system.post("/v1/completions", {**PROMPT, "max_tokens": 4})[0])

    def test_a_full_queue_says_when_to_come_back(self):
        system = self.start("limits.max_running=1", "limits.max_waiting=0")
        streams = [self.open_stream(max_tokens=1900, ignore_eos=True) for _ in range(6)]
        while all(stream.recv(12) != b"HTTP/1.1 429" for stream in streams[-6:]):
            streams += [self.open_stream(max_tokens=1900, ignore_eos=True) for _ in range(6)]
        status, headers, text = 200, {}, ""
        while status == 200:
            streams.append(self.open_stream(max_tokens=400))
            status, headers, text = system.http("POST", "/v1/completions", {**PROMPT, "max_tokens": 400})
        self.assertEqual((429, "rate_limit_exceeded"), (status, json.loads(text)["error"]["code"]))
        self.assertGreaterEqual(int(headers["Retry-After"]), 1)
        for stream in streams:
            stream.close()

    def test_services_die_in_the_middle_and_no_text_changes(self):
        system = self.start()
        truth = system.post("/v1/completions", {**PROMPT, "max_tokens": 200, "speculation": {"enabled": False}})[1]["choices"][0]["text"]
        for name in ("draft", "tokenizer", "router", "target"):
            answers = []

            def ask():
                answers.append(system.post("/v1/completions", {**PROMPT, "max_tokens": 200}))
            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            time.sleep(0.05)
            system.kill(name)
            system.start(name)
            for thread in threads:
                thread.join()
            self.assertEqual([200] * 4, [status for status, _ in answers], (name, answers))
            self.assertEqual({truth}, {answer["choices"][0]["text"] for _, answer in answers}, name)
            system.wait_ready()

    def test_many_streams_at_once_have_their_text(self):
        system = self.start("limits.max_running=32", "limits.max_waiting=4096")
        truth = system.post("/v1/completions", {**PROMPT, "max_tokens": 12})[1]["choices"][0]["text"]
        streams = [self.open_stream(max_tokens=12) for _ in range(STREAMS)]
        for stream in streams:
            text = b""
            while b"data: [DONE]" not in text:
                more = stream.recv(65536)
                self.assertTrue(more, text[-300:])
                text += more
            events = [json.loads(line[6:]) for line in text.decode().split("\n") if line.startswith("data: {")]
            self.assertEqual(truth, "".join(event["choices"][0]["text"] for event in events))
            stream.close()

    def test_a_drain_lets_streams_end_and_takes_no_new_ones(self):
        system = self.start()
        stream = self.open_stream(max_tokens=400)
        begun = stream.recv(100)
        self.assertIn(b"200 OK", begun)
        edge = system.processes["edge"]
        edge.terminate()
        text = begun
        while more := stream.recv(65536):
            text += more
        self.assertIn(b"data: [DONE]", text)
        self.assertEqual(0, system.processes.pop("edge").wait(60))
        self.assertEqual(0, system.http("GET", "/live")[0])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
