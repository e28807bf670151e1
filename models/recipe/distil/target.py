"""What distillation reads of the target's folder: shape, end tokens, and its embedding, where a draft's begins.

Packages are imported where tensors are read: the rest is read before it is known whether they are there.
"""
import json
import math

from distil.folder import MODEL, Refused

KEPT_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "chat_template.jinja", "special_tokens_map.json", "added_tokens.json")


def as_list(value):
    return [] if value is None else list(value) if isinstance(value, list) else [value]


def read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refused(f"cannot read {path}: {error}", MODEL) from None


def read_target(folder):
    config = read_json(folder / "config.json")
    generation = read_json(folder / "generation_config.json") if (folder / "generation_config.json").exists() else {}
    if not isinstance(config.get("vocab_size"), int):
        raise Refused(f"{folder}/config.json: no vocab_size", MODEL)
    if not (folder / "tokenizer.json").exists():
        raise Refused(f"{folder} has no tokenizer.json; a draft needs the target's tokenizer", MODEL)
    tokenizer = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").exists() else {}
    return {"folder": str(folder), "name": folder.absolute().name, "vocab_size": config["vocab_size"], "bos": config.get("bos_token_id"),
            "eos": sorted(set(as_list(generation.get("eos_token_id")) or as_list(config.get("eos_token_id")))),
            "architecture": (config.get("architectures") or ["?"])[0],
            "has_template": "chat_template" in tokenizer or (folder / "chat_template.jinja").exists()}


def read_tensor(folder, name):
    """Float32, or None where the folder has no such float tensor."""
    from safetensors import safe_open

    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            if name in file.keys():
                tensor = file.get_tensor(name)
                return tensor.float().numpy() if tensor.is_floating_point() else None
    return None


def weights_read(folder):
    """How many weights a step reads: of an input embedding apart from the head, none."""
    sizes = {}
    for path in folder.glob("*.safetensors"):
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        sizes |= {name: math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__"}
    return sum(sizes.values()) - (sizes["model.embed_tokens.weight"] if "lm_head.weight" in sizes else 0)


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
