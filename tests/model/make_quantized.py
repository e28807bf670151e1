#!/usr/bin/env python3
"""Writes tests/fixtures/quantized/: fixtures of make_goldens.py in eight and four bits, with logits of the reference.

The layout and the rounding are those of the compressed-tensors library, which llm-compressor saves with; the logits are
Hugging Face Transformers' in float32 on the stored codes times their scales. Needs `pip install torch transformers
safetensors compressed-tensors`; run it from the repository root. The build, the tests and CI only read what it wrote.

golden.safetensors: tokens [n], logits [n, vocab] of every position.
"""

import json
import logging
import pathlib
import shutil
import sys

import torch
from compressed_tensors.compressors import BaseCompressor, ModelCompressor
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme, apply_quantization_config
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

OUT = pathlib.Path("tests/fixtures/quantized")
DYNAMIC = dict(num_bits=8, strategy="token", symmetric=True, dynamic=True)

# name: (source fixture, weights, activations, modules left alone)
FOLDERS = {
    "int8_channel": ("qwen25_untied", dict(num_bits=8, type="int", strategy="channel"), None, ["lm_head"]),
    "int8_w8a8": ("llama3", dict(num_bits=8, type="int", strategy="channel"), dict(DYNAMIC, type="int"), ["lm_head"]),
    "fp8_channel": ("qwen3", dict(num_bits=8, type="float", strategy="channel"), dict(DYNAMIC, type="float"), ["lm_head"]),
    "fp8_tensor": ("mistral", dict(num_bits=8, type="float", strategy="tensor"), None,
                   ["re:.*lm_head", "re:.*layers.0.mlp.*"]),
    "int4_group": ("llama3", dict(num_bits=4, type="int", strategy="group", group_size=32), None, ["lm_head"]),
    "int4_zeros": ("llama3", dict(num_bits=4, type="int", strategy="group", group_size=32, symmetric=False), None, ["lm_head"]),
    "int4_channel": ("qwen3", dict(num_bits=4, type="int", strategy="channel"), None, ["lm_head"]),
    "mxfp4": ("llama3", dict(num_bits=4, type="float", strategy="group", group_size=32, scale_dtype=torch.uint8), None,
              ["lm_head"]),
}


def set_scales(model, args):
    for module in model.modules():
        if getattr(module, "quantization_scheme", None) is None:
            continue
        weight = module.weight.data.float()
        if args.strategy == "group":
            weight = weight.unflatten(1, (-1, args.group_size))
        low, high = (weight.amin().reshape(1), weight.amax().reshape(1)) if args.strategy == "tensor" else (
            weight.amin(-1, keepdim=args.strategy == "channel"), weight.amax(-1, keepdim=args.strategy == "channel"))
        scale, zero = calculate_qparams(low, high, args)
        module.weight_scale.data = scale.to(module.weight_scale.dtype).reshape(module.weight_scale.shape)
        if not args.symmetric:
            module.weight_zero_point.data = zero.to(module.weight_zero_point.dtype).reshape(module.weight_zero_point.shape)


def dequantised(folder, scheme=None):
    """Codes times scales in float32: Transformers itself would round the product to bfloat16."""
    stored, floats = load_file(folder / "model.safetensors"), {}
    for name, tensor in stored.items():
        if name.endswith(("_scale", "_shape", "_zero_point")):
            continue
        if tensor.dtype == torch.uint8:  # floats of four bits: the library's own reading, exact in bfloat16
            name = name.removesuffix("_packed")
            parts = {"weight_packed": tensor, "weight_scale": stored[name + "_scale"]}
            floats[name] = BaseCompressor.get_value_from_registry("mxfp4-pack-quantized").decompress(parts, scheme)["weight"].float()
            continue
        if name.endswith("_packed"):
            name = name.removesuffix("_packed")
            n_out, n_in = stored[name + "_shape"].tolist()
            tensor = unpack_from_int32(tensor, 4 if tensor.shape[1] == -(-n_in // 8) else 8, torch.Size((n_out, n_in)))
        floats[name] = tensor.float()
        if name + "_scale" in stored:
            scale = stored[name + "_scale"].float()
            repeats = tensor.shape[1] // scale.shape[1] if scale.ndim == 2 else 1
            if name + "_zero_point" in stored:
                zeros = unpack_from_int32(stored[name + "_zero_point"], 4, scale.shape, packed_dim=0)
                floats[name] -= zeros.float().repeat_interleave(repeats, 1)
            floats[name] *= scale.repeat_interleave(repeats, 1) if scale.ndim == 2 else scale
    return floats


@torch.no_grad()
def write(name, source, weights, activations, ignore):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    model = AutoModelForCausalLM.from_pretrained(pathlib.Path("tests/fixtures/models") / source, dtype=torch.bfloat16)
    args = QuantizationArgs(**{"symmetric": True, "dynamic": False, **weights})
    scheme = QuantizationScheme(targets=["Linear"], weights=args,
                                input_activations=None if activations is None else QuantizationArgs(**activations))
    config = QuantizationConfig(config_groups={"group_0": scheme}, ignore=ignore)
    apply_quantization_config(model, config)
    set_scales(model, args)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)

    text = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(text, indent=2) + "\n")
    reader = AutoModelForCausalLM.from_pretrained(pathlib.Path("tests/fixtures/models") / source, dtype=torch.float32,
                                                  attn_implementation="eager").eval()
    missing, unexpected = reader.load_state_dict(dequantised(folder, scheme), strict=False)
    assert not unexpected and all("lm_head" in name for name in missing), (missing, unexpected)
    reader.tie_weights()
    tokens = torch.randint(4, text["vocab_size"], (24,), generator=torch.Generator().manual_seed(7))
    logits = reader(tokens[None]).logits[0].float()
    save_file({"tokens": tokens.to(torch.int32), "logits": logits.contiguous()}, folder / "golden.safetensors")
    print(name, text["quantization_config"]["format"], sorted(p.name for p in folder.iterdir()), logits.std())


def main():
    """All folders, or those named."""
    torch.set_num_threads(1)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    OUT.mkdir(parents=True, exist_ok=True)
    for name, recipe in FOLDERS.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            write(name, *recipe)


if __name__ == "__main__":
    main()
