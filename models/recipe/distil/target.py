"""What distillation reads of the target's folder: shape, end tokens, and its embedding, where a draft's begins.

Packages are imported where tensors are read: the rest is read before it is known whether they are there.
"""
import json
import math
import shutil
import struct

from distil.folder import MODEL, Refused

KEPT_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "chat_template.jinja", "special_tokens_map.json", "added_tokens.json",
              "generation_config.json")
KEPT_FOLDER = "additional_chat_templates"  # templates beside chat_template.jinja
PACKED = (".qweight", ".weight_packed")  # several weights to an element
BESIDE = ("_scale", "_zero_point", "_shape", "_g_idx", ".scales", ".qzeros", ".g_idx")  # a quantised matrix


def as_list(value):
    return [] if value is None else list(value) if isinstance(value, list) else [value]


def read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refused(f"cannot read {path}: {error}", MODEL) from None


def end_token_of_tokenizer(folder, tokenizer):
    """Where the model names none, its tokenizer's ends an answer, as in a served target."""
    older = folder / "special_tokens_map.json"  # counts where the key is absent; null means none
    if "eos_token" not in tokenizer and older.exists():
        tokenizer = read_json(older)
    token = tokenizer.get("eos_token")
    token = token.get("content") if isinstance(token, dict) else token
    text = read_json(folder / "tokenizer.json")
    ids = text.get("model", {}).get("vocab", {})
    ids = dict(ids) if isinstance(ids, dict) else {entry[0]: i for i, entry in enumerate(ids)}  # a list of pairs in Unigram
    ids.update((added["content"], added["id"]) for added in text.get("added_tokens", []))
    return [ids[token]] if token in ids else []


def read_target(folder):
    config = read_json(folder / "config.json")
    generation = read_json(folder / "generation_config.json") if (folder / "generation_config.json").exists() else {}
    if not isinstance(config.get("vocab_size"), int):
        raise Refused(f"{folder}/config.json: no vocab_size", MODEL)
    if not (folder / "tokenizer.json").exists():
        raise Refused(f"{folder} has no tokenizer.json; a draft needs the target's tokenizer", MODEL)
    tokenizer = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").exists() else {}
    return {"folder": str(folder), "name": folder.absolute().name, "vocab_size": config["vocab_size"], "bos": config.get("bos_token_id"),
            "eos": sorted(set(as_list(generation.get("eos_token_id")) or as_list(config.get("eos_token_id")) or
                          end_token_of_tokenizer(folder, tokenizer))),
            "architecture": (config.get("architectures") or ["?"])[0],
            "has_template": "chat_template" in tokenizer or (folder / "chat_template.jinja").exists()}


def copy_kept(folder, out):
    """What a draft has of its target as it is: the tokenizer with its chat templates, and the end tokens."""
    for name in KEPT_FILES:
        if (folder / name).exists():
            shutil.copyfile(folder / name, out / name)
    if (folder / KEPT_FOLDER).is_dir():
        shutil.copytree(folder / KEPT_FOLDER, out / KEPT_FOLDER, copy_function=shutil.copyfile, dirs_exist_ok=True)


def read_tensor(folder, name):
    """Float32, or None where the folder has no such float tensor."""
    from safetensors import safe_open

    for path in weight_files(folder):
        with safe_open(path, "pt") as file:
            if name in file.keys():
                tensor = file.get_tensor(name)
                return tensor.float().numpy() if tensor.is_floating_point() else None
    return None


def weight_files(folder):
    """Those that Foretoken loads: others may lie beside them, as consolidated.safetensors does."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").exists():
        return [folder / "model.safetensors"]
    if index.exists():
        return [folder / name for name in sorted(set(read_json(index)["weight_map"].values()))]
    return sorted(folder.glob("*.safetensors"))


def n_packed(file, begin, name, tensors):
    """Weights of a matrix of packed codes: as many as the shape beside it says, or else codes of four bits."""
    shape = tensors.get(name.removesuffix("_packed") + "_shape")
    if shape is None:
        return math.prod(tensors[name]["shape"]) * (2 if tensors[name]["dtype"] == "U8" else 8)
    file.seek(begin + shape["data_offsets"][0])
    return math.prod(struct.unpack("<2q", file.read(16)) if shape["dtype"] == "I64" else struct.unpack("<2i", file.read(8)))


def weights_of_file(path):
    """{tensor: its weights}; of scales and zero points, none."""
    with open(path, "rb") as file:
        n_header = int.from_bytes(file.read(8), "little")
        tensors = json.loads(file.read(n_header))
        return {name: n_packed(file, 8 + n_header, name, tensors) if name.endswith(PACKED) else math.prod(tensor["shape"])
                for name, tensor in tensors.items() if name != "__metadata__" and not name.endswith(BESIDE)}


def weights_read(folder):
    """How many weights a step reads: of an input embedding apart from the head, none."""
    sizes = {}
    for path in weight_files(folder):
        sizes |= weights_of_file(path)
    has_head = any(name.startswith("lm_head.") for name in sizes)
    return sum(sizes.values()) - (sizes.get("model.embed_tokens.weight", 0) if has_head else 0)


def principal(matrix, width):
    """Rows of `matrix` in the `width` directions in which they differ most, with a mean square of 1."""
    import numpy as np

    centred = matrix - matrix.mean(0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    rows = centred @ vectors[:, np.argsort(-values)[:width]]
    return (rows / np.sqrt((rows**2).mean())).astype(np.float32)


def first_embeddings(folder, width):
    """(embedding, head) of `width` columns from the target's own, a row an id; None where it has too few columns or other types."""
    embedding = read_tensor(folder, "model.embed_tokens.weight")
    if embedding is None or embedding.shape[1] < width:
        return None
    head = read_tensor(folder, "lm_head.weight")
    norm = read_tensor(folder, "model.norm.weight")
    head = embedding if head is None or head.shape != embedding.shape else head
    return principal(embedding, width), principal(head if norm is None else head * norm, width)
