"""A system with an edge, from the harness of the process tests."""

import http.client
import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/process"), str(ROOT / "tests/support")]

from harness import System, free_port, wait_for  # noqa: E402


class EdgeSystem(System):
    """Router, tokenizer, draft, target and edge; the tiny pair, or a folder as `target_model`."""

    def __init__(self, settings=(), **more):
        self.port = free_port()
        super().__init__(settings=(f"edge.port={self.port}", *settings), **more)
        self.base = f"http://127.0.0.1:{self.port}/v1"

    def start_all(self, *names):
        self.start(*(names or ("router", "tokenizer", "draft", "target", "edge")))
        self.wait_ready()
        wait_for(lambda: self.http("GET", "/health")[0] == 200, "the edge is healthy")
        return self

    def http(self, method, path, body=None, headers=None):
        """Status, headers and body of one request; (0, {}, "") where the edge takes no connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            payload = json.dumps(body) if isinstance(body, (dict, list)) else body
            connection.request(method, path, payload, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        except (ConnectionError, http.client.BadStatusLine):
            return 0, {}, ""
        finally:
            connection.close()

    def post(self, path, body, **headers):
        status, _, text = self.http("POST", path, body, headers)
        return status, json.loads(text)


def without_times(value):
    """What must be equal whatever guessed: all but ids, times and what guessing did."""
    if isinstance(value, dict):
        varying = ("id", "created", "metrics", "prompt_tokens_details", "completion_tokens_details")
        return {key: without_times(each) for key, each in value.items() if key not in varying}
    return [without_times(each) for each in value] if isinstance(value, list) else value


def bin_folder():
    os.environ.setdefault("FORETOKEN_BIN_DIR", str(ROOT / "build/release/bin"))
