"""bench compare and plot on documents of known figures: what is gained, what differs, and pictures that are equal for equal runs."""

import copy
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

BIN = pathlib.Path(sys.argv.pop(1)).resolve()


def times(median):
    return {"mean": median, "median": median, "p99": 2 * median, "quantiles": [median * i / 50 for i in range(101)]}


def document(throughput, tpot, draft_len, histogram, concurrency=1, **more):
    return {"schema": "foretoken.bench_serve/1", "machine": "2 x Some CPU", "build": "0.1.0 (abc)", "door": "http", "model": "demo", "dataset": "",
            "num_prompts": 8, "output_len": 64, "concurrency": concurrency, "request_rate": 0.0, "num_draft_tokens": draft_len,
            "request": {"temperature": 0.0}, "repeats": 1, "output_throughput": throughput, "request_throughput": throughput / 64,
            "ttft_ms": times(10), "tpot_ms": times(tpot), "itl_ms": times(tpot), "e2el_ms": times(70 * tpot),
            "speculative_decoding": {"acceptance_rate": 0.5, "acceptance_length": 2.0, "acceptance_histogram": histogram},
            "by_kind": {"story": {"median_tpot_ms": tpot}, "it's code": {"median_tpot_ms": tpot}}, "answers": "00ff",
            "requests": [{"kind": "story", "at_ms": 100.0 * i, "ttft_ms": 10.0, "e2el_ms": 70 * tpot, "output_tokens": 64} for i in range(8)], **more}


PLAIN = document(100.0, 10.0, 0, [])
FAST = document(180.0, 5.0, 4, [10, 20, 30, 20, 20])


class Plot(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-plot-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, value):
        path = self.folder / name
        path.write_text(json.dumps(value))
        return str(path)

    def run_verb(self, *words, expect=0):
        done = subprocess.run([str(BIN / "foretoken"), *words], capture_output=True, text=True, timeout=120, cwd=self.folder)
        self.assertEqual(expect, done.returncode, done.stdout + done.stderr)
        return done

    def test_compare_says_what_was_gained(self):
        files = [self.write("plain.json", PLAIN), self.write("fast.json", FAST)]
        gain = json.loads(self.run_verb("bench", "compare", *files, "--json").stdout)
        self.assertEqual((1.8, 2.0, 2.0, True), tuple(gain[key] for key in ("throughput_ratio", "decode_speedup", "latency_speedup", "same_answers")))
        self.assertEqual({"story": 2.0, "it's code": 2.0}, gain["decode_speedup_by_kind"])
        self.assertEqual(([], []), (gain["differing_load"], gain["differing_conditions"]))
        words = self.run_verb("bench", "compare", *files).stdout
        self.assertRegex(words, r"Decode speedup \(median TPOT\) +2\.00\n")
        self.assertRegex(words, r"Same answers +yes\n")

    def test_other_answers_to_the_same_requests_are_a_failure_and_to_others_are_not_known(self):
        plain = self.write("plain.json", PLAIN)
        self.run_verb("bench", "compare", plain, self.write("other.json", {**FAST, "answers": "0000"}), expect=7)
        done = self.run_verb("bench", "compare", plain, self.write("hot.json", {**FAST, "answers": "0000", "request": {"temperature": 1.0}}))
        self.assertIn("The requests differ in: request\n", done.stdout)
        self.assertRegex(done.stdout, r"Same answers +not known\n")
        for key, value in (("input_len", 40), ("unique_prompts", True), ("prompts_of_run", 1), ("schema", "foretoken.bench_latency/1")):
            with self.subTest(key=key):  # other prompts, or the same in another order
                done = self.run_verb("bench", "compare", plain, self.write("others.json", {**FAST, "answers": "0000", key: value}))
                self.assertIn(f"The requests differ in: {key}\n", done.stdout)
                self.assertRegex(done.stdout, r"Same answers +not known\n")
        newer = {**FAST, "answers": "0000", "input_len": None, "unique_prompts": False, "prompts_of_run": 0}
        self.run_verb("bench", "compare", plain, self.write("newer.json", newer), expect=7)  # keys that an older file lacks
        for key, value in (("machine", "other"), ("total_cached_tokens", 5000)):
            done = self.run_verb("bench", "compare", plain, self.write("moved.json", {**FAST, key: value}))
            self.assertIn(f"The conditions differ in: {key}\n", done.stdout)

    def test_nothing_is_claimed_of_runs_whose_requests_failed(self):
        plain, cut = self.write("plain.json", PLAIN), self.write("cut.json", {**FAST, "failed": 3, "answers": None})
        for files in ((plain, cut), (cut, plain)):
            done = json.loads(self.run_verb("bench", "compare", *files, "--json").stdout)
            self.assertEqual([False, None, None, None, {}, None],
                             [done[key] for key in ("complete", "throughput_ratio", "decode_speedup", "latency_speedup", "decode_speedup_by_kind",
                                                    "same_answers")])
            words = self.run_verb("bench", "compare", *files).stdout
            self.assertIn("Failed requests of cut: 3; no comparison\n", words)
            self.assertNotIn("speedup", words)
            self.assertRegex(words, r"(?m)^Median TPOT \(ms\) +[\d.]+ +[\d.]+$")
        cut_plain = self.write("cut plain.json", {**PLAIN, "failed": 3})
        for files in ((plain, cut), (cut_plain, self.write("fast.json", FAST))):
            self.assertIn("no failed request", self.run_verb("plot", "--kind", "speedup", *files, expect=2).stderr)

    def test_a_picture_says_how_many_requests_failed(self):
        files = [self.write("plain.json", {**PLAIN, "failed": 0}), self.write("cut.json", {**FAST, "failed": 3})]
        for given, expected in ((files, True), (files[:1], False)):
            self.run_verb("plot", "--kind", "latency", *given)
            texts = "".join(xml.etree.ElementTree.parse(self.folder / "latency.svg").getroot().itertext())
            self.assertEqual(expected, "repeats 1, failed 0 and 3" in texts)
            self.assertEqual(expected, "failed" in texts)

    def test_a_file_of_both_is_two_runs(self):
        both = self.write("both.json", {"schema": "foretoken.bench_compare/1", "plain": PLAIN, "speculative": FAST})
        self.assertEqual(2.0, json.loads(self.run_verb("bench", "compare", both, "--json").stdout)["decode_speedup"])
        self.assertIn("these have 3", self.run_verb("bench", "compare", both, self.write("p.json", PLAIN), expect=2).stderr)

    def test_what_is_no_such_file_is_named(self):
        for name, text, words in (("a.json", "{", "a.json"), ("b.json", "[]", "schema is null"), ("c.json", '{"schema": "x"}', 'schema is "x"')):
            (self.folder / name).write_text(text)
            self.assertIn(words, self.run_verb("plot", name, expect=2).stderr)
        self.assertIn("cannot read absent.json", self.run_verb("plot", "absent.json", expect=2).stderr)
        self.assertIn("--kind", self.run_verb("plot", "--kind", "pie", "x", expect=2).stderr)

    def test_each_kind_is_a_picture_and_equal_for_equal_runs(self):
        files = [self.write("plain.json", PLAIN), self.write("it's 4.json", FAST),
                 self.write("2.json", document(150.0, 7.0, 2, [10, 20, 30]))]
        for kind, given, words in (("speedup", files, "concurrency 1"), ("acceptance", files, "it's 4"), ("latency", files, "plain"),
                                   ("timeline", files[:1], "to the first token")):
            with self.subTest(kind=kind):
                self.run_verb("plot", "--kind", kind, *given)
                svg, png = self.folder / f"{kind}.svg", self.folder / f"{kind}.png"
                first = svg.read_bytes(), png.read_bytes()
                texts = "".join(xml.etree.ElementTree.fromstring(first[0]).itertext())
                for each in (words, "2 x Some CPU", "0.1.0 (abc)", "8 requests of 64 tokens"):
                    self.assertIn(each, texts)
                self.assertTrue(first[1].startswith(b"\x89PNG"))
                self.run_verb("plot", "--kind", kind, *given)
                self.assertEqual(first, (svg.read_bytes(), png.read_bytes()))

    def test_one_form_alone_and_what_cannot_be_drawn(self):
        plain, fast = self.write("plain.json", PLAIN), self.write("fast.json", FAST)
        self.assertEqual("only.svg\n", self.run_verb("plot", "-o", "only.svg", plain).stdout)
        self.assertFalse((self.folder / "only.png").exists())
        self.assertIn("needs a plain run", self.run_verb("plot", "--kind", "speedup", fast, expect=2).stderr)
        self.assertIn("is of one run", self.run_verb("plot", "--kind", "timeline", plain, fast, expect=2).stderr)
        older = copy.deepcopy(PLAIN)
        del older["ttft_ms"]["quantiles"]
        self.assertIn("measure them again", self.run_verb("plot", self.write("older.json", older), expect=2).stderr)
        self.assertIn("--kind", self.run_verb("plot", "--kind", "acceptance", plain, expect=2).stderr)
        self.run_verb("plot", "-o", "no/such/folder.svg", plain, expect=1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
