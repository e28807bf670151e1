"""Stopping everything cuts no stream: the door closes, what runs ends whole, then the services end, in whatever order they were asked."""
import os
import random
import signal
import unittest

from harness import Client, System, plain_answers, request, text_of, wait_for

STREAMS = int(os.environ.get("FORETOKEN_TEST_STREAMS", "12"))
TOKENS = int(os.environ.get("FORETOKEN_TEST_TOKENS", "1200"))
SEED = int(os.environ.get("FORETOKEN_TEST_SEED", "20261122"))
# More than any machine needs here: a drain ends when its work does, and a test that needs all of it has failed.
SETTINGS = ["limits.drain_s=120"]


class Drain(unittest.TestCase):
    def system_of(self, *names, settings=SETTINGS, **ready):
        system = System(settings=settings).__enter__()
        self.addCleanup(lambda: system.__exit__(*(self._outcome.result.failures and (AssertionError, None, None) or (None, None, None))))
        system.start(*names)
        system.wait_ready(**ready)
        return system

    def begin(self, system, count=STREAMS):
        """That many streams of which each has begun; with their truth."""
        client = Client(system)
        self.addCleanup(client.close)
        truth = plain_answers(client, count, max_tokens=TOKENS)
        ids = [client.send(request(i, max_tokens=TOKENS, stream=True)) for i in range(count)]
        wait_for(lambda: list(client.pump()) and all(client.inbox[one] for one in ids[:1]), "the first piece")
        return client, truth, ids

    def compare(self, truth, client, ids):
        cut, different = [], []
        for index, (plain, one) in enumerate(zip(truth, ids)):
            maps = client.wait(one, patience=150)
            if "finish_reason" not in maps[-1]:
                cut.append((index, maps[-1]))
            elif text_of(maps) != (plain["text"], plain["token_ids"]):
                different.append(index)
        self.assertEqual(([], []), (cut, different), "cut, other text")

    def end(self, system, names):
        """Each has ended by itself, with 0."""
        codes = {name: system.processes[name].wait(150) for name in names}
        for name in names:
            del system.processes[name]
        self.assertEqual({name: 0 for name in names}, codes)

    def running(self, client, ids):
        return sum(1 for one in ids if not (client.inbox[one] and client.inbox[one][-1]["done"]))

    def test_sigterm_to_all_at_once_in_any_order_cuts_nothing(self):
        """Also of requests that no target has yet: they were accepted."""
        chance = random.Random(SEED)
        names = ["router", "tokenizer", "target", "draft"]
        orders = [["tokenizer", "draft", "target", "router"], chance.sample(names, 4)]
        for order in orders:
            system = self.system_of(*names)
            client, truth, ids = self.begin(system)
            late = [client.send(request(i, max_tokens=64, stream=True)) for i in range(4)]
            # Behind those in the router's queue: when it has answered, they have been accepted.
            client.wait(client.send({"op": "status"}))
            met = self.running(client, ids)
            for name in order:
                os.kill(system.processes[name].pid, signal.SIGTERM)
            self.compare(truth, client, ids)
            for index, one in enumerate(late):
                maps = client.wait(one, patience=150)
                self.assertEqual(truth[index]["token_ids"][:64], text_of(maps)[1], order)
            self.end(system, names)
            self.assertGreater(met, 0, "the signals must meet running streams")
            print(f"{order}: met {met} running streams, none cut")

    def test_the_workers_are_stopped_well_before_the_router(self):
        """As by hand, one after the other: what was accepted before is finished by those that drain."""
        # One at a time, so that most have not ended when the router hears that the workers drain, however fast the machine is.
        system = self.system_of("router", "tokenizer", "target", settings=[*SETTINGS, "limits.max_running=1"], drafts=0)
        client, truth, ids = self.begin(system)
        for name in ("tokenizer", "target"):
            os.kill(system.processes[name].pid, signal.SIGTERM)
        wait_for(lambda: len(system.services("target", "draining")) == 1 and len(system.services("tokenizer", "draining")) == 1,
                 "the router knows")
        list(client.pump(0))
        self.assertGreater(self.running(client, ids), 0)
        os.kill(system.processes["router"].pid, signal.SIGTERM)
        self.compare(truth, client, ids)
        self.end(system, ["router", "tokenizer", "target"])

    def test_of_two_targets_the_one_that_is_stopped_finishes_what_it_runs(self):
        system = self.system_of("router", "tokenizer", "target-0", "target-1", targets=2, drafts=0)
        client, truth, ids = self.begin(system)
        os.kill(system.processes["target-0"].pid, signal.SIGTERM)
        wait_for(lambda: len(system.services("target")) == 1, "it drains")
        new = [client.send(request(i, max_tokens=TOKENS)) for i in range(4)]
        self.compare(truth + truth[:4], client, ids + new)
        self.end(system, ["target-0"])
        moved = [float(line.split()[-1]) for line in client.ask(op="metrics")["metrics_text"].split("\n")
                 if line.startswith("foretoken_request_migrations_total")]
        self.assertEqual(0, sum(moved), "nothing had to move")

    def stuck(self, drain_s):
        """A system with a request that cannot end: its target is stopped."""
        system = self.system_of("router", "tokenizer", "target", settings=[f"limits.drain_s={drain_s}"], drafts=0)
        target = system.processes["target"].pid
        os.kill(target, signal.SIGSTOP)
        self.addCleanup(os.kill, target, signal.SIGCONT)
        client = Client(system)
        self.addCleanup(client.close)
        one = client.send(request(0))
        client.wait(client.send({"op": "status"}))  # it was accepted before this was answered
        return system, client, one

    def test_what_does_not_end_in_time_is_told_so(self):
        system, client, one = self.stuck(drain_s=1)
        os.kill(system.processes["router"].pid, signal.SIGTERM)
        last = client.wait(one)[-1]
        self.assertEqual("draining", last["error"]["code"])
        self.assertGreater(last["error"]["retry_after_ms"], 0)
        self.end(system, ["router"])

    def test_a_second_signal_ends_at_once(self):
        system, _, _ = self.stuck(drain_s=3600)
        router = system.processes["router"].pid
        os.kill(router, signal.SIGTERM)
        with open(os.path.join(system.folder, "router.log")) as log:
            wait_for(lambda: "draining" in log.read(), "the first signal is heard")
        os.kill(router, signal.SIGTERM)
        self.end(system, ["router"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
