"""One client beside others: prompts are encoded once each however long they wait, and a request of another tenant goes before
the many that one tenant has waiting. Counts and orders, no times."""
import unittest

from harness import Client, System, plain_answers, request, text_of, wait_for

LONG = ("the thing in there, when snow falls on 1,204 roofs of the village; " * 16_000)[:1_000_000]


class Fairness(unittest.TestCase):
    def setUp(self):
        self.system = System(settings=["limits.max_running=4"]).__enter__()
        self.addCleanup(self.system.__exit__, None, None, None)
        self.system.start("router", "tokenizer", "draft", "target")
        self.system.wait_ready()
        self.client, self.other = Client(self.system), Client(self.system)
        self.addCleanup(self.client.close)
        self.addCleanup(self.other.close)

    def metric(self, name):
        text = self.client.ask(op="metrics")["metrics_text"]
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(f"foretoken_{name}{{"))

    def test_long_prompts_are_encoded_once_each_and_streams_go_on(self):
        alone = text_of(self.client.wait(self.client.send(request(1, stream=True))))
        before = self.metric("tokenizer_prompts_total")
        asked = [self.other.send({"op": "tokenize", "prompt": f"{i} " + LONG[:999_000]}) for i in range(3)]
        n_streams = 0
        while any(not self.other.inbox[one] for one in asked):
            self.assertEqual(alone, text_of(self.client.wait(self.client.send(request(1, stream=True)))))
            n_streams += 1
            for _ in self.other.pump(0.001):
                pass
        for one in asked:
            reply = self.other.wait(one)[-1]
            self.assertEqual(reply["n_tokens"], len(reply["token_ids"]))
            self.assertGreater(reply["n_tokens"], 100_000)
        self.assertEqual(len(asked) + n_streams, self.metric("tokenizer_prompts_total") - before)

    def test_a_prompt_that_was_cancelled_is_not_encoded(self):
        self.client.ask(op="tokenize", prompt="short")  # from now on the router knows which model is meant
        before = self.metric("tokenizer_prompts_unwanted_total")
        gone = Client(self.system)
        for i in range(8):
            gone.send({"op": "tokenize", "prompt": f"{i} " + LONG[:999_000], "timeout_ms": 1})
        for i in range(8):
            self.assertEqual("deadline_exceeded", gone.wait(list(gone.inbox)[0])[-1]["error"]["code"])
        gone.close()
        self.client.ask(op="tokenize", prompt="short")
        self.assertGreater(self.metric("tokenizer_prompts_unwanted_total"), before)

    def test_another_tenant_goes_before_the_many_that_wait(self):
        truth = plain_answers(self.client, 3, max_tokens=32)
        # All over one connection, where answers come in the order in which they ended; and the target begins when all are there.
        with self.system.stopped("target"):
            many = [self.client.send(request(i, max_tokens=400, tenant="many")) for i in range(100)]
            wait_for(lambda: self.system.status()["requests_active"] == 100, "the many are there")
            few = [self.client.send(request(i, max_tokens=32, tenant="few")) for i in range(3)]
            wait_for(lambda: self.system.status()["requests_active"] == 103, "and the few")
        order = []
        wait_for(lambda: order.extend(reply["id"] for reply in self.client.pump()) or len(order) == 103, "all answers", 120)
        before = sum(1 for one in order[:max(order.index(one) for one in few)] if one in many)
        self.assertLess(before, 50, "those that came last were served before most that waited")
        for plain, one in zip(truth, few):
            self.assertEqual(plain["token_ids"], self.client.wait(one)[-1]["token_ids"])
        for one in many:
            self.assertEqual("length", self.client.wait(one)[-1]["finish_reason"])


if __name__ == "__main__":
    unittest.main()
