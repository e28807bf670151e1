"""A client that does not read its streams: the router holds a bound of bytes for it, ends its requests in words, frees their blocks,
and serves the others; one that only pauses for a moment loses nothing."""
import time
import unittest

import zmq
from harness import Client, System, plain_answers, request, text_of, wait_for

TOKENS = 1800
STREAMS = 12
# Pieces with 20 log probabilities are some 3 KB: each stream has five megabytes to say.
HEAVY = dict(stream=True, logprobs=20, num_draft_tokens=0)
MOST_BYTES = 40 << 20  # 4 MiB waiting, queues of 128 pieces, and the heap around them


class SlowReader(unittest.TestCase):
    def setUp(self):
        self.system = System().__enter__()
        self.addCleanup(lambda: self.system.__exit__(None, None, None))
        self.system.start("router", "tokenizer", "target")
        self.system.wait_ready(drafts=0)

    def reluctant(self):
        """A client whose own buffers take next to nothing."""
        client = Client(self.system)
        client.socket.close()
        client.socket = self.system.context.socket(zmq.DEALER)
        for option, value in ((zmq.LINGER, 0), (zmq.RCVHWM, 1), (zmq.RCVBUF, 4096)):
            client.socket.setsockopt(option, value)
        client.socket.connect(self.system.client)
        self.addCleanup(client.close)
        return client

    def blocks(self):
        [target] = self.system.services("target")
        return target["kv_blocks_free"], target["kv_blocks_total"], target["active"]

    def test_one_that_reads_nothing_is_cut_at_a_bound_and_the_others_are_served(self):
        other = Client(self.system)
        self.addCleanup(other.close)
        truth = plain_answers(other, 1)
        before = self.system.rss("router")
        slow = self.reluctant()
        with self.system.stopped("target"):  # or some might have been cut before all are there
            ids = [slow.send(request(i, max_tokens=TOKENS, **HEAVY)) for i in range(STREAMS)]
            wait_for(lambda: self.system.status()["requests_active"] == STREAMS, "its streams run")
        most = before

        def all_ended():
            nonlocal most
            self.system.assert_alive()
            most = max(most, self.system.rss("router"))
            [beside] = [other.ask(**request(0))]
            self.assertEqual(truth[0]["text"], beside["text"])
            return self.system.status()["requests_active"] == 0
        wait_for(all_ended, "its requests end", 240)
        wait_for(lambda: self.blocks()[2] == 0, "the target has closed them")
        self.assertLess(most - before, MOST_BYTES)
        # What it finds when it reads at last: an end of each request, in words or whole.
        errors = 0
        for one in ids:
            last = slow.wait(one)[-1]
            if "error" in last:
                self.assertEqual("cancelled", last["error"]["code"])
                self.assertIn("too slowly", last["error"]["message"])
                errors += 1
        print(f"{errors} of {STREAMS} requests were ended; router {before >> 20} MiB before, {most >> 20} MiB at most")
        self.assertGreater(errors, 0)

    def test_one_that_pauses_for_a_moment_loses_nothing(self):
        client = self.reluctant()
        truth = plain_answers(client, 4, max_tokens=400)
        ids = [client.send(request(i, max_tokens=400, stream=True)) for i in range(4)]
        for _ in range(10):
            time.sleep(0.3)  # the pause itself
            for _ in client.pump(0):
                pass
        for plain, one in zip(truth, ids):
            self.assertEqual(plain["text"], text_of(client.wait(one))[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
