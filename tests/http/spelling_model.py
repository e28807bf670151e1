"""Writes a tiny Hugging Face folder whose model spells fixed answers: what a model trained for tools would write, token by token.

The layers add nothing, so the next token depends on the last one alone, and the table of a script is in the last matrix: each token of
a script is followed by the next one. A script begins behind its own token, `<|NAME|>`, with which the chat template ends the prompt. A
token therefore belongs to one place of one script."""

import json
import math
import os
import random
import struct

import tiny_model

END = "<|end|>"


def write(folder, scripts, chat_template, special=()):
    """scripts: name -> texts of its tokens. special: those of them that leave no text by themselves."""
    os.makedirs(folder, exist_ok=True)
    vocab, _ = tiny_model.write_tokenizer(folder)
    path = os.path.join(folder, "tokenizer.json")
    with open(path, encoding="utf-8") as file:
        tokenizer = json.load(file)
    ids = {END: vocab - 1}
    followers = {}
    for name, texts in scripts.items():
        chain = [f"<|{name}|>", *texts, END]
        for text in chain[:-1]:
            assert text not in ids, f"{text!r} has two places"
            ids[text] = len(ids) + vocab - 1
            tokenizer["added_tokens"].append(
                {"id": ids[text], "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                 "special": text in special or text == chain[0]})
        followers.update(zip((ids[text] for text in chain), (ids[text] for text in chain[1:])))
    with open(path, "w", encoding="utf-8") as file:
        json.dump(tokenizer, file, ensure_ascii=False)
    vocab += len(ids) - 1
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "chat_template": chat_template}, file)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": tiny_model.HIDDEN,
              "intermediate_size": tiny_model.MLP, "num_hidden_layers": tiny_model.LAYERS, "num_attention_heads": tiny_model.HEADS,
              "num_key_value_heads": tiny_model.KV_HEADS, "head_dim": tiny_model.HIDDEN // tiny_model.HEADS, "vocab_size": vocab,
              "max_position_embeddings": tiny_model.CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "torch_dtype": "float32",
              "bos_token_id": None, "eos_token_id": ids[END]}
    for name, content in (("config.json", config), ("generation_config.json", {"eos_token_id": ids[END]})):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file)
    write_weights(folder, vocab, followers)
    return folder


def write_weights(folder, vocab, followers):
    source = random.Random(1)
    embedded = [[source.gauss(0.0, 1.0) for _ in range(tiny_model.HIDDEN)] for _ in range(vocab)]
    # A token's row of the last matrix points to the tokens before it.
    head = [[0.0] * tiny_model.HIDDEN for _ in range(vocab)]
    for before, after in followers.items():
        head[after] = [a + b for a, b in zip(head[after], embedded[before])]
    header, blob, offset = {}, [], 0
    for name, shape in tiny_model.shapes(vocab):
        if name.startswith("model.embed"):
            values = [value for row in embedded for value in row]
        elif name.startswith("lm_head"):
            values = [value for row in head for value in row]
        else:
            values = [1.0 if len(shape) == 1 else 0.0] * math.prod(shape)
        data = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        blob.append(data)
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blob))
