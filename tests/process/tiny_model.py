"""Writes tiny random Hugging Face folders with the standard library alone: a Llama-like model and a byte-level tokenizer.

A draft made from the same seed with a little noise often agrees with its target. The text is nonsense; what counts
here is that it is the same nonsense every time."""
import functools
import json
import math
import os
import random
import struct

HIDDEN, LAYERS, HEADS, KV_HEADS, MLP, CONTEXT = 64, 2, 4, 2, 128, 2048


def byte_alphabet():
    """The 256 printable stand-ins for bytes that byte-level BPE uses."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, extra = {}, 0
    for byte in range(256):
        if byte in keep:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(256 + extra)
            extra += 1
    return table


def write_tokenizer(folder, changed=False):
    vocab = {char: index for index, char in enumerate(byte_alphabet().values())}
    merges = [["t", "h"], ["th", "e"], ["i", "n"], ["e", "r"]]
    if changed:
        merges[0] = ["h", "t"]
        merges[1] = ["ht", "e"]
    for left, right in merges:
        vocab[left + right] = len(vocab)
    end = len(vocab)
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": end, "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True}],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": merges},
    }
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as out:
        json.dump(tokenizer, out, ensure_ascii=False)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>",
              "chat_template": "{{ note or '' }}{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
                               "{% if add_generation_prompt %}assistant: {% endif %}"}
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as out:
        json.dump(config, out)
    return end + 1, end


def shapes(vocab):
    head_dim = HIDDEN // HEADS
    yield "model.embed_tokens.weight", (vocab, HIDDEN)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (HIDDEN,)
        yield prefix + "self_attn.q_proj.weight", (HEADS * head_dim, HIDDEN)
        yield prefix + "self_attn.k_proj.weight", (KV_HEADS * head_dim, HIDDEN)
        yield prefix + "self_attn.v_proj.weight", (KV_HEADS * head_dim, HIDDEN)
        yield prefix + "self_attn.o_proj.weight", (HIDDEN, HEADS * head_dim)
        yield prefix + "post_attention_layernorm.weight", (HIDDEN,)
        yield prefix + "mlp.gate_proj.weight", (MLP, HIDDEN)
        yield prefix + "mlp.up_proj.weight", (MLP, HIDDEN)
        yield prefix + "mlp.down_proj.weight", (HIDDEN, MLP)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (vocab, HIDDEN)


@functools.lru_cache(maxsize=None)
def weights(vocab, seed, noise, _sizes):
    """The file of weights. noise 0: the model of `seed`. Otherwise that model with relative noise added: a draft that often agrees. Kept,
    because tests have many systems of one pair: _sizes are all that the shapes depend on."""
    chance, disturb = random.Random(seed), random.Random(seed * 7919 + 1)
    header, blob, offset = {}, [], 0
    for name, shape in shapes(vocab):
        count = math.prod(shape)
        if len(shape) == 1:
            values = [1.0] * count
        else:
            scale = 1.0 if name.startswith("model.embed") else (2.5 if name.startswith("lm_head") else 1.0) / math.sqrt(shape[1])
            values = [chance.gauss(0.0, scale) for _ in range(count)]
            if noise:
                values = [value + disturb.gauss(0.0, noise * scale) for value in values]
        data = struct.pack(f"<{count}f", *values)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        blob.append(data)
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(blob)


def write_model(folder, seed=1, noise=0.0, changed_vocabulary=False):
    os.makedirs(folder, exist_ok=True)
    vocab, end = write_tokenizer(folder, changed_vocabulary)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN,
              "intermediate_size": MLP, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
              "num_key_value_heads": KV_HEADS, "head_dim": HIDDEN // HEADS, "vocab_size": vocab,
              "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "torch_dtype": "float32",
              "bos_token_id": None, "eos_token_id": end}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as out:
        json.dump(config, out)
    with open(os.path.join(folder, "generation_config.json"), "w", encoding="utf-8") as out:
        json.dump({"eos_token_id": end}, out)
    with open(os.path.join(folder, "model.safetensors"), "wb") as out:
        out.write(weights(vocab, seed, noise, (HIDDEN, LAYERS, HEADS, KV_HEADS, MLP)))
    return folder


if __name__ == "__main__":
    import sys
    write_model(sys.argv[1], seed=int(sys.argv[2]), noise=float(sys.argv[3]))
