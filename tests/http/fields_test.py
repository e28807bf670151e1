"""What docs/reference/http.md says about every field of every endpoint, seen in answers of running services; and that it says something
about every field that the official clients can send."""

import json
import pathlib
import re
import sys
import unittest

import anthropic.types
import anthropic.types.message_create_params
import openai.types.chat.completion_create_params
import openai.types.completion_create_params
import openai.types.responses.response_create_params

from edge_system import ROOT, EdgeSystem, without_times

MESSAGES = [{"role": "user", "content": "the cat sat on the mat"}]
LETTERS = {str(ord(letter)): 30 for letter in "abcdefghijklmnopqrstuvwxyz"}  # a token of the tiny model is a byte: its answers are words
END = {"260": 100}
END_TEXT = "<|end|>"
ENUM = {"enum": ["12", "34"]}
GBNF = 'root ::= "<" [0-9] ">"'


def tables():
    """{endpoint: {field: use}} of the page."""
    found = {}
    for line in (ROOT / "docs/reference/http.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            rows = found.setdefault(re.search(r"/\S*[a-z]", line)[0], {})
        elif row := re.match(r"\| `(\w+)` \| (\w+) \|", line):
            rows[row[1]] = row[2]
    return found


TABLES = tables()


def is_held(ask, pattern, **constraint):
    """Whether the answer fits as a whole, and ends because it does: it is shorter than one that is free, and has other characters."""
    answer = ask(**constraint)
    return re.fullmatch(pattern, answer.text) and answer.choice["finish_reason"] == "stop"


class Fields(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Counts of cached tokens would differ between equal requests.
        cls.system = EdgeSystem(("edge.ollama=true", "kv_cache.prefix_cache=false")).__enter__()
        cls.addClassCleanup(lambda: cls.system.__exit__(None, None, None))
        cls.system.start_all()

    @classmethod
    def tearDownClass(cls):
        cls.system.assert_alive()

    def check(self, endpoint, body, honoured, path=None):
        """Every field of an endpoint. `honoured`: for each such field a function of `ask`, which is true if the field does what it says."""
        table = TABLES[endpoint]
        self.assertEqual({name for name, use in table.items() if use == "honoured"}, set(honoured), "a case for each honoured field")

        def ask(**more):
            return Answer(*self.system.http("POST", path or endpoint, {**body, **more}))
        base = ask()
        self.assertEqual(200, base.status, base)
        for name, use in table.items():
            with self.subTest(endpoint=endpoint, field=name, use=use):
                if use == "honoured":
                    self.assertTrue(honoured[name](ask))
                    continue
                answer = ask(**{name: "something"})
                if use == "refused":
                    self.assertTrue(answer.blames(name), answer)
                    self.assertEqual(200, ask(**{name: None}).status)
                else:
                    self.assertEqual("ignored", use)
                    self.assertEqual((200, name), (answer.status, answer.headers.get("x-foretoken-ignored")), answer)
                    self.assertEqual(without_times(base.json), without_times(answer.json))
        self.assertEqual("nothing_like_it", ask(nothing_like_it=1).headers.get("x-foretoken-ignored"))

    def common(self):
        """Of chat and completions."""
        def word(ask):  # one that is in the greedy answer, not at its start
            return ask(temperature=0).text[4:6]
        return {
            "model": lambda ask: ask(model="other").status == 404,
            "temperature": lambda ask: ask(temperature=0).text == ask(temperature=0, seed=6).text != ask().text,
            "top_p": lambda ask: ask(top_p=1e-6).text == ask(temperature=0).text,
            "top_k": lambda ask: ask(top_k=1).text == ask(temperature=0).text,
            "min_p": lambda ask: ask(min_p=0.99999).text == ask(temperature=0).text,
            "n": lambda ask: len(set(ask(n=3).texts)) == 3,
            "stop": lambda ask: ask(temperature=0, stop=word(ask)).text == ask(temperature=0).text.split(word(ask))[0],
            "seed": lambda ask: ask(seed=6).text != ask().text,
            "logit_bias": lambda ask: ask(logit_bias={"65": 100}).text == "A" * 24,
            "presence_penalty": lambda ask: ask(presence_penalty=2, temperature=0).text != ask(temperature=0).text,
            "frequency_penalty": lambda ask: ask(frequency_penalty=2, temperature=0).text != ask(temperature=0).text,
            "repetition_penalty": lambda ask: ask(repetition_penalty=9, temperature=0).text != ask(temperature=0).text,
            "stream": lambda ask: ask(stream=True).events[-1] == "[DONE]",
            "stream_options": lambda ask: ask(stream=True, stream_options={"include_usage": True}).events[-2]["usage"]["completion_tokens"] == 24,
            "prediction": lambda ask: ask(temperature=0, prediction={"type": "content", "content": ask(temperature=0).text},
                                          speculation={"proposer": "prediction"}).usage["completion_tokens_details"]["accepted_prediction_tokens"] > 0,
            "speculation": lambda ask: [ask(speculation={"draft_len": n}).json["metrics"]["speculative_decoding"]["num_spec_tokens"]
                                        for n in (0, 3)] == [0, 3],
            "min_tokens": lambda ask: ask(logit_bias=END).usage["completion_tokens"] < 5 <= ask(logit_bias=END, min_tokens=5).usage["completion_tokens"],
            "ignore_eos": lambda ask: (ask(logit_bias=END).choice["finish_reason"], ask(logit_bias=END, ignore_eos=True).choice["finish_reason"]) == ("stop", "length"),
            "stop_token_ids": lambda ask: [ask(temperature=0, stop_token_ids=[ord(word(ask)[0])]).choice["stop_reason"],
                                           ask(temperature=0, stop_token_ids=[ord(word(ask)[0])]).text]
            == [ord(word(ask)[0]), ask(temperature=0).text.split(word(ask)[0])[0]],
            "bad_words": lambda ask: word(ask)[0] not in ask(temperature=0, bad_words=word(ask)[0]).text,
            "prompt_logprobs": lambda ask: self.are_prompt_logprobs(ask(prompt_logprobs=3, return_token_ids=True)) and ask(prompt_logprobs=1, stream=True).blames("prompt_logprobs"),
            "return_token_ids": lambda ask: self.are_token_ids(ask(return_token_ids=True), ask(return_token_ids=True, stream=True)),
            "skip_special_tokens": lambda ask: [END_TEXT in ask(logit_bias=END, ignore_eos=True, skip_special_tokens=skip).text
                                                for skip in (True, False)] == [False, True],
            "include_stop_str_in_output": lambda ask: ask(temperature=0, stop=word(ask), include_stop_str_in_output=True).text.endswith(word(ask))
            and ask(temperature=0, stop_token_ids=[ord(word(ask)[0])], include_stop_str_in_output=True).text.endswith(word(ask)[0]),
            "priority": lambda ask: ask(priority=255).status == 200 and ask(priority=256).blames("priority"),
            "response_format": lambda ask: ask(response_format={"type": "text"}).text == ask().text
            and ask(response_format={"type": "json_object"}, logit_bias={str(ord("}")): 100}).text == "{}"
            and is_held(ask, r'"(12|34)"', response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": ENUM}})
            and ask(response_format={"type": "yaml"}).blames("response_format.type"),
            "structured_outputs": lambda ask: is_held(ask, "[0-9]{4}", structured_outputs={"regex": r"\d{4}"})
            and is_held(ask, r'"(12|34)"', structured_outputs={"json": ENUM}) and is_held(ask, r"1\.2|345", structured_outputs={"choice": ["1.2", "345"]})
            and is_held(ask, "<[0-9]>", structured_outputs={"grammar": GBNF}) and ask(structured_outputs={"regex": "("}).blames("structured_outputs.regex")
            and ask(structured_outputs={"regex": "a"}, regex="a").blames("structured_outputs.regex"),
            "guided_json": lambda ask: is_held(ask, r'"(12|34)"', guided_json=ENUM) and ask(guided_json={"not": {}}).blames("guided_json"),
            "guided_regex": lambda ask: is_held(ask, "[0-9]{4}", guided_regex=r"\d{4}") and ask(guided_regex="(").blames("guided_regex"),
            "guided_choice": lambda ask: is_held(ask, r"1\.2|345", guided_choice=["1.2", "345"]) and ask(guided_choice=[]).blames("guided_choice"),
            "guided_grammar": lambda ask: is_held(ask, "<[0-9]>", guided_grammar=GBNF) and ask(guided_grammar="root ::=").blames("guided_grammar"),
            "json_schema": lambda ask: is_held(ask, r'"(12|34)"', json_schema=ENUM) and is_held(ask, r'"(12|34)"', json_schema=json.dumps(ENUM))
            and ask(json_schema={"not": {}}).blames("json_schema"),
            "regex": lambda ask: is_held(ask, "[0-9]{4}", regex=r"\d{4}") and ask(regex="(").blames("regex"),
            "gbnf": lambda ask: is_held(ask, "<[0-9]>", gbnf=GBNF) and ask(gbnf="root ::=").blames("gbnf"),
            "grammar": lambda ask: is_held(ask, "<[0-9]>", grammar=GBNF) and ask(grammar="root ::=").blames("grammar") and ask(grammar="").text == ask().text,
        }

    @staticmethod
    def are_prompt_logprobs(answer):
        scores = answer.json.get("prompt_logprobs") or answer.choice["prompt_logprobs"]
        ids = answer.json.get("prompt_token_ids") or answer.choice["prompt_token_ids"]
        own = [score[str(token)] for score, token in zip(scores[1:], ids[1:])]
        return (scores[0] is None and len(scores) == len(ids) == answer.usage["prompt_tokens"]
                and all(3 <= len(score) <= 4 and {1, 2, 3} <= {each["rank"] for each in score.values()} for score in scores[1:])
                and all(one["logprob"] <= 0 and isinstance(one["decoded_token"], str) for one in own)
                and all(each["logprob"] >= own[i]["logprob"] for i, score in enumerate(scores[1:]) for each in score.values() if each["rank"] == 1))

    @staticmethod
    def are_token_ids(answer, stream):
        ids = answer.choice["token_ids"]
        prompt = answer.json.get("prompt_token_ids") or answer.choice["prompt_token_ids"]
        parts = [event["choices"][0] for event in stream.events[:-1]]
        first = stream.events[0].get("prompt_token_ids") or parts[0].get("prompt_token_ids")
        return (len(ids) == answer.usage["completion_tokens"] and len(prompt) == answer.usage["prompt_tokens"] and first == prompt
                and ids == [token for part in parts for token in part.get("token_ids", [])])

    def test_chat(self):
        parts = [{"role": "user", "content": [{"type": "text", "text": "the cat "}, {"type": "text", "text": "sat on the mat"}]}]
        tools = [{"type": "function", "function": {"name": "f"}}]
        begun = {"messages": [*MESSAGES, {"role": "assistant", "content": "so"}], "add_generation_prompt": False}
        cached = [{**MESSAGES[0], "cache_control": {"type": "ephemeral"}}]
        self.check("/v1/chat/completions", {"model": "tiny", "messages": MESSAGES, "max_tokens": 24, "seed": 5, "temperature": 1, "logit_bias": LETTERS}, {
            **self.common(),
            "messages": lambda ask: ask(messages=parts).text == ask().text and ask(messages=[]).blames("messages")
            and ask(messages=cached).text == ask().text and ask(messages=cached).headers["x-foretoken-ignored"] == "messages[0].cache_control",
            "max_completion_tokens": lambda ask: ask(max_completion_tokens=3).usage["completion_tokens"] == 3,
            "max_tokens": lambda ask: ask(max_tokens=4).usage["completion_tokens"] == 4,
            "logprobs": lambda ask: len(ask(logprobs=True).choice["logprobs"]["content"]) == 24,
            "top_logprobs": lambda ask: len(ask(logprobs=True, top_logprobs=2).choice["logprobs"]["content"][0]["top_logprobs"]) == 2,
            "add_generation_prompt": lambda ask: ask(add_generation_prompt=False).usage["prompt_tokens"] < ask().usage["prompt_tokens"],
            # The tiny model's template has no calls of tools: tests/http/tools_test.py has models that spell them.
            "tools": lambda ask: ask(tools=tools).blames("tools") and ask(tools=tools, tool_choice="none").text == ask().text,
            "tool_choice": lambda ask: ask(tool_choice="none").text == ask().text and ask(tool_choice="required").blames("tool_choice"),
            "parallel_tool_calls": lambda ask: ask(parallel_tool_calls=False).text == ask().text and ask(parallel_tool_calls=1).blames("parallel_tool_calls"),
            "chat_template_kwargs": lambda ask: ask(chat_template_kwargs={"note": "abc"}).usage["prompt_tokens"] == ask().usage["prompt_tokens"] + 3
            and ask(chat_template_kwargs=[]).blames("chat_template_kwargs"),
            # The tiny model's template does not read it; one that does is in tests/http/tools_test.py.
            "reasoning_effort": lambda ask: ask(reasoning_effort="low").text == ask().text and ask(reasoning_effort=3).blames("reasoning_effort"),
            "continue_final_message": lambda ask: ask(**begun, continue_final_message=True).usage["prompt_tokens"] < ask(**begun).usage["prompt_tokens"],
            "modalities": lambda ask: ask(modalities=["text"]).text == ask().text and ask(modalities=["audio"]).blames("modalities"),
        })

    def test_completions(self):
        self.check("/v1/completions", {"model": "tiny", "prompt": "the cat", "max_tokens": 24, "seed": 5, "temperature": 1, "logit_bias": LETTERS}, {
            **self.common(),
            "prompt": lambda ask: ask(prompt=["the cat", [99, 97, 116]]).texts[0] == ask().text and ask(prompt={}).blames("prompt"),
            "max_tokens": lambda ask: ask(max_tokens=4).usage["completion_tokens"] == 4,
            "logprobs": lambda ask: len(ask(logprobs=2).choice["logprobs"]["token_logprobs"]) == 24,
            "echo": lambda ask: ask(echo=True).text == "the cat" + ask().text,
            "best_of": lambda ask: ask(best_of=1).text == ask().text and ask(best_of=2).blames("best_of"),
            "add_special_tokens": lambda ask: ask(add_special_tokens=False).status == 200 and ask(add_special_tokens=2).blames("add_special_tokens"),
        })

    def test_responses(self):
        logprobs = ["message.output_text.logprobs"]

        def entries(answer):
            return answer.json["output"][0]["content"][0]["logprobs"]
        function = [{"type": "function", "name": "f", "parameters": {}}]
        self.check("/v1/responses", {"model": "tiny", "input": "the cat sat", "max_output_tokens": 24, "seed": 5, "temperature": 1}, {
            "model": lambda ask: ask(model="other").status == 404,
            "input": lambda ask: ask(input=[{"role": "user", "content": [{"type": "input_text", "text": "the cat sat"}]}]).text == ask().text
            and ask(input=[{"type": "item_reference", "id": "x"}]).blames("input.0"),
            "instructions": lambda ask: ask(instructions="be brief").usage["input_tokens"] > ask().usage["input_tokens"],
            "max_output_tokens": lambda ask: ask(max_output_tokens=3).usage["output_tokens"] == 3,
            "temperature": lambda ask: ask(temperature=0).text == ask(temperature=0, seed=6).text != ask().text,
            "top_p": lambda ask: ask(top_p=1e-6).text == ask(temperature=0).text,
            "presence_penalty": lambda ask: ask(presence_penalty=2, temperature=0).text != ask(temperature=0).text,
            "frequency_penalty": lambda ask: ask(frequency_penalty=2, temperature=0).text != ask(temperature=0).text,
            "top_logprobs": lambda ask: len(entries(ask(include=logprobs, top_logprobs=2))[0]["top_logprobs"]) == 2,
            "include": lambda ask: (len(entries(ask(include=logprobs))), entries(ask(include=["reasoning.encrypted_content"]))) == (24, []),
            "stream": lambda ask: ask(stream=True).events[-1] == "[DONE]",
            "text": lambda ask: ask(text={"format": {"type": "text"}}).text == ask().text
            and ask(text={"format": {"type": "json_schema", "name": "n", "schema": ENUM}}).text in ('"12"', '"34"')
            and ask(text={"format": {"type": "yaml"}}).blames("text.format.type"),
            "tools": lambda ask: ask(tools=[{"type": "web_search"}]).headers["x-foretoken-ignored"] == "tools.0" and ask(tools=function).blames("tools"),
            "parallel_tool_calls": lambda ask: ask(parallel_tool_calls=False).text == ask().text and ask(parallel_tool_calls=1).blames("parallel_tool_calls"),
            "reasoning": lambda ask: ask(reasoning={"effort": "low"}).json["reasoning"] == {"effort": "low"},
            "tool_choice": lambda ask: ask(tools=function, tool_choice="none").text == ask().text and ask(tool_choice="required").blames("tool_choice"),
            "truncation": lambda ask: ask(truncation="disabled").status == 200 and ask(truncation="auto").blames("truncation"),
            "store": lambda ask: ask(store=True).json["store"] is False,
            "metadata": lambda ask: ask(metadata={"a": "b"}).json["metadata"] == {"a": "b"},
            "speculation": lambda ask: ask(speculation={"enabled": False}).text == ask().text and ask(speculation={"draft_len": 99}).blames("speculation.draft_len"),
            "seed": lambda ask: ask(seed=6).text != ask().text,
        })

    def test_ollamas_show(self):
        self.check("/api/show", {"model": "tiny"}, {
            "model": lambda ask: ask(model="other").status == 404,
            "name": lambda ask: ask(model=None, name="tiny").json == ask().json,
        })

    def test_messages(self):
        def letter(ask):
            return next(each for each in ask(temperature=0).text[2:] if each.isascii())

        format = {"type": "json_schema", "schema": ENUM}

        def n_prompt(answer):
            return answer.json["usage"]["input_tokens"] + answer.json["usage"]["cache_read_input_tokens"]
        tools = [{"name": "f", "input_schema": {"type": "object"}}]
        self.check("/v1/messages", {"model": "tiny", "messages": MESSAGES, "max_tokens": 24, "seed": 5, "temperature": 1}, {
            "model": lambda ask: ask(model="other").status == 404,
            "messages": lambda ask: ask(messages=[]).blames("messages"),
            "system": lambda ask: n_prompt(ask(system="be brief")) > n_prompt(ask()),
            "max_tokens": lambda ask: ask(max_tokens=3).json["usage"]["output_tokens"] == 3 and ask(max_tokens=None).blames("max_tokens"),
            "stop_sequences": lambda ask: ask(temperature=0, stop_sequences=[letter(ask)]).json["stop_sequence"] == letter(ask),
            "temperature": lambda ask: ask(temperature=0).text == ask(temperature=0, seed=6).text != ask().text,
            "top_p": lambda ask: ask(top_p=1e-6).text == ask(temperature=0).text,
            "top_k": lambda ask: ask(top_k=1).text == ask(temperature=0).text,
            "stream": lambda ask: ask(stream=True).events[-1]["type"] == "message_stop",
            "speculation": lambda ask: ask(speculation={"enabled": False}).text == ask().text and ask(speculation={"draft_len": 99}).blames("speculation.draft_len"),
            "seed": lambda ask: ask(seed=6).text != ask().text,
            "tools": lambda ask: ask(tools=tools).blames("tools") and ask(tools=tools, tool_choice={"type": "none"}).text == ask().text,
            "tool_choice": lambda ask: ask(tool_choice={"type": "none"}).text == ask().text and ask(tool_choice={"type": "any"}).blames("tool_choice"),
            "thinking": lambda ask: ask(thinking={"type": "disabled"}).text == ask().text and ask(thinking={"type": "often"}).blames("thinking"),
            "output_config": lambda ask: ask(output_config={"effort": "low"}).text == ask().text
            and ask(output_config={"format": format}).text in ('"12"', '"34"')
            and ask(output_config={"format": {"type": "json_schema"}}).blames("output_config.format.schema"),
            "output_format": lambda ask: ask(output_format=format).text in ('"12"', '"34"') and ask(output_format=5).blames("output_format"),
        })

    def test_count_tokens(self):
        tools = [{"name": "f", "input_schema": {"type": "object"}}]
        self.check("/v1/messages/count_tokens", {"model": "tiny", "messages": MESSAGES}, {
            "model": lambda ask: ask(model="other").status == 404,
            "messages": lambda ask: ask(messages=MESSAGES * 3).json["input_tokens"] > ask().json["input_tokens"],
            "system": lambda ask: ask(system="be brief").json["input_tokens"] > ask().json["input_tokens"],
            "tools": lambda ask: ask(tools=tools).blames("tools") and ask(tools=tools, tool_choice={"type": "none"}).json == ask().json,
            "tool_choice": lambda ask: ask(tool_choice={"type": "none"}).json == ask().json and ask(tool_choice={"type": "any"}).blames("tool_choice"),
            "thinking": lambda ask: ask(thinking={"type": "disabled"}).json == ask().json and ask(thinking={"type": "often"}).blames("thinking"),
            "output_config": lambda ask: ask(output_config={"effort": "low", "format": {"type": "json_schema", "schema": ENUM}}).json == ask().json
            and ask(output_config={"format": {"type": "json_schema"}}).blames("output_config.format.schema"),
            "output_format": lambda ask: ask(output_format={"type": "json_schema", "schema": ENUM}).json == ask().json
            and ask(output_format=5).blames("output_format"),
        })

    def test_triton(self):
        ends = {"embedding_bias_words": END_TEXT, "embedding_bias_weights": 100}
        sampled = {"top_k": 50, "random_seed": 5}

        def letter(ask):
            return next(each for each in ask().text[2:] if each.isascii())
        self.check("/v2/models/NAME/generate", {"text_input": "the cat", "max_tokens": 24, "exclude_input_in_output": True}, {
            "text_input": lambda ask: ask(text_input="a dog").text != ask().text and ask(text_input=["a", "b"]).blames("text_input"),
            "max_tokens": lambda ask: len(ask(max_tokens=3, return_log_probs=True).json["output_log_probs"]) == 3,
            "request_output_len": lambda ask: len(ask(max_tokens=None, request_output_len=3, return_log_probs=True).json["output_log_probs"]) == 3,
            "bad_words": lambda ask: letter(ask) not in ask(bad_words=letter(ask)).text,
            "stop_words": lambda ask: ask(stop_words=letter(ask)).text == ask().text.split(letter(ask))[0] + letter(ask),
            "end_id": lambda ask: (ask(**ends).text, len(ask(**ends, end_id=-1, return_log_probs=True).json["output_log_probs"])) == ("", 24)
            and all(ask(end_id=ord(letter(ask)), stop_words=words).text == ask().text.split(letter(ask))[0] for words in ("", "never there")),
            "temperature": lambda ask: ask(**sampled, temperature=1e-3).text == ask().text != ask(**sampled).text,
            "top_k": lambda ask: ask(**sampled).text != ask().text,
            "top_p": lambda ask: ask(top_p=0.99, random_seed=5).text != ask().text,
            "repetition_penalty": lambda ask: ask(repetition_penalty=9).text != ask().text,
            "presence_penalty": lambda ask: ask(presence_penalty=2).text != ask().text,
            "frequency_penalty": lambda ask: ask(frequency_penalty=2).text != ask().text,
            "min_length": lambda ask: ask(**ends, min_length=4, return_log_probs=True).json["output_log_probs"][3:] != [],
            "random_seed": lambda ask: ask(top_k=50, random_seed=6).text != ask(**sampled).text,
            "return_log_probs": lambda ask: len(ask(return_log_probs=True).json["output_log_probs"]) == 24,
            "return_perf_metrics": lambda ask: self.are_times(ask(return_perf_metrics=True).json),
            "stream": lambda ask: ask(stream=True).blames("stream"),
            # Whether guesses come in time is a matter of speed: asked until some did.
            "num_draft_tokens": lambda ask: [any(ask(return_perf_metrics=True, num_draft_tokens=n, max_tokens=400).json["total_draft_tokens"] > 0
                                                 for _ in range(20 if n else 1)) for n in (0, 4)] == [False, True],
            "exclude_input_in_output": lambda ask: ask(exclude_input_in_output=False).text == "the cat" + ask().text,
            "num_return_sequences": lambda ask: self.are_sequences(ask, sampled),
            "embedding_bias_words": lambda ask: ask(embedding_bias_words=["A", "B"], embedding_bias_weights=[100, -3]).text == "A" * 24,
            "embedding_bias_weights": lambda ask: ask(embedding_bias_words=["A", "B"], embedding_bias_weights=100).blames("embedding_bias_weights")
            and ask(embedding_bias_words="A", embedding_bias_weights=101).blames("embedding_bias_weights"),
            "beam_width": lambda ask: ask(beam_width=1).text == ask().text and ask(beam_width=2).blames("beam_width"),
        }, path="/v2/models/tiny/generate")

    @staticmethod
    def are_times(answer):
        times = [answer[name + "_time_ns"] for name in ("arrival", "first_scheduled", "first_token", "last_token")]
        return times == sorted(times) and times[0] > 0 and 0 <= answer["acceptance_rate"] <= 1

    @staticmethod
    def are_sequences(ask, sampled):
        several = ask(**sampled, num_return_sequences=2, return_log_probs=True).json
        return (several["text_output"][0] == ask(**sampled).text != several["text_output"][1]
                and [len(each) for each in several["output_log_probs"]] == [24, 24] and len(several["cum_log_probs"]) == 2)

    def test_tokenize(self):
        tools = [{"type": "function", "function": {"name": "f"}}]
        chat = {"prompt": None, "messages": MESSAGES}
        begun = {"prompt": None, "messages": [*MESSAGES, {"role": "assistant", "content": "so"}], "add_generation_prompt": False}
        self.check("/tokenize", {"model": "tiny", "prompt": "the cat"}, {
            "model": lambda ask: ask(model="other").status == 404,
            "prompt": lambda ask: ask(prompt="a").json["tokens"] == [97],
            "tools": lambda ask: ask(**chat, tools=tools).blames("tools"),
            "tool_choice": lambda ask: ask(**chat, tools=tools, tool_choice="none").json == ask(**chat).json and ask(**chat, tool_choice="any").blames("tool_choice"),
            "chat_template_kwargs": lambda ask: ask(**chat, chat_template_kwargs={"note": "abc"}).json["count"] == ask(**chat).json["count"] + 3,
            "reasoning_effort": lambda ask: ask(**chat, reasoning_effort="low").json == ask(**chat).json
            and ask(**chat, reasoning_effort=3).blames("reasoning_effort"),
            "messages": lambda ask: ask(prompt=None, messages=MESSAGES).json["count"] > 20,
            "add_special_tokens": lambda ask: ask(add_special_tokens=False).status == 200 and ask(add_special_tokens=2).blames("add_special_tokens"),
            "add_generation_prompt": lambda ask: ask(prompt=None, messages=MESSAGES, add_generation_prompt=False).json["count"]
            < ask(prompt=None, messages=MESSAGES).json["count"],
            "continue_final_message": lambda ask: ask(**begun, continue_final_message=True).json["count"] < ask(**begun).json["count"],
        })

    def test_detokenize(self):
        self.check("/detokenize", {"model": "tiny", "tokens": [97, 260, 98]}, {
            "model": lambda ask: ask(model="other").status == 404,
            "tokens": lambda ask: ask(tokens=[99]).json["prompt"] == "c",
            "skip_special_tokens": lambda ask: [ask(skip_special_tokens=skip).json["prompt"] for skip in (True, False)] == ["ab", f"a{END_TEXT}b"],
        })

    def refusal(self, endpoint, body):
        """(param, message) of a refusal of OpenAI's protocol."""
        status, _, text = self.system.http("POST", endpoint, body)
        self.assertEqual(400, status, text)
        error = json.loads(text)["error"]
        return error["param"], error["message"]

    def test_an_error_about_messages_names_the_message_and_the_part(self):
        picture = {"type": "image_url", "image_url": {"url": "x"}}
        for message, param, words in (
                ({"role": "user", "content": 5}, "messages[1].content", "messages[1].content is 5; it must be a text or a list of parts"),
                ({"role": "user", "content": None}, "messages[1].content", "messages[1].content is null; it must be"),
                ({"role": "user", "content": []}, "messages[1].content", "messages[1].content is empty; it must be"),
                ({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text"}]}, "messages[1].content[1].text",
                 "messages[1].content[1].text is null; it must be a text"),
                ({"role": "user", "content": [{"type": "text", "text": "a"}, picture]}, "messages[1].content[1]",
                 'messages[1].content[1] is a part of type "image_url"; only text is read'),
                ({"role": "user", "content": ["a"]}, "messages[1].content[0]", "messages[1].content[0] is no part"),
                ({"role": "assistant", "content": 5}, "messages[1].content", "messages[1].content is 5;"),
                ({"role": "robot", "content": "a"}, "messages[1].role", 'messages[1].role is "robot"; it must be system, developer, user, assistant or tool')):
            with self.subTest(message=message):
                found = self.refusal("/v1/chat/completions", {"model": "tiny", "messages": [*MESSAGES, message], "max_tokens": 1})
                self.assertEqual(param, found[0])
                self.assertIn(words, found[1])
        call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
        answered = [*MESSAGES, call, {"role": "tool", "tool_call_id": "c", "content": []}]
        self.assertEqual(200, self.system.http("POST", "/v1/chat/completions", {"model": "tiny", "messages": answered, "max_tokens": 1})[0])

    def test_an_error_about_one_of_several_prompts_names_it(self):
        for prompt, words in ((["a", "b", ""], "prompt entry 2: "), (["a", []], "prompt entry 1 is an empty list; it must have at least one token id"),
                              ([[97], [99999]], "prompt entry 1: ")):
            for n in (1, 2):
                param, message = self.refusal("/v1/completions", {"model": "tiny", "prompt": prompt, "n": n, "max_tokens": 1, "add_special_tokens": False})
                self.assertTrue(message.startswith(words), message)
        self.assertNotIn("entry", self.refusal("/v1/completions", {"model": "tiny", "prompt": "", "add_special_tokens": False})[1])

    def test_an_error_names_the_field_and_what_it_may_be(self):
        chat, seeds = {"model": "tiny", "messages": MESSAGES, "max_tokens": 1}, "it must be an integer from -9223372036854775808 to 18446744073709551615"
        for endpoint, body, param, words in (
                ("/v1/chat/completions", {**chat, "seed": 1 << 64}, "seed", "seed is 1.8446744e+19; " + seeds),
                ("/v1/chat/completions", {**chat, "seed": -(1 << 64)}, "seed", "seed is -1.8446744e+19; " + seeds),
                ("/v1/chat/completions", {**chat, "seed": 1.5}, "seed", "seed must be an integer; found a float"),
                ("/v1/chat/completions", {**chat, "top_k": 1 << 70}, "top_k", "it must be an integer from"),
                ("/v1/chat/completions", {**chat, "stream": True, "stream_options": {"include_usage": "x"}}, "stream_options.include_usage",
                 "stream_options.include_usage must be true or false"),
                ("/v1/chat/completions", {**chat, "response_format": 5}, "response_format", "response_format is 5; it must be an object"),
                ("/detokenize", {"model": "tiny", "tokens": [97, 99999]}, "tokens", "tokens[1] is 99999"),
                ("/detokenize", {"model": "tiny"}, "tokens", "tokens is required"),
                ("/detokenize", {"model": "tiny", "tokens": []}, "tokens", "tokens is an empty list"),
                ("/tokenize", {"model": "tiny"}, "prompt", "one of prompt and messages is required"),
                ("/tokenize", {"model": "tiny", "prompt": "a", "messages": MESSAGES}, "prompt", "only one of prompt and messages may be given"),
                ("/v1/completions", {"model": "tiny", "prompt": [97, 99999]}, "prompt", "prompt[1] is 99999")):
            with self.subTest(endpoint=endpoint, body=body):
                found = self.refusal(endpoint, body)
                self.assertEqual(param, found[0], found)
                self.assertIn(words, found[1])
                self.assertNotIn("token_ids", found[1])

    def test_unknown_members_of_stream_options_are_named(self):
        body = {"model": "tiny", "messages": MESSAGES, "max_tokens": 1, "stream": True}
        for options, named in (({"include_usage": True, "nothing_like_it": 1}, "stream_options.nothing_like_it"), ({"include_usage": True}, None),
                               ({"include_obfuscation": False}, None), ({"include_obfuscation": True}, "stream_options.include_obfuscation")):
            status, headers, _ = self.system.http("POST", "/v1/chat/completions", {**body, "stream_options": options})
            self.assertEqual((200, named), (status, headers.get("x-foretoken-ignored")))

    def test_every_endpoint_of_the_page_is_tested(self):
        tested = "\n".join(pathlib.Path(__file__).read_text("utf-8").split("self.check(")[1:])
        for endpoint in TABLES:
            self.assertIn(f'"{endpoint}", {{', tested)

    def test_the_page_has_every_field_of_the_official_clients(self):
        chat, text = openai.types.chat.completion_create_params, openai.types.completion_create_params
        message, response = anthropic.types.message_create_params, openai.types.responses.response_create_params
        for endpoint, types in {
                "/v1/chat/completions": (chat.CompletionCreateParamsNonStreaming, chat.CompletionCreateParamsStreaming),
                "/v1/completions": (text.CompletionCreateParamsNonStreaming, text.CompletionCreateParamsStreaming),
                "/v1/responses": (response.ResponseCreateParamsNonStreaming, response.ResponseCreateParamsStreaming),
                "/v1/messages": (message.MessageCreateParamsNonStreaming, message.MessageCreateParamsStreaming),
                "/v1/messages/count_tokens": (anthropic.types.MessageCountTokensParams,)}.items():
            fields = set().union(*(each.__required_keys__ | each.__optional_keys__ for each in types))
            self.assertGreater(len(fields), 5)
            self.assertEqual(set(), fields - set(TABLES[endpoint]), endpoint)


class Answer:
    """One HTTP answer, of any protocol."""

    def __init__(self, status, headers, text):
        self.status, self.headers, self.raw = status, headers, text

    def __repr__(self):
        return f"{self.status} {self.raw[:600]}"

    @property
    def json(self):
        return json.loads(self.raw)

    @property
    def events(self):
        assert self.headers["Content-Type"].startswith("text/event-stream"), self
        data = [line.removeprefix("data: ") for line in self.raw.split("\n") if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in data]

    @property
    def choice(self):
        return self.json["choices"][0]

    @property
    def usage(self):
        return self.json["usage"]

    @property
    def texts(self):
        if "text_output" in self.json:
            return [self.json["text_output"]]
        if "output" in self.json:
            return ["".join(part["text"] for item in self.json["output"] for part in item["content"])]
        if "content" in self.json:
            return ["".join(block["text"] for block in self.json["content"])]
        return [choice["text"] if "text" in choice else choice["message"]["content"] for choice in self.json["choices"]]

    @property
    def text(self):
        assert self.status == 200, self
        return self.texts[0]

    def blames(self, field):
        """A refusal that names the field: in `param` where the protocol has it, else in its words."""
        error = self.json["error"]
        if isinstance(error, dict) and "param" in error:
            return (self.status, error["param"]) == (400, field)
        return self.status == 400 and field in (error if isinstance(error, str) else error["message"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
