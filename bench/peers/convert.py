"""A Hugging Face folder of the Llama family as a GGUF file of bfloat16 weights, with norms in float32 and the tokenizer's words.

usage: convert.py FOLDER FILE.gguf

Float32 weights are rounded to bfloat16, to nearest even. GGUF's "llama" turns neighbouring pairs of a head's rows, Hugging Face's the
two halves of a head: the rows of q and k are written in the other order, so that the same pairs meet. Quantised files are made of this
one by the library that reads them (llama_peer quantize).
"""

import json
import pathlib
import sys

import gguf
import numpy

ARCHITECTURE = "llama"
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm"}
OUTSIDE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
           "lm_head.weight": "output.weight"}
STORED = {"BF16": "<u2", "F32": "<f4", "F16": "<f2"}


def gguf_name(name):
    """model.layers.3.self_attn.q_proj.weight -> blk.3.attn_q.weight"""
    if name in OUTSIDE:
        return OUTSIDE[name]
    _, _, layer, part, _ = name.replace("self_attn.", "self_attn/").replace("mlp.", "mlp/").split(".")
    return f"blk.{layer}.{NAMES[part.replace('/', '.')]}.weight"


def stored_tensors(folder):
    """Name, type and values of every tensor of the folder's safetensors files, without reading what is not asked for."""
    for path in sorted(folder.glob("*.safetensors")):
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        data = numpy.memmap(path, mode="r", offset=8 + length)
        for name, about in header.items():
            if name != "__metadata__":
                begin, end = about["data_offsets"]
                yield name, about["dtype"], data[begin:end].view(STORED[about["dtype"]]).reshape(about["shape"])


def as_float32(dtype, values):
    if dtype == "BF16":
        return (values.astype("<u4") << 16).view("<f4")
    return values.astype("<f4")


def as_bfloat16(dtype, values):
    """Their upper sixteen bits, as whole numbers."""
    if dtype == "BF16":
        return values
    bits = as_float32(dtype, values).view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def interleave(values, n_heads):
    """[n_heads * head_dim, columns]: row i of a head's second half comes behind row i of the first."""
    rows, columns = values.shape
    return values.reshape(n_heads, 2, rows // n_heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def checked(config):
    positions = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if config["model_type"] != "llama" or positions.get("rope_type", "default") != "default" or config.get("attention_bias") or \
            config.get("mlp_bias"):
        sys.exit("error: convert.py knows Llama without biases and without scaled positions, no other family")
    return {"rope_theta": positions.get("rope_theta"), **config}


def write_keys(writer, config):
    heads = config["num_attention_heads"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config.get("head_dim") or config["hidden_size"] // heads)
    writer.add_key_length(config.get("head_dim") or config["hidden_size"] // heads)
    writer.add_value_length(config.get("head_dim") or config["hidden_size"] // heads)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)


def write_tokenizer(writer, folder, config):
    """Its words and merges, so that loading costs what it costs; requests are token ids, so that nothing depends on them."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    words = [f"<unused {number}>" for number in range(config["vocab_size"])]
    kinds = [gguf.TokenType.UNUSED] * len(words)
    for word, number in tokenizer["model"]["vocab"].items():
        words[number], kinds[number] = word, gguf.TokenType.NORMAL
    for token in tokenizer["added_tokens"]:
        words[token["id"]], kinds[token["id"]] = token["content"], gguf.TokenType.CONTROL
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(words)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    ends = config.get("eos_token_id")
    writer.add_eos_token_id(ends[0] if isinstance(ends, list) else ends or 0)
    writer.add_add_bos_token(False)


def convert(folder, path):
    folder = pathlib.Path(folder)
    config = checked(json.loads((folder / "config.json").read_text()))
    writer = gguf.GGUFWriter(path, ARCHITECTURE)
    write_keys(writer, config)
    write_tokenizer(writer, folder, config)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name, dtype, values in stored_tensors(folder):
        name = gguf_name(name)
        if values.ndim == 1:
            writer.add_tensor(name, as_float32(dtype, values))
            continue
        values = as_bfloat16(dtype, values)
        part = name.split(".")[-2]
        if part in heads:
            values = interleave(values, heads[part])
        writer.add_tensor(name, numpy.ascontiguousarray(values).view(numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    convert(sys.argv[1], sys.argv[2])
