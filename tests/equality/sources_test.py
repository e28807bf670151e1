"""Every set of sources with every behaviour, by real services: 0 answers differ from plain decoding.

The sets are all of draft, ngram, memory and prediction. Behaviours, each with every set: honest; a draft that lies (random weights);
one that is stopped, and says nothing; one that is stopped for moments, and late; a draft and a memory that are killed in the middle of
answers, and come back. Greedy and seeded, lengths fixed and adaptive, eight requests at a time. tests/engine/source_matrix_test.cc has
the rest: the other sources' lies, delays and repetitions.

usage: sources_test.py FOLDER_WITH_PROGRAMS [--prompts N] [--max-tokens N] [--smollm2 FOLDER]
       --smollm2: SmolLM2 too, which smollm2.py makes there unless it is, with lies alone; left out where its package cannot be had
"""
import argparse
import contextlib
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/process"), str(ROOT / "tests/support"), str(ROOT / "tests/real")]

SOURCES = ("draft", "ngram", "memory", "prediction")
SETS = [combination for n in range(1, len(SOURCES) + 1) for combination in itertools.combinations(SOURCES, n)]
AT_ONCE = 8
STOPS_S = (0.02, 0.1)  # a draft that is late stands still for the one and runs for the other


def programs():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--smollm2")
    arguments = parser.parse_args()
    os.environ["FORETOKEN_BIN_DIR"] = arguments.programs  # before harness reads it
    return arguments


ARGUMENTS = programs()
import smollm2  # noqa: E402
from harness import Client, System  # noqa: E402


def random_draft(folder, like, tokenizer):
    """Random weights in a shape that a target of that vocabulary takes for its draft."""
    config = json.loads((pathlib.Path(like) / "config.json").read_text("utf-8"))
    subprocess.run([f"{ARGUMENTS.programs}/foretoken", "model", "init-random", folder, "--seed", "9", "--layers", "2", "--hidden", "64",
                    "--heads", "2", "--kv-heads", "1", "--ffn", "128", "--vocab", str(config["vocab_size"]), "--positions", "1024",
                    "--tokenizer", tokenizer], check=True, stdout=subprocess.DEVNULL, timeout=120)
    return folder


class Questions:
    """Prompts of the demo, greedy and seeded, and what plain decoding answers."""

    def __init__(self):
        prompts = json.loads((ROOT / "models/prompts.json").read_text("utf-8"))
        prompts = prompts[:: max(1, len(prompts) // ARGUMENTS.prompts)][: ARGUMENTS.prompts]
        self.requests = []
        for i, prompt in enumerate(prompts):
            messages = prompt.get("messages") or [{"role": "user", "content": prompt["prompt"]}]
            for sampling in ({"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.95}):
                self.requests.append({"messages": messages, "max_tokens": ARGUMENTS.max_tokens, "seed": 1000 + i, **sampling})
        self.answers = None

    def asked_of(self, sources):
        for i, request in enumerate(self.requests):
            asked = {**request, "proposer": list(sources), "num_draft_tokens": (4, 8)[i % 2], "adaptive": i % 4 == 3}
            if "prediction" in sources:
                words = self.answers[i]["text"].split(" ")
                asked["prediction"] = " ".join(words[:4] + ["zebra"] + words[5:]) or "zebra"
            yield asked


def run_all(client, requests, on_answer=lambda n_answered: None):
    """Replies in the order of the requests, at most AT_ONCE under way."""
    requests = list(requests)
    ids, replies = {}, [None] * len(requests)
    n_sent = n_answered = 0
    deadline = time.monotonic() + 300
    while n_answered < len(requests):
        if n_sent < len(requests) and n_sent - n_answered < AT_ONCE:
            ids[client.send(requests[n_sent])] = n_sent
            n_sent += 1
            continue
        if time.monotonic() > deadline:
            raise AssertionError("no answer within 300 s")
        for reply in client.pump(1):
            if "error" in reply:
                raise AssertionError(f"{requests[ids[reply['id']]]}: {reply['error']}")
            replies[ids[reply["id"]]] = reply
            n_answered += 1
            on_answer(n_answered)
    return replies


# ---- behaviours: with one the draft or the memory behaves so while requests run ----

@contextlib.contextmanager
def honest(system):
    yield lambda n_answered: None


@contextlib.contextmanager
def stopped(system):
    with system.stopped("draft-0"):
        yield lambda n_answered: None


@contextlib.contextmanager
def late(system):
    ended = threading.Event()

    def stop_for_moments():
        while not ended.wait(STOPS_S[0]):
            with system.stopped("draft-0"):
                ended.wait(STOPS_S[1])

    thread = threading.Thread(target=stop_for_moments)
    thread.start()
    try:
        yield lambda n_answered: None
    finally:
        ended.set()
        thread.join()


def killed(name):
    @contextlib.contextmanager
    def kill_halfway(system, n_kills=itertools.count()):
        def on_answer(n_answered):
            if n_answered == 2:
                system.kill(name)
                system.start(name)
                next(n_kills)
        yield on_answer
    kill_halfway.__name__ = f"killed {name}"
    return kill_halfway


class Judge:
    def __init__(self):
        self.n_compared, self.differing, self.totals = 0, [], {}

    def run(self, system, questions, name, behaviour):
        client = Client(system)
        system.wait_ready(drafts=2)
        for sources in SETS:
            with behaviour(system) as on_answer:
                replies = run_all(client, questions.asked_of(sources), on_answer)
            drafted, accepted = self.totals.get((name, sources), (0, 0))
            for i, (reply, plain) in enumerate(zip(replies, questions.answers)):
                self.n_compared += 1
                stats = reply["metrics"]["speculative_decoding"]
                drafted, accepted = drafted + stats["num_draft_tokens"], accepted + stats["num_accepted_draft_tokens"]
                if (reply["token_ids"], reply["text"]) != (plain["token_ids"], plain["text"]):
                    self.differing.append((name, "+".join(sources), i))
            self.totals[name, sources] = drafted, accepted
        client.close()

    def problems(self):
        """What has not happened, without which equality would be worth nothing."""
        for (name, sources), (drafted, accepted) in self.totals.items():
            of = f"{name}, {'+'.join(sources)}: {drafted} drafted, {accepted} accepted"
            if len(sources) > 1:
                continue
            if name == "stopped" and sources == ("draft",):
                if drafted > 0:
                    yield of + ", and it was stopped"
            elif "lying" in name and sources == ("draft",):
                if drafted == 0 or 2 * accepted > drafted:
                    yield of + ", and its weights are random"
            elif name.startswith("killed") or name == "late":
                continue  # it may have been dead or stopped all the time
            elif accepted == 0:
                yield of


def begin(system, questions):
    """Services, plain answers, and a memory that has seen them."""
    system.start("router", "tokenizer", "draft-0", "draft-memory", "target").wait_ready(drafts=2)
    client = Client(system)
    if questions.answers is None:
        questions.answers = run_all(client, ({**r, "num_draft_tokens": 0} for r in questions.requests))
    run_all(client, ({**r, "proposer": "memory", "num_draft_tokens": 8, "adaptive": False} for r in questions.requests))
    client.close()


def judge_pair(judge, folder, target, draft):
    # A draft that runs ahead, on shared cores too; the lies are of one that answers questions alone.
    settings = (f"model.draft={draft}", "draft.run_ahead=on", "speculation.adaptive=true", "draft.memory=256MiB", "limits.request_timeout_s=300")
    questions = Questions()
    with System(settings, target_model=target) as system:
        begin(system, questions)
        for behaviour in (honest, stopped, late, killed("draft-0"), killed("draft-memory")):
            judge.run(system, questions, behaviour.__name__, behaviour)
        system.assert_alive()
    judge_lies(judge, folder, target, questions, "lying")


def judge_lies(judge, folder, target, questions, name):
    draft = random_draft(f"{folder}/{name}", target, target)
    with System((f"model.draft={draft}", "draft.memory=256MiB", "limits.request_timeout_s=300"), target_model=target) as system:
        begin(system, questions)
        judge.run(system, questions, name, honest)
        system.assert_alive()


def judge_smollm2(judge, folder):
    try:
        target = str(smollm2.prepare(ARGUMENTS.smollm2))
    except smollm2.Unreachable as why:
        print("SKIPPED for SmolLM2:", why)
        return
    judge_lies(judge, folder, target, Questions(), "smollm2 lying")


def main():
    judge, begun = Judge(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="foretoken-sources-") as folder:
        judge_pair(judge, folder, str(ROOT / "models/demo-target"), str(ROOT / "models/demo-draft"))
        if ARGUMENTS.smollm2:
            judge_smollm2(judge, folder)
    for (name, sources), (drafted, accepted) in judge.totals.items():
        if len(sources) == 1 or len(sources) == len(SOURCES):
            print(f"{name:<20} {'+'.join(sources):<30} drafted {drafted:>7}  accepted {accepted:>7}")
    print(f"{judge.n_compared} answers compared with plain decoding, {len(judge.differing)} differ, {time.monotonic() - begun:.0f} s")
    for case in judge.differing[:10]:
        print("differs: behaviour, sources, request =", case)
    problems = list(judge.problems())
    for problem in problems:
        print("proves nothing:", problem)
    sys.exit(1 if judge.differing or problems else 0)


if __name__ == "__main__":
    main()
