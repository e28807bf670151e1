#!/usr/bin/env python3
"""Writes the folders of tests/fixtures/quantized/ that AutoGPTQ and AutoAWQ could have written, with logits of the reference.

Words are packed by the modules of those libraries, and read back by them too, in float32; the logits are Hugging Face
Transformers' on what they read. Scales and zero points are the least and the largest value of each group, rounded: no
calibration is wanted here. Needs `pip install torch transformers safetensors`, and `pip install --no-deps
--no-build-isolation auto-gptq==0.7.1 autoawq==0.2.9`, of which single files are run; run it from the repository root. The
build, the tests and CI only read what it wrote.

golden.safetensors: tokens [n], logits [n, vocab] of every position.
"""

import importlib.util
import json
import pathlib
import shutil
import sys
import types

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

MODELS = pathlib.Path("tests/fixtures/models")
OUT = pathlib.Path("tests/fixtures/quantized")

# name: (source fixture, quantization_config); desc_act: groups take columns at random
FOLDERS = {
    "gptq": ("qwen25_untied", dict(quant_method="gptq", bits=4, group_size=64, sym=False, desc_act=False, lm_head=False)),
    "gptq_act_order": ("qwen3", dict(quant_method="gptq", bits=4, group_size=32, sym=True, desc_act=True, checkpoint_format="gptq")),
    "awq": ("llama32_tied", dict(quant_method="awq", bits=4, group_size=32, zero_point=True, version="gemm",
                                 modules_to_not_convert=None)),
}


def file_of(package, name):
    """A module of a package whose own __init__ wants more than is needed here."""
    folder = pathlib.Path(importlib.util.find_spec(package).submodule_search_locations[0])
    if package == "awq":  # what gemm.py imports
        for part in ("awq", "awq.utils"):
            sys.modules[part] = types.ModuleType(part)
            sys.modules[part].__path__ = [str(folder.joinpath(*part.split(".")[1:]))]
        sys.modules["awq.utils.utils"] = types.ModuleType("awq.utils.utils")
        sys.modules["awq.utils.utils"].get_best_device = lambda: "cpu"
    spec = importlib.util.spec_from_file_location(pathlib.Path(name).stem, folder / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def groups_of(weight, group_of, n_groups, symmetric):
    """Scales and zero points, [n_out, n_groups]."""
    scales, zeros = torch.empty(weight.shape[0], n_groups), torch.empty(weight.shape[0], n_groups)
    for g in range(n_groups):
        some = weight[:, group_of == g]
        low, high = some.amin(1).clamp(max=0), some.amax(1).clamp(min=0)
        if symmetric:
            high = torch.maximum(-low, high)
            low = -high
        scales[:, g] = ((high - low) / 15).half().float()
        zeros[:, g] = torch.full_like(low, 8) if symmetric else torch.round(-low / scales[:, g])
    assert zeros.min() >= 1, "AutoGPTQ's packing spoils the neighbours of a zero point of 0"
    return scales, zeros


def on_grid(weight, group_of, scales, zeros):
    """The weights that codes 0 to 15 stand for, nearest to those given: packing then rounds nothing."""
    s, z = scales[:, group_of], zeros[:, group_of]
    return (torch.clamp(torch.round(weight / s + z), 0, 15) - z) * s


def gptq(linear, config, generator, module):
    """Tensors of AutoGPTQ, and the weight its own forward pass multiplies with."""
    size, n_in = config["group_size"], linear.in_features
    group_of = torch.arange(n_in, dtype=torch.int32) // size
    if config["desc_act"]:
        group_of = group_of[torch.randperm(n_in, generator=generator)]
    scales, zeros = groups_of(linear.weight.data, group_of, n_in // size, config["sym"])
    linear.weight.data = on_grid(linear.weight.data, group_of, scales, zeros)
    packed = module.QuantLinear(4, size, n_in, linear.out_features, linear.bias is not None, weight_dtype=torch.float32)
    packed.pack(linear, scales.clone(), zeros.clone(), group_of)
    bias, packed.bias = packed.bias, None
    weight = packed(torch.eye(n_in)).t()
    tensors = {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": packed.scales.half(), "g_idx": packed.g_idx}
    # AutoGPTQ makes a bias of zeros for each linear that has none.
    tensors["bias"] = torch.zeros(linear.out_features, dtype=torch.float16) if bias is None else bias.half()
    return tensors, weight


def awq(linear, config, generator, module):
    """Tensors of AutoAWQ, and the weight it takes them for."""
    size, n_in = config["group_size"], linear.in_features
    group_of = torch.arange(n_in) // size
    scales, zeros = groups_of(linear.weight.data, group_of, n_in // size, False)
    linear.weight.data = on_grid(linear.weight.data, group_of, scales, zeros)
    packed = module.WQLinear_GEMM.from_linear(linear, 4, size, scales=scales.t().contiguous(), zeros=zeros.t().contiguous())
    weight = module.dequantize_gemm(packed.qweight, packed.qzeros, packed.scales.float(), 4, size).t()
    return {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": packed.scales}, weight


@torch.no_grad()
def write(name, source, config):
    folder, generator = OUT / name, torch.Generator().manual_seed(11)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    method = config["quant_method"]
    module = file_of("auto_gptq", "nn_modules/qlinear/qlinear_cuda.py") if method == "gptq" else file_of("awq", "modules/linear/gemm.py")
    model = AutoModelForCausalLM.from_pretrained(MODELS / source, dtype=torch.float32, attn_implementation="eager").eval()
    files = [file for file in (MODELS / source).glob("*.safetensors") if file.name != "golden.safetensors"]
    stored = {key: tensor.half() for file in files for key, tensor in load_file(file).items()}
    model.load_state_dict({key: tensor.float() for key, tensor in stored.items()}, strict=False)
    model.tie_weights()
    for key, linear in model.named_modules():
        if not isinstance(linear, torch.nn.Linear) or key == "lm_head":
            continue
        tensors, weight = (gptq if method == "gptq" else awq)(linear, config, generator, module)
        assert torch.equal(weight, linear.weight.data), "the library reads what it was given"
        del stored[key + ".weight"]
        stored.update({f"{key}.{part}": tensor.contiguous() for part, tensor in tensors.items()})
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    text = json.loads((MODELS / source / "config.json").read_text())
    text.pop("torch_dtype", None)
    text.update(dtype="float16", quantization_config=config)
    (folder / "config.json").write_text(json.dumps(text, indent=2) + "\n")
    if (MODELS / source / "generation_config.json").exists():
        shutil.copy(MODELS / source / "generation_config.json", folder)
    tokens = torch.randint(4, text["vocab_size"], (24,), generator=torch.Generator().manual_seed(7))
    logits = model(tokens[None]).logits[0].float()
    save_file({"tokens": tokens.to(torch.int32), "logits": logits.contiguous()}, folder / "golden.safetensors")
    print(name, sorted(p.name for p in folder.iterdir()), logits.std())


def main():
    torch.set_num_threads(1)
    for name, recipe in FOLDERS.items():
        write(name, *recipe)


if __name__ == "__main__":
    main()
