"""Writes the trained draft as a Hugging Face folder with draft_ids.i32, the ids of the rows of its head."""
import pathlib

import numpy as np

from distil.folder import say, write_json
from distil.target import copy_kept


def config_of(shape, target):
    return {
        "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": target["bos"], "eos_token_id": target["eos"] or None,
        "head_dim": shape.head_dim, "hidden_act": "silu", "hidden_size": shape.hidden, "initializer_range": 0.02, "intermediate_size": shape.ffn,
        "max_position_embeddings": shape.context, "mlp_bias": False, "model_type": "llama", "num_attention_heads": shape.heads, "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads, "pretraining_tp": 1, "rms_norm_eps": shape.eps, "rope_scaling": None, "rope_theta": shape.theta,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": shape.vocabulary}


def export(work, plan, target):
    import torch
    from safetensors.torch import save_file

    from distil.draft import shape_of

    state = torch.load(work.training / "checkpoint.pt", weights_only=True)["model"]
    tensors = {(name if name.startswith("lm_head") else "model." + name): t.to(torch.bfloat16).contiguous() for name, t in state.items()}
    beside = work.out / "model.safetensors.tmp"
    save_file(tensors, beside, metadata={"format": "pt"})
    beside.chmod(0o644)
    beside.rename(work.out / "model.safetensors")
    (work.out / "draft_ids.i32").write_bytes(np.load(work.training / "head_ids.npy").astype("<i4").tobytes())
    write_json(work.out / "config.json", config_of(shape_of(plan, target), target))
    copy_kept(pathlib.Path(target["folder"]), work.out)
    say(f"export: {work.out}, {sum(t.numel() for t in tensors.values()) * 2 / 1e6:.1f} MB of weights")
