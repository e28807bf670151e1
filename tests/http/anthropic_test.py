"""Anthropic's own Python client against real services: messages, streams, counts and typed errors, with every proposer."""

import json
import sys
import unittest

import anthropic

from edge_system import EdgeSystem

SPECULATION = ({"enabled": False}, {"proposer": "draft", "draft_len": 4, "adaptive": False},
               {"proposer": "ngram", "draft_len": 4, "adaptive": False})
PROMPT = [{"role": "user", "content": "the cat sat on the mat and the cat"}]


class Anthropic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.system = EdgeSystem().__enter__()
        cls.addClassCleanup(lambda: cls.system.__exit__(None, None, None))
        cls.system.start_all()
        cls.client = anthropic.Anthropic(base_url=cls.system.base.removesuffix("/v1"), api_key="any", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.system.assert_alive()

    def create(self, speculation=SPECULATION[0], temperature=0, **more):
        # This version of the client has no keyword for the temperature.
        extra = {"speculation": speculation, "seed": 5, "temperature": temperature}
        return self.client.messages.create(**{"model": "tiny", "messages": PROMPT, "max_tokens": 24, "extra_body": extra, **more})

    def test_a_message_is_equal_with_every_proposer(self):
        for request in ({}, {"temperature": 1}, {"system": "be brief"}, {"stop_sequences": ["e"]}):
            with self.subTest(request=request):
                answers = [self.create(speculation, **request) for speculation in SPECULATION]
                self.assertEqual(1, len({(each.content[0].text, each.stop_reason, each.stop_sequence) for each in answers}))
                self.assertEqual(("message", "assistant", "tiny"), (answers[0].type, answers[0].role, answers[0].model))

    def test_what_ended_it_is_said(self):
        whole = self.create()
        self.assertEqual(("max_tokens", None, 24), (whole.stop_reason, whole.stop_sequence, whole.usage.output_tokens))
        letter = whole.content[0].text.strip()[2]
        cut = self.create(stop_sequences=[letter])
        self.assertEqual(("stop_sequence", letter), (cut.stop_reason, cut.stop_sequence))
        self.assertNotIn(letter, cut.content[0].text)

    def test_a_stream_joins_to_the_message(self):
        whole = self.create()
        for speculation in SPECULATION:
            with self.client.messages.stream(model="tiny", messages=PROMPT, max_tokens=24,
                                             extra_body={"speculation": speculation, "seed": 5, "temperature": 0}) as stream:
                joined = "".join(stream.text_stream)
                final = stream.get_final_message()
            self.assertEqual((whole.content[0].text,) * 2, (joined, final.content[0].text))
            self.assertEqual((whole.stop_reason, whole.usage.output_tokens), (final.stop_reason, final.usage.output_tokens))

    def test_events_come_in_their_order(self):
        events = [event.type for event in self.create(stream=True)]
        self.assertEqual(["message_start", "content_block_start"], events[:2])
        self.assertEqual(["content_block_stop", "message_delta", "message_stop"], events[-3:])
        self.assertEqual({"content_block_delta"}, set(events[2:-3]))

    def test_tokens_are_counted_as_the_message_counts_them(self):
        for request in ({}, {"system": [{"type": "text", "text": "be"}, {"type": "text", "text": "brief"}]}):
            usage = self.create(**request).usage
            counted = self.client.messages.count_tokens(model="tiny", messages=PROMPT, **request)
            self.assertEqual(usage.input_tokens + usage.cache_read_input_tokens, counted.input_tokens)

    def test_models_are_listed(self):
        listed = self.client.models.list()
        self.assertEqual([("tiny", "model", 2048, False)],
                         [(model.id, model.type, model.max_input_tokens, listed.has_more) for model in listed.data])
        self.assertLess(2000, listed.data[0].created_at.year)

    def test_one_model_is_said_as_in_the_list(self):
        self.assertEqual(self.client.models.list().data[0], self.client.models.retrieve("tiny"))
        with self.assertRaises(anthropic.NotFoundError) as caught:
            self.client.models.retrieve("other")
        self.assertEqual(("error", "not_found_error"), (caught.exception.body["type"], caught.exception.body["error"]["type"]))
        # Who says no version of Anthropic's protocol speaks OpenAI's.
        self.assertEqual("model", json.loads(self.system.http("GET", "/v1/models/tiny")[2])["object"])
        self.assertEqual("model_not_found", json.loads(self.system.http("GET", "/v1/models/other")[2])["error"]["code"])

    def test_what_is_of_the_wrong_type_is_told(self):
        body = {"model": "tiny", "messages": PROMPT, "max_tokens": 4}
        for more, words in (({"output_config": 5}, "output_config is 5; it must be an object"), ({"thinking": 5}, "thinking is 5; it must be an object"),
                            ({"output_config": {"effort": 5}}, "output_config.effort must be a text"),
                            ({"tool_choice": 5}, "tool_choice is 5; it must be an object"),
                            ({"max_tokens": 0}, "max_tokens is 0; it must be an integer from 1 to")):
            with self.subTest(more=more):
                status, answer = self.system.post("/v1/messages", {**body, **more})
                self.assertEqual((400, "invalid_request_error"), (status, answer["error"]["type"]))
                self.assertIn(words, answer["error"]["message"])
                self.assertNotIn("prompt_logprobs", answer["error"]["message"])
        self.assertEqual(200, self.system.post("/v1/messages", {**body, "output_config": None, "thinking": None})[0])

    def test_a_line_that_changes_with_every_request_is_left_out(self):
        plain = self.client.messages.count_tokens(model="tiny", messages=PROMPT, system="be brief").input_tokens
        billed = self.client.messages.count_tokens(model="tiny", messages=PROMPT, system=[
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=123"}, {"type": "text", "text": "be brief"}])
        self.assertEqual(plain, billed.input_tokens)

    def test_more_tokens_than_the_context_has_are_as_many_as_it_has(self):
        answer = self.create(max_tokens=32000, timeout=300)
        if answer.stop_reason == "model_context_window_exceeded":
            self.assertEqual(2048, answer.usage.input_tokens + answer.usage.cache_read_input_tokens + answer.usage.output_tokens)
        else:
            self.assertEqual("end_turn", answer.stop_reason)

    def test_errors_have_their_class(self):
        with self.assertRaises(anthropic.NotFoundError) as caught:
            self.create(model="other")
        self.assertEqual("not_found_error", caught.exception.body["error"]["type"])
        self.assertTrue(caught.exception.request_id)
        picture = [{"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image", "source": {}}]}]
        for request, words in (({"messages": picture}, "messages.0.content.1"), ({"max_tokens": 0}, "max_tokens"),
                               ({"messages": [{"role": "robot", "content": ""}]}, "messages.0.role"),
                               ({"tools": [{"name": "f", "input_schema": {}}]}, "tools"),
                               ({"thinking": {"type": "sometimes"}}, "thinking")):
            with self.subTest(words=words), self.assertRaises(anthropic.BadRequestError) as caught:
                self.create(**request)
            self.assertIn(words, str(caught.exception))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
