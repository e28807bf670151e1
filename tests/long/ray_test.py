"""deploy/ray with Ray itself: services as actors, drafts that join and leave, a program and an actor that are killed. The text
stays the same. Runs where `ray` can be imported (pip install ray in a virtual environment), with real programs.

usage: FORETOKEN_BIN_DIR=build/release/bin PYTHON_WITH_RAY tests/long/ray_test.py
"""

import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("FORETOKEN_BIN_DIR", ROOT / "build/release/bin")).resolve()
SKIPPED = 77
PROMPT = ("generate", "--json", "--seed", "7", "-t", "0.8", "-n", "64", "Once upon a time")


class Ray(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        sys.path.insert(0, str(ROOT / "deploy/ray"))
        import foretoken_ray
        import ray
        folder = tempfile.TemporaryDirectory(prefix="foretoken-ray-")
        cls.addClassCleanup(folder.cleanup)
        cls.environment = {"FORETOKEN_BUS_CLIENT": "ipc://client", "FORETOKEN_BUS_RUNTIME_DIR": folder.name}
        os.environ["RAY_worker_niceness"] = "0"  # see foretoken_ray.py
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False,
                 runtime_env={"env_vars": {"PYTHONPATH": str(ROOT / "deploy/ray")}})
        cls.addClassCleanup(ray.shutdown)
        cls.pools = {role: foretoken_ray.Pool(role, programs=str(BIN), environment=cls.environment)
                     for role in ("router", "tokenizer", "target", "draft")}
        for role, pool in cls.pools.items():
            pool.scale(1)
            cls.addClassCleanup(pool.scale, 0)
        cls.wait_for(target=1, draft=1, tokenizer=1)

    @classmethod
    def run_verb(cls, *words):
        return subprocess.run([str(BIN / "foretoken"), *words], capture_output=True, text=True, timeout=120,
                              env={**os.environ, **cls.environment})

    @classmethod
    def ready(cls):
        """Role -> its services that are ready."""
        done = cls.run_verb("ps", "--json")
        services = json.loads(done.stdout)["services"] if done.returncode == 0 else []
        return {role: [s for s in services if s["role"] == role and s["state"] == "ready"] for role in ("target", "draft", "tokenizer")}

    @classmethod
    def wait_for(cls, **counts):
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            ready = cls.ready()
            if all(len(ready[role]) == n for role, n in counts.items()):
                return ready
            time.sleep(0.2)
        raise AssertionError(f"{counts} were wanted: {cls.run_verb('ps').stdout}")

    def answer(self, *words):
        done = self.run_verb(*PROMPT, *words)
        self.assertEqual(0, done.returncode, done.stderr)
        return json.loads(done.stdout)

    def test_the_text_stays_while_drafts_come_and_go(self):
        plain = self.answer("--no-spec")["text"]
        for n in (2, 0, 1):
            self.assertTrue(all(code == 0 for code in self.pools["draft"].scale(n)))
            self.wait_for(draft=n)
            self.assertEqual(plain, self.answer()["text"], n)

    def test_a_program_that_is_killed_is_started_again(self):
        before = self.wait_for(draft=1, target=1)
        plain = self.answer("--no-spec")["text"]
        for role in ("draft", "target"):
            os.kill(before[role][0]["pid"], signal.SIGKILL)
            deadline = time.monotonic() + 120
            while [s["pid"] for s in self.ready()[role]] in ([], [before[role][0]["pid"]]):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.2)
            self.assertEqual(plain, self.answer()["text"], role)


if __name__ == "__main__":
    if importlib.util.find_spec("ray") is None:
        print("SKIPPED: this Python has no ray")
        sys.exit(SKIPPED)
    unittest.main()
