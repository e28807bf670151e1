"""A draft that speaks the protocol and lies: its guesses are never right, or its records are malformed. Texts stay as they
are; the target sets it aside, `ps` names it, and another draft does the guessing."""
import os
import random
import re
import struct
import subprocess
import threading
import unittest

import msgpack
import zmq
from harness import BIN, Client, System, free_port, plain_answers, request, wait_for

HELLO, HEARTBEAT, ATTACH, PROPOSE, PROPOSAL = 1, 3, 64, 65, 66
TOKENS = 64


def ids(tokens):
    return struct.pack(f"<{len(tokens)}i", *tokens)


class Liar:
    """A draft in a thread of its own. It echoes the hash of what it gets, so its records are of the right place."""

    def __init__(self, system, hello, guess):
        self.system, self.guess, self.n_records = system, guess, 0
        self.worker, self.incarnation, self.n_sent = random.getrandbits(63), random.getrandbits(63), 0
        self.endpoint = f"tcp://127.0.0.1:{free_port()}"
        self.hello = [*hello]
        self.hello[1:3] = ["draft-9", self.endpoint]
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def frames(self, kind, body):
        packed = msgpack.packb(body)
        self.n_sent += 1
        return [struct.pack("<4sBBHIIQQQQQ", b"FTKN", 1, 0, kind, 0, len(packed), 0, 0, self.worker, self.incarnation, self.n_sent), packed]

    def run(self):
        context = self.system.context
        door, router = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        for socket in (door, router):
            socket.setsockopt(zmq.LINGER, 0)
        door.bind(self.endpoint)
        router.connect(f"ipc://{self.system.folder}/r/router")
        router.send_multipart(self.frames(HELLO, self.hello))
        while not self.over.is_set():
            router.send_multipart(self.frames(HEARTBEAT, [0, 0, 0, 0, 0, False]))
            while router.poll(0):
                router.recv_multipart()
            while door.poll(100):
                peer, head, *parts = door.recv_multipart()
                records = self.answers(struct.unpack_from("<H", head, 6)[0], msgpack.unpackb(parts[0], strict_map_key=False))
                if records:
                    self.n_records += len(records)
                    door.send_multipart([peer, *self.frames(PROPOSAL, [records])])
                if self.over.is_set():
                    break
                router.send_multipart(self.frames(HEARTBEAT, [0, 0, 0, 0, 0, False]))
        for socket in (door, router):
            socket.close()

    def answers(self, kind, body):
        if kind == ATTACH:
            seq, lease, known, prefix, budget = body[0], body[1], len(body[7]) // 4, body[8], body[9]
            return [[seq, lease, 0, known, prefix, ids(self.guess(budget)), b"", b"\xff" * budget, known]] if budget else []
        if kind == PROPOSE:
            told = [(seq, lease, epoch, begin + len(tail) // 4, prefix, budget)
                    for seq, lease, epoch, begin, tail, prefix, budget in body[0] if budget]
            return [[seq, lease, epoch, known, prefix, ids(self.guess(budget)), b"", b"\xff" * budget, known]
                    for seq, lease, epoch, known, prefix, budget in told]
        return []

    def end(self):
        self.over.set()
        self.thread.join(30)


class LyingDraft(unittest.TestCase):
    def setUp(self):
        self.system = System().__enter__()
        self.addCleanup(lambda: self.system.__exit__(None, None, None))
        hello = self.hello_of_a_draft()
        self.n_ids = hello[7]
        self.hello = hello
        self.system.start("router", "tokenizer", "target")
        self.system.wait_ready(drafts=0)
        self.client = Client(self.system)
        self.addCleanup(self.client.close)
        self.truth = plain_answers(self.client, 8, TOKENS)

    def hello_of_a_draft(self):
        """What the real one says of itself, with the vocabulary's fingerprint."""
        os.makedirs(f"{self.system.folder}/r", mode=0o700, exist_ok=True)
        router = self.system.context.socket(zmq.ROUTER)
        router.setsockopt(zmq.LINGER, 0)
        router.bind(f"ipc://{self.system.folder}/r/router")
        self.system.start("draft")
        self.assertTrue(router.poll(60000), "the draft says hello")
        body = msgpack.unpackb(router.recv_multipart()[2])
        self.system.kill("draft")
        router.close()
        return body

    def note(self):
        status = self.system.status()
        return next((s["note"] for s in status["services"] if s["name"] == "draft-9"), "") if status else ""

    def drafted(self, n):
        """The texts of n requests, which must be those of plain decoding, and how many guesses of theirs were accepted."""
        asked = [(i % 8, self.client.send(request(i % 8, TOKENS, num_draft_tokens=8))) for i in range(n)]
        answers = [(i, self.client.wait(one)[-1]) for i, one in asked]
        for i, answer in answers:
            self.assertEqual(self.truth[i]["token_ids"], answer["token_ids"])
        return sum(answer["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"] for _, answer in answers)

    def check_set_aside(self, guess, reason):
        liar = Liar(self.system, self.hello, guess)
        self.addCleanup(liar.end)
        wait_for(lambda: self.system.services("draft"), "the liar is registered")

        def named():
            self.drafted(4)
            return re.search("set aside by target-0: " + reason + r"; tried again in \d+ s", self.note())
        wait_for(named, "the liar is named")
        shown = subprocess.run([os.path.join(BIN, "foretoken"), "ps", "--config", "/dev/null", "--set", f"bus.client={self.system.client}",
                                "--set", f"bus.runtime_dir={self.system.folder}/r"], capture_output=True, text=True, check=True).stdout
        self.assertRegex(shown, "draft-9 .*set aside by target-0: " + reason)

        def pause_left():
            found = re.search(r"tried again in (\d+) s", self.note())
            return int(found[1]) if found else None
        for _ in range(10):  # a pause may end meanwhile on a slow machine
            before, n_records = pause_left(), liar.n_records
            self.drafted(8)
            after = pause_left()
            if before is not None and after is not None and after <= before:
                self.assertEqual(n_records, liar.n_records, "it is asked for nothing more")
                break
        else:
            self.fail("no pause was longer than eight requests")
        self.system.start("draft")
        wait_for(lambda: self.drafted(2) > 0, "a draft that does not lie is used")
        self.assertIn("foretoken_drafts_aside", self.client.ask(op="metrics")["metrics_text"])

        def is_set_aside():
            self.drafted(4)
            return "set aside" in self.note()
        wait_for(is_set_aside, "the liar is still, or again, set aside")

    def test_guesses_that_are_never_right(self):
        # Plain decoding ends no text, so the end token is wrong each time.
        self.check_set_aside(lambda budget: [self.n_ids - 1] * budget, r"\d of \d{4} proposals accepted")

    def test_records_that_are_malformed(self):
        self.check_set_aside(lambda budget: [self.n_ids + 7] * budget, r"\d\d+ malformed records")


if __name__ == "__main__":
    unittest.main()
