"""The `foretoken` verbs that need no service: help, errors, exit codes, JSON.

usage: verbs_test.py FOLDER_WITH_PROGRAMS
"""

import contextlib
import hashlib
import http.server
import json
import math
import os
import pathlib
import pty
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

import msgpack
import zmq

BIN = pathlib.Path(sys.argv.pop(1))
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))

from infinite_model import write_infinite_model  # noqa: E402
from ports import free_port  # noqa: E402

VERBS = ["up", "down", "ps", "top", "trace", "generate", "chat", "run", "demo", "tokenize", "detokenize", "doctor", "version",
         "bench serve", "bench latency", "bench acceptance", "bench compare", "bench micro", "bench memory", "plot", "model info", "model check", "model pair",
         "model init-random", "model quantize", "model compare", "draft distil",
         "config show", "config check", "config init", "config schema", "config new-key", "import-triton", "completion"]


def run(*words, stdin=""):
    return subprocess.run([str(BIN / "foretoken"), *words], capture_output=True, text=True, timeout=120, input=stdin)


def trim_head(folder, ids):
    """Leaves the head's rows of `ids` in a folder of one file, and names them in draft_ids.i32."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    n = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8:8 + n]), data[8 + n:]
    tensors = {name: body[slice(*entry["data_offsets"])] for name, entry in header.items() if name != "__metadata__"}
    head = header["lm_head.weight"]
    row = len(tensors["lm_head.weight"]) // head["shape"][0]
    tensors["lm_head.weight"] = b"".join(tensors["lm_head.weight"][i * row:(i + 1) * row] for i in ids)
    head["shape"][0], at = len(ids), 0
    for name, tensor in tensors.items():
        header[name]["data_offsets"] = [at, at + len(tensor)]
        at += len(tensor)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(tensors.values()))
    (folder / "draft_ids.i32").write_bytes(b"".join(i.to_bytes(4, "little") for i in ids))


def enlarge(folder, n_layers):
    """Makes the model of init-random larger, with zeros that take no room on the disk: 13 GB a layer."""
    path = folder / "model.safetensors"
    with path.open("rb") as file:
        old = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    config = json.loads((folder / "config.json").read_text())
    sides = {config["hidden_size"]: 1024, config["intermediate_size"]: 1 << 20}
    layer = {name.removeprefix("model.layers.0."): entry for name, entry in old.items() if name.startswith("model.layers.0.")}
    tensors = {name: entry for name, entry in old.items() if name != "__metadata__" and not name.startswith("model.layers.")}
    tensors.update({f"model.layers.{i}.{name}": entry for i in range(n_layers) for name, entry in layer.items()})
    header, at = {}, 0
    for name, entry in tensors.items():
        shape = [sides.get(side, side) for side in entry["shape"]]
        size = 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + at)
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": n_layers, "hidden_size": 1024, "intermediate_size": 1 << 20,
                                                    "num_attention_heads": 1024 // config["head_dim"]}))


class Verbs(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-cli-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.quiet_port = ["--set", "bus.client=tcp://127.0.0.1:1", "--set", f"bus.runtime_dir={self.folder}"]

    def test_no_program_loads_a_library_of_the_current_folder(self):
        for program in sorted(BIN.glob("foretoken*")):
            dynamic = subprocess.run(["readelf", "-dW", str(program)], check=True, capture_output=True, text=True).stdout
            for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
                (self.folder / name).write_text("no library")
        for program in sorted(BIN.glob("foretoken*")):
            done = subprocess.run([str(program.resolve()), "--version"], cwd=self.folder, capture_output=True, text=True, timeout=60)
            self.assertNotEqual(127, done.returncode, f"{program.name}: {done.stderr}")  # the dynamic linker's

    def test_every_verb_has_help_with_an_example(self):
        for verb in VERBS:
            done = run(*verb.split(), "--help")
            self.assertEqual((0, ""), (done.returncode, done.stderr), verb)
            self.assertIn(f"foretoken {verb}", done.stdout, verb)

    def test_a_mistyped_verb_names_the_nearest(self):
        done = run("generat", "x")
        self.assertEqual(2, done.returncode)
        self.assertIn("did you mean `foretoken generate`?", done.stderr)

    def test_usage_errors_exit_2(self):
        for words in ([], ["up", "--no-such-flag"], ["model", "info"], ["generate", "--temperature", "hot", "x"],
                      ["generate", "--proposer", "magic", "x"], ["generate", "-t", "-1", "x"], ["bench"],
                      ["ps", "--set", "speculation.draft_length=3"], ["ps", "--set", "speculation.draft_len=99"]):
            done = run(*words)
            self.assertEqual(2, done.returncode, words)
            self.assertNotEqual("", done.stderr, words)
            self.assertEqual("", done.stdout, words)

    def test_a_mistyped_second_word_names_the_nearest(self):
        for words, hint in ((["model", "inf"], "did you mean `foretoken model info`?"),
                            (["bench", "server"], "did you mean `foretoken bench serve`?"),
                            (["bench", "foo"], "it has: serve, latency, acceptance, compare, micro, schedule, memory"),
                            (["config", "chekc", "--json"], "did you mean `foretoken config check`?")):
            done = run(*words)
            self.assertEqual((2, ""), (done.returncode, done.stdout), words)
            self.assertIn(hint, done.stderr, words)

    def test_bench_micro_takes_the_shape_of_a_model_and_several_numbers_of_threads(self):
        words = ["bench", "micro", "--model", str(ROOT / "models/demo-draft"), "--rounds", "1", "--json"]
        done = run(*words, "--threads", "1,2", "--contexts", "16,40")
        self.assertEqual(0, done.returncode, done.stderr)
        reports = json.loads(done.stdout)
        self.assertEqual(2, len(reports))
        for n_threads, report in enumerate(reports, start=1):
            self.assertIn(f"cpu, {n_threads} thread", report["backend"])
            self.assertIn("demo-draft", report["shape"])
            rows = [(each["n_sequences"], each["n_rows"], each["context"]) for each in report["attention"]]
            self.assertEqual([(1, 1, 16), (1, 5, 16), (8, 1, 16), (1, 16, 16), (1, 1, 40), (1, 5, 40), (8, 1, 40), (1, 40, 40)], rows)
        done = run(*words, "--contexts", "0")
        self.assertEqual(2, done.returncode)
        self.assertIn("--contexts", done.stderr)
        done = run("bench", "micro", "--model", str(self.folder / "nothing"))
        self.assertEqual("", done.stdout)
        self.assertIn(str(self.folder / "nothing"), done.stderr)

    def test_bench_memory_reads_a_corpus_and_finds_its_texts_again(self):
        corpus = self.folder / "corpus"
        corpus.mkdir()
        for i in range(40):
            (corpus / f"{i:02}.txt").write_text("".join(f"the {n % 7} birds of day {n % 5} sing. " for n in range(i, i + 60)))
        (corpus / "picture.bin").write_bytes(b"\xff\xfe\x00")
        out = self.folder / "memory.json"
        done = run("bench", "memory", str(corpus), "--model", str(ROOT / "models/demo-target"), "--json", "--out", str(out))
        self.assertEqual(0, done.returncode, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report, json.loads(out.read_text()))
        self.assertEqual("foretoken.bench_memory/1", report["schema"])
        self.assertEqual(38, report["n_documents"])
        self.assertGreater(report["n_lookups"], 10)
        self.assertEqual(1, report["hit_share"])
        self.assertGreater(report["accepted_per_lookup"], 12)
        self.assertLessEqual(report["accepted_per_lookup"], report["guessed_per_lookup"])
        table = run("bench", "memory", str(corpus), "--model", str(ROOT / "models/demo-target"))
        self.assertIn("Mtok/s", table.stdout)
        self.assertIn("1 left out", table.stderr)
        few = run("bench", "memory", str(corpus / "01.txt"), "--model", str(ROOT / "models/demo-target"))
        self.assertNotEqual(0, few.returncode)
        self.assertIn("has 1 files of text; at least 20 are needed", few.stderr)
        self.assertIn("nothing", run("bench", "memory", str(self.folder / "nothing")).stderr)

    def test_a_mistyped_option_names_the_nearest_of_its_verb(self):
        for words, name, hint in ((["generate", "--temprature", "0.5", "x"], "--temprature", "--temperature"),
                                  (["generate", "--max-token=5", "x"], "--max-token", "--max-tokens"),
                                  (["chat", "-t", "0", "--sytem", "x"], "--sytem", "--system"),
                                  (["bench", "serve", "--num-prompt", "3"], "--num-prompt", "--num-prompts"),
                                  (["model", "info", "--jsn"], "--jsn", "--json"), (["up", "--draft-lenght", "3"], "--draft-lenght", "--draft-len"),
                                  (["up", "--detach", "--draft-lenght", "3"], "--draft-lenght", "--draft-len"),  # behind a flag
                                  (["ps", "--hots", "x"], "--hots", "--host")):
            done = run(*words)
            self.assertEqual((2, ""), (done.returncode, done.stdout), words)
            verb = " ".join(words[:2] if words[0] in ("bench", "model") else words[:1])
            self.assertEqual(f"error: foretoken {verb} has no option `{name}`\n  did you mean `{hint}`?\n  try: foretoken {verb} --help\n",
                             done.stderr)
        self.assertNotIn("did you mean", run("generate", "--zzzzzzzz", "x").stderr)
        # A value is no option, whatever it begins with, and a known option is not blamed for its value.
        self.assertIn("from 0 to 100", run("generate", "-t", "-5", "x").stderr)

    def test_a_host_is_an_address_a_name_or_a_path(self):
        for host, sentence in (("127.0.0.1:1", "no router answers at tcp://127.0.0.1:1\n"), ("localhost:1", "at tcp://127.0.0.1:1\n"),
                               ("tcp://127.0.0.1:1", "at tcp://127.0.0.1:1\n"), ("[::1]:1", "at tcp://[::1]:1\n"),
                               (f"ipc://{self.folder}/none", f"at ipc://{self.folder}/none\n")):
            for verb in (["ps"], ["top"], ["trace", "-o", str(self.folder / "trace.json")], ["generate", "x"], ["metrics"], ["demo"],
                         ["bench", "serve"]):
                done = run(*verb, "--host", host, "--set", f"bus.runtime_dir={self.folder}")
                self.assertEqual((3, ""), (done.returncode, done.stdout), done.stderr)
                self.assertIn(sentence, done.stderr)
        for host, sentence in (("no-such-host.invalid", "the host no-such-host.invalid has no address"), ("127.0.0.1:70000", "is no address of a system"),
                               ("127.0.0.1:", "is no address"), ("127.0.0.1:*", "is no address"), ("10.255.255.1", "there are no keys")):
            done = run("ps", "--host", host, "--set", f"bus.runtime_dir={self.folder}")
            self.assertEqual(2, done.returncode, done.stderr)
            self.assertIn(sentence, done.stderr)
        # It is stronger than the rest, and says its own name.
        done = run("ps", "--host", "127.0.0.1:1", "--set", "bus.client=tcp://127.0.0.1:2", "--set", f"bus.runtime_dir={self.folder}")
        self.assertIn("at tcp://127.0.0.1:1\n", done.stderr)

    def test_quantize_reports_size_and_logits_and_the_folder_loads(self):
        out = self.folder / "int8"
        done = run("model", "quantize", str(ROOT / "tests/fixtures/models/llama3"), str(out), "--to", "int8", "--no-compare", "--json")
        self.assertEqual(0, done.returncode, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(14, report["matrices"])
        self.assertLess(report["weight_bytes_after"], 0.7 * report["weight_bytes_before"])
        config = json.loads((out / "config.json").read_text())["quantization_config"]
        self.assertEqual(("compressed-tensors", "pack-quantized", ["lm_head"]),
                         (config["quant_method"], config["format"], config["ignore"]))
        self.assertEqual(0, run("model", "info", str(out)).returncode)
        tied = self.folder / "tied"
        done = run("model", "quantize", str(ROOT / "tests/fixtures/models/qwen2"), str(tied), "--to", "int8", "--lm-head", "--no-compare")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("--lm-head: the head is the embedding", done.stderr)
        self.assertEqual(["lm_head"], json.loads((tied / "config.json").read_text())["quantization_config"]["ignore"])
        again = run("model", "quantize", str(out), str(self.folder / "twice"), "--to", "fp8")
        self.assertIn("is quantised already", again.stderr)
        self.assertNotEqual(0, again.returncode)
        self.assertEqual(2, run("model", "quantize", str(out), str(self.folder / "x"), "--to", "int2").returncode)

    def test_quantize_writes_four_bits_in_groups(self):
        out, model = self.folder / "int4", ROOT / "models/demo-target"
        done = run("model", "quantize", str(model), str(out), "--to", "int4")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("70 matrices in int4, 10 of them in int8", done.stdout)
        self.assertRegex(done.stdout, r"computed in bfloat16 1, int4/32 60, int8 10: same likeliest token \d+ \(")
        config = json.loads((out / "config.json").read_text())["quantization_config"]
        first, second = (config["config_groups"][f"group_{i}"] for i in range(2))
        self.assertEqual(("pack-quantized", ["Linear"], 4, 32),
                         (config["format"], first["targets"], first["weights"]["num_bits"], first["weights"]["group_size"]))
        self.assertEqual((["re:.*[.]mlp[.]down_proj$"], 8), (second["targets"], second["weights"]["num_bits"]))
        self.assertLess(sum(f.stat().st_size for f in out.glob("*.safetensors")),
                        0.45 * sum(f.stat().st_size for f in model.glob("*.safetensors")))
        self.assertEqual(0, run("model", "check", str(out)).returncode)
        smaller = self.folder / "smaller"
        self.assertEqual(0, run("model", "check", str(out)).returncode)
        check = run("model", "check", str(out), "--set", "target.device=cuda")
        self.assertEqual(4, check.returncode)
        self.assertIn('target.device = "cuda": it needs a CPU, or model.dtype = "bfloat16"', check.stderr)
        done = run("model", "quantize", str(model), str(smaller), "--to", "int4", "--down-proj", "--no-compare")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertNotIn("in int8", done.stdout)
        self.assertEqual(["group_0"], list(json.loads((smaller / "config.json").read_text())["quantization_config"]["config_groups"]))
        self.assertEqual(0, run("model", "check", str(smaller)).returncode)
        text = self.folder / "calibrate.txt"
        text.write_text((ROOT / "README.md").read_text())
        done = run("model", "quantize", str(model), str(self.folder / "calibrated"), "--to", "int4", "--calibrate", str(text), "--json")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertGreater(json.loads(done.stdout)["calibration_tokens"], 512)
        self.assertEqual(0, run("model", "check", str(self.folder / "calibrated")).returncode)
        short = self.folder / "short.txt"
        short.write_text("hello")
        for flags, code, sentence in ((["--to", "int4", "--group", "48"], 2, "128"), (["--to", "int4", "--calibrate", str(short)], 2, "at least 512"),
                                      (["--to", "int4", "--calibrate", ""], 2, "--calibrate: the path is empty"), (["--to", "int8", "--calibrate", str(text)], 2, "--calibrate is of int4"),
                                      (["--to", "int4", "--calibrate", str(self.folder / "none")], 2, "--calibrate: "), (["--to", "int8", "--group", "64"], 2, "--group is of int4"),
                                      (["--to", "int8", "--down-proj"], 2, "--down-proj is of int4")):
            done = run("model", "quantize", str(model), str(self.folder / "x"), *flags)
            self.assertEqual((code, ""), (done.returncode, done.stdout))
            self.assertIn(sentence, done.stderr)
            self.assertFalse((self.folder / "x").exists())

    def test_compare_says_what_a_type_in_memory_does_to_the_logits(self):
        model = str(ROOT / "models/demo-target")
        errors = {}
        for dtype in ("float32", "int8", "int4"):
            done = run("model", "compare", model, "--dtype", dtype, "--json")
            self.assertEqual(0, done.returncode, done.stderr)
            report = json.loads(done.stdout)
            self.assertEqual(("foretoken.model_compare/1", dtype), (report["schema"], report["dtype"]))
            errors[dtype] = report["logits"]["mean_kl_nats"]
        self.assertIn("int4n/32 70", report["logits"]["computed_in"])
        self.assertLess(errors["float32"], errors["int8"])
        self.assertLess(errors["int8"], errors["int4"])
        self.assertLess(errors["int4"], 0.1)
        words = run("model", "compare", model, "--dtype", "int8")
        self.assertRegex(words.stdout, r"in int8: logits over \d+ positions, computed in int8 71: same likeliest token \d+ \(")
        empty = self.folder / "empty.txt"
        empty.touch()
        for flags, code, sentence in ((["--dtype", "int2"], 2, "int4"), ([], 2, "--dtype"),
                                      (["--dtype", "int8", "--text", str(empty)], 2, "is empty"),
                                      (["--dtype", "int8", "--text", str(self.folder / "none")], 2, "--text: ")):
            done = run("model", "compare", model, *flags)
            self.assertEqual(code, done.returncode, done.stderr)
            self.assertIn(sentence, done.stderr)
        self.assertNotEqual(0, run("model", "compare", str(self.folder / "none"), "--dtype", "int8").returncode)
        # A token that was added for training, without an embedding.
        padded = self.folder / "padded"
        padded.mkdir()
        for file in pathlib.Path(model).iterdir():
            (padded / file.name).symlink_to(file)
        tokenizer = json.loads((padded / "tokenizer.json").read_text())
        tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": 4096, "content": "[PAD]"})
        (padded / "tokenizer.json").unlink()
        (padded / "tokenizer.json").write_text(json.dumps(tokenizer))
        check = run("model", "check", str(padded))
        self.assertEqual((0, ""), (check.returncode, check.stderr))
        self.assertIn("tokens without an embedding: 1; prompts with them are refused\n", check.stdout)
        self.assertEqual(1, json.loads(run("model", "check", str(padded), "--json").stdout)["tokens_without_embedding"])
        self.assertNotIn("without an embedding", run("model", "check", model).stdout)
        text = self.folder / "padded.txt"
        text.write_text("once [PAD] " * 300)
        for verb in (["compare", str(padded), "--dtype", "int8", "--text"], ["quantize", str(padded), str(self.folder / "x"), "--to", "int8", "--text"],
                     ["quantize", str(padded), str(self.folder / "x"), "--to", "int4", "--calibrate"]):
            done = run("model", *verb, str(text))
            self.assertEqual(2, done.returncode, done.stderr)
            self.assertIn(f"{text} has token id 4096 ([PAD]); the model has 4096 ids, 0 to 4095", done.stderr)
            self.assertFalse((self.folder / "x").exists())

    def with_bytes_as_tokens(self, fixture):
        """A copy of a quantised fixture with a tokenizer, whose tokens are the 256 bytes."""
        folder = self.folder / fixture
        shutil.copytree(ROOT / "tests/fixtures/quantized" / fixture, folder)
        for name in ("config.json", "generation_config.json"):
            settings = json.loads((folder / name).read_text())
            (folder / name).write_text(json.dumps({key: value for key, value in settings.items() if key not in ("bos_token_id", "eos_token_id")}))
        shown = [*range(33, 127), *range(161, 173), *range(174, 256)]  # as GPT-2 writes bytes; the others follow at 256
        names = [chr(b) if b in shown else chr(256 + sum(o not in shown for o in range(b))) for b in range(256)]
        (folder / "tokenizer.json").write_text(json.dumps({
            "version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "vocab": {name: i for i, name in enumerate(names)}, "merges": []}}))
        return str(folder)

    def test_info_and_check_say_how_a_folder_is_quantised_and_what_a_dtype_makes_of_it(self):
        folder = self.with_bytes_as_tokens("gptq")
        stored = "quantised linears: gptq: int4 in groups of 64 with zero points"
        for verb in ("info", "check"):
            done = run("model", verb, folder)
            self.assertEqual((0, ""), (done.returncode, done.stderr))
            self.assertIn(stored + "\n", done.stdout)
            self.assertIn('model.dtype "auto": matrices as float16 2, int4z/64 14\n', done.stdout)
            for words in (["--dtype", "int8"], ["--set", "model.dtype=int8"]):
                self.assertIn('model.dtype "int8": matrices as int8 16\n', run("model", verb, folder, *words).stdout)
        report = json.loads(run("model", "info", folder, "--json").stdout)
        self.assertEqual({"method": "gptq", "int4": {"group": 64, "zero_points": True, "type": "int", "in_order": True}, "in_8_bits": None},
                         report["quantisation"])
        widened = json.loads(run("model", "info", folder, "--dtype", "float32", "--json").stdout)
        self.assertEqual(("float32", "float32 16"), (widened["model_dtype"], widened["held_as"]))
        self.assertGreater(widened["weight_bytes"], 2 * report["weight_bytes"])
        self.assertIsNone(json.loads(run("model", "info", "demo", "--json").stdout)["quantisation"])

    def test_a_folder_with_groups_out_of_order_is_checked_and_compared_widened(self):
        folder = self.with_bytes_as_tokens("gptq_act_order")
        why = (r'it needs another model\.dtype \("float32", "bfloat16", "float16", "int8"\): .*g_idx has groups whose columns do not '
               r"follow one another")
        for dtype in ("auto", "int4"):
            done = run("model", "check", folder, "--dtype", dtype)
            self.assertEqual((4, ""), (done.returncode, done.stdout))
            self.assertRegex(done.stderr, rf'error: model\.dtype = "{dtype}": {why}')
        report = run("model", "check", folder, "--json")
        self.assertEqual((4, False), (report.returncode, json.loads(report.stdout)["ok"]))
        done = run("model", "check", folder, "--dtype", "int8")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("int4 in groups of 32, groups out of order (desc_act)\n", done.stdout)
        done = run("model", "compare", folder, "--dtype", "int8")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertRegex(done.stdout, r"computed in int8 1\d beside the folder in float32 1\d: same likeliest")
        self.assertEqual(0, json.loads(run("model", "compare", folder, "--dtype", "float32", "--json").stdout)["logits"]["largest_error"])
        done = run("model", "compare", folder, "--dtype", "int4")
        self.assertEqual(4, done.returncode)
        self.assertIn("do not follow one another", done.stderr)

    def test_check_refuses_the_numbers_that_up_would_refuse(self):
        def checked(folder, *settings):
            done = run("model", "check", folder, *(word for setting in settings for word in ("--set", setting)))
            self.assertEqual(4 if done.stderr else 0, done.returncode, done.stderr)
            return done.stderr
        target, draft = str(ROOT / "models/demo-target"), str(ROOT / "models/demo-draft")
        self.assertEqual("", checked(target, "model.max_model_len=1024", "target.tensor_parallel=2"))
        self.assertEqual(f"error: model.max_model_len is 1025; {target} was made for at most 1024 positions\n",
                         checked(target, "model.max_model_len=1025"))
        self.assertRegex(checked(target, "target.tensor_parallel=3"),
                         r"error: target\.tensor_parallel is 3, but the model has 4 KV heads .*; possible: 1, 2")
        # A draft may be shorter than what is served, and has ranks of its own.
        served = [f"model.target={target}", f"model.draft={draft}"]
        self.assertEqual("", checked(draft, *served, "model.max_model_len=1025", "target.tensor_parallel=3"))
        self.assertIn("error: draft.tensor_parallel is 4, but", checked(draft, *served, "draft.tensor_parallel=4"))
        # The numbers of a declared model are for its folder.
        of_one = self.folder / "two.toml"
        of_one.write_text(f'[model.a]\ntarget = "{draft}"\ndraft = ""\n[model.b]\ntarget = "{target}"\nmax_model_len = 2000\n')
        for folder, code in ((draft, 0), (target, 4)):
            self.assertEqual(code, run("model", "check", folder, "--config", str(of_one)).returncode, folder)

    def test_check_refuses_ranks_that_would_begin_within_a_group(self):
        folder = self.with_bytes_as_tokens("gptq")
        done = run("model", "check", folder, "--set", "target.tensor_parallel=2")
        self.assertEqual(4, done.returncode, done.stdout)
        self.assertIn("use fewer ranks", done.stderr)
        self.assertEqual(0, run("model", "check", folder, "--set", "target.tensor_parallel=2", "--dtype", "int8").returncode)

    def test_tritons_files_become_a_configuration(self):
        fixtures = ROOT / "tests/fixtures/triton"
        done = run("import-triton", *map(str, sorted(fixtures.glob("*.pbtxt"))))
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        written = self.folder / "foretoken.toml"
        written.write_text(done.stdout)
        shown = run("config", "show", "--config", str(written))
        self.assertEqual(0, shown.returncode, shown.stderr)
        self.assertIn('target = "/models/llama-8b"', shown.stdout)
        broken = self.folder / "config.pbtxt"
        for text, words in (("max_batch_size: ${n}", "must be filled in"), ("x: {", "line 1"), (" " * 1048577, "1048576 bytes")):
            broken.write_text(text)
            done = run("import-triton", str(broken))
            self.assertEqual((2, ""), (done.returncode, done.stdout))
            self.assertIn(str(broken), done.stderr)
            self.assertIn(words, done.stderr)
        broken.write_text("max_batch_size: 8")
        for path in (str(broken), f"{self.folder}/./config.pbtxt"):
            self.assertIn(f"# From Triton's configuration of {self.folder.name}.", run("import-triton", path).stdout)
        self.assertEqual(2, run("import-triton", str(self.folder / "absent")).returncode)
        self.assertEqual(2, run("import-triton").returncode)

    def test_quantize_refuses_before_it_writes(self):
        source = self.folder / "source"
        shutil.copytree(ROOT / "models/demo-draft", source)
        latin, link, out = self.folder / "latin.txt", self.folder / "link", self.folder / "out"
        latin.write_bytes(b"caf\xe9")
        link.symlink_to(self.folder / "nowhere")
        for target, words, sentence in ((out, ["--text", "/nonexistent"], "/nonexistent: no such file"),
                                        (out, ["--text", str(latin)], "latin.txt is not UTF-8"),
                                        (out, ["--text", "/dev/null"], "/dev/null"),
                                        (out, ["--no-compare", "--text", str(latin)], "--no-compare compares nothing"),
                                        ("", [], "out: the path is empty"), (source, [], "exists already"),
                                        (source / "int8", [], "lies inside the folder it is made from"),
                                        (link, [], "a link to something that does not exist")):
            done = run("model", "quantize", str(source), str(target), "--to", "int8", *words)
            self.assertEqual((2, ""), (done.returncode, done.stdout), (sentence, done.stderr))
            self.assertIn(sentence, done.stderr)
            self.assertEqual(["latin.txt", "link", "source"], sorted(path.name for path in self.folder.iterdir()), sentence)
            self.assertFalse((source / "int8").exists())

    def test_quantize_compares_on_real_tokens(self):
        done = run("model", "quantize", str(ROOT / "models/demo-draft"), str(self.folder / "fp8"), "--to", "fp8", "--json")
        self.assertEqual(0, done.returncode, done.stderr)
        logits = json.loads(done.stdout)["logits"]
        self.assertGreater(logits["positions"], 100)
        self.assertGreater(logits["top1_agreement"], 0.8)
        self.assertGreater(logits["rms_error"], 0)
        self.assertIn("widened", logits["computed_in"])
        check = run("model", "check", str(self.folder / "fp8"))
        self.assertEqual((4, ""), (check.returncode, check.stdout))
        self.assertIn('error: target.device = "cpu": it needs a GPU, or model.dtype = "bfloat16": ', check.stderr)
        self.assertIn("float8_e4m3", json.loads(run("model", "check", str(self.folder / "fp8"), "--json").stdout)["needs"])
        for words in (["--dtype", "bfloat16"], ["--set", "target.device=cuda"]):
            self.assertEqual(0, run("model", "check", str(self.folder / "fp8"), *words).returncode, words)
        self.assertEqual("", json.loads(run("model", "check", str(ROOT / "models/demo-draft"), "--json").stdout)["needs"])

    def test_rows_too_long_for_int8_are_refused_not_aborted(self):
        source, out = self.folder / "long", self.folder / "int8"
        made = run("model", "init-random", str(source), "--layers", "1", "--hidden", "16", "--heads", "2", "--kv-heads", "1",
                   "--ffn", "70000")
        self.assertEqual(0, made.returncode, made.stderr)
        done = run("model", "quantize", str(source), str(out), "--to", "int8", "--no-compare")
        self.assertEqual(4, done.returncode, done.stderr)
        self.assertIn("at most 65536", done.stderr)
        self.assertFalse(out.exists())

    def test_help_and_version_are_found_by_any_spelling(self):
        self.assertEqual(run("--help").stdout, run("help").stdout)
        self.assertIn("generate", run("help").stdout)
        for verb in VERBS:
            self.assertEqual(run(*verb.split(), "--help").stdout, run("help", *verb.split()).stdout, verb)
        self.assertEqual((0, run("version").stdout), (run("--version").returncode, run("--version").stdout))
        self.assertEqual(2, run("help", "generat").returncode)

    def test_a_bad_number_is_refused_with_option_and_range(self):
        for words, option, limit in (
                (["generate", "-n", "-5", "x"], "--max-tokens", "from 0 to 4294967295"),
                (["generate", "-n", "1.5", "x"], "--max-tokens", "whole number"),
                (["generate", "--seed", "-1", "x"], "--seed", "from 0 to 18446744073709551615"),
                (["generate", "-t", "nan", "x"], "--temperature", "from 0 to 100"),
                (["generate", "-t", "inf", "x"], "--temperature", "from 0 to 100"),
                (["generate", "-t", "-1", "x"], "--temperature", "from 0 to 100"),
                (["generate", "--top-p", "0", "x"], "--top-p", "above 0 and at most 1"),
                (["generate", "--min-p", "1", "x"], "--min-p", "from 0 and below 1"),
                (["generate", "--frequency-penalty", "3", "x"], "--frequency-penalty", "from -2 to 2"),
                (["generate", "-k", "33", "x"], "--draft-len", "from 0 to 32"),
                (["generate", "--logit-bias", "5", "x"], "--logit-bias", "ID=BIAS"),
                (["generate", "--logit-bias", "5=101", "x"], "--logit-bias", "from -100 to 100"),
                (["generate", "--stop-token-ids", "-4", "x"], "--stop-token-ids", "from 0 to 2147483647"),
                (["generate", "--priority", "256", "x"], "--priority", "from 0 to 255"),
                (["generate", "--request-id", "abc", "x"], "--request-id", "32 hexadecimal digits"),
                (["generate", "--timeout", "0", "x"], "--timeout", "from 0.001 to 3600"),
                (["bench", "serve", "--request-rate", "nan"], "--request-rate", "from 0 to 10000"),
                (["bench", "serve", "--concurrency", "0"], "--concurrency", "from 1 to 4096"),
                (["bench", "serve", "--url", "https://x"], "--url", "http://HOST:PORT"),
                (["demo", "-n", "0"], "--max-tokens", "from 1 to"),
                (["up", "--drafts", "17"], "--drafts", "from 0 to 16"),
                (["up", "--port", "65536"], "--port", "from 0 to 65535"),
                (["up", "--tensor-parallel-size", "0"], "--tensor-parallel-size", "from 1 to 64"),
                (["up", "--tp", "65"], "--tensor-parallel-size", "from 1 to 64"),
                (["detokenize", "--", "-3"], "ids", "from 0 to")):
            done = run(*words)
            self.assertEqual((2, ""), (done.returncode, done.stdout), words)
            self.assertIn(option, done.stderr.split("\n")[0], words)
            self.assertIn(limit, done.stderr.split("\n")[0], words)

    def test_an_empty_name_is_not_one_that_was_not_given(self):
        for words, sentence in ((["model", "info", ""], "folder: the path is empty"), (["model", "check", ""], "folder: the path is empty"),
                                (["model", "pair", "", "demo"], "draft: the path is empty"), (["model", "pair", "demo", ""], "target: the path is empty"),
                                (["model", "compare", "demo", "--dtype", "int8", "--text", ""], "--text: the path is empty"),
                                (["model", "init-random", ""], "folder: the path is empty"), (["tokenize", "x", "--model="], "--model: the name is empty"),
                                (["generate", "x", "--host", ""], "--host: the address is empty"), (["generate", "x", "--host="], "--host: the address is empty"),
                                (["generate", "x", "--model", ""], "--model: the name is empty"), (["generate", "--messages", ""], "--messages: the path is empty"),
                                (["demo", "--model="], "--model: the name is empty"), (["up", "--target", ""], "--target: the path is empty"),
                                (["up", "--host", ""], "--host: the address is empty"), (["up", "--model="], "--target: the path is empty"),
                                (["run", ""], "file: the path is empty"), (["run", "x", "-o", ""], "--out: the path is empty"),
                                (["config", "init", "--out="], "--out: the path is empty"), (["config", "new-key", "-o", ""], "--out: the path is empty"),
                                (["bench", "serve", "--url", ""], "--url: the address is empty"), (["bench", "micro", "--out", ""], "--out: the path is empty"),
                                (["bench", "compare", ""], "files: the path is empty"), (["plot", "x", "-o", ""], "--out: the path is empty"),
                                (["trace", "-o", ""], "--out: the path is empty"), (["draft", "distil", "", "-o", "x"], "TARGET: the path is empty"),
                                (["config", "show", "--config", ""], "--config: the path is empty")):
            done = run(*words)
            self.assertEqual((2, ""), (done.returncode, done.stdout), (words, done.stderr))
            self.assertEqual(f"error: {sentence}", done.stderr.split("\n")[0], words)
        shown = run("config", "check", "--set", "model.draft=")
        self.assertEqual(0, shown.returncode, shown.stderr)
        # No draft, and no system message: these are something to say. The next to be missing is the router, or the target.
        self.assertEqual(3, run("generate", "--system", "", "x", *self.quiet_port).returncode)
        done = run("up", "--draft", "", "--target", "/nonexistent", *self.quiet_port)
        self.assertEqual(4, done.returncode, done.stderr)
        self.assertIn("/nonexistent", done.stderr)

    def test_an_error_of_the_configuration_is_printed_once(self):
        for words in (["model", "check", "demo"], ["model", "info", "demo"]):
            done = run(*words, "--dtype", "int3")
            self.assertEqual((2, ""), (done.returncode, done.stdout), words)
            self.assertRegex(done.stderr, r'\Aerror: --dtype: model\.dtype is "int3"; [^\n]*\n\Z')
        done = run("model", "pair", "self:int4", "demo", "--set", "model.dtype=int3")
        self.assertEqual((2, "", 1), (done.returncode, done.stdout, done.stderr.count("error:")), done.stderr)

    def test_config_check_refuses_an_empty_host_and_an_empty_alias(self):
        for setting, sentence in (("edge.host=", 'edge.host is ""; it must not be empty'),
                                  ('model.alias=[""]', 'model.alias has "" as element 1; no element may be empty')):
            done = run("config", "check", "--set", setting)
            self.assertEqual((2, ""), (done.returncode, done.stdout), done.stderr)
            self.assertIn(sentence, done.stderr)

    def test_sentences_speak_of_the_flag_that_was_typed(self):
        for words, sentence in ((["--dtype", "fp8"], "error: --dtype: model.dtype is \"fp8\""),
                                (["--client", "foo"], "error: --client: bus.client is \"foo\"; it must be tcp://ADDRESS:PORT or ipc://NAME\n"),
                                (["--set", "model.dtype=fp8"], "error: --set model.dtype: "),
                                (["--ctx-size", "1"], "no room for an answer")):
            done = run("up", *words, "--set", f"bus.runtime_dir={self.folder}")
            self.assertEqual((2, ""), (done.returncode, done.stdout))
            self.assertIn(sentence, done.stderr)

    def test_what_a_configuration_error_suggests_works(self):
        environment = {**os.environ, "FORETOKEN_MODEL_DTYP": "int8"}
        for words in (["up"], ["config", "show"], ["config", "check"]):
            done = subprocess.run([str(BIN / "foretoken"), *words], capture_output=True, text=True, timeout=60, env=environment)
            self.assertEqual(2, done.returncode, done.stderr)
            suggested = re.search(r"  try: foretoken ([a-z ]+),", done.stderr).group(1)
            helped = subprocess.run([str(BIN / "foretoken"), *suggested.split()], capture_output=True, text=True, timeout=60, env=environment)
            self.assertEqual(0, helped.returncode, helped.stderr)
            self.assertIn("dtype = ", helped.stdout)
        # A listing of keys does not help where the name is right: the sentence says what the value may be.
        for words in (["--dtype", "int5"], ["--port", "99999"], ["--draft", "self:int4", "--dtype", "int8"]):
            done = run("up", *words)
            self.assertEqual((2, 1), (done.returncode, done.stderr.count("\n")), done.stderr)

    def test_help_shows_its_own_examples_and_fails_on_a_full_disk(self):
        for group in ("model", "bench", "config"):
            text = run(group, "--help").stdout
            self.assertIn(f"Examples:\n  foretoken {group} ", text)
            self.assertNotIn("foretoken chat", text)
        self.assertNotIn("{false}", run("model", "quantize", "--help").stdout)
        with open("/dev/full", "w") as full:
            done = subprocess.run([str(BIN / "foretoken"), "--help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(1, done.returncode)
        self.assertIn("could not write", done.stderr)

    def test_a_folder_that_may_not_be_entered_is_called_that(self):
        closed = self.folder / "closed"
        shutil.copytree(ROOT / "models/demo-draft", closed / "model")
        closed.chmod(0)
        self.addCleanup(closed.chmod, 0o700)

        def unprivileged():
            self.folder.chmod(0o755)
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)

        for folder in (closed, closed / "model"):
            for words in (["model", "info"], ["model", "check"], ["tokenize", "hi", "--model"]):
                try:
                    done = subprocess.run([str(BIN.resolve() / "foretoken"), *words, str(folder)], capture_output=True, text=True,
                                          timeout=60, preexec_fn=unprivileged, cwd="/")
                except PermissionError:
                    self.skipTest("the programs are where only root may go")
                self.assertIn("Permission denied", done.stderr, words)
                self.assertIn(str(folder), done.stderr, words)
                self.assertEqual(4, done.returncode, (words, done.stderr))

    def test_a_stop_string_does_not_swallow_the_prompt(self):
        # Without a prompt this would be a usage error; with it only the router is missing.
        done = run("generate", "--stop", ".", "--stop", "!", "Once upon a time", *self.quiet_port)
        self.assertEqual(3, done.returncode, done.stderr)
        done = run("generate", "--system=", "Once upon a time", *self.quiet_port)
        self.assertEqual(3, done.returncode, done.stderr)

    def test_a_prediction_proposer_without_a_prediction_is_refused_before_anything_is_sent(self):
        done = run("generate", "--proposer", "prediction", "x", *self.quiet_port)
        self.assertEqual(2, done.returncode)
        self.assertIn("--prediction", done.stderr)

    def test_up_refuses_a_model_that_cannot_be_read_at_once(self):
        empty = self.folder / "empty"
        empty.mkdir()
        for words in (["--target", "/nonexistent"], ["--draft", "/nonexistent"], ["--target", str(empty)]):
            done = run("up", "--detach", *words, *self.quiet_port)
            self.assertEqual((4, ""), (done.returncode, done.stdout), done.stderr)
            self.assertIn(words[1], done.stderr)

    def assert_refused_before_a_start(self, code, sentence, *words):
        done = run("up", *words, *self.quiet_port)
        self.assertEqual((code, ""), (done.returncode, done.stdout), done.stderr)
        self.assertIn(sentence, done.stderr)
        self.assertFalse((self.folder / "log").exists(), "a service was started")
        return done.stderr

    def test_up_refuses_settings_that_a_model_cannot_have_before_it_starts_anything(self):
        target, draft = str(ROOT / "models/demo-target"), str(ROOT / "models/demo-draft")
        for detached in ([], ["--detach"]):
            self.assert_refused_before_a_start(2, f"error: model.max_model_len is 1025; {target} was made for at most 1024 positions\n",
                                               "--target", target, "--max-model-len", "1025", *detached)
            self.assert_refused_before_a_start(2, "error: target.tensor_parallel is 3, but the model has 4 KV heads", "--tp", "3", *detached)
        self.assert_refused_before_a_start(2, "error: draft.tensor_parallel is 4, but", "--draft", draft, "--set", "draft.tensor_parallel=4")
        self.assert_refused_before_a_start(2, "error: draft.tensor_parallel is 3, but", "--draft", "self:int4", "--set", "draft.tensor_parallel=3")
        self.assert_refused_before_a_start(4, 'error: draft.device = "cuda": it needs a CPU: GPUs multiply no weights of four bits',
                                           "--draft", "self:int4", "--set", "draft.device=cuda")
        # Each model by its name; a draft that is not started may have any number.
        said = self.assert_refused_before_a_start(2, "error: model b: model.max_model_len is 2000;", "--set", f"model.a.target={target}",
                                                  "--set", f"model.b.target={target}", "--set", "model.b.max_model_len=2000",
                                                  "--set", f"model.a.draft={draft}", "--set", "draft.a.tensor_parallel=4", "--drafts", "0")
        self.assertNotIn("draft.tensor_parallel", said)

    def test_a_draft_that_is_not_started_is_not_looked_at(self):
        # The start, after the checks, fails here: the file of the lock is a folder.
        (self.folder / "up.pid").mkdir()
        for drafts, code in (("1", 4), ("0", 6)):
            self.assertEqual(code, run("up", "--draft", "/nonexistent", "--drafts", drafts, *self.quiet_port).returncode, drafts)
        found, _ = self.findings("edge.port=0", "model.draft=/nonexistent", "model.drafts=0", "draft.device=cuda")
        self.assertEqual("ok", found["models"][0], found["models"])
        self.assertEqual(("ok", "target: cpu"), found["devices"])

    def test_up_names_what_a_trimmed_head_allows(self):
        folder = self.folder / "trimmed"
        self.assertEqual(0, run("model", "init-random", str(folder), "--tokenizer", "demo").returncode)
        trim_head(folder, [0, 2, *range(100, 1000)])
        self.assert_refused_before_a_start(2, "error: draft.tensor_parallel is 2, but the model's head has 902 of 4096 ids (draft_ids.i32), "
                                              "and such a head is not spread over ranks; possible: 1\n",
                                           "--draft", str(folder), "--set", "draft.tensor_parallel=2")

    def test_up_predicts_what_a_draft_of_the_target_itself_gains(self):
        # Printed before the start, which fails here: the file of the lock is a folder.
        (self.folder / "up.pid").mkdir()
        words = ["up", "--draft", "self:int4", *self.quiet_port]
        cost = json.loads(run("model", "pair", "--json", "self:int4", "demo").stdout)["draft_to_target_bytes"]
        done = run(*words)
        self.assertEqual(6, done.returncode, done.stderr)
        line = next(line for line in done.stderr.split("\n") if line.startswith("note: "))
        self.assertRegex(line, rf"^note: self:int4: a draft step reads {100 * cost:.1f} % of a target step's bytes; predicted, greedy: "
                               rf"{9 / (8 * cost + 1):.2f} x plain decoding with every guess right, .* no gain with {100 * cost:.1f} % or fewer "
                               r"\(foretoken model pair self:int4 demo measures how many are right\)$")
        done = run(*words, "--draft-len", "1")
        self.assertIn(f"{2 / (cost + 1):.2f} x plain decoding with every guess right", done.stderr)
        for more in (["--quiet"], ["--drafts", "0"]):
            self.assertNotIn("self:int4", run(*words, *more).stderr)

    def test_up_says_at_once_which_line_its_key_lacks(self):
        key, peers = self.folder / "up.key", self.folder / "peers"
        public = run("config", "new-key", "-o", str(key)).stdout.strip()
        other = run("config", "new-key", "-o", str(self.folder / "other.key")).stdout.strip()
        for door in ("tcp://10.1.2.3:5555", "tcp://127.0.0.1:5555"):
            line = f"{public} tool:up {door}"
            for lines, more, sentence in (
                    ("", [], f"does not list that key; the line must be: {line}"),
                    (f"{public} router:router-0 {door}", [], f"as router:router-0, which is no client; the line must be: {line}"),
                    (f"{public} tool:up", [], f"lists no key for {door}"),
                    (f"{public} tool:up\n{other} tool:x {door}", [], f"lists another key for {door}"),
                    (line, ["--set", "bus.router=tcp://10.1.2.3:5556"], "every service needs a key of its own"),
                    # Nothing more to say about the keys: the next to be looked at is the model.
                    (line, ["--target", "/nonexistent"], "/nonexistent")):
                peers.write_text(lines + "\n")
                done = run("up", "--detach", "--set", f"bus.client={door}", "--set", f"bus.runtime_dir={self.folder}",
                           "--set", f"bus.curve_secret={key}", "--set", f"bus.curve_peers={peers}", *more)
                self.assertEqual((4 if "--target" in more else 2, ""), (done.returncode, done.stdout), done.stderr)
                self.assertIn(sentence, done.stderr)

    def test_up_says_that_its_runtime_folder_cannot_be_written_to(self):
        folder = "/proc/sys/fs"  # by root either
        for words in (["up", "--detach"], ["up"]):
            done = run(*words, *self.quiet_port, "--set", f"bus.runtime_dir={folder}")
            self.assertEqual((6, ""), (done.returncode, done.stdout), done.stderr)
            self.assertRegex(done.stderr, rf"^error: up keeps its files and logs in bus.runtime_dir, and {folder}\S* cannot be written: "
                                          r"[^;]+; make it writable, or name another folder \(--set bus.runtime_dir=/FOLDER\)\n$")

    def test_a_runtime_folder_that_is_unfit_is_the_environments_fault(self):
        open_to_all = pathlib.Path(self.folder) / "open"
        open_to_all.mkdir()
        open_to_all.chmod(0o777)
        for folder in ("/proc/none", str(open_to_all), f"{self.folder}/{'x' * 200}"):
            for verb in ("up", "up --detach"):
                done = run(*verb.split(), *self.quiet_port, "--set", f"bus.runtime_dir={folder}")
                self.assertEqual((6, ""), (done.returncode, done.stdout), done.stderr)
                self.assertIn("runtime_dir", done.stderr)

    def test_an_unknown_key_names_the_nearest(self):
        done = run("ps", "--set", "speculation.draft_length=3")
        self.assertIn("draft_len", done.stderr)

    def test_no_router_exits_3_and_says_what_to_do(self):
        for words in (["ps"], ["generate", "hello"], ["chat"], ["demo"], ["bench", "serve"], ["bench", "latency"], ["bench", "acceptance"]):
            done = run(*words, *self.quiet_port)
            self.assertEqual(3, done.returncode, f"{words}: {done.stderr}")
            self.assertIn("foretoken up", done.stderr)

    def test_down_without_anything_running_is_fine(self):
        done = run("down", *self.quiet_port)
        self.assertEqual((0, "nothing to stop\n"), (done.returncode, done.stderr))

    def test_tokenize_and_back(self):
        text = "Once upon a time, \U0001f98a said {\"a\": 1}.\n"
        ids = json.loads(run("tokenize", "--json", "--model", str(ROOT / "models/demo-target"), text).stdout)["ids"]
        self.assertGreater(len(ids), 5)
        back = run("detokenize", "--json", "--model", str(ROOT / "models/demo-target"), *map(str, ids))
        self.assertEqual(text, json.loads(back.stdout)["text"])

    def test_tokenizer_errors_name_folder_and_file(self):
        for model, words in (("none", "is not a folder"), ("", "no tokenizer.json and no tokenizer.model")):
            done = run("tokenize", "--model", str(self.folder / model), "hi")
            self.assertEqual((4, ""), (done.returncode, done.stdout), done.stderr)
            self.assertIn(words, done.stderr)
            self.assertIn(str(self.folder), done.stderr)
        (self.folder / "tokenizer.json").write_text('{"model": {"vocab": [["a", -1.0]], "type": "Unigram"}}')
        done = run("tokenize", "--model", str(self.folder), "hi")
        self.assertEqual(4, done.returncode)
        for words in ("tokenizer.json", "Unigram", "expected BPE", str(self.folder)):
            self.assertIn(words, done.stderr)

    def test_detokenize_refuses_an_id_outside(self):
        done = run("detokenize", "--model", str(ROOT / "models/demo-target"), "999999")
        self.assertEqual(2, done.returncode)
        self.assertIn("999999", done.stderr)

    def test_a_random_model_gets_the_whole_tokenizer(self):
        # Its end token is in added_tokens.json, and special_tokens_map.json alone names it.
        source, out = self.folder / "sentencepiece", self.folder / "random"
        source.mkdir()
        shutil.copy(ROOT / "tests/tokenizer/fixtures/sentencepiece_bpe/tokenizer.model", source)
        (source / "added_tokens.json").write_text('{"<|im_end|>": 640}')
        (source / "special_tokens_map.json").write_text('{"bos_token": "<s>", "eos_token": "<|im_end|>"}')
        made = run("model", "init-random", str(out), "--tokenizer", str(source))
        self.assertEqual(0, made.returncode, made.stderr)
        self.assertEqual([640], json.loads((out / "config.json").read_text())["eos_token_id"])
        for name in ("tokenizer.model", "added_tokens.json", "special_tokens_map.json"):
            self.assertEqual((source / name).read_bytes(), (out / name).read_bytes(), name)
        done = run("model", "check", str(out))
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def test_random_models_are_the_same_every_time(self):
        for name in ("a", "b"):
            done = run("model", "init-random", str(self.folder / name), "--family", "qwen3", "--seed", "5",
                       "--tokenizer", "demo", "--vocab", "4096")
            self.assertEqual(0, done.returncode, done.stderr)
        files = sorted(p.name for p in (self.folder / "a").iterdir())
        self.assertIn("tokenizer.json", files)
        for name in files:
            self.assertEqual((self.folder / "a" / name).read_bytes(), (self.folder / "b" / name).read_bytes(), name)
        info = json.loads(run("model", "info", "--json", str(self.folder / "a")).stdout)
        self.assertEqual(("qwen3", 4096), (info["family"], info["vocab"]))
        self.assertEqual(0, run("model", "check", str(self.folder / "a")).returncode)
        again = run("model", "init-random", str(self.folder / "a"))
        self.assertEqual(2, again.returncode)

    def test_a_random_model_has_the_positions_it_was_given(self):
        for flags, context in (([], 2048), (["--positions", "16384"], 16384), (["--positions", "1"], 1)):
            folder = str(self.folder / f"p{context}")
            made = run("model", "init-random", folder, *flags, "--json")
            self.assertEqual(0, made.returncode, made.stderr)
            self.assertEqual(context, json.loads(made.stdout)["context"])
            self.assertEqual(context, json.loads(pathlib.Path(folder, "config.json").read_text())["max_position_embeddings"])
        for wrong in ("0", "-1", "16777217", "16k", "1e4", ""):
            done = run("model", "init-random", str(self.folder / "wrong"), "--positions", wrong)
            self.assertEqual(2, done.returncode, wrong)
            self.assertIn("--positions", done.stderr)
            self.assertIn("from 1 to 16777216", done.stderr)
            self.assertFalse((self.folder / "wrong").exists())

    def test_a_random_model_has_heads_of_an_even_size(self):
        for flags, hidden, heads in ((["--hidden", "63"], 63, 4), (["--hidden", "60"], 60, 4), (["--heads", "48"], 64, 48)):
            done = run("model", "init-random", str(self.folder / "odd"), *flags)
            self.assertEqual((2, False), (done.returncode, (self.folder / "odd").exists()), done.stderr)
            self.assertIn(f"a hidden size of {hidden} (--hidden) cannot be divided into {heads} heads (--heads) of an even size", done.stderr)

    def test_model_errors_exit_4_and_name_the_file(self):
        done = run("model", "info", str(self.folder / "none"))
        self.assertEqual(4, done.returncode)
        self.assertIn("none", done.stderr)
        broken = self.folder / "broken"
        shutil.copytree(ROOT / "models/demo-draft", broken)
        config = json.loads((broken / "config.json").read_text())
        config["architectures"], config["model_type"] = ["MixtralForCausalLM"], "mixtral"
        (broken / "config.json").write_text(json.dumps(config))
        done = run("model", "check", str(broken))
        self.assertEqual(4, done.returncode, done.stderr)
        self.assertIn("Mixtral", done.stderr)

    def test_a_pair_with_other_vocabularies_is_refused_by_token(self):
        for name in ("one", "two"):
            run("model", "init-random", str(self.folder / name), "--tokenizer", "demo", "--vocab", "4096")
        tokenizer = self.folder / "two" / "tokenizer.json"
        text = json.loads(tokenizer.read_text())
        vocab = text["model"]["vocab"]
        a, b = [token for token, number in vocab.items() if number in (300, 301)]
        vocab[a], vocab[b] = vocab[b], vocab[a]
        tokenizer.write_text(json.dumps(text))
        done = run("model", "pair", str(self.folder / "one"), str(self.folder / "two"))
        self.assertEqual(4, done.returncode)
        self.assertIn("disagree about 2 tokens", done.stderr)
        self.assertEqual(0, run("model", "pair", str(self.folder / "one"), str(self.folder / "one")).returncode)

    def test_a_pair_is_warned_of_tokens_that_the_draft_has_no_embedding_for(self):
        for name, vocab in (("draft", "4096"), ("target", "4100")):
            made = run("model", "init-random", str(self.folder / name), "--tokenizer", "demo", "--vocab", vocab)
            self.assertEqual(0, made.returncode, made.stderr)
            tokenizer = self.folder / name / "tokenizer.json"
            text = json.loads(tokenizer.read_text())
            text["added_tokens"] += [{**text["added_tokens"][0], "id": 4096 + i, "content": f"[ADDED{i}]"} for i in range(2)]
            tokenizer.write_text(json.dumps(text))
        paired = run("model", "pair", str(self.folder / "draft"), str(self.folder / "target"))
        self.assertEqual(0, paired.returncode, paired.stderr)
        self.assertIn("warning: the draft has no embedding for 2 of the target's tokens", paired.stderr)
        paired = run("model", "pair", str(self.folder / "target"), str(self.folder / "draft"))
        self.assertNotIn("no embedding", paired.stderr)

    def test_a_random_model_with_a_tokenizer_fits_those_that_have_it(self):
        made = run("model", "init-random", str(self.folder / "fits"), "--tokenizer", "demo")
        self.assertEqual(0, made.returncode, made.stderr)
        self.assertEqual(0, run("model", "check", str(self.folder / "fits")).returncode)
        paired = run("model", "pair", str(self.folder / "fits"), "demo")
        self.assertEqual(0, paired.returncode, paired.stderr)

    def test_logits_that_are_not_finite_are_not_compared(self):
        folder = self.folder / "infinite"
        write_infinite_model(folder)
        for words in (["model", "compare", str(folder), "--dtype", "float32"],
                      ["model", "pair", "self:int4", str(folder)],
                      ["model", "quantize", str(folder), str(self.folder / "out"), "--to", "int8"]):
            done = run(*words)
            self.assertEqual(4, done.returncode, (words, done.stdout, done.stderr))
            self.assertIn("are not all finite", done.stderr, words)
            self.assertNotIn("nan", done.stdout, words)
            self.assertEqual(words[1] == "quantize", "out is written" in done.stderr, words)

    def test_a_self_draft_is_weighed_against_the_targets_dtype(self):
        paired = [json.loads(run("model", "pair", "--json", "self:int4", "demo", "--set", f"model.dtype={dtype}").stdout)
                  for dtype in ("bfloat16", "float32")]
        self.assertAlmostEqual(2, paired[0]["draft_to_target_bytes"] / paired[1]["draft_to_target_bytes"], delta=0.05)

    def test_a_trimmed_head_is_a_drafts(self):
        folder = self.folder / "trimmed"
        self.assertEqual(0, run("model", "init-random", str(folder), "--tokenizer", "demo").returncode)
        trim_head(folder, [0, 2, *range(100, 1000)])
        self.assertEqual(902, json.loads(run("model", "info", "--json", str(folder)).stdout)["head_ids"])
        self.assertIn("vocabulary 4096, head of 902 ids", run("model", "info", str(folder)).stdout)
        checked = run("model", "check", str(folder))
        self.assertEqual(0, checked.returncode, checked.stderr)
        self.assertIn("needs the place of a draft: its head has 902 of 4096 ids", checked.stdout)
        paired = run("model", "pair", "--json", str(folder), "demo")
        self.assertEqual(0, paired.returncode, paired.stderr)
        config = json.loads((folder / "config.json").read_text())
        read = (folder / "model.safetensors").stat().st_size - 4096 * config["hidden_size"] * 4
        target = sum(p.stat().st_size for p in (ROOT / "models/demo-target").glob("*.safetensors"))
        self.assertAlmostEqual(read / target, json.loads(paired.stdout)["draft_to_target_bytes"], delta=0.002)
        for words in (["model", "compare", str(folder), "--dtype", "int8"], ["model", "pair", "self:int4", str(folder)],
                      ["model", "quantize", str(folder), str(self.folder / "out"), "--to", "int8"]):
            refused = run(*words)
            self.assertEqual(4, refused.returncode, words)
            self.assertIn("needs logits of every id", refused.stderr, words)

    def test_a_trimmed_head_is_no_targets_whoever_is_asked(self):
        folder = self.folder / "trimmed"
        self.assertEqual(0, run("model", "init-random", str(folder), "--tokenizer", "demo").returncode)
        trim_head(folder, [0, 2, *range(100, 1000)])
        why = f"{folder}: has a head for 902 of 4096 ids (draft_ids.i32), which is enough for a draft; a target needs logits of every id"
        as_target = ["--set", f"model.target={folder}", *self.quiet_port]
        for words in (["model", "pair", "demo", str(folder)], ["config", "check", *as_target],
                      *(["up", "--draft", draft, *as_target] for draft in ("demo", "self:int4", ""))):
            refused = run(*words)
            self.assertEqual(4, refused.returncode, words)
            self.assertIn(f"error: {why}\n", refused.stderr, words)
            self.assertNotIn("ok:", refused.stdout, words)
        examined = run("doctor", "--json", *as_target)
        self.assertEqual(6, examined.returncode, examined.stderr)
        self.assertIn({"subject": "models", "level": "bad", "sentence": why}, json.loads(examined.stdout)["findings"])
        of_one = self.folder / "two.toml"
        of_one.write_text(f'[model.a]\ntarget = "demo"\n[model.b]\ntarget = "{folder}"\n')
        refused = run("config", "check", "--config", str(of_one))
        self.assertEqual(4, refused.returncode)
        self.assertEqual(f"error: {why}\n  in: model.b.target\n", refused.stderr)
        needs = f'error: model.target = "{folder}": it needs the place of a draft: its head has 902 of 4096 ids\n'
        for words in (["--set", f"model.target={folder}"], ["--config", str(of_one)]):
            refused = run("model", "check", str(folder), *words)
            self.assertEqual((4, "", needs), (refused.returncode, refused.stdout, refused.stderr), words)
        as_draft = run("model", "check", str(folder), "--set", f"model.draft={folder}")
        self.assertEqual((0, ""), (as_draft.returncode, as_draft.stderr))

    def test_a_folder_that_cannot_be_looked_at_is_another_users(self):
        checked = run("config", "check", "--set", "model.target=/" + "x" * 300)
        self.assertEqual((0, ""), (checked.returncode, checked.stderr))

    def test_draft_distil_says_what_is_wrong_before_it_begins(self):
        out = str(self.folder / "out")
        for words, code, why in (
            (["--shape", "100x3"], 2, 'it must be a width, x and layers'), (["--shape", "128x"], 2, '--shape is "128x"'),
            (["--python", "/no/such/python"], 6, "--python: /no/such/python cannot be run"), (["--head", "1"], 2, "--head"),
            (["--set", "speculation.draft_length=3"], 2, "did you mean"), (["--set", "target.threads=-1"], 2, "target.threads"),
            (["--set", "model.dtype=int8"], 2, "draft distil sets it for the system that it starts; see --dtype"),
            (["--config", "/dev/null"], 2, "--config: the system that draft distil starts reads no configuration file"),
            (["--host", "127.0.0.1:1"], 3, "no router answers at tcp://127.0.0.1:1")):
            done = run("draft", "distil", "demo", "--out", out, *words)
            self.assertEqual(code, done.returncode, done.stderr)
            self.assertIn(why, done.stderr)
        for target in (str(self.folder / "nothing"), str(self.folder)):
            done = run("draft", "distil", target, "--out", out)
            self.assertEqual(4, done.returncode, done.stderr)
            self.assertIn(target, done.stderr)
        bare = self.folder / "python"  # one without packages
        bare.write_text(f"#!{sys.executable} -IS\nimport runpy, sys\nsys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')\n")
        bare.chmod(0o755)
        done = run("draft", "distil", "demo", "--out", out, "--python", str(bare))
        self.assertEqual(6, done.returncode, done.stderr)
        self.assertIn("has no numpy, safetensors, torch", done.stderr)
        self.assertIn("pip install torch", done.stderr)
        self.assertFalse(pathlib.Path(out).exists())
        # What is wrong with the arguments comes before what Python lacks.
        one, kept = self.folder / "one.txt", self.folder / "kept"
        one.write_text("once\n")
        kept.mkdir()
        (kept / "config.json").write_text("{}")
        for words, why in ((["--prompts", str(self.folder / "none.txt")], f"--prompts: cannot read {self.folder}/none.txt: "),
                           (["--prompts", str(one)], "has 1 different prompts; at least 2 are needed"),
                           (["--out", str(kept)], f"--out {kept} is there and is no draft that was begun"),
                           (["--out", str(one / "draft")], f"--out {one}/draft cannot be made: Not a directory"),
                           (["--out", str(ROOT / "models/demo-target")], "--out is the target's own folder")):
            done = run("draft", "distil", "demo", "--python", str(bare), *([] if "--out" in words else ["--out", out]), *words)
            self.assertEqual(2, done.returncode, done.stderr)
            self.assertIn("error: " + why if why.startswith("--") else why, done.stderr)
            self.assertFalse(pathlib.Path(out).exists())

    def test_config_init_is_valid_and_has_every_key(self):
        path = self.folder / "foretoken.toml"
        self.assertEqual(0, run("config", "init", "-o", str(path)).returncode)
        self.assertEqual(0, run("config", "check", "--config", str(path)).returncode)
        self.assertEqual(2, run("config", "init", "-o", str(path)).returncode)
        path.write_text(path.read_text() + "\n[nonsense]\nx = 1\n")
        done = run("config", "check", "--config", str(path))
        self.assertEqual(2, done.returncode)
        self.assertIn("nonsense", done.stderr)

    def test_a_new_key_is_for_its_owner_alone_and_never_overwrites(self):
        path = self.folder / "draft-0.key"
        done = run("config", "new-key", "-o", str(path))
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(0o600, path.stat().st_mode & 0o777)
        self.assertRegex(done.stdout, r"^\S{40}\n$")
        before = path.read_text()
        self.assertIn(f'public = "{done.stdout.strip()}"', before)
        secret = before.split('secret = "')[1].split('"')[0]
        self.assertNotIn(secret, done.stdout + done.stderr)
        self.assertEqual(2, run("config", "new-key", "-o", str(path)).returncode)
        self.assertEqual(before, path.read_text())

    def test_a_file_that_does_not_fit_leaves_nothing(self):
        def full_disk():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))

        path = self.folder / "out"
        for words in (["config", "new-key"], ["config", "init"], ["config", "schema"], ["bench", "micro", "--rounds", "1"]):
            done = subprocess.run([str(BIN / "foretoken"), *words, "--out", str(path)], capture_output=True, text=True, timeout=120,
                                  preexec_fn=full_disk)
            self.assertEqual(1, done.returncode, (words, done.stderr))
            self.assertIn(f"cannot write {path}: ", done.stderr)
            self.assertEqual([], list(self.folder.iterdir()), words)

    def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(self):
        corpus = self.folder / "corpus"
        corpus.mkdir()
        # Refused as such: not for the router that is missing, the texts that are, or after an hour.
        verbs = [["bench", verb, *self.quiet_port] for verb in ("serve", "latency", "acceptance")]
        verbs += [["bench", "micro"], ["bench", "memory", str(corpus), "--model", "demo"], ["trace", *self.quiet_port],
                  ["bench", "schedule"], ["bench", "schedule", "--sweep"]]
        for words in verbs:
            for path in (self.folder / "none" / "x.json", corpus):
                done = run(*words, "--out", str(path))
                self.assertEqual((1, ""), (done.returncode, done.stdout), words)
                self.assertIn(f"error: cannot write {path}: ", done.stderr, words)
                self.assertNotIn("measuring", done.stderr, words)
        done = run("bench", "schedule", "--sweep", "--plot", str(self.folder / "none" / "x.svg"))
        self.assertEqual((1, ""), (done.returncode, done.stdout))
        self.assertIn("cannot write ", done.stderr)
        self.assertIn("--plot", done.stderr)
        self.assertEqual([], list(corpus.iterdir()))
        without = {**os.environ, "PATH": str(corpus)}
        done = subprocess.run([str(BIN / "foretoken"), "bench", "schedule", "--sweep", "--plot", str(self.folder / "x.svg")],
                              capture_output=True, text=True, timeout=60, env=without)
        self.assertEqual((6, ""), (done.returncode, done.stdout))
        self.assertIn("gnuplot draws the pictures and is not installed", done.stderr)

    def test_doctor_names_what_a_device_lacks(self):
        missing = str(self.folder / "libforetoken_cuda.so")
        environment = {**os.environ, "FORETOKEN_CUDA_LIBRARY": missing}
        for setting, fit in (("target.device=cuda", False), ("draft.device=cuda:1", False), ("target.device=cpu", True)):
            done = subprocess.run([str(BIN / "foretoken"), "doctor", "--json", "--set", setting, *self.quiet_port], cwd=ROOT,
                                  env=environment, capture_output=True, text=True, timeout=60)
            [devices] = [f for f in json.loads(done.stdout)["findings"] if f["subject"] == "devices"]
            self.assertEqual("ok" if fit else "bad", devices["level"], setting)
            if not fit:
                self.assertEqual(6, done.returncode, setting)
                self.assertIn(missing, devices["sentence"], setting)

    def findings(self, *settings):
        """What `doctor` finds, subject -> (level, sentence), and its exit code."""
        done = run("doctor", "--json", "--set", f"bus.runtime_dir={self.folder}", *(word for s in settings for word in ("--set", s)))
        return {f["subject"]: (f["level"], f["sentence"]) for f in json.loads(done.stdout)["findings"]}, done.returncode

    def test_doctor_names_what_up_would_refuse(self):
        target = str(ROOT / "models/demo-target")
        for settings, sentences in (
                ([], ["the services can load them with these settings"]),
                (["model.max_model_len=1000000"], ["model.max_model_len is 1000000; "]),
                (["model.draft=/nonexistent"], ["/nonexistent"]),
                (["target.tensor_parallel=3"], ["target.tensor_parallel is 3, but the model has 4 KV heads"]),
                ([f"model.a.target={target}", f"model.b.target={target}", "model.b.max_model_len=2000", "target.a.tensor_parallel=3"],
                 ["model a: target.tensor_parallel is 3", "model b: model.max_model_len is 2000;"])):
            done = run("doctor", "--json", *self.quiet_port, "--set", "edge.port=0", *(word for s in settings for word in ("--set", s)))
            found = [f for f in json.loads(done.stdout)["findings"] if f["subject"] == "models"]
            self.assertEqual([("bad" if settings else "ok")] * len(sentences), [f["level"] for f in found], found)
            for finding, sentence in zip(found, sentences):
                self.assertIn(sentence, finding["sentence"])
            if settings:
                self.assertEqual(6, done.returncode)

    def test_doctor_compares_memory_with_the_weights_of_the_configured_models(self):
        weights = json.loads(run("model", "info", "demo", "--json").stdout)["weight_bytes"]
        found, _ = self.findings("edge.port=0", "model.draft=")
        self.assertRegex(found["memory"][1], rf"^\d+ MiB free; the weights of the configured models take {weights >> 20} MiB$")
        large = self.folder / "large"
        self.assertEqual(0, run("model", "init-random", str(large), "--tokenizer", "demo").returncode)
        enlarge(large, n_layers=1000)
        found, code = self.findings("edge.port=0", "bus.client=tcp://127.0.0.1:1", "model.draft=", f"model.target={large}")
        self.assertEqual(("bad", 6), (found["memory"][0], code))
        self.assertRegex(found["memory"][1], r" take \d{6,} MiB; the services need some 256 MiB more$")

    def test_doctor_says_whether_a_service_may_open_enough_files(self):
        for most, level in ((127, "bad"), (128, "warning"), (1023, "warning"), (1024, "ok")):
            done = subprocess.run([str(BIN / "foretoken"), "doctor", "--json", "--set", "edge.port=0", *self.quiet_port], capture_output=True,
                                  text=True, timeout=60, preexec_fn=lambda most=most: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
            [found] = [f for f in json.loads(done.stdout)["findings"] if f["subject"] == "open files"]
            self.assertEqual(level, found["level"], found)
            self.assertIn(f"may have {most}", found["sentence"])
            if level == "bad":
                self.assertEqual(6, done.returncode)
                self.assertIn("needs 128 at least: raise the limit", found["sentence"])

    def test_doctor_looks_at_both_ports(self):
        port = free_port()
        with socket.create_server(("127.0.0.1", port)):
            for subject, setting, address in (("client port", f"bus.client=tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{port}"),
                                              ("HTTP port", f"edge.port={port}", f"http://127.0.0.1:{port}")):
                found, code = self.findings(setting)
                self.assertEqual(6, code)
                self.assertEqual("bad", found[subject][0])
                self.assertIn(f"{address} is taken by another program", found[subject][1])
        found, _ = self.findings(f"edge.port={port}")
        self.assertEqual(("ok", f"http://127.0.0.1:{port} is free"), found["HTTP port"])
        found, code = self.findings("edge.host=192.0.2.1", f"edge.port={port}")
        self.assertEqual(("bad", 6), (found["HTTP port"][0], code))
        self.assertIn("is no address of this machine", found["HTTP port"][1])

    def test_doctor_names_what_requests_without_a_tenant_share(self):
        subject = "memory of texts"
        keys = self.folder / "keys"
        keys.write_text("me " + hashlib.sha256(b"secret").hexdigest() + "\n")
        self.assertNotIn(subject, self.findings("edge.port=0")[0])
        for settings, level, sentence in (([], "warning", "requests without a tenant share one memory"),
                                          (["memory.share=all"], "warning", "all tenants share it"),
                                          (["memory.share=off"], "ok", "its own text alone"),
                                          (["bus.client=ipc://client"], "warning", "requests without a tenant"),
                                          (["bus.client=ipc://client", f"edge.key_file={keys}"], "ok", "each tenant has its own")):
            found, _ = self.findings("edge.port=0", "memory.start=true", *settings)
            self.assertEqual(level, found[subject][0], settings)
            self.assertIn(sentence, found[subject][1])

    def test_a_memory_that_requests_do_not_use_is_warned_of(self):
        why = "memory.start is true, but speculation.proposer is draft, ngram"
        settings = ["memory.start=true", "speculation.proposer=draft,ngram"]
        sets = [word for setting in settings for word in ("--set", setting)]
        checked = run("config", "check", *sets)
        self.assertEqual(0, checked.returncode, checked.stderr)
        self.assertIn(f"warning: {why}", checked.stderr)
        self.assertEqual("", run("config", "check", "--set", "memory.start=true").stderr)
        found, _ = self.findings("edge.port=0", *settings)
        self.assertEqual("warning", found["settings"][0])
        self.assertIn(why, found["settings"][1])
        self.assertNotIn("settings", self.findings("edge.port=0", "memory.start=true")[0])
        begun = run("up", "--memory", "--proposer", "draft,ngram", "--target", str(self.folder / "none"), *self.quiet_port)
        self.assertEqual(4, begun.returncode, begun.stderr)
        self.assertIn(f"warning: {why}", begun.stderr)

    def test_doctor_refuses_keys_that_the_edge_would_refuse(self):
        keys = self.folder / "keys"
        keys.write_text("me " + hashlib.sha256(b"secret").hexdigest() + "\n")
        bad = self.folder / "bad"
        bad.write_text("me secret\n")
        for settings, level, sentence in (([], "ok", "any client on this machine may ask"), ([f"edge.key_file={keys}"], "ok", str(keys)),
                                          (["edge.host=0.0.0.0"], "bad", "set edge.key_file"),
                                          (["edge.host=0.0.0.0", f"edge.key_file={keys}"], "ok", str(keys)),
                                          ([f"edge.key_file={bad}"], "bad", f"{bad} line 1: "),
                                          ([f"edge.key_file={self.folder}/absent"], "bad", "/absent")):
            found, code = self.findings("edge.port=0", *settings)
            self.assertEqual(level, found["HTTP keys"][0], settings)
            self.assertIn(sentence, found["HTTP keys"][1])
            if level == "bad":
                self.assertEqual(6, code)

    def test_a_key_goes_only_to_the_server_it_is_meant_for(self):
        asked = []

        class Server(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append((self.headers["Host"], self.headers["Authorization"]))
                self.send_error(404)

            def log_message(self, *_):
                pass

        for family, address, host in ((socket.AF_INET, "127.0.0.1", "127.0.0.1"), (socket.AF_INET6, "::1", "[::1]")):
            server = type("Family", (http.server.HTTPServer,), {"address_family": family})
            try:
                server = server((address, 0), Server)
            except OSError:  # a machine without this version of IP
                continue
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.addCleanup(server.server_close)
            self.addCleanup(server.shutdown)
            port = server.server_address[1]
            ours = ["--http", "--set", f"edge.host={address}", "--set", f"edge.port={port}"]
            theirs = ["--url", f"http://{host}:{port}/v1"]
            both = {"OPENAI_API_KEY": "theirs", "FORETOKEN_API_KEY": "ours"}
            for words, keys, sent in ((ours, both, "Bearer ours"), (theirs, both, "Bearer theirs"), (ours, {"OPENAI_API_KEY": "theirs"}, None),
                                      (theirs, {"FORETOKEN_API_KEY": "ours"}, None)):
                environment = {name: value for name, value in os.environ.items() if name not in both}
                done = subprocess.run([str(BIN / "foretoken"), "bench", "serve", *words], env={**environment, **keys}, capture_output=True,
                                      text=True, timeout=60)
                self.assertEqual(3, done.returncode, done.stderr)
                self.assertIn(f"at {host}:{port}: GET /v1/models is 404", done.stderr)
                self.assertEqual([(f"{host}:{port}", sent)], asked)
                asked.clear()

    def test_an_http_server_whose_time_is_up_is_told_from_one_that_fails(self):
        class Server(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.reply(200, {"data": [{"id": "m"}]})

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.reply(*self.server.failure)

            def reply(self, status, body):
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        late = {"error": {"message": "out of time", "code": "deadline_exceeded"}}
        for status, body, code, n_cut_off in ((504, {}, 5, 2), (500, late, 5, 2), (500, {"error": {"message": "no"}}, 1, 0)):
            server.failure = (status, body)
            done = run("bench", "serve", "--url", f"http://127.0.0.1:{server.server_port}", "--num-prompts", "2")
            self.assertEqual(code, done.returncode, done.stderr)
            self.assertIn(f"error: 2 requests failed, {n_cut_off} of them cut off; the first: ", done.stderr)
            self.assertIn(f"HTTP {status}: ", done.stderr)

    def test_a_reply_may_end_with_its_connection(self):
        class Server(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.reply(200, {"data": [{"id": "m"}]})

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.reply(500, {"error": {"message": "out of paper"}})

            def reply(self, status, body):
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        done = run("bench", "serve", "--url", f"http://127.0.0.1:{server.server_port}", "--num-prompts", "1")
        self.assertEqual(1, done.returncode, done.stderr)
        self.assertIn("HTTP 500: out of paper", done.stderr)

    def test_a_connection_may_end_without_a_reply(self):
        class Server(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                if self.server.lists_models:
                    data = json.dumps({"data": [{"id": "m"}]}).encode()
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        for server.lists_models, code, words in ((False, 3, "its answer is no HTTP"), (True, 1, "the answer broke off")):
            done = run("bench", "serve", "--url", f"http://127.0.0.1:{server.server_port}", "--num-prompts", "1")
            self.assertEqual(code, done.returncode, done.stderr)
            self.assertIn(words, done.stderr)

    def test_an_http_server_that_takes_no_connection_is_not_waited_for(self):
        with socket.create_server(("127.0.0.1", 0), backlog=0) as silent:
            # The kernel answers no further ones: its queue is full.
            waiting = [socket.socket() for _ in range(8)]
            for each in waiting:
                self.addCleanup(each.close)
                each.setblocking(False)
                each.connect_ex(silent.getsockname())
            done = run("bench", "serve", "--url", f"http://127.0.0.1:{silent.getsockname()[1]}")
        self.assertEqual(3, done.returncode, done.stderr)
        self.assertIn("it took no connection in time", done.stderr)

    def test_an_address_of_ipv6_stands_in_brackets(self):
        for url in ("http://::1:8000", "http://[::1:8000", "http://[::1]8000"):
            done = run("bench", "serve", "--url", url)
            self.assertEqual(2, done.returncode, done.stderr)
            self.assertIn("it must be http://HOST:PORT", done.stderr)

    def at_terminal(self, *words, **environment):
        """What a person sees on standard error at a terminal."""
        reader, writer = pty.openpty()
        try:
            subprocess.run([str(BIN / "foretoken"), *words], stderr=writer, stdout=subprocess.DEVNULL, timeout=60,
                           env={**os.environ, "TERM": "xterm", "NO_COLOR": "", **environment})
            os.close(writer)
            shown = b""
            # The kernel hands it on in pieces, and ends with an error once all writers are gone.
            with contextlib.suppress(OSError):
                while piece := os.read(reader, 65536):
                    shown += piece
            return shown.decode()
        finally:
            os.close(reader)

    def test_colors_are_for_terminals_and_repeat_what_words_say(self):
        red = "\033[1;31merror:\033[0m foretoken has no verb `generat`"
        self.assertTrue(self.at_terminal("generat").startswith(red))
        for words, environment in ((["generat"], {"NO_COLOR": "1"}), (["generat"], {"TERM": "dumb"}), (["generat", "--color", "never"], {})):
            shown = self.at_terminal(*words, **environment)
            self.assertTrue(shown.startswith("error: foretoken has no verb"), (words, environment, shown))
        self.assertTrue(self.at_terminal("generat", "--color=always", NO_COLOR="1").startswith(red))
        self.assertNotIn("\033", run("generat").stderr)
        done = run("config", "check", "--color", "always")
        self.assertEqual((0, "\033[32mok:\033[0m no file, all defaults\n"), (done.returncode, done.stdout))
        self.assertIn("\033[1;31merror:\033[0m no router", run("ps", "--color", "always", *self.quiet_port).stderr)
        self.assertRegex(run("doctor", "--color", "always", *self.quiet_port).stdout, r"(?m)^\033\[3[23]mok {6}\033\[0m memory ")
        done = run("ps", "--color", "green")
        self.assertEqual((2, ""), (done.returncode, done.stdout))
        self.assertIn('"green" is not auto, always or never', done.stderr)

    def test_demo_claims_nothing_of_answers_that_the_time_cut_off(self):
        # A slow system: plain decoding gets less far in the time of a request.
        port, is_over = free_port(), threading.Event()
        router = zmq.Context.instance().socket(zmq.ROUTER)
        router.bind(f"tcp://127.0.0.1:{port}")

        def serve():
            while not is_over.is_set():
                if not router.poll(50):
                    continue
                peer, data = router.recv_multipart()
                asked = msgpack.unpackb(data)
                answer = {"id": asked["request_id"], "done": True}
                if asked.get("op") == "status":
                    answer.update(ready=True, models=["m"], services=[])
                else:
                    ids = [1] * (90 if asked.get("num_draft_tokens") == 0 else 150)
                    answer.update(text="", token_ids=ids, finish_reason="deadline", usage={"completion_tokens": len(ids)}, metrics={})
                router.send_multipart([peer, msgpack.packb(answer)])
            router.close()

        server = threading.Thread(target=serve)
        server.start()
        self.addCleanup(server.join)
        self.addCleanup(is_over.set)
        done = run("demo", "--json", "--host", f"127.0.0.1:{port}")
        self.assertEqual((5, "", "error: cut off (deadline) after 90 of 192 tokens; -n asks for fewer\n"),
                         (done.returncode, done.stdout, done.stderr))

    def test_verbose_says_what_is_in_force(self):
        path = self.folder / "foretoken.toml"
        path.write_text("[log]\nlevel = \"debug\"\n[model.chat]\ntarget = \"demo\"\n[target.chat]\nthreads = 2\n")
        words = ["config", "check", "--config", str(path), "--set", "speculation.draft_len=3"]
        quiet = run(*words)
        done = run(*words, "-v")
        self.assertEqual((quiet.stdout, ""), (done.stdout, quiet.stderr))
        self.assertEqual([f"detail: configuration: {path}", "detail:   speculation.draft_len = 3  (flag)",
                          f'detail:   log.level = "debug"  ({path}:2)', f'detail:   model.chat.target = "demo"  ({path}:4)',
                          f"detail:   target.chat.threads = 2  ({path}:6)"], done.stderr.splitlines())
        done = run("ps", "--verbose", *self.quiet_port)
        self.assertEqual(3, done.returncode)
        self.assertIn("detail:   bus.client = \"tcp://127.0.0.1:1\"  (flag)\n", done.stderr)
        done = run("generate", "-v", "-q", "x")
        self.assertEqual((2, ""), (done.returncode, done.stdout))
        self.assertIn("excludes", done.stderr)

    def test_json_documents_name_their_schema(self):
        for words in (["version", "--json"], ["doctor", "--json"],
                      ["model", "pair", "--json", "models/demo-draft", "models/demo-target"]):
            done = subprocess.run([str(BIN / "foretoken"), *words], capture_output=True, text=True, cwd=ROOT, timeout=60)
            self.assertTrue(json.loads(done.stdout)["schema"].startswith("foretoken."), words)


if __name__ == "__main__":
    unittest.main(verbosity=1)
