"""`foretoken config schema` against what the program takes: key by key, a file that one refuses the other refuses too.

usage: schema_test.py FOLDER_WITH_PROGRAMS
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

import jsonschema

BIN = pathlib.Path(sys.argv.pop(1))
ROOT = pathlib.Path(__file__).resolve().parents[2]
# Texts of each form, and those that are none of it.
FORMS = {
    "kv_cache.memory": (["60%", "95%", "5.5%", "8GiB", "1.5GiB", ".5GiB", "5.GiB", "1e3MiB", "512MiB", "1TiB", "4096B", "56000 tokens"],
                        ["", "lots", "60", "8GB", "-5%", "8 GiB", "tokens", "56000tokens", "-1 tokens", "%"]),
    "target.device": (["cpu", "cuda", "cuda:1", "cuda:0,1", "cuda:999"],
                      ["", "gpu", "CUDA", "cuda:", "cuda:x", "cuda:0,", "cuda:,1", "cuda:-1", "cuda:0, 1", "cuda:1000", "cuda:0;1", "cpu:0"]),
    "bus.router": (["ipc://router", "ipc:///run/router", "tcp://127.0.0.1:5555", "tcp://[::1]:5555", "inproc://x", "ipc://{id}"],
                   ["", "router", "ipc://", "ipc://@x", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:", "http://x:1"]),
    "bus.draft": ([["ipc://draft-{id}"], ["tcp://127.0.0.1:5{id}", "ipc://a"]], [[], [""], ["ipc://a", "b"]]),
    "limits.tenant_weights": ([[], ["gold=4", "a=b=0.5", "x=1e1"]], [["gold"], ["gold="], ["=2"], ["gold=2x"], ["gold=nan"]]),
    "metrics.listen": (["", "127.0.0.1:8002", "localhost:8002", "[::1]:8002", "127.0.0.1:0008002"],
                       ["8002", ":8002", "127.0.0.1:", "127.0.0.1:80x"]),
    "speculation.proposer": (["draft", "none", ["none"], ["ngram"], ["draft", "memory", "ngram"]],
                             ["", [], ["drafts"], ["draft", "draft"], ["draft", "none"], ["none", "ngram"], ["draft", "ngrams"]]),
    "metrics.compat": ([[], ["vllm"]], [["vlm"], ["vllm", ""]]),
}
WHOLE = {  # files that are good, and files that are not, by what is wrong with them
    "nothing": ("", True),
    "models": ("[model.chat]\ntarget = \"/m\"\n[model.code-7b]\n[draft.chat]\nthreads = 2\n[limits.chat]\nmax_running = 3\n", True),
    "an unknown section": ("[speculate]\n", False),
    "an unknown section of one model": ("[speculate.chat]\n", False),
    "an unknown key": ("[speculation]\ndraft_lenght = 3\n", False),
    "a key outside a section": ("draft_len = 3\n", False),
    "a table for a key": ("[model.chat]\n[speculation.draft_len]\nx = 1\n", False),
    "a wrong value of one model": ("[model.chat]\n[speculation.chat]\ndraft_len = 33\n", False),
    "an unknown key of one model": ("[model.chat]\n[speculation.chat]\ndraft_lenght = 3\n", False),
    "a key that holds for all models": ("[model.chat]\n[limits.chat]\ndrain_s = 3\n", False),
    "a section that holds for all models": ("[model.chat]\n[log.chat]\nlevel = \"info\"\n", False),
    "a number for a name": ("[model.7]\n", False),
    "a name that is too long": (f"[model.{'a' * 25}]\n", False),
    "a name with a dot": ("[model.\"a.b\"]\n", False),
    "a table in a table": ("[model.chat.target]\nx = 1\n", False),
}


def run(*words):
    return subprocess.run([str(BIN / "foretoken"), *words], capture_output=True, text=True, timeout=60, env={})


SCHEMA = json.loads(run("config", "schema").stdout)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
KEYS = {f"{section}.{key}": schema for section, table in SCHEMA["properties"].items() for key, schema in table["properties"].items()}


def file_with(values):
    """A file with these values: {"section.key": value}."""
    text = ""
    for section in SCHEMA["properties"]:
        lines = [f"{name.partition('.')[2]} = {json.dumps(value, ensure_ascii=False)}\n"
                 for name, value in values.items() if name.startswith(section + ".")]
        text += f"[{section}]\n{''.join(lines)}" if lines else ""
    return text


def type_of(schema):
    return schema.get("type", "string or array")


def text_of(schema):
    if "anyOf" in schema:
        return schema["anyOf"][0]
    return schema["items"] if schema["type"] == "array" else schema


class Schema(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="foretoken-schema-")
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "f.toml"

    def check(self, text):
        self.file.write_text(text, "utf-8")
        return run("config", "check", "--config", str(self.file))

    def refused(self, values):
        """The keys that the program refuses for themselves, and those that the schema does."""
        words = self.check(file_with(values)).stderr
        program = set(re.findall(rf"^error: {re.escape(str(self.file))}:\d+: (\w+\.\w+) ", words, re.MULTILINE))
        errors = VALIDATOR.iter_errors(tomllib.loads(file_with(values)))
        return program, {".".join(map(str, list(error.absolute_path)[:2])) for error in errors}

    def expect(self, values, is_good):
        wanted = (set(), set()) if is_good else (set(values), set(values))
        self.assertEqual(wanted, self.refused(values), values)

    def test_is_a_schema_and_explains_every_key(self):
        jsonschema.Draft202012Validator.check_schema(SCHEMA)
        self.assertGreater(len(KEYS), 60)
        for name, schema in KEYS.items():
            self.assertTrue(schema["description"], name)
        defaults = tomllib.loads(run("config", "init").stdout)
        self.assertEqual({f"{section}.{key}": value for section, keys in defaults.items() for key, value in keys.items()},
                         {name: schema["default"] for name, schema in KEYS.items()})

    def test_takes_every_file_that_is_shipped_and_the_example_of_the_readme(self):
        files = {path.name: path.read_text("utf-8") for path in (ROOT / "configs").glob("*.toml")}
        self.assertTrue(files)
        files["README.md"] = re.search(r"```toml\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)[1]
        for name, text in files.items():
            self.assertEqual([], [error.message for error in VALIDATOR.iter_errors(tomllib.loads(text))], name)

    def test_a_value_of_another_type_is_refused(self):
        others = {"boolean": ["true", 1], "integer": ["8", 8.5, True, [1]], "number": ["0.5", True, [0.5], False], "string": [7, False, ["text"]], "array": ["text", [7], True],
                  "string or array": [7, [7], True]}
        for i in range(4):
            self.expect({name: others[type_of(schema)][i % len(others[type_of(schema)])] for name, schema in KEYS.items()}, False)

    def test_numbers_have_their_ranges(self):
        numbers = {name: schema for name, schema in KEYS.items() if type_of(schema) == "integer"}
        numbers |= {name: schema for name, schema in KEYS.items() if type_of(schema) == "number"}
        for limit, beyond in (("minimum", -1), ("maximum", 1)):
            self.expect({name: schema[limit] for name, schema in numbers.items()}, True)
            self.expect({name: schema[limit] + beyond for name, schema in numbers.items()}, False)

    def test_choices_are_those_that_are_listed(self):
        choices = {name: text_of(schema)["enum"] for name, schema in KEYS.items() if "enum" in text_of(schema)}
        self.assertGreater(len(choices), 10)
        value = {"string": lambda text: text, "array": lambda text: [text], "string or array": lambda text: [text]}
        for i in range(max(map(len, choices.values()))):
            self.expect({name: value[type_of(KEYS[name])](listed[i % len(listed)]) for name, listed in choices.items()}, True)
        for wrong in ("nonsense", "", "AUTO"):
            self.expect({name: value[type_of(KEYS[name])](wrong) for name in choices}, False)

    def test_texts_have_their_forms(self):
        patterns = {text_of(schema).get("pattern") for schema in KEYS.values()} - {None}
        self.assertEqual(patterns, {text_of(KEYS[name])["pattern"] for name in FORMS if "pattern" in text_of(KEYS[name])})
        for name, (good, bad) in FORMS.items():
            for value in good:
                self.expect({name: value}, True)
            for value in bad:
                self.expect({name: value}, False)

    def test_files_are_judged_alike(self):
        for name, (text, is_good) in WHOLE.items():
            done = self.check(text)
            self.assertEqual(0 if is_good else 2, done.returncode, (name, done.stderr))
            self.assertEqual(is_good, VALIDATOR.is_valid(tomllib.loads(text)), name)

    def test_is_written_to_a_file(self):
        self.assertEqual(0, run("config", "schema", "-o", str(self.file)).returncode)
        self.assertEqual(SCHEMA, json.loads(self.file.read_text("utf-8")))
        self.assertEqual(0, run("config", "schema", "-o", str(self.file)).returncode)  # of a newer version, in its place
        self.assertEqual((ROOT / "configs/foretoken.schema.json").read_text("utf-8"), self.file.read_text("utf-8"))


if __name__ == "__main__":
    unittest.main()
