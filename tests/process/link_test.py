"""Links through shared memory between real processes: the text is that of plain decoding on every tier, whichever side is killed or lies,
and nothing is left behind."""
import fcntl
import mmap
import os
import random
import re
import select
import signal
import socket
import struct
import subprocess
import time
import unittest

import msgpack
import zmq
from harness import BIN, Client, System, free_port, plain_answers, request, text_of, wait_for

KILLS = int(os.environ.get("FORETOKEN_TEST_KILLS", "8"))
STREAMS = 8
SEED = int(os.environ.get("FORETOKEN_TEST_SEED", "20261121"))
LINK_ASK, LINK_OFFER, LINK_OPEN, PROPOSE = 70, 71, 72, 65


class MemoryPeer:
    """The other end of a link, by hand: a region of our own, sealed, and the peer's to read. docs/protocol.md has the layout."""
    HEAD, RING = 4096, 4096

    def __init__(self, connection):
        self.connection = connection
        self.written = self.number = self.read_bytes = 0
        file = os.memfd_create("peer", os.MFD_ALLOW_SEALING)
        os.ftruncate(file, self.HEAD + self.RING)
        self.own = mmap.mmap(file, self.HEAD + self.RING)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self.file = file

    def say_hello(self):
        socket.send_fds(self.connection, [b"FTKNSHM1" + struct.pack("<II", self.RING, 0)], [self.file])

    def hear_hello(self):
        message, files, _, _ = socket.recv_fds(self.connection, 16, 1)
        assert message[:8] == b"FTKNSHM1" and len(files) == 1, message
        self.other_ring = struct.unpack_from("<I", message, 8)[0]
        self.other = mmap.mmap(files[0], self.HEAD + self.other_ring, prot=mmap.PROT_READ)
        os.close(files[0])

    def write(self, parts):
        payload = struct.pack("<I", len(parts)) + b"".join(struct.pack("<I", len(p)) for p in parts) + b"".join(parts)
        record = struct.pack("<II", len(payload), self.number) + payload
        record += bytes(-len(record) % 8)
        for i, byte in enumerate(record):
            self.own[self.HEAD + (self.written + i) % self.RING] = byte
        self.number += 1
        self.written += len(record)
        struct.pack_into("<Q", self.own, 0, self.written)
        self.ring_bell()

    def read(self):
        """Parts of the next message, or nothing."""
        if struct.unpack_from("<Q", self.other, 0)[0] == self.read_bytes:
            return None
        at = lambda offset, n: bytes(self.other[self.HEAD + (self.read_bytes + offset + i) % self.other_ring] for i in range(n))
        length = struct.unpack("<I", at(0, 4))[0]
        payload = at(8, length)
        n = struct.unpack_from("<I", payload)[0]
        sizes, offset, parts = struct.unpack_from(f"<{n}I", payload, 4), 4 + 4 * n, []
        for size in sizes:
            parts.append(payload[offset:offset + size])
            offset += size
        self.read_bytes += (8 + length + 7) // 8 * 8
        struct.pack_into("<Q", self.own, 64, self.read_bytes)
        return parts

    def ring_bell(self):
        try:
            self.connection.send(b"!", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            pass

    def scribble(self, chance):
        for _ in range(chance.randrange(1, 200)):
            where = chance.randrange(256) if chance.random() < 0.3 else chance.randrange(self.HEAD + self.RING)
            self.own[where] = chance.randrange(256)
        self.ring_bell()

    def is_cut(self, patience):
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if select.select([self.connection], [], [], 0.05)[0]:
                try:
                    if self.connection.recv(4096) == b"":
                        return True
                except ConnectionError:
                    return True
        return False


def frames_of(kind, body, sender, incarnation):
    packed = msgpack.packb(body)
    return [struct.pack("<4sBBHIIQQQQQ", b"FTKN", 1, 0, kind, 0, len(packed), 0, 0, sender, incarnation, 1), packed]


def kind_of(header):
    return struct.unpack_from("<H", header, 6)[0]


class Links(unittest.TestCase):
    def system(self, *settings):
        system = System(settings=settings).__enter__()
        self.addCleanup(lambda: system.__exit__(*(self._outcome.result.failures and (AssertionError, None, None) or (None, None, None))))
        return system

    def links(self, system):
        return {s["name"]: s["links"] for s in system.services("target")}

    def linked(self, system, text):
        wait_for(lambda: self.links(system).get("target-0") == text, f"target-0 says {text!r}")

    def metric(self, client, name, service):
        text = client.ask(op="metrics")["metrics_text"]
        found = [line for line in text.split("\n") if line.startswith(name) and f'"{service}"' in line]
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)

    def sent_beside(self, client, service):
        return sum(float(line.rsplit(" ", 1)[1]) for line in client.ask(op="metrics")["metrics_text"].split("\n")
                   if line.startswith("foretoken_memory_links_total") and 'event="sent"' in line and f'"{service}"' in line)

    def same_as_plain(self, system, count=STREAMS, max_tokens=256, expect_guesses=True):
        """Texts are equal each time; on a busy machine a short run may end before the draft has said anything."""
        if expect_guesses:
            return wait_for(lambda: self.compare_once(system, count, max_tokens), "guesses that were accepted")
        return self.compare_once(system, count, max_tokens)

    def compare_once(self, system, count, max_tokens):
        client = Client(system)
        truth = plain_answers(client, count, max_tokens)
        ids = [client.send(request(i, max_tokens, stream=True, proposer="draft")) for i in range(count)]
        guessed = 0
        for plain, one in zip(truth, ids):
            maps = client.wait(one, patience=120)
            self.assertEqual((plain["text"], plain["token_ids"]), text_of(maps))
            guessed += maps[-1]["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"]
        client.close()
        return guessed

    def log(self, system, name):
        with open(os.path.join(system.folder, f"{name}.log"), errors="replace") as lines:
            return lines.read()

    # ---- tiers

    def test_every_tier_gives_the_plain_text_and_is_shown(self):
        for choice, shown in (("auto", "shared_memory"), ("shared_memory", "shared_memory"), ("zeromq", "zeromq")):
            with self.subTest(choice):
                system = self.system(f"target.draft_link={choice}")
                system.start("router", "tokenizer", "draft", "target")
                system.wait_ready()
                self.linked(system, f"draft-0 {shown}")
                self.same_as_plain(system)
                client = Client(system)
                for service in ("draft-0", "target-0"):
                    sent = self.sent_beside(client, service)
                    (self.assertEqual if shown == "zeromq" else self.assertGreater)(sent, 0, service)
                self.assertEqual(1, sum(1 for line in client.ask(op="metrics")["metrics_text"].split("\n")
                                        if line.startswith("foretoken_draft_link{") and f'tier="{shown}"' in line and line.endswith(" 1")))
                client.close()
                self.assertRegex(self.log(system, "target"), rf"link to a draft.*tier=\"?{shown}")
                for name in ("target", "draft", "tokenizer", "router"):
                    self.assertEqual(0, system.kill(name, signal.SIGTERM), name)

    def test_an_unknown_tier_is_refused_at_start(self):
        system = self.system()
        command = [os.path.join(BIN, "foretoken-target"), "--config", "/dev/null"]
        for setting in (*system.settings, "target.draft_link=device_memory"):
            command += ["--set", setting]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual(78, ended.returncode)
        self.assertRegex(ended.stderr, "target.draft_link.*device_memory.*one of: auto, shared_memory, zeromq")

    def test_a_draft_that_the_pinned_tier_does_not_reach_is_not_used(self):
        router, draft = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
        system = self.system(f"bus.router={router}", f'bus.draft=["{draft}"]', "target.draft_link=shared_memory")
        system.start("router", "tokenizer", "target")
        system.settings.append(f"bus.runtime_dir={system.folder}/elsewhere")
        system.start("draft")
        system.wait_ready()
        self.linked(system, "draft-0 none")
        self.assertEqual(0, self.same_as_plain(system, expect_guesses=False))
        wait_for(lambda: re.search("a draft is not used.*bus.runtime_dir", self.log(system, "target")), "the reason in the log")

    def test_another_runtime_directory_means_zeromq_without_a_pin(self):
        router, draft = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
        system = self.system(f"bus.router={router}", f'bus.draft=["{draft}"]')
        system.start("router", "tokenizer", "target")
        system.settings.append(f"bus.runtime_dir={system.folder}/elsewhere")
        system.start("draft")
        system.wait_ready()
        self.linked(system, "draft-0 zeromq")
        self.same_as_plain(system)

    # ---- deaths

    def test_killing_the_draft_again_and_again_changes_nothing(self):
        system = self.system()
        chance = random.Random(SEED)
        system.start("router", "tokenizer", "draft", "target")
        system.wait_ready()
        self.linked(system, "draft-0 shared_memory")
        client = Client(system)
        truth = plain_answers(client, STREAMS, max_tokens=512)
        met = links = 0
        for _ in range(KILLS):
            ids = [client.send(request(i, max_tokens=512, stream=True)) for i in range(STREAMS)]
            # Up to half of what they will say, so that most of them run, however fast the machine is.
            until = chance.randrange(STREAMS * 512 // 2)
            told = lambda: sum(len(each["token_ids"]) for one in ids for each in client.inbox[one])
            wait_for(lambda: list(client.pump(0.002)) and told() > until, "the streams' tokens")
            met += sum(1 for one in ids if not (client.inbox[one] and client.inbox[one][-1]["done"]))
            system.kill("draft")
            system.start("draft")
            for plain, one in zip(truth, ids):
                self.assertEqual((plain["text"], plain["token_ids"]), text_of(client.wait(one, patience=120)))
            self.linked(system, "draft-0 shared_memory")
            links += 1
        self.assertGreater(met, 0, "the kills must meet running streams")
        self.assertNotIn("pins another tier", self.log(system, "target"), "a death is no fault of a setting")
        self.same_as_plain(system)
        print(f"seed {SEED}: {KILLS} kills met {met} running streams; the link came back {links} times")
        client.close()

    def test_a_target_that_is_killed_leaves_nothing_behind(self):
        system = self.system()
        system.start("router", "tokenizer", "draft", "target")
        system.wait_ready()

        def mapped():
            with open(f"/proc/{system.processes['draft'].pid}/maps") as maps:
                return [line for line in maps if "foretoken-link" in line]
        for _ in range(3):  # each time with streams running
            self.linked(system, "draft-0 shared_memory")
            client = Client(system)
            ids = [client.send(request(i, max_tokens=512, stream=True)) for i in range(STREAMS)]
            wait_for(lambda: list(client.pump()), "the first piece")
            self.assertEqual(2, len(mapped()), "one ring a direction")
            system.kill("target")
            wait_for(lambda: not mapped(), "the draft has let go of the memory of the dead target")
            system.start("target")
            for one in ids:
                self.assertIn("finish_reason", client.wait(one, patience=120)[-1])
            client.close()
        names = set(os.listdir(os.path.join(system.folder, "r")))
        self.assertEqual({"router", "router.lock", "draft-0", "draft-0.lock", "draft-0.memory", "draft-0.memory.lock"}, names)

    def test_a_stopped_draft_costs_speed_only(self):
        system = self.system()
        system.start("router", "tokenizer", "draft", "target")
        system.wait_ready()
        self.linked(system, "draft-0 shared_memory")
        os.killpg(system.processes["draft"].pid, signal.SIGSTOP)
        try:
            self.same_as_plain(system, expect_guesses=False)
        finally:
            os.killpg(system.processes["draft"].pid, signal.SIGCONT)
        self.linked(system, "draft-0 shared_memory")
        wait_for(lambda: self.same_as_plain(system, 2, 64, expect_guesses=False) > 0, "speculation again")

    # ---- lies

    def test_a_draft_outlives_a_target_that_scribbles(self):
        chance = random.Random(SEED + 1)
        system = self.system()
        system.start("router", "tokenizer", "draft", "target")
        system.wait_ready()
        self.linked(system, "draft-0 shared_memory")
        for life in range(10):
            control = system.context.socket(zmq.DEALER)
            control.setsockopt(zmq.LINGER, 0)
            control.connect(f"ipc://{system.folder}/r/draft-0")
            control.send_multipart(frames_of(LINK_ASK, [""], 1000 + life, 1))
            self.assertTrue(control.poll(60000))
            header, body = control.recv_multipart()
            self.assertEqual(LINK_OFFER, kind_of(header))
            endpoint, token, _ = msgpack.unpackb(body)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(endpoint.removeprefix("shm://"))
                peer = MemoryPeer(connection)
                peer.say_hello()
                peer.hear_hello()
                peer.write(frames_of(LINK_OPEN, [token], 1000 + life, 1))
                answer = wait_for(peer.read, "the draft's first word")
                self.assertEqual(LINK_OPEN, kind_of(answer[0]))
                for _ in range(20):
                    peer.scribble(chance)
                    time.sleep(0.001)

                def is_cut():  # what was scribbled may have been a record that can be: once more
                    peer.scribble(chance)
                    return peer.is_cut(0.05)
                wait_for(is_cut, "the draft cuts the link")
            control.close()
        system.assert_alive()
        self.linked(system, "draft-0 shared_memory")
        self.same_as_plain(system)

    def test_a_stranger_without_a_token_is_shown_out(self):
        system = self.system()
        system.start("router", "tokenizer", "draft")
        door = os.path.join(system.folder, "r", "draft-0.memory")
        wait_for(lambda: os.path.exists(door), "the door")
        with socket.socket(socket.AF_UNIX) as connection:
            wait_for(lambda: connection.connect_ex(door) == 0, "a listener at the door")
            peer = MemoryPeer(connection)
            peer.say_hello()
            peer.hear_hello()
            peer.write(frames_of(LINK_OPEN, [12345], 7, 8))
            self.assertTrue(peer.is_cut(60))
        system.assert_alive()

    def test_a_target_outlives_a_draft_that_scribbles(self):
        """Another process binds the draft's door and speaks for it: first correctly, then not."""
        chance = random.Random(SEED + 2)
        system = self.system()
        system.start("router", "tokenizer", "draft")
        door = os.path.join(system.folder, "r", "draft-0.memory")
        wait_for(lambda: os.path.exists(door), "the door")
        control = system.context.socket(zmq.DEALER)
        control.setsockopt(zmq.LINGER, 0)
        control.connect(f"ipc://{system.folder}/r/draft-0")
        control.send_multipart(frames_of(LINK_ASK, [""], 99, 1))
        self.assertTrue(control.poll(60000))
        who = struct.unpack_from("<QQ", control.recv_multipart()[0], 32)  # the draft's worker id and incarnation
        control.close()
        os.unlink(door)
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(door)
        listener.listen()
        listener.settimeout(60)
        system.start("target")
        system.wait_ready()
        client = Client(system)
        truth = plain_answers(client, STREAMS, max_tokens=512)
        served = 0
        ids = [client.send(request(i, max_tokens=512, stream=True)) for i in range(STREAMS)]

        def next_call():
            """One that the target has not given up yet: on a busy machine we may come late to the door."""
            while True:
                connection, _ = listener.accept()
                peer = MemoryPeer(connection)
                try:
                    peer.hear_hello()
                    peer.say_hello()
                    return connection, peer
                except ConnectionError:
                    connection.close()
        for _ in range(3):
            connection, peer = next_call()
            opened = wait_for(peer.read, "the target's first word")
            self.assertEqual(LINK_OPEN, kind_of(opened[0]))
            peer.write(frames_of(LINK_OPEN, msgpack.unpackb(opened[1]), *who))
            self.linked(system, "draft-0 shared_memory")
            if not any(client.inbox[one] and not client.inbox[one][-1]["done"] for one in ids):
                ids += [client.send(request(i, max_tokens=512, stream=True)) for i in range(STREAMS)]
            asked = wait_for(peer.read, "a question") if served == 0 else None
            if asked:
                self.assertEqual(PROPOSE, kind_of(asked[0]))
            while not peer.is_cut(0.01):
                peer.scribble(chance)
                list(client.pump(0))
            connection.close()
            served += 1
        listener.close()
        os.unlink(door)
        for index, one in enumerate(ids):
            plain = truth[index % STREAMS]
            self.assertEqual((plain["text"], plain["token_ids"]), text_of(client.wait(one, patience=120)))
        system.assert_alive()
        self.linked(system, "draft-0 zeromq")
        self.same_as_plain(system)
        # What it finds first: a record that cannot be, or a reader ahead of its writer.
        self.assertRegex(self.log(system, "target"), "link to a draft.*zeromq.*(its ring is torn|what was never written)")
        client.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
