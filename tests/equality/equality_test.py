"""Speculation changes speed, never text: the demo pair through real services, every proposer against plain decoding.

For every prompt, greedy and at temperature 0.8 with top-p 0.95 and a seed, and for every fifth one under a JSON Schema too: proposers draft, n-gram, prediction and none,
K of 1, 4 and 8, 1 and 8 requests at a time, prefill chunks of 16 and of up to 512 as passes of 2 ms allow (two runs of the
services). All token ids and texts of a prompt must be equal.

usage: equality_test.py FOLDER_WITH_PROGRAMS [--prompts N] [--max-tokens N]
"""

import argparse
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import msgpack
import zmq

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
from ports import free_port  # noqa: E402

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "count": {"type": "integer", "minimum": 0, "maximum": 99},
                   "kind": {"enum": ["dog", "cat", "bird"]}},
    "required": ["name", "count", "kind"],
    "additionalProperties": False,
}
SETTINGS = {"greedy": {"temperature": 0.0}, "seeded": {"temperature": 0.8, "top_p": 0.95},
            "schema": {"temperature": 0.8, "json_schema": json.dumps(SCHEMA), "max_tokens": 64}}  # room for a whole value
EACH_UNDER_SCHEMA = 5  # one of so many prompts
PROPOSERS = ("draft", "ngram", "prediction", "none")
LENGTHS = (1, 4, 8)
BATCHES = (1, 8)
CHUNKS = ((16, 0), (512, 2))  # most rows, and most milliseconds of a pass with prompts (0: no bound)
ANSWER_TIMEOUT_S = 120


class Services:
    """`foretoken up` with its own port and folder."""

    def __init__(self, programs, *settings):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-equality-"))
        self.endpoint = f"tcp://127.0.0.1:{free_port()}"
        self.command = str(pathlib.Path(programs) / "foretoken")
        self.settings = []
        for setting in ("edge.port=0", f"bus.client={self.endpoint}", f"bus.runtime_dir={self.folder}", *settings):
            self.settings += ["--set", setting]

    def __enter__(self):
        subprocess.run([self.command, "up", "--detach", "--quiet", *self.settings], check=True, timeout=120)
        return self

    def __exit__(self, *error):
        subprocess.run([self.command, "down", "--quiet", *self.settings], check=True, timeout=120)
        shutil.rmtree(self.folder, ignore_errors=True)


def run_all(socket_, requests, at_once):
    """Sends maps, at most `at_once` under way; returns replies by key."""
    waiting, replies, pending = {}, {}, collections.deque(requests)
    while pending or waiting:
        while pending and len(waiting) < at_once:
            key, request = pending.popleft()
            request_id = os.urandom(16)
            waiting[request_id.hex()] = key
            socket_.send(msgpack.packb({**request, "request_id": request_id}))
        if not socket_.poll(1000 * ANSWER_TIMEOUT_S):
            raise AssertionError(f"no answer within {ANSWER_TIMEOUT_S} s; waiting for {list(waiting.values())[:3]}")
        reply = msgpack.unpackb(socket_.recv_multipart()[-1])
        key = waiting.pop(reply["id"])
        if "error" in reply:
            raise AssertionError(f"{key}: {reply['error']}")
        replies[key] = reply
    return replies


def base_request(prompt, setting, index, max_tokens):
    messages = prompt.get("messages") or [{"role": "user", "content": prompt["prompt"]}]
    return {"messages": messages, "max_tokens": max_tokens, "seed": 1000 + index, **SETTINGS[setting]}


def settings_of(index):
    return [s for s in SETTINGS if s != "schema" or index % EACH_UNDER_SCHEMA == 0]


def breaks_schema(reply):
    """An answer that its grammar or an end token ended is a whole value."""
    if reply["finish_reason"] != "stop":
        return False
    value = json.loads(reply["text"])
    return (list(value) != SCHEMA["required"] or len(value["name"]) > 6 or not 0 <= value["count"] <= 99
            or value["kind"] not in SCHEMA["properties"]["kind"]["enum"])


def variants():
    for proposer in PROPOSERS:
        for length in LENGTHS if proposer != "none" else LENGTHS[-1:]:
            for batch in BATCHES:
                yield proposer, length, batch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--max-tokens", type=int, default=24)
    arguments = parser.parse_args()
    prompts = json.loads((ROOT / "models/prompts.json").read_text(encoding="utf-8"))
    # Spread over the kinds, which stand one after another in the file.
    prompts = prompts[:: max(1, len(prompts) // arguments.prompts)][: arguments.prompts]
    assert len(prompts) == arguments.prompts, f"only {len(prompts)} prompts"

    expected, differing, compared = {}, [], 0
    totals = collections.defaultdict(lambda: [0, 0])  # proposer -> drafted, accepted
    begun = time.monotonic()
    for chunk, step_ms in CHUNKS:
        with Services(arguments.programs, f"limits.prefill_chunk={chunk}", f"limits.max_step_ms={step_ms}") as services:
            dealer = zmq.Context.instance().socket(zmq.DEALER)
            dealer.setsockopt(zmq.LINGER, 0)
            dealer.connect(services.endpoint)
            if not expected:
                plain = [((i, s), {**base_request(p, s, i, arguments.max_tokens), "num_draft_tokens": 0})
                         for i, p in enumerate(prompts) for s in settings_of(i)]
                expected = run_all(dealer, plain, 1)
                under_schema = [reply for (_, s), reply in expected.items() if s == "schema"]
            for proposer, length, batch in variants():
                requests = []
                for i, prompt in enumerate(prompts):
                    for setting in settings_of(i):
                        request = base_request(prompt, setting, i, arguments.max_tokens)
                        request.update(proposer=proposer, num_draft_tokens=length, adaptive=False)
                        if proposer == "prediction":
                            # Right at first, wrong in the middle, right again: accepted, rejected, found again.
                            words = expected[(i, setting)]["text"].split(" ")
                            request["prediction"] = " ".join(words[:4] + ["zebra"] + words[5:]) or "zebra"
                        requests.append(((i, setting), request))
                for key, reply in run_all(dealer, requests, batch).items():
                    compared += 1
                    stats = reply["metrics"]["speculative_decoding"]
                    totals[proposer][0] += stats["num_draft_tokens"]
                    totals[proposer][1] += stats["num_accepted_draft_tokens"]
                    if (reply["token_ids"], reply["text"]) != (expected[key]["token_ids"], expected[key]["text"]):
                        differing.append((chunk, proposer, length, batch, *key))
            dealer.close()
    for proposer in PROPOSERS:
        drafted, accepted = totals[proposer]
        print(f"{proposer:<11} drafted {drafted:>8}  accepted {accepted:>8}")
    print(f"{compared} answers compared with plain decoding, {len(differing)} differ, {time.monotonic() - begun:.0f} s")
    for case in differing[:10]:
        print("differs: chunk, proposer, K, batch, prompt, setting =", case)
    n_whole = sum(reply["finish_reason"] == "stop" for reply in under_schema)
    broken = [reply["text"] for reply in under_schema if breaks_schema(reply)]
    print(f"{len(under_schema)} answers under a JSON Schema, {n_whole} whole, {len(broken)} break it")
    # Equality would be worth nothing if nothing had been guessed.
    silent = [p for p in PROPOSERS if p != "none" and totals[p][1] == 0]
    if silent:
        print("nothing was accepted from:", ", ".join(silent))
    if totals["none"][0]:
        print("none proposed something")
    sys.exit(1 if differing or silent or totals["none"][0] or broken or not n_whole else 0)


if __name__ == "__main__":
    main()
