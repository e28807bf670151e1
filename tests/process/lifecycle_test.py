"""Services come and go: any start order, draining on SIGTERM, exit codes."""
import itertools
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from harness import BIN, Client, System, plain_answers, request, text_of, wait_for


class Lifecycle(unittest.TestCase):
    def fresh(self, **options):
        system = System(**options).__enter__()
        self.addCleanup(lambda: system.__exit__(None, None, None))
        return system

    def test_any_start_order_gets_ready(self):
        orders = list(itertools.permutations(["router", "tokenizer", "draft", "target"]))
        slowest = 0.0
        for order in random.Random(1).sample(orders, 6) + [("target", "draft", "tokenizer", "router")]:
            system = self.fresh()
            for name in order:
                system.start(name)
                time.sleep(0.15)  # apart, so that the order is the order
            slowest = max(slowest, system.wait_ready())
            client = Client(system)
            self.assertEqual(4, len(client.ask(**request(0, max_tokens=4))["token_ids"]), order)
            client.close()
            system.__exit__(None, None, None)
        print(f"slowest: {slowest:.1f} s")

    def test_what_cannot_be_started_with_is_said_in_a_sentence(self):
        def router(*words):
            with tempfile.TemporaryDirectory(prefix="ftk-") as folder:
                done = subprocess.run([os.path.join(BIN, "foretoken-router"), "--config", "/dev/null", "--set", f"bus.runtime_dir={folder}",
                                       "--set", f"bus.client=ipc://{folder}/client", *words], capture_output=True, text=True,
                                      timeout=60)
            return done.returncode, done.stderr
        code, said = router("--id", "-1")
        self.assertEqual(64, code)
        self.assertIn('must be 1 to 32 letters, digits, - or _, and not begin with -; it is "-1"', said)
        code, said = router("--set", "bus.runtime_dir=/proc/sys/fs")  # may not be written to, by root either
        self.assertEqual(75, code)
        self.assertIn("/proc/sys/fs/router.lock cannot be opened", said)
        self.assertIn("needs a folder that can be written to (bus.runtime_dir)", said)

    def test_sigterm_to_a_target_finishes_what_runs_and_exits_zero(self):
        system = self.fresh()
        system.start("router", "tokenizer", "draft", "target")
        system.wait_ready()
        client = Client(system)
        truth = plain_answers(client, 8, max_tokens=1500)
        ids = [client.send(request(i, max_tokens=1500, stream=True)) for i in range(8)]
        wait_for(lambda: list(client.pump()) and all(client.inbox[one] for one in ids), "a piece of every stream")
        codes = []
        thread = threading.Thread(target=lambda: codes.append(system.kill("target", signal.SIGTERM)))
        thread.start()
        for plain, one in zip(truth, ids):
            self.assertEqual(plain["text"], text_of(client.wait(one))[0])
        thread.join()
        self.assertEqual([0], codes)
        client.close()

    def test_sigterm_to_the_router_answers_what_runs_and_refuses_new_requests(self):
        system = self.fresh(settings=["limits.max_running=1", "limits.drain_s=120"])
        system.start("router", "tokenizer", "target")
        system.wait_ready(drafts=0)
        client = Client(system)
        one = client.send(request(0, max_tokens=1900, stream=True, num_draft_tokens=0))
        # One at a time: some have not ended when the router is asked to stop, however quick the first one was.
        more = [client.send(request(i, max_tokens=1900, num_draft_tokens=0)) for i in range(1, 5)]
        wait_for(lambda: list(client.pump()), "the first piece")
        target = system.processes["target"].pid
        os.kill(target, signal.SIGSTOP)  # or all might end before the next request comes
        codes = []
        thread = threading.Thread(target=lambda: codes.append(system.kill("router", signal.SIGTERM)))
        thread.start()
        refused = []

        def is_refused():
            two = client.send(request(1, max_tokens=4))
            end = time.monotonic() + 0.1
            while time.monotonic() < end and not client.inbox[two]:
                list(client.pump(0.01))
            refused.extend(one["error"]["code"] for one in client.inbox[two] if "error" in one)
            return refused

        try:
            wait_for(is_refused, "a refusal")
        finally:
            os.kill(target, signal.SIGCONT)
        self.assertEqual("draining", refused[0])
        maps = client.wait(one)
        self.assertEqual(1900, len(text_of(maps)[1]))
        self.assertEqual([1900] * len(more), [len(client.wait(each)[-1]["token_ids"]) for each in more])
        thread.join()
        self.assertEqual([0], codes)
        client.close()

    def test_every_idle_service_exits_zero_on_sigterm(self):
        system = self.fresh()
        names = ["router", "tokenizer", "draft", "target"]
        system.start(*names)
        system.wait_ready()
        for name in reversed(names):
            self.assertEqual(0, system.kill(name, signal.SIGTERM), name)

    def test_a_drained_draft_leaves_without_a_trace(self):
        system = self.fresh()
        system.start("router", "tokenizer", "draft-0", "draft-1", "target")
        system.wait_ready(drafts=2)
        client = Client(system)
        truth = plain_answers(client, 16, max_tokens=512)
        ids = [client.send(request(i, max_tokens=512, stream=True)) for i in range(16)]
        wait_for(lambda: list(client.pump()), "the first piece")
        self.assertEqual(0, system.kill("draft-0", signal.SIGTERM))
        for plain, one in zip(truth, ids):
            self.assertEqual(plain["text"], text_of(client.wait(one))[0])
        wait_for(lambda: len(system.services("draft")) == 1, "one draft left")
        client.close()

    def test_a_second_router_on_the_same_address_says_so_and_ends(self):
        system = self.fresh()
        system.start("router")
        wait_for(lambda: system.status(), "the router")
        system.start("router-1")
        process = system.processes.pop("router-1")
        self.assertIn(process.wait(60), (75, 78))


if __name__ == "__main__":
    unittest.main(verbosity=2)
