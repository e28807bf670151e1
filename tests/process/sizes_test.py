"""Steps that take seconds: a long step is no death, long prompts beside others and beside busy cores change nothing.

Random models (`foretoken model init-random`), so what they say is nonsense, and the same nonsense every time. By default a small
shape that reads a prompt in one step; `--shape 1b` and `--shape 3b` are the real sizes with default settings,
which take half an hour or more. There the longest gap of a stream beside the prompts is judged, too: at most three of its steps before
them and `limits.max_step_ms`.

usage: sizes_test.py [--shape small|1b|3b] [--prompts 1500x4,8000x1] [--loads 0,1,4] [options and test names of unittest]
  --prompts  lengths, and how many of each at once
  --loads    busy loops beside them
"""
import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zlib

from harness import BIN, Client, System, text_of, wait_for

MODELS = os.environ.get("FORETOKEN_TEST_SHAPES", os.path.join(os.path.dirname(os.path.abspath(BIN)), "test-models"))
SEED = 20261122
POSITIONS = 16384
HEARTBEAT_MS = 100  # of the small shape; by default it is 250
STARVED_S = 0.2  # a quarter of the silence that makes a death there
MAX_STEP_S = 0.25  # limits.max_step_ms by default
DRAFT_TOKENS = 4096  # the demo pair's vocabulary, which the shapes share: drafts are the demo's


class Shape:
    def __init__(self, flags, settings, prompts, loads, patience, stop_s, turns, long_prompts=()):
        self.flags = flags
        self.settings = settings
        self.prompts = prompts            # lengths of prompts, and how many are sent at once
        self.loads = loads                # busy loops beside them
        self.patience = patience          # seconds that only a hang can reach
        self.stop_s = stop_s              # how long a stopped service stays stopped
        self.turns = turns                # how often each service is killed and stopped
        self.long_prompts = long_prompts  # the same without busy loops only


SHAPES = {
    # A prompt is read in one step, which lasts longer than the eight heartbeats that make a death; these are short, so that the steps
    # need not be long.
    "small": Shape(["--layers", "3", "--hidden", "1024", "--heads", "16", "--kv-heads", "4", "--ffn", "4096"],
                   [f"bus.heartbeat_ms={HEARTBEAT_MS}", "limits.prefill_chunk=2048", "limits.max_batch_rows=2048", "kv_cache.memory=512MiB"],
                   [(1500, 2)], [1], 300, 1.5, 1),
    "1b": Shape(["--shape", "1b", "--dtype", "bfloat16"], [], [(1500, 1), (1500, 2), (1500, 4), (8000, 1)], [0, 1, 4], 3500, 5.0, 2,
                [(8000, 2), (8000, 4)]),
    "3b": Shape(["--shape", "3b", "--dtype", "bfloat16"], [], [(1500, 1), (1500, 2), (1500, 4), (8000, 1)], [0], 3500, 5.0, 2),
}
parser = argparse.ArgumentParser(add_help=False)
parser.add_argument("--shape", default="small", choices=SHAPES)
parser.add_argument("--prompts", type=lambda text: [tuple(map(int, one.split("x"))) for one in text.split(",")])
parser.add_argument("--loads", type=lambda text: list(map(int, text.split(","))))
options, sys.argv[1:] = parser.parse_known_args()
SHAPE, HERE = options.shape, SHAPES[options.shape]
if options.prompts:
    HERE.prompts, HERE.long_prompts = options.prompts, ()
if options.loads is not None:
    HERE.loads = options.loads


def model_folder():
    """The shape's folder, made once."""
    folder = os.path.join(MODELS, f"{SHAPE}-{zlib.crc32(' '.join(HERE.flags).encode()):08x}")
    if not os.path.exists(folder):
        os.makedirs(MODELS, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=MODELS) as scratch:
            made = os.path.join(scratch, SHAPE)
            subprocess.run([os.path.join(BIN, "foretoken"), "model", "init-random", made, *HERE.flags, "--seed", str(SEED), "--tokenizer",
                            "demo", "--positions", str(POSITIONS)], check=True, stdout=subprocess.DEVNULL)
            os.rename(made, folder)
    return folder


def log_lines(system, name, text):
    with open(os.path.join(system.folder, f"{name}.log"), errors="replace") as log:
        return [line for line in log if text in line]


class TimedClient(Client):
    """Notes when each map came."""

    def pump(self, timeout=0.05):
        for reply in super().pump(timeout):
            reply["at"] = time.monotonic()
            yield reply


class Busy:
    """Loops that take the cores; they end with this process, however it ends."""

    LOOP = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100000))"

    def __init__(self, count):
        self.count, self.loops = count, []

    def __enter__(self):
        self.loops = [subprocess.Popen([sys.executable, "-c", self.LOOP]) for _ in range(self.count)]

    def __exit__(self, *error):
        for loop in self.loops:
            loop.kill()
            loop.wait()


class Witness:
    """A thread that wakes twenty times a second, as a service's thread for heartbeats does: how late it ever was says whether this
    machine let idle threads run at all."""

    def __init__(self):
        self.worst, self.done = 0.0, threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        before = time.monotonic()
        while not self.done.wait(0.05):
            now = time.monotonic()
            self.worst = max(self.worst, now - before - 0.05)
            before = now

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.done.set()
        self.thread.join()


def gaps_of(maps):
    """When each token of a stream came, and how long after the one before. A token that ends within a character comes with
    the next one, so a map of two tokens whose text has such a character is two steps."""
    told = [(m["at"], 1 if m["text"].isascii() else len(m["token_ids"])) for m in maps if m["token_ids"]]
    return [(at, (at - before) / n) for (before, _), (at, n) in zip(told, told[1:])]


def prompt(length, number):
    chance = random.Random(f"{SEED} {length} {number}")
    return [chance.randrange(100, DRAFT_TOKENS) for _ in range(length)]


def request(length, number, tenant, **more):
    """Tenants keep prefix caches apart, so that the same prompt is read again in each run."""
    sampled = {"temperature": 0.8, "top_p": 0.95, "seed": number} if number % 2 else {"temperature": 0.0}
    return dict(token_ids=prompt(length, number), max_tokens=12, ignore_eos=True, tenant=tenant, stream=True, timeout_ms=3_600_000,
                **sampled, **more)


class Sizes(unittest.TestCase):
    def system_of(self, *names, targets=1, drafts=1):
        system = System(HERE.settings, target_model=model_folder()).__enter__()
        self.addCleanup(lambda: system.__exit__(AssertionError if self.failed() else None, None, None))
        system.start(*names)
        system.wait_ready(targets=targets, drafts=drafts, patience=HERE.patience)
        return system

    def setUp(self):
        self.said, self.n_asked = [], 0
        self.addCleanup(lambda: print("\n".join(self.said), flush=True))

    def failed(self):
        return bool(self._outcome.result.failures or self._outcome.result.errors)

    def run_alone(self, client, length, numbers):
        """Plain decoding, one at a time: what every other run must say."""
        truth = {}
        for number in numbers:
            maps = client.wait(client.send(request(length, number, "alone", num_draft_tokens=0)), HERE.patience)
            truth[length, number] = text_of(maps)
        return truth

    def migrations(self, client):
        return sum(float(line.split()[-1]) for line in client.ask(op="metrics")["metrics_text"].split("\n")
                   if line.startswith("foretoken_request_migrations_total"))

    def test_long_prompts_beside_others_and_busy_cores_change_nothing_and_no_service_is_gone(self):
        with Witness() as witness:
            self.long_prompts_beside_others(witness)

    def long_prompts_beside_others(self, witness):
        system = self.system_of("router", "tokenizer", "draft", "target")
        client = TimedClient(system)
        self.addCleanup(client.close)
        everything = HERE.prompts + list(HERE.long_prompts)
        truth = {}
        for length in sorted({length for length, _ in everything}):
            most = max(count for other, count in everything if other == length)
            truth |= self.run_alone(client, length, range(most))
        different, streams, long_gaps, compared, cached = [], [], [], 0, 0
        for load in HERE.loads:
            for length, count in HERE.prompts + (list(HERE.long_prompts) if load == 0 else []):
                with Busy(load):
                    case = f"{SHAPE}, {load} busy, {count} of {length} tokens"
                    stream = client.send(request(32, 0, case, proposer="none") | {"max_tokens": POSITIONS - 64})
                    wait_for(lambda: list(client.pump()) and len(client.inbox[stream]) > 12, "a stream in its stride", HERE.patience)
                    begun = time.monotonic()
                    ids = [client.send(request(length, number, case)) for number in range(count)]
                    drafted = 0
                    for number, one in enumerate(ids):
                        maps = client.wait(one, HERE.patience)
                        compared += 1
                        if "error" in maps[-1]:
                            different.append((case, number, maps[-1]["error"]))
                        elif text_of(maps) != truth[length, number]:
                            different.append((case, number, text_of(maps)))
                        else:
                            cached += maps[-1]["usage"]["cached_tokens"]
                            drafted += maps[-1]["metrics"]["speculative_decoding"]["num_draft_tokens"] > 0
                    took = time.monotonic() - begun
                    client.send({"op": "cancel"}, stream)
                    maps = client.wait(stream, HERE.patience)
                if "error" in maps[-1]:
                    different.append((case, "stream", maps[-1]["error"]))
                    continue
                gaps = gaps_of(maps)
                normal = statistics.median(gap for when, gap in gaps if when < begun)
                longest = max(gap for when, gap in gaps if when >= begun)
                if not HERE.settings and longest > 3 * normal + MAX_STEP_S:
                    long_gaps.append((case, longest, normal))
                streams.append([t for m in maps for t in m["token_ids"]])
                self.said.append(f"{case}: {took:.1f} s, {drafted} of {count} drafted, the stream beside them: longest gap "
                                 f"{1000 * longest:.0f} ms, its normal step {1000 * normal:.0f} ms")
        gone = log_lines(system, "router", "worker gone")
        self.said.append(f"{compared} answers, {len(different)} differ, {len(gone)} services gone, {self.migrations(client):.0f} moves; "
                         f"a thread of this test that only sleeps was {1000 * witness.worst:.0f} ms late at most")
        self.assertEqual([], different, "answers that are not those of plain decoding alone")
        if witness.worst < STARVED_S:
            self.assertEqual([], gone, "services reported gone")
            self.assertEqual(0, self.migrations(client))
            self.assertEqual(0, cached, "each prompt is to be read")
            self.assertEqual([], long_gaps, "gaps of a stream, in seconds, and its step before the prompts")
        else:
            self.said.append("services reported gone and gaps are not judged: other programs of this machine took all processor time")
        longest = max(streams, key=len)
        self.assertEqual([], [i for i, one in enumerate(streams) if one != longest[:len(one)]], "streams that differ")
        system.assert_alive()

    def in_the_middle_of_a_prefill(self, system, client, victim):
        """Sends a long prompt; returns its request when the target has worked on it for a while and has said nothing yet."""
        length = max(length for length, _ in HERE.prompts)
        for _ in range(20):  # where this test got no processor time, the prompt may have been read before it looks
            self.n_asked += 1
            before = {name: system.cpu_ticks(name) for name in system.processes if name.startswith("target")}
            one = client.send(request(length, 0, f"asked {self.n_asked}"))
            # A tenth of the processor time that the target needed for the same prompt alone.
            wait_for(lambda: any(system.cpu_ticks(name) - ticks > self.ticks / 10 for name, ticks in before.items()), "a target that works",
                     HERE.patience)
            list(client.pump(0))
            if not client.inbox[one]:
                return one
            client.wait(one, HERE.patience)
        self.fail(f"{victim} is to be met while the prompt is being read")

    def truth_of_the_longest(self, system, client):
        length = max(length for length, _ in HERE.prompts)
        before = {name: system.cpu_ticks(name) for name in system.processes if name.startswith("target")}
        truth = self.run_alone(client, length, [0])[length, 0]
        self.ticks = max(system.cpu_ticks(name) - ticks for name, ticks in before.items())
        return truth

    def test_a_target_or_a_draft_killed_or_stopped_in_the_middle_of_a_prefill_changes_nothing(self):
        system = self.system_of("router", "tokenizer", "draft", "target")
        client = TimedClient(system)
        self.addCleanup(client.close)
        truth = self.truth_of_the_longest(system, client)
        for victim, how in (("target", "kill"), ("target", "stop"), ("draft", "kill"), ("draft", "stop")) * HERE.turns:
            one = self.in_the_middle_of_a_prefill(system, client, victim)
            begun = time.monotonic()
            if how == "kill":
                system.kill(victim)
                system.start(victim)
            else:
                os.killpg(system.processes[victim].pid, signal.SIGSTOP)
                end = time.monotonic() + HERE.stop_s
                while time.monotonic() < end:
                    list(client.pump())
                os.killpg(system.processes[victim].pid, signal.SIGCONT)
            maps = client.wait(one, HERE.patience)
            self.said.append(f"{SHAPE}, {how} {victim}: answered {time.monotonic() - begun:.1f} s later, "
                             f"{self.migrations(client):.0f} moves so far")
            self.assertEqual(truth, text_of(maps))
            system.wait_ready(patience=HERE.patience)


if __name__ == "__main__":
    unittest.main(verbosity=2)
