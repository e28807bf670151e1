"""The web page of the edge in a headless Chromium against real services: what a person sees and does, with the keyboard alone, and
what the page must never do. Packages from PyPI drive Debian's Chromium."""

import hashlib
import json
import os
import pathlib
import signal
import sys
import unittest

from browser import Browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/http"))
from edge_system import EdgeSystem, use_demo_pair  # noqa: E402

from axe_playwright_python.sync_playwright import Axe  # noqa: E402

MARKUP = "<img src=x onerror=\"document.title='markup'\">"
PROMPT = "Tell me a story about a fox named Pip."
PATIENCE_MS = 60_000
MAX_PAGE_BYTES = 60_000


class PageTest(unittest.TestCase):
    settings = ()

    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)
        use_demo_pair()
        cls.system = EdgeSystem(settings=cls.settings).__enter__()
        cls.addClassCleanup(lambda: cls.system.__exit__(None, None, None))
        cls.prepare()
        cls.system.start_all()
        cls.base = f"http://127.0.0.1:{cls.system.port}"

    @classmethod
    def prepare(cls):
        pass

    def open(self, expected=(), **options):
        """The page, whose faults fail the test at its end."""
        watched = self.browser.watched(self.base, **options)
        self.addCleanup(watched.close)
        if options.get("java_script_enabled", True):
            watched.page.set_default_timeout(PATIENCE_MS)
            self.addCleanup(lambda: self.assertEqual([], watched.faults(expected)))
        self.watched = watched
        return watched.page

    def ready(self, tokens=48, **options):
        page = self.open(**options)
        self.state(page, "\u25cf ready")
        page.locator("#tokens").fill(str(tokens))
        page.locator("#prompt").focus()
        return page

    def state(self, page, word):
        page.wait_for_function("word => document.getElementById('state').textContent.includes(word)", arg=word)

    def ask(self, page, prompt=PROMPT):
        """Types and sends; waits for the end of the answer and returns it."""
        before = page.locator(".turn").count()
        page.locator("#prompt").focus()
        page.keyboard.type(prompt)
        page.keyboard.press("Enter")
        turn = page.locator(".turn").nth(before)
        turn.locator(".answer:not(.busy)").wait_for()
        return turn

    def ask_for_guesses(self, page, least):
        """An answer with at least so many guessed tokens. How many guesses come in time is a matter of speed: again until it is so, each
        time in a new chat."""
        for _ in range(20):
            turn = self.ask(page)
            if turn.locator(".answer > .guessed").count() >= least:
                return turn
            page.locator("#fresh").click()
        self.fail(f"never {least} guessed tokens in an answer")

    def tab_to(self, page, selector, most=60):
        """Presses Tab until the element has the focus, as someone without a mouse does."""
        for _ in range(most):
            page.keyboard.press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        self.fail(f"Tab does not reach {selector}")


# Of an answer without guesses.
MEASURED = {"usage": {"prompt_tokens": 3, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 0}},
            "metrics": {"time_to_first_token_ms": 1, "tokens_per_second": 50, "speculative_decoding": {
                "num_spec_steps": 0, "num_accepted_draft_tokens": 0, "proposer": "draft", "fallback_reason": "", "acceptance_histogram": [5]}}}


def stream_of(deltas):
    """The events of an answer of these (key, text), one token each, with one before and behind each that keeps the stream open."""
    def chunk(choices, **more):
        return "data: " + json.dumps({"choices": choices, **more}) + "\n\n"

    def part(i, key, text):
        entry = {"token": text, "logprob": -1, "bytes": list(text.encode()), "top_logprobs": []}
        return chunk([{"index": 0, "delta": {key: text}, "logprobs": {"content": [entry]}, "token_ids": [i], "accepted_tokens": 0,
                       "finish_reason": None}])
    nothing = chunk([{"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}])
    parts = [part(i, key, text) + nothing for i, (key, text) in enumerate(deltas)]
    return nothing + "".join(parts) + chunk([{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}]) + chunk([], **MEASURED) + "data: [DONE]\n\n"


class Page(PageTest):
    def test_it_is_one_small_file_with_a_policy(self):
        status, headers, html = self.system.http("GET", "/")
        self.assertEqual(200, status)
        self.assertLessEqual(len(html.encode()), MAX_PAGE_BYTES)
        policy = headers["Content-Security-Policy"]
        self.assertTrue(policy.startswith("default-src 'none'; script-src 'sha256-"), policy)
        self.assertIn("connect-src 'self'", policy)
        self.assertNotIn("unsafe", policy)

    def test_a_chat_by_keyboard_alone_and_the_proof(self):
        page = self.open()
        self.state(page, "\u25cf ready")
        self.assertEqual("prompt", page.evaluate("document.activeElement.id"))
        turn = self.ask_for_guesses(page, 5)
        text = turn.locator(".answer").text_content()
        _, answer = self.system.post("/v1/chat/completions", {
            "model": "tiny", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 200, "temperature": 0.8, "seed": 7})
        self.assertEqual(answer["choices"][0]["message"]["content"], text)
        self.assertEqual(text, "".join(turn.locator(".answer > span").all_text_contents()))

        self.tab_to(page, ".answer")
        page.keyboard.press("ArrowRight")
        first = page.locator("#token").text_content()
        # The first token is no guess; a guess that came in the same piece may complete its character or word.
        self.assertRegex(first, "the model's own|some of it guessed")
        self.assertIn("probability", first)
        page.keyboard.press("End")
        self.assertNotEqual(first, page.locator("#token").text_content())
        self.assertEqual(1, turn.locator(".here").count())
        page.keyboard.press("Escape")
        self.assertEqual("", page.locator("#token").text_content())

        self.tab_to(page, ".tools button")
        self.assertEqual("Same as plain?", page.evaluate("document.activeElement.textContent"))
        page.keyboard.press("Enter")
        page.get_by_text("Yes, the same text").wait_for()
        self.assertEqual(2, page.locator("#speeds .bar").count())

    def test_one_token_has_no_speed_to_compare(self):
        page = self.ready(tokens=1)
        turn = self.ask(page)
        turn.get_by_role("button", name="Same as plain?").click()
        turn.get_by_text("Yes, the same text").wait_for()
        self.assertNotIn("NaN", page.locator("aside").text_content())
        self.assertEqual(0, page.locator("#speeds:visible, #times:visible").count())

    def test_every_control_is_reached_by_tab(self):
        page = self.ready()
        self.ask(page)
        wanted = set(page.evaluate("""() => [...document.querySelectorAll("button, input, select, textarea, a, [tabindex]")]
            .filter((each) => each.checkVisibility() && !each.disabled).map((each, i) => { each.dataset.stop = i; return String(i); })"""))
        for _ in range(2 * len(wanted)):
            page.keyboard.press("Tab")
            wanted.discard(page.evaluate("document.activeElement.dataset.stop"))
        self.assertEqual(set(), wanted)

    def test_without_guesses_nothing_is_marked(self):
        page = self.ready()
        page.locator("#guess").focus()
        page.keyboard.press("Space")
        turn = self.ask(page)
        self.assertEqual(0, turn.locator(".guessed, .mixed").count())
        self.assertIn("none of them guessed", turn.text_content())
        self.assertFalse(self.last_request()["speculation"]["enabled"])

    def last_request(self):
        return [request for request in self.watched.asked if request.method == "POST"][-1].post_data_json

    def test_services_and_acceptance_are_shown(self):
        page = self.ready()
        self.ask_for_guesses(page, 1)
        names = page.locator("#services tbody th").all_text_contents()
        for name in ("router-0", "tokenizer-0", "draft-0", "target-0"):
            self.assertTrue(any(each.startswith(name) for each in names), names)
        shares = [float(text.removesuffix(" %")) for text in page.locator("#positions tbody .number").all_text_contents()]
        widths = page.locator("#positions .bar").evaluate_all("bars => bars.map((bar) => parseFloat(bar.style.width))")
        self.assertEqual(8, len(shares))
        self.assertEqual(sorted(shares, reverse=True), shares)
        self.assertGreater(shares[0], 0)
        for share, width in zip(shares, widths):
            self.assertAlmostEqual(share, width, delta=0.51)
        facts = page.locator("#facts").text_content()
        self.assertIn("tokens48", facts)
        self.assertIn("guessed bydraft", facts)

    def test_the_next_message_has_the_conversation_and_a_new_chat_has_none(self):
        page = self.ready(tokens=12)
        turn = self.ask(page, "one")
        self.ask(page, "two")
        sent = self.last_request()["messages"]
        self.assertEqual([("user", "one"), ("assistant", turn.locator(".answer").text_content()), ("user", "two")],
                         [(each["role"], each["content"]) for each in sent])
        page.locator("#fresh").click()
        self.assertEqual(0, page.locator(".turn").count())
        self.ask(page, "three")
        self.assertEqual(1, len(self.last_request()["messages"]))

    def answer_with(self, page, deltas, message):
        """What the next requests get, as from a model that thinks: a stream of the deltas, or the message."""
        def fulfill(route):
            if route.request.post_data_json.get("stream"):
                return route.fulfill(content_type="text/event-stream", body=stream_of(deltas))
            return route.fulfill(json={"choices": [{"index": 0, "message": {"role": "assistant", **message}}], **MEASURED})
        page.unroute("**/v1/chat/completions")
        page.route("**/v1/chat/completions", fulfill)

    def test_a_thought_stands_apart_and_is_compared_too(self):
        page = self.ready()
        thought = [("reasoning_content", "Who"), ("reasoning_content", " asks?")]
        self.answer_with(page, [*thought, ("content", "Hi"), ("content", " you")], {"content": "Hi you", "reasoning_content": "Who asks?"})
        turn = self.ask(page, "one")
        self.assertEqual(["Who", " asks?"], turn.locator(".answer > .thought > span").all_text_contents())
        self.assertEqual(["Hi", " you"], turn.locator(".answer > span").all_text_contents())
        self.assertEqual(["Who asks?", "Hi you"], page.locator("#spoken p").all_text_contents())
        for message, verdict in (({"content": "Hi you", "reasoning_content": "Who asks?"}, "Yes, the same text: 15 characters."),
                                 ({"content": "Hi you", "reasoning_content": "Who asked?"}, "The thoughts differ from character 7 on"),
                                 ({"content": "Hi all", "reasoning_content": "Who asks?"}, "The texts differ from character 3 on"),
                                 ({"content": "Hi you"}, "The thoughts differ from character 0 on")):
            self.answer_with(page, [], message)
            turn.get_by_role("button", name="Same as plain?").click()
            turn.get_by_text(verdict).wait_for()

    def test_a_message_whose_answer_is_a_thought_alone_stays_in_the_conversation(self):
        page = self.ready()
        self.answer_with(page, [("reasoning_content", "Who")], {"content": None, "reasoning_content": "Who"})
        turn = self.ask(page, "one")
        turn.get_by_role("button", name="Same as plain?").click()
        turn.get_by_text("Yes, the same text: 3 characters.").wait_for()
        self.ask(page, "two")
        self.assertEqual([{"role": "user", "content": "one"}, {"role": "assistant", "content": "", "reasoning_content": "Who"},
                          {"role": "user", "content": "two"}], self.last_request()["messages"])

    def test_an_answer_is_stopped_and_the_next_one_comes(self):
        page = self.ready(tokens=1000)
        page.locator("#prompt").fill(PROMPT)
        page.keyboard.press("Enter")
        page.locator(".answer.busy > span").first.wait_for()
        target = self.system.processes["target"]
        target.send_signal(signal.SIGSTOP)  # the answer does not end before the key comes
        page.keyboard.press("Escape")
        page.get_by_text("stopped", exact=True).wait_for()
        target.send_signal(signal.SIGCONT)
        page.locator("#fresh").click()
        page.locator("#tokens").fill("8")
        self.assertIn("8 tokens", self.ask(page).text_content())

    def test_an_error_is_shown_with_its_sentence(self):
        page = self.ready(tokens=1_000_000, expected=("the server responded with a status of 400",))
        turn = self.ask(page)
        self.assertIn("1000000", turn.locator(".bad").text_content())
        self.assertEqual("", page.locator("#prompt").input_value())

    def test_the_command_for_curl_asks_the_same(self):
        page = self.ready()
        turn = self.ask(page)
        turn.get_by_role("button", name="As curl").click()
        command = turn.locator("pre").text_content()
        self.assertIn(f"curl {self.base}/v1/chat/completions", command)
        self.assertIn(f'"content":"{PROMPT}"', command)
        turn.get_by_text("copied").wait_for()
        self.assertEqual(command, page.evaluate("navigator.clipboard.readText()"))

    def test_without_scripts_the_state_is_there_and_no_dead_form(self):
        page = self.open(java_script_enabled=False)
        self.assertFalse(page.locator("main").is_visible())
        text = page.locator(".plain-page").inner_text()
        self.assertIn("The services are ready", text)
        self.assertIn("target-0", text)

    def test_those_who_listen_hear_sentences_once(self):
        page = self.ready()
        page.evaluate("""() => { window.heard = 0; new MutationObserver((all) => { for (const each of all) window.heard += each.addedNodes.length; })
            .observe(document.getElementById("spoken"), { childList: true }); }""")
        turn = self.ask(page)
        heard = page.evaluate("window.heard")
        self.assertGreater(heard, 0)
        self.assertLess(heard, turn.locator(".answer > span").count() / 2)
        self.assertEqual(turn.locator(".answer").text_content(), "".join(page.locator("#spoken p").all_text_contents()))
        self.assertEqual(0, page.locator(".answer[aria-live], .answer[role=status], .answer[role=log]").count())

    def test_guesses_are_marked_by_more_than_colour_and_nothing_moves_unasked(self):
        page = self.ready(reduced_motion="reduce")
        turn = self.ask_for_guesses(page, 1)
        style = turn.locator(".guessed").first.evaluate("each => { const s = getComputedStyle(each); return [s.borderBottomStyle, s.borderBottomWidth]; }")
        self.assertEqual(["solid", "2px"], style)
        moving = page.evaluate("""() => [...document.querySelectorAll("*")].filter((each) => [getComputedStyle(each), getComputedStyle(each, "::after")]
            .some((s) => s.animationName !== "none" || parseFloat(s.transitionDuration) > 0)).length""")
        self.assertEqual(0, moving)

    def test_the_rules_of_accessibility_hold(self):
        """axe's rules (names, labels, roles, contrast of 4.5 to 1 and more) with an answer, a token looked at, in both themes."""
        for scheme in ("light", "dark"):
            for width in (1280, 400):
                with self.subTest(scheme=scheme, width=width):
                    page = self.ready(color_scheme=scheme)
                    page.set_viewport_size({"width": width, "height": 860})
                    turn = self.ask(page)
                    turn.locator(".answer").focus()
                    page.keyboard.press("ArrowRight")
                    turn.get_by_role("button", name="As curl").click()
                    turn.get_by_role("button", name="Same as plain?").click()
                    page.locator("#speeds .bar").first.wait_for()
                    result = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]})
                    found = [f"{each['id']}: {node['html'][:120]} {node['failureSummary']}" for each in result.response["violations"]
                             for node in each["nodes"]]
                    self.assertEqual([], found)
                    self.assertGreater(len(result.response["passes"]), 20)
                    self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), width, "nothing is scrolled sideways")

    def test_the_theme_is_chosen_and_kept(self):
        page = self.ready(color_scheme="light")
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.locator("#theme").click()
        page.locator("#theme").click()
        self.assertEqual("Theme: dark", page.locator("#theme").text_content())
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        self.assertNotEqual(light, dark)
        page.reload()
        self.assertEqual(dark, page.evaluate("getComputedStyle(document.body).backgroundColor"))


class Guarded(PageTest):
    """With keys, and a model whose name is markup."""

    settings = (f"model.name={MARKUP}",)

    @classmethod
    def prepare(cls):
        keys = os.path.join(cls.system.folder, "keys")
        pathlib.Path(keys).write_text(f"alice {hashlib.sha256(b'secret').hexdigest()}\n")
        cls.system.settings.append(f"edge.key_file={keys}")

    def test_a_key_is_asked_for_once_and_names_stay_text(self):
        page = self.open(expected=("the server responded with a status of 401",))
        page.locator("#lock").wait_for()
        page.locator("#key").fill("wrong")
        page.keyboard.press("Enter")
        self.state(page, "not one of edge.key_file")
        page.locator("#key").fill("secret")
        page.keyboard.press("Enter")
        self.state(page, "ready")
        self.assertFalse(page.locator("#lock").is_visible())
        self.assertEqual(MARKUP, page.locator("#model option").first.text_content())
        turn = self.ask(page)
        self.assertEqual(MARKUP, turn.locator("h3").nth(1).text_content())
        turn.get_by_role("button", name="Same as plain?").click()
        page.get_by_text("Yes, the same text").wait_for()
        turn.get_by_role("button", name="As curl").click()
        self.assertIn("Bearer $KEY", turn.locator("pre").text_content())
        self.assertNotIn("secret", page.content())
        self.assertEqual(("Foretoken", 0), (page.title(), page.locator("img").count()))
        page.reload()
        self.state(page, "ready")

    def test_without_scripts_the_state_takes_the_key_and_is_text(self):
        self.assertNotIn("target-0", self.open(java_script_enabled=False).locator(".plain-page").inner_text())
        page = self.open(java_script_enabled=False, extra_http_headers={"x-api-key": "secret"})
        self.assertIn(MARKUP, page.locator(".plain-page").inner_text())
        self.assertEqual(0, page.locator("img").count())


if __name__ == "__main__":
    unittest.main()
