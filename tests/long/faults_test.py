"""Two hundred streams of the demo pair, default heartbeats: beside twenty busy loops, and while each service is killed or stopped.

Every text is that of an undisturbed run; the figures are printed. FORETOKEN_TEST_STREAMS and FORETOKEN_TEST_TOKENS make it shorter."""
import os
import random
import signal
import time
import unittest

import streams
from streams import Streams, busy_loops, compare, count_in_log, percentile, run_streams
from harness import System, request, wait_for

N_STREAMS = int(os.environ.get("FORETOKEN_TEST_STREAMS", "200"))
N_TOKENS = int(os.environ.get("FORETOKEN_TEST_TOKENS", "96"))
SEED = int(os.environ.get("FORETOKEN_TEST_SEED", "13"))
STOPPED_S = 5.0


def requests(count=N_STREAMS, tokens=N_TOKENS):
    return [request(i, max_tokens=tokens) for i in range(count)]


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ.setdefault("FORETOKEN_TEST_MODELS", os.path.join(streams.ROOT, "models"))
        with cls.system() as system:
            cls.truth = run_streams(system.client, requests())
        errors, _, words = compare(cls.truth, cls.truth)
        assert errors == 0, words

    @staticmethod
    def system(targets=1):
        system = System(settings=["target.threads=0", "draft.threads=0", "speculation.adaptive=true"])
        names = ["router", "tokenizer", "draft"] + [f"target-{i}" for i in range(targets)]
        system.start(*names)
        try:
            system.wait_ready(targets=targets, patience=300)
        except BaseException:
            system.__exit__(AssertionError, None, None)
            raise
        return system

    def check(self, what, results):
        errors, changed, words = compare(self.truth, results)
        print(f"{what}: {len(results)} streams, {errors} errors, {changed} changed{words}", flush=True)
        self.assertEqual((0, 0), (errors, changed), what)

    def test_two_hundred_streams_beside_twenty_busy_loops(self):
        with self.system() as system, busy_loops(20):
            self.check("20 busy loops", run_streams(system.client, requests()))
            gone = count_in_log(system, "router", "worker gone")
            print(f"  {gone} services reported gone", flush=True)
            self.assertEqual(0, gone)

    def test_sigterm_to_all_with_sixty_four_streams_cuts_none(self):
        """Default limits.drain_s. Not every one has begun: what the router holds was accepted, too."""
        with self.system() as system:
            running = Streams(system.client, requests()[:64])
            wait_for(lambda: running.n_begun() >= 8, "the first streams", 300)
            # Behind them in the router's queue: when it has answered, they have been accepted.
            system.status()
            met = running.n_running()
            for process in system.processes.values():
                os.kill(process.pid, signal.SIGTERM)
            results = running.wait()
            self.assertGreater(met, 48, "it must meet running streams")
            self.check(f"SIGTERM to all, {met} running", results)

    def disturb(self, role, which, targets):
        chance = random.Random(f"{SEED} {role} {which}")
        with self.system(targets) as system:
            running = Streams(system.client, requests())
            wait_for(lambda: running.n_begun() >= 8, "the first streams", 300)
            time.sleep(chance.uniform(0.0, 0.5))
            met = running.n_running()
            name = "target-0" if role == "target" else role
            at = time.monotonic()
            if which == "SIGKILL":
                system.kill(name)
                if targets == 1:
                    system.start(name)
            else:
                os.killpg(system.processes[name].pid, signal.SIGSTOP)
                time.sleep(STOPPED_S)
                os.killpg(system.processes[name].pid, signal.SIGCONT)
            results = running.wait()
            self.assertGreater(met, 0, "it must meet running streams")
            self.check(f"{which} of the {role}, {met} running", results)
            gaps = [r.longest_gap(at, at + STOPPED_S) for r in results if r.times and r.times[0] < at <= r.times[-1]]
            print(f"  longest gap of {len(gaps)} streams that had begun: p50 {percentile(gaps, 0.5):.2f} s, "
                  f"p99 {percentile(gaps, 0.99):.2f} s", flush=True)


def add(role, which, targets=1):
    def test(self):
        self.disturb(role, which, targets)
    setattr(Faults, f"test_{which.lower()}_of_the_{role}_with_{targets}_targets", test)


for role in ("draft", "tokenizer", "router", "target"):
    for which in ("SIGKILL", "SIGSTOP"):
        add(role, which)
for which in ("SIGKILL", "SIGSTOP"):
    add("target", which, targets=2)

if __name__ == "__main__":
    unittest.main(verbosity=2)
