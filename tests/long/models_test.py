"""Two models behind one router, a thousand equal seeded requests of each: one text each.

The requests of a model are one request: prompt, parameters and seed are equal, and only what must not change the text differs, the
proposer and the number of guesses. Both models are asked at the same time, beside other requests of both; the first model has two
targets, of which one is killed and started again every few seconds. The text must also be the one that the model gives alone, by
plain decoding.

usage: models_test.py [--count N] [--max-tokens N] [--second FOLDER] [--second-draft FOLDER] [--seed N]

The first model is the demo pair, the second a random one with a tokenizer of its own, or the one of FOLDER, such as what
tests/real/smollm2.py makes.
"""
import argparse
import collections
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/process"))

import tiny_model  # noqa: E402
from harness import Client, System  # noqa: E402

AT_ONCE = 24  # of each model
NOISE = 8  # other requests of each model
KILL_EVERY_S = 6
SETTINGS = ("kv_cache.memory=512MiB", "draft.memory=128MiB", "limits.max_waiting=1024")
WAYS = ({}, {"num_draft_tokens": 0}, {"num_draft_tokens": 1}, {"num_draft_tokens": 8}, {"proposer": "ngram"},
        {"proposer": "ngram", "num_draft_tokens": 3}, {"adaptive": False})


def question(model, max_tokens):
    return {"prompt": "Tell me a story about a river.", "model": model, "max_tokens": max_tokens, "ignore_eos": True,
            "temperature": 0.9, "top_p": 0.95, "seed": 4711}


def text_of(reply):
    return reply["text"], tuple(reply["token_ids"])


def alone(folder, asked):
    with System(SETTINGS, target_model=folder) as system:
        system.start("router", "tokenizer", "target")
        system.wait_ready(drafts=0)
        client = Client(system)
        reply = client.ask(**{**asked, "model": "random", "num_draft_tokens": 0})
        client.close()
        return text_of(reply)


def noise(dice, model):
    return {"prompt": "".join(dice.choice("the cat sat, on a mat. ") for _ in range(dice.randint(1, 400))), "model": model,
            "max_tokens": dice.randint(1, 96), "temperature": dice.choice((0.0, 1.0)), "seed": dice.getrandbits(32)}


class Run:
    def __init__(self, system, options, names):
        self.system, self.options, self.dice = system, options, random.Random(options.seed)
        self.client = Client(system)
        self.left = {name: options.count for name in names}
        self.under_way = {}  # id -> model of a counted request, or None of noise
        self.noise = collections.Counter()
        self.texts = {name: collections.Counter() for name in names}
        self.kills, self.kill_at = 0, time.monotonic() + KILL_EVERY_S
        self.is_down = False

    def fill(self):
        at_once = collections.Counter(self.under_way.values())
        for name in self.left:
            while self.left[name] > 0 and at_once[name] < AT_ONCE:
                way = WAYS[self.left[name] % len(WAYS)]
                self.under_way[self.client.send({**question(name, self.options.max_tokens), **way})] = name
                self.left[name] -= 1
                at_once[name] += 1
            while self.noise[name] < NOISE and any(self.left.values()):
                self.under_way[self.client.send(noise(self.dice, name))] = (name,)
                self.noise[name] += 1

    def take(self):
        for reply in self.client.pump():
            of = self.under_way.pop(reply["id"])
            self.client.inbox.pop(reply["id"])
            assert "text" in reply, reply
            if isinstance(of, tuple):
                self.noise[of[0]] -= 1
            else:
                self.texts[of][text_of(reply)] += 1

    def kill_now_and_then(self):
        if time.monotonic() < self.kill_at:
            return
        if self.is_down:
            self.system.start("target-demo-1")
        else:
            self.system.kill("target-demo-1", signal.SIGKILL)
            self.kills += 1
        self.is_down = not self.is_down
        self.kill_at = time.monotonic() + KILL_EVERY_S

    def run(self):
        while any(self.left.values()) or self.under_way:
            self.fill()
            self.take()
            self.kill_now_and_then()
            self.system.assert_alive()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--second", help="folder of the second model")
    parser.add_argument("--second-draft", default="")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ftk-two-") as folder:
        second, second_draft = options.second, options.second_draft
        if not second:
            second = tiny_model.write_model(os.path.join(folder, "t"), seed=1)
            second_draft = tiny_model.write_model(os.path.join(folder, "d"), seed=1, noise=0.05)
        models = {"demo": (str(ROOT / "models/demo-target"), str(ROOT / "models/demo-draft")), "second": (second, second_draft)}
        truth = {name: alone(target, question(name, options.max_tokens)) for name, (target, _) in models.items()}
        system = System(SETTINGS, target_model="of each model")
        system.settings = [setting for setting in system.settings if not setting.startswith("model.")]
        for name, (target, draft) in models.items():
            system.settings += [f"model.{name}.target={target}", f"model.{name}.draft={draft}", f"model.{name}.packed_cache={system.folder}/packed"]
        with system:
            system.start("router", "target-demo-1")
            for name, (_, draft) in models.items():
                system.start(f"tokenizer-{name}-0", f"target-{name}-0", *([f"draft-{name}-0"] if draft else []))
            system.wait_ready(targets=3, drafts=sum(bool(draft) for _, draft in models.values()))
            run, begin = Run(system, options, models), time.monotonic()
            run.run()
            took = time.monotonic() - begin
            metrics = run.client.ask(op="metrics")["metrics_text"].splitlines()
            run.client.close()
    migrations = sum(float(line.split()[-1]) for line in metrics if line.startswith("foretoken_request_migrations_total"))
    print(f"{took:.0f} s, target-demo-1 killed {run.kills} times, {migrations:.0f} requests went on at another target")
    failed = False
    for name, counted in run.texts.items():
        equal = counted[truth[name]]
        print(f"{name}: {counted.total()} equal requests, {len(counted)} text, {equal} as it is alone")
        failed = failed or len(counted) != 1 or equal != options.count
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
