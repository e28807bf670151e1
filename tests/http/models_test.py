"""Two models behind one door, under load: a seeded request has one answer of each model, whatever guesses, whatever else is asked and
however it is read. FORETOKEN_TEST_REQUESTS: how many of each model."""

import concurrent.futures
import os
import pathlib
import random
import sys
import tempfile
import unittest

import openai

from edge_system import SPECULATION, EdgeSystem

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
import tiny_model  # noqa: E402

COUNT = int(os.environ.get("FORETOKEN_TEST_REQUESTS", "40"))
SIDE_BY_SIDE = 12
QUESTION = [{"role": "user", "content": "Tell me of the cat that sat on the mat."}]
SMALL = ("kv_cache.memory=128MiB", "draft.memory=64MiB", "target.threads=1", "draft.threads=1", "speculation.adaptive=false")


class Models(unittest.TestCase):
    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="ftk-two-"))
        tiny = tiny_model.write_model(os.path.join(folder, "tiny"), seed=1)
        guessing = tiny_model.write_model(os.path.join(folder, "tiny-draft"), seed=1, noise=0.05)
        tables = {"demo": (ROOT / "models/demo-target", ROOT / "models/demo-draft"), "tiny": (tiny, guessing)}
        self.system = EdgeSystem(SMALL, target_model="of each model")
        self.system.settings = [setting for setting in self.system.settings if not setting.startswith("model.")]
        self.system.settings += [f"model.{name}.{key}={value}" for name, pair in tables.items() for key, value in zip(("target", "draft"), pair)]
        self.system.settings.append("router.default_model=demo")
        self.enterContext(self.system)
        self.system.start("router", "edge", *(f"{service}-{name}-0" for name in tables for service in ("tokenizer", "draft", "target")))
        self.system.wait_ready(targets=2, drafts=2)
        self.client = openai.OpenAI(base_url=self.system.base, api_key="none", timeout=300, max_retries=8)
        self.enterContext(self.client)

    def ask(self, model, number):
        """Text and cause of the end, of the request that is the same each time but for what may not matter."""
        guesses = list(SPECULATION.values())[number % len(SPECULATION)]
        reply = self.client.chat.completions.create(
            model=model, messages=QUESTION, seed=11, temperature=0.8, max_tokens=24, stream=number % 2 == 0, extra_body={"speculation": guesses})
        if number % 2:
            return reply.choices[0].message.content, reply.choices[0].finish_reason
        chunks = [chunk.choices[0] for chunk in reply if chunk.choices]
        return "".join(choice.delta.content or "" for choice in chunks), chunks[-1].finish_reason

    def ask_for_something_else(self, dice):
        words = " ".join(dice.choice(("cat", "snow", "in", "winter", "42")) for _ in range(dice.randint(1, 60)))
        self.client.completions.create(model=dice.choice(("demo", "tiny")), prompt=words, max_tokens=dice.randint(1, 40))

    def test_a_seeded_request_has_one_answer_of_each_model(self):
        dice = random.Random(17)
        with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            asked = {name: [] for name in ("demo", "tiny")}
            others = []
            for number in range(COUNT):
                for name, futures in asked.items():
                    futures.append(pool.submit(self.ask, name, number))
                if number % 4 == 0:
                    others.append(pool.submit(self.ask_for_something_else, random.Random(dice.random())))
            answers = {name: {future.result() for future in futures} for name, futures in asked.items()}
            for other in others:
                other.result()
        for name, texts in answers.items():
            self.assertEqual(1, len(texts), f"{name}: {texts}")
            self.assertGreater(len(next(iter(texts))[0]), 20, name)
        self.assertNotEqual(answers["demo"], answers["tiny"])
        self.system.assert_alive()


if __name__ == "__main__":
    unittest.main()
