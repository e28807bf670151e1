"""Foretoken and its peers in turn, prompt by prompt, on the same weights: one JSON file of every figure that was read.

run.sh installs what this needs and calls it; table.py makes the table of the file. The order of the peers rotates from figure to
figure, so that what else the machine does hits all alike, and only one of them computes at a time.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import platform
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from peers import ROOT, Model, PeerError, every_peer
from servers import every_server
from streams import StreamError, measure

SCHEMA = "foretoken.bench.peers/1"
GUESSES = (2, 4, 8, 12)
PREFILL_TOKENS = (512, 1024, 4096)
ROWS = (1, 2, 5, 9, 16)
ROW_CONTEXT = 64
REPEATS = 3  # of what no prompt repeats: prefill, rows, streams, load
STREAMS = (1, 2, 4, 8, 16, 32)
STREAM_PROMPT_TOKENS, STREAM_ANSWER_TOKENS = 128, 64
SPIN_S = 0.05  # threads that wait for work spin for a while
LOOK_S = 0.1  # so long it is looked whether other work runs
QUIET = 0.15  # share of the cores that others may take
COPY_FRAME = "Copy this text, word for word:\n\n{}"
COPY_BEGUN = 200  # characters
SHORT_COPY, SHORT_BEGUN = 380, 60  # of a copy with about as many tokens as the prompts of a stream


@dataclass
class Shape:
    """A model of the comparison and how it is asked."""

    name: str
    answer_tokens: int
    n_plain_prompts: int | None = None  # at most so many; None: as --prompts says
    draft: bool = False
    speaks: bool = True  # random weights say nothing that could be guessed
    stream_requests: int = 8  # at least so many for each figure of several streams
    stream_guesses: tuple = ()
    stream_source: str = "lookup"


SHAPES = {shape.name: shape for shape in (
    Shape("demo", 128, draft=True, stream_guesses=(4, 8), stream_source="draft"), Shape("smollm2", 96, stream_guesses=(4,)),
    Shape("1b", 24, n_plain_prompts=3, speaks=False, stream_requests=4),
    Shape("1b-forced", 64, n_plain_prompts=3, draft=True, speaks=False, stream_requests=4))}


class Prompts:
    """Prompts as token ids, the same for all peers: the demo's prompts in the model's chat template, and random ids."""

    def __init__(self, programs, folder, shape, count):
        self.vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
        self.programs, self.folder = programs, folder
        every = [prompt for prompt in json.loads((ROOT / "models/prompts.json").read_text()) if "prompt" in prompt]
        kinds = sorted({prompt["kind"] for prompt in every})
        by_kind = [[prompt for prompt in every if prompt["kind"] == kind] for kind in kinds]
        mixed = [group[i] for i in range(count) for group in by_kind][:count]
        questions = [prompt["prompt"] for prompt in every if prompt["kind"] == "qa"]
        self.stories = [question.split("\n\n", 1)[1].rsplit("\n\n1. ", 1)[0] for question in questions]
        self.short = [prompt for i in range(len(every)) for group in by_kind if i < len(group) and (prompt := group[i])["kind"] != "qa"]
        if shape.speaks:
            self.plain = [self.ids(prompt["prompt"], prompt.get("system")) for prompt in mixed]
            # What a model copies is its business: the demo's repeats questions, a language model goes on with a copy that has begun.
            self.copies = ([self.ids(question) for question in questions[:count]] if shape.draft else
                           [self.ids(COPY_FRAME.format(story), begun=story[:COPY_BEGUN]) for story in self.stories[:count]])
        else:
            self.plain, self.copies = [self.random(32, seed) for seed in range(shape.n_plain_prompts or count)], []

    def streams(self, shape):
        """Of about one length, so that streams differ in little but their text: the demo's have earlier ones before them, to fill up."""
        count = max(STREAMS)
        if not shape.speaks:
            return [self.random(STREAM_PROMPT_TOKENS, 100 + seed) for seed in range(count)]
        if not shape.draft:
            return [self.ids(COPY_FRAME.format(story[:SHORT_COPY]), begun=story[:SHORT_BEGUN]) for story in self.stories[:count]]
        texts = [self.ids(prompt["prompt"], prompt.get("system")) for prompt in self.short[:count]]
        filled = [sum((texts[i - back] for back in range(8, 0, -1)), []) + texts[i] for i in range(count)]
        return [ids[-STREAM_PROMPT_TOKENS:] for ids in filled]

    def ids(self, text, system=None, begun=""):
        system = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
        text = f"{system}<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n{begun}"
        done = subprocess.run([str(self.programs / "foretoken"), "tokenize", "--model", str(self.folder), "--json", text],
                              capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["ids"]

    def random(self, length, seed):
        draw = random.Random(1000 * length + seed)
        return [draw.randrange(64, self.vocabulary) for _ in range(length)]


def others_share():
    """Of the cores that the peers may use: the share that other work takes now, while no peer computes."""
    def read():
        lines = pathlib.Path("/proc/stat").read_text().splitlines()
        cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        times = [[int(word) for word in line.split()[1:9]] for line in lines if line.split()[0] in cores]
        return sum(map(sum, times)), sum(idle + waiting for _, _, _, idle, waiting, *_ in times)

    begin = read()
    time.sleep(LOOK_S)
    passed, idle = (after - before for before, after in zip(begin, read()))
    return round(1 - idle / passed, 2) if passed else 0.0


class Comparison:
    """Every figure that is read, of all models, with the share of the cores that others had just before."""

    def __init__(self, options, peers, servers, save):
        self.options, self.peers, self.servers, self.save = options, peers, servers, save
        self.cells, self.failures = [], []
        self.turn, self.others = 0, 0.0

    def in_turn(self, running):
        """The peers, beginning with another one each time, each when the cores are free or --wait is over."""
        self.turn += 1
        start = self.turn % max(1, len(running))
        for peer in running[start:] + running[:start]:
            time.sleep(SPIN_S)
            until = time.monotonic() + self.options.wait
            self.others = others_share()
            while self.others > QUIET and time.monotonic() < until:
                self.others = others_share()
            yield peer

    def note(self, cell, peer, value, **detail):
        """One figure. Figures of equal `index` were read beside each other."""
        self.cells.append({"model": self.model.name, "weights": self.weights, "cell": cell, "peer": peer.name, **detail, "value": value,
                           "others": self.others})
        self.save(self)

    def fail(self, running, peer, what, error):
        print(f"  {peer.title}: {what}: {error}", file=sys.stderr)
        self.failures.append({"model": self.model.name, "weights": self.weights, "peer": peer.name, "what": what, "reason": str(error)})
        self.save(self)
        if getattr(peer, "process", True) is None and peer in running:  # it has ended
            running.remove(peer)

    def measure(self, model, shape, weights, prompts):
        self.model, self.weights, self.prompts, self.shape = model, weights, prompts, shape
        running = []
        cells = self.options.cells
        able = [peer for peer in self.peers if weights in peer.weights]
        for peer in able if any(name in CELLS for name in cells) else []:
            try:
                peer.start(model, weights)
                peer.generate(prompts.plain[0], 8)
                running.append(peer)
            except PeerError as error:
                self.fail(running, peer, "start", error)
                peer.stop()
        started = list(running) or able
        try:
            for name in cells:
                if running and name in CELLS:
                    print(f"{model.name}, {weights}: {name}", file=sys.stderr, flush=True)
                    CELLS[name](self, running)
        finally:
            for peer in self.peers:
                peer.stop()
        if "streams" in cells:
            self.streams()
        if "load" in cells:
            self.load(started)

    def answers(self, running, cell, prompts, settings, sources):
        """Every prompt with every setting by every peer in turn; each guessed text is held against the peer's own plain one. The first
        answer of a kind may have preparations in it, so it is no figure."""
        for index, ids in enumerate(prompts):
            plain = {}
            for k in settings:
                for peer in self.in_turn([p for p in running if sources in (*p.sources, "none")]):
                    try:
                        if index == 0:
                            peer.generate(ids, 8, k, sources)
                        answer = peer.generate(ids, self.shape.answer_tokens, k, sources)
                    except PeerError as error:
                        self.fail(running, peer, f"{cell}, K {k}", error)
                        continue
                    if k == 0:
                        plain[peer.name] = answer.ids
                    same = plain.get(peer.name) == answer.ids
                    self.note(cell, peer, answer.tokens_per_s(), unit="tok/s", index=index, k=k, same_text=same, text=digest(answer.ids),
                              about=answer.about, tokens=len(answer.ids), processor_s=answer.processor_s)

    def plain(self, running):
        self.answers(running, "plain", self.prompts.plain, (0,), "none")

    def draft(self, running):
        if self.model.draft:
            self.answers(running, "draft", self.prompts.plain, (0, *GUESSES), "draft")

    def lookup(self, running):
        self.answers(running, "lookup", self.prompts.copies, (0, *GUESSES), "lookup")

    def prefill(self, running):
        for length in PREFILL_TOKENS:
            if length >= self.model.context:
                continue
            for index in range(REPEATS if length < 2048 else 1):
                ids = self.prompts.random(length, index)
                for peer in self.in_turn(running):
                    try:
                        answer = peer.generate(ids, 1)
                        self.note("prefill", peer, length / answer.first_s, unit="tok/s", index=index, length=length, tokens=length,
                                  processor_s=answer.processor_s)
                    except PeerError as error:
                        self.fail(running, peer, f"prefill of {length}", error)

    def rows(self, running):
        ids = self.prompts.random(ROW_CONTEXT, 0)
        for index in range(REPEATS):
            for peer in self.in_turn([peer for peer in running if peer.has_rows]):
                try:
                    ms = peer.rows(self.model, self.weights, ids, ROWS)
                    for count, value in ms.items():
                        self.note("rows", peer, value, unit="ms", index=index, rows=count)
                except PeerError as error:
                    self.fail(running, peer, "rows", error)

    def memory(self, running):
        for peer in running:
            peak = peer.peak_mib()
            self.note("memory", peer, peak["all"], unit="MiB", index=0, target=peak["target"])

    def streams(self):
        """One way of decoding after the other; in each, the servers in turn for every number of streams. A text is held against what
        the same server wrote of the same prompt when that was asked alone and without guesses."""
        prompts, alone = self.prompts.streams(self.shape), {}
        for k in (0, *self.shape.stream_guesses):
            source = self.shape.stream_source if k else "none"
            print(f"{self.model.name}, {self.weights}: streams, K {k}", file=sys.stderr, flush=True)
            running = []
            try:
                for server in self.servers:
                    if self.weights in server.weights:
                        self.start_server(running, server, source, k)
                for n_streams in STREAMS:
                    for index in range(REPEATS):
                        for server in self.in_turn(running):
                            self.stream(running, server, prompts, n_streams, index, k, alone)
            finally:
                for server in self.servers:
                    server.stop()

    def start_server(self, running, server, source, k):
        try:
            server.start_server(self.model, self.weights, source, k, max(STREAMS), STREAM_ANSWER_TOKENS + 2 * STREAM_PROMPT_TOKENS)
            running.append(server)
            measure(server.port, [server.body([5, 6, 7], 4)], 1, 4)
        except (PeerError, StreamError) as error:
            self.fail(running, server, f"streams, K {k}", error)

    def stream(self, running, server, prompts, n_streams, index, k, alone):
        n = min(STREAM_ANSWER_TOKENS, self.shape.answer_tokens)
        bodies = [server.body(ids, n) for ids in prompts[:max(n_streams, self.shape.stream_requests)]]
        worked_s = server.worked_s()
        try:
            done = measure(server.port, bodies, n_streams, n)
        except StreamError as error:
            self.fail(running, server, f"{n_streams} streams, K {k}", error)
            return
        worked_s = server.worked_s() - worked_s
        texts = [answer.text for answer in done.answers]
        if k == 0 and n_streams == 1:
            alone.setdefault(server.name, texts)
        same = [text == other for text, other in zip(texts, alone.get(server.name, []))]
        self.note("streams", server, done.tokens_per_s(), unit="tok/s", index=index, streams=n_streams, k=k, same=[sum(same), len(same)],
                  text=digest(texts), tokens=done.tokens(), processor_s=worked_s, **done.about())

    def load(self, peers):
        """From the command to the first token of an answer, each peer alone; files are in the page cache by then."""
        print(f"{self.model.name}, {self.weights}: load", file=sys.stderr, flush=True)
        for index in range(REPEATS):
            for peer in self.in_turn(peers):
                begin = time.monotonic()
                try:
                    peer.start(self.model, self.weights)
                    peer.generate(self.prompts.plain[0][:1], 1)
                    self.note("load", peer, time.monotonic() - begin, unit="s", index=index)
                    self.note("load memory", peer, peer.peak_mib()["target"], unit="MiB", index=index)
                except PeerError as error:
                    self.fail([], peer, "load", error)
                finally:
                    peer.stop()


# What is measured with all peers loaded, in the order of --cells; after these come streams and load, which start what they ask.
CELLS = {"plain": Comparison.plain, "draft": Comparison.draft, "lookup": Comparison.lookup, "prefill": Comparison.prefill,
         "rows": Comparison.rows, "memory": Comparison.memory}


def digest(ids):
    """Enough to see whether two peers wrote the same."""
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:12]


def machine():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    flags = set(re.search(r"flags\s*: (.*)", info).group(1).split())
    known = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_bf16", "amx_int8")
    about = {key: re.search(rf"{key}\s*: (.*)", info).group(1) for key in ("model name", "cpu family", "model")}
    return {"processor": f"{about['model name']}, family {about['cpu family']}, model {about['model']}",
            "instructions": [flag for flag in known if flag in flags], "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1), "system": platform.platform(),
            "load_average": os.getloadavg()[0]}


def commit():
    done = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def context_of(folder):
    """As long as the longest prefill, or as the model allows."""
    return min(json.loads((folder / "config.json").read_text())["max_position_embeddings"], max(PREFILL_TOKENS) + 256)


def write(path, result):
    """A figure a line."""
    cells = ",\n".join("  " + json.dumps(cell) for cell in result["cells"])
    head = json.dumps({**result, "cells": []}, indent=1)
    path.write_text(head[:head.rindex("[]")] + f"[\n{cells}\n ]\n}}\n")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    for name in ("--peers", "--models", "--weights", "--cells"):
        parser.add_argument(name, type=lambda text: text.split(","), required=True)
    parser.add_argument("--prompts", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--fixed", action="store_true", help="Foretoken guesses K whether it pays or not, as the others do")
    parser.add_argument("--wait", type=float, default=0, help="seconds, before each figure, for other work to end")
    parser.add_argument("--missing", action="append", default=[], metavar="PEER:REASON", help="a peer that is not installed, and why")
    parser.add_argument("--command", default="", help="what was typed, for the file")
    return parser.parse_args()


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the peers end, too
    computer = machine()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:options.threads])  # of all that is started here
    known = every_peer(options.work, options.programs, options.threads, not options.fixed)
    missing = dict(each.split(":", 1) for each in options.missing)
    result = {"schema": SCHEMA, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "commit": commit(),
              "command": options.command, "machine": computer, "threads": options.threads,
              "peers": {name: {"title": known[name].title, "version": known[name].version(), "missing": missing.get(name)}
                        for name in options.peers}}
    begin = time.monotonic()

    def save(comparison):
        """After each figure, so that an interrupted run leaves what it has."""
        write(options.out, {**result, "seconds": round(time.monotonic() - begin), "load_average_after": os.getloadavg()[0],
                            "failures": comparison.failures, "cells": comparison.cells})

    options.out.parent.mkdir(parents=True, exist_ok=True)
    servers = every_server(options.work, options.programs, options.threads, not options.fixed)
    there = [name for name in options.peers if name not in missing]
    comparison = Comparison(options, [known[name] for name in there], [servers[name] for name in there if name in servers], save)
    for name in options.models:
        shape, folder = SHAPES[name], options.work / "models" / name
        model = Model(name, folder / "target", folder, folder / "draft" if shape.draft else None, context_of(folder / "target"))
        prompts = Prompts(options.programs, model.folder, shape, options.prompts)
        for weights in options.weights:
            comparison.measure(model, shape, weights, prompts)
    print(f"{options.out}: {len(comparison.cells)} figures in {time.monotonic() - begin:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
