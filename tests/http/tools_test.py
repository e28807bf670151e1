"""Tools and reasoning over HTTP with the official clients of OpenAI and Anthropic: a model that spells calls in each of the three formats,
plain and with both kinds of guesses; a conversation with results; calls that are asked for; what is cut and what is refused."""

import json
import os
import sys
import tempfile
import unittest

import anthropic
import openai


from edge_system import ClientTest, EdgeSystem, without_times
import spelling_model  # behind edge_system, which finds the harness

PLAIN = {"enabled": False}
SPECULATION = (PLAIN, {"proposer": "draft", "draft_len": 4, "adaptive": False}, {"proposer": "ngram", "draft_len": 4, "adaptive": False})
PARAMETERS = {"type": "object", "properties": {"unit": {"type": "string"}, "city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": name, "description": "d", "parameters": PARAMETERS}} for name in ("get_weather", "get_time")]
ARGUMENTS = {"city": "Köln {\"}", "days": [1, 2]}
INSTRUCTIONS = " ".join(f"Rule {i}: read a file before you change it." for i in range(20))

# The last user's text names the script; a result is followed by the script "after".
TEMPLATE = ("{%- if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
            "{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
            "{% for c in m.tool_calls or [] %}CALL{{ c.function | tojson }}{% endfor %}{% endfor %}"
            "{% if add_generation_prompt %}{% if messages[-1].role == 'tool' %}<|after|>"
            "{% elif enable_thinking is defined and not enable_thinking %}<|quiet|>"
            "{% elif reasoning_effort is defined and reasoning_effort == 'none' %}<|quiet|>{% else %}<|{{ messages[-1].content }}|>{% endif %}{% endif %}")
HERMES = {
    "weather": ["<think>", "\nI need", " the weather", ".\n", "</think>", "\n\n", "One", " moment", "!\n", "<tool_call>", "\n{\"name\": \"",
                "get_weather", "\", \"arguments\":", " {\"city\": \"Kö", "ln {\\\"}", "\", \"days\": [1,", " 2]}", "}\n", "</tool_call>"],
    "after": ["It is", " 21 °", " there."],
    "quiet": ["No", " thought!"],
}
LLAMA = {
    "weather": ["{\"name\": \"", "get_weather", "\", \"parameters\":", " {\"city\": \"Kö", "ln {\\\"}", "\", \"days\": [1,", " 2]}", "}\n"],
    "both": [" {\"na", "me\": \"get_time\", ", "\"parameters\": {}", "}; {", "\"name\": \"get_weather\"", ", \"parameters\": {\"c\": 1}}"],
    "json": ["{\"name\"", ": \"Bob\"", ", \"age\": 7}"],
    "after": ["It is", " 21 °", " there."],
}
MISTRAL = {
    "weather": ["[TOOL_CALLS]", " [{\"name\": \"", "get_weather", "\", \"arguments\":", " {\"city\": \"Kö", "ln {\\\"}", "\", \"days\": [1,",
                " 2]}", "} ", ", {\"name\": \"get_time\", ", "\"arguments\": {}", "}]"],
    "after": ["It is", " 21 °", " there."],
}


class Format(ClientTest):
    """One model, one format; run for each of the three below."""

    scripts, marks, special = {}, "", ()
    thought = text = None
    n_calls = 1

    @classmethod
    def setUpClass(cls):
        if cls is Format:
            raise unittest.SkipTest("the base of the three formats")
        cls.folder = tempfile.TemporaryDirectory()
        model = spelling_model.write(os.path.join(cls.folder.name, "m"), cls.scripts, TEMPLATE + "{#" + cls.marks + "#}", cls.special)
        cls.serve(EdgeSystem(target_model=model, settings=(f"model.draft={model}", "kv_cache.memory=256MiB", "draft.memory=128MiB",
                                                           "target.threads=1", "draft.threads=1")))

    def chat(self, word="weather", speculation=PLAIN, messages=None, **more):
        extra = {"speculation": speculation, **more.pop("extra_body", {})}
        return self.openai.chat.completions.create(
            model="random", messages=messages or [{"role": "user", "content": word}], temperature=0,
            **{"tools": TOOLS, "max_completion_tokens": 64, "extra_body": extra, **more})

    def message(self, word="weather", speculation=PLAIN, messages=None, **more):
        tools = [{"name": each["function"]["name"], "input_schema": PARAMETERS} for each in TOOLS]
        return self.anthropic.messages.create(**{
            "model": "random", "messages": messages or [{"role": "user", "content": word}], "max_tokens": 64, "tools": tools,
            "extra_body": {"speculation": speculation, "temperature": 0}, **more})

    def test_a_call_is_whole_and_equal_with_every_proposer(self):
        # A prompt with the words of the answer, so that there is something to guess before a draft is ready.
        words = "".join(self.scripts["weather"])
        messages = [{"role": "system", "content": words}, {"role": "user", "content": "weather"}]
        answers = [self.chat(messages=messages, speculation=speculation) for speculation in SPECULATION]
        answers.append(self.chat(messages=messages, speculation={"proposer": "prediction", "draft_len": 4, "adaptive": False},
                                 extra_body={"prediction": {"type": "content", "content": words}}))
        message, choice = answers[0].choices[0].message, answers[0].choices[0]
        self.assertEqual(("tool_calls", self.text, self.n_calls), (choice.finish_reason, message.content, len(message.tool_calls)))
        call = message.tool_calls[0]
        self.assertEqual(("function", "get_weather", ARGUMENTS), (call.type, call.function.name, json.loads(call.function.arguments)))
        thoughts = message.to_dict()
        self.assertEqual((self.thought, None), (thoughts.get("reasoning_content"), thoughts.get("reasoning")), "one name, one text")
        counted = [answer.usage.completion_tokens_details.reasoning_tokens for answer in answers]
        self.assertEqual(counted, [5 if self.thought else 0] * len(answers))
        self.assertEqual(1, len({json.dumps(without_times(answer.to_dict())) for answer in answers}))
        self.assertEqual(1, len({each.choices[0].message.tool_calls[0].id for each in answers}), "an id is of the question alone")
        for answer in answers[2:]:
            self.assertGreater(answer.to_dict()["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"], 0)

    def test_a_stream_joins_to_the_whole(self):
        whole = self.chat().choices[0].message
        for speculation in SPECULATION:
            text, thought, calls, finish = "", "", {}, None
            for chunk in self.chat(speculation=speculation, stream=True):
                delta = chunk.choices[0].delta
                said = delta.to_dict()
                self.assertFalse(said.get("content") and said.get("reasoning_content"), "never both in one chunk")
                self.assertNotIn("reasoning", said)
                text += delta.content or ""
                thought += said.get("reasoning_content") or ""
                for call in delta.tool_calls or []:
                    if call.index not in calls:
                        self.assertEqual(("function", ""), (call.type, call.function.arguments))
                        calls[call.index] = [call.id, call.function.name, ""]
                    else:
                        self.assertEqual((None, None, None), (call.id, call.type, call.function.name), "said once")
                        calls[call.index][2] += call.function.arguments
                finish = chunk.choices[0].finish_reason or finish
            self.assertEqual((self.text or "", self.thought or "", "tool_calls"), (text, thought, finish))
            self.assertEqual([[each.id, each.function.name, each.function.arguments] for each in whole.tool_calls], list(calls.values()))

    def test_the_client_s_own_stream_helper_reads_it(self):
        strict = [{**each, "function": {**each["function"], "strict": True}} for each in TOOLS]
        with self.openai.chat.completions.stream(model="random", messages=[{"role": "user", "content": "weather"}], tools=strict,
                                                 temperature=0, max_completion_tokens=64) as stream:
            done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
            final = stream.get_final_completion().choices[0]
        self.assertEqual(("get_weather", ARGUMENTS), (done[0].name, json.loads(done[0].arguments)))
        self.assertEqual(("tool_calls", self.n_calls), (final.finish_reason, len(final.message.tool_calls)))

    def test_a_conversation_goes_on_behind_the_results(self):
        message = self.chat().choices[0].message
        history = [{"role": "user", "content": "weather"}, message.to_dict(),
                   *({"role": "tool", "tool_call_id": call.id, "content": "21"} for call in message.tool_calls)]
        answers = [self.chat(messages=history, speculation=speculation).choices[0] for speculation in SPECULATION]
        self.assertEqual({("It is 21 ° there.", "stop")}, {(each.message.content, each.finish_reason) for each in answers})
        shown = self.prompt(history)
        arguments = json.dumps(ARGUMENTS, ensure_ascii=False)
        self.assertIn("CALL{\"name\": \"get_weather\", \"arguments\": " + arguments + "}", shown)
        self.assertTrue(shown.startswith(json.dumps(TOOLS)), "keys in their order")
        if self.thought:
            self.assertIn(f"({self.thought})", shown)

    def prompt(self, messages):
        _, found = self.system.post("/tokenize", {"model": "random", "messages": messages, "tools": TOOLS})
        return self.system.post("/detokenize", {"model": "random", "tokens": found["tokens"], "skip_special_tokens": False})[1]["prompt"]

    def test_a_call_that_is_asked_for_begins_the_answer(self):
        named = {"type": "function", "function": {"name": "get_weather"}}
        for choice in ("required", named):
            with self.subTest(choice=choice):
                answer = self.chat(tool_choice=choice).choices[0]
                self.assertEqual(("tool_calls", None), (answer.finish_reason, answer.message.content))
                call = answer.message.tool_calls[0].function
                self.assertEqual(("get_weather", ARGUMENTS), (call.name, json.loads(call.arguments)))

    def test_only_allowed_tools_are_called_and_all_stay_in_the_prompt(self):
        def ask(name, mode="auto", **more):
            entries = [{"type": "function", "function": {"name": name}}]
            return self.chat(tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": entries}}, **more)
        n_prompt = self.chat().usage.prompt_tokens
        for speculation in SPECULATION:
            answer = ask("get_weather", speculation=speculation)
            self.assertEqual(["get_weather"], [call.function.name for call in answer.choices[0].message.tool_calls])
            self.assertEqual(n_prompt, answer.usage.prompt_tokens)
            answer = ask("get_time", speculation=speculation)
            self.assertEqual((None, "stop"), (answer.choices[0].message.tool_calls, answer.choices[0].finish_reason))
            self.assertIn("get_weather", answer.choices[0].message.content)
            self.assertEqual(n_prompt, answer.usage.prompt_tokens)
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in ask("get_time", stream=True))
        self.assertEqual(answer.choices[0].message.content, streamed)
        self.assertEqual("get_weather", ask("get_weather", "required").choices[0].message.tool_calls[0].function.name)

    def test_one_call_where_one_is_wanted(self):
        self.assertEqual(1, len(self.chat(parallel_tool_calls=False).choices[0].message.tool_calls))

    def test_a_call_that_is_cut_is_none(self):
        n_tokens = self.scripts["weather"].index(" {\"city\": \"Kö") + 2
        answer = self.chat(max_completion_tokens=n_tokens).choices[0]
        self.assertEqual("length", answer.finish_reason)
        self.assertEqual("{\"city\": \"Köln {\\\"}", answer.message.tool_calls[0].function.arguments.strip())

    def test_none_calls_nothing_and_keeps_the_prompt(self):
        answer = self.chat(tool_choice="none")
        self.assertIsNone(answer.choices[0].message.tool_calls)
        self.assertIn("get_weather", answer.choices[0].message.content)
        self.assertEqual(self.chat().usage.prompt_tokens, answer.usage.prompt_tokens)

    def test_anthropic_has_blocks(self):
        answers = [self.message(speculation=speculation) for speculation in SPECULATION]
        blocks = answers[0].content
        kinds = [*(["thinking"] if self.thought else []), *(["text"] if self.text else []), *(["tool_use"] * self.n_calls)]
        self.assertEqual((kinds, "tool_use"), ([block.type for block in blocks], answers[0].stop_reason))
        use = next(block for block in blocks if block.type == "tool_use")
        self.assertEqual(("get_weather", ARGUMENTS), (use.name, use.input))
        if self.thought:
            self.assertEqual(self.thought, blocks[0].thinking)
            self.assertRegex(blocks[0].signature, "^[0-9a-f]{64}$")
        self.assertEqual(1, len({json.dumps([block.to_dict() for block in each.content]) for each in answers}))

    def test_anthropic_s_stream_joins_to_the_message(self):
        whole = self.message()
        tools = [{"name": each["function"]["name"], "input_schema": PARAMETERS} for each in TOOLS]
        for speculation in SPECULATION:
            events = []
            with self.anthropic.messages.stream(model="random", messages=[{"role": "user", "content": "weather"}], max_tokens=64, tools=tools,
                                                extra_body={"speculation": speculation, "temperature": 0}) as stream:
                events = [event for event in stream if event.type in ("message_start", "content_block_start", "content_block_stop")]
                final = stream.get_final_message()
            self.assertEqual([block.to_dict() for block in whole.content], [block.to_dict() for block in final.content])
            self.assertEqual((whole.stop_reason, whole.usage.output_tokens), (final.stop_reason, final.usage.output_tokens))
            self.assertEqual(whole.usage.input_tokens + whole.usage.cache_read_input_tokens, events[0].message.usage.input_tokens)
            self.assertEqual(["content_block_start", "content_block_stop"] * len(whole.content), [event.type for event in events[1:]])

    def test_anthropic_s_conversation_goes_on_behind_the_results(self):
        message = self.message()
        uses = [block for block in message.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "21"}], "is_error": True} for use in uses]
        history = [{"role": "user", "content": "weather"}, {"role": "assistant", "content": [block.to_dict() for block in message.content]},
                   {"role": "user", "content": results}]
        self.assertEqual("It is 21 ° there.", self.message(messages=history).content[0].text)
        tools = [{"name": each["function"]["name"], "input_schema": PARAMETERS} for each in TOOLS]
        usage = self.message(messages=history).usage
        counted = self.anthropic.messages.count_tokens(model="random", messages=history, tools=tools)
        self.assertEqual(usage.input_tokens + usage.cache_read_input_tokens, counted.input_tokens)

    def test_a_coding_agent_s_second_turn_finds_the_first_in_the_cache(self):
        """The two requests as a coding agent sends them: beta route and header, a line of its own that changes, marks for the cache,
        more tokens than the context has, a stream; then the same conversation with the result of the call."""
        tools = [{"name": each["function"]["name"], "description": "d" * 80, "input_schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema", "additionalProperties": False, **PARAMETERS}} for each in TOOLS]
        mark = {"cache_control": {"type": "ephemeral"}}

        def system(n_request):
            return [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2; cch={n_request}"},
                    {"type": "text", "text": "You help with code.", **mark}, {"type": "text", "text": INSTRUCTIONS, **mark}]

        def turn(n_request, messages, speculation):
            with self.anthropic.beta.messages.stream(
                    model="random", max_tokens=32000, system=system(n_request), messages=messages, tools=tools,
                    metadata={"user_id": "user_1_account__session_1"}, betas=["interleaved-thinking-2025-05-14"],
                    thinking={"type": "enabled", "budget_tokens": 31999},
                    extra_body={"speculation": speculation, "temperature": 0}) as stream:
                for _ in stream:
                    pass
                return stream.get_final_message()

        second = set()
        for n_request, speculation in enumerate(SPECULATION):
            asked = [{"role": "user", "content": [{"type": "text", "text": "weather", **mark}]}]
            first = turn(2 * n_request, asked, speculation)
            self.assertEqual("tool_use", first.stop_reason)
            results = [{"type": "tool_result", "tool_use_id": block.id, "content": "21"} for block in first.content if block.type == "tool_use"]
            results[-1].update(mark)
            history = [*asked, {"role": "assistant", "content": [block.to_dict() for block in first.content]},
                       {"role": "user", "content": results}]
            answer = turn(2 * n_request + 1, history, speculation)
            second.add(answer.content[0].text)
            usage = answer.usage
            n_prompt = usage.input_tokens + usage.cache_read_input_tokens
            self.assertGreater(n_prompt, 1000)
            self.assertGreater(usage.cache_read_input_tokens, 0.9 * n_prompt)
        self.assertEqual({"It is 21 ° there."}, second)

    def test_anthropic_asks_for_calls_too(self):
        for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True}):
            answer = self.message(tool_choice=choice)
            self.assertEqual(("tool_use", "get_weather"), (answer.content[0].type, answer.content[0].name))
        self.assertNotEqual("tool_use", self.message(tool_choice={"type": "none"}).content[-1].type)

    def test_the_format_is_shown(self):
        services = json.loads(self.system.http("GET", "/props")[2])["services"]
        self.assertEqual([type(self).__name__.lower()], [each["tool_format"] for each in services if each["role"] == "tokenizer"])

    def test_what_does_not_hold_together_is_refused_by_its_place(self):
        lost = [{"role": "user", "content": "weather"}, {"role": "tool", "tool_call_id": "x", "content": "1"}]
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(messages=lost)
        self.assertEqual("messages[1].tool_call_id", caught.exception.param)
        for request, param in (({"tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
                               ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0]")):
            with self.subTest(param=param), self.assertRaises(openai.BadRequestError) as caught:
                self.chat(**request)
            self.assertEqual(param, caught.exception.param)
        lost = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "1"}]}]
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.message(messages=lost)
        self.assertIn("messages.0.content.0.tool_use_id", str(caught.exception))


class Hermes(Format):
    scripts, marks = HERMES, "<tool_call>"
    thought, text = "I need the weather.", "One moment!"

    def test_a_template_s_variables_are_given(self):
        answer = self.chat(extra_body={"chat_template_kwargs": {"enable_thinking": False}})
        self.assertEqual("No thought!", answer.choices[0].message.content)
        self.assertEqual("No thought!", self.message(thinking={"type": "disabled"}).content[0].text)
        self.assertEqual("No thought!", self.chat(reasoning_effort="none").choices[0].message.content)
        own = self.chat(reasoning_effort="none", extra_body={"chat_template_kwargs": {"reasoning_effort": "high"}})
        self.assertEqual(self.text, own.choices[0].message.content)

    def test_thoughts_that_are_cut_are_no_content(self):
        answer = self.chat(max_completion_tokens=3)
        self.assertEqual(("length", None), (answer.choices[0].finish_reason, answer.choices[0].message.content))
        self.assertEqual("I need the weather", answer.choices[0].message.to_dict()["reasoning_content"])
        self.assertEqual(3, answer.usage.completion_tokens_details.reasoning_tokens)

    def test_the_answer_continues_the_last_message(self):
        history = [{"role": "user", "content": "weather"}, {"role": "assistant", "content": "Well. It is"}]
        self.assertEqual(" 21 ° there.", self.message(messages=history).content[0].text)
        answer = self.chat(messages=history, extra_body={"continue_final_message": True})
        self.assertEqual(" 21 ° there.", answer.choices[0].message.content)


class Llama(Format):
    scripts, marks = LLAMA, "<|python_tag|>"

    def test_calls_stand_one_behind_the_other(self):
        calls = self.chat("both").choices[0].message.tool_calls
        self.assertEqual([("get_time", "{}"), ("get_weather", "{\"c\": 1}")], [(each.function.name, each.function.arguments) for each in calls])
        self.assertEqual(1, len(self.chat("both", parallel_tool_calls=False).choices[0].message.tool_calls))

    def test_an_object_that_names_no_tool_is_text(self):
        answer = self.chat("json").choices[0]
        self.assertEqual(("{\"name\": \"Bob\", \"age\": 7}", "stop"), (answer.message.content, answer.finish_reason))


class Mistral(Format):
    scripts, marks, special = MISTRAL, "[TOOL_CALLS] [", ("[TOOL_CALLS]",)
    n_calls = 2

    def test_ids_are_those_that_the_template_takes(self):
        for call in self.chat().choices[0].message.tool_calls:
            self.assertRegex(call.id, "^[A-Za-z0-9]{9}$")


class WithoutTools(unittest.TestCase):
    def test_tools_are_refused_where_the_model_has_no_format(self):
        with EdgeSystem() as system:
            system.start_all()
            body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "tools": TOOLS}
            status, answer = system.post("/v1/chat/completions", body)
            self.assertEqual((400, "tools", "unsupported_parameter"), (status, answer["error"]["param"], answer["error"]["code"]))
            self.assertIn("model.tool_format", answer["error"]["message"])
            self.assertEqual(200, system.post("/v1/chat/completions", {**body, "tool_choice": "none"})[0])
            system.assert_alive()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
