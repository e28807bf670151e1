#!/usr/bin/python3
"""Does one client take the others' time? On the demo pair with default settings, as ratios within one run:

  long prompts   a stream of 256 tokens alone, and beside 30 `tokenize` requests of 1 MB from another connection
  queue          small requests alone, and beside a tenant that has 200 requests waiting

usage: fairness.py BIN_DIR [--busy N] [--rounds N]      --busy: so many busy loops beside everything

Each round measures alone and beside in turn; printed are medians over the rounds, and the worst. Needs Debian's python3
with zmq and msgpack. Nothing is asserted but that every request is answered and each prompt is encoded once.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

from one_system import Client, started

WORDS = ("the quick brown fox jumps over a lazy dog while seven wizards pack my box with liquor jugs and nobody in the "
         "village remembers why the river turned north that year, though 1,204 of them were there ").split(" ")


def text_of(size, seed):
    parts, n, at = [], 0, seed
    while n < size:
        word = WORDS[at % len(WORDS)] + str(at % 97 if at % 11 == 0 else "") + " "
        parts.append(word)
        n += len(word)
        at += 1 + at % 3
    return "".join(parts)[:size]


def metric(client, name):
    text = client.ask(op="metrics")[2]["metrics_text"]
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(f"foretoken_{name}{{"))


def stream(client):
    return client.ask(prompt="Once upon a time", max_tokens=256, temperature=0.0, ignore_eos=True, stream=True)


def small(client, index):
    return client.ask(prompt=f"Number {index}: the thing", max_tokens=32, temperature=0.0, ignore_eos=True)[0]


def line(name, alone, beside):
    ratio = statistics.median(beside) / statistics.median(alone)
    print(f"  {name}: alone {1e3 * statistics.median(alone):.0f} ms, beside {1e3 * statistics.median(beside):.0f} ms, "
          f"ratio {ratio:.2f}; worst beside {1e3 * max(beside):.0f} ms, worst ratio {max(beside) / statistics.median(alone):.2f}",
          flush=True)


def long_prompts(context, endpoint, rounds):
    one, other = Client(context, endpoint), Client(context, endpoint)
    texts = [text_of(1_000_000, i) for i in range(30)]
    alone, beside, gaps, gaps_beside, encoded, spans = [], [], [], [], [], []
    for _ in range(rounds):
        seconds, gap, _ = stream(one)
        alone.append(seconds)
        gaps.append(gap)
        before = metric(one, "tokenizer_prompts_total")
        begin = time.monotonic()
        for text in texts:
            other.send(op="tokenize", prompt=text)
        open_ = 30
        n = 0
        while open_ > 0:  # streams one after another for as long as prompts are encoded
            seconds, gap, _ = stream(one)
            beside.append(seconds)
            gaps_beside.append(gap)
            n += 1
            while open_ > 0 and other.socket.poll(0):
                answer = other.next()
                if "error" in answer:
                    raise SystemExit(f"an error: {answer}")
                open_ -= 1
        spans.append(time.monotonic() - begin)
        encoded.append(metric(one, "tokenizer_prompts_total") - before - n)
    print(f"30 prompts of 1 MB: answered in {statistics.median(spans):.1f} s, encodings {[int(e) for e in encoded]}")
    line("a stream of 256 tokens", alone, beside)
    line("its longest gap", gaps, gaps_beside)


def queue(context, endpoint, rounds):
    one, other = Client(context, endpoint), Client(context, endpoint)
    alone, beside, spans = [], [], []
    for _ in range(rounds):
        alone += [small(one, i) for i in range(20)]
        begin = time.monotonic()
        for i in range(200):
            other.send(prompt=f"Story {i}: once", max_tokens=64, temperature=0.0, ignore_eos=True, tenant="many")
        open_ = 200
        n = 0
        while open_ > 16 and n < 20:
            beside.append(small(one, n))
            n += 1
            while open_ > 0 and other.socket.poll(0):
                open_ -= other.next()["done"]
        left = open_
        while open_ > 0:
            answer = other.next()
            if "error" in answer:
                raise SystemExit(f"an error: {answer}")
            open_ -= answer["done"]
        spans.append(time.monotonic() - begin)
        print(f"  {n} small requests while {200 - left} of 200 ended", flush=True)
    print(f"200 requests of one tenant: answered in {statistics.median(spans):.1f} s")
    line("a small request", alone, beside)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    with started(arguments.bin, arguments.set) as system:
        for _ in range(5):
            small(system.client, 0)
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.busy)]
        try:
            print(f"beside {arguments.busy} busy loops, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
            long_prompts(system.context, system.endpoint, arguments.rounds)
            queue(system.context, system.endpoint, arguments.rounds)
        finally:
            for one in busy:
                one.kill()
                one.wait()


if __name__ == "__main__":
    main()
