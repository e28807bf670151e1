"""`foretoken draft distil` from end to end: a draft for a tiny random target, by real services and PyTorch, killed on the way.

usage: distil_test.py, with torch, numpy and safetensors; the programs are in FORETOKEN_BIN_DIR
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BIN = pathlib.Path(os.environ["FORETOKEN_BIN_DIR"])
DEADLINE_S = 900
SMALL = ["--tokens", "4000", "--answer-tokens", "16", "--top", "5", "--shape", "32x1", "--head", "128", "--passes", "2", "--context", "128",
         "--threads", "2", "--python", sys.executable]


def run(*words):
    return subprocess.run([str(BIN / "foretoken"), *words], capture_output=True, text=True, timeout=DEADLINE_S)


class Distil(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-distil-test-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.target, self.out = self.folder / "target", self.folder / "draft"
        made = run("model", "init-random", str(self.target), "--tokenizer", "demo", "--layers", "1", "--positions", "512")
        self.assertEqual(0, made.returncode, made.stderr)
        # One in eight is longer than a row of training, 112 tokens, and one in eight than the draft's context, 128.
        longer = {0: " Say it again." * 50, 1: " Say it again." * 24}
        (self.folder / "prompts.txt").write_text("\n".join(f"What is {i}?{longer.get(i % 8, '')}" for i in range(400)))
        self.words = ["draft", "distil", str(self.target), "--out", str(self.out), "--prompts", str(self.folder / "prompts.txt"), *SMALL]

    def start_and_kill(self, seen, how):
        """Runs the verb until `seen()`, then ends its whole group."""
        process = subprocess.Popen([str(BIN / "foretoken"), *self.words], start_new_session=True, stderr=subprocess.DEVNULL)
        end = time.monotonic() + DEADLINE_S
        while not seen():
            self.assertIsNone(process.poll(), "it ended by itself")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        os.killpg(process.pid, how)
        return process.wait(60)

    def test_makes_a_draft_that_the_target_can_use_whatever_ended_it_before(self):
        # A first try with a target that cannot be served here, eight bits that only some GPUs multiply, is not in the way of the next one.
        other = self.folder / "other"
        self.assertEqual(0, run("model", "quantize", str(self.target), str(other), "--to", "fp8", "--no-compare").returncode)
        failed = run(*self.words[:2], str(other), *self.words[3:])
        self.assertEqual(4, failed.returncode, failed.stderr)
        self.assertIn("which CPUs do not multiply", failed.stderr)
        self.assertEqual(str(other), json.loads((self.out / "work/plan.json").read_text())["target"])
        self.start_and_kill(lambda: list(self.out.glob("work/requests/*.answers.jsonl*")), signal.SIGKILL)
        self.start_and_kill(lambda: (self.out / "work/training/loss.csv").exists(), signal.SIGKILL)
        done = run(*self.words)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("texts as without a draft", done.stderr)
        self.assertGreater(json.loads((self.out / "work/training/summary.json").read_text())["cut_prompts"], 0)
        self.assertRegex(done.stderr, "check: [1-9][0-9]* of [0-9]+ held-out prompts do not fit into the 128 tokens of --context")
        checked = json.loads((self.out / "work/check.json").read_text())
        self.assertGreater(checked["prompts"], 0)
        steps = [int(line.split(",")[0]) for line in (self.out / "work/training/loss.csv").read_text().splitlines()]
        self.assertEqual(list(range(1, checked["step"] + 1)), steps, "each step once, after a kill too")
        for temperature, row in checked["temperatures"].items():
            self.assertEqual(row["texts"], row["same_texts"], temperature)
        # The target is so small that a guess seldom comes in time.
        self.assertGreater(sum(row["rounds"] for row in checked["temperatures"].values()), 0)
        info = json.loads(run("model", "info", "--json", str(self.out)).stdout)
        self.assertEqual((128, 4096, 32), (info["head_ids"], info["vocab"], info["hidden"]))
        self.assertEqual(0, run("model", "pair", str(self.out), str(self.target)).returncode)
        card = (self.out / "README.md").read_text()
        self.assertIn("128 of 4096 ids", card)
        weights = (self.out / "model.safetensors").read_bytes()
        again = run(*self.words)
        self.assertEqual(0, again.returncode, again.stderr)
        self.assertEqual(weights, (self.out / "model.safetensors").read_bytes(), "there was nothing left to do")
        other = run(*self.words, "--seed", "2")
        self.assertEqual(2, other.returncode)
        self.assertIn("was begun with seed = 1, and now it is 2", other.stderr)
        with open(self.folder / "prompts.txt", "a") as prompts:
            prompts.write("\nOne more?")
        other = run(*self.words)
        self.assertEqual(2, other.returncode)
        self.assertIn('was begun with prompts = "400 different ones', other.stderr)
        self.assertIn('and now it is "401 different ones', other.stderr)

    def test_ctrl_c_ends_a_step_and_says_how_to_go_on(self):
        code = self.start_and_kill(lambda: (self.out / "work/training/loss.csv").exists(), signal.SIGINT)
        self.assertEqual(130, code)
        self.assertTrue((self.out / "work/training/checkpoint.pt").exists())


if __name__ == "__main__":
    unittest.main()
