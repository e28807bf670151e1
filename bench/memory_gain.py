#!/usr/bin/python3
"""What does a memory of texts gain beside prompt lookup? Each request is answered twice in turn, with `ngram` and with `ngram` + `memory`, by
the same processes with default settings; the texts must be equal. Scenes, each with a tenant of its own:

  again     prompts of models/prompts.json, once as a memory's first sight of them, then measured with other seeds
  files     the first part of a file to be continued, after other files of the same folder were prompts (--corpus); without a corpus
            prompts of the demo's kinds json and code, after others of these kinds
  chat      questions that have little in common, each asked once, after the texts of scene again
  choices   four answers to a prompt side by side, at temperature 0.8: of one tenant, whose earlier prompts are remembered
  siblings  the same with a tenant for each prompt: an answer has only the three beside it

usage: memory_gain.py BIN_DIR [--model FOLDER] [--scenes again,files,chat,choices,siblings] [--requests N] [--json FILE]

Printed are ratios of tokens per second: the median over the pairs, and that of all their time. Tokens per pass of the target and
processor time are counts that other work on the machine does not change. Needs Debian's python3 with zmq and msgpack.
"""
import argparse
import collections
import json
import pathlib
import statistics
import time

from one_system import processor_s, started

BARS = {"again": 1.15, "files": 1.1, "chat": 0.98, "choices": 1.3, "siblings": 1.3}
WAYS = {"ngram": ["ngram"], "memory": ["ngram", "memory"]}
N_CHOICES = 4
QUESTIONS = """Why is the sky darker on high mountains?|How do I repair a bicycle tyre without glue?|Who invented the barometer?
What should I cook for six guests who eat no meat?|Explain inflation to a child.|Is it safe to swim after a thunderstorm?
Give me three names for a small grey cat.|How does a heat pump work in winter?|What is the difference between a lake and a pond?
Write a polite note to a neighbour about loud music.|Which planets have rings?|How long should bread dough rest?
What does a notary do?|Suggest a quiet hobby for the evening.|Why do leaves turn red?|How can I sleep better in summer?
Tell me about the history of chess.|What is a good present for a retired teacher?|How do vaccines train the body?
Describe the smell of rain.|What are the rules of badminton?|Why does glass break more easily than steel?
How do I remove ink from a shirt?|What makes a violin sound warm?|Who painted ceilings in Rome?|How are tides predicted?
Plan a weekend in a city by the sea.|What is a mortgage?|How do bees find their way home?|Why do we yawn?
Give advice on a first job interview.|What is the fastest way to learn to touch-type?|How is paper recycled?
What causes an eclipse of the moon?|Write a toast for a golden wedding.|How do submarines dive?|What is sourdough?
Which trees grow well in clay?|How does a court choose a jury?|Why is sea water salty?|Name some rivers of South America.
How do I keep basil alive indoors?|What is a prime number good for?|Summarise the story of Robinson Crusoe."""


class Tally:
    """What the requests of one way took."""

    def __init__(self):
        self.seconds, self.tokens, self.passes, self.drafted, self.accepted, self.processor = [], 0, 0, 0, 0, 0.0

    def add(self, seconds, replies, processor):
        self.seconds.append(seconds)
        self.processor += processor
        for reply in replies:
            speculation = reply["metrics"]["speculative_decoding"]
            n_tokens = reply["usage"]["completion_tokens"]
            self.tokens += n_tokens
            self.drafted += speculation["num_draft_tokens"]
            self.accepted += speculation["num_accepted_draft_tokens"]
            self.passes += n_tokens - speculation["num_accepted_draft_tokens"]


class Bench:
    def __init__(self, client, arguments, pids):
        self.client, self.arguments, self.pids = client, arguments, pids

    def answers(self, requests):
        """The last map of each, in order; seconds until the last of them."""
        begin = time.monotonic()
        ids = [self.client.send(**request) for request in requests]
        replies = {}
        while len(replies) < len(ids):
            reply = self.client.next(600)
            if "error" in reply:
                raise SystemExit(f"an error: {reply}")
            if reply["done"]:
                replies[reply["id"]] = reply
        return [replies[i] for i in ids], time.monotonic() - begin

    def processor(self):
        return sum(processor_s(pid) for pid in self.pids)

    def measure(self, jobs):
        """jobs: lists of requests that go side by side. Both ways, which takes turns in going first."""
        tallies = {way: Tally() for way in WAYS}
        for i, job in enumerate(jobs):
            texts = []
            for way in list(WAYS) if i % 2 == 0 else list(WAYS)[::-1]:
                before = self.processor()
                replies, seconds = self.answers([{**request, "proposer": WAYS[way]} for request in job])
                if len(job) == 1:  # less the prompt, which the second of a pair finds cached
                    seconds = replies[0]["metrics"]["generation_time_ms"] / 1e3
                tallies[way].add(seconds, replies, self.processor() - before)
                texts.append([reply["token_ids"] for reply in replies])
            if texts[0] != texts[1]:
                raise SystemExit(f"the ways gave different texts: {job}")
        return tallies

    def show_memory(self, requests):
        for request in requests:
            self.answers([{**request, "proposer": WAYS["memory"]}])

    def request(self, tenant, seed, temperature=0.8, **more):
        return {"tenant": tenant, "seed": seed, "temperature": temperature, "max_tokens": self.arguments.tokens, **more}


def asking(prompt):
    return {"messages": prompt.get("messages") or [{"role": "user", "content": prompt["prompt"]}]}


def demo_prompts(kinds=None):
    file = pathlib.Path(__file__).resolve().parent.parent / "models" / "prompts.json"
    return [p for p in json.loads(file.read_text()) if kinds is None or p["kind"] in kinds]


def spread(values, n):
    """n of them, evenly spread."""
    return [values[i * len(values) // n] for i in range(n)] if n < len(values) else values


def again(bench, n):
    prompts = spread(demo_prompts(), n)
    bench.show_memory(bench.request("again", i, **asking(p)) for i, p in enumerate(prompts))
    return bench.measure([bench.request("again", 10_000 + i, **asking(p))] for i, p in enumerate(prompts))


def files(bench, n):
    if bench.arguments.corpus is None:
        prompts = demo_prompts(("json", "code"))
        bench.show_memory(bench.request("files", i, **asking(p)) for i, p in enumerate(prompts[::2]))
        return bench.measure([bench.request("files", 10_000 + i, **asking(p))] for i, p in enumerate(spread(prompts[1::2], n)))
    paths = sorted(p for p in pathlib.Path(bench.arguments.corpus).rglob("*") if p.suffix in (".cc", ".h", ".py", ".c", ".md"))
    texts = [p.read_text(errors="replace") for p in paths]
    texts = [t for t in texts if 1500 < len(t) < 6000]
    for text in texts[::2]:
        bench.answers([{**bench.request("files", 1, prompt=text), "max_tokens": 1, "proposer": WAYS["memory"]}])
    new = spread(texts[1::2], n)
    return bench.measure([bench.request("files", i, bench.arguments.temperature, prompt=t[:len(t) // 2])] for i, t in enumerate(new))


def chat(bench, n):
    questions = [q for line in QUESTIONS.splitlines() for q in line.split("|")]
    return bench.measure([bench.request("again", i, **asking({"prompt": q}))] for i, q in enumerate(spread(questions, n)))


def choices(bench, n):
    return bench.measure([bench.request("choices", 77 + i, choice=c, **asking(p)) for c in range(N_CHOICES)]
                         for i, p in enumerate(spread(demo_prompts(), n)))


def siblings(bench, n):
    return bench.measure([bench.request(f"siblings{i}", 77 + i, choice=c, **asking(p)) for c in range(N_CHOICES)]
                         for i, p in enumerate(spread(demo_prompts(), n)))


SCENES = {"again": again, "files": files, "chat": chat, "choices": choices, "siblings": siblings}


def report(scene, tallies):
    plain, with_memory = tallies["ngram"], tallies["memory"]
    pairs = [a / b for a, b in zip(plain.seconds, with_memory.seconds) if b > 0]
    figures = {"scene": scene, "pairs": len(pairs), "bar": BARS[scene], "median": statistics.median(pairs),
               "all": sum(plain.seconds) / sum(with_memory.seconds), "processor": plain.processor / with_memory.processor}
    for way, tally in tallies.items():
        figures[way] = {"tokens": tally.tokens, "tokens_per_s": tally.tokens / sum(tally.seconds), "tokens_per_pass": tally.tokens / tally.passes,
                        "drafted": tally.drafted, "accepted": tally.accepted, "processor_s": tally.processor}
    print(f"{scene:8} {figures['pairs']:3} pairs  ratio {figures['median']:.3f} (all {figures['all']:.3f}, processor {figures['processor']:.3f}; "
          f"bar {figures['bar']})  tokens per pass {figures['ngram']['tokens_per_pass']:.3f} -> {figures['memory']['tokens_per_pass']:.3f}  "
          f"accepted/drafted {plain.accepted}/{plain.drafted} -> {with_memory.accepted}/{with_memory.drafted}  "
          f"tok/s {figures['ngram']['tokens_per_s']:.1f} -> {figures['memory']['tokens_per_s']:.1f}", flush=True)
    return figures


def memory_metrics(client):
    text = client.ask(op="metrics")[2]["metrics_text"]
    sums = collections.Counter()
    for line in text.splitlines():
        if line.startswith("foretoken_memory_") and "bucket" not in line and "links" not in line:
            sums[line.split("{")[0]] += float(line.rsplit(" ", 1)[1])
        if "proposals_total" in line and not line.startswith("#"):
            print("  " + line)
    for name, value in sums.items():
        print(f"  {name} {value:g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("--model", default="")
    parser.add_argument("--corpus", help="folder of files for the scene files")
    parser.add_argument("--scenes", default=",".join(SCENES))
    parser.add_argument("--requests", type=int, default=40, help="pairs of a scene")
    parser.add_argument("--tokens", type=int, default=128, help="of an answer")
    parser.add_argument("--temperature", type=float, default=0.0, help="of the scene files with a corpus")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--json")
    arguments = parser.parse_args()
    settings = ["model.drafts=0", *arguments.set]
    if arguments.model:
        settings = [f"model.target={arguments.model}", "model.draft=", *settings]
    with started(arguments.bin, settings, ["--memory"]) as system:
        time.sleep(1)
        bench = Bench(system.client, arguments, system.pids("target", "draft"))
        bench.show_memory([bench.request("warm", 1, prompt="Once upon a time")])
        results = []
        for scene in arguments.scenes.split(","):
            results.append(report(scene, SCENES[scene](bench, arguments.requests)))
        memory_metrics(system.client)
        if arguments.json:
            pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
