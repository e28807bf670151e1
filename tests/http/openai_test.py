"""OpenAI's own Python client against real services, with every proposer: equal answers, joined streams, typed errors."""

import math
import random
import sys
import unittest

import openai

from edge_system import SPECULATION, EdgeSystem, without_times

PROMPT = [{"role": "user", "content": "the cat sat on the mat and the cat"}]


class OpenAi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.system = EdgeSystem().__enter__()
        cls.addClassCleanup(lambda: cls.system.__exit__(None, None, None))
        cls.system.start_all()
        cls.client = openai.OpenAI(base_url=cls.system.base, api_key="any", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.system.assert_alive()

    def chat(self, how="off", **more):
        return self.client.chat.completions.create(model="tiny", messages=PROMPT, extra_body={"speculation": SPECULATION[how]},
                                                   **{"max_tokens": 24, "seed": 5, **more})

    def text(self, how="off", **more):
        return self.client.completions.create(model="tiny", extra_body={"speculation": SPECULATION[how]},
                                              **{"prompt": "the cat sat", "max_tokens": 24, "seed": 5, **more})

    def assert_equal_for_all(self, call, **request):
        answers = {how: without_times(call(how, **request).model_dump()) for how in SPECULATION}
        self.assertEqual(answers["off"], answers["draft"])
        self.assertEqual(answers["off"], answers["ngram"])
        return answers["off"]

    def test_whole_answers_are_equal_with_every_proposer(self):
        for request in ({"temperature": 0}, {"temperature": 0.9, "top_p": 0.9}, {"n": 3, "temperature": 1},
                        {"logprobs": True, "top_logprobs": 3}, {"logit_bias": {"200": 5}, "presence_penalty": 1, "frequency_penalty": 0.5},
                        {"stop": ["e", "zzz"]}):
            with self.subTest(request=request):
                answer = self.assert_equal_for_all(self.chat, **request)
                self.assertEqual(request.get("n", 1), len(answer["choices"]))
        for request in ({"temperature": 0}, {"n": 2, "best_of": 2}, {"prompt": ["one two", "three"], "n": 2}, {"prompt": [5, 6, 7]},
                        {"prompt": [[5], [6, 7]]}, {"logprobs": 2}, {"echo": True}):
            with self.subTest(request=request):
                self.assert_equal_for_all(self.text, **request)

    def test_a_stream_joins_to_the_whole_answer(self):
        for how in SPECULATION:
            for request in ({"temperature": 0}, {"n": 2, "temperature": 1}, {"logprobs": True, "top_logprobs": 2}):
                with self.subTest(how=how, request=request):
                    whole = self.chat(how, **request)
                    parts = list(self.chat(how, stream=True, stream_options={"include_usage": True}, **request))
                    self.assertEqual(1, len({(part.id, part.created) for part in parts}))
                    for choice in whole.choices:
                        own = [part.choices[0] for part in parts if part.choices and part.choices[0].index == choice.index]
                        self.assertEqual("assistant", own[0].delta.role)
                        self.assertEqual(choice.message.content, "".join(part.delta.content or "" for part in own))
                        self.assertEqual([None] * (len(own) - 1) + [choice.finish_reason], [part.finish_reason for part in own])
                        if request.get("logprobs"):
                            joined = [entry for part in own if part.logprobs for entry in part.logprobs.content]
                            self.assertEqual(choice.logprobs.content, joined)
                    self.assertEqual(([], whole.usage.completion_tokens), (parts[-1].choices, parts[-1].usage.completion_tokens))

    def test_the_helper_for_streams_gives_the_whole_answer(self):
        whole = self.chat(temperature=0)
        with self.client.chat.completions.stream(model="tiny", messages=PROMPT, max_tokens=24, seed=5, temperature=0) as stream:
            with self.assertRaises(openai.LengthFinishReasonError) as caught:  # how the helper says that max_tokens ended it
                stream.get_final_completion()
        self.assertEqual(whole.choices[0].message.content, caught.exception.completion.choices[0].message.content)

    def test_a_text_stream_joins_too(self):
        whole = self.text(logprobs=1, echo=True)
        parts = [part.choices[0] for part in self.text("draft", logprobs=1, echo=True, stream=True)]
        self.assertEqual(whole.choices[0].text, "".join(part.text for part in parts))
        self.assertEqual(whole.choices[0].logprobs.tokens, [token for part in parts for token in part.logprobs.tokens])
        offsets = whole.choices[0].logprobs.text_offset
        self.assertEqual(offsets, [at for part in parts for at in part.logprobs.text_offset])
        self.assertEqual((0, len("the cat sat")), (offsets[0], offsets[whole.usage.prompt_tokens]))

    def test_log_probabilities_say_what_they_are_of(self):
        content = self.chat(logprobs=True, top_logprobs=5, temperature=0).choices[0].logprobs.content
        for entry in content:
            self.assertEqual(5, len(entry.top_logprobs))
            self.assertEqual((entry.token, entry.logprob), (entry.top_logprobs[0].token, entry.top_logprobs[0].logprob))
            self.assertEqual(entry.bytes, list(bytes(entry.bytes)))
            self.assertLess(sum(math.exp(each.logprob) for each in entry.top_logprobs), 1 + 1e-6)
        self.assertEqual([], self.chat(logprobs=True).choices[0].logprobs.content[0].top_logprobs)
        self.assertIsNone(self.chat().choices[0].logprobs)

    def test_answer_i_is_the_same_for_every_n(self):
        three, two = (self.chat(n=n, temperature=1).choices for n in (3, 2))
        self.assertEqual([choice.message for choice in two], [choice.message for choice in three[:2]])
        self.assertGreater(len({choice.message.content for choice in three}), 1)

    def test_usage_counts_what_was_delivered(self):
        answer = self.chat(n=2)
        self.assertEqual(48, answer.usage.completion_tokens)
        self.assertEqual(answer.usage.prompt_tokens + 48, answer.usage.total_tokens)
        self.assertEqual(self.chat().usage.prompt_tokens, answer.usage.prompt_tokens)
        self.assertEqual("length", answer.choices[0].finish_reason)

    def test_continuous_usage_runs_along_with_the_stream(self):
        options = {"include_usage": True, "continuous_usage_stats": True}
        for call in (self.chat, self.text):
            for how in SPECULATION:
                with self.subTest(call=call.__name__, how=how):
                    counts = [part.usage for part in call(how, n=2, stream=True, stream_options=options)]
                    completion = [count.completion_tokens for count in counts]
                    self.assertEqual(sorted(completion), completion)
                    self.assertGreater(completion[0], 0)
                    self.assertLess(completion[0], completion[-1])
                    self.assertEqual(completion[-1], completion[-2], "the last chunk of a choice has all of it")
                    self.assertEqual({counts[-1].prompt_tokens}, {count.prompt_tokens for count in counts})
                    self.assertEqual([count.prompt_tokens + count.completion_tokens for count in counts], [count.total_tokens for count in counts])

    def test_models_are_listed_and_looked_up(self):
        self.assertIn("tiny", [model.id for model in self.client.models.list()])
        self.assertEqual(("tiny", 2048), (self.client.models.retrieve("tiny").id, self.client.models.retrieve("tiny").max_model_len))
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.models.retrieve("../etc/passwd")
        self.assertEqual("model_not_found", caught.exception.code)

    def test_errors_have_their_class_and_name_the_field(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.chat.completions.create(model="other", messages=PROMPT)
        self.assertEqual(("model_not_found", "model"), (caught.exception.code, caught.exception.param))
        for field, value in (("temperature", -1), ("top_p", 7), ("n", 99), ("max_tokens", 0), ("stop", ["x" * 300]), ("seed", "s")):
            with self.subTest(field=field), self.assertRaises(openai.BadRequestError) as caught:
                self.chat(**{field: value})
            self.assertEqual(("invalid_value", field), (caught.exception.code, caught.exception.param))
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(max_tokens=1_000_000)
        self.assertEqual("context_length_exceeded", caught.exception.code)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(tools=[{"type": "function", "function": {"name": "f"}}])
        self.assertEqual(("unsupported_parameter", "tools"), (caught.exception.code, caught.exception.param))

    def test_a_stream_that_is_left_early_ends_its_request(self):
        for _ in range(8):
            stream = self.chat(stream=True, max_tokens=400)
            next(iter(stream))
            stream.close()
        self.assertEqual(24, self.chat().usage.completion_tokens)

    def test_random_requests_have_one_answer_whatever_guesses(self):
        dice = random.Random(17)
        for _ in range(25):
            request = {"max_tokens": dice.randint(1, 40), "seed": dice.getrandbits(63), "temperature": dice.choice([0, 0.5, 1, 1.5]),
                       "top_p": dice.choice([1, 0.8]), "n": dice.choice([1, 1, 2]), "stop": dice.choice([None, ["a"], ["th", " o"]]),
                       "presence_penalty": dice.choice([0, 1.5]), "frequency_penalty": dice.choice([0, -0.5])}
            with self.subTest(request=request):
                self.assert_equal_for_all(self.chat, **request)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
