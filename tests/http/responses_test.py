"""/v1/responses with OpenAI's own client, and the requests of the Open Responses suite that need HTTP alone, against schemas of the object
and its events. Cases of that suite which are not here need what a server without a memory has not: images, compaction, WebSockets."""

import http.client
import json
import os
import pathlib
import signal
import sys
import tempfile
import unittest

import jsonschema
import openai
import openai.types.responses
import pydantic

from edge_system import EdgeSystem, without_times
import spelling_model  # behind edge_system, which finds the harness
import tools_test

SPECULATION = ({"enabled": False}, {"proposer": "draft", "draft_len": 4, "adaptive": False},
               {"proposer": "ngram", "draft_len": 4, "adaptive": False})


def shape(**properties):
    """An object with these keys, all required."""
    return {"type": "object", "required": list(properties), "properties": properties}


def maybe(schema):
    return {"anyOf": [{"type": "null"}, schema]}


TEXT, WHOLE, NUMBER, TRUTH = ({"type": name} for name in ("string", "integer", "number", "boolean"))
LIST, MAP = {"type": "array"}, {"type": "object"}
MESSAGE_PART = shape(type={"const": "output_text"}, text=TEXT, annotations=LIST, logprobs=LIST)
REASONING_PART = shape(type={"const": "reasoning_text"}, text=TEXT)
PART = {"anyOf": [MESSAGE_PART, REASONING_PART]}
STATUS = {"enum": ["in_progress", "completed", "incomplete"]}
ITEM = {"anyOf": [
    shape(id=TEXT, type={"const": "message"}, role={"const": "assistant"}, status=STATUS, content={"type": "array", "items": MESSAGE_PART}),
    shape(id=TEXT, type={"const": "reasoning"}, status=STATUS, summary=LIST, content={"type": "array", "items": REASONING_PART}),
    shape(id=TEXT, type={"const": "function_call"}, status=STATUS, call_id=TEXT, name=TEXT, arguments=TEXT)]}
USAGE = shape(input_tokens=WHOLE, input_tokens_details=shape(cached_tokens=WHOLE, cache_write_tokens=WHOLE), output_tokens=WHOLE,
              output_tokens_details=shape(reasoning_tokens=WHOLE), total_tokens=WHOLE)
RESPONSE = shape(
    id={"type": "string", "pattern": "^resp_"}, object={"const": "response"}, created_at=WHOLE, completed_at=maybe(WHOLE),
    status={"enum": ["in_progress", "completed", "incomplete", "failed"]}, incomplete_details=maybe(shape(reason=TEXT)), model=TEXT,
    previous_response_id={"type": "null"}, instructions=maybe(TEXT), output={"type": "array", "items": ITEM}, error=maybe(MAP), tools=LIST,
    tool_choice={"type": ["string", "object"]}, truncation={"const": "disabled"}, parallel_tool_calls=TRUTH,
    text=shape(format=shape(type=TEXT)), top_p=NUMBER, presence_penalty=NUMBER, frequency_penalty=NUMBER, top_logprobs=WHOLE,
    temperature=NUMBER, reasoning=maybe(MAP), usage=maybe(USAGE), max_output_tokens=maybe(WHOLE), max_tool_calls=maybe(WHOLE),
    store={"const": False}, background={"const": False}, service_tier=TEXT, metadata=MAP, safety_identifier=maybe(TEXT),
    prompt_cache_key=maybe(TEXT))
CALL_PLACE = {"item_id": TEXT, "output_index": WHOLE}
PLACE = {**CALL_PLACE, "content_index": WHOLE}
EVENTS = {
    "response.created": shape(response=RESPONSE), "response.in_progress": shape(response=RESPONSE),
    "response.output_item.added": shape(output_index=WHOLE, item=ITEM), "response.content_part.added": shape(part=PART, **PLACE),
    "response.output_text.delta": shape(delta=TEXT, logprobs=LIST, **PLACE),
    "response.output_text.done": shape(text=TEXT, logprobs=LIST, **PLACE), "response.content_part.done": shape(part=PART, **PLACE),
    "response.output_item.done": shape(output_index=WHOLE, item=ITEM), "response.completed": shape(response=RESPONSE),
    "response.incomplete": shape(response=RESPONSE), "response.failed": shape(response=RESPONSE),
    "response.reasoning_text.delta": shape(delta=TEXT, **PLACE), "response.reasoning_text.done": shape(text=TEXT, **PLACE),
    "response.function_call_arguments.delta": shape(delta=TEXT, **CALL_PLACE),
    "response.function_call_arguments.done": shape(name=TEXT, arguments=TEXT, **CALL_PLACE),
}


def events_of(system, **body):
    """Of a stream, each checked against its schema."""
    status, headers, text = system.http("POST", "/v1/responses", {"max_output_tokens": 16, "stream": True, **body})
    assert (status, headers["Content-Type"].startswith("text/event-stream")) == (200, True), text
    blocks = text.split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""], blocks[-2:]
    events = []
    for number, block in enumerate(blocks[:-2]):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert (name.removeprefix("event: "), number) == (event["type"], event["sequence_number"]), block
        jsonschema.validate(event, EVENTS[event["type"]])
        events.append(event)
    return events


def without_parsed(value):
    """What the client's helper adds."""
    if isinstance(value, dict):
        return {key: without_parsed(each) for key, each in value.items() if key not in ("parsed", "parsed_arguments")}
    return [without_parsed(each) for each in value] if isinstance(value, list) else value


class Responses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.system = EdgeSystem(("limits.max_running=2", "limits.max_waiting=4")).__enter__()
        cls.addClassCleanup(lambda: cls.system.__exit__(None, None, None))
        cls.system.start_all()
        cls.client = openai.OpenAI(base_url=cls.system.base, api_key="any", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.system.assert_alive()

    def create(self, speculation=SPECULATION[0], **more):
        extra = {"speculation": speculation, "seed": 5}
        return self.client.responses.create(**{"model": "tiny", "input": "the cat sat on the mat", "max_output_tokens": 24,
                                               "extra_body": extra, **more})

    def post(self, **body):
        status, answer = self.system.post("/v1/responses", {"model": "tiny", "max_output_tokens": 16, **body})
        if status == 200:
            jsonschema.validate(answer, RESPONSE)
        return status, answer

    def stream(self, **body):
        return events_of(self.system, model="tiny", **body)

    # ---- OpenAI's own client

    def test_an_answer_is_equal_with_every_proposer_and_that_of_chat(self):
        for request in ({"temperature": 0}, {"temperature": 1}, {"instructions": "be brief"}, {"include": ["message.output_text.logprobs"]}):
            with self.subTest(request=request):
                answers = [self.create(speculation, **request) for speculation in SPECULATION]
                self.assertEqual(1, len({json.dumps(without_times(answer.model_dump())) for answer in answers}))
        chat = self.client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "the cat sat on the mat"}],
                                                   max_completion_tokens=24, seed=5)
        self.assertEqual(chat.choices[0].message.content, self.create().output_text)

    def test_the_helper_for_streams_gives_the_whole_answer(self):
        whole = self.create(temperature=0)
        with self.client.responses.stream(model="tiny", input="the cat sat on the mat", max_output_tokens=24, temperature=0) as stream:
            events = list(stream)
        self.assertEqual(whole.output_text, "".join(event.delta for event in events if event.type == "response.output_text.delta"))
        self.assertEqual(("response.created", "response.incomplete"), (events[0].type, events[-1].type))
        self.assertEqual((whole.output_text, whole.usage.output_tokens), (events[-1].response.output_text, events[-1].response.usage.output_tokens))

    def test_errors_have_their_class_and_name_the_field(self):
        with self.assertRaises(openai.NotFoundError):
            self.create(model="other")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.create(previous_response_id="resp_1")
        self.assertEqual(("previous_response_not_found", "previous_response_id"), (caught.exception.code, caught.exception.param))
        self.assertIn("previous_response_id names a response, and none is kept here: send the whole history", str(caught.exception))
        for request, param in (({"background": True}, "background"), ({"truncation": "auto"}, "truncation"), ({"conversation": "c"}, "conversation"),
                               ({"temperature": -1}, "temperature"), ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0"),
                               ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input.0.content.0")):
            with self.subTest(param=param), self.assertRaises(openai.BadRequestError) as caught:
                self.create(**request)
            self.assertEqual(param, caught.exception.param)
        for call in (lambda: self.client.responses.retrieve("resp_1"), lambda: self.client.responses.delete("resp_1")):
            with self.assertRaises(openai.NotFoundError):
                call()

    def test_a_client_that_sends_twelve_fields_is_answered(self):
        status, answer = self.post(
            client_metadata={"a": "b"}, include=["reasoning.encrypted_content"], instructions="be brief", parallel_tool_calls=True,
            input=[{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
                   {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
                   {"type": "reasoning", "id": "rs_1", "summary": [], "content": None},
                   {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "hi", "annotations": []}]},
                   {"type": "message", "role": "user", "content": "go on"}],
            prompt_cache_key="k", reasoning={"effort": "low"}, store=False, tool_choice="auto",
            tools=[{"type": "web_search"}, {"type": "custom", "name": "x"}, {"type": "namespace", "name": "y"}])
        self.assertEqual(200, status, answer)

    def test_what_is_of_the_wrong_type_is_refused(self):
        for body, param in (({"reasoning": 5}, "reasoning"), ({"reasoning": {"effort": 5}}, "reasoning.effort"), ({"include": [5]}, "include.0"),
                            ({"include": 5}, "include"), ({"text": 5}, "text"), ({"text": {"format": 5}}, "text.format")):
            status, answer = self.post(input="hi", **body)
            self.assertEqual((400, param), (status, answer["error"]["param"]), answer)
            self.assertIn("must be a", answer["error"]["message"])

    def test_what_has_no_effect_is_named(self):
        logprobs = "message.output_text.logprobs"
        for body, named in (({"include": ["reasoning.encrypted_content", logprobs]}, "include.reasoning.encrypted_content"),
                            ({"reasoning": {"effort": "low", "summary": "auto"}}, "reasoning.summary"), ({"text": {"verbosity": "low"}}, "text.verbosity"),
                            ({"top_logprobs": 2}, "top_logprobs"), ({"top_logprobs": 2, "include": [logprobs]}, None), ({"top_logprobs": 0}, None),
                            ({"reasoning": {"summary": None}, "text": {"format": {"type": "text"}}}, None)):
            status, headers, text = self.system.http("POST", "/v1/responses", {"model": "tiny", "input": "hi", "max_output_tokens": 2, **body})
            self.assertEqual((200, named), (status, headers.get("x-foretoken-ignored")), text)

    # ---- the Open Responses suite

    def test_1_basic_response(self):
        # Greedy: of a random draw one in some hundred is an end token.
        status, answer = self.post(temperature=0, input=[{"type": "message", "role": "user", "content": "Say hello in exactly 3 words."}])
        self.assertEqual((200, "incomplete"), (status, answer["status"]), answer)
        self.assertEqual("max_output_tokens", answer["incomplete_details"]["reason"])
        self.assertEqual(16, answer["usage"]["output_tokens"])

    def test_2_assistant_phase(self):
        status, _ = self.post(input=[{"type": "message", "role": "user", "content": "hello"},
                                     {"type": "message", "role": "assistant", "phase": "commentary", "content": "looking"},
                                     {"type": "message", "role": "assistant", "phase": "final_answer", "content": "hi"},
                                     {"type": "message", "role": "user", "content": "again"}])
        self.assertEqual(200, status)

    def test_3_output_phase_schema(self):
        answer = self.post(input="hello")[1]
        self.assertEqual(["message"], [item["type"] for item in answer["output"]])
        self.assertTrue(all(item.get("phase") in (None, "commentary", "final_answer") for item in answer["output"]))

    def test_4_streaming_response(self):
        for speculation in SPECULATION:
            events = self.stream(input="Count from 1 to 5.", seed=5, speculation=speculation)
            names = [event["type"] for event in events]
            self.assertEqual(["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"], names[:4])
            self.assertEqual(["response.output_text.done", "response.content_part.done", "response.output_item.done", "response.incomplete"], names[-4:])
            self.assertEqual({"response.output_text.delta"}, set(names[4:-4]))
            final = events[-1]["response"]
            joined = "".join(event["delta"] for event in events[4:-4])
            self.assertEqual({joined}, {events[-4]["text"], events[-3]["part"]["text"], final["output"][0]["content"][0]["text"]})
            self.assertEqual(1, len({event["item_id"] for event in events[3:-2]} | {events[2]["item"]["id"], events[-2]["item"]["id"]}))
            self.assertEqual(without_times(self.post(input="Count from 1 to 5.", seed=5, speculation=speculation)[1]), without_times(final))

    def test_5_system_prompt(self):
        status, answer = self.post(input=[{"type": "message", "role": "system", "content": "You are a pirate."},
                                          {"type": "message", "role": "user", "content": "Say hello."}])
        self.assertEqual(200, status)
        self.assertEqual(answer["usage"]["input_tokens"], self.post(instructions="You are a pirate.", input="Say hello.")[1]["usage"]["input_tokens"])

    def test_8_multi_turn(self):
        status, _ = self.post(input=[{"type": "message", "role": "user", "content": "My name is Alice."},
                                     {"type": "message", "role": "assistant", "content": "Hello Alice!"},
                                     {"type": "message", "role": "user", "content": "What is my name?"}])
        self.assertEqual(200, status)

    def test_10_compact_missing_model(self):
        self.assertIn(self.system.post("/v1/responses/compact", {"input": "x"})[0], (400, 422))

    def test_an_empty_input_is_a_question_whether_anybody_is_there(self):
        for nothing in ("", []):
            self.assertEqual(200, self.post(input=nothing, max_output_tokens=1)[0])


class Failures(unittest.TestCase):
    """Streams that begin before their first token, to stay open, and then run out of time: the target is stopped."""

    REQUEST = {"model": "tiny", "input": "the cat sat on the mat", "stream": True}

    @classmethod
    def setUpClass(cls):
        cls.system = EdgeSystem(("limits.request_timeout_s=2", "edge.ping_s=1")).__enter__()
        cls.addClassCleanup(lambda: cls.system.__exit__(None, None, None))
        cls.system.start_all()
        target = cls.system.processes["target"]
        target.send_signal(signal.SIGSTOP)
        cls.addClassCleanup(target.send_signal, signal.SIGCONT)

    def test_the_stream_ends_in_the_failed_answer(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.system.port, timeout=60)
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/responses", json.dumps(self.REQUEST))
        reply = connection.getresponse()
        self.assertEqual(200, reply.status)
        with self.assertRaises(http.client.IncompleteRead) as cut:
            reply.read()
        *blocks, nothing = cut.exception.partial.decode().split("\n\n")
        self.assertEqual("", nothing)
        events = [json.loads(block.split("\ndata: ")[1]) for block in blocks]
        types = [event["type"] for event in events]
        self.assertEqual(["response.created", "response.in_progress", "error", "response.failed"], list(dict.fromkeys(types)))
        self.assertEqual(list(range(len(events))), [event["sequence_number"] for event in events])
        jsonschema.validate(events[-1], EVENTS["response.failed"])
        of_openai = pydantic.TypeAdapter(openai.types.responses.ResponseStreamEvent)
        parsed = [of_openai.validate_python(event) for event in events]
        self.assertIsInstance(parsed[-1], openai.types.responses.ResponseFailedEvent)
        response = parsed[-1].response
        self.assertEqual(("failed", "server_error", []), (response.status, response.error.code, response.output))
        self.assertEqual(events[-2]["message"], response.error.message)

    def test_the_official_client_raises(self):
        with openai.OpenAI(base_url=self.system.base, api_key="any", max_retries=0) as client:
            with self.assertRaises(openai.APIError) as caught:
                list(client.responses.create(**self.REQUEST))
        self.assertTrue(caught.exception.message)


class Tools(unittest.TestCase):
    """A model that thinks, says something and calls: three items."""

    TOOLS = [{"type": "function", **each["function"]} for each in tools_test.TOOLS]

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        model = spelling_model.write(os.path.join(cls.folder.name, "m"), tools_test.HERMES, tools_test.TEMPLATE + "{#<tool_call>#}")
        generation = pathlib.Path(model) / "generation_config.json"
        generation.write_text(json.dumps({**json.loads(generation.read_text()), "temperature": 0.6, "top_p": 0.95}))
        cls.system = EdgeSystem(target_model=model, settings=(f"model.draft={model}", "kv_cache.memory=256MiB", "draft.memory=128MiB",
                                                             "target.threads=1", "draft.threads=1")).__enter__()
        cls.addClassCleanup(lambda: cls.system.__exit__(None, None, None))
        cls.system.start_all()
        cls.client = openai.OpenAI(base_url=cls.system.base, api_key="any", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.folder.cleanup()
        cls.system.assert_alive()

    def create(self, speculation=SPECULATION[0], **more):
        return self.client.responses.create(**{"model": "random", "input": "weather", "tools": self.TOOLS, "max_output_tokens": 64,
                                               "temperature": 0, "extra_body": {"speculation": speculation}, **more})

    def test_an_answer_repeats_what_the_model_says_of_sampling(self):
        for given, repeated in (({}, (0.6, 0.95)), ({"temperature": None}, (0.6, 0.95)), ({"temperature": 0}, (0, 0.95)),
                                ({"top_p": 0.5}, (0.6, 0.5))):
            for model in ({}, {"model": "random"}, {"model": "default"}):
                with self.subTest(given=given, model=model):
                    status, answer = self.system.post("/v1/responses", {"input": "weather", "max_output_tokens": 1, **given, **model})
                    self.assertEqual((200, repeated), (status, (answer.get("temperature"), answer.get("top_p"))))

    def test_6_tool_calling(self):
        answers = [self.create(speculation) for speculation in SPECULATION]
        self.assertEqual(1, len({json.dumps(without_times(answer.to_dict())) for answer in answers}))
        thought, message, call = answers[0].output
        self.assertEqual(("reasoning", "message", "function_call"), (thought.type, message.type, call.type))
        self.assertEqual(("get_weather", tools_test.ARGUMENTS), (call.name, json.loads(call.arguments)))
        self.assertIn("I need the weather.", thought.content[0].text)
        self.assertEqual(("One moment!", "completed"), (answers[0].output_text.strip(), answers[0].status))
        self.assertEqual(5, answers[0].usage.output_tokens_details.reasoning_tokens)
        jsonschema.validate(answers[0].to_dict(), RESPONSE)
        history = [{"role": "user", "content": "weather"}, *(item.to_dict() for item in answers[0].output),
                   {"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"}]
        self.assertEqual("It is 21 ° there.", self.create(input=history).output_text)
        history[-1]["call_id"] = "call_other"
        with self.assertRaises(openai.BadRequestError) as caught:
            self.create(input=history)
        self.assertEqual("input.4.call_id", caught.exception.param)

    def test_a_streamed_call_joins_to_the_whole(self):
        whole = self.create()
        for speculation in SPECULATION:
            with self.client.responses.stream(model="random", input="weather", tools=self.TOOLS, max_output_tokens=64, temperature=0,
                                              extra_body={"speculation": speculation}) as stream:
                final = stream.get_final_response()
            self.assertEqual(without_times([item.to_dict() for item in whole.output]),
                             without_times(without_parsed([item.to_dict() for item in final.output])))
            events = events_of(self.system, model="random", input="weather", tools=self.TOOLS, max_output_tokens=64, temperature=0,
                               speculation=speculation)
            joined = "".join(event["delta"] for event in events if event["type"] == "response.function_call_arguments.delta")
            self.assertEqual(whole.output[2].arguments, joined)
            thought = [event for event in events if event.get("output_index") == 0]
            self.assertEqual(["output_item.added", "content_part.added", *["reasoning_text.delta"] * (len(thought) - 5), "reasoning_text.done",
                              "content_part.done", "output_item.done"], [event["type"].removeprefix("response.") for event in thought])
            self.assertEqual([{"type": "reasoning_text", "text": ""}, whole.output[0].content[0].to_dict()],
                             [event["part"] for event in thought if "part" in event])
            self.assertEqual([0, 1, 2], [event["output_index"] for event in events if event["type"] == "response.output_item.done"])
            self.assertEqual("response.completed", events[-1]["type"])

    def test_a_cut_call_is_incomplete(self):
        cut = self.create(max_output_tokens=16)
        self.assertEqual(("incomplete", "function_call", "incomplete"), (cut.status, cut.output[-1].type, cut.output[-1].status))

    def test_a_call_that_is_asked_for_and_tools_of_others(self):
        skipped = self.create(tools=[{"type": "web_search"}, *self.TOOLS], parallel_tool_calls=False)
        self.assertEqual(("function_call", 2, False), (skipped.output[-1].type, len(skipped.tools), skipped.parallel_tool_calls))
        with self.assertRaises(openai.BadRequestError) as caught:
            self.create(tool_choice={"type": "function", "name": "no_such"})
        self.assertEqual("tool_choice", caught.exception.param)
        allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": self.TOOLS[0]["name"]}]}
        answer = self.create(tool_choice=allowed)
        self.assertEqual(allowed, answer.to_dict()["tool_choice"])
        jsonschema.validate(answer.to_dict(), RESPONSE)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
