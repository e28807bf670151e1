"""bench schedule: a short run of its own system. What is fast is not asked here: other work on the machine decides that.

usage: schedule_test.py FOLDER_WITH_PROGRAMS
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("FORETOKEN_")}
SHORT = ("--target-ms", "2", "--tokens", "96", "--repeats", "1", "--json", "--quiet")


class Schedule(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="ftk-sched-")
        self.addCleanup(self.folder.cleanup)

    def run_verb(self, *words, expect=0, **variables):
        done = subprocess.run([str(BIN / "foretoken"), "bench", "schedule", *words], capture_output=True, text=True, timeout=300,
                              stdin=subprocess.DEVNULL, env={**ENVIRONMENT, "TMPDIR": self.folder.name, **variables})
        self.assertEqual(expect, done.returncode, done.stdout + done.stderr)
        self.assertEqual([], os.listdir(self.folder.name), "its folder is left")
        return done

    def cell(self, done):
        report = json.loads(done.stdout)
        self.assertEqual("foretoken.bench_schedule/1", report["schema"])
        self.assertEqual(1, len(report["cells"]))
        self.assertEqual("timed mocks", report["cells"][0]["models"])
        return report["cells"][0]

    def test_texts_are_those_of_plain_decoding_and_guesses_stand_as_often_as_asked(self):
        cell = self.cell(self.run_verb(*SHORT, "--acceptance", "1", "--sequences", "2"))
        self.assertTrue(cell["same_texts"])
        self.assertEqual(1.0, cell["acceptance"])
        self.assertGreater(cell["tokens_per_round"], 1)
        self.assertGreaterEqual(cell["plain_ms"], 2.0)
        self.assertGreater(cell["model_asked"]["synchronous"]["speedup"], 1)

    def test_a_draft_behind_the_relay_answers_after_its_delay(self):
        cell = self.cell(self.run_verb(*SHORT, "--acceptance", "1", "--rtt-ms", "3"))
        self.assertTrue(cell["same_texts"])
        self.assertEqual(1.0, cell["acceptance"])
        self.assertEqual(3.0, cell["asked"]["rtt_ms"])

    def test_a_text_that_differs_is_seen(self):
        done = self.run_verb(*SHORT, "--acceptance", "1", expect=7, FORETOKEN_BENCH_WRONG_DRAWS="1")
        self.assertFalse(self.cell(done)["same_texts"])
        self.assertIn("differ from those of plain decoding", done.stderr)

    def test_target_goes_on_when_the_draft_is_killed(self):
        cell = self.cell(self.run_verb(*SHORT, "--same-cores", "--kill-draft"))
        self.assertTrue(cell["same_texts"])
        self.assertEqual(1, cell["model_asked"]["synchronous"]["speedup"])

    def test_contradictions_are_refused(self):
        for words, said in ((("--sweep", "--acceptance", "0.5"), "--acceptance"), (("--plot", "x.svg"), "--sweep"),
                            (("--sweep", "--plot", "x.pdf"), "x.pdf"),
                            (("--acceptance", "1.5"), "1.5"), (("--target-ms", "0"), "0.1")):
            self.assertIn(said, self.run_verb(*words, expect=2).stderr, words)

    def test_what_it_decides_itself_cannot_be_set(self):
        file = pathlib.Path(tempfile.mkdtemp(prefix="ftk-sched-toml-")) / "f.toml"
        self.addCleanup(shutil.rmtree, file.parent)
        file.write_text('[draft]\nrun_ahead = "off"\n')
        for words, variables, said in (
            (("--set", "draft.run_ahead=off"), {}, "draft.run_ahead is given (flag)"),
            (("--config", str(file)), {}, f"draft.run_ahead is given ({file}:2)"),
            ((), {"FORETOKEN_DRAFT_RUN_AHEAD": "on"}, "draft.run_ahead is given (environment)"),
            (("--set", "draft.branches=2"), {}, "draft.branches is given (flag)"),
            (("--set", "speculation.proposer=ngram"), {}, "speculation.proposer is given (flag)"),
            (("--sweep", "--set", "speculation.proposer=draft"), {}, "speculation.proposer is given (flag)")):
            refused = self.run_verb(*words, expect=2, **variables)
            self.assertIn(f"error: {said}, and bench schedule decides it", refused.stderr, words)
            self.assertIn("--synchronous", refused.stderr, words)


if __name__ == "__main__":
    unittest.main()
