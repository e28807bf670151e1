"""NVIDIA's AIPerf against real services, with every proposer: its runs end without an errored request, it takes what is said of
speculation, and the texts of the answers are equal."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from edge_system import SPECULATION, EdgeSystem, use_demo_pair
from harness import wait_for

N_REQUESTS, N_TOKENS = 6, 96
HAVE_IGNORE_EOS = ("chat", "completions")  # and what is said of guesses in each answer
PROMPTS = [f"Tell me a story about {i + 2} foxes." for i in range(N_REQUESTS)]


class AiPerf(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        use_demo_pair()
        cls.system = EdgeSystem().__enter__()
        cls.addClassCleanup(lambda: cls.system.__exit__(None, None, None))
        cls.system.start_all()
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-aiperf-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.prompts = cls.folder / "prompts.jsonl"
        cls.prompts.write_text("".join(json.dumps({"text": prompt, "output_length": N_TOKENS}) + "\n" for prompt in PROMPTS))

    def profile(self, kind, how):
        """Runs it; returns the folder of its results and what it printed."""
        out = self.folder / f"{kind}-{how}"
        fields = {"seed": 5, "temperature": 0.8, "speculation": SPECULATION[how], **({"ignore_eos": True} if kind in HAVE_IGNORE_EOS else {})}
        done = subprocess.run(
            [str(pathlib.Path(sys.executable).parent / "aiperf"), "profile", "--model", "tiny", "--url", f"http://127.0.0.1:{self.system.port}",
             "--endpoint-type", kind, "--streaming", "--tokenizer", self.system.target_model, "--concurrency", "2", "--request-count",
             str(N_REQUESTS), "--input-file", str(self.prompts), "--custom-dataset-type", "single_turn", "--dataset-sampling-strategy",
             "sequential", "--random-seed", "1", "--extra-inputs", json.dumps(fields), "--use-server-token-count",
             "--output-artifact-dir", str(out), "--export-level", "raw", "--export-outputs-json", "--no-gpu-telemetry", "--ui-type", "none",
             "--workers-max", "1"],
            capture_output=True, text=True, timeout=300, cwd=self.folder,
            env={**os.environ, "HF_ENDPOINT": "http://127.0.0.1:1", "COLUMNS": "200", "HOME": str(self.folder)})
        self.assertEqual(0, done.returncode, done.stdout[-4000:] + done.stderr[-4000:])
        return out, done.stdout + done.stderr

    def texts(self, out):
        """By request: what the model answered."""
        data = json.loads((out / "outputs.json").read_text())["data"]
        return {each["conversation_id"]: each["response_text"] for each in data}

    def counts(self, out):
        """What the answers say of their guesses, in the events as they came."""
        events = [json.loads(packet["value"]) for line in (out / "profile_export_raw.jsonl").read_text().splitlines()
                  for response in json.loads(line)["responses"] for packet in response["packets"] if packet["value"].startswith("{")]
        return [event["metrics"]["speculative_decoding"] for event in events if event.get("metrics")]

    def check_equal_texts(self, kind):
        texts = {}
        for how in SPECULATION:
            before = self.system.n_drafted()
            out, said = self.profile(kind, how)
            if how != "off":
                wait_for(lambda: self.system.n_drafted() > before, f"guesses were verified: {how}")
            summary = json.loads((out / "profile_export_aiperf.json").read_text())
            self.assertEqual(N_REQUESTS, summary["request_count"]["avg"], said)
            self.assertNotIn("error_request_count", summary, said)
            if kind in HAVE_IGNORE_EOS:
                self.assertEqual(N_TOKENS, summary["output_sequence_length"]["avg"], said)
            self.assertNotRegex(said, "(?i)malformed")
            texts[how] = self.texts(out)
            self.assertEqual(N_REQUESTS, len(texts[how]))
            self.assertTrue(all(texts[how].values()))
            if kind in HAVE_IGNORE_EOS:
                self.assertEqual(N_REQUESTS, len(self.counts(out)))
                guessed = sum(each["num_draft_tokens"] for each in self.counts(out))
                self.assertEqual(how == "off", guessed == 0)
                self.assertIn("Spec Decode", said)
        self.assertEqual(texts["off"], texts["draft"])
        self.assertEqual(texts["off"], texts["ngram"])

    def test_chat(self):
        self.check_equal_texts("chat")

    def test_completions(self):
        self.check_equal_texts("completions")

    def test_anthropic_messages(self):
        self.check_equal_texts("messages")

    def test_responses(self):
        self.check_equal_texts("responses")


if __name__ == "__main__":
    unittest.main()
