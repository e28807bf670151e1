"""What HTTP costs beside ZeroMQ: the same streams through both doors of one running system, in turn.

usage: edge_overhead.py BIN [--pairs N] [--streams N] [--tokens N] [--model FOLDER]
Prints the ratio of tokens a second (HTTP / ZeroMQ) and the difference in time to the first token, medians over pairs in both orders.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/http"), str(ROOT / "tests/process"), str(ROOT / "tests/support")]

PROMPT = "Once upon a time there was a fox"


def over_http(system, tokens, seed):
    body = json.dumps({"model": system.served, "prompt": PROMPT, "max_tokens": tokens, "seed": seed, "stream": True,
                       "ignore_eos": True}).encode()
    begin = time.perf_counter()
    connection = socket.create_connection(("127.0.0.1", system.port))
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    first, tail = None, b""
    while b"data: [DONE]" not in tail:
        more = connection.recv(65536)
        if not more:
            raise SystemExit(f"the stream broke: {tail!r}")
        if first is None and b"data: {" in more:
            first = time.perf_counter() - begin
        tail = (tail + more)[-100:]
    connection.close()
    return first, time.perf_counter() - begin


def over_zeromq(system, tokens, seed):
    from harness import Client
    client = Client(system)
    begin = time.perf_counter()
    own = client.send({"model": system.served, "prompt": PROMPT, "max_tokens": tokens, "seed": seed, "stream": True, "ignore_eos": True})
    first = None
    while not (client.inbox[own] and client.inbox[own][-1]["done"]):
        for _ in client.pump(1):
            first = first or time.perf_counter() - begin
    if "error" in client.inbox[own][-1]:
        raise SystemExit(client.inbox[own][-1]["error"])
    client.close()
    return first, time.perf_counter() - begin


def run(way, system, arguments, seed):
    """Time to the first token (median of the streams) and tokens a second of all streams together."""
    results = []
    threads = [threading.Thread(target=lambda i=i: results.append(way(system, arguments.tokens, seed + i)))
               for i in range(arguments.streams)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = time.perf_counter() - begin
    return statistics.median(first for first, _ in results), arguments.streams * arguments.tokens / whole


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("bin")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--model")
    arguments = parser.parse_args()
    os.environ["FORETOKEN_BIN_DIR"] = os.path.abspath(arguments.bin)
    from edge_system import EdgeSystem
    system = EdgeSystem(target_model=arguments.model or str(ROOT / "models/demo-target"),
                        settings=(() if arguments.model else (f"model.draft={ROOT}/models/demo-draft",)))
    system.served = "random"
    ratios, delays = [], []
    with system:
        system.start_all(*(("router", "tokenizer", "target", "edge") if arguments.model else ()))
        for pair in range(-1, arguments.pairs):
            ways = [over_http, over_zeromq] if pair % 2 else [over_zeromq, over_http]
            figures = {way: run(way, system, arguments, 100 * pair + 1000) for way in ways}
            if pair >= 0:  # the first warms up
                ratios.append(figures[over_http][1] / figures[over_zeromq][1])
                delays.append(1000 * (figures[over_http][0] - figures[over_zeromq][0]))
    print(f"tokens a second, HTTP / ZeroMQ: {statistics.median(ratios):.3f} "
          f"({min(ratios):.3f} to {max(ratios):.3f}, {len(ratios)} pairs, {arguments.streams} streams)")
    print(f"time to the first token, HTTP - ZeroMQ: {statistics.median(delays):+.2f} ms ({min(delays):+.2f} to {max(delays):+.2f})")


if __name__ == "__main__":
    main()
