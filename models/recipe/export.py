#!/usr/bin/env python3
"""Writes a checkpoint as a Hugging Face folder: config, generation config, tokenizer, bfloat16 safetensors.

  export.py --shape target --tokenizer FOLDER --out FOLDER [--checkpoint FILE] [--shards 4]

Without --checkpoint only the small files are written. With --shards above 1 the tensors are spread over that many files and
model.safetensors.index.json names the file of each.
"""
import argparse
import json
import pathlib
import shutil


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def write_config(out, s):
    write_json(out / "config.json", {
        "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": None, "eos_token_id": [2, 0],
        "head_dim": s.head_dim, "hidden_act": "silu", "hidden_size": s.hidden, "initializer_range": 0.02, "intermediate_size": s.ffn,
        "max_position_embeddings": s.context, "mlp_bias": False, "model_type": "llama", "num_attention_heads": s.heads, "num_hidden_layers": s.layers,
        "num_key_value_heads": s.kv_heads, "pad_token_id": 0, "pretraining_tp": 1, "rms_norm_eps": s.eps, "rope_scaling": None, "rope_theta": s.theta,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": s.vocabulary})
    write_json(out / "generation_config.json", {"do_sample": False, "eos_token_id": [2, 0], "pad_token_id": 0})


def write_weights(out, checkpoint, n_shards):
    import torch
    from safetensors.torch import save_file

    state = torch.load(checkpoint, map_location="cpu", weights_only=True)["model"]
    tensors = {(name if name.startswith("lm_head") else "model." + name): t.to(torch.bfloat16).contiguous() for name, t in state.items()}
    total = sum(t.numel() * 2 for t in tensors.values())
    shards, filled = [{}], 0
    for name, t in tensors.items():  # in order: embedding first, then layer after layer
        if filled >= total * len(shards) / n_shards:
            shards.append({})
        shards[-1][name] = t
        filled += t.numel() * 2
    weight_map = {}
    for i, shard in enumerate(shards):
        name = "model.safetensors" if len(shards) == 1 else f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        save_file(shard, out / name, metadata={"format": "pt"})
        weight_map.update({tensor: name for tensor in shard})
    if len(shards) > 1:
        write_json(out / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))})


def export(shape, tokenizer, out, checkpoint=None, n_shards=1):
    out.mkdir(parents=True, exist_ok=True)
    write_config(out, shape)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (tokenizer / name).resolve() != (out / name).resolve():
            shutil.copyfile(tokenizer / name, out / name)
    if checkpoint:
        write_weights(out, checkpoint, n_shards)


def main():
    from model import SHAPES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--checkpoint", type=pathlib.Path)
    parser.add_argument("--shards", type=int, default=1)
    a = parser.parse_args()
    export(SHAPES[a.shape], a.tokenizer, a.out, a.checkpoint, a.shards)


if __name__ == "__main__":
    main()
