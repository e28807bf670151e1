"""foretoken-draft --memory as a process: the test is router and target. It answers with what the same tenant's texts went on with, keeps
them on the disk, and answers the same after a kill."""
import os
import struct
import unittest

import msgpack
import zmq
from harness import Client, System, request, wait_for

ATTACH, PROPOSAL, CLOSE = 64, 66, 68
MASK = (1 << 64) - 1
PARAMS = [1.0, 0, 1.0, 0.0, 1.0, 0.0, 0.0, [], [], 0, 0, 16, 0, b"", False, -1]


def mix(x):
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & MASK
    x = (x ^ x >> 27) * 0x94d049bb133111eb & MASK
    return x ^ x >> 31


def hash_of(tokens):
    prefix = 0
    for token in tokens:
        prefix = mix(prefix ^ (token * 0x9E3779B97F4A7C15 + 1 & MASK))
    return prefix


def ids(tokens):
    return struct.pack(f"<{len(tokens)}i", *tokens)


class Memory(unittest.TestCase):
    def setUp(self):
        self.system = System().__enter__()
        self.addCleanup(lambda: self.system.__exit__(None, None, None))
        self.system.settings.append(f"memory.folder={self.system.folder}/texts")
        os.makedirs(f"{self.system.folder}/r", mode=0o700)
        self.router = self.socket(zmq.ROUTER)
        self.router.bind(f"ipc://{self.system.folder}/r/router")
        self.n_sent = 0
        self.start()

    def socket(self, kind):
        socket = self.system.context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        self.addCleanup(socket.close)
        return socket

    def start(self):
        self.system.start("draft-memory")
        self.assertTrue(self.router.poll(60000), "the memory says hello")
        self.hello = msgpack.unpackb(self.router.recv_multipart()[2])
        while self.router.poll(0):
            self.router.recv_multipart()
        self.door = self.socket(zmq.DEALER)
        self.door.connect(self.hello[2])

    def restart(self):
        self.system.kill("draft-memory")
        self.door.close()
        while self.router.poll(100):
            self.router.recv_multipart()
        self.start()

    def send(self, kind, body):
        packed = msgpack.packb(body, use_single_float=True)
        self.n_sent += 1
        self.door.send_multipart([struct.pack("<4sBBHIIQQQQQ", b"FTKN", 1, 6, kind, 0, len(packed), 0, 0, 71, 72, self.n_sent), packed])

    def attach(self, seq, tokens, salt=0, budget=4):
        self.send(ATTACH, [seq, 1, self.hello[3][0], 0, self.hello[4], PARAMS, 1, ids(tokens), hash_of(tokens), budget, salt, 0, b""])

    def guesses(self, seq, tokens, salt=0):
        """The chain and its runners-up."""
        self.attach(seq, tokens, salt, budget=16)
        self.assertTrue(self.door.poll(60000), "it answers")
        head, packed = self.door.recv_multipart()
        self.assertEqual(PROPOSAL, struct.unpack_from("<H", head, 6)[0])
        record = msgpack.unpackb(packed)[0][0]
        self.assertEqual((seq, 1, len(tokens), hash_of(tokens)), (*record[0:2], *record[3:5]))
        self.send(CLOSE, [seq, 1])
        return list(struct.unpack(f"<{len(record[5]) // 4}i", record[5]))

    def n_logged(self):
        return sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(f"{self.system.folder}/texts")
                   for name in names if name.endswith(".log"))

    def test_says_that_it_is_no_model_and_answers_after_a_kill_as_before(self):
        self.assertEqual(("draft-memory", "memory", 1), (self.hello[1], self.hello[5], self.hello[23]))
        self.assertGreater(self.hello[7], 100)
        text = [(7 * i * i + 3 * i) % 90 for i in range(200)]
        self.attach(1, text[:150], salt=11, budget=0)
        self.send(CLOSE, [1, 1, 140, ids(text[140:])])  # the last round's tokens come with the end
        before = {place: self.guesses(place, text[place - 20:place], salt=11) for place in range(20, 190, 17)}
        self.assertEqual(text[173:189], before[173][:16])
        self.assertEqual([], self.guesses(300, text[20:40], salt=13), "another tenant")
        self.assertEqual([], self.guesses(301, text[20:40]), "no tenant")
        # A header for each of three tenants; the text, what was asked with, which is a text too, and an end of each.
        n_asked = len(before)
        expected = 3 * 32 + 4 * (200 + 20 * (n_asked + 2)) + 16 * (3 + 2 * (n_asked + 2))
        wait_for(lambda: self.n_logged() == expected, "all is written")
        self.restart()
        # What was asked with is remembered as well, and later: it ends where guesses begin, so it adds none.
        self.assertEqual(before, {place: self.guesses(place, text[place - 20:place], salt=11) for place in before})
        self.assertEqual([], self.guesses(300, text[40:60], salt=13), "another tenant")
        self.assertEqual(0o700, os.stat(f"{self.system.folder}/texts").st_mode & 0o777)

    def test_a_folder_that_cannot_be_used_is_a_warning(self):
        self.system.kill("draft-memory")
        self.door.close()
        with open(f"{self.system.folder}/file", "w"):
            pass
        self.system.settings[-1] = f"memory.folder={self.system.folder}/file/texts"
        self.start()
        self.attach(1, [1, 2, 3, 4], budget=0)
        self.assertEqual([3, 4], self.guesses(2, [1, 2]))
        with open(f"{self.system.folder}/draft-memory.log") as log:
            self.assertIn("texts are not kept for the next start (memory.folder)", log.read())


class MemoryBesideATarget(unittest.TestCase):
    def test_the_same_request_again_is_guessed_and_its_text_stays(self):
        system = System().__enter__()
        self.addCleanup(lambda: system.__exit__(None, None, None))
        system.start("router", "tokenizer", "draft-memory", "target")
        system.wait_ready()
        client = Client(system)
        self.addCleanup(client.close)
        first, plain = client.ask(**request(3, max_tokens=60, proposer="memory")), client.ask(**request(3, max_tokens=60, proposer="none"))
        self.assertEqual(plain["text"], first["text"])

        # How many come in time is a matter of speed.
        def is_guessed():
            again = client.ask(**request(3, max_tokens=60, proposer="memory"))
            self.assertEqual(plain["text"], again["text"])
            return again["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"] > 10
        wait_for(is_guessed, "guesses from the memory are accepted")


if __name__ == "__main__":
    unittest.main()
