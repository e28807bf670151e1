"""`foretoken up` with several models from one file, and what clients see of them: the command, ps, and HTTP.

usage: models_test.py FOLDER_WITH_PROGRAMS
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

BIN = pathlib.Path(sys.argv.pop(1))
ROOT = pathlib.Path(__file__).resolve().parents[2]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("FORETOKEN_")}
sys.path[:0] = [str(ROOT / "tests/process"), str(ROOT / "tests/support")]

import tiny_model  # noqa: E402
from ports import free_port  # noqa: E402


def run_verb(*words):
    return subprocess.run([str(BIN / "foretoken"), *map(str, words)], env=ENVIRONMENT, capture_output=True, text=True, timeout=200,
                          stdin=subprocess.DEVNULL)


class Several(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="ftk-up-"))
        cls.port = free_port()
        own = {name: tiny_model.write_model(str(cls.folder / name), **keys)
               for name, keys in (("t", {"seed": 1}), ("d", {"seed": 1, "noise": 0.05}), ("u", {"seed": 7, "changed_vocabulary": True}))}
        cls.file = cls.folder / "models.toml"
        cls.file.write_text(f"""
[bus]
client = "tcp://127.0.0.1:{free_port()}"
runtime_dir = "{cls.folder}/r"

[edge]
port = {cls.port}

[router]
default_model = "gpt-4o-mini"

[kv_cache]
memory = "64MiB"

[draft]
memory = "32MiB"

[target]
threads = 1

[model.chat]
target = "{own["t"]}"
draft = "{own["d"]}"
name = "org/chat"
alias = ["gpt-4o-mini", "c"]
max_model_len = 512
targets = 2

[model.code]
target = "{own["u"]}"

[speculation.code]
proposer = "ngram"
""")
        done = run_verb("up", "--detach", "--config", cls.file)
        if done.returncode != 0:
            raise AssertionError(done.stderr)

    @classmethod
    def tearDownClass(cls):
        done = run_verb("down", "--config", cls.file)
        shutil.rmtree(cls.folder, ignore_errors=True)
        assert done.returncode == 0, done.stderr

    def verb(self, *words):
        return run_verb(*words, "--config", self.file)

    def http(self, path, body=None):
        """Status and JSON, if there is any."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode() if body else None,
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        return status, json.loads(text) if text else None

    def test_the_check_names_the_services_that_up_starts(self):
        done = self.verb("config", "check")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual([f"ok: {self.file}",
                          "model chat: org/chat, gpt-4o-mini, c; tokenizer-chat-0, target-chat-0, target-chat-1, draft-chat-0",
                          "model code: code; tokenizer-code-0, target-code-0"], done.stdout.splitlines())
        services = {s["name"]: s for s in json.loads(self.verb("ps", "--json").stdout)["services"]}
        self.assertEqual(["draft-chat-0", "edge-0", "router-0", "target-chat-0", "target-chat-1", "target-code-0", "tokenizer-chat-0",
                          "tokenizer-code-0"], sorted(services))
        self.assertEqual({"ready"}, {s["state"] for s in services.values()})
        self.assertEqual({"org/chat"}, {services[name]["model"] for name in ("target-chat-0", "target-chat-1", "tokenizer-chat-0")})
        self.assertEqual({"code"}, {services[name]["model"] for name in ("target-code-0", "tokenizer-code-0")})
        self.assertEqual([], [s["note"] for s in services.values() if "differ" in s["note"]])

    def test_what_is_shown_is_what_would_be_read(self):
        shown = self.verb("config", "show")
        self.assertEqual(0, shown.returncode, shown.stderr)
        again = self.folder / "again.toml"
        again.write_text(shown.stdout)
        self.assertEqual(shown.stdout.splitlines()[1:], run_verb("config", "show", "--config", again).stdout.splitlines()[1:])
        one = subprocess.run([str(BIN / "foretoken-target"), "--id", "chat-7", "--config", str(self.file), "--print-config"],
                             env=ENVIRONMENT, capture_output=True, text=True, timeout=60).stdout
        self.assertIn('name = "org/chat"', one)
        self.assertNotIn("[model.", one)

    def test_up_again_notices_another_list_of_models(self):
        done = self.verb("up", "--detach")
        self.assertEqual((0, True), (done.returncode, "already serving" in done.stderr), done.stderr)
        for words, line in ((["--set", "model.third.target=demo"], r"models: it runs with \[chat, code\], not \[chat, code, third\]"),
                            (["--set", "model.chat.targets=1"], "model.chat.targets: it runs with 2, not 1"),
                            (["--targets", "3"], "model.code.targets: it runs with 1, not 3"),
                            (["--set", "target.chat.threads=2"], "target.chat.threads: it runs with 1, not 2")):
            done = self.verb("up", "--detach", *words)
            self.assertEqual(6, done.returncode, done.stderr)
            self.assertRegex(done.stderr, line)

    def test_models_are_listed_under_all_their_names(self):
        status, models = self.http("/v1/models")
        self.assertEqual(200, status)
        self.assertEqual({"org/chat": ("org/chat", 512), "gpt-4o-mini": ("org/chat", 512), "c": ("org/chat", 512),
                          "code": ("code", 2048)}, {m["id"]: (m["root"], m["max_model_len"]) for m in models["data"]})
        for path, root in (("/v1/models/org/chat", "org/chat"), ("/v1/models/c", "org/chat"), ("/v1/models/default", "org/chat")):
            self.assertEqual((200, root), (self.http(path)[0], self.http(path)[1]["root"]))
        status, error = self.http("/v1/models/none")
        self.assertEqual((404, "model_not_found"), (status, error["error"]["code"]))
        props = self.http("/props")[1]
        self.assertEqual("org/chat", props["default_model"])
        self.assertEqual({"org/chat": 2, "code": 1}, {m["name"]: m["n_targets"] for m in props["model_states"]})

    def test_each_protocol_reaches_the_model_that_it_names(self):
        words = {}
        for model in ("org/chat", "code"):
            said = run_verb("generate", "--config", self.file, "--model", model, "--json", "--seed", "7", "-n", "12", "--raw", "the thing")
            words[model] = json.loads(said.stdout)["text"]
        self.assertNotEqual(words["org/chat"], words["code"])
        asked = {"prompt": "the thing", "max_tokens": 12, "seed": 7}
        for name, model in (("org/chat", "org/chat"), ("c", "org/chat"), ("default", "org/chat"), ("code", "code")):
            status, reply = self.http("/v1/completions", {**asked, "model": name})
            self.assertEqual((200, words[model], model), (status, reply["choices"][0]["text"], reply["model"]))
        self.assertEqual(words["org/chat"], self.http("/v1/completions", asked)[1]["choices"][0]["text"])
        for name, model in (("org/chat", "org/chat"), ("c", "org/chat"), ("default", "org/chat"), ("ensemble", "org/chat"), ("code", "code")):
            status, reply = self.http(f"/v2/models/{name}/generate", {"text_input": "the thing", "max_tokens": 12, "random_seed": 7, "top_p": 1,
                                                                    "exclude_input_in_output": True})
            self.assertEqual((200, words[model]), (status, reply["text_output"]), name)
        for name, status in (("org/chat", 200), ("code", 200), ("none", 400)):
            self.assertEqual(status, self.http(f"/v2/models/{name}/ready")[0])
        ids = {name: self.http("/tokenize", {"model": name, "prompt": "the thing"})[1]["tokens"] for name in ("c", "org/chat", "code")}
        self.assertEqual(ids["c"], ids["org/chat"])
        self.assertNotEqual(ids["c"], ids["code"], "each has its tokenizer")
        self.assertEqual(ids["c"], self.http("/tokenize", {"prompt": "the thing"})[1]["tokens"])
        for path, body in (("/v1/completions", asked), ("/tokenize", {"prompt": "x"})):
            self.assertEqual(404, self.http(path, {**body, "model": "none"})[0])

    def test_metrics_are_of_each_model(self):
        for model in ("c", "code"):
            self.assertEqual(200, self.http("/v1/completions", {"model": model, "prompt": "x", "max_tokens": 4})[0])
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        for model in ("org/chat", "code"):
            counted = [line for line in lines if line.startswith("foretoken_request_success_total")
                       and f'model_name="{model}"' in line and 'finished_reason="length"' in line]
            self.assertEqual(1, len(counted), model)
            self.assertGreater(float(counted[0].split()[-1]), 0)


class Refused(unittest.TestCase):
    def check(self, text, *sentences):
        with tempfile.TemporaryDirectory(prefix="ftk-refused-") as folder:
            file = pathlib.Path(folder) / "f.toml"
            file.write_text(text)
            checked = run_verb("config", "check", "--config", file)
            self.assertEqual(2, checked.returncode)
            for sentence in sentences:
                self.assertIn(sentence, checked.stderr)
            self.assertEqual(2, run_verb("up", "--detach", "--config", file, "--set", f"bus.runtime_dir={folder}/r").returncode)

    def test_a_name_that_means_two_models(self):
        self.check('[model.a]\n[model.b]\nalias = ["a"]\n', 'the name "a" means two models, [model.a] and [model.b]')

    def test_a_default_that_is_none_of_them(self):
        self.check('[router]\ndefault_model = "x"\n[model.a]\n[model.b]\n', 'router.default_model is "x"', "there is a, b")

    def test_a_flag_that_does_not_say_which_model(self):
        done = run_verb("up", "--detach", "--set", "model.a.target=demo", "--set", "model.b.name=b", "--target", "demo")
        self.assertEqual(2, done.returncode)
        self.assertIn("--target: model.target is what each model has for itself, and there is [model.a]", done.stderr)

    def test_a_pair_that_does_not_belong_together_is_named_with_its_model(self):
        with tempfile.TemporaryDirectory(prefix="ftk-refused-") as folder:
            tiny = tiny_model.write_model(folder + "/t", seed=1)
            done = run_verb("up", "--detach", "--set", f"bus.runtime_dir={folder}/r", "--set", "model.a.target=demo",
                            "--set", f"model.b.target={tiny}", "--set", "model.b.draft=demo")
            self.assertEqual(4, done.returncode, done.stderr)
            self.assertIn("error: model b: ", done.stderr)
            missing = run_verb("up", "--detach", "--set", f"bus.runtime_dir={folder}/r", "--set", "model.b.target=/none/there")
            self.assertEqual(4, missing.returncode, missing.stderr)
            self.assertIn("model.b.target", missing.stderr)


if __name__ == "__main__":
    unittest.main()
