"""What a person at a terminal sees of a running system: `foretoken ps --watch` and `foretoken top` on a pty, and the file of
`foretoken trace`."""
import json
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

from harness import BIN, Client, System, request, use_demo_pair, wait_for
from terminal import Terminal


class Seeing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        use_demo_pair()
        cls.system = System(settings=["edge.port=0", "model.dtype=float32"]).__enter__()
        cls.system.start("router", "tokenizer", "draft", "target", "edge")
        cls.system.wait_ready()
        wait_for(lambda: cls.system.services("edge"), "the edge is registered")
        cls.client = Client(cls.system)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.system.assert_alive()
        cls.system.__exit__(None, None, None)

    def command(self, *words):
        return [os.path.join(BIN, "foretoken"), *words, "--set", f"bus.client={self.system.client}",
                "--set", f"bus.runtime_dir={self.system.folder}/r"]

    def load(self, terminal, fact, what):
        """Requests, one after the other, until the fact is on the screen."""
        state = {"asked": None, "n": 0}

        def look(screen):
            list(self.client.pump(0))
            if state["asked"] is None or any(m["done"] for m in self.client.inbox.get(state["asked"], [])):
                state["n"] += 1
                state["asked"] = self.client.send(request(state["n"], max_tokens=64))
            return fact(screen)

        value = terminal.wait_until(look, what)
        self.client.wait(state["asked"])
        return value

    @staticmethod
    def cell(terminal, row, heading):
        """The word below a heading; "" if there is none."""
        headings = next((line for line in terminal.lines() if line.startswith("SERVICE")), "")
        line = next((line for line in terminal.lines() if line.startswith(row)), "")
        at = headings.find(heading)
        return line[at:].split(" ")[0] if at >= 0 else ""

    def test_ps_watch_shows_device_type_proposer_k_and_tokens_per_second(self):
        with Terminal(self.command("ps", "--watch", "--interval", "0.3"), columns=180) as terminal:
            terminal.wait_until(lambda t: "ready, " in t.text(), "a first look")
            self.assertEqual(["cpu", "float32", "draft+ngram+memory", "8"],
                             [self.cell(terminal, "target-0", h) for h in ("DEVICE", "TYPE", "PROPOSER", "K ")], terminal.text())
            self.assertEqual(["cpu", "float32", "-", "-"],
                             [self.cell(terminal, "draft-0", h) for h in ("DEVICE", "TYPE", "PROPOSER", "K ")], terminal.text())
            self.load(terminal, lambda t: self.cell(t, "target-0", "TOK/S") not in ("-", "0", ""), "tokens per second of the target")
            terminal.wait_until(lambda t: self.cell(t, "target-0", "TOK/S") == "0", "no tokens any more")
            self.assertEqual(1, sum(line.startswith("SERVICE") for line in terminal.lines()), "one table, not several")
            terminal.type("\x03")
            self.assertEqual(-signal.SIGINT, terminal.exit_code())

    def test_ps_watch_without_a_terminal_writes_one_document_a_look(self):
        process = subprocess.Popen(self.command("ps", "--watch", "--interval", "0.1", "--json"), stdout=subprocess.PIPE, text=True)
        looks = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.terminate()
        process.communicate()
        target = [next(s for s in look["services"] if s["role"] == "target") for look in looks]
        self.assertEqual(("cpu", "float32", "draft+ngram+memory", 8), tuple(target[0][k] for k in ("device", "dtype", "proposer", "draft_len")))
        self.assertIsNone(target[0]["tokens_per_second"])
        self.assertIsInstance(target[1]["tokens_per_second"], float)

    def test_an_interval_needs_watch(self):
        done = subprocess.run(self.command("ps", "--interval", "1"), capture_output=True, text=True)
        self.assertEqual(2, done.returncode)
        self.assertIn("--watch", done.stderr)

    def test_top_shows_speed_acceptance_and_rounds_and_obeys_its_keys(self):
        with Terminal(self.command("top", "--interval", "0.4"), columns=120, rows=20) as terminal:
            parts = ("foretoken top  tiny <- demo-draft", "accepted by position", "verify", "propose", "q quit", "target-0", "edge-0")
            self.load(terminal, lambda t: re.search(r"\b[1-9]\d* tok/s", t.text()) and " 1 #" in t.text()
                      and re.search(r"round \d", t.text()) and re.search(r"tokens/round \d", t.text())
                      and all(part in t.text() for part in parts), "figures of a round")
            text = terminal.text()
            if os.environ.get("FORETOKEN_SHOW_SCREENS"):
                print("\n" + text)
            terminal.type("s")
            terminal.wait_until(lambda t: "s sort (cpu)" in t.text(), "another order")
            terminal.type("d")
            terminal.wait_until(lambda t: "guess/s" in t.text() and "accepted by position" not in t.text(), "the drafts")
            terminal.type(" ")
            terminal.wait_until(lambda t: "PAUSED" in t.text(), "a pause")
            terminal.type(" d")
            terminal.wait_until(lambda t: "PAUSED" not in t.text() and "accepted by position" in t.text(), "rounds again")
            terminal.resize(80, 16)
            terminal.wait_until(lambda t: "".join(t.lines()[1:2]).startswith(tuple("0123456789")) and any(line.startswith("q quit") for line in t.lines()), "a smaller page")
            terminal.resize(60, 10)
            terminal.wait_until(lambda t: "service" not in t.text() and t.text().startswith("tiny <- demo-draft"), "a line")
            terminal.type("q")
            self.assertEqual(0, terminal.exit_code())

    def test_tops_first_page_says_when_figures_come(self):
        with Terminal(self.command("top", "--interval", "60"), columns=120, rows=20) as terminal:
            terminal.wait_until(lambda t: re.search(r"the first figures come after 60(\.0)? s", t.text()), "the first page")
            terminal.type("q")
            self.assertEqual(0, terminal.exit_code())

    def test_top_ends_with_130_at_ctrl_c_and_leaves_the_terminal_as_it_was(self):
        with Terminal(["/bin/sh", "-c", 'trap : INT; stty -a > before; "$@"; code=$?; stty -a > after; exit $code', "sh",
                       *self.command("top")], columns=100, rows=20, folder=self.system.folder) as terminal:
            terminal.wait_until(lambda t: "q quit" in t.text(), "a page")
            terminal.type("\x03")
            self.assertEqual(130, terminal.exit_code())
        before, after = (pathlib.Path(self.system.folder, name).read_text() for name in ("before", "after"))
        self.assertEqual(before, after)

    def test_top_on_a_small_terminal_writes_a_line_an_interval(self):
        with Terminal(self.command("top", "--interval", "0.2"), columns=79, rows=16) as terminal:
            terminal.wait_until(lambda t: t.text().count("running") >= 2, "two lines")
            self.assertNotIn("q quit", terminal.text())

    def test_top_without_a_keyboard_writes_a_line_an_interval(self):
        with Terminal(["/bin/sh", "-c", '"$@" < /dev/null', "sh", *self.command("top", "--interval", "0.2")], columns=120) as terminal:
            terminal.wait_until(lambda t: t.text().count("running") >= 2, "two lines")
            self.assertNotIn("q quit", terminal.text())

    def test_top_once_and_as_json(self):
        line = subprocess.run(self.command("top", "--once", "--interval", "0.2"), capture_output=True, text=True, check=True).stdout
        self.assertRegex(line, r"^\d\d:\d\d:\d\d  tiny <- demo-draft  \d+ tok/s.* running 0  waiting 0  kv 0 %.*\n$")
        top = json.loads(subprocess.run(self.command("top", "--once", "--interval", "0.2", "--json"), capture_output=True, text=True,
                                        check=True).stdout)
        self.assertEqual("foretoken.top/1", top["schema"])
        self.assertGreaterEqual(top["seconds"], 0.2)
        self.assertEqual({"router-0", "tokenizer-0", "draft-0", "target-0", "edge-0"}, {s["name"] for s in top["services"]})

    def trace(self, *words):
        """The events of a trace, sorted into {service: [slice]}, and what the command says."""
        file = os.path.join(self.system.folder, "trace.json")
        done = subprocess.run(self.command("trace", *words, "-o", file), capture_output=True, text=True)
        self.assertEqual((0, ""), (done.returncode, done.stdout), done.stderr)
        with open(file) as text:
            events = json.load(text)["traceEvents"]
        names = {e["pid"]: e["args"]["name"].split(" ")[0] for e in events if e["name"] == "process_name"}
        slices = {name: [e for e in events if e["ph"] == "X" and names[e["pid"]] == name] for name in names.values()}
        return slices, done.stderr

    def test_trace_has_the_passes_of_an_answer_from_their_beginning(self):
        def guessed():  # by guesses that came in time
            answer = self.client.ask(**request(1, max_tokens=64))
            return answer["metrics"]["speculative_decoding"]["num_draft_tokens"] > 0 and answer
        before = time.monotonic()
        answer = wait_for(guessed, "an answer with guesses")
        slices, said = self.trace("--last", "--seconds", str(time.monotonic() - before + 60))
        self.assertEqual({"target-0", "draft-0"}, set(slices))
        target, draft = slices["target-0"], slices["draft-0"]
        passes = [e for e in target if e["name"] in ("verify", "decode", "prefill")]
        self.assertGreaterEqual(sum(e["args"]["tokens"] for e in passes), 64)
        spec = answer["metrics"]["speculative_decoding"]
        self.assertGreaterEqual(sum(e["args"]["drafted"] for e in passes), spec["num_draft_tokens"])
        self.assertGreaterEqual(sum(e["args"]["accepted"] for e in passes), spec["num_accepted_draft_tokens"])
        self.assertTrue(any(e["name"] == "verify" for e in passes))
        self.assertTrue(any(e["name"] == "propose" and e["args"]["drafted"] > 0 for e in draft))
        for track in (target, draft):  # one thing at a time; a microsecond is what rounding may take
            track.sort(key=lambda e: e["ts"])
            for one, next_one in zip(track, track[1:]):
                self.assertLessEqual(one["ts"] + one["dur"], next_one["ts"] + 2, (one, next_one))
        self.assertIn("target-0: ", said)
        self.assertIn("perfetto", said)

    def test_trace_of_the_next_seconds_leaves_out_what_was(self):
        self.client.ask(**request(1, max_tokens=16))
        slices, said = self.trace("--seconds", "0.3")
        self.assertEqual([], slices["target-0"])
        self.assertIn("target-0: 0 passes", said)

    def test_trace_says_what_it_cannot_write(self):
        done = subprocess.run(self.command("trace", "--last", "-o", "/nonexistent/t.json"), capture_output=True, text=True)
        self.assertNotEqual(0, done.returncode)
        self.assertIn("/nonexistent/t.json", done.stderr)

    def test_top_without_a_router(self):
        done = subprocess.run([os.path.join(BIN, "foretoken"), "top", "--once", "--set", "bus.client=tcp://127.0.0.1:1"],
                              capture_output=True, text=True)
        self.assertEqual((3, ""), (done.returncode, done.stdout))

    def test_top_on_an_unknown_terminal_says_so(self):
        with Terminal(self.command("top"), environment={"TERM": "no-such-terminal"}) as terminal:
            self.assertEqual(2, terminal.exit_code())
            self.assertIn('TERM is "no-such-terminal"', terminal.text())


if __name__ == "__main__":
    unittest.main()
