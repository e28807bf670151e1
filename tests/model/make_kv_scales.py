#!/usr/bin/env python3
"""Writes tests/fixtures/kv_scales/: fixtures of make_goldens.py with scales of an fp8 KV cache, and logits of the reference.

Scheme, names, shapes and the rounding of keys and values are those of the compressed-tensors library, which
llm-compressor saves with; the logits are Hugging Face Transformers' in float32 on the stored weights, with the library's
hook between the rotation and the attention. Needs `pip install torch transformers safetensors compressed-tensors`; run it
from the repository root. The build, the tests and CI only read what it wrote.

golden.safetensors: tokens [n], logits [n, vocab] of every position.
"""

import json
import logging
import pathlib
import shutil

import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.modeling.kvcache import register_key_hook, register_value_hook
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme, apply_quantization_config
from compressed_tensors.quantization.utils import calculate_qparams
from make_quantized import dequantised, set_scales
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

OUT = pathlib.Path("tests/fixtures/kv_scales")
MODELS = pathlib.Path("tests/fixtures/models")
N_TOKENS = 12
# How far float32 may lead two computations of a key apart, beside its size and that of its row: none may round apart.
APART = 6e-6

# name: (source fixture, weights, strategy of the cache)
FOLDERS = {
    "by_layer": ("llama3", None, "tensor"),
    "by_head": ("qwen3", dict(num_bits=8, type="float", strategy="channel"), "attn_head"),
}


def kv_args(strategy):
    return QuantizationArgs(num_bits=8, type="float", strategy=strategy, symmetric=True, dynamic=False)


def attentions(model):
    return [layer.self_attn for layer in model.model.layers]


def watch(model, see):
    """Calls see(module, "k" or "v", states) with what is about to be rounded; returns the hooks."""
    return [register(module, lambda module, states, half=half: see(module, half, states))
            for module in attentions(model) for half, register in (("k", register_key_hook), ("v", register_value_hook))]


def calibrate(model, vocab):
    """Scales from the largest key and value of a few tokens: later ones may lie beyond."""
    largest = {}

    def see(module, half, states):  # [1, heads, positions, head_dim]
        by_head = states.float().abs().amax((0, 2, 3))
        largest[module, half] = by_head.reshape(-1, 1, 1) if args.strategy == "attn_head" else by_head.amax().reshape(1)

    args = attentions(model)[0].quantization_scheme.input_activations
    for module in attentions(model):
        module.quantization_enabled = False
    hooks = watch(model, see)
    model(torch.randint(4, vocab, (1, 6), generator=torch.Generator().manual_seed(11)))
    for hook in hooks:
        hook.remove()
    for (module, half), most in largest.items():
        scale, _ = calculate_qparams(-most, most, args)
        stored = getattr(module, half + "_scale")
        assert scale.shape == stored.shape, (scale.shape, stored.shape)
        stored.data = scale.to(stored.dtype)
        module.quantization_enabled = True


def rounds_alike(states, scale):
    """Whether no element lies so near the middle between two codes that float32 decides."""
    size = states.pow(2).mean(-1, keepdim=True).sqrt() + states.abs()
    codes = [((states + sign * APART * size) / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() for sign in (-1, 1)]
    return torch.equal(*codes)


def golden(folder, source, strategy, vocab):
    model = AutoModelForCausalLM.from_pretrained(MODELS / source, dtype=torch.float32, attn_implementation="eager").eval()
    floats = {name: tensor for name, tensor in dequantised(folder).items() if not name.endswith(("k_scale", "v_scale"))}
    missing, unexpected = model.load_state_dict(floats, strict=False)
    assert not unexpected and all("lm_head" in name for name in missing), (missing, unexpected)
    model.tie_weights()
    apply_quantization_config(model, QuantizationConfig(config_groups={}, kv_cache_scheme=kv_args(strategy)))
    stored = load_file(folder / "model.safetensors")
    for i, module in enumerate(attentions(model)):
        for half in "kv":
            getattr(module, half + "_scale").data = stored[f"model.layers.{i}.self_attn.{half}_scale"].float()

    alike, beyond = [], []

    def see(module, half, states):
        scale = getattr(module, half + "_scale")
        alike.append(rounds_alike(states, scale))
        beyond.append(int((states.abs() > 448 * scale).sum()))

    watch(model, see)
    for seed in range(1000):
        alike.clear()
        beyond.clear()
        tokens = torch.randint(4, vocab, (N_TOKENS,), generator=torch.Generator().manual_seed(seed))
        logits = model(tokens[None]).logits[0].float()
        if all(alike) and sum(beyond) > 0:
            print(f"  seed {seed}: {sum(beyond)} elements beyond the largest code, logit std {logits.std():.2f}")
            return {"tokens": tokens.to(torch.int32), "logits": logits.contiguous()}
    raise SystemExit("no tokens whose keys and values all round clearly")


@torch.no_grad()
def write(name, source, weights, strategy):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    model = AutoModelForCausalLM.from_pretrained(MODELS / source, dtype=torch.bfloat16, attn_implementation="eager").eval()
    groups = {}
    if weights is not None:
        args = QuantizationArgs(symmetric=True, dynamic=False, **weights)
        groups["group_0"] = QuantizationScheme(targets=["Linear"], weights=args)
    config = QuantizationConfig(config_groups=groups, ignore=["lm_head"], kv_cache_scheme=kv_args(strategy))
    apply_quantization_config(model, config)
    if weights is not None:
        for attention in attentions(model):  # set_scales() is about weights
            attention.scheme, attention.quantization_scheme = attention.quantization_scheme, None
        set_scales(model, args)
        for attention in attentions(model):
            attention.quantization_scheme = attention.scheme
    calibrate(model, model.config.vocab_size)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)
    text = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(text, indent=2) + "\n")
    print(name, text["quantization_config"]["kv_cache_scheme"], sorted(p.name for p in folder.iterdir()))
    for key, tensor in load_file(folder / "model.safetensors").items():
        if "self_attn.k_" in key and not key.endswith("weight") or "self_attn.v_" in key and not key.endswith("weight"):
            print(" ", key, tensor.dtype, list(tensor.shape), tensor.flatten()[:4].tolist())
    save_file(golden(folder, source, strategy, text["vocab_size"]), folder / "golden.safetensors")


def main():
    torch.set_num_threads(1)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    OUT.mkdir(parents=True, exist_ok=True)
    for name, recipe in FOLDERS.items():
        write(name, *recipe)


if __name__ == "__main__":
    main()
