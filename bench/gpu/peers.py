#!/usr/bin/env python3
"""The same shapes by others, on the same device: a decode step of Hugging Face Transformers with a static cache and
torch.compile, random weights, batch 1.

    foretoken-bench-gpu --shapes | bench/gpu/peers.py [--device cuda:0] [--seconds 240] [--steps 64] [--no-compile]

Reads shapes and context lengths from standard input and writes a line of JSON for each (model, dtype, context), either
with the microseconds of a step or with the reason why there is none ("not_there"). Never fails because of a peer.
"""

import argparse
import json
import sys
import time


def say(**row):
    print(json.dumps({"peer": "transformers", "weights": "random", **row}), flush=True)


def model_of(shape, contexts, n_steps, device, dtype):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=shape["n_hidden"], intermediate_size=shape["n_ffn"], num_hidden_layers=shape["n_layers"],
        num_attention_heads=shape["n_heads"], num_key_value_heads=shape["n_kv_heads"], head_dim=shape["head_dim"],
        vocab_size=shape["vocab"], rms_norm_eps=shape["norm_eps"], tie_word_embeddings=True,
        max_position_embeddings=max(contexts) + n_steps + 16, eos_token_id=None, pad_token_id=0, bos_token_id=1,
        rope_parameters={"rope_type": "default", "rope_theta": float(shape["rope_theta"])})
    torch.manual_seed(1)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)


def seconds_a_step(model, context, n_steps, device, compiled):
    """Median of the steps after the first eight: these compile, capture and warm up."""
    import torch
    from transformers import CompileConfig, StoppingCriteria, StoppingCriteriaList

    class Clock(StoppingCriteria):
        def __init__(self):
            self.times = []

        def __call__(self, input_ids, scores, **kwargs):
            self.times.append(time.perf_counter())  # generate() itself waits for the device before it goes on
            return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)

    prompt = torch.randint(2, model.config.vocab_size, (1, context), device=device)
    extra = {"compile_config": CompileConfig(mode="reduce-overhead", fullgraph=False)} if compiled else {}
    if not compiled:
        extra["disable_compile"] = True
    for _ in range(2):  # the first one compiles
        clock = Clock()
        with torch.inference_mode():
            model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=n_steps,
                           min_new_tokens=n_steps, cache_implementation="static",
                           stopping_criteria=StoppingCriteriaList([clock]), **extra)
    steps = sorted(b - a for a, b in zip(clock.times[8:], clock.times[9:]))
    return steps[len(steps) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=240, help="begin no row later than this")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    shapes = json.load(sys.stdin)
    device = "cuda" if options.device == "cuda" else options.device
    end = time.monotonic() + options.seconds
    try:
        import torch
        import transformers
    except ImportError as error:
        return say(not_there=f"torch and transformers are needed: {error}")
    if device.startswith("cuda") and not torch.cuda.is_available():
        return say(not_there="torch finds no CUDA device")
    compiled = not options.no_compile
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    for shape in shapes["models"]:
        shape = {**shape, "norm_eps": shapes["norm_eps"], "rope_theta": shapes["rope_theta"]}
        row = {"what": f"step {shape['name']}", "versions": versions}
        say(**row, dtype="float8_e4m3", not_there="Transformers has no fp8 step for random weights")
        if shape["n_layers"] >= 80:
            say(**row, dtype="bfloat16", not_there="does not fit one device")
            continue
        model = None
        for context in shapes["contexts"]:
            row.update(dtype="bfloat16", context=context, compiled=compiled)
            if time.monotonic() > end:
                say(**row, not_there="no time left")
                continue
            try:
                if model is None:
                    model = model_of(shape, shapes["contexts"], options.steps, device, torch.bfloat16)
                seconds = seconds_a_step(model, context, options.steps, device, compiled)
                say(**row, microseconds=round(seconds * 1e6, 2), tokens_per_second=round(1 / seconds, 1))
            except Exception as error:  # a peer's trouble is a row, not our failure
                say(**row, not_there=f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}")
        del model
        if device.startswith("cuda"):
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
