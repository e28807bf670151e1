"""Errors when there is no room, no time or no service: OpenAI's own client raises the error class of its documentation and retries
after the time of retry-after."""

import json
import signal
import socket
import sys
import threading
import unittest

import openai

from edge_system import EdgeSystem, gauge
from harness import wait_for

LONG = {"model": "tiny", "prompt": "the cat sat", "max_tokens": 1900}
TO_THE_END = {"ignore_eos": True, "speculation": {"enabled": False}}


class Overload(unittest.TestCase):
    def start(self, *settings):
        system = EdgeSystem(settings).__enter__()
        self.addCleanup(lambda: system.__exit__(None, None, None))
        self.system = system.start_all()

    def client(self, retries):
        client = openai.OpenAI(base_url=self.system.base, api_key="any", max_retries=retries)
        self.addCleanup(client.close)
        return client

    def open_stream(self):
        body = json.dumps({**LONG, **TO_THE_END, "stream": True}).encode()
        connection = socket.create_connection(("127.0.0.1", self.system.port), timeout=60)
        self.addCleanup(connection.close)
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        wait_for(lambda: (self.system.status() or {}).get("requests_active") == 1, "the router has the request")
        return connection

    def n_refused(self):
        return gauge(self.system.http("GET", "/metrics")[2], "request_refused_total")

    def router_drains(self):
        return any(service["role"] == "router" and service["state"] == "draining" for service in (self.system.status() or {"services": []})["services"])

    def until_refused(self, **request):
        """Asks again and again, until it is refused: what fills the queue may end at any moment. The error."""
        client = self.client(0)
        for _ in range(1000):
            try:
                client.completions.create(model="tiny", prompt="the cat", max_tokens=1, **request)
            except openai.APIStatusError as error:
                return error
        self.fail("it was never refused")

    def test_a_full_queue_is_a_rate_limit_that_ends(self):
        self.start("limits.max_running=1", "limits.max_waiting=0")
        over = threading.Event()

        def fill():
            while not over.is_set():
                self.system.http("POST", "/v1/completions", {**LONG, **TO_THE_END})
        answers = []
        patient = self.client(20)  # retries until the queue has room
        threads = [threading.Thread(target=fill) for _ in range(3)]
        threads.append(threading.Thread(target=lambda: answers.append(
            patient.completions.create(model="tiny", prompt="the cat", max_tokens=2))))
        for thread in threads:
            thread.start()
        try:
            wait_for(lambda: self.n_refused() > 0, "a request is refused")
            error = self.until_refused()
        finally:
            over.set()
            for thread in threads:
                thread.join(120)
        self.assertIsInstance(error, openai.RateLimitError)
        self.assertEqual((429, "rate_limit_exceeded"), (error.status_code, error.code))
        self.assertGreaterEqual(int(error.response.headers["retry-after"]), 1)
        self.assertEqual(2, answers[0].usage.completion_tokens)

    def test_a_request_for_more_answers_than_there_is_room_for_is_answered(self):
        self.start("limits.max_running=2", "limits.max_waiting=2")
        prompts = [f"the cat {i}" for i in range(9)]
        client = self.client(0)
        ask = {"model": "tiny", "max_tokens": 3, "temperature": 0, "extra_body": {"ignore_eos": True}}
        texts = [client.completions.create(prompt=prompt, **ask).choices[0].text for prompt in prompts]
        answer = client.completions.create(prompt=prompts, n=2, **ask)
        self.assertEqual([text for text in texts for _ in range(2)], [choice.text for choice in answer.choices])
        streamed = [""] * len(prompts)
        for chunk in client.completions.create(prompt=prompts, stream=True, **ask):
            streamed[chunk.choices[0].index] += chunk.choices[0].text
        self.assertEqual(texts, streamed)

    def test_answers_that_a_request_has_are_not_lost_when_another_client_takes_its_place(self):
        self.start("limits.max_running=1", "limits.max_waiting=0")
        ask = {"model": "tiny", "prompt": "the cat", "max_tokens": 3, "temperature": 0, "extra_body": {"ignore_eos": True}}
        text = self.client(0).completions.create(**ask).choices[0].text
        over = threading.Event()

        def others():
            while not over.is_set():
                self.system.http("POST", "/v1/completions", {"model": "tiny", "prompt": "the", "max_tokens": 8})
        beside = threading.Thread(target=others)
        beside.start()
        try:
            for _ in range(100):  # until a place was taken meanwhile
                answer = self.client(1000).completions.create(n=8, **ask)  # the first of them may find no room; then none is lost
                self.assertEqual([text] * 8, [choice.text for choice in answer.choices])
                if self.n_refused() > 0:
                    break
            else:
                self.fail("no place was ever taken meanwhile")
        finally:
            over.set()
            beside.join(120)

    def test_all_answers_of_a_request_share_its_time(self):
        self.start("limits.request_timeout_s=2", "limits.max_running=2", "limits.max_waiting=2")
        with self.assertRaises(openai.InternalServerError) as caught:  # two million tokens
            self.client(0).completions.create(model="tiny", prompt=["the cat"] * 128, n=8, max_tokens=1900, extra_body=TO_THE_END)
        self.assertEqual((504, "deadline_exceeded"), (caught.exception.status_code, caught.exception.code))

    def test_one_that_runs_out_of_time_is_504_and_is_not_sent_again(self):
        self.start("limits.request_timeout_s=1")
        target = self.system.processes["target"]
        target.send_signal(signal.SIGSTOP)  # it is slower than any deadline
        self.addCleanup(target.send_signal, signal.SIGCONT)
        with self.assertRaises(openai.InternalServerError) as caught:
            self.client(5).completions.create(model="tiny", prompt="the cat", max_tokens=2)
        self.assertEqual((504, "deadline_exceeded"), (caught.exception.status_code, caught.exception.code))
        self.assertEqual("false", caught.exception.response.headers["x-should-retry"])

    def test_a_router_that_drains_is_503(self):
        self.start("bus.heartbeat_ms=2000", "limits.drain_s=600")  # neither the target nor the drain is given up, however slow this is
        router = self.system.processes["router"]
        with self.system.stopped("target"):  # before it has begun, so that the stream does not end
            holder = self.open_stream()
            router.terminate()
            wait_for(self.router_drains, "the router drains")
            with self.assertRaises(openai.APIStatusError) as caught:
                self.client(0).completions.create(model="tiny", prompt="the cat", max_tokens=1)
        self.assertEqual((503, "draining"), (caught.exception.status_code, caught.exception.code))
        self.assertIn("retry-after", caught.exception.response.headers)
        holder.close()
        self.assertEqual(0, self.system.processes.pop("router").wait(60))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
