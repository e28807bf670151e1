"""Answers that a schema, an expression or a grammar constrains, with the official clients of every protocol: what was asked for comes
back as it was asked for, joined streams are the whole answer, and all is equal whatever guesses."""

import enum
import json
import os
import re
import sys
import tempfile
import typing
import unittest

import anthropic
import jsonschema
import openai
import pydantic

from edge_system import ROOT, SPECULATION, ClientTest, EdgeSystem, without_times
import spelling_model  # behind edge_system, which finds the harness

sys.path.insert(0, str(ROOT / "clients/python"))
import foretoken  # noqa: E402

PROMPT = [{"role": "user", "content": "the cat sat on the mat and the cat"}]
ENOUGH = 400  # tokens: of the tiny model a byte each
UNREADABLE = {"type": "object", "not": {}}
GBNF = 'root ::= "<" word ("," word)? ">"\nword ::= [a-z] [a-z] [a-z]'


class Mood(enum.Enum):
    CALM = "calm"
    LOUD = "löud"  # a character of two bytes, and so of two tokens


class Place(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str = pydantic.Field(max_length=6)
    indoors: bool


class Visit(pydantic.BaseModel):
    """Keys that are in no order of letters."""
    who: typing.Literal["cat", "dog"]
    count: int = pydantic.Field(ge=0, le=99)
    mood: Mood
    place: Place
    again: typing.Optional[bool]
    days: list[typing.Literal["mon", "tue"]] = pydantic.Field(min_length=1, max_length=3)


class Note(pydantic.BaseModel):
    """Without limits of length and of numbers: the client of Anthropic takes these out of a schema."""
    who: typing.Literal["cat", "dog"]
    mood: Mood
    again: typing.Optional[bool]


SCHEMA = Visit.model_json_schema() | {"additionalProperties": False}


class Structured(ClientTest):
    @classmethod
    def setUpClass(cls):
        cls.serve(EdgeSystem())

    def equal_for_all(self, call):
        """The answer of `call` without guesses, which is that with any guesses."""
        answers = {how: call(SPECULATION[how]) for how in SPECULATION}
        values = {how: without_times(answer if isinstance(answer, dict) else answer.model_dump(mode="json")) for how, answer in answers.items()}
        self.assertEqual(values["off"], values["draft"])
        self.assertEqual(values["off"], values["ngram"])
        return answers["off"]

    def raw(self, path, **body):
        def ask(speculation):
            status, answer = self.system.post(path, {"model": "tiny", "max_tokens": ENOUGH, "seed": 5, "speculation": speculation, **body})
            self.assertEqual(200, status, answer)
            return answer
        return self.equal_for_all(ask)["choices"][0]

    def is_visit(self, text):
        said = json.loads(text)
        jsonschema.validate(said, SCHEMA)
        self.assertEqual(list(Visit.model_fields), list(said), "keys come in the order of the schema")
        return Visit.model_validate(said)

    # ---- OpenAI's client

    def test_chat_parses_into_a_model(self):
        for temperature in (0, 0.8):
            answer = self.equal_for_all(lambda speculation: self.openai.chat.completions.parse(
                model="tiny", messages=PROMPT, max_tokens=ENOUGH, seed=5, temperature=temperature, response_format=Visit,
                extra_body={"speculation": speculation}))
            choice = answer.choices[0]
            self.assertEqual(("stop", self.is_visit(choice.message.content)), (choice.finish_reason, choice.message.parsed))

    def test_each_of_several_answers_is_held_to_it(self):
        answer = self.equal_for_all(lambda speculation: self.openai.chat.completions.parse(
            model="tiny", messages=PROMPT, max_tokens=ENOUGH, seed=5, temperature=1.5, n=3, response_format=Visit,
            extra_body={"speculation": speculation}))
        texts = [choice.message.content for choice in answer.choices]
        self.assertEqual(3, len(set(texts)))
        for text in texts:
            self.is_visit(text)

    def test_the_helper_for_streams_parses_the_whole(self):
        whole = self.openai.chat.completions.parse(model="tiny", messages=PROMPT, max_tokens=ENOUGH, seed=5, response_format=Visit,
                                                   extra_body={"speculation": SPECULATION["off"]}).choices[0].message
        for how, speculation in SPECULATION.items():
            with self.subTest(how=how), self.openai.chat.completions.stream(
                    model="tiny", messages=PROMPT, max_tokens=ENOUGH, seed=5, response_format=Visit,
                    extra_body={"speculation": speculation}) as stream:
                deltas = [event.delta for event in stream if event.type == "content.delta"]
                final = stream.get_final_completion().choices[0]
                self.assertEqual((whole.content, "stop"), ("".join(deltas), final.finish_reason))
                self.assertEqual((whole.content, whole.parsed), (final.message.content, final.message.parsed))

    def test_any_object_is_json(self):
        # Of any object a model that knows nothing would not find the end.
        choice = self.raw("/v1/chat/completions", messages=PROMPT, response_format={"type": "json_object"}, temperature=0,
                          logit_bias={str(ord("}")): 15, str(ord('"')): 8, str(ord("1")): 8})
        self.assertEqual("stop", choice["finish_reason"])
        self.assertIsInstance(json.loads(choice["message"]["content"]), dict)

    def test_what_ends_the_answer_is_no_part_of_what_fits(self):
        for end in (ord("\n"), 260):  # one that has text, and the model's own end token
            with self.subTest(end=end):
                choice = self.raw("/v1/completions", prompt="the cat", structured_outputs={"regex": "[a-z]{4,}"}, logit_bias={str(end): 100},
                                  stop_token_ids=[end], skip_special_tokens=False, return_token_ids=True)
                self.assertRegex(choice["text"], "^[a-z]{4}\\Z")
                self.assertEqual(("stop", 5, end), (choice["finish_reason"], len(choice["token_ids"]), choice["token_ids"][-1]))

    def test_responses_parse_into_a_model(self):
        answer = self.equal_for_all(lambda speculation: self.openai.responses.parse(
            model="tiny", input="the cat sat", max_output_tokens=ENOUGH, text_format=Visit, extra_body={"speculation": speculation, "seed": 5}))
        self.assertEqual(("completed", self.is_visit(answer.output_text)), (answer.status, answer.output_parsed))
        self.assertEqual(("json_schema", "Visit", True), (answer.text.format.type, answer.text.format.name, answer.text.format.strict))
        with self.openai.responses.stream(model="tiny", input="the cat sat", max_output_tokens=ENOUGH, text_format=Visit,
                                          extra_body={"seed": 5}) as stream:
            deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
            final = stream.get_final_response()
        self.assertEqual((answer.output_text, answer.output_parsed), ("".join(deltas), final.output_parsed))

    # ---- Anthropic's

    def test_messages_parse_into_a_model(self):
        def create(speculation, **more):
            return self.anthropic.messages.create(
                model="tiny", messages=PROMPT, max_tokens=ENOUGH, output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
                extra_body={"speculation": speculation, "seed": 5, "temperature": 0, **more})
        answer = self.equal_for_all(create)
        self.assertEqual("end_turn", answer.stop_reason)
        text = answer.content[0].text
        visit = self.is_visit(text)
        older = {"output_config": None, "output_format": {"type": "json_schema", "schema": SCHEMA}}
        self.assertEqual(text, create(SPECULATION["off"], **older).content[0].text)
        parsed = self.anthropic.messages.parse(model="tiny", messages=PROMPT, max_tokens=ENOUGH, output_format=Note,
                                               extra_body={"seed": 5, "temperature": 0})
        self.assertIsInstance(parsed.parsed_output, Note)
        with self.anthropic.messages.stream(model="tiny", messages=PROMPT, max_tokens=ENOUGH,
                                            output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
                                            extra_body={"seed": 5, "temperature": 0}) as stream:
            self.assertEqual((text, visit), ("".join(stream.text_stream), self.is_visit(text)))

    # ---- vLLM's and llama.cpp's fields, and our own

    def test_structured_outputs(self):
        choices = ["red", "green", "blü (pale)"]
        for outputs, fits in (({"json": SCHEMA}, self.is_visit), ({"json": json.dumps(SCHEMA)}, self.is_visit),
                              ({"regex": r"[A-F]{2}-\d{4}"}, lambda text: self.assertRegex(text, r"\A[A-F]{2}-[0-9]{4}\Z")),
                              ({"choice": choices}, lambda text: self.assertIn(text, choices)),
                              ({"grammar": GBNF}, lambda text: self.assertRegex(text, r"\A<[a-z]{3}(,[a-z]{3})?>\Z"))):
            with self.subTest(outputs=outputs):
                answer = self.equal_for_all(lambda speculation: self.openai.chat.completions.create(
                    model="tiny", messages=PROMPT, max_tokens=ENOUGH, seed=5, extra_body={"structured_outputs": outputs, "speculation": speculation}))
                self.assertEqual("stop", answer.choices[0].finish_reason)
                fits(answer.choices[0].message.content)
                text = self.equal_for_all(lambda speculation: self.openai.completions.create(
                    model="tiny", prompt="the cat", max_tokens=ENOUGH, seed=5,
                    extra_body={"structured_outputs": outputs, "speculation": speculation})).choices[0].text
                fits(text)

    def test_the_words_of_others_and_our_own_give_one_answer(self):
        for words in (({"json_schema": SCHEMA}, {"guided_json": SCHEMA}, {"response_format": {"type": "json_object", "schema": SCHEMA}},
                       {"response_format": {"type": "json_schema", "json_schema": {"name": "v", "schema": SCHEMA}}},
                       {"json_schema": json.dumps(SCHEMA)}),
                      ({"regex": "[0-9]{9}"}, {"guided_regex": "[0-9]{9}"}, {"structured_outputs": {"regex": "[0-9]{9}"}}),
                      ({"gbnf": GBNF}, {"grammar": GBNF}, {"guided_grammar": GBNF}, {"structured_outputs": {"grammar": GBNF}}),
                      ({"guided_choice": ["a.c", "abc"]}, {"structured_outputs": {"choice": ["a.c", "abc"]}}, {"regex": r"a\.c|abc"})):
            texts = {self.raw("/v1/completions", prompt="the cat", temperature=0, **each)["text"] for each in words}
            self.assertEqual(1, len(texts), (words, texts))

    def test_an_answer_that_is_cut_is_the_beginning_of_one_that_fits(self):
        cut = self.raw("/v1/chat/completions", messages=PROMPT, regex="[0-9]{40}", max_tokens=7)
        self.assertEqual("length", cut["finish_reason"])
        self.assertRegex(cut["message"]["content"], r"\A[0-9]{7}\Z")

    def test_what_an_answer_continues_is_not_held_to_it(self):
        begun = [*PROMPT, {"role": "assistant", "content": "So:"}]
        choice = self.raw("/v1/chat/completions", messages=begun, add_generation_prompt=False, continue_final_message=True, regex=" [0-9]{3}")
        self.assertRegex(choice["message"]["content"], r"\A [0-9]{3}\Z")

    def test_what_cannot_be_read_is_an_error_about_its_field(self):
        chat, responses = {"model": "tiny", "messages": PROMPT}, {"model": "tiny", "input": "x"}
        for path, body, param in (
                ("/v1/chat/completions", {**chat, "response_format": {"type": "json_schema", "json_schema": {"name": "v", "schema": UNREADABLE}}},
                 "response_format.json_schema.schema"),
                ("/v1/chat/completions", {**chat, "stream": True, "structured_outputs": {"json": UNREADABLE}}, "structured_outputs.json"),
                ("/v1/chat/completions", {**chat, "regex": "("}, "regex"),
                ("/v1/completions", {"model": "tiny", "prompt": "x", "guided_regex": "("}, "guided_regex"),
                ("/v1/completions", {"model": "tiny", "prompt": "x", "grammar": "root ::= nothing"}, "grammar"),
                ("/v1/completions", {"model": "tiny", "prompt": "x", "json_schema": "{"}, "json_schema"),
                ("/v1/responses", {**responses, "text": {"format": {"type": "json_schema", "name": "v", "schema": UNREADABLE}}}, "text.format.schema")):
            with self.subTest(path=path, param=param):
                status, answer = self.system.post(path, body)
                self.assertEqual((400, param), (status, answer["error"]["param"]), answer)
                self.assertTrue(answer["error"]["message"].startswith(param + ": "), answer)
        status, answer = self.system.post("/v1/messages", {**chat, "max_tokens": 5, "output_config": {"format": {"type": "json_schema", "schema": UNREADABLE}}})
        self.assertEqual(400, status)
        self.assertIn("output_config.format.schema", answer["error"]["message"])

    # ---- over ZeroMQ

    def test_the_python_client_takes_a_schema_as_a_mapping(self):
        with foretoken.Client(self.system.client, timeout_s=60) as client:
            answers = {client.generate("the cat", json_schema=schema, max_tokens=ENOUGH, seed=5, num_draft_tokens=n).text
                       for schema in (SCHEMA, json.dumps(SCHEMA)) for n in (0, 4)}
            self.assertEqual(1, len(answers), answers)
            self.is_visit(answers.pop())
            self.assertEqual(client.generate("the cat", regex="[0-9]{5}", max_tokens=ENOUGH).finish_reason, "stop")
            with self.assertRaises(foretoken.ForetokenError) as caught:
                client.generate("the cat", json_schema=UNREADABLE)
            self.assertEqual(("invalid_value", "json_schema"), (caught.exception.code, caught.exception.param))


# Opens a thought whatever is said, as some templates do.
THINKING = ("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
            "{% if add_generation_prompt %}<|any|>{{ '<think>' }}\n{% endif %}{# </think> #}")


class Thinking(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        model = spelling_model.write(os.path.join(cls.folder.name, "m"), {"any": ["<think>", "hm", "</think>", "so"]}, THINKING)
        cls.system = EdgeSystem(target_model=model, settings=(f"model.draft={model}", "kv_cache.memory=256MiB", "draft.memory=128MiB",
                                                             "target.threads=1", "draft.threads=1")).__enter__()
        cls.addClassCleanup(lambda: cls.system.__exit__(None, None, None))
        cls.system.start_all()

    def chat(self, **more):
        return self.system.post("/v1/chat/completions", {"model": "random", "messages": PROMPT, "temperature": 0, "max_tokens": 40, **more})

    def test_an_answer_that_is_constrained_begins_without_a_thought(self):
        free = self.chat()[1]["choices"][0]["message"]
        self.assertTrue(free["reasoning_content"])
        for how, speculation in SPECULATION.items():
            status, answer = self.chat(regex="[a-f]{5}", speculation=speculation)
            self.assertEqual(200, status, answer)
            message = answer["choices"][0]["message"]
            self.assertIsNone(message.get("reasoning_content"), how)
            self.assertTrue(re.fullmatch("[a-f]{5}", message["content"]), (how, message))
            self.assertEqual(0, answer["usage"]["completion_tokens_details"]["reasoning_tokens"])

    def test_one_that_continues_a_thought_is_refused(self):
        begun = [*PROMPT, {"role": "assistant", "content": "<think>"}]
        status, answer = self.chat(messages=begun, add_generation_prompt=False, continue_final_message=True, guided_regex="a")
        self.assertEqual((400, "guided_regex"), (status, answer["error"]["param"]), answer)
        self.assertIn("ends within a thought", answer["error"]["message"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
