"""Folders that `foretoken model quantize` writes, read by the library whose layout they have: each weight is what its code and scale
stand for, and Transformers computes with these weights."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORETOKEN = pathlib.Path(os.environ["FORETOKEN_BIN_DIR"]) / "foretoken"


def codes_of(words, n_bits, n_in):
    """[n_out, words] of 32 bits -> [n_out, n_in], each less what was added to it."""
    shifts = torch.arange(32 // n_bits, dtype=torch.int64) * n_bits
    codes = (words.to(torch.int64).unsqueeze(-1) >> shifts) & (2**n_bits - 1)
    return codes.flatten(1)[:, :n_in] - 2 ** (n_bits - 1)


class CompressedTensors(unittest.TestCase):
    def read(self, module, parts):
        """What the library makes of a module's tensors, what is expected, both in the type of the scale, and that in float32."""
        scheme, scale = module.quantization_scheme, parts["weight_scale"]
        n_bits = scheme.weights.num_bits
        theirs = BaseCompressor.get_value_from_registry(scheme.format).decompress(dict(parts), scheme)["weight"]
        codes = codes_of(parts["weight_packed"], n_bits, parts["weight_shape"][1].item()) if "weight_packed" in parts else parts["weight"]
        scales = scale.repeat_interleave(codes.shape[1] // scale.shape[1], 1)
        return theirs, codes.to(scale.dtype) * scales, codes.float() * scales.float(), n_bits

    def check(self, source, *flags):
        """Returns how many matrices have how many bits."""
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary) / "q"
            subprocess.run([FORETOKEN, "model", "quantize", source, folder, "--no-compare", *flags], check=True, stdout=subprocess.DEVNULL)
            quantization = json.loads((folder / "config.json").read_text())["quantization_config"]
            stored = {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}
            exact = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(source), dtype=torch.float32).eval()
            weights = {name: tensor.float() for name, tensor in stored.items() if name in exact.state_dict()}
            apply_quantization_config(exact, QuantizationConfig.model_validate(quantization), show_progress=False)
            found = {}
            for name, module in exact.named_modules():
                if getattr(module, "quantization_scheme", None) is None:
                    continue
                parts = {key.removeprefix(name + "."): tensor for key, tensor in stored.items() if key.startswith(name + ".")}
                theirs, ours, weights[name + ".weight"], n_bits = self.read(module, parts)
                self.assertTrue(torch.equal(ours, theirs), name)
                found[n_bits] = found.get(n_bits, 0) + 1
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(source), dtype=torch.float32).eval()
            missing, unexpected = model.load_state_dict(weights, strict=False)
            self.assertEqual(([], []), ([name for name in missing if name != "lm_head.weight"], unexpected))
            model.tie_weights()
            tokens = torch.arange(4, 36)[None]
            with torch.no_grad():
                expected = model(tokens).logits
                loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
                logits = loaded(tokens).logits
            self.assertLess((logits - expected).abs().max().item(), 1e-2 * expected.std().item())
            return found

    def test_four_bits(self):
        for name in ("llama2", "llama3", "qwen3", "mistral"):
            with self.subTest(name):
                self.assertEqual({4: 12, 8: 2}, self.check(ROOT / "tests/fixtures/models" / name, "--to", "int4"))

    def test_four_bits_of_the_demo_model_in_larger_groups(self):
        self.assertEqual({4: 60, 8: 10}, self.check(ROOT / "models/demo-target", "--to", "int4", "--group", "64"))

    def test_four_bits_alone(self):
        self.assertEqual({4: 14}, self.check(ROOT / "tests/fixtures/models/llama3", "--to", "int4", "--down-proj"))

    def test_eight_bits(self):
        for name in ("qwen2", "llama3"):
            for to in ("int8", "fp8"):
                with self.subTest(f"{name} {to}"):
                    self.assertEqual({8: 14}, self.check(ROOT / "tests/fixtures/models" / name, "--to", to))

    def test_a_head_that_is_the_embedding_stays(self):
        for to in ("int8", "int4"):
            with self.subTest(to):
                self.assertEqual(14, sum(self.check(ROOT / "tests/fixtures/models/llama32_tied", "--to", to, "--lm-head").values()))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
