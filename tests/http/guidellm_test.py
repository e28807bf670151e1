"""GuideLLM against real services, with every proposer: no request fails, each answer has the tokens that were asked for, and the
texts are equal."""

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
PROMPTS = [f"Tell me a story about {i + 2} foxes." for i in range(N_REQUESTS)]


class GuideLlm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        use_demo_pair()
        cls.system = EdgeSystem().__enter__()
        cls.addClassCleanup(lambda: cls.system.__exit__(None, None, None))
        cls.system.start_all()
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-guidellm-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)

    def run_it(self, path, how):
        """The one benchmark of its report."""
        name = path.replace("/", "-") + how
        report, scenario = self.folder / f"report{name}.json", self.folder / f"scenario{name}.json"
        scenario.write_text(json.dumps({"spec": {
            "backend": {"kind": "openai_http", "target": f"http://127.0.0.1:{self.system.port}", "model": "tiny", "request_format": path,
                        "extras": {"body": {"seed": 5, "temperature": 0.8, "speculation": SPECULATION[how]}}},
            "profile": {"kind": "concurrent", "streams": [2]},
            "constraints": [{"kind": "max_requests", "count": N_REQUESTS}],
            "tokenizer": {"kind": "huggingface_auto", "model": self.system.target_model},
            "data": [{"kind": "in_memory_dict_list", "data": [{"prompt": each, "output_tokens_count": N_TOKENS} for each in PROMPTS]}],
            "outputs": [{"kind": "json", "path": str(report)}]}}))
        done = subprocess.run(
            [str(pathlib.Path(sys.executable).parent / "guidellm"), "run", "--config", str(scenario), "--disable-console-interactive"],
            capture_output=True, text=True, timeout=300, cwd=self.folder,
            env={**os.environ, "HF_ENDPOINT": "http://127.0.0.1:1", "HOME": str(self.folder)})
        self.assertEqual(0, done.returncode, done.stdout[-4000:] + done.stderr[-4000:])
        (benchmark,) = json.loads(report.read_text())["benchmarks"]
        return benchmark

    def check_equal_texts(self, path):
        texts = {}
        for how in SPECULATION:
            before = self.system.n_drafted()
            requests = self.run_it(path, how)["requests"]
            if how != "off":
                wait_for(lambda: self.system.n_drafted() > before, f"guesses were verified: {how}")
            self.assertEqual(([], []), (requests["errored"], requests["incomplete"]))
            self.assertEqual([N_TOKENS] * N_REQUESTS, [each["output_metrics"]["text_tokens"] for each in requests["successful"]])
            texts[how] = sorted(each["output"] for each in requests["successful"])
            self.assertTrue(all(texts[how]))
        self.assertEqual(texts["off"], texts["draft"])
        self.assertEqual(texts["off"], texts["ngram"])

    def test_chat(self):
        self.check_equal_texts("/v1/chat/completions")

    def test_completions(self):
        self.check_equal_texts("/v1/completions")


if __name__ == "__main__":
    unittest.main()
