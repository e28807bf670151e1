"""Requests that were changed at random, by the thousand: every reply is HTTP and what it claims to be, every connection ends, and
nothing stays behind in any service. FORETOKEN_TEST_MUTATIONS: how many; FORETOKEN_TEST_CASE: one alone, with what is sent and received."""

import asyncio
import os
import random
import socket
import struct
import sys
import unittest

import h11

from edge_system import EdgeSystem, used_blocks
from harness import wait_for
from mutations import case
from replies import Replies

SEED = 20
COUNT = int(os.environ.get("FORETOKEN_TEST_MUTATIONS", "2000"))
ONE = os.environ.get("FORETOKEN_TEST_CASE")
SIDE_BY_SIDE = 48
SILENCE = 0.7  # a client gives up after so long without a byte,
WAITING_SHARE = 0.03  # but for this share, which waits
PATIENCE = 90  # for the end that the server's own limits bring
MOST_GROWTH = 24 << 20  # bytes of one process over half of the cases


async def talk(port, index):
    """One case, to its end. Returns a complaint, or nothing."""
    request, way = case(SEED, index)
    dice = random.Random(index)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    replies = Replies(request.startswith(b"HEAD "))  # whether or not the rest of its first line is good
    received = b""
    try:
        writer.write(request)
        await asyncio.wait_for(writer.drain(), PATIENCE)
        # The second half is for what the first one left behind.
        waits_on = ONE or (index < COUNT // 2 and dice.random() < WAITING_SHARE)
        silence = PATIENCE if waits_on else SILENCE
        while way == "wait":
            try:
                data = await asyncio.wait_for(reader.read(65536), silence)
            except asyncio.TimeoutError:
                return f"no reply and no end within {PATIENCE} s" if silence == PATIENCE else None
            received += data
            if not replies.feed(data):
                return None
        return None
    except (ConnectionResetError, BrokenPipeError):
        return None
    except (h11.RemoteProtocolError, AssertionError, ValueError, UnicodeError) as error:
        return f"{error!r} in {received[-2000:]!r}"
    finally:
        if ONE:
            print(request, "\n->", received)
        if way == "rst" or index % 2:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()


async def talk_all(port, indices):
    waiting, complaints = iter(indices), []

    async def work():
        for index in waiting:
            if complaint := await talk(port, index):
                complaints.append(f"case {index}: {complaint}")
    await asyncio.gather(*(work() for _ in range(SIDE_BY_SIDE)))
    return complaints


class Mutations(unittest.TestCase):
    maxDiff = None

    def test_none_does_harm(self):
        with EdgeSystem(("limits.max_waiting=4096",)) as system:
            system.start_all()
            truth = self.known(system)
            names = list(system.processes)
            before = {name: system.n_descriptors(name) for name in names}
            cases = range(COUNT) if ONE is None else [int(ONE)]
            halves = (cases[:len(cases) // 2], cases[len(cases) // 2:])
            memory = []
            for half in halves:
                complaints = asyncio.run(talk_all(system.port, half))
                self.assertEqual([], complaints[:5], f"{len(complaints)} complaints")
                system.assert_alive()
                self.assertEqual(truth, self.known(system))
                wait_for(lambda: system.status()["requests_active"] == 0, "no request is left")
                wait_for(lambda: used_blocks(system) == 0, "no block is held")
                wait_for(lambda: system.n_connections() <= 1, "no connection is left")  # but the one that asks
                memory.append({name: system.rss(name) for name in names})
            for name in names:
                # One or two more are a matter of the moment, hundreds of connections are not.
                wait_for(lambda name=name: system.n_descriptors(name) <= before[name] + 2, f"{name} has closed its descriptors")
                self.assertLess(memory[1][name] - memory[0][name], MOST_GROWTH, name)
            print(f"{len(cases)} cases; grew in the second half, KiB:",
                  {name: (memory[1][name] - memory[0][name]) >> 10 for name in names})

    def known(self, system):
        status, answer = system.post("/v1/completions", {"model": "tiny", "prompt": "the cat sat", "max_tokens": 8, "temperature": 0})
        self.assertEqual(200, status, answer)
        return answer["choices"][0]["text"]


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
