"""Mutated frames at every live socket: no service dies, memory stays flat, and the next real request is answered."""
import errno
import os
import random
import time
import struct
import unittest

import msgpack
import zmq
from harness import PATIENCE, Client, System, request, wait_for, wait_while_growing

FRAMES = int(os.environ.get("FORETOKEN_TEST_FRAMES", "20000"))
SEED = int(os.environ.get("FORETOKEN_TEST_SEED", "20261121"))
GROWTH = 24 << 20  # bytes a service may grow: queues that filled once and allocator slack, not a leak


def header(kind, body, sender=7, incarnation=8):
    return struct.pack("<4sBBHIIQQQQQ", b"FTKN", 1, 0, kind, 0, len(body), 1, 2, sender, incarnation, 1)


def real_messages(chance):
    """Valid parts of every message type, with random small bodies."""
    kind = chance.choice([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 32, 33, 34, 35, 36, 37, 38, 39, 40, 48, 49, 50, 51, 64, 65, 66, 67, 68, 69,
                          70, 71, 72])
    values = [0, 1, -1, 2**63, True, None, "x" * chance.randrange(40), b"\x01\x00\x00\x00" * chance.randrange(9), 0.5, [],
              [[1, 2, 3]], chance.randrange(2**32)]
    body = msgpack.packb([chance.choice(values) for _ in range(chance.randrange(20))])
    return [header(kind, body), body]


def mutate(chance, parts):
    parts = [bytearray(part) for part in parts]
    for _ in range(chance.randrange(4)):
        part = chance.choice(parts)
        if not part:
            continue
        at = chance.randrange(len(part))
        what = chance.randrange(4)
        if what == 0:
            part[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            del part[at:]
        elif what == 2:
            part[at:at] = os.urandom(0) + bytes(chance.randrange(256) for _ in range(chance.randrange(16)))
        else:
            part[at:at + 1] = chance.choice([b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdf\x7f\xff\xff\xff", b"\x91" * 40])
    if chance.randrange(50) == 0:
        parts = parts * chance.randrange(1, 6)
    return [bytes(part) for part in parts]


def client_maps(chance):
    base = {"prompt": "the thing", "max_tokens": 1}
    key = chance.choice(["prompt", "messages", "token_ids", "max_tokens", "temperature", "stop", "seed", "stream", "op", "request_id",
                         "logit_bias", "proposer", "num_draft_tokens", "timeout_ms", "bad_words", "x" * 200])
    value = chance.choice([None, -1, 2**64 - 1, 1e308, float("nan"), "", "\u0000", [], {}, [[]], {"a": {"b": []}}, "cancel", "status", True])
    if value == "generate":
        value = 3
    return [msgpack.packb({**base, key: value})]


class Garbage(unittest.TestCase):
    def setUp(self):
        self.system = System().__enter__()
        self.addCleanup(lambda: self.system.__exit__(None, None, None))
        self.system.start("router", "tokenizer", "draft", "target")
        self.system.wait_ready()

    def grown(self, name, before):
        """Bytes above `before`, once what waited behind the flood is worked off and given back (the loop trims every 5 s)."""
        try:
            wait_for(lambda: self.system.rss(name) - before < GROWTH, f"{name} gives back what the flood took")
        except AssertionError:
            pass
        return self.system.rss(name) - before

    def counted(self, client, family, service):
        """0 if the service did not answer in time."""
        lines = client.ask(op="metrics")["metrics_text"].split("\n")
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines
                   if line.startswith(f"foretoken_{family}{{") and f'service="{service}"' in line)

    def new_socket(self):
        try:
            return self.system.context.socket(zmq.DEALER)
        except zmq.ZMQError as error:
            if error.errno != errno.EMFILE:
                raise
            return None

    def throw(self, endpoint, make, count, chance):
        """64 frames per connection, as an impatient attacker would."""
        sent = 0
        while sent < count:
            # Closed sockets live on until their frames are taken, and a context of libzmq has 1,023 at most.
            socket = wait_for(self.new_socket, "room for another connection")
            socket.setsockopt(zmq.LINGER, int(2000 * PATIENCE))  # a service of a busy machine takes them late
            socket.setsockopt(zmq.SNDTIMEO, 5000)
            socket.connect(endpoint)
            for _ in range(64):
                parts = mutate(chance, make(chance))
                try:
                    socket.send_multipart(parts if parts else [b""])
                except zmq.Again:
                    break
                sent += 1
            while socket.poll(0):
                socket.recv_multipart()
            socket.close()
        return sent

    def impersonate(self, role, make, count, chance):
        """A router for those who connect to one: the worker gets nonsense from the peer it trusts."""
        system = System()
        system.__enter__()
        self.addCleanup(lambda: system.__exit__(None, None, None))
        os.makedirs(f"{system.folder}/r", mode=0o700, exist_ok=True)
        router = system.context.socket(zmq.ROUTER)
        router.setsockopt(zmq.LINGER, 0)
        self.addCleanup(router.close)
        router.bind(f"ipc://{system.folder}/r/router")
        system.start(role)
        self.assertTrue(router.poll(60000), f"{role} says hello")
        peer = router.recv_multipart()[0]
        grown_from = None
        for i in range(count):
            router.send_multipart([peer] + mutate(chance, make(chance)))
            if i % 256 == 0:
                while router.poll(0):
                    router.recv_multipart()
                system.assert_alive()
            if i == count // 5:
                grown_from = system.rss(role)
        wait_for(lambda: router.poll(1000) and router.recv_multipart(), f"{role} still speaks")
        system.assert_alive()
        self.assertLess(system.rss(role) - grown_from, GROWTH, f"{role} grew")
        return count

    def test_mutated_frames_change_no_other_answer(self):
        chance = random.Random(SEED)
        folder = self.system.folder
        doors = [(self.system.client, client_maps), (self.system.client, real_messages), (f"ipc://{folder}/r/router", real_messages),
                 (f"ipc://{folder}/r/draft-0", real_messages)]
        client = Client(self.system)  # first: later there may be no room for its socket until the others are gone
        warm = {}
        for part in (0, 1):
            for endpoint, make in doors:
                self.throw(endpoint, make, max(64, FRAMES // 20 if part == 0 else FRAMES - FRAMES // 20), chance)
                self.system.assert_alive()
            for name in self.system.processes:
                if part == 0:
                    warm[name] = self.system.rss(name)
                else:
                    self.assertLess(self.grown(name, warm[name]), GROWTH, f"{name} grew")
        reply = client.ask(**request(0, max_tokens=8))
        self.assertEqual(8, len(reply["token_ids"]), reply)
        # They did arrive, and were seen for what they are: all but the few that are a message by chance, once what waits is worked off.
        for family, service, n_doors in (("bad_requests_total", "router-0", 2), ("frames_dropped_total", "router-0", 1),
                                         ("frames_dropped_total", "draft-0", 1)):
            least = 0.98 * n_doors * FRAMES
            wait_while_growing(lambda: self.counted(client, family, service), least, f"{family} of {service} above {least:.0f}")
        client.close()

    def test_a_legal_request_of_any_size_changes_no_other_answer(self):
        client = Client(self.system)

        def refused(param, code="invalid_value", **what):
            error = client.ask(**what).get("error", {})
            self.assertEqual((code, param), (error.get("code"), error.get("param")), error)
            self.system.assert_alive()

        for text in ("\x01" * 1_000_000, '"' * 600_000):  # as JSON six and two bytes each
            for op in ("generate", "tokenize"):
                refused("messages", op=op, messages=[{"role": "user", "content": text}])
        refused("token_ids", op="detokenize", token_ids=[5] * 348_000)
        ids = client.ask(op="tokenize", prompt="something else entirely", add_special_tokens=False)["token_ids"]
        texts = {one: client.ask(op="detokenize", token_ids=[one] * 2)["text"] for one in ids}
        longest = max(texts, key=lambda one: len(texts[one]))
        n = 262_144
        if n * len(texts[longest]) > 2 * (1 << 20):
            refused("token_ids", op="detokenize", token_ids=[longest] * n)
        reply = client.ask(op="detokenize", token_ids=[longest] * (n // 16))
        self.assertEqual(n // 16, reply["n_tokens"], str(reply)[:200])
        self.assertEqual(8, len(client.ask(**request(0, max_tokens=8))["token_ids"]))
        self.system.assert_alive()
        client.close()

    def test_workers_survive_a_router_that_talks_nonsense(self):
        chance = random.Random(SEED + 1)
        for role in ("tokenizer", "draft", "target"):
            self.impersonate(role, real_messages, max(1000, FRAMES), chance)

    def test_a_frame_that_announces_sixteen_gibibytes_is_cut(self):
        import socket as plain
        host, port = self.system.client[len("tcp://"):].split(":")
        before = self.system.rss("router")
        for announced in (1 << 34, 1 << 62):
            with plain.create_connection((host, int(port))) as raw:
                # ZMTP 3.0 greeting, NULL mechanism, READY, then a long frame that never comes
                raw.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31))
                raw.recv(64)
                ready = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00"
                raw.sendall(b"\x04" + bytes([len(ready)]) + ready + b"\x02" + struct.pack(">Q", announced) + b"x" * 1000)
                raw.settimeout(60)
                try:
                    while raw.recv(4096):
                        pass
                except ConnectionError:
                    pass
        self.system.assert_alive()
        self.assertLess(self.system.rss("router") - before, 4 << 20)
        client = Client(self.system)
        self.assertEqual(8, len(client.ask(**request(0, max_tokens=8))["token_ids"]))
        client.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
