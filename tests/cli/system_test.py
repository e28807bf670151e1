"""`foretoken up` with real services and the demo pair: the clients of the README, the Python client, ps, demo, down.

usage: system_test.py FOLDER_WITH_PROGRAMS
"""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

BIN = pathlib.Path(sys.argv.pop(1))
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "clients/python"), str(ROOT / "tests/support"), str(ROOT / "tests/process")]

import foretoken  # noqa: E402
from infinite_model import write_infinite_model  # noqa: E402
from ports import free_port  # noqa: E402
from terminal import Terminal  # noqa: E402


class Detached(unittest.TestCase):
    def test_keeps_nothing_that_its_caller_had_open(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-fd-"))
        self.addCleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        settings = ["--set", "edge.port=0", "--set", f"bus.client=tcp://127.0.0.1:{free_port()}", "--set", f"bus.runtime_dir={folder}/r"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FORETOKEN_")}
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = subprocess.run([str(BIN / "foretoken"), "up", "--detach", *settings], env=environment, capture_output=True,
                                  text=True, timeout=120, pass_fds=[lock.fileno()])
        self.addCleanup(lambda: subprocess.run([str(BIN / "foretoken"), "down", *settings], env=environment, capture_output=True))
        self.assertEqual(0, done.returncode, done.stderr)
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no other process has it


class WithKeys(unittest.TestCase):
    def test_every_verb_works_and_who_has_no_key_hears_nothing(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-keys-"))
        self.addCleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        door = f"tcp://127.0.0.1:{free_port()}"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FORETOKEN_")}
        plain = ["--set", "edge.port=0", "--set", f"bus.client={door}", "--set", f"bus.runtime_dir={folder}/r"]

        def run_verb(*words, settings, **more):
            return subprocess.run([str(BIN / "foretoken"), *words, *settings], env=environment, capture_output=True, text=True,
                                  timeout=200, **more)
        public = run_verb("config", "new-key", "-o", str(folder / "up.key"), settings=[]).stdout.strip()
        (folder / "peers").write_text(f"{public} tool:up {door}\n")
        settings = [*plain, "--set", f"bus.curve_secret={folder}/up.key", "--set", f"bus.curve_peers={folder}/peers"]
        done = run_verb("up", "--detach", settings=settings)
        self.addCleanup(lambda: run_verb("down", settings=settings))
        self.assertEqual(0, done.returncode, done.stderr)
        for words in (("generate", "-n", "8", "Once"), ("ps",), ("demo", "--quiet", "--repeat", "1", "--max-tokens", "8"),
                      ("bench", "serve", "--num-prompts", "2", "--output-len", "4"), ("up", "--detach")):
            done = run_verb(*words, settings=settings)
            self.assertEqual(0, done.returncode, f"{words}: {done.stderr}")
        done = run_verb("chat", "-n", "4", settings=settings, input="Hello.\n/quit\n")
        self.assertEqual(0, done.returncode, done.stderr)
        done = run_verb("ps", settings=plain)
        self.assertEqual((2, ""), (done.returncode, done.stdout))
        self.assertIn(f"the router at {door} takes only clients with a key", done.stderr)


class Several(unittest.TestCase):
    def test_up_is_done_when_all_that_it_started_is_listed(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-several-"))
        self.addCleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FORETOKEN_")}
        port = free_port()
        settings = ["--set", f"edge.port={port}", "--set", f"bus.client=tcp://127.0.0.1:{free_port()}",
                    "--set", f"bus.runtime_dir={folder}"]

        def run_verb(*words):
            return subprocess.run([str(BIN / "foretoken"), *words, *settings], env=environment, capture_output=True, text=True,
                                  timeout=200)
        self.addCleanup(lambda: run_verb("down"))
        for _ in range(2):
            done = run_verb("up", "--detach", "-v", "--targets", "2", "--drafts", "2")
            self.assertEqual(0, done.returncode, done.stderr)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as health:  # raises for a 503
                self.assertEqual("ok", json.loads(health.read())["status"])
            self.assertEqual((1, 7), tuple(done.stderr.count(f"detail: {word} ") for word in ("configuration:", "starts")), done.stderr)
            services = json.loads(run_verb("ps", "--json").stdout)["services"]
            self.assertEqual(["draft-0", "draft-1", "edge-0", "router-0", "target-0", "target-1", "tokenizer-0"],
                             sorted(service["name"] for service in services))
            self.assertEqual({"ready"}, {service["state"] for service in services})
            self.assertEqual(0, run_verb("down").returncode)


class System(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-up-"))
        cls.endpoint = f"tcp://127.0.0.1:{free_port()}"
        cls.settings = ["--set", "edge.port=0", "--set", f"bus.client={cls.endpoint}", "--set", f"bus.runtime_dir={cls.folder}"]
        done = cls.run_verb("up", "--detach")
        if done.returncode != 0:
            raise AssertionError(f"up failed: {done.stderr}")

    @classmethod
    def tearDownClass(cls):
        done = cls.run_verb("down")
        left = subprocess.run(["pgrep", "-f", str(cls.folder)], capture_output=True, text=True).stdout.split()
        shutil.rmtree(cls.folder, ignore_errors=True)
        assert done.returncode == 0 and not left, (done.stderr, left)
        # On a slow machine a line before it says what is waited for.
        assert done.stderr.endswith(f"stopped what served at {cls.endpoint}\n"), done.stderr

    def setUp(self):
        # Whatever another test killed is back.
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            services = json.loads(self.run_verb("ps", "--json").stdout)["services"]
            # The router lists a process that was killed until its silence is noticed.
            if all(s["state"] == "ready" and pathlib.Path(f"/proc/{s['pid']}").exists() for s in services):
                return
        self.fail("a service did not come back within 60 s")

    def until(self, happened, otherwise="no guess came in time"):
        """Whether something comes in time is a matter of speed: again until it did."""
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline:
            if happened():
                return
        self.fail(otherwise)

    @classmethod
    def run_verb(cls, *words, stdin=""):
        return subprocess.run([str(BIN / "foretoken"), *words, *cls.settings], capture_output=True, text=True,
                              timeout=200, input=stdin)

    def test_tab_offers_the_models_that_are_served(self):
        def offered():
            """A person who presses Tab waits for a moment only: what has not come by then is not offered."""
            done = subprocess.run([str(BIN / "foretoken"), "complete", "--", "generate", *self.settings, "--model", ""],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual((0, ""), (done.returncode, done.stderr))
            self.assertIn(done.stdout, ("", "demo\n"))
            return done.stdout == "demo\n"
        self.until(offered, "no model was offered in time")

    def test_up_again_is_idempotent(self):
        done = self.run_verb("up", "--detach")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("already serving", done.stderr)

    def test_up_again_with_other_settings_is_refused_by_their_names(self):
        for words, name, values in ((["--targets", "2"], "model.targets", "1, not 2"),
                                    (["--tensor-parallel-size", "2"], "target.tensor_parallel", "1, not 2"),
                                    (["--tp", "2"], "target.tensor_parallel", "1, not 2"),
                                    (["--port", "8001"], "edge.port", "0, not 8001"),
                                    (["--host", "127.0.0.2"], "edge.host", '"127.0.0.1", not "127.0.0.2"'),
                                    (["--set", "speculation.draft_len=3"], "speculation.draft_len", ", not 3")):
            done = self.run_verb("up", "--detach", *words)
            self.assertEqual(6, done.returncode, done.stderr)
            self.assertRegex(done.stderr, f"  {name}: it runs with .*{values}\n  try: foretoken down")
            self.assertTrue(json.loads(self.run_verb("ps", "--json").stdout)["ready"])
        # The same settings in other words: by variable, and said though they are the default.
        environment = {**os.environ, "FORETOKEN_BUS_CLIENT": self.endpoint, "FORETOKEN_BUS_RUNTIME_DIR": str(self.folder) + "/",
                       "FORETOKEN_EDGE_PORT": "0"}
        done = subprocess.run([str(BIN / "foretoken"), "up", "--detach", "--drafts", "1"], env=environment, capture_output=True,
                              text=True, timeout=60)
        self.assertEqual((0, True), (done.returncode, "already serving" in done.stderr), done.stderr)

    def test_another_address_in_the_same_runtime_folder_is_refused_by_name(self):
        other = f"tcp://127.0.0.1:{free_port()}"
        for verb, code in ((("up", "--detach"), 6), (("down",), 2)):
            done = subprocess.run([str(BIN / "foretoken"), *verb, "--set", f"bus.runtime_dir={self.folder}",
                                   "--set", f"bus.client={other}"], capture_output=True, text=True, timeout=60)
            self.assertEqual(code, done.returncode, done.stderr)
            self.assertIn(f"serves at {self.endpoint}", done.stderr)
            self.assertIn("bus.runtime_dir", done.stderr)
            self.assertTrue(json.loads(self.run_verb("ps", "--json").stdout)["ready"])

    def test_ps_shows_five_ready_services(self):
        status = json.loads(self.run_verb("ps", "--json").stdout)
        self.assertTrue(status["ready"])
        self.assertEqual({"router": "ready", "tokenizer": "ready", "draft": "ready", "target": "ready", "edge": "ready"},
                         {s["role"]: s["state"] for s in status["services"]})
        self.assertIn("target-0", self.run_verb("ps").stdout)

    def test_generate_is_the_same_plain_and_speculative(self):
        flags = ["--max-tokens", "48", "-t", "0.8", "--top-p", "0.95", "--seed", "11", "--json"]
        plain = json.loads(self.run_verb("generate", *flags, "--no-spec", "Tell me a story.").stdout)

        def guessed():
            spec = json.loads(self.run_verb("generate", *flags, "Tell me a story.").stdout)
            self.assertEqual((plain["token_ids"], plain["text"]), (spec["token_ids"], spec["text"]))
            return spec["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"] > 0
        self.until(guessed)
        self.assertEqual(0, plain["metrics"]["speculative_decoding"]["num_draft_tokens"])

    def test_generate_shows_the_bytes_of_tokens_with_their_log_probabilities(self):
        reply = json.loads(self.run_verb("generate", "--json", "-n", "8", "-t", "0", "--logprobs", "2", "Tell me a story.").stdout)
        self.assertEqual(8, len(reply["logprobs"]))
        self.assertEqual(reply["text"], b"".join(bytes(entry["bytes"]) for entry in reply["logprobs"]).decode())
        self.assertEqual(reply["text"], "".join(entry["token"] for entry in reply["logprobs"]))
        for entry in reply["logprobs"]:  # greedy: the likeliest
            self.assertEqual((entry["bytes"], entry["token"]), (entry["top_bytes"][0], entry["top_tokens"][0]))
        with foretoken.Client(self.endpoint, timeout_s=60) as client:
            other = client.generate([{"role": "user", "content": "Tell me a story."}], max_tokens=8, temperature=0, logprobs=2)
        self.assertEqual([bytes(entry["bytes"]) for entry in reply["logprobs"]], [entry["bytes"] for entry in other.logprobs])
        self.assertEqual([entry["top_tokens"] for entry in reply["logprobs"]], [entry["top_tokens"] for entry in other.logprobs])

    def test_verbose_says_whom_it_asks_and_what_took_how_long(self):
        flags = ["generate", "-n", "8", "-t", "0", "Tell me a story."]
        done, usual = self.run_verb(*flags, "-v"), self.run_verb(*flags)
        self.assertEqual((usual.stdout, ""), (done.stdout, usual.stderr))
        self.assertRegex(done.stderr, rf"detail: the router at {self.endpoint} answered in [\d.]+ ms: ready, ")
        self.assertRegex(done.stderr, r"detail: request [0-9a-f]{32} of model demo, .*: tokens of the prompt after [\d.]+ ms, [\d.]+ ms in queues, "
                                      r"first token after [\d.]+ ms, the rest in [\d.]+ ms\n")
        self.assertRegex(done.stderr, r"\n\[8 tokens, .*\]\n")
        done = self.run_verb("bench", "serve", "-v", "--num-prompts", "2", "--output-len", "4")
        self.assertEqual(2, len(re.findall(r"(?m)^detail: \w+: 4 tokens, the first after [\d.]+ ms, then [\d.]+ ms each; \d+ of \d+ guesses right$",
                                           done.stderr)), done.stderr)

    def test_ps_has_the_state_of_each_service_in_its_color(self):
        shown = self.run_verb("ps", "--color", "always").stdout
        self.assertEqual(5, shown.count("\033[32mready\033[0m"))
        self.assertEqual(re.sub(r"\s+\d.*", "", self.run_verb("ps").stdout), re.sub(r"\s+\d.*", "", re.sub(r"\033\[\d+m", "", shown)))

    def test_generate_reads_stdin_and_streams(self):
        whole = self.run_verb("generate", "--raw", "-n", "16", "-t", "0", "--no-stream", stdin="Once upon a time")
        streamed = self.run_verb("generate", "--raw", "-n", "16", "-t", "0", stdin="Once upon a time")
        self.assertEqual((0, whole.stdout), (streamed.returncode, streamed.stdout))

    def test_a_prompt_arrives_as_it_was_written(self):
        prompt = "line one\nline two\ttab"
        done = self.run_verb("generate", "-n", "16", "-t", "0", "--json", prompt)
        with foretoken.Client(self.endpoint, timeout_s=60) as client:
            other = client.generate([{"role": "user", "content": prompt}], max_tokens=16, temperature=0)
        answer = json.loads(done.stdout)
        self.assertEqual((other.usage["prompt_tokens"], other.token_ids), (answer["usage"]["prompt_tokens"], answer["token_ids"]))

    def test_chat_reads_lines(self):
        done = self.run_verb("chat", "-n", "12", "-t", "0", stdin="Hello.\n/clear\nHello.\n/quit\n")
        self.assertEqual(0, done.returncode, done.stderr)
        lines = done.stdout.split("\n")
        self.assertGreaterEqual(len([line for line in lines if line.strip()]), 2)

    def test_ctrl_c_in_a_chat_stops_the_answer_and_keeps_the_conversation(self):
        context = json.loads(self.run_verb("model", "info", str(ROOT / "models/demo-target"), "--json").stdout)["context"]
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ["TERM"] = "dumb"  # plain lines; edited ones are in tests/process/chat_test.py
            os.execv(BIN / "foretoken", ["foretoken", "chat", "--no-spec", "--ignore-eos", "-t", "0", "-n", str(context - 300), *self.settings])
        self.addCleanup(os.close, terminal)
        seen = ""

        def read_until(words):
            nonlocal seen
            deadline = time.monotonic() + 60
            while not re.search(words, seen):
                self.assertTrue(select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0], f"no {words} in {seen!r}")
                try:
                    seen += os.read(terminal, 4096).decode(errors="replace")
                except OSError:  # the other end is closed
                    self.fail(f"the chat ended without {words}: {seen!r}")
            before, seen = seen[:re.search(words, seen).end()], seen[re.search(words, seen).end():]
            return before

        def say(words):
            os.write(terminal, words)

        read_until("> ")
        say(b"Tell me a story.\n")
        read_until(r"story\.\r\n[\s\S]{12}")
        say(b"\x03")
        self.assertIn("cancelled]", read_until(r"\[\d+ tokens.*?\]\r\n> "))
        self.assertEqual(0, json.loads(self.run_verb("ps", "--json").stdout)["requests_active"])
        say(b"Go on.\n")  # with what was said before: a second answer, stopped in the same way
        read_until(r"on\.\r\n[\s\S]{12}")
        say(b"\x03")
        self.assertIn("cancelled]", read_until(r"\[\d+ tokens.*?\]\r\n> "))
        say(b"/help\n")
        read_until("/quit.*> ".replace(".", r"[\s\S]"))
        say(b"\x03")
        self.assertIn("^D ends", read_until(r"\^D ends.*\r\n> "))
        say(b"\x03")
        self.assertEqual(130, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    def test_python_client(self):
        with foretoken.Client(self.endpoint, timeout_s=60) as client:
            whole = client.generate("Once upon a time", max_tokens=24, temperature=0)
            pieces = list(client.stream("Once upon a time", max_tokens=24, temperature=0, num_draft_tokens=0))
            self.assertEqual(whole.text, "".join(piece.text for piece in pieces))
            self.assertEqual(whole.token_ids, client.last_reply.token_ids)
            with self.assertRaises(foretoken.ForetokenError) as refused:
                client.generate("x", temperature=-1)
            self.assertEqual(("invalid_value", "temperature"), (refused.exception.code, refused.exception.param))
            # The connection still works after an error, and after a stream that was left early.
            for piece in client.stream("Once upon a time", max_tokens=200, temperature=0):
                break
            self.assertEqual(whole.text, client.generate("Once upon a time", max_tokens=24, temperature=0).text)

    def test_async_client(self):
        import asyncio

        async def both():
            async with foretoken.AsyncClient(self.endpoint, timeout_s=60) as client:
                whole = await client.generate("Once upon a time", max_tokens=16, temperature=0)
                text = "".join([piece.text async for piece in client.stream("Once upon a time", max_tokens=16, temperature=0)])
                return whole.text, text

        whole, streamed = asyncio.run(both())
        self.assertEqual(whole, streamed)

    def test_the_raw_example_of_the_docs_runs(self):
        page = (ROOT / "docs/clients.md").read_text(encoding="utf-8")
        code = re.search(r"## Any language.*?```python\n(.*?)```", page, re.S).group(1)
        self.assertLessEqual(len([line for line in code.split("\n") if line.strip()]), 25)
        done = subprocess.run(["/usr/bin/python3", "-c", code, self.endpoint], capture_output=True, text=True, timeout=60)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("mean_acceptance_length", done.stdout)

    def test_demo_is_identical(self):
        def guessed():
            done = self.run_verb("demo", "--json", "--repeat", "1", "-n", "32")
            self.assertEqual(0, done.returncode, done.stderr)
            report = json.loads(done.stdout)
            self.assertTrue(report["identical"])
            for key in ("speedup", "tokens_per_round", "plain_tok_s", "spec_tok_s"):
                self.assertGreater(report[key], 0, key)
            self.assertIn("x", report["machine"])
            return report["acceptance_rate"] > 0
        self.until(guessed)

    def test_bench_serve_counts_every_request(self):
        done = self.run_verb("bench", "serve", "--json", "--num-prompts", "6", "--concurrency", "3", "--output-len", "12")
        report = json.loads(done.stdout)
        self.assertEqual((6, 0, 72), (report["completed"], report["failed"], report["total_output_tokens"]))

    def test_bench_serve_runs_with_several_numbers_of_requests_at_a_time(self):
        out = self.folder / "sweep.json"
        words = ("bench", "serve", "--json", "--num-prompts", "4", "--concurrency", "1,2", "--output-len", "8", "--dataset", "random",
                 "--input-len", "40", "--goodput", "ttft:60000,tpot:60000", "--out", str(out))

        report = {}

        def measured():
            done = self.run_verb(*words)
            self.assertEqual(0, done.returncode, done.stderr)
            report.update(json.loads(done.stdout))
            # Where figures of a service come late there is no sum.
            return all(run["processor_seconds"] for run in report["runs"])
        self.until(measured, "no processor time in time")
        self.assertEqual("foretoken.bench_sweep/1", report["schema"])
        self.assertEqual([1, 2], [run["concurrency"] for run in report["runs"]])
        for run in report["runs"]:
            self.assertEqual((4, 160, 32), (run["completed"], run["total_input_tokens"], run["total_output_tokens"]))
            self.assertEqual((4, 60000), (run["goodput"]["good_requests"], run["goodput"]["max_ttft_ms"]))
            self.assertEqual((40, True), (run["input_len"], run["unique_prompts"]))
            self.assertGreater(run["processor_seconds"]["target-0"], 0)
        self.assertNotEqual(*(run["answers"] for run in report["runs"]), "the second run has other prompts")
        self.assertEqual([0, 1], [run["prompts_of_run"] for run in report["runs"]])
        done = self.run_verb("bench", "compare", str(out))
        self.assertEqual(0, done.returncode, done.stdout)
        self.assertIn("sweep, 2", done.stdout)
        self.assertIn("The requests differ in: prompts_of_run\n", done.stdout)
        done = self.run_verb("bench", "serve", "--num-prompts", "2", "--concurrency", "1,2", "--output-len", "4")
        self.assertIn("at a time", done.stdout)
        self.assertEqual(3, len(done.stdout.splitlines()))
        words = ("bench", "serve", "--num-prompts", "2", "--concurrency", "1,2", "--output-len", "4", *self.settings)
        with Terminal([str(BIN / "foretoken"), *words], columns=120) as terminal:
            self.assertEqual(0, terminal.exit_code(), terminal.text())
            self.assertIn("% ", terminal.raw.decode())  # a bar, and where it was the table
            self.assertRegex(terminal.text(), r"\Aat a time ")

    def test_bench_serve_makes_each_prompt_unique_and_counts_good_requests(self):
        words = ("bench", "serve", "--json", "--num-prompts", "2", "--output-len", "4")
        plain = json.loads(self.run_verb(*words).stdout)
        done = json.loads(self.run_verb(*words, "--unique-prompts", "--goodput", "e2el:0.001").stdout)
        self.assertGreater(done["total_input_tokens"], plain["total_input_tokens"])
        self.assertEqual(0, done["goodput"]["good_requests"])
        self.assertNotIn("goodput", plain)
        for wrong, said in ((("--compare", "--concurrency", "1,2"), "--compare"), (("--compare", "--unique-prompts"), "--unique-prompts"),
                            (("--goodput", "itl:5"), "ttft:MS"), (("--http", "--dataset", "random"), "ZeroMQ"),
                            (("--input-len", "5"), "--dataset random"), (("--dataset", "random", "--unique-prompts"), "share no beginning")):
            done = self.run_verb("bench", "serve", *wrong)
            self.assertNotEqual(0, done.returncode, wrong)
            self.assertIn(said, done.stderr, wrong)

    def test_bench_serve_compares_plain_with_speculative(self):
        out = self.folder / "compare.json"

        def guessed():
            out.unlink(missing_ok=True)
            done = self.run_verb("bench", "serve", "--compare", "--json", "--num-prompts", "4", "--concurrency", "2", "--output-len", "24",
                                 "--fixed", "-t", "0.8", "--out", str(out))
            self.assertEqual(0, done.returncode, done.stderr)
            report = json.loads(done.stdout)
            self.assertEqual(report, json.loads(out.read_text()))
            self.assertTrue(report["identical"])
            # Twice four requests each way.
            self.assertEqual((8, 8), (report["plain"]["completed"], report["speculative"]["completed"]))
            self.assertEqual(0, report["plain"]["speculative_decoding"]["draft_tokens"])
            ratio = report["speculative"]["output_throughput"] / report["plain"]["output_throughput"]
            self.assertAlmostEqual(ratio, report["throughput_ratio"])
            return report["speculative"]["speculative_decoding"]["draft_tokens"] > 0
        self.until(guessed)
        self.assertEqual(2, self.run_verb("bench", "serve", "--compare", "--no-spec").returncode)

    def test_bench_latency_asks_one_at_a_time_and_all_kinds_alike(self):
        out = self.folder / "latency.json"
        done = self.run_verb("bench", "latency", "--num-prompts", "5", "--output-len", "12", "--out", str(out))
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^whole answer( +[\d.]+){5}$")
        self.assertRegex(done.stdout, r"(?m)^all +5 ")
        report = json.loads(out.read_text())
        self.assertEqual(("foretoken.bench_latency/1", 1, 5, 60),
                         tuple(report[key] for key in ("schema", "concurrency", "completed", "total_output_tokens")))
        self.assertEqual({"code": 1, "json": 1, "qa": 1, "steps": 1, "story": 1},
                         {kind: tally["completed"] for kind, tally in report["by_kind"].items()})
        ends = [(request["at_ms"], request["at_ms"] + request["e2el_ms"]) for request in report["requests"]]
        self.assertTrue(all(end <= begin for (_, end), (begin, _) in zip(ends, ends[1:])), ends)
        done = self.run_verb("bench", "latency", "--compare", "--json", "--num-prompts", "2", "--output-len", "12")
        self.assertEqual((0, True), (done.returncode, json.loads(done.stdout)["identical"]), done.stderr)

    def test_bench_acceptance_counts_every_guess_at_its_position(self):
        services = json.loads(self.run_verb("ps", "--json").stdout)["services"]
        [url] = [service["endpoint"] for service in services if service["role"] == "edge"]
        for words in ((), ("--url", url + "/v1")):
            out = self.folder / "acceptance.json"

            def guessed():
                done = self.run_verb("bench", "acceptance", "--fixed", "--num-prompts", "5", "--output-len", "48", "--out", str(out), *words)
                self.assertEqual(0, done.returncode, done.stderr)
                report = json.loads(out.read_text())
                self.assertEqual("foretoken.bench_acceptance/1", report["schema"])
                said = report["speculative_decoding"]
                positions = [at for kind in report["by_kind"].values() for at in kind["acceptance_by_position"]]
                self.assertEqual((said["draft_tokens"], said["accepted_tokens"]),
                                 (sum(at["guessed"] for at in positions), sum(at["accepted"] for at in positions)))
                if said["draft_tokens"] > 0:
                    self.assertRegex(done.stdout, r"(?m)^accepted at +code +json +qa +steps +story +all$")
                    self.assertRegex(done.stdout, r"(?m)^position 1( +(\d+ %|-)){6}$")
                return said["draft_tokens"] > 0
            self.until(guessed)
            self.assertIn("Acceptance rate", self.run_verb("bench", "compare", str(out), str(out)).stdout)
        self.assertEqual(2, self.run_verb("bench", "acceptance", "--no-spec").returncode)

    def test_bench_serve_measures_over_http_what_it_measures_over_zeromq(self):
        services = json.loads(self.run_verb("ps", "--json").stdout)["services"]
        [url] = [service["endpoint"] for service in services if service["role"] == "edge"]
        datasets = {"sharegpt.json": [{"id": "a", "conversations": [{"from": "human", "value": "Tell me of a fox."}, {"from": "gpt", "value": "Once"}]},
                                      {"id": "b", "conversations": [{"from": "gpt", "value": "begins wrongly"}]}],
                    "openai.jsonl": [{"custom_id": "1", "body": {"model": "x", "messages": [{"role": "user", "content": "Tell me of a fox."}]}},
                                     {"messages": [{"role": "user", "content": [{"type": "text", "text": "Tell me of a fox."}]}]}]}
        for name, entries in datasets.items():
            path = self.folder / name
            path.write_text(json.dumps(entries) if name.endswith("json") else "\n".join(json.dumps(entry) for entry in entries))
            reports = {}
            for door, words in (("zeromq", ()), ("http", ("--url", url + "/v1"))):
                def guessed():
                    file = self.folder / f"{door}.json"
                    file.unlink(missing_ok=True)
                    done = self.run_verb("bench", "serve", "--json", "--num-prompts", "4", "--request-rate", "50", "--output-len", "48",
                                         "--fixed", "-t", "0.7", "--dataset", str(path), *words, "--out", str(file))
                    self.assertEqual(0, done.returncode, done.stderr)
                    reports[door] = json.loads(done.stdout)
                    self.assertEqual((door, 4, 0, 192),
                                     tuple(reports[door][key] for key in ("door", "completed", "failed", "total_output_tokens")))
                    self.assertEqual(101, len(reports[door]["ttft_ms"]["quantiles"]))
                    return reports[door]["speculative_decoding"]["draft_tokens"] > 0
                self.until(guessed)
            self.assertEqual(reports["zeromq"]["total_input_tokens"], reports["http"]["total_input_tokens"])
            done = self.run_verb("bench", "compare", str(self.folder / "zeromq.json"), str(self.folder / "http.json"))
            self.assertEqual(0, done.returncode, done.stdout + done.stderr)
            self.assertIn("The conditions differ in: door", done.stdout)
            self.assertRegex(done.stdout, r"Same answers +yes\n")
        done = self.run_verb("bench", "serve", "--compare", "--url", url, "--num-prompts", "4", "--output-len", "24", "--json")
        self.assertTrue(json.loads(done.stdout)["identical"], done.stderr)
        self.assertEqual(3, self.run_verb("bench", "serve", "--url", "http://127.0.0.1:1").returncode)
        (self.folder / "bad.jsonl").write_text('{"prompt": "a"}\n{"prompt": 5}\n')
        done = self.run_verb("bench", "serve", "--dataset", str(self.folder / "bad.jsonl"))
        self.assertIn("bad.jsonl: entry 1 has neither", done.stderr)

    def test_bench_compare_names_a_prefix_cache_that_only_the_second_run_found_full(self):
        prompts = self.folder / "long.jsonl"
        prompts.write_text("\n".join(json.dumps({"prompt": f"{i} of the cold and warm. " + "The fox ran over the hill. " * 20}) for i in range(2)))
        files = [self.folder / name for name in ("cold.json", "warm.json", "http.json")]
        [url] = [service["endpoint"] for service in json.loads(self.run_verb("ps", "--json").stdout)["services"] if service["role"] == "edge"]
        for file, words in zip(files, ((), (), ("--url", url))):
            done = self.run_verb("bench", "serve", "--dataset", str(prompts), "--num-prompts", "2", "--output-len", "4", "--out", str(file), *words)
            self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("of them in the prefix cache:", done.stdout)
        cold, warm, over_http = (json.loads(file.read_text())["total_cached_tokens"] for file in files)
        self.assertEqual(warm, over_http)
        self.assertGreater(warm, cold + 100)
        for pair, expected in ((files[:2], True), (files[1:], False)):
            done = self.run_verb("bench", "compare", *map(str, pair))
            self.assertEqual(expected, "total_cached_tokens" in done.stdout, done.stdout)

    def test_bench_serve_claims_nothing_from_answers_that_were_cut_off(self):
        out = self.folder / "cut.json"
        done = self.run_verb("bench", "serve", "--compare", "--timeout", "0.001", "--num-prompts", "2", "--out", str(out))
        self.assertEqual(5, done.returncode, done.stdout + done.stderr)
        self.assertIn("no comparison", done.stdout)
        self.assertNotIn("speculative / plain", done.stdout)
        report = json.loads(out.read_text())
        self.assertEqual((False, None, None), (report["complete"], report["identical"], report["throughput_ratio"]))
        for way in ("plain", "speculative"):
            self.assertEqual((0, 4, 4), tuple(report[way][key] for key in ("completed", "failed", "cut_off")))
            self.assertEqual(0, report[way]["total_output_tokens"])
        done = self.run_verb("bench", "serve", "--json", "--timeout", "0.001", "--num-prompts", "2")
        self.assertEqual((5, 0), (done.returncode, json.loads(done.stdout)["completed"]), done.stderr)

    def test_a_start_that_cannot_work_says_why_and_leaves_nothing(self):
        elsewhere = self.folder / "elsewhere"
        # This system's port is taken; then there is a model without a tokenizer.
        done = subprocess.run([str(BIN / "foretoken"), "up", "--detach", "--set", "edge.port=0", "--set", f"bus.client={self.endpoint}",
                               "--set", f"bus.runtime_dir={elsewhere}"], capture_output=True, text=True, timeout=120)
        self.assertEqual(6, done.returncode, done.stderr)
        self.assertIn(self.endpoint, done.stderr)
        bare = self.folder / "bare"
        self.assertEqual(0, self.run_verb("model", "init-random", str(bare)).returncode)
        done = subprocess.run([str(BIN / "foretoken"), "up", "--detach", "--target", str(bare), "--draft", "",
                               "--set", "edge.port=0", "--set", f"bus.client=tcp://127.0.0.1:{free_port()}", "--set", f"bus.runtime_dir={elsewhere}"],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(4, done.returncode, done.stderr)
        self.assertIn("tokenizer.json", done.stderr)
        # A draft with another vocabulary could never propose anything.
        stranger = self.folder / "stranger"
        self.assertEqual(0, self.run_verb("model", "init-random", str(stranger), "--tokenizer", "demo").returncode)
        tokenizer = json.loads((stranger / "tokenizer.json").read_text())
        vocab = tokenizer["model"]["vocab"]
        a, b = [token for token, number in vocab.items() if number in (300, 301)]
        vocab[a], vocab[b] = vocab[b], vocab[a]
        (stranger / "tokenizer.json").write_text(json.dumps(tokenizer))
        done = subprocess.run([str(BIN / "foretoken"), "up", "--detach", "--draft", str(stranger),
                               "--set", "edge.port=0", "--set", f"bus.client=tcp://127.0.0.1:{free_port()}", "--set", f"bus.runtime_dir={elsewhere}"],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(4, done.returncode, done.stderr)
        self.assertIn("disagree about 2 tokens", done.stderr)
        # Eight bits that only some GPUs multiply: the model is at fault, not the command.
        fp8 = self.folder / "fp8"
        self.assertEqual(0, self.run_verb("model", "quantize", str(ROOT / "models/demo-draft"), str(fp8), "--to", "fp8", "--no-compare").returncode)
        done = subprocess.run([str(BIN / "foretoken"), "up", "--detach", "--target", str(fp8), "--draft", "",
                               "--set", "edge.port=0", "--set", f"bus.client=tcp://127.0.0.1:{free_port()}", "--set", f"bus.runtime_dir={elsewhere}"],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(4, done.returncode, done.stderr)
        self.assertIn("which CPUs do not multiply", done.stderr)
        self.assertEqual([], [path.name for path in elsewhere.iterdir() if path.suffix not in {".pid", ".lock"} and path.is_file()])

    def test_a_model_that_cannot_answer_ends_the_start_and_leaves_nothing(self):
        folder = self.folder / "infinite"
        write_infinite_model(folder)
        elsewhere = self.folder / "unanswered"
        self.addCleanup(subprocess.run, [str(BIN / "foretoken"), "down", "--quiet", "--set", f"bus.runtime_dir={elsewhere}"])
        alone = ["--target", str(folder), "--draft", ""]
        several = ["--set", "model.good.draft=", "--set", "model.bad.draft=", "--set", f"model.bad.target={folder}"]
        for words, model in ((["--detach", *alone], "infinite"), (alone, "infinite"), (["--detach", *several], "bad")):
            for port in (0, free_port()):
                done = subprocess.run([str(BIN / "foretoken"), "up", *words, "--port", str(port), "--client", f"tcp://127.0.0.1:{free_port()}",
                                       "--set", f"bus.runtime_dir={elsewhere}"], capture_output=True, text=True, timeout=120)
                self.assertEqual((1, ""), (done.returncode, done.stdout), done.stderr)
                self.assertRegex(done.stderr, rf"error: model {model} does not answer: .*not.* finite.*; the logs of the services are in ")
                self.assertNotIn("serving at", done.stderr)
                left = subprocess.run(["pgrep", "-f", str(elsewhere)], capture_output=True, text=True).stdout.split()
                self.assertEqual([], left, "and nothing runs")

    def test_distil_learns_from_the_text_of_its_target_only(self):
        bare = self.folder / "python"  # without packages: what comes after the comparison ends at once
        bare.write_text(f"#!{sys.executable} -IS\nimport runpy, sys\nsys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')\n")
        bare.chmod(0o755)
        random = self.folder / "random"
        self.assertEqual(0, self.run_verb("model", "init-random", str(random), "--tokenizer", "demo").returncode)
        words = ["--out", str(self.folder / "distilled"), "--host", self.endpoint, "--python", str(bare)]
        done = self.run_verb("draft", "distil", str(random), *words)
        self.assertEqual(4, done.returncode, done.stderr)
        self.assertRegex(done.stderr, rf"the system at {self.endpoint} serves demo \(fingerprint [0-9a-f]{{16}}\), and TARGET is {random} \(fingerprint [0-9a-f]{{16}}\)")
        done = self.run_verb("draft", "distil", "demo", *words)
        self.assertEqual(6, done.returncode, done.stderr)
        self.assertIn("has no numpy, safetensors, torch", done.stderr)
        self.assertFalse((self.folder / "distilled").exists())

    def test_a_killed_draft_is_restarted_and_nobody_notices(self):
        flags = ["--max-tokens", "64", "-t", "0", "--json", "Tell me a story."]
        before = json.loads(self.run_verb("generate", *flags).stdout)
        services = json.loads(self.run_verb("ps", "--json").stdout)["services"]
        os.kill(next(s["pid"] for s in services if s["role"] == "draft"), signal.SIGKILL)
        after = json.loads(self.run_verb("generate", *flags).stdout)
        self.assertEqual(before["token_ids"], after["token_ids"])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            reply = json.loads(self.run_verb("generate", *flags).stdout)
            self.assertEqual(before["token_ids"], reply["token_ids"])
            if reply["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"] > 0:
                return
        self.fail("speculation did not come back within 60 s")

    def test_a_killed_router_is_asked_again_and_the_text_continues(self):
        context = json.loads(self.run_verb("model", "info", str(ROOT / "models/demo-target"), "--json").stdout)["context"]
        flags = ["generate", "--no-spec", "--ignore-eos", "-t", "0.8", "--seed", "7", "-n", str(context - 300), "Tell me a story."]
        undisturbed = self.run_verb(*flags)
        self.assertEqual(0, undisturbed.returncode, undisturbed.stderr)
        router = next(s["pid"] for s in json.loads(self.run_verb("ps", "--json").stdout)["services"] if s["role"] == "router")
        running = subprocess.Popen([str(BIN / "foretoken"), *flags, *self.settings], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(running.kill)
        begin = os.read(running.stdout.fileno(), 1)  # it streams: the end is far away
        os.kill(router, signal.SIGKILL)
        rest, words = running.communicate(timeout=120)
        self.assertEqual(0, running.returncode, words)
        self.assertEqual(undisturbed.stdout, (begin + rest).decode())
        status = json.loads(self.run_verb("ps", "--json").stdout)
        self.assertNotEqual(router, next(s["pid"] for s in status["services"] if s["role"] == "router"))
        self.assertEqual(1, status["requests_total"])  # of the router that came: it was asked

    def test_ps_says_what_became_of_a_draft_that_died(self):
        services = json.loads(self.run_verb("ps", "--json").stdout)["services"]
        os.kill(next(s["pid"] for s in services if s["role"] == "draft"), signal.SIGKILL)
        deadline = time.monotonic() + 60
        note = ""
        while time.monotonic() < deadline and "was ended by signal 9" not in note:
            note = next(s["note"] for s in json.loads(self.run_verb("ps", "--json").stdout)["services"] if s["role"] == "draft")
        self.assertIn("was ended by signal 9", note)
        self.assertIn("restarted", note)
        self.assertIn("draft-0 was ended by signal 9; starts again in", (self.folder / "log/up.log").read_text())


if __name__ == "__main__":
    unittest.main(verbosity=1)
