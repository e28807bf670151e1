"""A system with an edge, from the harness of the process tests."""

import http.client
import json
import os
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/process"), str(ROOT / "tests/support")]

from harness import System, free_port, use_demo_pair, wait_for  # noqa: E402,F401


# Of the field `speculation`: the ways to guess that give one text.
SPECULATION = {"off": {"enabled": False}, "draft": {"proposer": "draft", "draft_len": 4, "adaptive": False},
               "ngram": {"proposer": "ngram", "draft_len": 4, "adaptive": False}}


class ClientTest(unittest.TestCase):
    """Tests with the official clients of OpenAI and Anthropic, on a system that the class starts."""

    @classmethod
    def serve(cls, system):
        import anthropic  # not each test that takes this file has them
        import openai
        cls.system = system.__enter__()
        cls.addClassCleanup(lambda: cls.system.__exit__(None, None, None))
        cls.system.start_all()
        cls.openai = openai.OpenAI(base_url=cls.system.base, api_key="any", max_retries=0)
        cls.anthropic = anthropic.Anthropic(base_url=cls.system.base.removesuffix("/v1"), api_key="any", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.openai.close()
        cls.anthropic.close()
        cls.system.assert_alive()


class EdgeSystem(System):
    """Router, tokenizer, draft, target and edge; the tiny pair, or a folder as `target_model`."""

    def __init__(self, settings=(), **more):
        self.port = free_port()
        super().__init__(settings=(f"edge.port={self.port}", *settings), **more)
        self.base = f"http://127.0.0.1:{self.port}/v1"

    def start_all(self, *names):
        names = names or ("router", "tokenizer", "draft", "target", "edge")
        self.start(*names)
        self.wait_ready(drafts=sum(name.startswith("draft") for name in names))
        wait_for(lambda: self.http("GET", "/health")[0] == 200, "the edge is healthy")
        return self

    def http(self, method, path, body=None, headers=None, port=None):
        """Status, headers and body of one request; (0, {}, "") where the edge takes no connection."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=120)
        try:
            payload = json.dumps(body) if isinstance(body, (dict, list)) else body
            connection.request(method, path, payload, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        except (ConnectionError, http.client.BadStatusLine):
            return 0, {}, ""
        finally:
            connection.close()

    def n_descriptors(self, name):
        return len(os.listdir(f"/proc/{self.processes[name].pid}/fd"))

    def peak_rss(self, name):
        with open(f"/proc/{self.processes[name].pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

    def n_connections(self):
        """HTTP connections, the one of this question among them."""
        return int(gauge(self.http("GET", "/metrics")[2], "http_connections"))

    def n_drafted(self):
        """Guesses that the target has verified, as its heartbeats say."""
        return self.services("target")[0]["drafted_total"]

    def post(self, path, body, **headers):
        status, _, text = self.http("POST", path, body, headers)
        return status, json.loads(text)


def gauge(text, name, **labels):
    """The sum of one metric's samples with these labels."""
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
               if re.match(rf"foretoken_{name}[ {{]", line) and all(each in line for each in wanted))


def used_blocks(system):
    """KV blocks that requests hold at the targets, as of now; those of the prefix cache do not count."""
    return gauge(system.http("GET", "/metrics")[2], "kv_cache_blocks", state="used")


def without_times(value):
    """What must be equal whatever guessed: all but ids, times and what guessing did."""
    if isinstance(value, dict):
        varying = ("id", "created", "created_at", "completed_at", "metrics", "prompt_tokens_details", "completion_tokens_details",
                   "input_tokens_details")
        return {key: without_times(each) for key, each in value.items() if key not in varying}
    return [without_times(each) for each in value] if isinstance(value, list) else value


def bin_folder():
    os.environ.setdefault("FORETOKEN_BIN_DIR", str(ROOT / "build/release/bin"))
