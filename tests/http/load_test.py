"""Many clients at once, and slow clients: thousands of streams in little memory, readers that do not read, headers that
never end. FORETOKEN_TEST_STREAMS: how many streams."""

import json
import os
import selectors
import signal
import socket
import sys
import threading
import unittest

from edge_system import EdgeSystem, gauge
from harness import wait_for

STREAMS = int(os.environ.get("FORETOKEN_TEST_STREAMS", "150"))
TOKENS = 300 + STREAMS // 4  # so that the first is not over before the last has begun
PROMPT = {"model": "tiny", "prompt": "the cat sat on the mat", "temperature": 0, "ignore_eos": True, "speculation": {"enabled": False}}
MOST_RESIDENT = 64 << 20
MOST_FOR_SLOW_ONES = 32 << 20
MOST_FOR_WHOLE_ONES = 96 << 20


def post(path, body):
    body = json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body


def text_of(stream):
    events = [json.loads(line[6:]) for line in stream.decode().split("\n") if line.startswith("data: {")]
    return "".join(event["choices"][0]["text"] for event in events)


class Load(unittest.TestCase):
    def start(self, *settings):
        system = EdgeSystem(settings).__enter__()
        self.addCleanup(lambda: system.__exit__(None, None, None))
        return system.start_all()

    def connect(self, system, bytes_, receive_buffer=None):
        connection = socket.socket()
        self.addCleanup(connection.close)
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.connect(("127.0.0.1", system.port))
        connection.sendall(bytes_)
        return connection

    def test_streams_in_little_memory(self):
        system = self.start(f"limits.max_running={STREAMS}", f"limits.max_waiting={STREAMS}", f"limits.max_batch_rows={2 * STREAMS}",
                            "kv_cache.memory=1GiB")
        truth = system.post("/v1/completions", {**PROMPT, "max_tokens": TOKENS})[1]["choices"][0]["text"]
        empty = system.rss("edge")
        request = post("/v1/completions", {**PROMPT, "stream": True, "max_tokens": TOKENS})
        # The target waits until all requests are there, so that none has ended when the last begins.
        target = system.processes["target"]
        target.send_signal(signal.SIGSTOP)
        try:
            streams = {self.connect(system, request): bytearray() for _ in range(STREAMS)}
            wait_for(lambda: (system.status() or {}).get("requests_active") == STREAMS, "all requests are there")
        finally:
            target.send_signal(signal.SIGCONT)
        selector = selectors.DefaultSelector()
        for connection in streams:
            connection.setblocking(False)
            selector.register(connection, selectors.EVENT_READ)
        open_ones, most_at_once, resident = set(streams), 0, 0
        while open_ones:
            events = selector.select(60)
            self.assertTrue(events, f"{len(open_ones)} streams stand still")
            for key, _ in events:
                data = key.fileobj.recv(4 << 10)  # a small part of a stream: each has begun here before one has ended
                received = streams[key.fileobj]
                received += data
                self.assertTrue(data, received[-300:])
                if received.endswith(b"0\r\n\r\n"):
                    selector.unregister(key.fileobj)
                    open_ones.discard(key.fileobj)
            begun = sum(1 for each in open_ones if streams[each])
            if begun > most_at_once:
                most_at_once, resident = begun, system.rss("edge")
        self.assertEqual(STREAMS, most_at_once, "not all were open at once")
        self.assertEqual({truth}, {text_of(received) for received in streams.values()})
        peak = system.peak_rss("edge")
        print(f"{STREAMS} streams at once: edge {empty >> 10} KiB before, {resident >> 10} with all open, peak {peak >> 10}")
        self.assertLess(peak, MOST_RESIDENT)

    def test_slow_clients_delay_only_themselves(self):
        system = self.start("limits.max_running=80")
        truth = system.post("/v1/completions", {**PROMPT, "max_tokens": 40})
        before = system.rss("edge")
        heavy = post("/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "the cat"}], "n": 8, "stream": True,
                                              "max_tokens": 1800, "ignore_eos": True, "logprobs": True, "top_logprobs": 20})
        slow = [self.connect(system, heavy, 4096) for _ in range(8)]
        whole = post("/v1/completions", {**PROMPT, "max_tokens": 4})
        halves = [self.connect(system, whole[:1 + i * (len(whole) - 1) // 100]) for i in range(100)]
        silent = [self.connect(system, b"") for _ in range(20)]
        most = before

        def all_ended():
            nonlocal most
            system.assert_alive()
            self.assertEqual(truth[1]["choices"], system.post("/v1/completions", {**PROMPT, "max_tokens": 40})[1]["choices"])
            most = max(most, system.rss("edge"))
            return system.n_connections() <= 1
        wait_for(all_ended, "the connections of the slow ones are closed", 120)
        wait_for(lambda: system.status()["requests_active"] == 0, "their requests have ended")
        for connection in halves + silent:
            self.assertEqual(b"", connection.recv(1000))
        for connection in slow:
            try:
                received = b""
                while data := connection.recv(1 << 18):
                    received += data
            except ConnectionResetError:
                pass
            self.assertNotIn(b"[DONE]", received)
        print(f"slow readers: edge {before >> 10} KiB before, at most {most >> 10}")
        self.assertLess(most - before, MOST_FOR_SLOW_ONES)

    # As it is kept, an answer with the likeliest tokens of a prompt of 1,900 takes 4 to 6 MiB.
    PROMPT_LOGPROBS = {**PROMPT, "prompt": [5, 6, 7, 8] * 475, "max_tokens": 1, "prompt_logprobs": 20}

    def held_bytes(self, system):
        return gauge(system.http("GET", "/metrics")[2], "http_body_bytes")

    def test_whole_answers_have_a_limit_together(self):
        system = self.start("edge.max_bodies_mib=16")
        self.assertEqual(2, len(system.post("/v1/completions", {**self.PROMPT_LOGPROBS, "n": 2})[1]["choices"]))
        before, answers = system.rss("edge"), []
        threads = [threading.Thread(target=lambda: answers.append(system.post("/v1/completions", {**self.PROMPT_LOGPROBS, "n": 8})))
                   for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"whole answers: edge {before >> 10} KiB before, peak {system.peak_rss('edge') >> 10}")
        self.assertLess(system.peak_rss("edge") - before, MOST_FOR_WHOLE_ONES)
        self.assertTrue({status for status, _ in answers} <= {400, 503}, answers)
        status, answer = system.post("/v1/completions", {**self.PROMPT_LOGPROBS, "n": 8})
        self.assertEqual((400, "invalid_value"), (status, answer["error"]["code"]))
        self.assertIn("more than 16 MiB", answer["error"]["message"])
        self.assertIn("edge.max_bodies_mib", answer["error"]["message"])
        wait_for(lambda: system.status()["requests_active"] == 0, "the other answers are cancelled")
        self.assertEqual(0, self.held_bytes(system))
        self.assertEqual(200, system.post("/v1/completions", {**PROMPT, "max_tokens": 4})[0])

    def test_an_answer_that_has_no_room_beside_others_may_come_again(self):
        system = self.start("edge.max_bodies_mib=6")
        holding = post("/v1/completions", {**PROMPT, "stream": True, "max_tokens": 2000, "user": "x" * 1_000_000})
        holders = [self.connect(system, holding) for _ in range(3)]
        for holder in holders:
            self.assertEqual(b"HTTP/1.1 200", holder.recv(12))
        status, headers, text = system.http("POST", "/v1/completions", self.PROMPT_LOGPROBS)
        self.assertEqual((503, "overloaded"), (status, json.loads(text)["error"]["code"]))
        self.assertGreaterEqual(int(headers["Retry-After"]), 1)
        self.assertEqual(1, gauge(system.http("GET", "/metrics")[2], "http_overloaded_total"))
        for holder in holders:
            holder.close()
        wait_for(lambda: self.held_bytes(system) == 0, "the bodies of the others are let go")
        self.assertEqual(200, system.http("POST", "/v1/completions", self.PROMPT_LOGPROBS)[0])

    def test_what_streams_say_of_prompts_has_a_limit_together(self):
        system = self.start("edge.max_bodies_mib=16")
        heavy = {**PROMPT, "prompt": [5, 6, 7, 8] * 475, "stream": True, "max_tokens": 8, "echo": True, "logprobs": 20}
        status, _, text = system.http("POST", "/v1/completions", {**heavy, "n": 2})
        self.assertEqual((200, True), (status, text.endswith("data: [DONE]\n\n")), text[-300:])
        before = system.rss("edge")
        slow = [self.connect(system, post("/v1/completions", {**heavy, "max_tokens": 100}), 4096) for _ in range(16)]
        self.assertIn(503, [int(connection.recv(12)[9:]) for connection in slow])
        print(f"slow readers of prompts: edge {before >> 10} KiB before, peak {system.peak_rss('edge') >> 10}")
        self.assertLess(system.peak_rss("edge") - before, MOST_FOR_WHOLE_ONES)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
