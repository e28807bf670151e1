"""Clients that came from Triton: generate and generate_stream with BLS fields, and tritonclient's questions about health."""

import json
import sys
import unittest

import tritonclient.http
import tritonclient.utils

from edge_system import EdgeSystem

PROMPT = "the cat sat on the mat"


class Triton(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.system = EdgeSystem().__enter__()
        cls.addClassCleanup(lambda: cls.system.__exit__(None, None, None))
        cls.system.start_all()
        cls.client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{cls.system.port}")

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.system.assert_alive()

    def generate(self, model="tiny", verb="generate", **body):
        return self.system.post(f"/v2/models/{model}/{verb}", {"text_input": PROMPT, "max_tokens": 16, **body})

    def test_the_official_client_finds_the_server_and_its_models(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready("tiny"))
        self.assertFalse(self.client.is_model_ready("other"))
        for name in ("tiny", "ensemble", "tensorrt_llm_bls"):
            self.assertTrue(self.client.is_model_ready(name), name)
            self.assertTrue(self.client.is_model_ready(name, "1"), name)
            self.assertEqual(name, self.client.get_model_metadata(name)["name"])
        self.assertEqual("foretoken", self.client.get_server_metadata()["name"])
        tensor = tritonclient.http.InferInput("text_input", [1], "BYTES")
        with self.assertRaises(tritonclient.utils.InferenceServerException) as caught:
            self.client.infer("tiny", [tensor])
        self.assertIn("/v2/models/tiny/generate", str(caught.exception))

    def test_without_top_k_and_top_p_it_is_greedy_and_equal_with_guesses(self):
        status, plain = self.generate(num_draft_tokens=0)
        self.assertEqual(200, status, plain)
        self.assertTrue(plain["text_output"].startswith(PROMPT))
        self.assertEqual(("tiny", "1"), (plain["model_name"], plain["model_version"]))
        for body in ({"num_draft_tokens": 4}, {}, {"random_seed": 9}, {"temperature": [0.7]}, {"parameters": {"num_draft_tokens": 2}}):
            self.assertEqual(plain["text_output"], self.generate(**body)[1]["text_output"], body)
        greedy = self.system.post("/v1/completions", {"model": "tiny", "prompt": PROMPT, "max_tokens": 16, "temperature": 0})[1]
        self.assertEqual(plain["text_output"], PROMPT + greedy["choices"][0]["text"])

    def test_names_of_the_pipeline_mean_the_one_model(self):
        plain = self.generate()[1]["text_output"]
        for model in ("ensemble", "tensorrt_llm_bls", "tiny/versions/1"):
            self.assertEqual(plain, self.generate(model)[1]["text_output"])

    def test_a_stream_joins_to_the_answer(self):
        status, _, text = self.system.http("POST", "/v2/models/tiny/generate_stream",
                                           {"text_input": PROMPT, "max_tokens": 16, "stream": True, "top_k": 5, "random_seed": 3})
        self.assertEqual(200, status)
        events = [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line]
        whole = self.generate(top_k=5, random_seed=3)[1]["text_output"]
        self.assertEqual(whole, "".join(event["text_output"] for event in events))

    def test_words_ends_and_probabilities(self):
        whole = self.generate(exclude_input_in_output=True, return_log_probs=True, return_perf_metrics=True)[1]
        self.assertEqual(16, len(whole["output_log_probs"]))
        self.assertAlmostEqual(sum(whole["output_log_probs"]), whole["cum_log_probs"], places=9)
        self.assertIn("acceptance_rate", whole)
        word = whole["text_output"][3:6]
        stopped = self.generate(exclude_input_in_output=True, stop_words=word)[1]["text_output"]
        self.assertTrue(stopped.endswith(word) and whole["text_output"].startswith(stopped))
        self.assertEqual(whole["text_output"], self.generate(exclude_input_in_output=True, stop_words="", bad_words="")[1]["text_output"])
        self.assertEqual(200, self.generate(end_id=[-1])[0])

    def test_a_temperature_without_effect_is_checked_and_named(self):
        for value in ("x", -1, 5000, True):
            status, answer = self.generate(temperature=value)
            self.assertEqual(400, status, value)
            self.assertTrue(answer["error"].startswith("temperature "), answer)
        for body, named in (({"temperature": 0.7}, "temperature"), ({"temperature": 0}, None), ({"temperature": 0.7, "top_k": 5}, None),
                            ({"temperature": 0.7, "top_p": 0.9}, None)):
            status, headers, text = self.system.http("POST", "/v2/models/tiny/generate", {"text_input": PROMPT, "max_tokens": 2, **body})
            self.assertEqual((200, named), (status, headers.get("x-foretoken-ignored")), text)

    def test_errors_name_the_field_of_the_body(self):
        for body, words in (({"stop_words": 5}, "stop_words "), ({"stop_words": [1, 2]}, "stop_words "), ({"bad_words": 5}, "bad_words "),
                            ({"max_tokens": 0}, "max_tokens is 0; it must be an integer from 1 to"),
                            ({"max_tokens": None, "request_output_len": 0}, "request_output_len is 0; it must be an integer from 1 to"),
                            ({"random_seed": 1 << 64}, "random_seed is 1.8446744e+19; it must be an integer from -9223372036854775808 to 18446744073709551615")):
            status, answer = self.generate(**body)
            self.assertEqual(400, status, body)
            self.assertTrue(answer["error"].startswith(words), answer)

    def test_what_is_not_done_names_the_field_and_its_substitute(self):
        for body, words in (({"beam_width": 2}, "beam_width"), ({"text_input": ["a", "b"]}, "/v1/completions"),
                            ({"draft_logits": [[1]]}, "draft_logits"), ({"stream": True}, "generate_stream"),
                            ({"max_tokens": None}, "max_tokens"), ({"parameters": {"max_tokens": 3}}, "given twice")):
            status, answer = self.generate(**body)
            self.assertEqual(400, status, body)
            self.assertIn(words, answer["error"])
        self.assertEqual(404, self.generate("other")[0])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
