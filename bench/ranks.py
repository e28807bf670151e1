#!/usr/bin/env python3
"""Tokens a second of one target over 1, 2 and 4 CPU ranks of this host, plain decoding, as ratios within one run.

  bench/ranks.py [--rounds 3] [--ranks 1,2,4]     FORETOKEN_BIN_DIR, FORETOKEN_TEST_MODELS as in tests/process

Ranks of one host share its cores (threads = 0), so on one host this shows what splitting costs, not what it brings: the same
cores do the same work, with a sum over ranks after each half of a layer."""
import argparse
import os
import statistics
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("FORETOKEN_BIN_DIR", os.path.join(ROOT, "build/release/bin"))
os.environ.setdefault("FORETOKEN_TEST_MODELS", os.path.join(ROOT, "models"))
sys.path.insert(0, os.path.join(ROOT, "tests/process"))
from harness import Client, System, request  # noqa: E402

TOKENS = 128


def speed(client, streams):
    """Tokens a second of so many streams at a time."""
    begin = time.monotonic()
    ids = [client.send(request(i, max_tokens=TOKENS, num_draft_tokens=0)) for i in range(streams)]
    for one in ids:
        client.wait(one)
    return streams * TOKENS / (time.monotonic() - begin)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--ranks", default="1,2,4")
    options = arguments.parse_args()
    counts = [int(word) for word in options.ranks.split(",")]
    found = {(n, streams): [] for n in counts for streams in (1, 8)}
    for _ in range(options.rounds):  # by turns, so that a busy minute meets all alike
        for n in counts:
            with System(settings=[f"target.tensor_parallel={n}", "target.threads=0"]) as system:
                system.start("router", "tokenizer", "target")
                system.wait_ready(drafts=0)
                client = Client(system)
                speed(client, 1)
                for streams in (1, 8):
                    found[n, streams].append(speed(client, streams))
                client.close()
    print(f"{os.cpu_count()} cores, {options.rounds} rounds, medians; plain decoding of {TOKENS} tokens, load {os.getloadavg()[0]:.1f}")
    print("ranks   1 stream tok/s   ratio   8 streams tok/s   ratio")
    for n in counts:
        one, eight = (statistics.median(found[n, streams]) for streams in (1, 8))
        base = [statistics.median(found[counts[0], streams]) for streams in (1, 8)]
        print(f"{n:5} {one:16.1f} {one / base[0]:7.2f} {eight:17.1f} {eight / base[1]:7.2f}")


if __name__ == "__main__":
    main()
