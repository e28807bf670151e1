"""`foretoken run`: a file of requests in, a file of their answers out, with real services, whatever happens in between."""
import json
import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import time
import unittest

import harness
from terminal import Terminal

PROGRAM = str(pathlib.Path(harness.BIN).resolve() / "foretoken")
TIMES = {"created", "metrics"}


def without_times(value):
    """OpenAI's bodies have them, and how much of a prompt was cached."""
    if isinstance(value, dict):
        return {key: without_times(each) for key, each in value.items() if key not in TIMES | {"prompt_tokens_details"}}
    return [without_times(each) for each in value] if isinstance(value, list) else value


class Batch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Few places: a run with more requests at a time meets a full queue.
        cls.system = harness.System(settings=["limits.max_running=4", "limits.max_waiting=4"]).__enter__()
        cls.addClassCleanup(cls.system.__exit__, None, None, None)
        cls.system.start("router", "tokenizer", "draft", "target").wait_ready()

    def setUp(self):
        self.folder = pathlib.Path(self.system.folder, self.id().rsplit(".", 1)[1])
        self.folder.mkdir()
        self.batch, self.out = self.folder / "batch.jsonl", self.folder / "batch.answers.jsonl"
        self.part = self.folder / "batch.answers.jsonl.part"

    def write(self, lines):
        self.batch.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines), encoding="utf-8")

    def command(self, *flags):
        return [PROGRAM, "run", str(self.batch), "--set", f"bus.client={self.system.client}", *flags]

    def run_batch(self, *flags, **more):
        return subprocess.run(self.command(*flags), capture_output=True, text=True, timeout=200, **more)

    def answers(self, path=None):
        return [json.loads(line) for line in (path or self.out).read_bytes().splitlines()]

    def requests_total(self):
        return self.system.status()["requests_total"]

    @staticmethod
    def many(count, max_tokens=24):
        """Half greedy, half sampled, every fourth without a seed, and some lines twice."""
        lines = []
        for i in range(count):
            line = harness.request(i % (count - 3), max_tokens)
            if i % 4 == 1:
                line.pop("seed", None)
            lines.append(line)
        return lines

    def test_each_line_has_its_answer_in_its_place(self):
        self.write([{"prompt": "the thing", "max_tokens": 5, "custom_id": "first"}, "",
                    {"messages": [{"role": "user", "content": "the 漢字"}], "temperature": 0.8, "seed": 3, "logprobs": 1},
                    {"token_ids": [5, 6, 7], "max_tokens": 300}])
        done = self.run_batch("-t", "0", "-n", "7", "--ignore-eos")
        self.assertEqual((0, ""), (done.returncode, done.stdout), done.stderr)
        client = harness.Client(self.system)
        asked = [client.ask(prompt="the thing", max_tokens=5, temperature=0, ignore_eos=True),
                 client.ask(messages=[{"role": "user", "content": "the 漢字"}], max_tokens=7, temperature=0.8, seed=3, ignore_eos=True),
                 client.ask(token_ids=[5, 6, 7], max_tokens=300, temperature=0, ignore_eos=True)]
        client.close()
        answers = self.answers()
        self.assertEqual([each["token_ids"] for each in asked], [each["token_ids"] for each in answers])
        self.assertEqual([each["text"] for each in asked], [each["text"] for each in answers])
        self.assertEqual(["first", None, None], [each.get("custom_id") for each in answers])
        self.assertEqual([False, True, False], ["logprobs" in each for each in answers])
        self.assertEqual({"id", "custom_id", "model", "text", "token_ids", "finish_reason", "stop_reason", "usage", "system_fingerprint"},
                         set(answers[0]))
        self.assertEqual(3, len({each["id"] for each in answers}))
        self.assertFalse(self.part.exists())
        self.assertIn("3 of 3 lines done; now 3 in ", done.stderr)

    def test_a_second_run_asks_nothing_and_says_so_by_its_exit_code(self):
        self.write(self.many(6))
        self.assertEqual(0, self.run_batch().returncode)
        before, content = self.requests_total(), self.out.read_bytes()
        done = self.run_batch("--json")
        self.assertEqual((0, 0, 6), (done.returncode, json.loads(done.stdout)["answered_now"], json.loads(done.stdout)["done"]))
        self.assertEqual("6 of 6 lines done; now 0\n", done.stderr)
        self.assertEqual((before, content), (self.requests_total(), self.out.read_bytes()))
        # More lines: only these are asked.
        lines = self.batch.read_text().splitlines()
        self.write([json.dumps({"prompt": "in between", "max_tokens": 3}), *lines])
        self.assertEqual(0, self.run_batch().returncode)
        self.assertEqual((before + 1, content), (self.requests_total(), b"\n".join(self.out.read_bytes().split(b"\n")[1:])))
        # Other flags are other requests: the file is not written over. How fast is not what.
        self.assertEqual(0, self.run_batch("--no-spec", "--timeout", "99").returncode)
        done = self.run_batch("-t", "0.5")
        self.assertEqual(2, done.returncode)
        self.assertIn("batch.answers.jsonl exists already", done.stderr)
        self.assertFalse(self.part.exists())

    def test_a_flag_that_asks_for_more_output_changes_no_text(self):
        self.write([{"prompt": "the thing", "max_tokens": 12}] * 2 + [{"prompt": f"the {i}", "max_tokens": 12} for i in range(4)])
        self.assertEqual(0, self.run_batch("-t", "1").returncode)
        texts = [each["text"] for each in self.answers()]
        self.assertNotEqual(texts[0], texts[1])  # the second occurrence has a seed of its own
        self.out.unlink()
        self.assertEqual(0, self.run_batch("-t", "1", "--logprobs", "1").returncode)
        self.assertEqual(texts, [each["text"] for each in self.answers()])

    def test_a_bad_line_is_its_own_error_and_the_rest_is_answered(self):
        self.write([{"prompt": "the thing", "max_tokens": 2}, "not json", "[1]", {"max_tokens": 2}, {"prompt": "x", "temperature": 101},
                    {"prompt": "x", "colour": 1}, {"prompt": "x", "stream": True}, {"prompt": "x", "model": "none", "custom_id": "m"},
                    {"prompt": "x" * 9000, "max_tokens": 2}, {"prompt": "x", "custom_id": 5}, '{"prompt": "\\ud800"}',
                    {"url": "/v1/embeddings", "body": {}}, {"url": "/v1/completions", "body": {"prompt": "x", "max_tokens": -1}, "custom_id": "b"},
                    {"prompt": "the thing", "max_tokens": 2}])
        done = self.run_batch("-t", "0")
        self.assertEqual(1, done.returncode, done.stderr)
        self.assertIn("14 of 14 lines done, 12 of them failed (lines 2, 3, 4, 5, 6 ...); now 2 in ", done.stderr)
        self.assertIn(f"  their errors are in {self.out}; ", done.stderr)
        answers = self.answers()
        self.assertEqual(14, len(answers))
        self.assertEqual(answers[0]["text"], answers[-1]["text"])
        self.assertEqual([("invalid_request", None), ("invalid_request", None), ("invalid_request", "prompt"), ("invalid_value", "temperature"),
                          ("invalid_request", "colour"), ("invalid_request", "stream"), ("model_not_found", "model"),
                          ("context_length_exceeded", "prompt"), ("invalid_request", "custom_id")],
                         [(each["error"]["code"], each["error"].get("param")) for each in answers[1:10]])
        self.assertEqual("m", answers[7]["custom_id"])
        self.assertEqual([400, 400], [each["response"]["status_code"] for each in answers[11:13]])
        self.assertEqual("max_tokens", answers[12]["response"]["body"]["error"]["param"])
        # What failed is kept, unless it is asked for again.
        before = self.requests_total()
        self.assertEqual(1, self.run_batch("-t", "0").returncode)
        self.assertEqual(before, self.requests_total())
        done = self.run_batch("-t", "0", "--retry-failed")
        self.assertEqual((1, answers), (done.returncode, self.answers()))

    def test_openais_batch_form_is_answered_in_it(self):
        body = {"model": "tiny", "messages": [{"role": "user", "content": "the thing"}], "max_completion_tokens": 6, "temperature": 0}
        self.write([{"custom_id": "chat", "method": "POST", "url": "/v1/chat/completions", "body": {**body, "logprobs": True, "user": "u", "colour": 1}},
                    {"custom_id": "two", "method": "POST", "url": "/v1/chat/completions", "body": {**body, "n": 2, "temperature": 1}},
                    {"custom_id": "text", "method": "POST", "url": "/v1/completions",
                     "body": {"model": "tiny", "prompt": ["the thing", "in the winter"], "max_tokens": 4, "temperature": 0}},
                    {"custom_id": "bad", "method": "POST", "url": "/v1/chat/completions", "body": {**body, "model": "none", "store": True}}])
        done = self.run_batch()
        self.assertEqual(1, done.returncode, done.stderr)
        answers = self.answers()
        self.assertEqual(["chat", "two", "text", "bad"], [each["custom_id"] for each in answers])
        self.assertEqual([200, 200, 200, 404], [each["response"]["status_code"] for each in answers])
        self.assertEqual([None] * 4, [each["error"] for each in answers])
        self.assertEqual([["colour", "user"], None, None, ["store"]],
                         [each.get("ignored") and sorted(each["ignored"]) for each in answers])
        bodies = [each["response"]["body"] for each in answers]
        self.assertEqual(["chat.completion", "chat.completion", "text_completion"], [each["object"] for each in bodies[:3]])
        self.assertEqual([1, 2, 2], [len(each["choices"]) for each in bodies[:3]])
        self.assertEqual("model_not_found", bodies[3]["error"]["code"])
        self.assertEqual(bodies[0]["choices"][0]["message"]["content"],
                         b"".join(bytes(each["bytes"]) for each in bodies[0]["choices"][0]["logprobs"]["content"]).decode(errors="replace"))
        self.assertNotEqual(*[each["message"]["content"] for each in bodies[1]["choices"]])
        self.out.unlink()
        self.assertEqual(1, self.run_batch().returncode)
        self.assertEqual(without_times(answers), without_times(self.answers()))

    def test_killed_at_random_moments_it_ends_with_the_file_of_one_whole_run(self):
        chat = {"messages": [{"role": "user", "content": "the thing"}], "max_completion_tokens": 9, "temperature": 0}
        self.write([*self.many(160, 48), {"prompt": "x", "temperature": -1}, {"url": "/v1/chat/completions", "body": chat, "custom_id": "o"}])
        whole = self.folder / "whole.jsonl"
        self.assertEqual(1, self.run_batch("-o", str(whole)).returncode)
        n_bytes, moments = whole.stat().st_size, random.Random(7)

        def written():
            try:
                return self.part.stat().st_size
            except FileNotFoundError:  # not yet, or renamed at the end
                return 0

        def killed_until_it_ended():
            """How often it was killed, each time when it had written so many bytes more, and then how it ended."""
            kills = 0
            while True:
                until = written() + moments.randrange(n_bytes // 8)
                running = subprocess.Popen(self.command("--concurrency", "8", "-q"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                while running.poll() is None and written() <= until:
                    time.sleep(0.001)
                running.kill()  # it may have ended in between
                if running.wait() != -signal.SIGKILL:
                    return kills, running.returncode
                kills += 1
                if moments.random() < 0.3 and self.part.exists():  # the machine may lose its last bytes, too
                    os.truncate(self.part, max(0, self.part.stat().st_size - moments.randrange(400)))

        for _ in range(10):  # where this test got no processor time, a run may have come to its end before it was killed
            self.out.unlink(missing_ok=True)
            before = self.requests_total()
            kills, code = killed_until_it_ended()
            self.assertEqual(1, code)  # the line that is wrong
            if kills > 3:
                break
        self.assertGreater(kills, 3)
        asked = self.requests_total() - before
        print(f"{kills} kills, {asked} requests for 161 lines")
        ours, theirs = self.out.read_bytes().splitlines(), whole.read_bytes().splitlines()
        self.assertEqual(theirs[:161], ours[:161])
        self.assertEqual(without_times(json.loads(theirs[161])), without_times(json.loads(ours[161])))
        self.assertEqual((162, False), (len(ours), self.part.exists()))
        self.assertLessEqual(asked, 161 + kills * (8 + 4))  # those under way, and those of a lost end

    def test_cut_off_at_any_byte_what_is_whole_is_kept_and_the_rest_asked(self):
        self.write(self.many(12, 6))
        self.assertEqual(0, self.run_batch("-q").returncode)
        content = self.out.read_bytes()
        lines = content.splitlines(keepends=True)
        random.Random(3).shuffle(lines)

        def part_of_a_new_run():  # else the router would still have what an earlier cut asked for
            return (json.dumps({"schema": "foretoken.run.part/1", "run": os.urandom(16).hex()}) + "\n").encode() + b"".join(lines)

        part = part_of_a_new_run()
        run = part[:part.index(b"\n") + 1]
        cuts = [0, 1, len(run) - 1, len(run), len(part) - 1, len(part), *random.Random(4).sample(range(len(part)), 30)]
        for cut in cuts:
            self.out.unlink(missing_ok=True)
            self.part.write_bytes(part_of_a_new_run()[:cut])
            n_whole = max(0, part[:cut].count(b"\n") - 1)
            before = self.requests_total()
            self.assertEqual(0, self.run_batch("-q").returncode, cut)
            self.assertEqual((content, before + 12 - n_whole), (self.out.read_bytes(), self.requests_total()), cut)
        # Bytes of another file, as a disk may leave them.
        self.out.unlink()
        self.part.write_bytes(run + lines[0] + b"\0" * 300 + b"\n" + lines[1])
        self.assertEqual(0, self.run_batch("-q").returncode)
        self.assertEqual(content, self.out.read_bytes())

    def test_a_full_disk_loses_nothing(self):
        self.write(self.many(12, 6))

        def little_room():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))

        done = self.run_batch(preexec_fn=little_room)
        self.assertEqual(1, done.returncode, done.stderr)
        self.assertIn("batch.answers.jsonl.part: File too large", done.stderr)
        self.assertIn("the same command goes on", done.stderr)
        n_kept = self.part.read_bytes().count(b"\n") - 1
        self.assertGreater(n_kept, 0)
        self.assertTrue(self.part.read_bytes().endswith(b"\n"))
        before = self.requests_total()
        self.assertEqual(0, self.run_batch().returncode)
        self.assertLessEqual(self.requests_total() - before, 12 - n_kept)
        self.assertEqual(12, len(self.answers()))

    def test_ctrl_c_keeps_what_is_done_and_cancels_the_rest(self):
        self.write([{"prompt": "the thing", "max_tokens": 3}] + [{"prompt": f"{i}", "max_tokens": 1900} for i in range(100)])
        running = subprocess.Popen(self.command("--ignore-eos", "--concurrency", "4"), stderr=subprocess.PIPE, text=True)
        harness.wait_for(lambda: self.part.exists() and self.part.read_bytes().count(b"\n") >= 2, "the first answer")
        running.send_signal(signal.SIGINT)
        words = running.communicate(timeout=60)[1]
        self.assertEqual(130, running.returncode, words)
        self.assertIn("the same command goes on where this one ended", words)
        harness.wait_for(lambda: self.system.status()["requests_active"] == 0, "requests to be cancelled")
        self.assertFalse(self.out.exists())
        self.write([{"prompt": "the thing", "max_tokens": 3}])  # the others are too long for a test
        before = self.requests_total()
        self.assertEqual(0, self.run_batch("--ignore-eos").returncode)
        self.assertEqual((1, before), (len(self.answers()), self.requests_total()))

    def test_a_full_queue_is_waited_for(self):
        self.write(self.many(40, 4))
        done = self.run_batch("--concurrency", "40", "--json")
        report = json.loads(done.stdout)
        self.assertEqual((0, 40, 0), (done.returncode, report["done"], report["failed"]), done.stderr)

    def test_out_of_time_is_an_error_of_the_line_and_no_half_answer(self):
        self.write(["", {"prompt": "the thing", "max_tokens": 1900, "timeout_ms": 1}, {"prompt": "the thing", "max_tokens": 2}])
        done = self.run_batch("--ignore-eos", "--json")
        self.assertEqual((1, [2]), (done.returncode, json.loads(done.stdout)["failed_lines"]))
        self.assertIn("2 of 2 lines done, 1 of them failed (line 2); ", done.stderr)
        self.assertEqual(["deadline_exceeded", None], [each.get("error", {}).get("code") for each in self.answers()])

    def test_two_runs_do_not_write_one_file(self):
        self.write([{"prompt": f"{i}", "max_tokens": 1900} for i in range(100)])
        first = subprocess.Popen(self.command("--ignore-eos"), stderr=subprocess.DEVNULL)
        harness.wait_for(lambda: self.part.exists() and self.part.stat().st_size > 0, "the first to begin")
        first.send_signal(signal.SIGSTOP)  # it has not ended when the second one begins
        done = self.run_batch("--ignore-eos")
        first.send_signal(signal.SIGCONT)
        first.send_signal(signal.SIGTERM)
        self.assertEqual(130, first.wait(60))
        self.assertEqual(2, done.returncode)
        self.assertIn("another run is writing it", done.stderr)

    def test_progress_is_a_line_each_tenth_and_at_a_terminal_a_bar(self):
        self.write(self.many(40, 4))
        done = self.run_batch("--concurrency", "4")
        tenths = [int(found) for found in re.findall(r"(\d+) %  ", done.stderr)]
        self.assertEqual(sorted(set(tenths)), tenths)
        self.assertLessEqual(len(tenths), 10)
        self.assertEqual(100, tenths[-1])
        self.out.unlink()
        done = self.run_batch("-q")
        self.assertEqual("", done.stderr)
        self.out.unlink()
        self.write(self.many(40, 200))
        with Terminal(self.command("--concurrency", "2"), columns=100) as terminal:
            harness.wait_for(lambda: terminal.pump(0) and self.part.exists() and self.part.read_bytes().count(b"\n") >= 6, "five answers")
            with self.system.stopped("target"):  # so that the bar is seen, however fast the machine is
                terminal.wait_for(r"\d+/40  \d+ %  █+░+  [\d.]+ tok/s")
            self.assertEqual(0, terminal.exit_code())
            self.assertRegex(terminal.text(), r"\A40 of 40 lines done; now 40 in [\d.]+ s, [\d.]+ tok/s, [\d.]+ tokens\s+a round\Z")

    def test_what_cannot_be_begun_says_why(self):
        for flags, code, words in ((["-o", "/dev/stdout"], 2, "/dev/stdout is no regular file"), (["-o", "/nonexistent/x"], 1, "/nonexistent/x"),
                                   (["--concurrency", "0"], 2, "from 1 to 1024"), (["--retry"], 2, "did you mean `--retry-failed`")):
            self.write([{"prompt": "x"}])
            done = self.run_batch(*flags)
            self.assertEqual(code, done.returncode, done.stderr)
            self.assertIn(words, done.stderr)
        self.write([{"prompt": "x"}])
        done = subprocess.run([PROGRAM, "run", "/dev/stdin", "-o", str(self.out)], input=self.batch.read_text(), capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(2, done.returncode)
        self.assertIn("/dev/stdin is no regular file", done.stderr)
        # A batch without lines is no reason to empty a file.
        self.write([])
        other = self.folder / "other.txt"
        other.write_text("something else")
        done = self.run_batch("-o", str(other))
        self.assertEqual((2, "something else"), (done.returncode, other.read_text()), done.stderr)
        self.batch.unlink()
        done = self.run_batch()
        self.assertEqual(2, done.returncode)
        self.assertIn("batch.jsonl cannot be read: No such file", done.stderr)


class WithoutRouter(unittest.TestCase):
    def test_a_router_that_dies_ends_the_run_and_the_next_one_goes_on(self):
        with harness.System() as system:
            system.start("router", "tokenizer", "draft", "target").wait_ready()
            bench = subprocess.Popen([PROGRAM, "bench", "serve", "--json", "--set", f"bus.client={system.client}", "--num-prompts", "60",
                                      "--concurrency", "2", "--output-len", "300"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(bench.kill)
            harness.wait_for(lambda: system.status()["requests_total"] > 0, "the first request of bench")
            batch = pathlib.Path(system.folder, "b.jsonl")
            batch.write_text("".join(json.dumps({"prompt": f"{i}", "max_tokens": 300}) + "\n" for i in range(60)))
            command = [PROGRAM, "run", str(batch), "--set", f"bus.client={system.client}", "--ignore-eos", "--concurrency", "2"]
            part = pathlib.Path(system.folder, "b.answers.jsonl.part")
            with Terminal(command, columns=100) as terminal:
                harness.wait_for(lambda: terminal.pump(0) and part.exists() and part.read_bytes().count(b"\n") >= 3, "two answers")
                with system.stopped("target"):  # the others have not been answered when the router dies
                    terminal.wait_for(r"\d+/60  \d+ %  █+░+")
                    system.kill("router")
                code = terminal.exit_code()  # 30 s of patience
                self.assertEqual(3, code, terminal.text())
                # Each on a line of its own, though a bar is there when they come.
                self.assertRegex(terminal.text(), r"(?m)\Anote: the connection to the router [\s\S]*^error: the connection was lost, and ")
                self.assertNotIn("█", terminal.text())
            report, words = bench.communicate(timeout=90)
            self.assertEqual(3, bench.returncode, words)
            self.assertIn("the connection was lost", words)
            self.assertEqual(2, json.loads(report)["failed"], "those that were under way, and none that was sent to no router")
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            self.assertEqual(3, done.returncode, done.stderr)
            system.start("router").wait_ready()
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertEqual(60, len(batch.with_suffix(".answers.jsonl").read_bytes().splitlines()))


if __name__ == "__main__":
    unittest.main()
