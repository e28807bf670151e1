"""How long a client that vanishes keeps its KV blocks: streams through the edge end by FIN, by RST and by kill -9 of their client, and the
target's gauge of used blocks is asked until it says none.

usage: edge_vanish.py BIN [--trials N] [--model FOLDER]
Each figure holds the question that saw it, which the target answers between two passes as it frees blocks: it is an upper bound.
"""

import argparse
import json
import os
import pathlib
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/http"), str(ROOT / "tests/process"), str(ROOT / "tests/support")]

CHILD = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.sendall(sys.stdin.buffer.read())
connection.recv(1000)
print("begun", flush=True)
while connection.recv(1 << 16): pass
"""


def request(system, seed):
    body = json.dumps({"model": system.served, "prompt": "Once upon a time there was a fox", "max_tokens": 1000, "seed": seed, "stream": True,
                       "ignore_eos": True}).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def leave(system, way, seed):
    """A stream begins and its client is gone. Returns when that was."""
    if way == "kill -9":
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(system.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        child.stdin.write(request(system, seed))
        child.stdin.close()
        child.stdout.readline()
        gone = time.perf_counter()
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        return gone
    connection = socket.create_connection(("127.0.0.1", system.port))
    connection.sendall(request(system, seed))
    if not connection.recv(1 << 16).startswith(b"HTTP/1.1 200"):
        raise SystemExit("the stream did not begin")
    if way == "RST":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    else:  # with something left to be read a close would be an RST
        connection.shutdown(socket.SHUT_WR)
    gone = time.perf_counter()
    if way == "RST":
        connection.close()
        return gone
    system.leaving.append(connection)
    return gone


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("bin")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--model")
    arguments = parser.parse_args()
    os.environ["FORETOKEN_BIN_DIR"] = os.path.abspath(arguments.bin)
    from edge_system import EdgeSystem, gauge
    from harness import Client
    system = EdgeSystem(target_model=arguments.model or str(ROOT / "models/demo-target"),
                        settings=(() if arguments.model else (f"model.draft={ROOT}/models/demo-draft",)))
    system.served, system.leaving = "random", []
    times = {"FIN": [], "RST": [], "kill -9": []}
    questions = []
    with system:
        system.start_all(*(("router", "tokenizer", "target", "edge") if arguments.model else ()))
        client = Client(system)

        def used():
            begin = time.perf_counter()
            text = client.ask(op="metrics")["metrics_text"]
            questions.append(time.perf_counter() - begin)
            return gauge(text, "kv_cache_blocks", state="used")
        for trial in range(arguments.trials):
            way = list(times)[trial % 3]
            gone = leave(system, way, trial)
            while used():
                pass
            times[way].append(1000 * (time.perf_counter() - gone))
            for connection in system.leaving:
                connection.close()
            system.leaving.clear()
        client.close()
    for way, values in (*times.items(), ("all", [value for each in times.values() for value in each])):
        values.sort()
        print(f"{way:8s} {len(values):4d} trials: median {statistics.median(values):6.1f} ms, "
              f"p99 {values[min(len(values) - 1, int(0.99 * len(values)))]:6.1f}, most {values[-1]:6.1f}")
    print(f"one question: median {1000 * statistics.median(questions):.1f} ms, most {1000 * max(questions):.1f}")


if __name__ == "__main__":
    main()
