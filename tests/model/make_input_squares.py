#!/usr/bin/env python3
"""Writes tests/fixtures/input_squares/: the mean squared inputs of the linears of fixtures of make_goldens.py.

Taken from Hugging Face Transformers in float32, by hooks before its own linears. Needs `pip install torch transformers
safetensors`; run it from the repository root. The build, the tests and CI only read what it wrote.

NAME.safetensors: tokens [n], and of each linear of a layer, by the name of its weight, [n_in].
"""

import pathlib

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

OUT = pathlib.Path("tests/fixtures/input_squares")
MODELS = pathlib.Path("tests/fixtures/models")
N_TOKENS = 24

OUT.mkdir(exist_ok=True)
for name in ("qwen2", "qwen3_yarn"):
    model = AutoModelForCausalLM.from_pretrained(MODELS / name, dtype=torch.float32).eval()
    tokens = torch.randint(0, model.config.vocab_size, (N_TOKENS,), generator=torch.Generator().manual_seed(3))
    means = {}
    for module_name, module in model.model.layers.named_modules():
        if isinstance(module, torch.nn.Linear):
            def see(module, args, key=f"model.layers.{module_name}.weight"):
                means[key] = args[0].double().square().mean((0, 1)).float()
            module.register_forward_pre_hook(see)
    with torch.no_grad():
        model(tokens[None])
    save_file({"tokens": tokens.int(), **means}, OUT / f"{name}.safetensors")
