"""The converter against two readers that it does not share code with: gguf's own, and llama.cpp, whose greedy answer on the converted demo
model must be that of Transformers on the folder. Run with WORK/env/bin/python, after `run.sh --install-only`.

usage: convert_test.py [WORK]
"""

import pathlib
import sys
import tempfile
import unittest

import gguf
import numpy

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import convert  # noqa: E402
from peers import ROOT, Model, every_peer  # noqa: E402

WORK = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else ROOT / "build/peers"
TARGET = ROOT / "models/demo-target"
PROMPT = [1, 1428, 201, 524]


class Convert(unittest.TestCase):
    def test_shapes_types_and_values_are_those_of_the_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "demo.gguf")
            convert.convert(TARGET, path)
            reader = gguf.GGUFReader(path)
            written = {tensor.name: tensor for tensor in reader.tensors}
            stored = {convert.gguf_name(name): (dtype, values) for name, dtype, values in convert.stored_tensors(TARGET)}
            self.assertEqual(set(stored), set(written))
            for name, (dtype, values) in stored.items():
                self.assertEqual(list(values.shape), [int(n) for n in written[name].shape][::-1], name)
                if values.ndim == 2:
                    self.assertEqual(gguf.GGMLQuantizationType.BF16, written[name].tensor_type, name)
            plain = written["blk.3.ffn_up.weight"]
            self.assertTrue(numpy.array_equal(numpy.asarray(plain.data).view("<u2").ravel(), stored["blk.3.ffn_up.weight"][1].ravel()))

    def test_pairs_of_a_head_become_neighbours(self):
        rows = numpy.arange(8).reshape(8, 1)  # two heads of four
        self.assertEqual([0, 2, 1, 3, 4, 6, 5, 7], convert.interleave(rows, 2).ravel().tolist())

    def test_float32_is_rounded_to_nearest_even(self):
        values = numpy.array([1, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20], dtype="<f4")
        self.assertEqual([0x3F80, 0x3F80, 0x3F82, 0x3F81], convert.as_bfloat16("F32", values).tolist())


class SameAnswer(unittest.TestCase):
    """Greedy texts. Transformers computes in float32: its bfloat16 also rounds what llama.cpp keeps in float32."""

    TOKENS = 24

    def answer(self, name, weights="bfloat16"):
        peer = every_peer(WORK, ROOT / "build/release/bin", 2)[name]
        if not pathlib.Path(peer.command[0]).exists() or not (WORK / "models/demo/target.bf16.gguf").exists():
            self.skipTest(f"{peer.title} is not installed in {WORK}")
        peer.start(Model("demo", TARGET, WORK / "models/demo", None, 256), weights)
        self.addCleanup(peer.stop)
        return peer.generate(PROMPT, self.TOKENS).ids

    def test_llama_cpp_on_the_file_says_what_transformers_says_on_the_folder(self):
        self.assertEqual(self.answer("transformers", "float32"), self.answer("llama.cpp"))

    def test_the_fork_says_what_llama_cpp_says(self):
        self.assertEqual(self.answer("llama.cpp"), self.answer("ik_llama.cpp"))


if __name__ == "__main__":
    unittest.main(verbosity=1)
