"""Mixed load for an hour, with a kill every minute: no undocumented error, no changed text, memory and descriptors flat.

Two of each service but the router: the second of each is killed and started again in turns; the first ones and the router live all
along, and their memory is measured. FORETOKEN_TEST_SECONDS makes it shorter (memory is judged from half an hour on)."""
import os
import random
import statistics
import sys
import threading
import time
import unittest

import streams
from streams import HERE, ROOT  # noqa: F401
import foretoken
from harness import Client, System, request, wait_for

SECONDS = float(os.environ.get("FORETOKEN_TEST_SECONDS", "3600"))
SEED = int(os.environ.get("FORETOKEN_TEST_SEED", "20"))
KILL_EVERY_S = float(os.environ.get("FORETOKEN_TEST_KILL_EVERY", "60"))
N_CLIENTS = int(os.environ.get("FORETOKEN_TEST_CLIENTS", "6"))
MOST_BYTES_AN_HOUR = 1 << 20
LASTING = ("router", "tokenizer-0", "draft-0", "target-0")
KILLED = ("draft-1", "target-1", "tokenizer-1")
N_REQUESTS = 48


def listing():
    """The requests of the load, each with a name that says what it is."""
    more = [{}, {"proposer": "ngram"}, {"proposer": "none"}, {"num_draft_tokens": 2}, {"stop": ["the"]},
            {"logprobs": 2}, {"tenant": "a"}, {"prediction": "the winter, when snow fell, the thing in there"}]
    return [request(i, max_tokens=24 + 8 * (i % 6), **more[i % len(more)]) for i in range(N_REQUESTS)]


def slope_an_hour(samples):
    """Theil-Sen: the median of the slopes of all pairs, in bytes an hour. samples: (seconds, bytes)."""
    step = max(1, len(samples) // 200)
    some = samples[::step]
    slopes = [(b - a) / (s - t) for i, (t, a) in enumerate(some) for s, b in some[i + 1:] if s > t]
    return 3600 * statistics.median(slopes) if slopes else 0.0


class Soak(unittest.TestCase):
    def setUp(self):
        os.environ.setdefault("FORETOKEN_TEST_MODELS", os.path.join(ROOT, "models"))
        self.system = System(settings=["target.threads=0", "draft.threads=0", "speculation.adaptive=true"]).__enter__()
        self.addCleanup(self.system.__exit__, None, None, None)
        self.system.start(*LASTING, *KILLED)
        self.system.wait_ready(targets=2, drafts=2, patience=300)
        self.requests = listing()
        with foretoken.Client(self.system.client, timeout_s=600) as client:
            self.truth = [client.generate(**{**r, "num_draft_tokens": 0, "proposer": "none"}) for r in self.requests]
        self.until = time.monotonic() + SECONDS
        self.lock = threading.Lock()
        self.n_done = self.n_left = self.n_refused = 0
        self.wrong = []

    def one(self, client, chance):
        index = chance.randrange(N_REQUESTS)
        asked, kind = dict(self.requests[index]), chance.random()
        if kind < 0.08:  # a client that stops reading its stream: cancelled
            for _ in zip(range(2), client.stream(**asked)):
                pass
            with self.lock:
                self.n_left += 1
            return
        if kind < 0.12:
            try:
                client.generate(**{**asked, "temperature": -1.0})
                self.note(f"request {index}: a negative temperature was taken")
            except foretoken.ForetokenError as error:
                if error.code not in ("invalid_value", "invalid_request"):
                    self.note(f"request {index}: {error}")
            with self.lock:
                self.n_refused += 1
            return
        try:
            if kind < 0.5:
                for _ in client.stream(**asked):
                    pass
                reply = client.last_reply
            else:
                reply = client.generate(**asked)
        except foretoken.ForetokenError as error:
            return self.note(f"request {index}: {error}")
        truth = self.truth[index]
        if (reply.text, reply.token_ids) != (truth.text, truth.token_ids):
            return self.note(f"request {index}: changed: {len(reply.token_ids)} tokens, {len(truth.token_ids)} expected")
        with self.lock:
            self.n_done += 1

    def note(self, words):
        with self.lock:
            self.wrong.append(words)

    def load(self, number):
        chance = random.Random(f"{SEED} {number}")
        while time.monotonic() < self.until:
            with foretoken.Client(self.system.client, timeout_s=600) as client:  # connections come and go as well
                for _ in range(chance.randrange(1, 20)):
                    if time.monotonic() < self.until:
                        self.one(client, chance)

    def n_descriptors(self, name):
        return len(os.listdir(f"/proc/{self.system.processes[name].pid}/fd"))

    def test_an_hour_of_mixed_load_with_a_kill_every_minute(self):
        threads = [threading.Thread(target=self.load, args=(i,)) for i in range(N_CLIENTS)]
        for thread in threads:
            thread.start()
        begin = time.monotonic()
        memory = {name: [] for name in LASTING}
        descriptors = {name: [] for name in LASTING}
        done = []
        next_kill, n_kills = begin + KILL_EVERY_S, 0
        while time.monotonic() < self.until:
            self.system.assert_alive()
            now = time.monotonic()
            for name in LASTING:
                memory[name].append((now - begin, self.system.rss(name)))
                descriptors[name].append(self.n_descriptors(name))
            done.append((now - begin, self.n_done))
            if now >= next_kill:
                name = KILLED[n_kills % len(KILLED)]
                self.system.kill(name)
                self.system.start(name)
                n_kills, next_kill = n_kills + 1, next_kill + KILL_EVERY_S
            time.sleep(2)
        for thread in threads:
            thread.join(900)
            self.assertFalse(thread.is_alive(), "a client still waits")
        print(f"{SECONDS:.0f} s, {n_kills} kills: {self.n_done} answers right, {self.n_left} left by their clients, "
              f"{self.n_refused} refused as they must, {len(self.wrong)} wrong", flush=True)
        # The router keeps the replies of the last minute: its memory follows this rate.
        edges = [done[len(done) * i // 6] for i in range(6)] + [done[-1]]
        print("  right answers a second, by sixths: " +
              ", ".join(f"{(n - m) / max(t - s, 1e-9):.1f}" for (s, m), (t, n) in zip(edges, edges[1:])), flush=True)
        growth = {}
        for name in LASTING:
            settled = [s for s in memory[name] if s[0] > min(1200.0, SECONDS / 3)]
            growth[name] = slope_an_hour(settled)
            half = len(descriptors[name]) // 2
            print(f"  {name}: {settled[-1][1] / 2**20:.1f} MiB, {growth[name] / 2**20:+.2f} MiB an hour; descriptors "
                  f"{statistics.median(descriptors[name][:half])} then {statistics.median(descriptors[name][half:])}", flush=True)
        self.assertEqual([], self.wrong[:10])
        self.assertGreater(self.n_done, 0)
        if SECONDS >= 1800:
            for name in LASTING:
                self.assertLessEqual(growth[name], MOST_BYTES_AN_HOUR, name)
                half = len(descriptors[name]) // 2
                self.assertLessEqual(statistics.median(descriptors[name][half:]),
                                     statistics.median(descriptors[name][:half]) + 2, name)
        client = Client(self.system)

        def idle():
            status = client.ask(op="status")
            services = [s for s in status["services"] if s["state"] == "ready"]
            return all(s["active"] == 0 and s["queued"] == 0 for s in services)
        wait_for(idle, "nothing is left in any service", 120)
        client.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
