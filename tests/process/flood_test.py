"""Clients that flood the router with heartbeats of libzmq on and vanish: it lives, keeps its memory, and serves the others.

Seconds of flood and busy loops beside it: FORETOKEN_TEST_FLOOD_S, FORETOKEN_TEST_FLOOD_LOOPS."""
import os
import random
import subprocess
import sys
import time
import unittest

from harness import Client, System, plain_answers, request, text_of

SECONDS = float(os.environ.get("FORETOKEN_TEST_FLOOD_S", "6"))
LOOPS = int(os.environ.get("FORETOKEN_TEST_FLOOD_LOOPS", "1"))
SEED = 20261122
# What the router may hold for these clients: 64 MiB of answers that wait; for each of 64 clients that have vanished and not been
# cleared, and of the 9 that flood, 128 answers of 1.2 KB inside libzmq and as many bytes of questions (20 MiB); its threads' queues
# (12,288 messages, 18 MiB). Twice that, for the holes that a heap keeps.
MOST_BYTES = 2 * (64 + 20 + 18) << 20
HERE = os.path.dirname(os.path.abspath(__file__))


class Flood(unittest.TestCase):
    def setUp(self):
        self.system = System().__enter__()
        self.addCleanup(lambda: self.system.__exit__(None, None, None))
        self.system.start("router", "tokenizer", "draft", "target")
        self.system.wait_ready()
        self.children = []
        self.addCleanup(lambda: [self.end(child) for child in list(self.children)])

    def spawn(self, *words):
        child = subprocess.Popen([sys.executable, *words], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.children.append(child)
        return child

    def end(self, child):
        child.kill()
        child.wait()
        self.children.remove(child)

    def flooder(self, kind, seed):
        host, port = self.system.client[len("tcp://"):].split(":")
        return self.spawn(os.path.join(HERE, "flooding_client.py"), kind, host, port, str(seed))

    def test_a_flood_with_heartbeats_that_vanishes_ends_no_service(self):
        chance = random.Random(SEED)
        client = Client(self.system)
        truth = plain_answers(client, 4)
        before = self.system.rss("router")
        most = before
        self.flooder("raw", SEED)
        for _ in range(LOOPS):
            self.spawn("-c", "while True: pass")
        served = vanished = 0
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            library = self.flooder("library", chance.randrange(1000))
            one = client.send(request(served % 4, stream=True))
            self.assertEqual(truth[served % 4]["text"], text_of(client.wait(one))[0])
            served += 1
            time.sleep(chance.uniform(0.2, 1.0))  # how long that one floods: a fault's length, not a wait for a fact
            self.end(library)
            vanished += 1
            self.system.assert_alive()
            most = max(most, self.system.rss("router"))
        print(f"{SECONDS:.0f} s, {LOOPS} busy loops: {vanished} clients killed, {served} streams served beside them; "
              f"router {before >> 20} MiB before, {most >> 20} MiB at most")
        self.assertGreater(vanished, SECONDS / 60)
        self.assertLess(most - before, MOST_BYTES)
        client.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
