"""Equal requests get equal text: retries in the middle of a stream on one connection, requests that name no model, and
targets that want one name for two models."""
import os
import pathlib
import random
import signal
import sys
import unittest

import tiny_model
from harness import PATIENCE, Client, System, plain_answers, request, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients/python"))

import foretoken  # noqa: E402

RETRIES = int(os.environ.get("FORETOKEN_TEST_RETRIES", "40"))  # streams of each kind
TOKENS = 96


def placed(maps):
    """The text and tokens of a stream that was told more than once, as docs/clients.md says to put them together."""
    text, tokens = b"", []
    for answer in maps:
        assert "error" not in answer, answer
        if answer["position"] > len(tokens) or answer["offset"] > len(text):
            assert not answer["done"], answer
            continue  # of a telling whose beginning we did not ask for
        part = answer["text"].encode()
        assert text[answer["offset"]:][:len(part)] == part[:len(text) - answer["offset"]], answer
        text = text[:answer["offset"]] + part + text[answer["offset"] + len(part):]
        tokens = tokens[:answer["position"]] + answer["token_ids"] + tokens[answer["position"] + len(answer["token_ids"]):]
    return text.decode(), tokens


class Retries(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.system = System().__enter__()
        cls.system.start("router", "tokenizer", "draft", "target")
        cls.system.wait_ready()
        client = Client(cls.system)
        cls.truth = plain_answers(client, 8, TOKENS)
        client.close()

    @classmethod
    def tearDownClass(cls):
        cls.system.assert_alive()
        cls.system.__exit__(None, None, None)

    def test_asked_again_on_one_connection_the_places_make_exactly_the_answer(self):
        client, dice, n_again = Client(self.system), random.Random(13), 0
        self.addCleanup(client.close)
        # How many retries find their stream unfinished is a matter of speed: batches go on until a quarter of RETRIES did.
        for begin in range(0, 20 * RETRIES, 8):
            if begin >= RETRIES and n_again > RETRIES // 4:
                break
            asked = []
            for i in range(begin, begin + 8):
                own = os.urandom(16).hex()
                asked.append((i, own, request(i % 8, TOKENS, stream=True)))
                client.send(asked[-1][2], own)
            again = {own: dice.randint(1, 6) for _, own, _ in asked}  # after so many pieces
            told = {own: [] for _, own, _ in asked}

            def complete():
                for answer in client.pump():
                    if answer["id"] in told:  # not the end of an earlier stream once more, whose retry came behind it
                        told[answer["id"]].append(answer)
                for _, own, what in asked:
                    if 0 < again[own] <= len(told[own]) and not told[own][-1]["done"]:
                        again[own] = 0
                        client.send(what, own)
                return all(maps and maps[-1]["done"] for maps in told.values())
            wait_for(complete, "all streams end")
            for i, own, _ in asked:
                # The retry may have come behind the end, which it gets again: both ends are whole.
                ends = [at for at, answer in enumerate(told[own]) if answer["done"]]
                truth = self.truth[i % 8]
                self.assertEqual((truth["text"], truth["token_ids"]), placed(told[own][:ends[0] + 1]), i)
                n_again += sum(answer["position"] == 0 for answer in told[own]) > 1
        self.assertGreater(n_again, RETRIES // 4, "the retries came in the middle")

    def test_the_python_client_leaves_a_stream_and_asks_again_under_its_id(self):
        dice = random.Random(31)
        with foretoken.Client(self.system.client, timeout_s=PATIENCE) as client:
            for i in range(RETRIES):
                parameters, own = request(i % 8, TOKENS), os.urandom(16)
                prompt = parameters.pop("prompt")
                for _ in range(2):
                    stream = client.stream(prompt, request_id=own, **parameters)
                    for _ in range(dice.randint(1, 3)):
                        next(stream, None)
                    stream.close()
                pieces = list(client.stream(prompt, request_id=own, **parameters))
                truth = self.truth[i % 8]
                self.assertEqual(truth["text"], "".join(each.text for each in pieces), i)
                self.assertEqual(truth["token_ids"], client.last_reply.token_ids, i)


class Models(unittest.TestCase):
    def setUp(self):
        self.system = System().__enter__()
        self.addCleanup(lambda: self.system.__exit__(None, None, None))
        self.other = tiny_model.write_model(os.path.join(self.system.folder, "other"), seed=5)

    def start(self, name, *settings):
        """With other settings than the rest."""
        keys = [setting.partition("=")[0] for setting in settings]
        kept = [setting for setting in self.system.settings if setting.partition("=")[0] not in keys]
        usual, self.system.settings = self.system.settings, kept + list(settings)
        self.system.start(name)
        self.system.settings = usual

    def texts(self, client, n=12, **more):
        ids = [client.send(request(0, 24, **more)) for _ in range(n)]
        return {tuple(client.wait(one)[-1]["token_ids"]) for one in ids}

    def test_two_weights_of_one_name_never_serve_together(self):
        self.system.start("router", "tokenizer", "target")
        self.system.wait_ready(drafts=0)
        client = Client(self.system)
        self.addCleanup(client.close)
        truth = self.texts(client)
        self.assertEqual(1, len(truth))
        self.start("target-1", f"model.target={self.other}")
        note = wait_for(lambda: [s["note"] for s in self.system.services("target", "refused") if s["name"] == "target-1"],
                        "target-1 is shown as refused")[0]
        for part in ('"tiny"', "target-0 (model ", "target-1 (model ", "numerics "):
            self.assertIn(part, note)
        self.assertEqual(truth, self.texts(client))
        self.start("target-2")  # equal to the first
        self.system.wait_ready(targets=2, drafts=0)
        self.assertEqual(truth, self.texts(client))
        # The name passes on when those that had it have left.
        self.assertEqual(0, self.system.kill("target-2", signal.SIGTERM))
        self.assertEqual(0, self.system.kill("target", signal.SIGTERM))
        wait_for(lambda: [s for s in self.system.services("target") if s["name"] == "target-1"], "target-1 serves")
        after = self.texts(client)
        self.assertEqual(1, len(after))
        self.assertNotEqual(truth, after)

    def test_a_request_that_names_no_model_is_refused_among_several_or_goes_to_the_configured_one(self):
        self.system.start("router", "tokenizer", "target")
        self.start("target-1", f"model.target={self.other}", "model.name=other")
        self.system.wait_ready(targets=2, drafts=0)
        client = Client(self.system)
        self.addCleanup(client.close)
        for question in (request(0, 24), {"op": "tokenize", "prompt": "the thing"}):
            refused = client.ask(**question)["error"]
            self.assertEqual(("invalid_value", "model"), (refused["code"], refused["param"]))
            self.assertIn("other, tiny", refused["message"])
        tiny, other = self.texts(client, model="tiny"), self.texts(client, model="other")
        self.assertEqual((1, 1), (len(tiny), len(other)))
        self.assertNotEqual(tiny, other)
        self.system.kill("router")
        self.start("router", "router.default_model=other")
        self.system.wait_ready(targets=1, drafts=0)
        self.assertEqual(other, self.texts(client, 24))
        self.assertEqual(tiny, self.texts(client, model="tiny"))
        self.assertIn("token_ids", client.ask(op="tokenize", prompt="the thing"))


if __name__ == "__main__":
    unittest.main()
