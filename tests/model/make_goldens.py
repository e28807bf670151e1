#!/usr/bin/env python3
"""Writes tests/fixtures/models/: tiny random models of every family with logits and greedy ids of the reference.

The reference is Hugging Face Transformers in float32. Needs `pip install torch transformers safetensors`; run it
from the repository root. The build, the tests and CI only read what it wrote. Weights are ours: random, from fixed
seeds, with a spread that makes the logits of a tiny model differ by several units.

Each folder gets the model's files and golden.safetensors with, for each prompt i: prompt.i [n], greedy.i [32] (ids
that follow), logits.i [rows, vocab] and rows.i [rows] (positions within prompt + greedy that the rows belong to).
"""

import argparse
import json
import logging
import math
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

N_GREEDY = 32
MIN_GAP = 0.01  # between the two likeliest: hundreds of times what float32 may differ by
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=32)
YARN_ROPE = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32)

# name: (config class, model class, config, how it is stored: dtype, shard bytes, spelling of config.json, prompts)
MODELS = {
    "llama2": (LlamaConfig, LlamaForCausalLM,
               dict(hidden_size=64, intermediate_size=172, num_attention_heads=4, num_key_value_heads=4,
                    vocab_size=256, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2),
               dict(dtype="float32", spelling="old")),
    "llama3": (LlamaConfig, LlamaForCausalLM,
               dict(hidden_size=96, intermediate_size=224, num_attention_heads=4, num_key_value_heads=2,
                    vocab_size=320, rms_norm_eps=1e-5, rope_parameters=LLAMA3_ROPE, bos_token_id=300,
                    eos_token_id=[301, 308, 309]),
               dict(dtype="bfloat16", shards=3, spelling="old")),
    "llama32_tied": (LlamaConfig, LlamaForCausalLM,
                     dict(hidden_size=128, intermediate_size=256, num_attention_heads=8, num_key_value_heads=2,
                          head_dim=16, vocab_size=320, rms_norm_eps=1e-5, tie_word_embeddings=True,
                          rope_parameters=dict(LLAMA3_ROPE, factor=32.0), bos_token_id=300,
                          eos_token_id=[301, 308, 309]),
                     dict(dtype="bfloat16", spelling="new")),
    "llama_biased": (LlamaConfig, LlamaForCausalLM,
                     dict(hidden_size=80, intermediate_size=136, num_attention_heads=5, num_key_value_heads=1,
                          vocab_size=200, rms_norm_eps=1e-6, attention_bias=True, mlp_bias=True, eos_token_id=3),
                     dict(dtype="float32", spelling="old")),
    "llama_linear": (LlamaConfig, LlamaForCausalLM,
                     dict(hidden_size=64, intermediate_size=160, num_attention_heads=4, num_key_value_heads=1,
                          vocab_size=256, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.5),
                          eos_token_id=3),
                     dict(dtype="float16", spelling="old_type")),
    "llama_yarn": (LlamaConfig, LlamaForCausalLM,
                   dict(hidden_size=64, intermediate_size=160, num_attention_heads=2, num_key_value_heads=1,
                        vocab_size=256, rope_parameters=YARN_ROPE, eos_token_id=3),
                   dict(dtype="float32", spelling="old_type")),
    "llama_yarn_mscale": (LlamaConfig, LlamaForCausalLM,
                          dict(hidden_size=64, intermediate_size=96, num_attention_heads=2, num_key_value_heads=2,
                               vocab_size=256, tie_word_embeddings=True, eos_token_id=3,
                               rope_parameters=dict(YARN_ROPE, factor=8.0, beta_fast=16.0, beta_slow=2.0, mscale=1.0,
                                                    mscale_all_dim=0.5, truncate=False)),
                          dict(dtype="float32", spelling="new")),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM,
              dict(hidden_size=72, intermediate_size=200, num_attention_heads=6, num_key_value_heads=3,
                   vocab_size=304, tie_word_embeddings=True, use_sliding_window=False, sliding_window=4096,
                   max_window_layers=2, rope_parameters=dict(rope_type="default", rope_theta=1000000.0),
                   bos_token_id=300, eos_token_id=301),
              dict(dtype="float32", spelling="old")),
    "qwen25_untied": (Qwen2Config, Qwen2ForCausalLM,
                      dict(hidden_size=128, intermediate_size=192, num_attention_heads=8, num_key_value_heads=2,
                           vocab_size=304, rope_parameters=dict(rope_type="default", rope_theta=1000000.0),
                           bos_token_id=300, eos_token_id=[301, 300]),
                      dict(dtype="bfloat16", shards=2, spelling="new")),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM,
              dict(hidden_size=64, intermediate_size=192, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
                   vocab_size=304, tie_word_embeddings=True, rms_norm_eps=1e-6,
                   rope_parameters=dict(rope_type="default", rope_theta=1000000.0), bos_token_id=300,
                   eos_token_id=[301, 300]),
              dict(dtype="bfloat16", spelling="new")),
    "qwen3_yarn": (Qwen3Config, Qwen3ForCausalLM,
                   dict(hidden_size=100, intermediate_size=120, num_attention_heads=3, num_key_value_heads=3,
                        head_dim=16, vocab_size=256, rms_norm_eps=1e-6,
                        rope_parameters=dict(YARN_ROPE, rope_theta=1000000.0, attention_factor=1.2), eos_token_id=3),
                   dict(dtype="float32", shards=2, spelling="old")),
    "mistral": (MistralConfig, MistralForCausalLM,
                dict(hidden_size=64, intermediate_size=144, num_attention_heads=4, num_key_value_heads=1, head_dim=24,
                     vocab_size=256, sliding_window=None, rms_norm_eps=1e-5,
                     rope_parameters=dict(rope_type="default", rope_theta=1000000.0), bos_token_id=1, eos_token_id=2),
                dict(dtype="float16", spelling="new")),
}


def spread_weights(model, seed, tied):
    """Normal weights of about unit gain; norms, biases away from 1 and 0, so that leaving one out shows."""
    generator = torch.Generator().manual_seed(seed)

    def normal(shape):
        return torch.randn(shape, generator=generator)

    for name, parameter in model.named_parameters():
        shape = parameter.shape
        if "embed_tokens" in name:
            # A tied head likes the token it was given; small embeddings let the layers have their say.
            value = (0.15 if tied else 0.7) * normal(shape)
        elif name == "model.norm.weight":
            value = (2.0 if tied else 1.0) + 0.25 * normal(shape)
        elif "norm" in name:
            value = 1.0 + 0.25 * normal(shape)
        elif name.endswith(".bias"):
            value = 0.5 * normal(shape)
        elif "q_proj" in name or "k_proj" in name:
            value = 1.6 / math.sqrt(shape[1]) * normal(shape)  # attention that looks somewhere
        elif "lm_head" in name:
            value = 2.5 / math.sqrt(shape[1]) * normal(shape)
        else:
            value = 1.2 / math.sqrt(shape[1]) * normal(shape)
        parameter.data.copy_(value)


def respell(config, spelling):
    """config.json as transformers 5 writes it ("new"), or as version 4 did; "old_type" is older still."""
    if spelling == "new":
        return config
    rope = dict(config.pop("rope_parameters"))
    config["rope_theta"] = rope.pop("rope_theta")
    if rope.get("rope_type") == "default":
        config["rope_scaling"] = None
    else:
        if spelling == "old_type":
            rope["type"] = rope.pop("rope_type")
        config["rope_scaling"] = rope
    if "dtype" in config:
        config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.45.0"
    return config


@torch.no_grad()
def golden(model, seed, vocab):
    """Two prompts whose greedy continuation never hangs on a tie; logits of a few rows of the whole sequence."""
    generator = torch.Generator().manual_seed(seed)
    out, i = {}, 0
    for attempt in range(2000):
        if i == 2:
            return out
        prompt = torch.randint(4, vocab, (7, 50)[i:i + 1], generator=generator)
        ids = prompt.clone()
        gap = math.inf
        for _ in range(N_GREEDY):
            top = model(ids[None]).logits[0, -1].topk(2)
            gap = min(gap, float(top.values[0] - top.values[1]))
            ids = torch.cat([ids, top.indices[:1]])
            if gap < MIN_GAP:
                break
        n_distinct = len(set(ids[len(prompt):].tolist()))
        if gap < MIN_GAP or n_distinct < 8:
            continue
        logits = model(ids[None]).logits[0].float()
        rows = torch.tensor([0, 1, len(prompt) - 1, len(prompt), len(ids) // 2, len(ids) - 1])
        out[f"prompt.{i}"] = prompt.to(torch.int32)
        out[f"greedy.{i}"] = ids[len(prompt):].to(torch.int32)
        out[f"rows.{i}"] = rows.to(torch.int32)
        out[f"logits.{i}"] = logits[rows].contiguous()
        print(f"  prompt {i}: smallest gap {gap:.3f}, {n_distinct} distinct, logit std {logits.std():.2f}")
        i += 1
    raise SystemExit("no prompt whose continuation is free of near ties")


def write_model(name, folder, seed):
    config_class, model_class, fields, store = MODELS[name]
    fields = dict(dict(num_hidden_layers=2, max_position_embeddings=256, pad_token_id=None), **fields)
    config = config_class(**fields)
    config._attn_implementation = "eager"
    model = model_class(config).eval()
    spread_weights(model, seed, config.tie_word_embeddings)
    dtype = getattr(torch, store["dtype"])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model.to(dtype)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    shards = store.get("shards", 1)
    model.save_pretrained(folder, max_shard_size=size if shards == 1 else size // shards + 2000)
    path = folder / "config.json"
    path.write_text(json.dumps(respell(json.loads(path.read_text()), store["spelling"]), indent=2) + "\n")
    print(name, store, sorted(p.name for p in folder.iterdir()))
    # Read back from the files: float32 arithmetic on the weights as stored, and RoPE frequencies never rounded to 16 bits.
    model = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    save_file(golden(model, seed + 1000, fields["vocab_size"]), folder / "golden.safetensors")


def rope_vectors():
    """inv_freq and attention factor of the reference for realistic and odd parameters."""
    out = []
    for head_dim, max_positions, rope in [
        (64, 4096, dict(rope_type="default", rope_theta=10000.0)),
        (128, 32768, dict(rope_type="default", rope_theta=1000000.0)),
        (128, 8192, dict(rope_type="linear", rope_theta=10000.0, factor=4.0)),
        (128, 131072, dict(LLAMA3_ROPE, original_max_position_embeddings=8192)),
        (64, 131072, dict(LLAMA3_ROPE, factor=32.0, original_max_position_embeddings=8192)),
        (128, 131072, dict(YARN_ROPE, rope_theta=1000000.0, original_max_position_embeddings=32768)),
        (128, 65536, dict(YARN_ROPE, factor=16.0, original_max_position_embeddings=4096)),
        (128, 65536, dict(YARN_ROPE, factor=16.0, original_max_position_embeddings=4096, truncate=False)),
        (64, 163840, dict(YARN_ROPE, factor=40.0, original_max_position_embeddings=4096, mscale=1.0,
                          mscale_all_dim=1.0)),
        (64, 163840, dict(YARN_ROPE, factor=40.0, original_max_position_embeddings=4096, mscale=0.707,
                          mscale_all_dim=0.5)),
        (64, 163840, dict(YARN_ROPE, factor=40.0, original_max_position_embeddings=4096, mscale=0.707)),
        (128, 131072, dict(YARN_ROPE, factor=8.0, original_max_position_embeddings=4096, attention_factor=0.75,
                           beta_fast=24.0, beta_slow=3.0)),
        (16, 256, dict(YARN_ROPE)),
        (24, 256, dict(YARN_ROPE, factor=1.0)),
    ]:
        config = LlamaConfig(hidden_size=head_dim * 4, num_attention_heads=4, head_dim=head_dim,
                             max_position_embeddings=max_positions, rope_parameters=dict(rope))
        if rope["rope_type"] == "default":
            from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
            inv_freq, factor = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
        else:
            inv_freq, factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config)
        out.append(dict(head_dim=head_dim, max_position_embeddings=max_positions, rope_parameters=rope,
                        attention_factor=factor, inv_freq=[float(x) for x in inv_freq]))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/fixtures/models"))
    parser.add_argument("names", nargs="*", help="only these models")
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    args.out.mkdir(parents=True, exist_ok=True)
    if not args.names:
        (args.out / "rope.json").write_text(json.dumps(rope_vectors(), indent=1) + "\n")
    for i, name in enumerate(MODELS):
        if not args.names or name in args.names:
            write_model(name, args.out / name, seed=100 + i)


if __name__ == "__main__":
    main()
