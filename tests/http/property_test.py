"""The one idea, asked of every protocol: a random request has one answer, whatever guesses and whatever happens to what guesses. The
fields are those that docs/reference/http.md lists as honoured. FORETOKEN_TEST_REQUESTS: how many requests."""

import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import re
import sys
import threading
import time
import unittest

from edge_system import EdgeSystem

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEED = 31
COUNT = int(os.environ.get("FORETOKEN_TEST_REQUESTS", "200"))
SIDE_BY_SIDE = 6
WORDS = ["the cat sat on the mat", "in the winter, when snow", "0123456789", "ß ü é 漢字 🎉", "def f(x):\n    return x", "th", " "]
ENDPOINTS = {"/v1/chat/completions": "POST /v1/chat/completions", "/v1/completions": "POST /v1/completions", "/v1/messages": "POST /v1/messages",
             "/v1/responses": "POST /v1/responses", "/v2/models/tiny/generate": "POST /v2/models/NAME/generate, generate_stream"}


def honoured(section):
    """Fields of one endpoint that do something, from the page that is generated from the tables of the edge."""
    page = (ROOT / "docs/reference/http.md").read_text("utf-8")
    rows = page.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `(\w+)` \| honoured \|", rows, re.M)


def words(dice):
    return " ".join(dice.choice(WORDS) for _ in range(dice.randint(1, 3)))


def pieces(dice):
    return [{"type": "text", "text": words(dice)} for _ in range(dice.randint(1, 2))]


def conversation(dice):
    turns = [{"role": role, "content": dice.choice([words, pieces])(dice)} for role in ("user", "assistant") * dice.randint(0, 1)]
    return turns + [{"role": "user", "content": dice.choice([words, pieces])(dice)}]


def token_ids(dice):
    return [dice.randrange(5, 250) for _ in range(dice.randint(1, 12))]


def stops(dice):
    return [dice.choice(["e", "th", "zzz", " o", "é", "\n", "00"]) for _ in range(dice.randint(1, 3))]


def prompt(dice):
    return dice.choice([words, token_ids, lambda d: [words(d), words(d)], lambda d: [token_ids(d), token_ids(d)]])(dice)


def chance(*values):
    return lambda dice: dice.choice(values)


SCHEMA = {"type": "object", "properties": {"b": {"type": "array", "items": {"enum": ["x", "éé"]}, "maxItems": 4}, "a": {"type": "string"}},
          "required": ["b", "a"], "additionalProperties": False}
REGEX = "([a-z]{2,6} ?){1,9}|[0-9é]+"
GBNF = 'root ::= "[" item ("," item)* "]"\nitem ::= [0-9]+ | root'
# Each constrains the answer, and one of them may.
CONSTRAINTS = ("response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "json_schema", "regex",
               "gbnf", "grammar", "output_config", "output_format")


# How each field is drawn. None of what decides who guesses: that is VARIANTS.
DRAWS = {
    "model": chance("tiny"), "temperature": chance(0, 0, 0.4, 1, 1, 1.9), "top_p": chance(1, 0.9, 0.5, 0.05), "n": chance(1, 1, 2, 3),
    "seed": lambda dice: dice.getrandbits(62), "stop": chance("e", ["th", " o"], ["zzz"], []), "stream": chance(False, False, True),
    "logit_bias": lambda dice: {str(dice.randrange(260)): dice.choice([-100, -5, 5, 12]) for _ in range(dice.randint(1, 5))},
    "presence_penalty": chance(-2, -0.5, 0.5, 2), "frequency_penalty": chance(-2, -0.5, 0.5, 2), "stream_options": chance({"include_usage": True}),
    "top_k": chance(-1, 0, 1, 5, 40), "min_p": chance(0, 0.02, 0.3), "repetition_penalty": chance(0.7, 1.1, 2), "min_tokens": chance(0, 1, 9),
    "ignore_eos": chance(True, False), "stop_token_ids": lambda dice: [dice.randrange(260) for _ in range(dice.randint(1, 4))],
    "bad_words": stops, "skip_special_tokens": chance(True, False), "include_stop_str_in_output": chance(True, False),
    "add_special_tokens": chance(True, False), "priority": chance(0, 3, 255), "messages": conversation,
    "max_completion_tokens": chance(1, 2, 17, 40), "max_tokens": chance(1, 2, 17, 40, 64), "logprobs": chance(0, 1, 3, 20), "top_logprobs": chance(0, 1, 20),
    "add_generation_prompt": chance(True, False), "response_format": chance({"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}),
    "structured_outputs": chance({"json": SCHEMA}, {"regex": REGEX}, {"choice": ["so", "the cat", "ß"]}, {"grammar": GBNF}),
    "guided_json": chance(SCHEMA), "guided_regex": chance(REGEX), "guided_choice": chance(["so", "the cat"]), "guided_grammar": chance(GBNF),
    "json_schema": chance(SCHEMA), "regex": chance(REGEX), "gbnf": chance(GBNF), "grammar": chance(GBNF, ""),
    "tool_choice": chance("none", "auto"),
    "tools": chance([{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]),
    "parallel_tool_calls": chance(True, False), "chat_template_kwargs": chance({"enable_thinking": False}, {"note": "so"}),
    "reasoning_effort": chance("low", "high", None),
    "continue_final_message": chance(True, False),
    "modalities": chance(["text"]), "prompt": prompt, "echo": chance(True, False), "best_of": chance(1),
    "prompt_logprobs": chance(0, 1, 3), "return_token_ids": chance(True, False),
    # Anthropic's
    "output_config": chance({"effort": "low"}, {"format": {"type": "json_schema", "schema": SCHEMA}}),
    "output_format": chance({"type": "json_schema", "schema": SCHEMA}),
    "system": lambda dice: dice.choice([words, pieces])(dice), "stop_sequences": stops, "thinking": chance({"type": "disabled"}),
    # OpenAI's responses
    "input": lambda dice: dice.choice([words, conversation])(dice), "instructions": words, "max_output_tokens": chance(1, 2, 17, 40),
    "include": chance(["message.output_text.logprobs"], []), "reasoning": chance({"effort": "low"}),
    "text": chance({"format": {"type": "text"}}, {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}),
    "truncation": chance("disabled"), "store": chance(True, False), "metadata": chance({"a": "b"}),
    # Triton's
    "text_input": words, "request_output_len": chance(5, 20), "stop_words": stops, "end_id": chance(-1, 30), "min_length": chance(0, 4),
    "random_seed": lambda dice: dice.getrandbits(62), "return_log_probs": chance(True, False), "return_perf_metrics": chance(True, False),
    "exclude_input_in_output": chance(True, False), "beam_width": chance(1), "num_return_sequences": chance(1, 2),
    "embedding_bias_words": chance(["a", "the"]), "embedding_bias_weights": chance([3, -2]),
}
GUESSING = {"speculation", "prediction", "num_draft_tokens"}
ALWAYS = {"/v1/chat/completions": {"model", "messages", "max_tokens", "seed"}, "/v1/completions": {"model", "prompt", "max_tokens", "seed"},
          "/v1/messages": {"model", "messages", "max_tokens", "seed"}, "/v1/responses": {"model", "input", "max_output_tokens", "seed"},
          "/v2/models/tiny/generate": {"text_input", "max_tokens", "random_seed"}}


def draw(dice):
    path = dice.choice(list(ENDPOINTS) + ["/v1/chat/completions", "/v1/completions"])
    share = dice.choice([0.1, 0.3, 0.6])
    names = [name for name in honoured(ENDPOINTS[path])
             if name not in GUESSING and (name in ALWAYS[path] or dice.random() < share)]
    body = {name: DRAWS[name](dice) for name in names}
    fit(path, body, dice)
    if path.startswith("/v2") and body.pop("stream", False):
        path += "_stream"
    return path, body


def fit_constraint(body, dice):
    """One of those that were drawn, or none; beside it no calls."""
    drawn = [name for name in CONSTRAINTS if name in body]
    kept = dice.choice(drawn) if drawn and dice.random() < 0.5 else None
    for name in drawn:
        if name != kept:
            del body[name]
    if kept or "text" in body:
        body.pop("tools", None)
        body.pop("tool_choice", None)


def fit(path, body, dice):
    """What fields ask of one another."""
    fit_constraint(body, dice)
    if path == "/v1/chat/completions":
        if "top_logprobs" in body or "logprobs" in body:
            body["logprobs"] = True
        if body.get("continue_final_message"):
            body["messages"] += [{"role": "assistant", "content": words(dice)}]
            body["add_generation_prompt"] = False
    elif path == "/v1/completions":
        if "best_of" in body:
            body["best_of"] = body.get("n", 1)
    elif path == "/v1/messages":
        if "tool_choice" in body:
            body["tool_choice"] = {"type": body["tool_choice"]}
        if "tools" in body:
            body["tools"] = [{"name": "look", "input_schema": {"type": "object"}}]
        if body.get("tool_choice") == {"type": "auto"} and "tools" not in body:
            del body["tool_choice"]
        if body.get("temperature", 0) > 1:
            body["temperature"] = 1
    elif path == "/v1/responses":
        if "tools" in body:
            body["tools"] = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
    else:
        body.pop("request_output_len", None)
        body.pop("model", None)
        if body.get("top_k") == -1:
            body["top_k"] = 0
        if "embedding_bias_words" in body or "embedding_bias_weights" in body:
            body["embedding_bias_words"], body["embedding_bias_weights"] = ["a", "the"], [3, -2]
    if body.get("stream"):
        body.pop("prompt_logprobs", None)
        body.pop("num_return_sequences", None)  # events of several answers come in any order
    else:
        body.pop("stream_options", None)


def guessed_by(path, body, how, text):
    """The request with a given way of guessing; `text` is what a prediction may come from."""
    body = dict(body)
    if path.startswith("/v2"):
        body["num_draft_tokens"] = how if isinstance(how, int) else 3
        return body
    if how == 0:
        body["speculation"] = {"enabled": False}
    elif isinstance(how, int):
        body["speculation"] = {"proposer": "draft", "draft_len": how, "adaptive": False}
    elif how == "prediction" and path not in ("/v1/messages", "/v1/responses"):
        body["prediction"] = {"type": "content", "content": text or "the"}
        body["speculation"] = {"adaptive": False}
    else:
        body["speculation"] = {"proposer": "ngram", "draft_len": 4, "adaptive": how == "adaptive"}
    return body


def error_of(event):
    """What a reply or an event says went wrong, or None."""
    error = event.get("error") or (event if event.get("type") == "error" else None)
    if error is None:
        return None
    said = error if isinstance(error, str) else error["message"]
    return re.sub(r"^prompt entry \d+: ", "", said)  # of several that fail, the first to come is named


class Answer:
    """A reply without ids, times and what guessing did; a stream as the text, log-probabilities and ends that its events add up to.
    Of one that fails the error alone: whether answers of the same request have begun by then is a matter of time."""

    def __init__(self, status, text):
        self.status = status
        is_stream = text.startswith(("data:", "event:"))
        if not is_stream:
            events = [json.loads(text)]
        else:
            events = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]
        self.error = next(filter(None, map(error_of, events)), None)
        if self.error is not None or not is_stream:
            self.value = without(events[0])
        else:
            self.value = response(events) if events and "response" in events[-1] else joined([without(each) for each in events])

    def key(self):
        if self.error is not None:
            return "error", self.error
        return self.status, json.dumps(self.value, sort_keys=True)

    def text(self):
        found = []

        def walk(value):
            for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
                if key in ("content", "text", "text_output") and isinstance(each, str):
                    found.append(each)
                walk(each)
        walk(self.value)
        return "".join(found)


VARYING = {"id", "request_id", "created", "created_at", "completed_at", "metrics", "input_tokens_details", "prompt_tokens_details",
           "completion_tokens_details", "acceptance_rate",
           "total_accepted_draft_tokens", "total_draft_tokens", "cached_tokens", "arrival_time_ns", "first_scheduled_time_ns",
           "first_token_time_ns", "last_token_time_ns"}


def without(value):
    if isinstance(value, dict):
        kept = {key: without(each) for key, each in value.items() if key not in VARYING}
        if "cache_read_input_tokens" in kept:  # a prompt is read or found, whichever
            kept["input_tokens"] = kept.get("input_tokens", 0) + kept.pop("cache_read_input_tokens")
        return kept
    return [without(each) for each in value] if isinstance(value, list) else value


def response(events):
    """A stream of /v1/responses: the object at its end, which must be what its deltas add up to."""
    deltas = {}
    for event in events:
        if "delta" in event:
            at = event["output_index"]
            deltas[at] = deltas.get(at, "") + event["delta"]
    whole = events[-1]["response"]
    for at, item in enumerate(whole["output"]):
        said = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        assert said == deltas.get(at, ""), (said, deltas)
    return without(whole)


def joined(events):
    """Texts and lists of equal places put together, whatever the pieces were; of other values the last that says something."""
    def add(to, value):
        for key, each in value.items():
            if isinstance(each, dict):
                add(to.setdefault(key, {}), each)
            elif key == "choices":
                for choice in each:
                    add(to.setdefault("choices", {}).setdefault(str(choice["index"]), {}), choice)
            elif isinstance(each, list):
                to[key] = to.get(key, []) + each
            elif isinstance(each, str) and key in ("content", "text", "text_output", "thinking"):
                to[key] = to.get(key, "") + each
            elif each is not None and key != "index":
                to[key] = each
    whole = {}
    for event in events:
        add(whole, event)
    return whole


class Property(unittest.TestCase):
    def setUp(self):
        self.system = EdgeSystem(("limits.max_running=32", "limits.max_waiting=1024", "model.tool_format=hermes")).__enter__()
        self.addCleanup(lambda: self.system.__exit__(None, None, None))
        self.system.start_all()

    def ask(self, path, body):
        try:
            status, _, text = self.system.http("POST", path, body)
        except http.client.IncompleteRead as cut:  # the end of a stream after an error in it
            answer = Answer(200, cut.partial.decode())
            self.assertIsNotNone(answer.error, f"a stream is cut and names no error: {body}")
            return answer
        return Answer(status, text)

    def differing(self, index, ways):
        """What differs among the answers to request `index`, as a sentence; and the status of all."""
        path, body = draw(random.Random(f"{SEED}/{index}"))
        plain = self.ask(path, guessed_by(path, body, 0, ""))
        status = plain.status if plain.error is None else 400
        for how in ways(random.Random(index)):
            other = self.ask(path, guessed_by(path, body, how, plain.text()))
            if plain.key() != other.key():
                return status, f"request {index} to {path} guessed by {how}: {json.dumps(body)}\n{plain.key()}\n{other.key()}"
        return status, None

    def run_all(self, indices, ways):
        with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            outcomes = list(pool.map(lambda index: self.differing(index, ways), indices))
        self.assertEqual([], [words for _, words in outcomes if words][:2])
        good = sum(1 for status, _ in outcomes if status == 200)
        self.assertGreater(good, 0.8 * len(outcomes), sorted(status for status, _ in outcomes))

    def test_every_listed_field_is_drawn(self):
        for section in ENDPOINTS.values():
            self.assertEqual([], [name for name in honoured(section) if name not in DRAWS and name not in GUESSING], section)

    def test_one_answer_whatever_guesses(self):
        self.run_all(range(COUNT), lambda dice: [dice.randint(1, 8), "ngram", "prediction", "adaptive"])

    def test_one_answer_while_drafts_are_killed(self):
        over = threading.Event()

        def kill():
            while not over.wait(0.15):
                self.system.kill("draft")
                self.system.start("draft")
                end = time.monotonic() + 10
                while not over.is_set() and not self.system.services("draft") and time.monotonic() < end:
                    time.sleep(0.05)
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            self.run_all(range(COUNT, COUNT + COUNT // 2), lambda dice: [dice.randint(1, 8), dice.randint(1, 8)])
        finally:
            over.set()
            killer.join()
        self.system.assert_alive()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
